"""Silent processes, and recovery of workers that rejoin."""

import pytest

from broker.config_rollout import ROLLOUT_MAX_S
from broker.liveness import CHECK_INTERVAL_S, OVERDUE_S
from common import control_messages
from common.config.model import compute_checksum
from common.control_messages import AbortConfig, CommitConfig, Hello, ManagerAway, PrepareConfig, WorkerEnded
from common.names import SUPERVISOR, worker_name
from common.rm_messages import Heartbeat, NodeResponse, PartitionRestarted, Received, ResumeWanted
from common.settings import Settings
from common.wire import NEVER, Outgoing, decode_body
from tests.broker.house import GPU, PROXY, WEB, House, is_prepare, kinds, registered, wanted
from tests.machines import ONE_QUEUE, PARTITION, RM, config_of, sent, two_partitions

NONE = {"rm": "", "session": ""}
LEASE_S = 10.0


def watchful(lease_s: float = LEASE_S) -> House:
    house = House(settings=Settings(lease_timeout_s=lease_s))
    house.register(two_partitions())
    return house


def beat(house: House, source: str, **fields: str | int) -> list[str]:
    """A heartbeat; the incarnations that are answered."""
    sends = house.hear(source, Heartbeat(), **{**NONE, **fields})
    return [decode_body(Heartbeat, one.body).incarnation for one in sends if one.header.kind == "Heartbeat"]


def together(house: House, seconds: float, *alive: str) -> list[Outgoing]:
    """Time passes, and these send heartbeats."""
    sends: list[Outgoing] = []
    until = house.now + seconds
    while house.now < until:
        for name in alive:
            if name in house.switch.registry.slots:
                beat(house, name, partition=name, epoch=house.epoch(name))
            else:
                sends += [one for one in house.hear(name, Heartbeat(), **NONE) if one.header.kind != "Heartbeat"]
        sends += house.wait(min(until, house.now + CHECK_INTERVAL_S))
    return sends


# Heartbeats ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [PROXY, WEB, "supervisor", "rm-9_default#7"])
def test_a_heartbeat_is_answered_with_the_incarnation_whoever_sends_it(source: str) -> None:
    house = watchful()
    assert beat(house, source) == ["0"]
    house.begin_again()
    assert beat(house, source) == ["1"]


def test_a_worker_that_has_not_said_hello_to_this_broker_is_not_told_which_it_is() -> None:
    house = watchful()
    house.begin_again()
    lease = {"partition": PARTITION, "epoch": house.epoch(PARTITION)}
    assert beat(house, PARTITION, **lease) == [""]
    house.returns(PARTITION)
    assert beat(house, PARTITION, **lease) == ["1"]


# Workers ------------------------------------------------------------------------------------------------------------


def test_a_worker_that_is_silent_loses_its_lease_and_no_other_does() -> None:
    house = watchful()
    sends = together(house, LEASE_S + 2 * CHECK_INTERVAL_S, GPU)
    assert wanted(sends) == [{PARTITION: 3, GPU: 2}]
    assert house.facts[RM].leases == {PARTITION: 3, GPU: 2}
    assert house.switch.state.warnings == ["worker rm-1_default#1 was silent for 10 s: another one takes over"]


def test_what_a_worker_says_otherwise_is_a_sign_of_life_too() -> None:
    house = watchful()
    for _ in range(30):
        house.hear(PARTITION, NodeResponse(), partition=PARTITION, epoch=1)
        house.hear(GPU, NodeResponse(), partition=GPU, epoch=2)
        assert wanted(house.wait(house.now + CHECK_INTERVAL_S)) == []


def test_a_worker_that_lost_its_lease_cannot_say_anything_any_more_and_the_next_one_goes_on() -> None:
    house = watchful()
    old = house.switch.registry.slots[PARTITION].worker
    together(house, LEASE_S + 2 * CHECK_INTERVAL_S, GPU)
    assert house.switch.handle(house.from_peer(old, NodeResponse(), partition=PARTITION, epoch=1), house.now) == []
    assert kinds(house.returns(PARTITION)) == [(PARTITION, "Settings"), (PROXY, "ResumeWanted")]
    assert wanted(together(house, 5.0, PARTITION, GPU)) == []


def test_a_worker_that_never_comes_is_the_business_of_the_supervisor_and_worth_one_warning() -> None:
    house = watchful()
    house.begin_again()
    sends = together(house, 3 * OVERDUE_S)
    assert wanted(sends) == []
    assert sorted(house.switch.state.warnings) == [
        f"worker {name} has not connected within {OVERDUE_S:g} s" for name in ("rm-1_default#1", "rm-1_gpu#2")
    ]


def test_leases_may_be_for_ever() -> None:
    house = watchful(NEVER)
    assert house.switch.deadline == NEVER


# Proxies ------------------------------------------------------------------------------------------------------------


def test_the_rms_of_a_proxy_that_is_silent_are_away_and_no_others() -> None:
    house = watchful(NEVER)
    house.register(rm="rm-2", session="another", proxy="rmproxy-2")
    sends = together(house, 2.0, PROXY, "rmproxy-2")
    sends += together(house, 5.0, "rmproxy-2")
    assert kinds(sends) == [(PARTITION, "Pause"), (GPU, "Pause")]
    assert list(house.switch.registry.away) == [RM]


def test_a_proxy_that_is_back_has_the_rms_resume_that_were_away_because_of_it() -> None:
    house = watchful(NEVER)
    together(house, 1.0, PROXY)
    together(house, 5.0)
    sends = together(house, 2.0, PROXY)
    assert sends == [sent(PROXY, ResumeWanted(reason="its proxy was silent"))]


def test_a_front_end_that_is_silent_is_nothing_to_anybody() -> None:
    house = watchful(NEVER)
    together(house, 1.0, WEB)
    assert together(house, 10.0) == []
    assert (house.switch.state.warnings, house.switch.deadline) == ([], NEVER)


# When this process stood still --------------------------------------------------------------------------------------


def test_time_in_which_the_broker_stood_still_makes_nobody_silent() -> None:
    house = watchful()
    together(house, 2.0, PARTITION, GPU, PROXY)
    house.now += 1000.0
    assert kinds(house.recorded(house.switch.tick(house.now))) == []
    assert house.switch.state.warnings[0].startswith("the broker did not run for 999.")
    assert together(house, 2.0, PARTITION, GPU, PROXY) == []
    assert house.switch.registry.away == {}
    assert wanted(together(house, LEASE_S + 2, GPU, PROXY)) == [{PARTITION: 3, GPU: 2}]


def test_nor_does_it_end_an_rm_or_give_up_a_change() -> None:
    house = watchful()
    house.hear(PROXY, ManagerAway())
    [first, _] = house.change(two_partitions().replace("batch", "other"))
    house.now += 1000.0
    house.recorded(house.switch.tick(house.now))
    assert house.vote(first) == []
    assert list(house.facts) == [RM]
    assert house.switch.state.registry.away[RM] > house.now - 10
    sends = together(house, ROLLOUT_MAX_S + 2, PARTITION, GPU)
    assert (WEB, "Answer") in kinds(sends)


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
    assert house.returns(PARTITION) == [
        sent(PARTITION, control_messages.Settings(values={}), partition=PARTITION),
        ASKED_TO_RESUME,
    ]


def test_one_that_missed_the_latest_configuration_gets_it_and_goes_on_from_what_it_has() -> None:
    house = registered()
    house.agree(house.update(MORE))
    assert house.returns(PARTITION, rollout=1) == [
        sent(PARTITION, PrepareConfig(rollout=2, config=config_of(MORE), live=True), partition=PARTITION),
        sent(PARTITION, CommitConfig(rollout=2), partition=PARTITION),
        sent(PARTITION, control_messages.Settings(values={}), partition=PARTITION),
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
