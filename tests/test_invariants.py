"""Defects of a partition are found and named."""

from collections.abc import Callable

import pytest

from tests.builders import apps, asks, foreign, nodes
from tests.invariants import check, find_violations
from tests.trial import Trial
from yunishard.partition_worker.engine.application import AppState
from yunishard.partition_worker.engine.durable_records import Template

NO_TEMPLATE = Template(0, {}, None, None)


def trial() -> Trial:
    one = Trial("root.a", quota_preemption=True).does(nodes("n1 memory=10"), apps("app-1 root.a user=bob"))
    return one.does(asks("app-1 a1 memory=4", "app-1 a2 memory=40 priority=3"), foreign("f1 n1 memory=1"))


def test_a_sound_partition_has_no_violations() -> None:
    assert find_violations(trial().partition) == []


DEFECTS: dict[str, Callable[[Trial], object]] = {
    "application app-1 is not in its queue root.a": lambda one: one.queue("root.a").applications.clear(),
    "application app-1: its asks in order": lambda one: one.app("app-1").requests.clear(),
    "application app-1: allocation a1 is not on its node 'n1'": lambda one: one.node("n1").allocations.clear(),
    "application app-1 in state Running: alarms": lambda one: one.app("app-1").alarms.update(state=7),
    "application app-1 has ended": lambda one: setattr(one.app("app-1"), "state", AppState.COMPLETED),
    "node n1 is in the node index although no ask": lambda one: setattr(one.node("n1"), "schedulable", False),
    "node n1: allocation a1 belongs to no application": lambda one: one.app("app-1").allocations.clear(),
    "queue root.a has a time for quota preemption": lambda one: setattr(
        one.queue("root.a"), "quota_preemption_at", 5.0
    ),
    "queue root.a: highest priority of applications 9": lambda one: one.queue("root.a").priorities.exchange(None, 9),
    "queue root.a is Draining, and drains since 0": lambda one: setattr(one.queue("root.a"), "state", "Draining"),
    "queue root.a is a leaf and has a template": lambda one: setattr(one.queue("root.a"), "template", NO_TEMPLATE),
    "queue root.a is not at the place of its path": lambda one: one.queue("root").children.clear(),
    "the index of keys": lambda one: one.partition.allocations.clear(),
    "the index of foreign allocations": lambda one: one.partition.foreign.clear(),
    "user bob at root.a: [] count": lambda one: one.partition.usage.users.levels("bob")["root.a"].applications.clear(),
    "user bob at root.a: 3 applications": lambda one: setattr(
        one.partition.usage.users.levels("bob")["root.a"], "charged", 3
    ),
    "user eve at root: nothing is there": lambda one: one.partition.usage.users.track("eve", "root"),
    "group dev at root.a: nothing is there": lambda one: one.partition.usage.groups.track("dev", "root.a"),
    "user bob: its accounts": lambda one: one.partition.usage.users.by_name.get("bob").accounts.clear(),
    "user bob is charged and not tracked": lambda one: one.partition.usage.users.by_name.pop("bob"),
    "application app-1 has no usage account": lambda one: one.partition.usage.accounts.clear(),
    "application app-1 has something and does not count": lambda one: setattr(
        one.partition.usage.account(one.app("app-1")), "counted", False
    ),
}


@pytest.mark.parametrize("problem", DEFECTS)
def test_a_defect_is_found_and_named(problem: str) -> None:
    one = trial()
    DEFECTS[problem](one)
    assert any(found.startswith(problem) for found in find_violations(one.partition)), find_violations(one.partition)
    with pytest.raises(AssertionError, match=f"partition {one.partition.name}: "):
        check(one.partition)


def test_checking_changes_nothing() -> None:
    one = trial()
    told = one.told()
    check(one.partition)
    assert one.does(nodes("n2 memory=40")).told() == ["node n2 accepted", "a2 on n2"]
    assert told


GANG_DEFECTS: dict[str, Callable[[Trial], object]] = {
    "ask r2 is not held as it should be": lambda one: setattr(one.app("app-2").requests["r2"], "held", False),
    "the RM was asked for p1 twice": lambda one: setattr(one.app("app-2").allocations["p1"], "preempted", True),
    "nothing takes the place of placeholder p1": lambda one: one.app("app-2").swapping.clear(),
    "r1 has no placeholder to replace": lambda one: setattr(one.app("app-2").swapping["r1"], "partner", None),
    "r1 is not where it should be until it has replaced p1": lambda one: setattr(
        one.app("app-2").swapping["r1"], "node_id", "n1"
    ),
    "where 2 placeholders are": lambda one: setattr(one.app("app-2").task_groups["g"], "timed_out", 1),
    "{'p2'} free": lambda one: one.app("app-2").task_groups["g"].free.clear(),
    "and 1 wait": lambda one: setattr(one.app("app-2").task_groups["g"], "waiting", 5),
    "app-2 is no swap candidate": lambda one: one.partition.swap_candidates.drop(one.app("app-2")),
}


@pytest.mark.parametrize("problem", GANG_DEFECTS)
def test_a_defect_of_a_gang_is_found_and_named(problem: str) -> None:
    """p1 is about to be replaced by r1; for r2 the node of p2 will not do, and there is no other one."""
    one = trial().does(nodes("n2 memory=6"), apps("app-2 root.a"))
    one.does(asks(*(f"app-2 {key} memory=3 placeholder group=g on=n2" for key in ("p1", "p2"))))
    one.does(asks("app-2 r1 memory=3 group=g"), asks("app-2 r2 memory=3 group=g tag.yunishard/forbiddenNodes=n1,n2"))
    check(one.partition)
    GANG_DEFECTS[problem](one)
    assert any(problem in text for text in find_violations(one.partition)), find_violations(one.partition)
