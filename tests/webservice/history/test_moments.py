"""Times as people write them."""

import pytest

from webservice.history.moments import moment_ns

S = 10**9
NOW = 1_800_000_000 * S


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1800000000", NOW),
        ("1800000000.5", NOW + S // 2),
        ("0", 0),
        ("2027-01-15T08:00:00Z", NOW),
        ("2027-01-15t08:00:00.25z", NOW + S // 4),
        ("2027-01-15T09:00:00+01:00", NOW),
        ("2027-01-15T09:00:00 01:00", NOW),
        ("2027-01-15 07:00:00-01:00", NOW),
        ("-24h", NOW - 86400 * S),
        ("-1h30m", NOW - 5400 * S),
        ("-999999h", 0),
        ("9999-12-31T23:59:59Z", 2**63 - 1),
        ("999999999999", 2**63 - 1),
    ],
)
def test_a_moment_can_be_said_in_several_ways(text: str, expected: int) -> None:
    assert moment_ns(text, NOW) == expected


@pytest.mark.parametrize(
    "text", ["", "24h", "yesterday", "2027-01-15", "2027-01-15T08:00:00", "2027-13-15T08:00:00Z", "-", "-x", "1e9"]
)
def test_what_is_no_moment_or_may_be_several_is_none(text: str) -> None:
    assert moment_ns(text, NOW) is None
