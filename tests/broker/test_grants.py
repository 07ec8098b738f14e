"""Workers register themselves, and the broker grants them partitions."""

from tests.broker.bench import GPU, KEEPER, PROXY, BrokerBench, is_prepare, kinds
from tests.machines import PARTITION, RM, said, sent, two_partitions
from yunishard.broker.leases import CHECK_INTERVAL_S
from yunishard.common.messages.control_messages import (
    Grant,
    Hello,
    PartitionRemoved,
    RemoveJournal,
    WorkerEnded,
    WorkersWanted,
)
from yunishard.common.messages.rm_messages import Heartbeat, Leave, NodeRequest, Refused
from yunishard.common.messages.wire import NEVER, Outgoing, decode_body
from yunishard.common.retries import FIRST_S, STEADY_S
from yunishard.common.settings import Settings

NONE = {"rm": "", "session": ""}


def registers(bench: BrokerBench, worker: str) -> list[Outgoing]:
    """A worker without a partition says hello."""
    return bench.hear(worker, Hello(role="worker", pid=7, release="1.0"), **NONE)


def claims(bench: BrokerBench, worker: str, partition: str, epoch: int) -> list[Outgoing]:
    """A worker has recovered."""
    return bench.hear(worker, Hello(role="worker"), **NONE, partition=partition, epoch=epoch)


def ends(bench: BrokerBench, worker: str, partition: str = "", epoch: int = 0, reason: str = "") -> list[Outgoing]:
    ended = WorkerEnded(worker=worker, reason=reason, cannot_start=bool(reason))
    return bench.hear(KEEPER, ended, **NONE, partition=partition, epoch=epoch)


def granted(sends: list[Outgoing]) -> dict[str, str]:
    """Worker to its partition."""
    return {one.to: one.header.partition for one in sends if one.header.kind == Grant.__name__}


def test_a_worker_is_granted_a_partition_that_wants_one_and_votes_once_it_has_recovered() -> None:
    bench = BrokerBench()
    assert registers(bench, "worker/1") == [], "it is spare"
    sends = bench.call()
    assert sends == [
        sent("worker/1", Grant(), **NONE, partition=PARTITION, epoch=1),
        sent(KEEPER, WorkersWanted(partitions=[PARTITION]), **NONE),
    ]
    assert bench.broker.state.notes == [
        "worker/1 is here (process 7, release 1.0, interpreted engine)",
        "worker/1 gets partition rm-1_default#1",
    ]
    [asked] = claims(bench, "worker/1", PARTITION, 1)
    assert is_prepare(asked)
    assert kinds(bench.vote(asked))[-1] == (PROXY, "Registered")


def test_a_worker_that_has_not_heard_of_its_grant_is_told_again() -> None:
    bench = BrokerBench()
    bench.call()
    registers(bench, "worker/1")
    heartbeat, grant = bench.hear("worker/1", Heartbeat(), **NONE)
    assert decode_body(Heartbeat, heartbeat.body).incarnation == "0"
    assert granted([grant]) == {"worker/1": PARTITION}
    assert granted(registers(bench, "worker/1")) == {"worker/1": PARTITION}, "also if it was started again by hand"


def test_an_idle_worker_registers_with_the_next_broker() -> None:
    bench = BrokerBench()
    registers(bench, "worker/1")
    bench.begin_again()
    [answer] = bench.hear("worker/1", Heartbeat(), **NONE)
    assert not decode_body(Heartbeat, answer.body).incarnation, "so that it says hello"
    registers(bench, "worker/1")
    [answer] = bench.hear("worker/1", Heartbeat(), **NONE)
    assert decode_body(Heartbeat, answer.body).incarnation == "1"


def test_the_idle_worker_that_was_seen_last_gets_the_partition() -> None:
    bench = BrokerBench()
    for number in (1, 2, 3):
        registers(bench, f"worker/{number}")
    bench.wait(bench.now + 1)
    bench.hear("worker/2", Heartbeat(), **NONE)
    assert granted(bench.call()) == {"worker/2": PARTITION}


def test_rms_take_turns_and_partitions_that_were_served_come_first() -> None:
    bench = BrokerBench()
    many = [f"p{number}" for number in range(9)]
    listed = ", ".join(f"{{name: {name}, queues: [{{name: root}}]}}" for name in many)
    bench.call(f"partitions: [{listed}]")
    order = granted(registers(bench, "worker/1"))
    bench.call(rm="rm-2", session="another")
    order |= granted(registers(bench, "worker/2")) | granted(registers(bench, "worker/3"))
    assert list(order.values()) == ["rm-1_p0", "rm-2_default", "rm-1_p1"]
    bench.broker.registry.slots["rm-1_p7"].was_served = True
    assert granted(registers(bench, "worker/4")) == {"worker/4": "rm-1_p7"}


def test_a_partition_whose_workers_keep_ending_waits_ever_longer_and_no_other_does() -> None:
    bench = BrokerBench()
    bench.register(two_partitions())
    for slot in bench.broker.registry.slots.values():
        slot.granted_at = bench.now
    pauses = list[float]()
    for number in range(6):
        slot = bench.broker.registry.slots[PARTITION]
        ends(bench, slot.worker, PARTITION, slot.epoch)
        ended_at = bench.now
        assert granted(registers(bench, f"worker/{number}")) == {}
        while not (grants := granted(bench.wait(bench.broker.deadline))):
            pass
        assert grants == {f"worker/{number}": PARTITION}
        pauses.append(round(bench.now - ended_at, 3))
    assert pauses == [FIRST_S * 2**number for number in range(6)]
    registers(bench, "worker/9")
    slot = bench.broker.registry.slots[GPU]
    bench.wait(bench.now + STEADY_S)
    assert granted(ends(bench, slot.worker, GPU, slot.epoch)) == {"worker/9": GPU}, "it had been well"


def test_the_later_epoch_wins_whoever_comes_first() -> None:
    bench = BrokerBench()
    bench.register()
    bench.begin_again()
    assert bench.epoch(PARTITION) == 1
    claims(bench, "worker/1", PARTITION, 1)
    bench.hear(KEEPER, Hello(role="supervisor", workers={"worker/1": PARTITION}), **NONE)
    sends = claims(bench, "worker/2", PARTITION, 2)
    assert bench.broker.registry.slots[PARTITION].worker == "worker/2", "its grant was sent, and not recorded in time"
    assert bench.facts[RM].leases == {PARTITION: 2}
    [wanted] = [decode_body(WorkersWanted, one.body) for one in sends if one.to == KEEPER]
    assert wanted.dismissed == {"worker/1": PARTITION}
    [told] = claims(bench, "worker/1", PARTITION, 1)
    assert decode_body(WorkersWanted, told.body).dismissed == {"worker/1": PARTITION}


def test_each_grant_has_a_later_epoch() -> None:
    bench = BrokerBench()
    bench.call()
    epochs = list[int]()
    for number in range(4):
        [grant] = registers(bench, f"worker/{number}")
        epochs.append(grant.header.epoch)
        ends(bench, f"worker/{number}")
    assert epochs == sorted(set(epochs))


def test_commands_for_a_partition_without_a_worker_are_dropped_until_the_rm_resumes() -> None:
    bench = BrokerBench()
    bench.register()
    bench.broker.registry.renew_lease(PARTITION)
    assert bench.hear(PROXY, NodeRequest(), partition=PARTITION, seq=1) == []
    registers(bench, "worker/1")
    back = claims(bench, "worker/1", PARTITION, bench.epoch(PARTITION))
    assert {(one.to, one.header.kind) for one in back} & {(PROXY, "PartitionRestarted"), (PROXY, "ResumeWanted")}


def test_a_worker_that_hangs_before_it_has_recovered_loses_its_grant_too() -> None:
    bench = BrokerBench(settings=Settings(lease_timeout_s=5.0))
    bench.call()
    registers(bench, "worker/1")
    epoch = bench.epoch(PARTITION)
    bench.hear("worker/1", Heartbeat(), **NONE, partition=PARTITION, epoch=epoch)
    registers(bench, "worker/2")
    sends = bench.wait(bench.now + 5.0 + 2 * CHECK_INTERVAL_S)
    assert granted(sends) == {"worker/2": PARTITION}
    [wanted] = [decode_body(WorkersWanted, one.body) for one in sends if one.to == KEEPER]
    assert wanted.dismissed == {"worker/1": PARTITION}
    assert bench.epoch(PARTITION) > epoch


def test_a_process_that_cannot_start_refuses_the_changes_that_wait_for_a_worker() -> None:
    bench = BrokerBench()
    bench.register()
    bench.call(rm="rm-2", session="another", ref="second")
    sends = ends(bench, "worker/7", reason="no memory")
    [refusal] = [one.reason for one in said(sends) if isinstance(one, Refused)]
    assert "the worker of partition rm-2_default cannot start: no memory" in refusal
    assert list(bench.broker.registry.slots) == [PARTITION]
    assert bench.facts.keys() == {RM}


def test_the_end_of_a_worker_that_lost_its_lease_changes_nothing() -> None:
    bench = BrokerBench()
    bench.register()
    epoch, lost = bench.epoch(PARTITION), bench.broker.registry.slots[PARTITION].worker
    bench.broker.registry.renew_lease(PARTITION)
    renewed = bench.epoch(PARTITION)
    ends(bench, lost, PARTITION, epoch)
    assert bench.epoch(PARTITION) == renewed


def left_journals(sends: list[Outgoing]) -> list[tuple[str, int]]:
    """Partitions and epochs of the journals that the store has to remove."""
    return [(one.header.partition, one.header.epoch) for one in sends if one.header.kind == RemoveJournal.__name__]


def test_a_store_removes_the_journal_that_the_last_worker_of_an_ended_partition_has_left() -> None:
    bench = BrokerBench(settings=Settings(lease_timeout_s=NEVER, store="postgresql://db/yunishard"))
    bench.register(two_partitions())
    worker, epoch = bench.broker.registry.slots[PARTITION].worker, bench.epoch(PARTITION)
    assert left_journals(ends(bench, worker, PARTITION, epoch)) == [], "its successor needs it"
    later = bench.epoch(PARTITION)
    gpu = bench.broker.registry.slots[GPU].worker, bench.epoch(GPU)
    sends = bench.hear(PROXY, Leave())
    assert left_journals(sends) == [(PARTITION, later)], "it has no worker that could"
    assert [one.to for one in sends if one.header.kind == PartitionRemoved.__name__] == [GPU]
    assert left_journals(ends(bench, gpu[0], GPU, gpu[1])) == [(GPU, gpu[1])]
    assert left_journals(ends(bench, "worker/idle")) == []


def test_files_of_journals_are_left_to_the_supervisor() -> None:
    bench = BrokerBench()
    bench.register()
    worker, epoch = bench.broker.registry.slots[PARTITION].worker, bench.epoch(PARTITION)
    bench.hear(PROXY, Leave())
    assert ends(bench, worker, PARTITION, epoch) == []
