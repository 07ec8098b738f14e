"""What an RM may not make the core hold, and what the proxy does not put up with."""

from common.machine import FORBIDDEN, MALFORMED, Delivery, Send
from common.messages import Header
from common.outbox import WINDOW_MESSAGES
from common.query_messages import Query
from common.rm_messages import Received, Refused, Resume, SyncBegin, SyncDone, SyncEnd
from common.wire import body_of, decoded
from rmproxy.front import BROKER, Front
from rmproxy.patience import CALLS_AT_ONCE, REFUSALS_MAX
from tests.machines import PARTITION, arrives, header, sent
from tests.rmproxy.test_front import ASK, GPU, OTHER, PEER, answered, one_refusal, open_front


def full_front() -> Front:
    """One partition has a whole window under way."""
    front = open_front()
    for seq in range(1, WINDOW_MESSAGES + 1):
        assert passed(front.handle(arrives(PEER, ASK, partition=PARTITION, seq=seq), 0))
    return front


def passed(sends: list[Send]) -> bool:
    return [one.to for one in sends] == [BROKER]


def test_what_exceeds_the_window_of_a_partition_is_refused_with_its_number_and_goes_no_further() -> None:
    front = full_front()
    refused = one_refusal(front.handle(arrives(PEER, ASK, partition=PARTITION, seq=WINDOW_MESSAGES + 1), 0))
    assert (refused.code, refused.seq) == ("window", WINDOW_MESSAGES + 1)
    assert passed(front.handle(arrives(PEER, ASK, partition=GPU, seq=1), 0)), "each partition has its own"


def test_an_acknowledgement_on_its_way_back_makes_room() -> None:
    front = full_front()
    front.handle(arrives(BROKER, Received(), partition=PARTITION, ack=1), 0)
    assert passed(front.handle(arrives(PEER, ASK, partition=PARTITION, seq=WINDOW_MESSAGES + 1), 0))


def test_what_is_repeated_after_a_resumption_passes() -> None:
    front = full_front()
    [call] = front.handle(arrives(OTHER, Resume(), ref="again"), 0)
    answered(front, call)
    for seq in range(1, WINDOW_MESSAGES + 1):
        assert passed(front.handle(arrives(OTHER, ASK, partition=PARTITION, seq=seq), 0))


def test_updates_without_a_number_wait_for_their_marks() -> None:
    front, large = open_front(), Delivery(PEER, header("AllocationRequest", partition=PARTITION), bytes(1 << 20))
    [first] = front.handle(large, 0)
    assert one_refusal(front.handle(large, 0)).code == "window"
    [told] = front.handle(arrives(BROKER, Received(), partition=PARTITION, ref=first.header.ref), 0)
    assert told == sent(PEER, Received(), partition=PARTITION), "the mark is our own"
    assert passed(front.handle(large, 0))


def test_a_synchronisation_passes_like_an_update_and_is_refused_where_there_is_no_partition() -> None:
    front = open_front()
    assert passed(front.handle(arrives(PEER, SyncBegin(), partition=PARTITION, seq=1), 0))
    assert passed(front.handle(arrives(PEER, SyncEnd(), partition=PARTITION, seq=2), 0))
    began = front.handle(arrives(PEER, SyncBegin(), partition="rm-1_zzz", seq=1), 0)
    assert began == [sent(PEER, Received(), partition="rm-1_zzz", ack=1)]
    [ended] = front.handle(arrives(PEER, SyncEnd(), partition="rm-1_zzz", seq=2), 0)
    assert decoded(SyncDone, ended.body).problem == "failed to find partition rm-1_zzz"
    assert one_refusal(front.handle(arrives(PEER, SyncBegin()), 0)).code == "no-partition"


def test_a_flood_of_what_cannot_be_read_is_answered_a_few_times_and_then_no_more() -> None:
    front = open_front()
    nonsense = Delivery(PEER, Header(kind=MALFORMED, ref="no"), b"")
    codes = [decoded(Refused, one.body).code for _ in range(1000) for one in front.handle(nonsense, 0)]
    assert codes == ["malformed"] * REFUSALS_MAX + ["flood"]
    assert passed(front.handle(arrives(PEER, ASK, partition=PARTITION), 0)), "what is right passes all the same"
    assert one_refusal(front.handle(nonsense, 0)).code == "malformed", "and is a new beginning"
    assert len(front.patience.complaints) == 1


def test_an_rm_that_does_nothing_but_resume_is_slowed_down() -> None:
    front = open_front()
    sends = [one for _ in range(100) for one in front.handle(arrives(PEER, Resume(), ref="r"), 0)]
    assert len([one for one in sends if one.to == BROKER]) == CALLS_AT_ONCE - 1, "it has registered, too"
    [*_, refused] = [one for one in sends if one.to == PEER]
    assert decoded(Refused, refused.body).code == "flood"
    assert passed(front.handle(arrives(PEER, Resume(), ref="r"), 60.0))


def test_who_may_not_speak_for_the_rm_hears_why() -> None:
    front = open_front()
    forbidden = Delivery(PEER, header(FORBIDDEN, seq=3), b"key x may not speak for RM 'rm-1'")
    assert one_refusal(front.handle(forbidden, 0)) == Refused(
        code="forbidden", reason="key x may not speak for RM 'rm-1'", seq=3
    )


def test_a_question_of_the_grpc_port_about_a_partition_finds_its_answer() -> None:
    front = Front()
    peer = "grpc:rm-1"
    [call] = front.handle(arrives(peer, Resume(), ref="r"), 0)
    answered(front, call)
    query = Query(what="queues")
    [asked] = front.handle(arrives(peer, query, partition=PARTITION, ref="q"), 0)
    assert asked == sent(BROKER, query, partition=PARTITION, ref=asked.header.ref)
    back = Delivery(BROKER, Header(kind="Answer", partition=PARTITION, ref=asked.header.ref), b"body")
    assert front.handle(back, 0) == [Send(peer, header("Answer", partition=PARTITION, ref="q"), b"body")]
    assert one_refusal(front.handle(Delivery(PEER, header("Query"), body_of(query)), 0)).code == "unknown-kind"
