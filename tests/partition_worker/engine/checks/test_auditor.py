"""A sum that drifts while a partition runs is found, and looking costs a little at a time."""

from collections.abc import Callable

import pytest

from common.wire import NEVER
from partition_worker.engine import auditor
from partition_worker.engine.auditor import SLICE_EVERY_S
from partition_worker.engine.state import Event
from tests.builders import apps, asks, nodes, released
from tests.trial import Trial

EVERY_S = 30.0


def trial(queues: str = "root.a") -> Trial:
    """A partition that is audited, with two applications that have something, and one that waits."""
    one = Trial(queues)
    one.partition.auditor.every_s = EVERY_S
    one.does(nodes("n1 memory=10", "n2 memory=10"), apps("app-1 root.a user=bob", "app-2 root.a user=eve"))
    one.does(asks("app-1 a1 memory=4", "app-2 b1 memory=4", "app-2 b2 memory=40"))
    one.told()
    return one


def elapse(one: Trial, seconds: float) -> None:
    """Let timers go off without checking the state, which is wrong."""
    until = one.now + seconds
    while one.partition.next_timer <= until:
        one.now = max(one.now, one.partition.next_timer)
        due = one.partition.next_change <= one.now
        one.effects += one.partition.step(one.now, 0) if due else one.partition.audit(one.now)
        while not one.partition.idle:
            one.effects += one.partition.step(one.now, 100)
    one.now = until


def test_a_sound_partition_is_found_sound() -> None:
    one = trial().waits(EVERY_S)
    assert (one.partition.auditor.rounds, one.partition.auditor.drift) == (1, 0)
    assert one.partition.auditor.health.drift == []
    assert one.told() == []


DRIFTS: dict[str, Callable[[Trial], object]] = {
    "application app-1 pending": lambda one: one.app("app-1").pending.update(memory=1),
    "application app-2 allocated": lambda one: one.app("app-2").allocated.update(memory=5),
    "node n1 available": lambda one: one.node("n1").available.update(memory=7),
    "queue root.a allocated": lambda one: one.queue("root.a").allocated.update(memory=9),
    "queue root: 9 running where 2 are": lambda one: setattr(one.queue("root"), "running", 9),
    "user bob at root": lambda one: one.partition.usage.users.levels("bob")["root"].used.update(memory=1),
    "total": lambda one: one.partition.nodes.total.update(memory=1),
    "7 allocations counted": lambda one: setattr(one.partition, "running_allocations", 7),
    "the index of keys": lambda one: one.partition.allocations.pop("a1"),
}


@pytest.mark.parametrize("problem", DRIFTS)
def test_what_drifts_is_told_counted_and_shown(problem: str) -> None:
    one = trial()
    one.partition.drain_events()
    DRIFTS[problem](one)
    elapse(one, EVERY_S)
    found = one.partition.auditor
    assert found.drift >= 1
    assert any(text.startswith(problem) for text in found.health.drift)
    assert any(text.startswith(f"note: audit: {problem}") for text in one.told())
    history = [Event(*happened) for happened in one.partition.drain_events()]
    assert any(happening.message.startswith(f"audit: {problem}") for happening in history)


def test_without_a_change_nobody_looks_again() -> None:
    one = trial().waits(EVERY_S)
    assert one.partition.auditor.deadline == NEVER
    one.does(released("app-2 b2"))
    assert one.waits(EVERY_S).partition.auditor.rounds == 2


def test_rounds_begin_so_far_apart_however_much_changes() -> None:
    one = trial()
    for number in range(10):
        one.does(asks(f"app-1 c{number} memory=40")).waits(EVERY_S / 5)
    assert one.partition.auditor.rounds == 2


@pytest.mark.parametrize("every_s", [0.0, -1.0])
def test_it_can_be_switched_off(every_s: float) -> None:
    one = trial().waits(EVERY_S)
    one.partition.auditor.every_s = every_s
    assert one.does(released("app-2 b2")).waits(10 * EVERY_S).partition.auditor.rounds == 1


# Slices ---------------------------------------------------------------------------------------------------------------


def test_a_round_is_made_of_slices_and_its_length_follows_from_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditor, "SLICE_ITEMS", 1)
    one = trial()
    elapse(one, EVERY_S)
    assert one.partition.auditor.rounds == 0
    objects = 2 + 2 + 2 + 2 + 1  # applications, nodes, queues, users, the partition
    elapse(one, objects * SLICE_EVERY_S + 0.01)
    assert one.partition.auditor.rounds == 1


def test_what_changes_between_two_slices_is_no_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is looked at first, and whatever comes, goes or is resized meanwhile."""
    monkeypatch.setattr(auditor, "SLICE_ITEMS", 1)
    one = trial()
    one.now += EVERY_S
    changes = [
        asks("app-1 a2 memory=1", "app-2 b3 memory=2"),
        released("app-1 a1"),
        nodes("n3 memory=40"),
        released("app-2"),
        apps("app-3 root.a user=kim"),
        asks("app-3 c1 memory=3 on=n2"),
        released("app-3 c1"),
    ]
    for change in changes:
        one.effects += one.partition.audit(one.now)
        one.does(change)
        one.now += SLICE_EVERY_S
    assert one.partition.auditor.rounds == 0
    one.waits(10 * EVERY_S)
    assert one.partition.auditor.rounds >= 2
    assert one.partition.auditor.drift == 0


def test_what_changed_during_a_round_is_looked_at_in_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditor, "SLICE_ITEMS", 1)
    one = trial()
    elapse(one, EVERY_S + SLICE_EVERY_S)
    one.does(released("app-2 b2")).waits(10 * EVERY_S)
    assert one.partition.auditor.rounds == 2


def test_one_round_tells_of_some_drifts_and_counts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditor, "TOLD_MAX", 2)
    one = trial()
    for problem in ("application app-1 pending", "application app-2 allocated", "node n1 available"):
        DRIFTS[problem](one)
    elapse(one, EVERY_S)
    assert sum(text.startswith("note: audit:") for text in one.told()) == 2
    assert one.partition.auditor.drift > 2
    assert len(one.partition.auditor.health.drift) == one.partition.auditor.drift
