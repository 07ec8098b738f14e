"""Which tables of a partition grow with the names that passed through it: only those with a bound."""

import gc
import timeit
from collections import Counter, deque

import pytest

from tests.builders import PROVIDED_CREATE, apps, asks, foreign, gone, nodes, released
from tests.growth import find_growing, measure
from tests.trial import Trial
from yunishard.common.messages.rm_messages import NODE_DECOMMISSION
from yunishard.common.process import gc_tuning
from yunishard.partition_worker.engine import amounts, state, user_limits, user_resolution
from yunishard.partition_worker.engine.application import RETENTION_S
from yunishard.partition_worker.engine.durable_records import RejectionRecord
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.predicates import results
from yunishard.partition_worker.engine.queues import queue
from yunishard.partition_worker.engine.state import Changes

BOUNDED = {
    "Counters.reached": state.REACHED_MAX,
    "Partition.removed": state.REMOVED_MAX,
    "Queue.allocated_sum": amounts.TYPES_MAX,
    "Queue.pending_sum": amounts.TYPES_MAX,
    "Queue.once_limited": queue.ONCE_MAX,
    "ResultTable._nodes": results.STALE_MAX,
    "ResultTable._results": results.RESULTS_MAX,
    "Users.learned": user_resolution.REMEMBERED_MAX,
}
"""Tables that keep names of what is gone, and the most that they keep."""


def play(trial: Trial, number: int) -> None:
    """A round in which everything has another name, and after which all is gone and expired."""
    n = str(number)
    trial.does(nodes(f"n{n} memory=10 t{n}=1 tag.zone=z{n}"), foreign(f"f{n} n{n} memory=1"))
    trial.does(
        apps(f"a{n} root.new.q{n} user=u{n} groups=g{n}", f"b{n} root.a user=v{n} groups=h{n}", f"r{n} root.a.{n}"),
        asks(f"a{n} x{n} memory=1 t{n}=1", f"b{n} y{n} memory=99", f"a{n} z{n} memory=2 required=n{n}"),
        asks(f"a{n} w{n} memory=50"),
    )
    trial.waits(5)
    trial.does(released(f"a{n} x{n}"), gone(f"a{n}", f"b{n}"))
    trial.does(apps(f"c{n} root.a user=u{n} groups=g{n}"), asks(f"c{n} p{n} memory=1"), released(f"c{n} p{n}"))
    trial.does(nodes(f"n{n}", action=NODE_DECOMMISSION))
    trial.waits(40)
    assert len(trial.partition.ended) == len(trial.partition.rejections) == 1
    trial.now += RETENTION_S
    trial.waits(1)
    trial.partition.drain_events()  # the journal and the ring buffer take these with each step
    trial.partition.changes = Changes()
    trial.effects.clear()


def test_what_is_gone_leaves_nothing_but_entries_of_bounded_tables() -> None:
    trial = Trial("root.a limit.user.u0=apps:5; root.new.x", rules=(PROVIDED_CREATE,), made=Partition)
    assert find_growing(trial.partition, lambda number: play(trial, number), without=BOUNDED) == {}
    sizes = measure(trial.partition)
    assert all(sizes[name] > 0 for name in BOUNDED), sizes


def test_what_is_gone_leaves_no_reference_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker never frees a cycle that has survived two collections (`common/process/gc_tuning.py`)."""
    monkeypatch.setattr(user_limits, "IDLE_MAX", 1)
    trial = Trial("root.a limit.user.*=apps:5; root.new.x", rules=(PROVIDED_CREATE,), made=Partition)
    trial.partition.removed = deque(maxlen=0)
    play(trial, 0)
    gc.collect()
    with gc_tuning.pause_collector():
        for number in range(1, 4):
            play(trial, number)
        trial.does(apps("a root.a user=u"), asks("a a1 memory=99"))
        trial.reconfigures("root.a application.sort.policy=fair limit.user.u1=apps:5; root.new.y")
        trial.does(gone("a"))
        play(trial, 4)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(0)
        found = Counter(type(one).__name__ for one in gc.garbage)
        gc.garbage.clear()
    assert not found


def test_sums_keep_no_types_that_were_only_named() -> None:
    trial = Trial("root.a limit.user.bob=apps:5").does(nodes("n1 memory=1000 type-0=1000"), apps("app-1 root.a"))
    trial.does(asks("app-1 kept memory=1"))
    for number in range(100):
        trial.does(asks(f"app-1 a memory=1 type-{number}=0"), released("app-1 a"))
    usage, node = trial.partition.usage.users.levels("bob")["root.a"], trial.node("n1")
    assert trial.queue("root").allocated == node.allocated == usage.used == {"memory": 1}
    assert trial.queue("root.a").pending == {}
    assert node.available == {"memory": 999, "type-0": 1000}


def test_the_first_expiry_is_found_at_once_however_many_have_expired() -> None:
    partition = Trial().partition
    for number in range(40_000):
        partition.keep_rejection(RejectionRecord(f"app-{number}", "", "", (), number, ""))
    fresh_s = min(timeit.repeat(lambda: partition.next_expiry, number=20))
    for number in range(39_000):
        partition._drop_rejection(f"app-{number}")
    assert min(timeit.repeat(lambda: partition.next_expiry, number=20)) < 20 * fresh_s


def test_a_queue_keeps_the_latest_types_that_it_limited() -> None:
    one = Trial("root.a").queue("root.a")
    for number in range(queue.ONCE_MAX + 5):
        one.entitle(maximum={f"type-{number}": 1}, guaranteed=None)
    assert list(one.once_limited) == [f"type-{number}" for number in range(5, queue.ONCE_MAX + 5)]
