"""Quantity text to numbers."""

import pytest

from common.resources import QUANTITY_MAX, QuantityError, parse_quantity


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("12", 12),
        ("000012", 12),
        ("5k", 5_000),
        ("5M", 5_000_000),
        ("9E", 9 * 10**18),
        ("1Ki", 1024),
        ("10 \t Gi", 10 * 1024**3),
        (" 10Gi\n", 10 * 1024**3),
        ("7Ei", 7 * 1024**6),
        (str(QUANTITY_MAX), QUANTITY_MAX),
    ],
)
def test_a_number_counts_its_unit(text: str, amount: int) -> None:
    assert parse_quantity(text, resource_type="memory") == amount


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [
        ("1", 1000),
        ("500m", 500),
        ("2k", 2_000_000),
        ("9223372036854775", 9223372036854775000),
        (f"{QUANTITY_MAX}m", QUANTITY_MAX),
    ],
)
def test_cores_are_counted_in_thousandths(text: str, thousandths: int) -> None:
    assert parse_quantity(text, resource_type="vcore") == thousandths


@pytest.mark.parametrize(
    "text", ["", " ", "-1", "+1", "1.5", "1e3", "0x10", "10GB", "big", "\N{ARABIC-INDIC DIGIT ONE}", "1 2", "5\vM"]
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match=r"^invalid quantity$"):
        parse_quantity(text, resource_type="memory")


@pytest.mark.parametrize(
    ("kind", "text"), [("memory", "5K"), ("memory", "5m"), ("cpu", "5m"), ("vcore", "5mi"), ("vcore", "1ki")]
)
def test_a_suffix_that_its_type_does_not_know_is_refused(kind: str, text: str) -> None:
    with pytest.raises(QuantityError, match=r"^invalid suffix$"):
        parse_quantity(text, resource_type=kind)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("memory", str(QUANTITY_MAX + 1)),
        ("memory", "8Ei"),
        ("memory", "10E"),
        ("vcore", "9223372036854776"),
        ("memory", "9" * 10_000),
        ("memory", f"{QUANTITY_MAX + 1}K"),
    ],
)
def test_what_does_not_fit_64_bits_is_refused(kind: str, text: str) -> None:
    with pytest.raises(QuantityError, match=r"^invalid quantity: overflow$"):
        parse_quantity(text, resource_type=kind)
