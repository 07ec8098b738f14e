"""A change can be made to depend on the version in force, and an answer on the version that is known."""

import pytest

from webservice.conditions import entity_tag, expected_checksum, is_known
from webservice.errors import RequestError

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
    assert is_known(header, SUM) is known
