"""Durations are read as Go reads them."""

import pytest

from common.text_formats import parse_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", 30.0),
        ("1h30m", 5400.0),
        ("1.5s", 1.5),
        (".5s", 0.5),
        ("1.s", 1.0),
        ("500ms", 0.5),
        ("2us", 2e-6),
        ("2µs", 2e-6),
        ("7ns", 7e-9),
        ("+1m", 60.0),
        ("-1m", -60.0),
        ("0", 0.0),
    ],
)
def test_text_to_seconds(text: str, expected: float) -> None:
    assert parse_duration(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "30", "s", "1d", "1 s", "1h-30m", "one second", ".s", "30s ", "--1s"])
def test_what_is_no_duration_is_none(text: str) -> None:
    assert parse_duration(text) is None
