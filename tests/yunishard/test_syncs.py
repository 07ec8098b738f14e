from common.rm_messages import (
    NODE_DECOMMISSION,
    AllocationRequest,
    ApplicationRequest,
    NodeRequest,
    RemoveApplicationRequest,
    SyncDone,
    SyncEnd,
)
from yunishard.failures import ResyncFailed
from yunishard.parts import application, ask, node, release
from yunishard.syncs import Sync, Syncs

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
