"""What a new configuration would do to the work that runs now, in the words of operators."""

import pytest

from yunishard.common.config.difference import Effect, PartitionUse, PrincipalUse, QueueUse, find_effects
from yunishard.common.config.model import PartitionConfig, normalise
from yunishard.common.config.validation import load


def partition(queues: str, more: str = "") -> PartitionConfig:
    text = f"partitions: [{{name: default, {more} queues: [{{name: root, submitacl: '*', queues: [{queues}]}}]}}]"
    return normalise(load(text)).partitions[0]


def effects(before: str, after: str, use: PartitionUse, more: str = "") -> list[Effect]:
    return find_effects(partition(before, more), partition(after, more), "default", use)


def texts(before: str, after: str, use: PartitionUse, more: str = "") -> list[str]:
    return [one.text for one in effects(before, after, use, more)]


BUSY = PartitionUse([QueueUse("root.a", {"vcore": 40_000, "memory": 1 << 30}, running=3, applications=5)])


def test_a_queue_above_its_new_maximum_is_reported_with_the_resource_and_the_excess() -> None:
    [found] = effects("{name: a}", "{name: a, resources: {max: {vcore: 30, memory: 1Gi}}}", BUSY)
    assert found == Effect(
        code="queue-above-maximum",
        text="root.a uses 40 vcore, 10 vcore more than its new maximum 30 vcore: nothing more starts there until it"
        " uses less",
        partition="default",
        queue="root.a",
        resource="vcore",
        used=40_000,
        maximum=30_000,
    )


def test_a_maximum_that_stays_or_suffices_is_not_reported() -> None:
    small = "{name: a, resources: {max: {vcore: 30}}}"
    assert texts(small, small, BUSY) == []
    assert texts(small, "{name: a, resources: {max: {vcore: 40}}}", BUSY) == []
    assert texts(small, "{name: a}", BUSY) == []
    assert texts("{name: b}", "{name: b, resources: {max: {vcore: 1}}}", BUSY) == []


def test_preemption_by_quota_is_announced_where_it_is_on() -> None:
    after = "{name: a, resources: {max: {vcore: 30}}, properties: {quota.preemption.delay: 10m}}"
    on = "preemption: {quotapreemptionenabled: true},"
    assert texts("{name: a}", after, BUSY, on)[0].endswith("and after 10 min allocations are preempted")
    assert texts("{name: a}", after, BUSY)[0].endswith("until it uses less")


def test_too_many_running_applications_are_reported() -> None:
    [found] = effects("{name: a, maxapplications: 5}", "{name: a, maxapplications: 2}", BUSY)
    assert found.text.startswith("root.a runs 3 applications, 1 more than its new maximum 2")
    assert (found.code, found.used, found.maximum) == ("queue-above-applications", 3, 2)


def test_a_removed_queue_with_applications_is_reported_and_an_empty_one_is_not() -> None:
    idle = PartitionUse([QueueUse("root.a", {}, running=0, applications=0)])
    [found] = effects("{name: a}, {name: b}", "{name: b}", BUSY)
    assert (found.code, found.applications) == ("queue-removed", 5)
    assert found.text == "root.a is removed: its 5 applications continue, and it takes nothing new"
    assert texts("{name: a}, {name: b}", "{name: b}", idle) == []


def test_a_leaf_that_becomes_a_parent_keeps_its_applications() -> None:
    [found] = effects("{name: a}", "{name: a, queues: [{name: b}]}", BUSY)
    assert (found.code, found.applications) == ("queue-becomes-parent", 5)


def test_a_removed_partition_fails_all_its_applications() -> None:
    use = PartitionUse([QueueUse("root", {}, running=1, applications=1, is_leaf=False)])
    [found] = find_effects(partition("{name: a}"), None, "gpu", use)
    assert found.text == "partition gpu ends: its nodes leave, and its 1 application fails"
    assert find_effects(None, partition("{name: a}"), "gpu", use) == []


def limited(entry: str) -> str:
    return f"{{name: a, limits: [{{limit: x, {entry}}}]}}"


@pytest.mark.parametrize(
    ("before", "after", "codes"),
    [
        ("users: ['*'], maxresources: {vcore: 50}", "users: ['*'], maxresources: {vcore: 10}", ["user-above-limit"]),
        ("users: ['*'], maxresources: {vcore: 50}", "users: [bob], maxresources: {vcore: 10}", []),
        ("users: [ann], maxresources: {vcore: 10}", "users: ['*'], maxresources: {vcore: 10}", []),
        ("groups: [dev], maxresources: {vcore: 50}", "groups: [dev], maxresources: {vcore: 9}", ["group-above-limit"]),
        ("groups: [dev], maxapplications: 9", "groups: [dev], maxapplications: 1", ["group-above-applications"]),
        ("users: [ann], maxapplications: 9", "users: [ann], maxapplications: 1", ["user-above-applications"]),
    ],
)
def test_users_and_groups_above_their_new_limits_are_reported(before: str, after: str, codes: list[str]) -> None:
    used = {"vcore": 12_000}
    use = PartitionUse(
        users=[PrincipalUse("ann", "root.a", used, running=2), PrincipalUse("ann", "root", used, running=2)],
        groups=[PrincipalUse("dev", "root.a", used, running=2)],
    )
    assert [one.code for one in effects(limited(before), limited(after), use)] == codes


def test_the_limit_of_a_user_comes_before_that_of_anyone() -> None:
    own, others = "{users: [ann], maxresources: {vcore: 20}}", "{users: ['*'], maxresources: {vcore: 1}}"
    after = f"{{name: a, limits: [{own}, {others}]}}"
    use = PartitionUse(users=[PrincipalUse(name, "root.a", {"vcore": 12_000}, running=0) for name in ("ann", "bob")])
    [found] = effects("{name: a}", after, use)
    assert (found.user, found.group, found.maximum) == ("bob", "", 1_000)
    assert found.text == (
        "user bob uses 12 vcore in root.a, 11 vcore more than the new limit 1 vcore: asks wait until it is less"
    )
