"""Durations are read as Go reads them."""

import pytest

from yunishard.common.text_formats import UINT_MAX, UnsignedError, format_count, parse_duration, parse_unsigned, quote


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


# What numbers in questions may be, and in which words others are refused ----------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"), [("", None), ("0", 0), ("007", 7), (str(UINT_MAX), UINT_MAX), ("0" * 5000 + "1", 1)]
)
def test_digits_are_a_number_and_no_text_is_none(text: str, number: int | None) -> None:
    assert parse_unsigned(text) == number


@pytest.mark.parametrize("text", ["abc", "-1", "+1", "1.0", " 1", "1_0", "\u0661", "1\n"])
def test_anything_else_is_no_number(text: str) -> None:
    with pytest.raises(UnsignedError, match=r"^strconv\.ParseUint: parsing .*: invalid syntax$"):
        parse_unsigned(text)


@pytest.mark.parametrize("text", [str(UINT_MAX + 1), "9" * 20, "9" * 5000])
def test_what_has_more_than_64_bits_is_out_of_range(text: str) -> None:
    with pytest.raises(UnsignedError) as error:
        parse_unsigned(text)
    assert str(error.value) == f'strconv.ParseUint: parsing "{text}": value out of range'


# Texts of others are shown in quotes, and in one way ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", '""'),
        ("a b'<é>", '"a b\'<é>"'),
        ('"\\', r'"\"\\"'),
        ("\n\r\t\a\b\f\v", r'"\n\r\t\a\b\f\v"'),
        ("\0\x1f\x7f", r'"\x00\x1f\x7f"'),
        ("\u200b\u00a0\ue000\U000e0001", r'"\u200b\u00a0\ue000\U000e0001"'),
        ("😀", '"😀"'),
        (b"z\xc3\xff\xc3\xa9", r'"z\xc3\xffé"'),
    ],
)
def test_a_text_is_shown_in_quotes(text: str | bytes, shown: str) -> None:
    assert quote(text) == shown


@pytest.mark.parametrize(("count", "text"), [(0, "0 RMs"), (1, "1 RM"), (2, "2 RMs")])
def test_one_thing_is_singular(count: int, text: str) -> None:
    assert format_count(count, "RM") == text
