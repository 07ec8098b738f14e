"""Names, states, pages, conditions and times in requests."""

import pytest

from yunishard.webservice.parameters import (
    LOG_LENGTH_MAX,
    active_status,
    application_state,
    decode_segment,
    entity_tag,
    escape_for_log,
    expected_checksum,
    has_bad_escape,
    is_known,
    moment_ns,
    parse_query,
    queue_path,
)
from yunishard.webservice.views import RequestError


@pytest.mark.parametrize(("text", "bad"), [("a%20b", False), ("a%zzb", True), ("a%", True), ("%4", True), ("", False)])
def test_a_path_with_a_broken_escape_is_detected(text: str, *, bad: bool) -> None:
    assert has_bad_escape(text) is bad


@pytest.mark.parametrize(
    ("text", "escape"),
    [
        ("a%zzz", "%zz"),
        ("a%", "%"),
        ("%4", "%4"),
        ('%"x', '%\\"x'),
        ("%\0\1", r"%\x00\x01"),
        ("%zé", r"%z\xc3"),
        ("%é", "%é"),
    ],
)
def test_a_broken_escape_is_shown(text: str, escape: str) -> None:
    with pytest.raises(RequestError) as refused:
        decode_segment(text)
    assert (refused.value.status, refused.value.text) == (400, f'invalid URL escape "{escape}"')


def test_plus_is_a_blank_and_escapes_are_utf_8() -> None:
    assert decode_segment("a+b%2Bc%C3%A9") == "a b+cé"


@pytest.mark.parametrize("text", ["", "root.", "root.a b", "root." + "a" * 65, "root.é", "root.a\n"])
def test_a_queue_path_of_something_else_than_names_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="invalid queue name"):
        queue_path(text)


def test_a_queue_path_is_lower_case() -> None:
    assert queue_path("Root.A#b@c:d-e_f/g." + "Z" * 64) == "root.a#b@c:d-e_f/g." + "z" * 64


def test_states_and_statuses_are_words_in_any_case() -> None:
    assert application_state("Completed", ("active", "completed")) == "completed"
    assert active_status("RESUMING") == "resuming"
    assert active_status("Starting") == "starting"
    assert active_status("") == ""


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", {}),
        ("a=b+c%26&d", {"a": "b c&", "d": ""}),
        ("a=1&a=2&=x", {"a": "1", "": "x"}),
        ("a=b=c&&%61=2", {"a": "b=c"}),
        ("a=%zz&b=1;c=2&%=3&d=4", {"d": "4"}),
        ("a=%zz&a=1", {"a": "1"}),
    ],
)
def test_a_query_is_read_as_far_as_it_can_be_decoded(query: str, found: dict[str, str]) -> None:
    assert parse_query(query) == found


SUM = "0123456789ABCDEF" * 4


@pytest.mark.parametrize("header", [None, "*", " * "])
def test_without_a_condition_any_version_will_do(header: str | None) -> None:
    assert expected_checksum(header) == ""


@pytest.mark.parametrize("header", [entity_tag(SUM), SUM, f"  {SUM} ", SUM.lower()])
def test_a_checksum_is_a_condition_with_quotes_or_without(header: str) -> None:
    assert expected_checksum(header) == SUM


@pytest.mark.parametrize(
    "header", ["", '""', '"', "abc", f'W/"{SUM}"', f'"{SUM}", "{SUM}"', f'"{SUM}', f"{SUM}0", '"*"']
)
def test_a_condition_that_cannot_be_understood_is_never_any(header: str) -> None:
    with pytest.raises(RequestError, match="must be one checksum of 64 hexadecimal digits") as told:
        expected_checksum(header)
    assert told.value.status == 400


@pytest.mark.parametrize(
    ("header", "known"),
    [
        (None, False),
        ("", False),
        ("*", True),
        (entity_tag(SUM), True),
        (f'"x", W/"{SUM}"', True),
        ('"x"', False),
        (SUM[:-1], False),
    ],
)
def test_who_has_the_version_need_not_get_it_again(header: str | None, known: bool) -> None:
    assert is_known(header, entity_tag(SUM)) is known


@pytest.mark.parametrize(
    ("text", "query", "shown"),
    [
        (b"/ws/v1/config", b"", "/ws/v1/config"),
        (b"/a", b"b=c&d", "/a?b=c&d"),
        (b"/a%0Ab", b"", "/a%0Ab"),
        (b"/a\nb\x1b[2J\xff", b"", "/a\\nb\\x1b[2J\\xff"),
        ("10.0.0.7, \u202eevil", b"", "10.0.0.7, \\u202eevil"),
    ],
)
def test_it_is_one_line_of_ascii(text: bytes | str, query: bytes, shown: str) -> None:
    assert escape_for_log(text, query) == shown


def test_only_so_much_of_it_is_kept() -> None:
    assert escape_for_log(b"x" * 9999) == "x" * LOG_LENGTH_MAX


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
def test_a_time_can_be_written_in_several_ways(text: str, expected: int) -> None:
    assert moment_ns(text, NOW) == expected


@pytest.mark.parametrize(
    "text", ["", "24h", "yesterday", "2027-01-15", "2027-01-15T08:00:00", "2027-13-15T08:00:00Z", "-", "-x", "1e9"]
)
def test_what_is_no_moment_or_may_be_several_is_none(text: str) -> None:
    assert moment_ns(text, NOW) is None
