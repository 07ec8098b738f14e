"""What changes between two configurations, in the words of operators."""

import pytest

from yunishard.common.config.difference import Difference, find_differences
from yunishard.common.config.validation import load

RULES = """placementrules: [
    {name: fixed, value: a, create: true, filter: {type: deny, users: [bob, ann]}},
    {name: provided, parent: {name: tag, value: t}, filter: {groups: [dev]}}, {name: user, filter: {type: deny}}]"""
RULES_IN_WORDS = "fixed a, create, deny users bob ann; provided, allow groups dev, below (tag t); user, deny all"


def lines(before: str, after: str) -> list[str]:
    return [str(found) for found in find_differences(load(before), load(after))]


def changes(before: str, after: str) -> list[str]:
    """Between partitions `gpu` of these keys."""
    return lines(f"partitions: [{{name: gpu, {before}}}]", f"partitions: [{{name: gpu, {after}}}]")


def of_queue(before: str, after: str) -> list[str]:
    """Between queues `a` of these keys."""
    return changes(f"queues: [{{name: a, {before}}}]", f"queues: [{{name: a, {after}}}]")


def test_a_configuration_does_not_differ_from_itself() -> None:
    assert lines("partitions: [{queues: [{name: a}]}]", "partitions: [{queues: [{name: a}]}]") == []
    assert lines("", "") == []


def test_partitions_go_and_come() -> None:
    assert lines("partitions: [{name: gpu, queues: []}]", "partitions: [{queues: []}]") == [
        "partition gpu removed",
        "partition default added",
    ]


def test_queues_go_and_come_with_everything_below_them() -> None:
    before = "queues: [{name: a, queues: [{name: b}]}, {name: c}]"
    after = "queues: [{name: a, queues: [{name: d, queues: [{name: e}, {name: f, queues: [{name: b}]}]}]}]"
    assert changes(before, after) == [
        "queue gpu root.c removed",
        "queue gpu root.a.b removed",
        "queue gpu root.a.d added (with 3 queues below)",
    ]
    assert changes(after, before)[1] == "queue gpu root.a.d removed (with 3 queues below)"


def test_a_difference_is_a_value_with_both_settings() -> None:
    before, after = (f"partitions: [{{queues: [{{name: A, maxapplications: {most}}}]}}]" for most in (1, 2))
    assert find_differences(load(before), load(after)) == [
        Difference(kind="queue-changed", path="default root.a maxapplications", before="1", after="2")
    ]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("", "maxapplications: 3", "maxapplications: nothing -> 3"),
        ("parent: true", "", "type: parent -> leaf"),
        ("submitacl: '*'", "submitacl: ann dev", "submitacl: * -> ann dev"),
        ("adminacl: ann", "", "adminacl: ann -> nothing"),
        ("resources: {max: {memory: 1G}}", "resources: {max: {memory: 2G}}", "resources.max.memory: 1G -> 2G"),
        ("", "resources: {guaranteed: {vcore: 0}}", "resources.guaranteed.vcore: nothing -> 0"),
        ("properties: {a.b: x}", "properties: {a.b: y}", "properties.a.b: 'x' -> 'y'"),
        ("", "properties: {a: ''}", "properties.a: nothing -> ''"),
        ("", "childtemplate: {maxapplications: 1}", "childtemplate.maxapplications: nothing -> 1"),
        ("", "childtemplate: {properties: {a: b}}", "childtemplate.properties.a: nothing -> 'b'"),
        (
            "childtemplate: {resources: {max: {memory: x}}}",
            "childtemplate: {resources: {max: {memory: 1}}}",
            "childtemplate.resources.max.memory: x -> 1",
        ),
        (
            "limits: [{users: [ann], maxapplications: 2}]",
            "limits: [{users: [ann], maxapplications: 2, maxresources: {vcore: 1, memory: 1G}}]",
            "limit of user ann: 2 applications -> 2 applications, memory=1G vcore=1",
        ),
        ("", "limits: [{groups: [dev], maxapplications: 1}]", "limit of group dev: nothing -> 1 applications"),
    ],
)
def test_a_setting_of_a_queue_changes(before: str, after: str, expected: str) -> None:
    assert of_queue(before, after) == [f"gpu root.a {expected}"]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("", "preemption: {enabled: false}", "preemption.enabled: true -> false"),
        ("", "preemption: {quotapreemptionenabled: yes}", "preemption.quotapreemptionenabled: false -> true"),
        ("", "nodesortpolicy: {type: binpacking}", "nodesortpolicy.type: fair -> binpacking"),
        (
            "",
            "nodesortpolicy: {resourceweights: {gpu: 2}}",
            "nodesortpolicy.resourceweights: memory=1 vcore=1 -> gpu=2",
        ),
        ("", "usergroupresolver: {type: os}", "usergroupresolver.type: nothing -> os"),
        (
            "placementrules: [{name: user}]",
            RULES,
            f"placementrules: user -> {RULES_IN_WORDS}",
        ),
    ],
)
def test_a_setting_of_a_partition_changes(before: str, after: str, expected: str) -> None:
    assert changes(f"queues: [], {before}", f"queues: [], {after}") == [f"gpu {expected}"]


def test_limits_of_a_partition_are_those_of_its_root() -> None:
    limit = "limits: [{users: [ann], maxapplications: 2}]"
    assert changes("queues: []", f"queues: [], {limit}") == ["gpu root limit of user ann: nothing -> 2 applications"]
    assert changes(f"queues: [{{name: root, {limit}}}]", f"queues: [], {limit}") == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("queues: [{name: a}]", "queues: [{name: root, queues: [{name: A, parent: false}]}]"),
        ("queues: [{name: a}, {name: b}]", "queues: [{name: b}, {name: a}]"),
        ("queues: []", "queues: [], nodesortpolicy: {type: fair, resourceweights: {memory: 1, vcore: 1.0}}"),
        (
            "queues: [{name: a, resources: {max: {vcore: 1, memory: 1M}}}]",
            "queues: [{name: a, resources: {max: {memory: 1000k, vcore: 1000m}}}]",
        ),
        ("queues: []", "queues: [], preemption: {enabled: true}"),
    ],
)
def test_what_is_only_written_differently_is_no_difference(before: str, after: str) -> None:
    assert changes(before, after) == []


def test_names_of_partitions_differ_by_case() -> None:
    assert lines("partitions: [{name: GPU, queues: []}]", "partitions: [{name: gpu, queues: []}]") == [
        "partition GPU removed",
        "partition gpu added",
    ]
