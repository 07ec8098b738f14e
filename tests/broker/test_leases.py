"""Silent processes, and recovery of workers that rejoin."""

import pytest

from tests.broker.bench import GPU, KEEPER, PROXY, WEB, BrokerBench, is_prepare, kinds, registered, wanted
from tests.machines import ONE_QUEUE, PARTITION, RM, config_of, said, sent, two_partitions
from yunishard.broker.config_rollout import ROLLOUT_MAX_S
from yunishard.broker.leases import CHECK_INTERVAL_S, FRONT_ENDS_MAX
from yunishard.common.config.model import compute_checksum
from yunishard.common.messages import control_messages
from yunishard.common.messages.control_messages import (
    AbortConfig,
    CommitConfig,
    Hello,
    ManagerAway,
    PrepareConfig,
    WorkerEnded,
    WorkersWanted,
)
from yunishard.common.messages.rm_messages import (
    Heartbeat,
    NodeResponse,
    PartitionRestarted,
    Received,
    Refused,
    ResumeWanted,
)
from yunishard.common.messages.wire import NEVER, Outgoing, decode_body
from yunishard.common.names import lease_name
from yunishard.common.settings import Settings

NONE = {"rm": "", "session": ""}
LEASE_S = 10.0


def watchful(lease_s: float = LEASE_S) -> BrokerBench:
    bench = BrokerBench(settings=Settings(lease_timeout_s=lease_s))
    bench.register(two_partitions())
    return bench


def beat(bench: BrokerBench, source: str, **fields: str | int) -> list[str]:
    """A heartbeat; the incarnations that are answered."""
    sends = bench.hear(source, Heartbeat(), **{**NONE, **fields})
    return [decode_body(Heartbeat, one.body).incarnation for one in sends if one.header.kind == "Heartbeat"]


def together(bench: BrokerBench, seconds: float, *alive: str) -> list[Outgoing]:
    """Time passes, and these send heartbeats."""
    sends: list[Outgoing] = []
    until = bench.now + seconds
    while bench.now < until:
        for name in alive:
            if name in bench.broker.registry.slots:
                beat(bench, name, partition=name, epoch=bench.epoch(name))
            else:
                sends += [one for one in bench.hear(name, Heartbeat(), **NONE) if one.header.kind != "Heartbeat"]
        sends += bench.wait(min(until, bench.now + CHECK_INTERVAL_S))
    return sends


def idle(bench: BrokerBench, worker: str) -> list[Outgoing]:
    """A worker without a partition registers."""
    return bench.hear(worker, Hello(role="worker", pid=7, release="1.0"), **NONE)


# Heartbeats ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [PROXY, WEB, KEEPER, "rm-9_default#7"])
def test_a_heartbeat_is_answered_with_the_incarnation_whoever_sends_it(source: str) -> None:
    bench = watchful()
    assert beat(bench, source) == ["0"]
    bench.begin_again()
    bench.hear(KEEPER, Hello(role="supervisor", workers={"worker/1": PARTITION}), **NONE)
    assert beat(bench, source) == ["1"]


def test_a_worker_that_has_not_said_hello_to_this_broker_is_not_told_which_it_is() -> None:
    bench = watchful()
    bench.begin_again()
    lease = {"partition": PARTITION, "epoch": bench.epoch(PARTITION)}
    assert beat(bench, PARTITION, **lease) == [""]
    bench.returns(PARTITION)
    assert beat(bench, PARTITION, **lease) == ["1"]


# Workers ------------------------------------------------------------------------------------------------------------


def test_a_worker_that_is_silent_loses_its_lease_and_no_other_does() -> None:
    bench = watchful()
    sends = together(bench, LEASE_S + 2 * CHECK_INTERVAL_S, GPU)
    assert wanted(sends) == [[PARTITION, GPU]]
    assert bench.facts[RM].leases == {PARTITION: 3, GPU: 2}
    assert bench.broker.state.warnings == ["worker rm-1_default#1 was silent for 10 s: another one takes over"]


def test_what_a_worker_says_otherwise_is_a_sign_of_life_too() -> None:
    bench = watchful()
    for _ in range(30):
        bench.hear(PARTITION, NodeResponse(), partition=PARTITION, epoch=1)
        bench.hear(GPU, NodeResponse(), partition=GPU, epoch=2)
        assert wanted(bench.wait(bench.now + CHECK_INTERVAL_S)) == []


def test_a_worker_that_lost_its_lease_cannot_say_anything_any_more_and_the_next_one_goes_on() -> None:
    bench = watchful()
    old = bench.broker.registry.slots[PARTITION].worker
    together(bench, LEASE_S + 2 * CHECK_INTERVAL_S, GPU)
    assert bench.broker.handle(bench.from_peer(old, NodeResponse(), partition=PARTITION, epoch=1), bench.now) == []
    assert kinds(bench.returns(PARTITION)) == [(PARTITION, "Settings"), (PROXY, "ResumeWanted")]
    assert wanted(together(bench, 5.0, PARTITION, GPU)) == []


def test_a_worker_that_never_comes_is_the_business_of_the_supervisor() -> None:
    bench = watchful()
    bench.begin_again()
    assert wanted(together(bench, 90.0)) == []


def test_leases_may_be_for_ever() -> None:
    bench = watchful(NEVER)
    assert bench.broker.deadline == NEVER


# Proxies ------------------------------------------------------------------------------------------------------------


def test_the_rms_of_a_proxy_that_is_silent_are_away_and_no_others() -> None:
    bench = watchful(NEVER)
    bench.register(rm="rm-2", session="another", proxy="rmproxy-2")
    sends = together(bench, 2.0, PROXY, "rmproxy-2")
    sends += together(bench, 5.0, "rmproxy-2")
    assert kinds(sends) == [(PARTITION, "Pause"), (GPU, "Pause")]
    assert list(bench.broker.registry.away) == [RM]


def test_a_proxy_that_is_back_has_the_rms_resume_that_were_away_because_of_it() -> None:
    bench = watchful(NEVER)
    together(bench, 1.0, PROXY)
    together(bench, 5.0)
    sends = together(bench, 2.0, PROXY)
    assert sends == [sent(PROXY, ResumeWanted(reason="its proxy was silent"))]


def test_a_front_end_too_many_is_refused_until_another_one_is_silent() -> None:
    bench = watchful(NEVER)
    names = [f"webservice/{number}" for number in range(FRONT_ENDS_MAX)]
    together(bench, 1.0, *names)
    [refusal] = said([one for one in bench.hear(PROXY, Heartbeat(), **NONE) if one.header.kind == "Refused"])
    assert refusal == Refused(
        code="busy", reason="64 proxies and web services are connected already: stop one of them first"
    )
    assert together(bench, 5.0, *names[1:]) == []
    assert [one.header.kind for one in bench.hear(PROXY, Heartbeat(), **NONE)] == ["Heartbeat"]


def test_a_front_end_that_is_silent_is_nothing_to_anybody() -> None:
    bench = watchful(NEVER)
    together(bench, 1.0, WEB)
    assert together(bench, 10.0) == []
    assert (bench.broker.state.warnings, bench.broker.deadline) == ([], NEVER)


# When this process stood still --------------------------------------------------------------------------------------


def test_time_in_which_the_broker_stood_still_makes_nobody_silent() -> None:
    bench = watchful()
    together(bench, 2.0, PARTITION, GPU, PROXY)
    bench.now += 1000.0
    assert kinds(bench.recorded(bench.broker.tick(bench.now))) == []
    assert bench.broker.state.warnings[0].startswith("the broker did not run for 999.")
    assert together(bench, 2.0, PARTITION, GPU, PROXY) == []
    assert bench.broker.registry.away == {}
    assert wanted(together(bench, LEASE_S + 2, GPU, PROXY)) == [[PARTITION, GPU]]


def test_nor_does_it_end_an_rm_or_give_up_a_change() -> None:
    bench = watchful()
    bench.hear(PROXY, ManagerAway())
    [first, _] = bench.change(two_partitions().replace("batch", "other"))
    bench.now += 1000.0
    bench.recorded(bench.broker.tick(bench.now))
    assert bench.vote(first) == []
    assert list(bench.facts) == [RM]
    assert bench.broker.state.registry.away[RM] > bench.now - 10
    sends = together(bench, ROLLOUT_MAX_S + 2, PARTITION, GPU)
    assert (WEB, "Answer") in kinds(sends)


MORE = ONE_QUEUE.replace("{name: batch}", "{name: batch}, {name: more}")
RESUMES = ResumeWanted(reason=f"the worker of partition {PARTITION} was started again")
ASKED_TO_RESUME = sent(PROXY, RESUMES, partition=PARTITION)
AGAIN = [(PARTITION, "PrepareConfig"), (PARTITION, "CommitConfig")]
GOES_ON = [(PARTITION, "Settings"), (PROXY, "ResumeWanted")]


def inherited(text: str = ONE_QUEUE) -> BrokerBench:
    """Another broker than the one with which the RM registered; the RM has resumed, no worker has come."""
    bench = registered(text)
    bench.begin_again()
    bench.resume()
    return bench


def test_one_that_has_everything_goes_on_and_its_rm_resumes() -> None:
    bench = registered()
    assert bench.returns(PARTITION) == [
        sent(PARTITION, control_messages.Settings(values={}), partition=PARTITION),
        ASKED_TO_RESUME,
    ]


def test_one_that_missed_the_latest_configuration_gets_it_and_goes_on_from_what_it_has() -> None:
    bench = registered()
    bench.agree(bench.update(MORE))
    assert bench.returns(PARTITION, rollout=1) == [
        sent(PARTITION, PrepareConfig(rollout=2, config=config_of(MORE), live=True), partition=PARTITION),
        sent(PARTITION, CommitConfig(rollout=2), partition=PARTITION),
        sent(PARTITION, control_messages.Settings(values={}), partition=PARTITION),
        ASKED_TO_RESUME,
    ]


def test_a_worker_that_cannot_run_the_configuration_in_force_is_a_problem_of_its_partition() -> None:
    """As it was upgraded meanwhile, or as the configuration ended workers and was set aside."""
    bench = registered()
    [prepare, *_] = bench.returns(PARTITION, rollout=0, session="")
    assert bench.vote(prepare, "it ended the worker") == []
    reason = "its worker cannot run the configuration in force: it ended the worker"
    assert bench.broker.state.warnings == [f"partition {PARTITION}: {reason}"]
    assert [one.problem for one in bench.broker.registry.partition_entries()] == [reason]
    bench.returns(PARTITION)
    assert [one.problem for one in bench.broker.registry.partition_entries()] == [""]


def test_an_objection_to_a_change_that_was_given_up_is_no_problem() -> None:
    bench = registered()
    [prepare, *_] = bench.update(MORE)
    bench.wait(bench.now + ROLLOUT_MAX_S)
    assert bench.vote(prepare, "too late") == []
    assert [one.problem for one in bench.broker.registry.partition_entries()] == [""]


@pytest.mark.parametrize("session", ["", "earlier"])
def test_one_that_never_began_begins_empty_in_the_same_life_and_its_rm_says_again_what_it_said(session: str) -> None:
    bench = registered()
    assert bench.returns(PARTITION, rollout=0, session=session) == [
        sent(PARTITION, PrepareConfig(rollout=1, config=config_of()), partition=PARTITION),
        sent(PARTITION, CommitConfig(rollout=1), partition=PARTITION),
        ASKED_TO_RESUME,
    ]


@pytest.mark.parametrize("problem", ["", "damaged"])
def test_one_that_has_nothing_of_what_its_rm_has_heard_begins_another_life(problem: str) -> None:
    bench = registered()
    bench.speaks(PARTITION)
    *again, told = bench.hello(PARTITION, problem=problem)
    assert kinds(again) == AGAIN
    reason = problem or "what its worker kept is gone"
    assert told == sent(PROXY, PartitionRestarted(reason=reason), partition=PARTITION, life=1)
    assert bench.broker.state.warnings[-1].endswith(f"report everything again: {reason}")


def test_one_that_goes_on_may_have_told_its_rm_something_so_that_its_loss_is_one() -> None:
    bench = registered()
    bench.returns(PARTITION)
    assert kinds(bench.hello(PARTITION))[-1] == (PROXY, "PartitionRestarted")


def test_one_that_runs_what_it_should_and_has_lost_the_end_of_it_begins_another_life_once() -> None:
    """Its RM has heard more than it knows; it says so for each thing that its RM says to it meanwhile."""
    bench = registered()
    bench.speaks(PARTITION)
    runs = {"partition": PARTITION, "epoch": 1}
    hello = Hello(role="worker", rollout=1, problem="the end is missing")
    assert kinds(bench.hear(PARTITION, hello, **runs)) == [*AGAIN, (PROXY, "PartitionRestarted")]
    bench.hear(PARTITION, Received(), life=0, **runs)
    assert kinds(bench.hear(PARTITION, hello, **runs)) == [*AGAIN, (PROXY, "ResumeWanted")]
    owner = bench.broker.registry.owner(PARTITION)
    assert owner is not None
    assert owner.generation(PARTITION) == 1


def test_one_of_another_life_has_nothing_of_this_one() -> None:
    bench = registered()
    bench.lost(PARTITION)
    assert kinds(bench.returns(PARTITION, life=0)) == [*AGAIN, (PROXY, "ResumeWanted")]
    bench.speaks(PARTITION)
    assert kinds(bench.returns(PARTITION, life=0))[-1] == (PROXY, "PartitionRestarted")


def test_one_that_still_has_a_vote_on_a_change_that_nobody_knows_forgets_it() -> None:
    bench = registered()
    hello = Hello(role="worker", rollout=1, prepared=7)
    sends = bench.hear(PARTITION, hello, partition=PARTITION, epoch=1)
    assert sends[0] == sent(PARTITION, AbortConfig(rollout=7), partition=PARTITION)
    assert kinds(sends[1:]) == GOES_ON


def test_whether_its_rm_is_away_is_told_to_it_too() -> None:
    bench = registered()
    bench.away()
    for sends in (bench.returns(PARTITION), bench.returns(PARTITION, rollout=0), bench.hello(PARTITION)):
        assert (PARTITION, "Pause") in kinds(sends)


# After the broker began anew ----------------------------------------------------------------------------------------


def test_after_a_broker_that_died_one_that_has_everything_goes_on() -> None:
    assert kinds(inherited().returns(PARTITION)) == GOES_ON


def test_after_a_broker_that_died_one_that_has_nothing_may_have_lost_something() -> None:
    bench = inherited()
    assert kinds(bench.hello(PARTITION)) == [*AGAIN, (PROXY, "PartitionRestarted")]
    assert bench.facts[RM].generations == {PARTITION: 1}


@pytest.mark.parametrize(("session", "prepared"), [("earlier", 0), ("earlier", 1), ("", 1), ("", 0)])
def test_after_a_broker_restart_another_session_in_the_journal_is_no_evidence_that_the_partition_has_not_begun(
    session: str, prepared: int
) -> None:
    """An operator may have restored the journal as it was before the RM registered, or deleted SQLite's log."""
    bench = inherited()
    hello = Hello(role="worker", prepared=prepared, recovered=True)
    sends = bench.hear(PARTITION, hello, session=session, partition=PARTITION, epoch=1)
    assert kinds(sends) == [*AGAIN, (PROXY, "PartitionRestarted")]
    assert bench.facts[RM].generations == {PARTITION: 1}


@pytest.mark.parametrize("session", ["earlier", ""])
def test_a_worker_that_outlives_the_broker_between_its_vote_and_the_commit_has_not_begun(session: str) -> None:
    """That is not what its journal says but what it has done itself."""
    hello = Hello(role="worker", prepared=1)
    sends = inherited().hear(PARTITION, hello, session=session, partition=PARTITION, epoch=1)
    assert kinds(sends) == [*AGAIN, (PROXY, "ResumeWanted")]


def test_after_a_broker_restart_an_earlier_life_in_the_journal_is_no_evidence_either() -> None:
    bench = registered()
    bench.lost(PARTITION)
    bench.speaks(PARTITION)
    bench.begin_again()
    bench.resume(lives={PARTITION: 1})
    assert kinds(bench.returns(PARTITION, life=0)) == [*AGAIN, (PROXY, "PartitionRestarted")]
    assert bench.facts[RM].generations == {PARTITION: 2}


def test_the_next_life_is_above_the_one_in_a_journal_that_is_newer_than_the_record() -> None:
    bench = inherited()
    assert kinds(bench.returns(PARTITION, life=3)) == [*AGAIN, (PROXY, "PartitionRestarted")]
    assert bench.facts[RM].generations == {PARTITION: 4}


@pytest.mark.parametrize("workers", [{}, {"worker/1": "", "worker/2": GPU}])
def test_a_partition_whose_worker_ended_with_the_broker_goes_to_another_under_a_later_epoch(
    workers: dict[str, str],
) -> None:
    bench = inherited()
    inherited_epoch = bench.epoch(PARTITION)
    assert kinds(idle(bench, "worker/3")) == [], "as the one that has the partition may still come"
    sends = bench.hear(KEEPER, Hello(role="supervisor", workers=workers), **NONE)
    assert kinds(sends) == [("worker/3", "Grant"), (KEEPER, "WorkersWanted")]
    assert sends[0].header.epoch == bench.epoch(PARTITION) > inherited_epoch
    assert bench.facts[RM].leases == {PARTITION: bench.epoch(PARTITION)}


def test_a_worker_that_outlives_the_broker_keeps_its_lease_until_it_has_been_silent_for_too_long() -> None:
    bench = watchful()
    bench.begin_again()
    epoch = bench.epoch(PARTITION)
    bench.hear(KEEPER, Hello(role="supervisor", workers={"worker/1": PARTITION, "worker/2": GPU}), **NONE)
    bench.hear("worker/2", Hello(role="worker"), **NONE, partition=GPU, epoch=bench.epoch(GPU))
    together(bench, LEASE_S - CHECK_INTERVAL_S, GPU)
    assert bench.leases() == {PARTITION: epoch, GPU: 2}
    together(bench, 2 * CHECK_INTERVAL_S, GPU)
    assert bench.epoch(PARTITION) > epoch
    assert bench.epoch(GPU) == 2


def test_a_worker_that_ends_before_it_has_met_the_next_broker_is_replaced_at_once() -> None:
    bench = inherited()
    bench.hear(KEEPER, Hello(role="supervisor", workers={"worker/1": PARTITION}), **NONE)
    idle(bench, "worker/2")
    ended = WorkerEnded(worker="worker/1", reason="")
    assert bench.hear(KEEPER, ended, **NONE, partition=PARTITION, epoch=99) == []
    sends = bench.hear(KEEPER, ended, **NONE, partition=PARTITION, epoch=1)
    assert kinds(sends) == [("worker/2", "Grant")]


def test_a_record_that_was_restored_may_have_an_earlier_epoch_than_the_worker() -> None:
    bench = inherited()
    bench.hear("worker/1", Hello(role="worker"), **NONE, partition=PARTITION, epoch=7)
    assert (bench.epoch(PARTITION), bench.broker.registry.slots[PARTITION].worker) == (7, "worker/1")
    assert bench.facts[RM].leases == {PARTITION: 7}


def test_a_partition_that_is_taken_down_ends_at_once_if_its_worker_has_lost_what_it_had_to_tell() -> None:
    bench = registered(two_partitions())
    bench.agree(bench.update(ONE_QUEUE))
    bench.begin_again()
    bench.hear(KEEPER, Hello(role="supervisor", workers={"worker/1": PARTITION, "worker/2": GPU}), **NONE)
    hello = Hello(role="worker", rollout=1, problem="the end is missing")
    told = kinds(bench.hear(GPU, hello, partition=GPU, epoch=2))
    assert told == [(GPU, "PartitionRemoved"), (KEEPER, "WorkersWanted")]
    assert list(bench.broker.registry.slots) == [PARTITION]


def test_a_change_that_was_recorded_reaches_everybody_after_a_broker_that_died() -> None:
    bench = registered(two_partitions())
    text = two_partitions().replace("{name: batch}", "{name: batch}, {name: more}")
    bench.agree(bench.update(text))
    bench.begin_again()
    bench.resume()
    assert kinds(bench.returns(PARTITION))[0] == (PARTITION, "Settings")
    asked, commit, *_ = bench.returns(GPU, rollout=1)
    assert decode_body(PrepareConfig, asked.body).live
    assert decode_body(CommitConfig, commit.body).rollout == bench.facts[RM].rollout
    assert bench.broker.registry.sessions[RM].checksum == compute_checksum(text)


def test_a_partition_that_was_being_taken_down_still_is() -> None:
    bench = registered(two_partitions())
    bench.agree(bench.update(ONE_QUEUE))
    bench.begin_again()
    hello = Hello(role="worker", rollout=1)
    [retire] = bench.hear(GPU, hello, partition=GPU, epoch=2)
    assert (retire.to, retire.header.kind) == (GPU, "RetirePartition")
    bench.retired(GPU)
    assert list(bench.broker.registry.slots) == [PARTITION]


def test_a_change_under_way_when_the_broker_died_has_never_been() -> None:
    bench = registered()
    [asked] = [one for one in bench.update(MORE) if is_prepare(one)]
    bench.begin_again()
    bench.resume()
    assert bench.vote(asked) == []
    assert bench.text() == ONE_QUEUE
    bench.agree(bench.update(MORE))


def test_what_was_asked_of_a_broker_that_died_never_gets_the_number_of_another_roll_out() -> None:
    bench = registered()
    numbers = set()
    for _ in range(3):
        bench.begin_again()
        bench.returns(PARTITION)
        [asked] = [one for one in bench.change(MORE) if is_prepare(one)]
        numbers.add(decode_body(PrepareConfig, asked.body).rollout)
    assert len(numbers) == 3


def test_one_without_the_lease_is_dismissed() -> None:
    bench = registered()
    for name, partition in (("worker/9", PARTITION), (lease_name(PARTITION, 0), PARTITION), ("worker/9", "rm-9_a")):
        hello = bench.from_peer(name, Hello(role="worker", rollout=1), partition=partition)
        [told] = bench.recorded(bench.broker.handle(hello, 1.0))
        assert decode_body(WorkersWanted, told.body) == WorkersWanted([PARTITION], {name: partition})
        beat_ = bench.from_peer(name, Heartbeat(), partition=partition)
        [answer] = bench.broker.handle(beat_, 1.0)
        assert not decode_body(Heartbeat, answer.body).incarnation, "so that it says hello"
    assert bench.hear(PARTITION, NodeResponse(), partition=PARTITION, epoch=1)
