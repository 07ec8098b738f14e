"""The configuration is shown exactly as YuniKorn shows it."""

import json
import math
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from yunishard.common.config.model import (
    Configuration,
    FilterConfig,
    NodeSortConfig,
    PartitionConfig,
    PlacementRuleConfig,
    PreemptionConfig,
    QueueConfig,
    ResolverConfig,
    ResourcesConfig,
)
from yunishard.common.config.parse import Mapping, Scalar, compose
from yunishard.common.config.validation import load
from yunishard.webservice.config_view import config_json, config_yaml, format_scalar, format_yaml
from yunishard.webservice.views import RequestError

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
"""What the reference answered for the configurations beside it."""

MAIN = {"health.checkInterval": "1s", "log.level": "INFO", "event.ringBufferCapacity": "5000"}
UPDATED = {
    "health.checkInterval": "1s",
    "event.ringBufferCapacity": "100",
    "event.RESTResponseSize": "7",
    "event.maxStreams": "1",
}
NO_EVENTS = {"health.checkInterval": "1s", "event.trackingEnabled": "false"}


def captured(name: str) -> str:
    return (CAPTURES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("queues", "extra", "capture"),
    [
        ("main-queues.yaml", MAIN, "main-config-json.json"),
        ("updated-queues.yaml", UPDATED, "updated-config-json.json"),
        ("", {}, "unregistered-config-json.json"),
    ],
)
def test_json_is_the_reference_s_to_the_byte(queues: str, extra: dict[str, str], capture: str) -> None:
    configuration = load(captured(queues)) if queues else None
    assert config_json(configuration, extra, {}).decode() == captured(capture)


@pytest.mark.parametrize(
    ("queues", "extra", "capture"),
    [
        ("main-queues.yaml", MAIN, "main-config-yaml.yaml"),
        ("updated-queues.yaml", NO_EVENTS, "noevents-config-yaml.yaml"),
        ("", {}, "unregistered-config-yaml.yaml"),
    ],
)
def test_yaml_is_the_reference_s_to_the_byte(queues: str, extra: dict[str, str], capture: str) -> None:
    configuration = load(captured(queues)) if queues else None
    assert config_yaml(configuration, extra, {}).decode() == captured(capture)


def shown(**keys: object) -> tuple[dict[str, object], dict[str, object]]:
    """How a partition with these keys is shown, in JSON and as YAML."""
    partition = PartitionConfig(**{"name": "p", "queues": (QueueConfig(name="root"),), **keys})  # type: ignore[arg-type]
    configuration = Configuration(partitions=(partition,))
    in_json = json.loads(config_json(configuration, {}, {}))
    in_yaml = yaml.safe_load(config_yaml(configuration, {}, {}))
    return in_json["Partitions"][0], in_yaml["partitions"][0]


def test_json_shows_parts_that_are_empty_and_yaml_does_not() -> None:
    in_json, in_yaml = shown()
    queue = {"Name": "root", "Resources": {}, "ChildTemplate": {"Resources": {}}}
    assert in_json == {
        "Name": "p",
        "Queues": [queue],
        "Preemption": {},
        "NodeSortPolicy": {"Type": ""},
        "UserGroupResolver": {},
    }
    assert in_yaml == {"name": "p", "queues": [{"name": "root"}]}


def test_a_refusal_to_preempt_is_a_value() -> None:
    in_json, in_yaml = shown(preemption=PreemptionConfig(enabled=False))
    assert in_json["Preemption"] == {"Enabled": False}
    assert in_yaml["preemption"] == {"enabled": False}


def test_a_part_that_is_shown_has_its_mandatory_keys_though_they_are_empty() -> None:
    rule = PlacementRuleConfig(name="user", filter=FilterConfig(users=("a",)))
    in_json, in_yaml = shown(placement_rules=(rule,), node_sort_policy=NodeSortConfig(resource_weights={"gpu": 2}))
    assert in_json["PlacementRules"] == [{"Name": "user", "Filter": {"Type": "", "Users": ["a"]}}]
    assert in_yaml["placementrules"] == [{"name": "user", "filter": {"type": "", "users": ["a"]}}]
    assert in_yaml["nodesortpolicy"] == {"type": "", "resourceweights": {"gpu": 2}}


def test_resources_that_were_written_empty_are_empty() -> None:
    queue = QueueConfig(name="root", resources=ResourcesConfig(guaranteed={}, max={}))
    in_json, in_yaml = shown(queues=(queue,))
    assert in_json["Queues"] == [{"Name": "root", "Resources": {}, "ChildTemplate": {"Resources": {}}}]
    assert in_yaml["queues"] == [{"name": "root"}]


def test_the_resolver_s_key_is_small_in_both() -> None:
    in_json, in_yaml = shown(user_group_resolver=ResolverConfig(type="os"))
    assert in_json["UserGroupResolver"] == in_yaml["usergroupresolver"] == {"type": "os"}


@pytest.mark.parametrize(("weight", "text"), [(float("nan"), "NaN"), (float("inf"), "+Inf"), (float("-inf"), "-Inf")])
def test_json_has_no_such_number(weight: float, text: str) -> None:
    with pytest.raises(RequestError) as told:
        shown(node_sort_policy=NodeSortConfig(resource_weights={"gpu": weight}))
    assert (told.value.status, told.value.text) == (
        500, f"JSON has no number for the weight {text} of gpu in nodesortpolicy: ask for YAML",
    )  # fmt: skip


def test_what_is_shown_as_yaml_means_the_same_configuration() -> None:
    before = load(captured("main-queues.yaml"))
    text = config_yaml(before, {}, {}).decode()
    after = load(text[: text.index("deadlockdetectionenabled")])
    assert after.partitions == before.partitions


@pytest.mark.parametrize(
    ("environment", "enabled", "timeout_s"),
    [
        ({}, False, 60),
        ({"DEADLOCK_DETECTION_ENABLED": "True", "DEADLOCK_TIMEOUT_SECONDS": "5"}, True, 5),
        ({"DEADLOCK_DETECTION_ENABLED": "yes", "DEADLOCK_TIMEOUT_SECONDS": "5s"}, False, 60),
    ],
)
def test_the_deadlock_keys_come_from_the_environment(
    environment: dict[str, str], enabled: bool, timeout_s: int
) -> None:
    shown = {"DeadlockDetectionEnabled": enabled, "DeadlockTimeoutSeconds": timeout_s}
    assert json.loads(config_json(None, {}, environment)) == shown


def test_lists_stand_right_of_their_key_and_maps_at_every_fourth_column() -> None:
    text = format_yaml({"a": [{"b": {"c": {"d": "x"}}, "e": ["f"]}], "g": 1.5, "h": True, "i": [], "j": {}})
    assert text.splitlines() == [
        "a:",
        "    - b:",
        "        c:",
        "            d: x",
        "      e:",
        "        - f",
        "g: 1.5",
        "h: true",
        "i: []",
        "j: {}",
    ]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("10", '"10"'),
        ("1e3", '"1e3"'),
        ("0o17", '"0o17"'),
        ("-7", '"-7"'),
        (".5", '".5"'),
        ("1:30", '"1:30"'),
        ("2025-01-01", '"2025-01-01"'),
        ("", '""'),
        ("null", '"null"'),
        ("Yes", '"Yes"'),
        ("n", '"n"'),
        ("a\nb", '"a\\nb"'),
        ("a\x85\u2028\U000e0001", '"a\\u0085\\u2028\\U000E0001"'),
        ("*", "'*'"),
        ("it's: so", "'it''s: so'"),
        ("a #b", "'a #b'"),
        ("a ", "'a '"),
        ("- a", "'- a'"),
        ("---", "'---'"),
        ("10G", "10G"),
        ("1h", "1h"),
        ("9E", "9E"),
        ("0B9B", "0B9B"),
        ("0B10", '"0B10"'),
        ("a_b:c#d/e@f-g", "a_b:c#d/e@f-g"),
        ("a:", "'a:'"),
        ("a: b", "'a: b'"),
        ("^vip-.*", "^vip-.*"),
        ("victor,vera vip-gold", "victor,vera vip-gold"),
        ("root.@recovery@", "root.@recovery@"),
    ],
)
def test_a_text_has_quotes_only_where_it_needs_them(text: str, written: str) -> None:
    assert format_scalar(text) == written


@pytest.mark.parametrize(("number", "text"), [(1.0, "1"), (2.5, "2.5"), (math.inf, ".inf"), (-math.inf, "-.inf")])
def test_numbers_are_written_short(number: float, text: str) -> None:
    assert format_yaml({"a": number}) == f"a: {text}\n"


def test_what_is_no_number_is_written_too() -> None:
    assert format_yaml({"a": math.nan}) == "a: .nan\n"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_text_comes_back(text: str) -> None:
    written = format_yaml({"key": text, text + "x": [text]})
    assert yaml.safe_load(written) == {"key": text, text + "x": [text]}
    root = compose(written)
    assert isinstance(root, Mapping)
    value = root.entries[0][1]
    assert isinstance(value, Scalar)
    assert value.text == text
