"""What numbers in questions may be, and in which words others are refused."""

import pytest

from common.text_formats import UINT_MAX, UnsignedError, parse_unsigned


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
