import pytest

from common.messages import (
    Allocation,
    AllocationResponse,
    Header,
    Message,
    NodeRequest,
    PartitionRestarted,
    Received,
    Refused,
    Registered,
    RegisterResourceManager,
    Resume,
)
from common.outbox import WINDOW_MESSAGES
from common.wire import body_of, decoded, frames_of
from shim.dialogue import Dialogue, SessionLost
from shim.parts import node
from shim.results import Result

SESSION = "s1"
ONE, TWO = "rm-1_one", "rm-1_two"


def opened() -> Dialogue:
    dialogue = Dialogue(RegisterResourceManager(rm_id="rm-1"), session=SESSION)
    dialogue.connected()
    hears(dialogue, Registered(partitions=[ONE, TWO]), partition="")
    assert said(dialogue) == ["RegisterResourceManager"]
    return dialogue


def hears(
    dialogue: Dialogue, message: Message, *, partition: str = ONE, seq: int = 0, ack: int = 0, life: int = 0
) -> bool:
    header = Header(kind=type(message).__name__, partition=partition, session=SESSION, seq=seq, ack=ack, life=life)
    return dialogue.received(frames_of(header, body_of(message)))


def said(dialogue: Dialogue) -> list[str]:
    return [outgoing.header.kind for outgoing in dialogue.to_send()]


def allocated(number: int) -> AllocationResponse:
    return AllocationResponse(new=[Allocation(allocation_key=f"k{number}")])


def all_taken(dialogue: Dialogue) -> list[Result]:
    return list(iter(dialogue.take, None))


def test_only_what_was_taken_counts_as_received() -> None:
    dialogue = opened()
    for number in (1, 2, 3):
        hears(dialogue, allocated(number), seq=number)
    dialogue.take()
    dialogue.acknowledge()
    assert [(outgoing.header.kind, outgoing.header.ack) for outgoing in dialogue.to_send()] == [("Ack", 1)]
    dialogue.connected()
    (resume,) = dialogue.to_send()
    assert decoded(Resume, resume.body) == Resume(received={ONE: 1})
    assert dialogue.backlog() == 0, "the core sends these again"


def test_what_a_dead_worker_said_and_nobody_took_is_dropped() -> None:
    dialogue = opened()
    hears(dialogue, allocated(1), seq=1)
    hears(dialogue, allocated(7), seq=1, partition=TWO)
    hears(dialogue, PartitionRestarted(), life=1)
    hears(dialogue, allocated(2), seq=1, life=1)
    assert all_taken(dialogue) == [
        Result(TWO, allocated(7)),
        Result(ONE, PartitionRestarted()),
        Result(ONE, allocated(2)),
    ]


def test_a_restart_that_was_told_and_not_taken_survives_a_broken_connection() -> None:
    dialogue = opened()
    hears(dialogue, PartitionRestarted(), life=1)
    dialogue.connected()
    assert all_taken(dialogue) == [Result(ONE, PartitionRestarted())]


def test_an_acknowledgement_in_news_makes_room_before_the_news_are_taken() -> None:
    dialogue = opened()
    command = NodeRequest(nodes=[node("n1", partition="one")])
    for _ in range(WINDOW_MESSAGES):
        dialogue.update(command)
    assert dialogue.session.full(command)
    assert not hears(dialogue, allocated(1), seq=1), "no room yet"
    assert hears(dialogue, allocated(2), seq=2, ack=5)
    assert not dialogue.session.full(command)
    assert not hears(dialogue, allocated(3), seq=3, ack=5), "nothing new"


def test_while_it_resumes_updates_are_kept_for_later_and_sent_once_in_order() -> None:
    dialogue = opened()
    dialogue.update(NodeRequest(nodes=[node("n1", partition="one")]))
    dialogue.connected()
    dialogue.update(NodeRequest(nodes=[node("n2", partition="one")]))
    assert said(dialogue) == ["Resume"], "what was to be sent on the old connection comes again"
    hears(dialogue, Registered(partitions=[ONE, TWO]), partition="")
    assert [outgoing.header.seq for outgoing in dialogue.to_send()] == [1, 2]


def test_a_gap_asks_once_and_what_is_behind_it_is_dropped() -> None:
    dialogue = opened()
    hears(dialogue, allocated(2), seq=2)
    hears(dialogue, allocated(3), seq=3)
    assert dialogue.take() is None
    assert said(dialogue) == ["Resume"]
    hears(dialogue, Registered(partitions=[ONE, TWO]), partition="")
    for number in (1, 2, 3):
        hears(dialogue, allocated(number), seq=number)
    assert [result.news for result in all_taken(dialogue)] == [allocated(1), allocated(2), allocated(3)]


def test_frames_that_are_no_message_are_answered_by_resuming() -> None:
    dialogue = opened()
    dialogue.received([b"GET / HTTP/1.1"])
    assert said(dialogue) == ["Resume"]


def test_a_bare_acknowledgement_is_no_result() -> None:
    dialogue = opened()
    hears(dialogue, Received(), ack=3)
    assert dialogue.take() is None


@pytest.mark.parametrize("code", ["superseded", "unknown-session"])
def test_the_core_may_end_the_session_at_any_time(code: str) -> None:
    dialogue = opened()
    hears(dialogue, Refused(code=code, reason="RM 'rm-1' registered again elsewhere"), partition="")
    assert isinstance(dialogue.over, SessionLost)
    assert "elsewhere" in str(dialogue.over)
    dialogue.connected()
    assert said(dialogue) == [], "there is nothing left to say"


def test_updates_refused_for_want_of_acknowledgements_go_again_once_some_are_given() -> None:
    dialogue = opened()
    hears(dialogue, allocated(1), seq=1)
    hears(dialogue, Refused(code="window", reason="acknowledge first", seq=1))
    assert said(dialogue) == []
    assert all_taken(dialogue) == [Result(ONE, allocated(1))]
    assert said(dialogue) == ["Resume"], "it says what was received, and brings what was refused again"


def test_updates_refused_when_everything_is_acknowledged_already_go_again_at_once() -> None:
    dialogue = opened()
    hears(dialogue, Refused(code="window", reason="acknowledge first", seq=1))
    assert said(dialogue) == ["Resume"]


def test_messages_of_a_newer_core_do_no_harm() -> None:
    dialogue = opened()
    for _ in range(10):
        assert dialogue.received(frames_of(Header(kind="Sparkle", partition=ONE, session=SESSION), b"\x80"))
    assert (dialogue.over, said(dialogue)) == (None, [])
