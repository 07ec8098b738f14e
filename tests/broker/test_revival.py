"""What a worker that says hello runs, what it is meant to run, and what follows."""

import pytest

from broker.config_rollout import ROLLOUT_MAX_S
from common.config.model import compute_checksum
from common.control_messages import AbortConfig, CommitConfig, Hello, PrepareConfig, Settings, WorkerEnded
from common.names import SUPERVISOR, worker_name
from common.rm_messages import NodeResponse, PartitionRestarted, Received, ResumeWanted
from common.wire import decode_body
from tests.broker.house import GPU, PROXY, House, is_prepare, kinds, registered, wanted
from tests.machines import ONE_QUEUE, PARTITION, RM, config_of, sent, two_partitions

MORE = ONE_QUEUE.replace("{name: batch}", "{name: batch}, {name: more}")
RESUMES = ResumeWanted(reason=f"the worker of partition {PARTITION} was started again")
ASKED_TO_RESUME = sent(PROXY, RESUMES, partition=PARTITION)
AGAIN = [(PARTITION, "PrepareConfig"), (PARTITION, "CommitConfig")]
GOES_ON = [(PARTITION, "Settings"), (PROXY, "ResumeWanted")]


def inherited(text: str = ONE_QUEUE) -> House:
    """Another broker than the one with which the RM registered; the RM has resumed, no worker has come."""
    house = registered(text)
    house.begin_again()
    house.resume()
    return house


def test_one_that_has_everything_goes_on_and_its_rm_resumes() -> None:
    house = registered()
    assert house.returns(PARTITION) == [sent(PARTITION, Settings(values={}), partition=PARTITION), ASKED_TO_RESUME]


def test_one_that_missed_the_latest_configuration_gets_it_and_goes_on_from_what_it_has() -> None:
    house = registered()
    house.agree(house.update(MORE))
    assert house.returns(PARTITION, rollout=1) == [
        sent(PARTITION, PrepareConfig(rollout=2, config=config_of(MORE), live=True), partition=PARTITION),
        sent(PARTITION, CommitConfig(rollout=2), partition=PARTITION),
        sent(PARTITION, Settings(values={}), partition=PARTITION),
        ASKED_TO_RESUME,
    ]


def test_a_worker_that_cannot_run_the_configuration_in_force_is_a_problem_of_its_partition() -> None:
    """As it was upgraded meanwhile, or as the configuration ended workers and was set aside."""
    house = registered()
    [prepare, *_] = house.returns(PARTITION, rollout=0, session="")
    assert house.vote(prepare, "it ended the worker") == []
    reason = "its worker cannot run the configuration in force: it ended the worker"
    assert house.switch.state.warnings == [f"partition {PARTITION}: {reason}"]
    assert [one.problem for one in house.switch.registry.partition_entries()] == [reason]
    house.returns(PARTITION)
    assert [one.problem for one in house.switch.registry.partition_entries()] == [""]


def test_an_objection_to_a_change_that_was_given_up_is_no_problem() -> None:
    house = registered()
    [prepare, *_] = house.update(MORE)
    house.wait(house.now + ROLLOUT_MAX_S)
    assert house.vote(prepare, "too late") == []
    assert [one.problem for one in house.switch.registry.partition_entries()] == [""]


@pytest.mark.parametrize("session", ["", "earlier"])
def test_one_that_never_began_begins_empty_in_the_same_life_and_its_rm_says_again_what_it_said(session: str) -> None:
    house = registered()
    assert house.returns(PARTITION, rollout=0, session=session) == [
        sent(PARTITION, PrepareConfig(rollout=1, config=config_of()), partition=PARTITION),
        sent(PARTITION, CommitConfig(rollout=1), partition=PARTITION),
        ASKED_TO_RESUME,
    ]


@pytest.mark.parametrize("problem", ["", "damaged"])
def test_one_that_has_nothing_of_what_its_rm_has_heard_begins_another_life(problem: str) -> None:
    house = registered()
    house.speaks(PARTITION)
    *again, told = house.hello(PARTITION, problem=problem)
    assert kinds(again) == AGAIN
    reason = problem or "what its worker kept is gone"
    assert told == sent(PROXY, PartitionRestarted(reason=reason), partition=PARTITION, life=1)
    assert house.switch.state.warnings[-1].endswith(f"report everything again: {reason}")


def test_one_that_goes_on_may_have_told_its_rm_something_so_that_its_loss_is_one() -> None:
    house = registered()
    house.returns(PARTITION)
    assert kinds(house.hello(PARTITION))[-1] == (PROXY, "PartitionRestarted")


def test_one_that_runs_what_it_should_and_has_lost_the_end_of_it_begins_another_life_once() -> None:
    """Its RM has heard more than it knows; it says so for each thing that its RM says to it meanwhile."""
    house = registered()
    house.speaks(PARTITION)
    runs = {"partition": PARTITION, "epoch": 1}
    hello = Hello(role="worker", rollout=1, problem="the end is missing")
    assert kinds(house.hear(PARTITION, hello, **runs)) == [*AGAIN, (PROXY, "PartitionRestarted")]
    house.hear(PARTITION, Received(), life=0, **runs)
    assert kinds(house.hear(PARTITION, hello, **runs)) == [*AGAIN, (PROXY, "ResumeWanted")]
    owner = house.switch.registry.owner(PARTITION)
    assert owner is not None
    assert owner.generation(PARTITION) == 1


def test_one_of_another_life_has_nothing_of_this_one() -> None:
    house = registered()
    house.lost(PARTITION)
    assert kinds(house.returns(PARTITION, life=0)) == [*AGAIN, (PROXY, "ResumeWanted")]
    house.speaks(PARTITION)
    assert kinds(house.returns(PARTITION, life=0))[-1] == (PROXY, "PartitionRestarted")


def test_one_that_still_has_a_vote_on_a_change_that_nobody_knows_forgets_it() -> None:
    house = registered()
    hello = Hello(role="worker", rollout=1, prepared=7)
    sends = house.hear(PARTITION, hello, partition=PARTITION, epoch=1)
    assert sends[0] == sent(PARTITION, AbortConfig(rollout=7), partition=PARTITION)
    assert kinds(sends[1:]) == GOES_ON


def test_whether_its_rm_is_away_is_told_to_it_too() -> None:
    house = registered()
    house.away()
    for sends in (house.returns(PARTITION), house.returns(PARTITION, rollout=0), house.hello(PARTITION)):
        assert (PARTITION, "Pause") in kinds(sends)


# After the broker began anew ----------------------------------------------------------------------------------------


def test_after_a_broker_that_died_one_that_has_everything_goes_on() -> None:
    assert kinds(inherited().returns(PARTITION)) == GOES_ON


def test_after_a_broker_that_died_one_that_has_nothing_may_have_lost_something() -> None:
    house = inherited()
    assert kinds(house.hello(PARTITION)) == [*AGAIN, (PROXY, "PartitionRestarted")]
    assert house.facts[RM].generations == {PARTITION: 1}


@pytest.mark.parametrize(("session", "prepared"), [("earlier", 0), ("earlier", 1), ("", 1), ("", 0)])
def test_after_a_broker_restart_another_session_in_the_journal_is_no_evidence_that_the_partition_has_not_begun(
    session: str, prepared: int
) -> None:
    """An operator may have restored the journal as it was before the RM registered, or deleted SQLite's log."""
    house = inherited()
    hello = Hello(role="worker", prepared=prepared, recovered=True)
    sends = house.hear(PARTITION, hello, session=session, partition=PARTITION, epoch=1)
    assert kinds(sends) == [*AGAIN, (PROXY, "PartitionRestarted")]
    assert house.facts[RM].generations == {PARTITION: 1}


@pytest.mark.parametrize("session", ["earlier", ""])
def test_a_worker_that_outlives_the_broker_between_its_vote_and_the_commit_has_not_begun(session: str) -> None:
    """That is not what its journal says but what it has done itself."""
    hello = Hello(role="worker", prepared=1)
    sends = inherited().hear(PARTITION, hello, session=session, partition=PARTITION, epoch=1)
    assert kinds(sends) == [*AGAIN, (PROXY, "ResumeWanted")]


def test_after_a_broker_restart_an_earlier_life_in_the_journal_is_no_evidence_either() -> None:
    house = registered()
    house.lost(PARTITION)
    house.speaks(PARTITION)
    house.begin_again()
    house.resume(lives={PARTITION: 1})
    assert kinds(house.returns(PARTITION, life=0)) == [*AGAIN, (PROXY, "PartitionRestarted")]
    assert house.facts[RM].generations == {PARTITION: 2}


def test_the_next_life_is_above_the_one_in_a_journal_that_is_newer_than_the_record() -> None:
    house = inherited()
    assert kinds(house.returns(PARTITION, life=3)) == [*AGAIN, (PROXY, "PartitionRestarted")]
    assert house.facts[RM].generations == {PARTITION: 4}


def test_a_lease_that_a_restored_record_holds_is_renewed_once_if_no_worker_can_start_under_it() -> None:
    house = inherited()
    restored = house.epoch(PARTITION)
    ended = WorkerEnded(reason="another worker has the partition", cannot_start=True)
    sends = house.hear(SUPERVISOR, ended, partition=PARTITION, epoch=restored, rm="", session="")
    renewed = house.epoch(PARTITION)
    assert renewed > restored
    assert wanted(sends) == [{PARTITION: renewed}]
    assert house.hear(SUPERVISOR, ended, partition=PARTITION, epoch=renewed, rm="", session="") == []
    assert house.epoch(PARTITION) == renewed


def test_a_partition_that_is_taken_down_ends_at_once_if_its_worker_has_lost_what_it_had_to_tell() -> None:
    house = registered(two_partitions())
    house.agree(house.update(ONE_QUEUE))
    house.begin_again()
    hello = Hello(role="worker", rollout=1, problem="the end is missing")
    assert kinds(house.hear(GPU, hello, partition=GPU, epoch=2)) == [("supervisor", "WorkersWanted")]
    assert list(house.switch.registry.slots) == [PARTITION]


def test_a_change_that_was_recorded_reaches_everybody_after_a_broker_that_died() -> None:
    house = registered(two_partitions())
    text = two_partitions().replace("{name: batch}", "{name: batch}, {name: more}")
    house.agree(house.update(text))
    house.begin_again()
    house.resume()
    assert kinds(house.returns(PARTITION))[0] == (PARTITION, "Settings")
    asked, commit, *_ = house.returns(GPU, rollout=1)
    assert decode_body(PrepareConfig, asked.body).live
    assert decode_body(CommitConfig, commit.body).rollout == house.facts[RM].rollout
    assert house.switch.registry.sessions[RM].checksum == compute_checksum(text)


def test_a_partition_that_was_being_taken_down_still_is() -> None:
    house = registered(two_partitions())
    house.agree(house.update(ONE_QUEUE))
    house.begin_again()
    hello = Hello(role="worker", rollout=1)
    [retire] = house.hear(GPU, hello, partition=GPU, epoch=2)
    assert (retire.to, retire.header.kind) == (GPU, "RetirePartition")
    house.retired(GPU)
    assert list(house.switch.registry.slots) == [PARTITION]


def test_a_change_under_way_when_the_broker_died_has_never_been() -> None:
    house = registered()
    [asked] = [one for one in house.update(MORE) if is_prepare(one)]
    house.begin_again()
    house.resume()
    assert house.vote(asked) == []
    assert house.text() == ONE_QUEUE
    house.agree(house.update(MORE))


def test_what_was_asked_of_a_broker_that_died_never_gets_the_number_of_another_roll_out() -> None:
    house = registered()
    numbers = set()
    for _ in range(3):
        house.begin_again()
        house.returns(PARTITION)
        [asked] = [one for one in house.change(MORE) if is_prepare(one)]
        numbers.add(decode_body(PrepareConfig, asked.body).rollout)
    assert len(numbers) == 3


def test_one_without_the_lease_is_not_even_answered() -> None:
    house = registered()
    for name in (worker_name(PARTITION, 99), PARTITION, worker_name(GPU, 1)):
        hello = Hello(role="worker", rollout=1)
        assert house.recorded(house.switch.handle(house.from_peer(name, hello, partition=PARTITION), 1.0)) == []
    assert house.hear(PARTITION, NodeResponse(), partition=PARTITION, epoch=1)
