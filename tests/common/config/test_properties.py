"""Which values queue properties take, and which keys are slips of the pen."""

import pytest

from yunishard.common.config.model import PROPERTIES, find_similar_property, parse_delay, parse_priority_offset
from yunishard.partition_worker.engine.queues.queue import parse_policies


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("application.sort.policy", ["fifo", "fair", "stateaware"], ["Fair", "StateAware", "fare", " fair"]),
        ("application.sort.priority", ["enabled", "disabled", "Disabled"], ["no", "off", "false"]),
        ("application.unschedasks.backoff", ["0", "5", str(2**64 - 1)], ["-1", "+1", "1.5", "two", str(2**64)]),
        ("application.unschedasks.backoff.delay", ["1ms", "1h30m"], ["0s", "60", "-5s", "soon"]),
        ("priority.policy", ["default", "Fence"], ["fenced", "disabled"]),
        ("priority.offset", ["+5", "-2147483648", "2147483647"], ["5.5", "high", "2147483648"]),
        ("preemption.policy", ["DISABLED", "fence", "default"], ["off", "never"]),
        ("preemption.delay", ["10s"], ["10", "0", "10 s"]),
        ("preemption.cooldown", ["10s", "1h"], ["0s", "5"]),
        ("quota.preemption.delay", ["15m"], ["15", "-15m", "1d"]),
        ("node.sort.policy", ["fair", "binpacking", "Pack"], ["packed", "default"]),
        ("allocation.batch", ["1", "256"], ["0", "-1", "2.5", "many", str(2**31)]),
    ],
)
def test_each_property_takes_its_values_only(name: str, good: list[str], bad: list[str]) -> None:
    assert [value for value in good if PROPERTIES[name].misreads(value)] == []
    assert [value for value in bad if not PROPERTIES[name].misreads(value)] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("application.sort.policy", "FIFO"),
        ("quota.preemption.delay", "0s"),
        ("preemption.delay", ""),
        ("priority.offset", " "),
    ],
)
def test_a_value_that_says_the_default_is_not_misread(name: str, value: str) -> None:
    assert not PROPERTIES[name].misreads(value)


@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.parametrize("leaf", [True, False])
def test_queues_read_the_named_default_and_what_is_not_taken_alike(name: str, *, leaf: bool) -> None:
    assert parse_policies({name: PROPERTIES[name].default}, leaf=leaf) == parse_policies({}, leaf=leaf)
    assert parse_policies({name: "nonsense"}, leaf=leaf) == parse_policies({}, leaf=leaf)


@pytest.mark.parametrize("text", ["", "1" * 21, "٣", "1_000", " 1"])
def test_an_offset_is_an_ordinary_decimal_number(text: str) -> None:
    assert parse_priority_offset(text) is None


def test_a_delay_of_nothing_is_none() -> None:
    assert (parse_delay("0"), parse_delay("-1s"), parse_delay("1.5s")) == (None, None, 1.5)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("application.sort.polcy", "application.sort.policy"),
        ("aplication.sort.polici", "application.sort.policy"),
        ("preemption.quota.delay", "quota.preemption.delay"),
        ("Application.Sort.Policy", "application.sort.policy"),
        ("applicationSortPriority", "application.sort.priority"),
        ("priority_offset", "priority.offset"),
        ("priority.offsets", "priority.offset"),
        ("node.sortpolicy", "node.sort.policy"),
        ("allocation.batches", "allocation.batch"),
        ("pre-emption.delay", "preemption.delay"),
        ("application.unschedask.backoff", "application.unschedasks.backoff"),
    ],
)
def test_a_slip_of_the_pen_is_recognised(key: str, name: str) -> None:
    assert find_similar_property(key) == name


@pytest.mark.parametrize(
    "key",
    [*PROPERTIES, "", "colour", "priority", "preemption", "delay", "application.sort", "priority.class", "x" * 10_000],
)
def test_other_keys_mean_no_property(key: str) -> None:
    assert find_similar_property(key) == ""
