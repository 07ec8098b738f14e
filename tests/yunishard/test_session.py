""""""

import pytest

from common.messages import Header, Message, News
from common.rm_messages import (
    NODE_DECOMMISSION,
    AcceptedApplication,
    AcceptedNode,
    Allocation,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    AllocationResponse,
    ApplicationRequest,
    ApplicationResponse,
    ConfigurationUpdated,
    EventRecord,
    EventResponse,
    Goodbye,
    Left,
    NodeRequest,
    NodeResponse,
    PartitionRestarted,
    Received,
    Refused,
    Registered,
    RegisterResourceManager,
    RejectedAllocation,
    RejectedApplication,
    RejectedNode,
    ReleasesIgnored,
    RemoveApplicationRequest,
    Resume,
    ResumeWanted,
    SchedulingStateResponse,
    SyncDone,
    SyncEnd,
    UpdateContainerSchedulingState,
    UpdatedApplication,
)
from common.session import WINDOW_MESSAGES
from common.wire import decode_body, encode_body, encode_frames
from yunishard.builders import application, ask, node, release
from yunishard.exceptions import Closed, ResyncFailed, SessionLost
from yunishard.results import Callbacks, Result
from yunishard.session import READ_AHEAD_MESSAGES, Dialogue, Sync, Syncs

SESSION = "s1"
ONE, TWO = "rm-1_one", "rm-1_two"


def opened() -> Dialogue:
    dialogue = Dialogue(RegisterResourceManager(rm_id="rm-1"), session=SESSION)
    dialogue.connected()
    hears(dialogue, Registered(partitions=[ONE, TWO]), partition="")
    assert said(dialogue) == ["RegisterResourceManager"]
    return dialogue


def hears(
    dialogue: Dialogue,
    message: Message,
    *,
    partition: str = ONE,
    seq: int = 0,
    ack: int = 0,
    life: int = 0,
    ref: str = "",
) -> bool:
    kind = type(message).__name__
    header = Header(kind=kind, partition=partition, session=SESSION, seq=seq, ack=ack, life=life, ref=ref)
    return dialogue.received(encode_frames(header, encode_body(message)))


def said(dialogue: Dialogue) -> list[str]:
    return [outgoing.header.kind for outgoing in dialogue.to_send()]


def allocated(number: int, partition: str = ONE) -> AllocationResponse:
    return AllocationResponse(new=[Allocation(allocation_key=f"k{number}", partition_name=partition)])


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
    assert decode_body(Resume, resume.body) == Resume(received={ONE: 1})
    assert dialogue.backlog() == 0, "the core sends these again"


EVERY_KIND: list[News | Refused] = [
    AllocationResponse(new=[Allocation(allocation_key="k1")]),
    AllocationResponse(released=[AllocationRelease(allocation_key="k1")]),
    AllocationResponse(rejected_allocations=[RejectedAllocation(allocation_key="k1")]),
    ApplicationResponse(
        accepted=[AcceptedApplication(application_id="a")],
        rejected=[RejectedApplication(application_id="b")],
        updated=[UpdatedApplication(application_id="a", state="Running")],
    ),
    NodeResponse(accepted=[AcceptedNode(node_id="n")], rejected=[RejectedNode(node_id="m")]),
    EventResponse(events=[EventRecord(type=1, object_id="a")]),
    SchedulingStateResponse(updated=[UpdateContainerSchedulingState(application_id="a", allocation_key="k")]),
    ReleasesIgnored(ignored=[AllocationRelease(allocation_key="k9")]),
    Refused(code="malformed", reason="r", seq=1),
]


@pytest.mark.parametrize("news", EVERY_KIND, ids=lambda news: type(news).__name__)
def test_every_item_that_reaches_a_callback_names_its_partition(news: News | Refused) -> None:
    dialogue = opened()
    hears(dialogue, news, partition=TWO, seq=0 if isinstance(news, Refused | ReleasesIgnored) else 1)
    (result,) = all_taken(dialogue)
    items: list[object] = []
    names = "allocated released allocation_rejected application_accepted application_rejected application_updated"
    names += " node_accepted node_rejected event scheduling_state_updated release_ignored refused"
    list(Callbacks(**dict.fromkeys(names.split(), items.append)).tell(result))
    assert items
    assert [getattr(item, "partition_name", "has none") for item in items] == [TWO] * len(items)


def test_a_release_that_a_callback_builds_goes_to_the_partition_of_its_allocation() -> None:
    dialogue = opened()
    hears(dialogue, AllocationResponse(new=[Allocation(allocation_key="k1")]), partition=TWO, seq=1)
    (result,) = all_taken(dialogue)
    assert isinstance(result.news, AllocationResponse)
    (one,) = result.news.new
    wanted = release(one.application_id, one.allocation_key, partition=one.partition_name)
    dialogue.update(AllocationRequest(releases=AllocationReleasesRequest(allocations_to_release=[wanted])))
    assert [outgoing.header.partition for outgoing in dialogue.to_send()][-1] == TWO


def test_reports_of_ignored_releases_do_not_fill_the_memory_of_a_slow_consumer() -> None:
    dialogue = opened()
    for _ in range(READ_AHEAD_MESSAGES + 10):
        hears(dialogue, ReleasesIgnored(ignored=[AllocationRelease(allocation_key="k")]))
    assert dialogue.backlog() == READ_AHEAD_MESSAGES


def test_what_a_dead_worker_said_and_nobody_took_is_dropped() -> None:
    dialogue = opened()
    hears(dialogue, allocated(1), seq=1)
    hears(dialogue, allocated(7, TWO), seq=1, partition=TWO)
    hears(dialogue, PartitionRestarted(), life=1)
    hears(dialogue, allocated(2), seq=1, life=1)
    assert all_taken(dialogue) == [
        Result(TWO, allocated(7, TWO)),
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


def test_a_gap_that_the_core_found_is_mended_once_though_each_update_behind_it_is_refused() -> None:
    dialogue = opened()
    for number in (3, 4, 5):
        hears(dialogue, Refused(code="gap", reason=f"{number} came after 1", seq=number))
        assert said(dialogue) == (["Resume"] if number == 3 else [])
    hears(dialogue, Registered(partitions=[ONE]), ref=f"resume {ONE}")
    hears(dialogue, Refused(code="gap", reason="9 came after 5", seq=9))
    assert said(dialogue) == ["Resume"]


def test_a_restarted_worker_resumes_its_partition_and_interrupts_no_other() -> None:
    dialogue = opened()
    both = NodeRequest(nodes=[node("n1", partition="one"), node("n1", partition="two")])
    hears(dialogue, allocated(1), seq=1)
    hears(dialogue, allocated(1, TWO), partition=TWO, seq=1)
    for _ in range(2):  # the second request is covered by the first answer
        hears(dialogue, ResumeWanted(reason="the worker was started again"))
    dialogue.update(both)
    [resume, other] = dialogue.to_send()
    assert (resume.header.kind, resume.header.partition) == ("Resume", ONE)
    assert decode_body(Resume, resume.body) == Resume(received={ONE: 0})
    assert (other.header.kind, other.header.partition) == ("NodeRequest", TWO)
    assert dialogue.session.full(both)
    assert [result.partition for result in all_taken(dialogue)] == [TWO]
    assert [one.header.partition for one in dialogue.to_send()] == [TWO]
    hears(dialogue, Registered(partitions=[ONE]), ref=f"resume {ONE}")
    [repeated] = dialogue.to_send()
    assert (repeated.header.kind, repeated.header.partition) == ("NodeRequest", ONE)
    hears(dialogue, allocated(1), seq=1)
    assert [result.news for result in all_taken(dialogue)] == [allocated(1)]


def test_two_restarted_workers_resume_all_partitions() -> None:
    dialogue = opened()
    hears(dialogue, ResumeWanted(reason="restarted"))
    hears(dialogue, ResumeWanted(reason="restarted"), partition=TWO)
    assert [one.header.partition for one in dialogue.to_send()] == [""]
    hears(dialogue, Registered(partitions=[ONE]), ref=f"resume {ONE}")
    assert dialogue.session.state == "resuming"


def test_a_refused_resumption_of_one_partition_is_repeated_for_all() -> None:
    dialogue = opened()
    hears(dialogue, ResumeWanted(reason="restarted"))
    hears(dialogue, Refused(code="busy", reason="resume all partitions"), partition="", ref=f"resume {ONE}")
    assert dialogue.pause_s == 0
    dialogue.connected()
    assert [(one.header.kind, one.header.partition) for one in dialogue.to_send()] == [("Resume", "")]


def test_frames_that_are_no_message_are_answered_by_resuming() -> None:
    dialogue = opened()
    dialogue.received([b"GET / HTTP/1.1"])
    assert said(dialogue) == ["Resume"]


def test_a_bare_acknowledgement_is_no_result() -> None:
    dialogue = opened()
    hears(dialogue, Received(), ack=3)
    assert dialogue.take() is None


@pytest.mark.parametrize("code", ["superseded", "forbidden"])
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
        assert dialogue.received(encode_frames(Header(kind="Sparkle", partition=ONE, session=SESSION), b"\x80"))
    assert (dialogue.over, said(dialogue)) == (None, [])


# Pauses and ends ----------------------------------------------------------------------------------------------------


def turned_away(dialogue: Dialogue, code: str) -> None:
    hears(dialogue, Refused(code=code, reason="later"), partition="")


def test_when_the_core_wants_it_the_session_is_resumed_once() -> None:
    dialogue = opened()
    hears(dialogue, ResumeWanted(reason="the core began anew"), partition="")
    hears(dialogue, ResumeWanted(reason="the core began anew"), partition="")
    assert said(dialogue) == ["Resume"]


def test_when_the_core_wants_a_resumption_what_nobody_took_is_dropped_as_it_comes_again() -> None:
    """A worker that recovered from an older journal may say something else under the same numbers."""
    dialogue = opened()
    hears(dialogue, allocated(1), seq=1)
    assert len(all_taken(dialogue)) == 1
    dialogue.to_send()
    hears(dialogue, allocated(2), seq=2)
    hears(dialogue, ResumeWanted(reason="the worker was started again"), partition="")
    assert decode_body(Resume, dialogue.to_send()[0].body).received[ONE] == 1
    hears(dialogue, Registered(partitions=[ONE, TWO]), partition="")
    hears(dialogue, allocated(3), seq=2)
    assert [one.news for one in all_taken(dialogue)] == [allocated(3)]


def test_a_goodbye_is_told_and_updates_wait_until_the_pause_is_over() -> None:
    dialogue = opened()
    goodbye = Goodbye(reason="stopping", retry_after_milli_seconds=1500)
    hears(dialogue, goodbye, partition="")
    assert (dialogue.pause_s, dialogue.complaint) == (1.5, "stopping")
    dialogue.update(NodeRequest(nodes=[node("n1", partition="one")]))
    assert said(dialogue) == []
    assert all_taken(dialogue) == [Result("", goodbye)]
    dialogue.connected()
    assert said(dialogue) == ["Resume"]
    hears(dialogue, Registered(partitions=[ONE, TWO]), partition="")
    assert said(dialogue) == ["NodeRequest"]


@pytest.mark.parametrize("code", ["busy", "flood"])
def test_a_registration_that_comes_at_a_bad_time_is_made_again(code: str) -> None:
    dialogue = Dialogue(RegisterResourceManager(rm_id="rm-1"), session=SESSION)
    dialogue.connected()
    said(dialogue)
    turned_away(dialogue, code)
    assert (dialogue.over, dialogue.pause_s, dialogue.complaint) == (None, 0.0, "later")
    dialogue.connected()
    assert said(dialogue) == ["RegisterResourceManager"]
    hears(dialogue, Registered(partitions=[ONE]), partition="")
    assert (dialogue.session.state, dialogue.complaint) == ("open", "")


def test_a_resumption_that_comes_at_a_bad_time_is_made_again_and_updates_are_kept() -> None:
    dialogue = opened()
    dialogue.connected()
    turned_away(dialogue, "busy")
    assert dialogue.over is None
    dialogue.update(NodeRequest(nodes=[node("n1", partition="one")]))
    dialogue.connected()
    assert said(dialogue) == ["Resume"]
    hears(dialogue, Registered(partitions=[ONE, TWO]), partition="")
    assert said(dialogue) == ["NodeRequest"]


def test_who_is_unknown_where_it_speaks_asks_the_core_before_it_gives_up() -> None:
    dialogue = opened()
    turned_away(dialogue, "unknown-session")
    turned_away_again = Refused(code="unknown-session", reason="never heard of it")
    assert said(dialogue) == ["Resume"]
    hears(dialogue, turned_away_again, partition="")
    assert isinstance(dialogue.over, SessionLost)


def test_a_late_refusal_of_a_call_that_was_answered_since_is_no_result() -> None:
    dialogue = opened()
    turned_away(dialogue, "busy")
    assert all_taken(dialogue) == []


def test_who_leaves_is_gone_once_the_core_says_so() -> None:
    dialogue = opened()
    dialogue.leave("done")
    dialogue.update(NodeRequest(nodes=[node("n1", partition="one")]))
    assert said(dialogue) == ["Leave"]
    hears(dialogue, Left(), partition="")
    assert dialogue.left
    assert isinstance(dialogue.over, Closed)


def test_who_leaves_says_so_again_on_the_next_connection() -> None:
    dialogue = opened()
    dialogue.leave("")
    dialogue.connected()
    assert said(dialogue) == ["Leave"]
    turned_away(dialogue, "busy")
    dialogue.connected()
    assert said(dialogue) == ["Leave"]
    hears(dialogue, Left(), partition="")
    assert dialogue.left


def test_who_was_away_for_too_long_hears_that_nothing_is_left() -> None:
    dialogue = opened()
    hears(dialogue, Left(), partition="")
    assert not dialogue.left
    assert isinstance(dialogue.over, SessionLost)


# Full reports -------------------------------------------------------------------------------------------------------


def test_a_report_is_said_in_order_and_counted() -> None:
    dialogue = opened()
    sync = dialogue.sync_begin(ONE, "because")
    dialogue.update(NodeRequest(nodes=[node("n1", partition="one"), node("n2", partition="two")]))
    dialogue.sync_end(sync)
    begin, first, _, end = dialogue.to_send()
    assert [(one.header.kind, one.header.partition, one.header.seq) for one in (begin, first, end)] == [
        ("SyncBegin", ONE, 1),
        ("NodeRequest", ONE, 2),
        ("SyncEnd", ONE, 3),
    ]
    assert decode_body(SyncEnd, end.body) == SyncEnd(nodes=1)


def test_its_answer_is_known_before_the_consumer_has_taken_what_came_before_and_counts_as_received_after() -> None:
    dialogue = opened()
    sync = dialogue.sync_begin(ONE, "")
    dialogue.sync_end(sync)
    said(dialogue)
    hears(dialogue, allocated(1), seq=1)
    hears(dialogue, SyncDone(nodes=["n9"]), seq=2)
    assert sync.swept == SyncDone(nodes=["n9"])
    assert all_taken(dialogue) == [Result(ONE, allocated(1))]
    assert [(one.header.kind, one.header.ack) for one in dialogue.to_send()] == [("Ack", 2)]


def test_an_answer_from_an_earlier_life_is_not_heard() -> None:
    dialogue = opened()
    hears(dialogue, PartitionRestarted(), life=1)
    sync = dialogue.sync_begin(ONE, "")
    dialogue.sync_end(sync)
    hears(dialogue, SyncDone(), seq=7)
    assert sync.outcome is None


def test_a_partition_that_loses_what_it_knew_meanwhile_or_goes_has_taken_nothing() -> None:
    dialogue = opened()
    one, two = dialogue.sync_begin(ONE, ""), dialogue.sync_begin(TWO, "")
    hears(dialogue, PartitionRestarted(), life=1)
    hears(dialogue, ConfigurationUpdated(checksum="c", partitions=[ONE]), partition="")
    assert "lost what it knew" in str(one.outcome)
    assert "not configured" in str(two.outcome)


ONE, TWO = "rm-1_one", "rm-1_two"


def ended(syncs: Syncs, partition: str = ONE) -> Sync:
    sync = syncs.begin(partition)
    syncs.end(sync)
    return sync


def failure(sync: Sync) -> str:
    assert isinstance(sync.outcome, ResyncFailed), sync
    return str(sync.outcome)


def test_what_is_said_while_a_report_lasts_is_counted_by_partition() -> None:
    syncs = Syncs()
    assert not syncs
    sync, other = syncs.begin(ONE), syncs.begin(TWO)
    assert syncs
    syncs.count(ONE, NodeRequest(nodes=[node("n1"), node("n2"), node("n0", action=NODE_DECOMMISSION)]))
    gone = RemoveApplicationRequest(application_id="gone")
    syncs.count(ONE, ApplicationRequest(new=[application("a", "root.q", user="u")], remove=[gone]))
    for _ in range(2):
        syncs.count(ONE, AllocationRequest(allocations=[ask("k", "a", {"vcore": 1})]))
    syncs.count(TWO, NodeRequest(nodes=[node("n3")]))
    syncs.end(sync)
    syncs.count(ONE, NodeRequest(nodes=[node("late")]))
    assert sync.counts == SyncEnd(nodes=2, applications=1, allocations=2)
    assert other.counts == SyncEnd(nodes=1)
    assert syncs, "the other goes on"
    syncs.end(other)
    assert not syncs


def test_releases_count_for_nothing() -> None:
    syncs = Syncs()
    sync = syncs.begin(ONE)
    request = AllocationRequest()
    request.releases.allocations_to_release.append(release("a", "k"))
    syncs.count(ONE, request)
    assert sync.counts == SyncEnd()


def test_the_answer_of_the_partition_is_the_outcome() -> None:
    syncs = Syncs()
    sync, other = ended(syncs), ended(syncs, TWO)
    done = SyncDone(nodes=["n9"])
    syncs.answered(ONE, 5, done)
    assert (sync.outcome, sync.swept, other.outcome) == (done, done, None)


def test_a_problem_is_a_failure() -> None:
    syncs = Syncs()
    sync = ended(syncs)
    syncs.answered(ONE, 5, SyncDone(problem="2 nodes of 3 arrived"))
    assert failure(sync) == "rm-1_one: 2 nodes of 3 arrived"
    assert sync.swept is None


def test_an_answer_that_comes_again_is_not_that_of_the_next_report() -> None:
    syncs = Syncs()
    ended(syncs)
    syncs.answered(ONE, 5, SyncDone())
    second = ended(syncs)
    syncs.answered(ONE, 5, SyncDone())
    assert second.outcome is None
    syncs.answered(ONE, 6, SyncDone())
    assert second.swept == SyncDone()


def test_the_answer_of_a_report_for_which_nobody_waits_any_more_is_not_that_of_the_next_one() -> None:
    syncs = Syncs()
    ended(syncs)
    second = ended(syncs)
    syncs.answered(ONE, 5, SyncDone(nodes=["of the first"]))
    assert second.outcome is None


def test_a_refusal_that_has_no_number_counts_once_for_each_report() -> None:
    syncs = Syncs()
    for _ in range(2):
        sync = ended(syncs)
        syncs.answered(ONE, 0, SyncDone(problem="no such partition"))
        assert "no such partition" in failure(sync)
    assert syncs.partitions() == [], "nothing is remembered by a name that is none"


def test_a_partition_that_began_anew_has_taken_no_report() -> None:
    syncs = Syncs()
    first, second = ended(syncs), syncs.begin(ONE)
    syncs.fail(ONE, "it lost what it knew")
    assert failure(first) == failure(second) == "rm-1_one: it lost what it knew"
    syncs.end(second)
    assert failure(second) == "rm-1_one: it lost what it knew"
    third = ended(syncs)
    syncs.answered(ONE, 1, SyncDone())
    assert third.swept == SyncDone()


def test_a_report_that_was_begun_again_is_not_complete() -> None:
    syncs = Syncs()
    first, second = syncs.begin(ONE), syncs.begin(ONE)
    syncs.end(first)
    assert "another report" in failure(first)
    syncs.end(second)
    syncs.answered(ONE, 1, SyncDone())
    assert second.swept == SyncDone()
