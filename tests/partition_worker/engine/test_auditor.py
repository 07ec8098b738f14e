"""The auditor: rounds and slices, drifted sums, and the health of a partition."""

from collections.abc import Callable

import pytest

from tests.builders import apps, asks, foreign, nodes, released
from tests.trial import Trial
from yunishard.common.messages.query_messages import WorkerHealth
from yunishard.common.messages.wire import NEVER
from yunishard.partition_worker.engine import auditor
from yunishard.partition_worker.engine.amounts import add, amounts_of, number_of, sum_of
from yunishard.partition_worker.engine.auditor import LISTED_MAX, SLICE_EVERY_S, check_objects

pytestmark = pytest.mark.tampers

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


MEMORY = amounts_of({"memory": 1})

DRIFTS: dict[str, Callable[[Trial], object]] = {
    "application app-1, pending: {'memory': 1} where the sum is {}": lambda one: add(
        one.app("app-1").pending_sum, MEMORY
    ),
    "application app-2, allocated: ": lambda one: add(one.app("app-2").allocated_sum, MEMORY),
    "application app-2, allocated to placeholders: ": lambda one: add(one.app("app-2").placeholder_sum, MEMORY),
    "node n1, allocated: ": lambda one: add(one.node("n1").allocated_sum, MEMORY),
    "node n1, occupied: ": lambda one: add(one.node("n1").occupied_sum, MEMORY),
    "node n1, available: ": lambda one: add(one.node("n1").available_sum, MEMORY),
    "queue root.a, allocated: ": lambda one: add(one.queue("root.a").allocated_sum, MEMORY),
    "queue root, pending: ": lambda one: add(one.queue("root").pending_sum, MEMORY),
    "queue root.a, preempting: ": lambda one: setattr(one.app("app-1").allocations["a1"], "preempted", True),
    "queue root.a, kept: ": lambda one: one.queue("root.a").kept.update(memory=1),
    "queue root, running applications: 9 where the sum is 2": lambda one: setattr(one.queue("root"), "running", 9),
    "user bob, used in root: ": lambda one: add(one.partition.usage.users.levels("bob")["root"].used_sum, MEMORY),
    "user bob, used in root.a: {} where": lambda one: one.partition.usage.users.by_name.get("bob").levels.pop("root.a"),
    "partition root, asks and allocations: ": lambda one: one.partition.allocations.pop("a1"),
    "partition root, running allocations: 7": lambda one: setattr(one.partition, "running_allocations", 7),
    "partition root, foreign allocations: ": lambda one: one.partition.foreign.update(f1=one.node("n1")),
    "partition root, capacity: ": lambda one: one.partition.nodes.total.update(memory=1),
    "partition root, maximum: ": lambda one: setattr(one.queue("root"), "maximum", None),
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
    history = one.partition.drain_events()
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
    monkeypatch.setattr(auditor, "LOGGED_MAX", 2)
    one = trial()
    for problem in tuple(DRIFTS)[:3]:
        DRIFTS[problem](one)
    elapse(one, EVERY_S)
    assert sum(text.startswith("note: audit:") for text in one.told()) == 2
    assert one.partition.auditor.drift > 2
    assert len(one.partition.auditor.health.drift) == one.partition.auditor.drift


# Health ---------------------------------------------------------------------------------------------------------------


def health_trial() -> Trial:
    return Trial().does(
        nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=4"), foreign("f1 n1 memory=1")
    )


def found(one: Trial) -> WorkerHealth:
    health = WorkerHealth()
    for _ in check_objects(one.partition, health):
        pass
    return health


def test_of_a_sound_partition_only_sizes_are_told() -> None:
    assert found(health_trial()) == WorkerHealth(nodes=1)


def test_reservations_are_counted() -> None:
    one = health_trial().takes(nodes("n2 memory=4")).does(asks("app-1 a2 memory=6 required=n2", "app-1 a3 memory=6"))
    assert found(one).reservations == len(one.partition.reservation_index.by_rank)


def test_negative_amounts_of_a_partition_are_counted() -> None:
    one = health_trial()
    one.queue("root").allocated_sum = sum_of({"memory": -1})
    one.partition.nodes.total["memory"] = -1
    assert found(one).negative == 2


def test_a_node_is_listed_once_for_each_negative_amount() -> None:
    one = health_trial()
    one.node("n1").allocated_sum = sum_of({"memory": -5})
    one.node("n1").occupied_sum = sum_of({"memory": -1})
    assert found(one).negative_nodes == ["n1", "n1"]


def test_a_partition_has_what_its_nodes_have() -> None:
    one = health_trial()
    one.partition.nodes.total["memory"] = 11
    assert found(one).inconsistent


def test_the_parts_of_a_node_add_up() -> None:
    one = health_trial()
    one.node("n1").available_sum = sum_of({"memory": 6})
    assert found(one).inconsistent_nodes == ["n1"]


def test_an_allocation_that_its_application_does_not_know_is_an_orphan() -> None:
    one = health_trial()
    one.app("app-1").allocations.clear()
    told = "allocationKey a1, applicationID app-1, Resource map[memory:4], Allocated true"
    assert found(one).orphans_on_nodes == [told]
    assert found(one).orphans_of_applications == []


def test_an_allocation_that_its_node_does_not_know_is_an_orphan() -> None:
    one = health_trial()
    one.node("n1").allocations.clear()
    told = "allocationKey a1, applicationID app-1, Resource map[memory:4], Allocated true"
    assert found(one).orphans_of_applications == [told]


def test_no_more_is_listed_than_the_bound_allows() -> None:
    one = health_trial().does(nodes(f"n2 memory={LISTED_MAX + 1}"))
    one.does(asks(*(f"app-1 b{number} memory=1" for number in range(LISTED_MAX + 1))))
    one.app("app-1").allocations.clear()
    assert len(found(one).orphans_on_nodes) == LISTED_MAX


def test_an_object_with_many_parts_takes_several_slices_and_is_left_out_if_the_partition_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(auditor, "PORTION", 3)
    monkeypatch.setattr(auditor, "SLICE_ITEMS", 3)
    one = Trial().does(nodes("n1 memory=4"), apps("app-1 root.a"))
    one.does(asks(*(f"app-1 a{number} memory=1" for number in range(8))))
    one.app("app-1").pending_sum[number_of("memory")] += 1
    drift = []
    for changes in (False, True):
        checked = check_objects(one.partition, WorkerHealth())
        found = [next(checked)]
        one.partition.step_number += changes
        found += [part for part in checked if part.name == "app-1"]
        drift.append((len(found), [text for part in found for text in part.drift]))
    whole = "application app-1, pending: {'memory': 5} where the sum is {'memory': 4}"
    assert drift == [(3, [whole]), (1, [])]
    one.app("app-1").pending_sum[number_of("memory")] -= 1
