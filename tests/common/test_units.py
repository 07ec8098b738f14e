"""The formats that operators read."""

import doctest

import pytest

from yunishard.common import text_formats


def test_the_examples_are_right() -> None:
    assert doctest.testmod(text_formats).failed == 0


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("vcore", 40_000, "40 vcore"),
        ("vcore", 1, "0.001 vcore"),
        ("vcore", 10, "0.01 vcore"),
        ("memory", 0, "0 B"),
        ("memory", 13_421_772_800, "12.5 GiB"),
        ("memory", -(2 << 30), "-2 GiB"),
        ("hugepages-2Mi", 4 << 20, "4 MiB hugepages-2Mi"),
        ("nvidia.com/gpu", 12_000, "12,000 nvidia.com/gpu"),
    ],
)
def test_an_amount_has_the_unit_of_its_type(kind: str, value: int, text: str) -> None:
    assert text_formats.format_amount(kind, value) == text


def test_cores_and_memory_come_first() -> None:
    assert text_formats.list_kinds({"gpu": 1, "memory": 1}, None, {"vcore": 1, "a": 1}) == [
        "vcore",
        "memory",
        "a",
        "gpu",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (60, "1 min"), (3600, "1 h"), (3601, "1 h"), (86399, "23 h 59 min")]
)
def test_a_duration_has_at_most_two_units(seconds: int, text: str) -> None:
    assert text_formats.format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-5, "just now"), (1, "1 s ago"), (59, "59 s ago"), (7200, "2 h ago"), (200_000, "2 d ago")]
)
def test_an_age_has_one_unit(seconds: int, text: str) -> None:
    now_ns = 1_700_000_000 * 10**9
    assert text_formats.format_ago(now_ns - seconds * 10**9, now_ns) == text


def test_a_time_is_in_utc() -> None:
    assert text_formats.format_time(1_700_000_000 * 10**9) == "2023-11-14T22:13:20Z"
    assert text_formats.format_time(None) == "-"
