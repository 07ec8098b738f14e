"""Votes on a configuration, and changes in progress."""

import re

import pytest
from msgspec.structs import replace

from tests.broker.bench import GPU, KEEPER, PROXY, WEB, BrokerBench, answers, is_prepare, kinds, registered, wanted
from tests.machines import PARTITION, RM, SESSION, config_of, said, sent, two_partitions
from yunishard.broker.config_rollout import ENDINGS_MAX, NAMES_MAX, ROLLOUT_MAX_S, ConfigChange
from yunishard.broker.registry import Registry, RmSession
from yunishard.broker.rm_sessions import RmRegistration
from yunishard.common.messages.control_messages import AbortConfig, CommitConfig, PrepareConfig, WorkerEnded
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.query_messages import ListPartitions, PartitionList
from yunishard.common.messages.rm_messages import Refused
from yunishard.common.messages.wire import NEVER, Outgoing, decode_body
from yunishard.common.names import lease_name

FIRST, SECOND = "rm-1_default", "rm-1_gpu"
CONFIG = config_of()


def rollout() -> ConfigChange:
    return RmRegistration(
        target=RmSession(
            rm=RM,
            session=SESSION,
            registered_ns=0,
            call="",
            rollout=7,
            configs=dict.fromkeys((FIRST, SECOND)),
        ),
        parsed={FIRST: CONFIG, SECOND: CONFIG},
        version=None,
        started_at=0.0,
        deadline=NEVER,
        call=Header(kind="RegisterResourceManager"),
    )


def two_seats() -> Registry:
    registry = Registry()
    for name in (FIRST, SECOND):
        registry.assign_slot(RM, name).worker = WORKERS[name]
    return registry


WORKERS = {FIRST: f"{FIRST}#1", SECOND: f"{SECOND}#2"}
SEATS = two_seats()


def test_a_worker_is_asked_whether_it_could_run_its_part() -> None:
    assert rollout().build_prepare(SEATS, SECOND) == sent(
        WORKERS[SECOND], PrepareConfig(rollout=7, config=CONFIG), partition=SECOND
    )


def test_the_last_vote_of_yes_decides() -> None:
    bench = BrokerBench()
    bench.call(two_partitions())
    first, second = (one for name in (PARTITION, GPU) for one in bench.hello(name) if is_prepare(one))
    assert bench.vote(second) == []
    assert bench.vote(second) == []
    assert "CommitConfig" in {one.header.kind for one in bench.vote(first)}


def test_a_worker_that_was_restarted_has_not_voted() -> None:
    bench = BrokerBench()
    bench.call(two_partitions())
    first, second = (one for name in (PARTITION, GPU) for one in bench.hello(name) if is_prepare(one))
    bench.vote(first)
    [again] = [one for one in bench.hello(PARTITION) if is_prepare(one)]
    assert bench.vote(second) == []
    assert "CommitConfig" in {one.header.kind for one in bench.vote(again)}


@pytest.mark.parametrize("outcome", [CommitConfig, AbortConfig])
def test_every_worker_hears_the_outcome(outcome: type[CommitConfig | AbortConfig]) -> None:
    assert rollout().build_outcome(SEATS, outcome) == [
        sent(worker, outcome(rollout=7), partition=name) for name, worker in WORKERS.items()
    ]


def test_a_new_life_of_a_partition_is_told_to_its_worker() -> None:
    vote = rollout()
    vote.target = replace(vote.target, generations={FIRST: 3})
    assert [vote.build_prepare(SEATS, name).header.life for name in (FIRST, SECOND)] == [3, 0]


def test_a_partition_that_runs_is_asked_whether_it_could_change() -> None:
    vote = rollout()
    vote.live = frozenset({SECOND})
    asked = PrepareConfig(rollout=7, config=CONFIG, live=True)
    assert vote.build_prepare(SEATS, SECOND) == sent(WORKERS[SECOND], asked, partition=SECOND)


NONE = {"rm": "", "session": ""}
FULL = "rm-1_default.sqlite: the journal cannot be used: database or disk is full"
CAUSE = f"the worker of partition rm-1_default cannot start: {FULL}; correct that, then try again"


def ends(bench: BrokerBench, partition: str, reason: str, *, epoch: int = 0, source: str = KEEPER) -> list[Outgoing]:
    """The supervisor reports that a worker ended before it was ready; one that crashed has no `.sqlite` to name."""
    seat = bench.broker.registry.slots.get(partition)
    worker = lease_name(partition, epoch or bench.epoch(partition))
    if seat is not None and not epoch and not seat.worker:
        seat.worker = worker  # it has been granted the partition
    ended = WorkerEnded(worker=worker, reason=reason, cannot_start=".sqlite" in reason)
    return bench.hear(source, ended, partition=partition, epoch=epoch or bench.epoch(partition), **NONE)


def problems(bench: BrokerBench) -> dict[str, str]:
    [listed] = [one for one in bench.hear(WEB, ListPartitions(), ref="1", **NONE) if one.to == WEB]
    return {one.full_name: one.problem for one in decode_body(PartitionList, listed.body).partitions}


def endings(bench: BrokerBench) -> dict[str, str]:
    [listed] = [one for one in bench.hear(WEB, ListPartitions(), ref="1", **NONE) if one.to == WEB]
    return {one.full_name: one.ending for one in decode_body(PartitionList, listed.body).partitions}


def refusals(sends: list[Outgoing]) -> list[str]:
    return [one.reason for one in said(sends) if isinstance(one, Refused)]


def test_a_registration_is_refused_at_once_when_a_worker_cannot_start() -> None:
    bench = BrokerBench()
    bench.call(two_partitions())
    sends = ends(bench, PARTITION, FULL)
    assert refusals(sends) == [f"registration of RM failed: {CAUSE}"]
    assert wanted(sends) == [[]]
    assert bench.broker.state.counters.rollouts == {"unstartable": 1}
    assert kinds(bench.register())[-1] == (PROXY, "Registered")


def test_a_worker_that_crashed_may_still_come_and_the_refusal_after_the_deadline_says_how_it_ended() -> None:
    bench = BrokerBench()
    bench.call()
    assert ends(bench, PARTITION, "SIGSEGV") == []
    [refusal] = refusals(bench.wait(bench.now + ROLLOUT_MAX_S))
    assert refusal.endswith(" within 20 s; that of rm-1_default ended before it was ready: SIGSEGV")


def test_workers_that_crash_again_and_again_refuse_the_change_long_before_the_deadline() -> None:
    bench = BrokerBench()
    bench.call(two_partitions())
    assert [ends(bench, GPU, "SIGSEGV") for _ in range(ENDINGS_MAX)][-1] != []
    bench = BrokerBench()
    bench.call(two_partitions())
    for _ in range(ENDINGS_MAX - 1):
        assert refusals(ends(bench, PARTITION, "exit status 1")) == []
        assert refusals(ends(bench, GPU, "exit status 1")) == []
    [refusal] = refusals(ends(bench, PARTITION, "SIGKILL"))
    assert refusal == (
        "registration of RM failed: 3 workers of partition rm-1_default ended before they were ready, the last one: "
        "SIGKILL; the log has the reason"
    )
    assert bench.broker.state.counters.rollouts == {"unstartable": 1}


def test_how_the_last_worker_of_a_registered_partition_crashed_is_listed_until_one_is_ready() -> None:
    bench = registered()
    ends(bench, PARTITION, "SIGSEGV")
    assert endings(bench) == {PARTITION: "SIGSEGV"}
    bench.hello(PARTITION)
    assert endings(bench) == {PARTITION: ""}


def test_a_new_change_tries_a_worker_that_could_not_start_again_at_once() -> None:
    bench = registered()
    ends(bench, PARTITION, FULL)
    bench.broker.registry.slots[PARTITION].due = bench.now + 30.0
    bench.call(session="session-2")
    assert bench.broker.registry.slots[PARTITION].due <= bench.now


MANY = 50
"""Partitions of a registration whose workers start one after the other."""


def test_each_vote_gives_the_other_workers_of_a_registration_as_much_time_again() -> None:
    bench = BrokerBench()
    bench.call(config(MANY))
    for number in range(MANY):
        bench.wait(bench.now + ROLLOUT_MAX_S / 4)
        sends = bench.vote(bench.hello(f"rm-1_p{number}")[0])
    assert bench.now > 5 * ROLLOUT_MAX_S
    assert kinds(sends)[-1] == (PROXY, "Registered")


def test_a_registration_takes_no_longer_than_its_bound_and_names_only_some_of_the_workers_that_are_missing() -> None:
    bench = BrokerBench()
    bench.call(config(MANY))
    sends: list[Outgoing] = []
    for number in range(MANY):
        sends += bench.wait(bench.now + ROLLOUT_MAX_S - 1)
        if sends:
            break
        bench.vote(bench.hello(f"rm-1_p{number}")[0])
    [refusal] = refusals(sends)
    assert re.search(r"rm-1_p\d+ and \d+ more \(of 50 partitions\) within 600 s$", refusal)
    assert refusal.count("rm-1_p") == NAMES_MAX


def test_an_update_has_one_deadline_as_its_callers_wait_no_longer() -> None:
    bench = registered()
    began, changed = bench.now, config(3).replace("p0", "default")
    bench.vote(bench.change(changed)[0])
    bench.wait(began + ROLLOUT_MAX_S - 1)
    assert bench.vote(bench.hello("rm-1_p1")[0]) == []
    [(status, reason)] = answers(bench.wait(began + ROLLOUT_MAX_S))
    assert (status, reason) == (503, "no answer from the workers of rm-1_p2 within 20 s")


def config(partitions: int) -> str:
    listed = ", ".join(f"{{name: p{number}, queues: [{{name: root}}]}}" for number in range(partitions))
    return f"partitions: [{listed}]"


def test_another_configuration_is_refused_too_and_the_one_in_force_stays() -> None:
    bench = registered()
    asked, _ = bench.change(two_partitions())
    sends = ends(bench, GPU, FULL)
    assert answers(sends) == [(503, CAUSE.replace("rm-1_default cannot", "rm-1_gpu cannot"))]
    assert wanted(sends) == [[PARTITION]]
    assert bench.vote(asked) == []


def test_a_worker_that_could_not_start_before_the_change_began_is_named_after_the_deadline() -> None:
    bench = registered()
    ends(bench, PARTITION, FULL)
    bench.call(two_partitions(), session="session-2")
    bench.vote(bench.hello(GPU)[0])
    [refusal] = refusals(bench.wait(bench.now + ROLLOUT_MAX_S))
    assert refusal.endswith(f"within 20 s; that of rm-1_default ended before it was ready: {FULL}")


def test_a_worker_that_has_voted_already_ends_nothing() -> None:
    bench = BrokerBench()
    bench.call(two_partitions())
    bench.vote(bench.hello(PARTITION)[0])
    assert ends(bench, PARTITION, FULL) == []
    assert kinds(bench.vote(bench.hello(GPU)[0]))[-1] == (PROXY, "Registered")


def test_only_the_supervisor_reports_and_only_of_the_lease_in_force() -> None:
    bench = BrokerBench()
    bench.call()
    epoch = bench.epoch(PARTITION)
    ends(bench, PARTITION, FULL, source=PROXY)
    assert ends(bench, PARTITION, FULL, epoch=epoch + 1) == []
    assert ends(bench, "rm-1_other", FULL, epoch=epoch) == []
    assert bench.broker.state.counters.rollouts == {}


def test_why_the_worker_of_a_registered_partition_cannot_start_is_listed_until_one_has_started() -> None:
    bench = registered()
    assert problems(bench) == {PARTITION: ""}
    ends(bench, PARTITION, "SIGSEGV")
    assert problems(bench) == {PARTITION: ""}
    ends(bench, PARTITION, FULL)
    assert problems(bench) == {PARTITION: FULL}
    bench.broker.registry.renew_lease(PARTITION)
    assert problems(bench) == {PARTITION: FULL}
    bench.hello(PARTITION)
    assert problems(bench) == {PARTITION: ""}
