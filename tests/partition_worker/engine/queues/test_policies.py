"""Properties are read leniently: what is wrong means the default."""

import pytest

from partition_worker.engine.queues.queue import Policies, inherit_properties, parse_policies


def test_without_properties_everything_has_its_default() -> None:
    assert parse_policies({}, leaf=True) == Policies()


def test_every_property_is_read() -> None:
    properties = {
        "application.sort.policy": "fair",
        "application.sort.priority": "disabled",
        "priority.policy": "fence",
        "priority.offset": "-5",
        "preemption.policy": "disabled",
        "preemption.delay": "1m",
        "quota.preemption.delay": "5s",
        "node.sort.policy": "Pack",
        "allocation.batch": "20",
    }
    assert parse_policies(properties, leaf=True) == Policies(
        application_sort="fair",
        priority_sort=False,
        priority_fence=True,
        priority_offset=-5,
        preemption="disabled",
        preemption_delay_s=60.0,
        quota_preemption_delay_s=5.0,
        node_sort="pack",
        allocation_batch=20,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("application.sort.policy", "FAIR"),  # the one that depends on case
        ("application.sort.policy", "StateAware"),
        ("application.sort.priority", "off"),
        ("priority.policy", "wall"),
        ("priority.offset", "2147483648"),
        ("priority.offset", "-2147483649"),
        ("priority.offset", "1.5"),
        ("priority.offset", "1_000"),
        ("priority.offset", " 1"),
        ("preemption.policy", "never"),
        ("preemption.delay", "0s"),
        ("preemption.delay", "-1s"),
        ("preemption.delay", "soon"),
        ("quota.preemption.delay", "-1s"),
        ("node.sort.policy", "packed"),
        ("allocation.batch", "0"),
        ("allocation.batch", "-2"),
        ("allocation.batch", "2147483648"),
        ("allocation.batch", "all"),
    ],
)
def test_a_bad_value_means_the_default(name: str, value: str) -> None:
    assert parse_policies({name: value}, leaf=True) == Policies()


@pytest.mark.parametrize("value", ["2147483647", "-2147483648", "+7"])
def test_an_offset_may_be_any_32_bit_number(value: str) -> None:
    assert parse_policies({"priority.offset": value}, leaf=True).priority_offset == int(value)


@pytest.mark.parametrize("value", ["Disabled", "DISABLED"])
def test_most_values_ignore_case(value: str) -> None:
    assert not parse_policies({"application.sort.priority": value}, leaf=True).priority_sort
    assert parse_policies({"preemption.policy": value}, leaf=True).preemption == "disabled"


def test_the_preemption_delay_counts_only_on_a_leaf() -> None:
    assert parse_policies({"preemption.delay": "1m"}, leaf=False).preemption_delay_s == 30.0


def test_most_properties_are_passed_on() -> None:
    parent = {"application.sort.policy": "fair", "preemption.delay": "1m", "my.own": "x"}
    assert inherit_properties(parent) == parent


def test_priorities_and_fences_are_not_inherited() -> None:
    parent = {"priority.policy": "fence", "priority.offset": "5", "preemption.policy": "fence"}
    assert inherit_properties(parent) == {
        "priority.policy": "default",
        "priority.offset": "0",
        "preemption.policy": "default",
    }


def test_disabled_preemption_is_inherited() -> None:
    assert inherit_properties({"preemption.policy": "Disabled"}) == {"preemption.policy": "Disabled"}


def test_passing_on_leaves_the_parent_as_it_was() -> None:
    parent = {"priority.offset": "5"}
    inherit_properties(parent)
    assert parent == {"priority.offset": "5"}


def test_each_order_of_applications_has_its_word() -> None:
    words = ("fifo", "fair", "stateaware")
    assert [parse_policies({"application.sort.policy": word}, leaf=True).application_sort for word in words] == [*words]
