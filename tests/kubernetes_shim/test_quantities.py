import pytest

from yunishard.common.messages.kinds import INT64_MAX
from yunishard.common.resources import QuantityError
from yunishard.kubernetes_shim.quantities import convert_quantities, parse_quantity


@pytest.mark.parametrize(
    ("text", "scale", "amount"),
    [
        ("2", 1, 2),
        (2, 1, 2),
        (1.5, 1, 2),
        ("500m", 1000, 500),
        ("0.5", 1000, 500),
        ("100u", 1000, 1),
        ("1n", 1, 1),
        ("1500m", 1, 2),
        ("1.5Gi", 1, 1610612736),
        ("1k", 1, 1000),
        ("1E", 1, 10**18),
        ("1e3", 1, 1000),
        ("1E-3", 1, 1),
        ("+5", 1, 5),
        ("-1.5", 1, -1),
        (".5", 1, 1),
        ("5.", 1, 5),
        ("1e999", 1, INT64_MAX),
        ("9Ei", 1, INT64_MAX),
    ],
)
def test_a_quantity_is_rounded_up_to_whole_units(text: str | float, scale: int, amount: int) -> None:
    assert parse_quantity(text, scale=scale) == amount


@pytest.mark.parametrize("text", ["", "1x", "1 Gi", "Gi", "1mi", "0x10", "1e", "1e1000", "--1", "1" * 65])
def test_text_that_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="is not a quantity"):
        parse_quantity(text)


def test_amounts_have_the_names_and_units_of_the_core_and_no_zeros() -> None:
    quantities = {"cpu": "1.5", "memory": "1Ki", "nvidia.com/gpu": "2", "ephemeral-storage": "0"}
    amounts = {"vcore": 1500, "memory": 1024, "nvidia.com/gpu": 2}
    assert convert_quantities(quantities) == amounts
    assert convert_quantities(quantities, with_zeros=True) == {**amounts, "ephemeral-storage": 0}


def test_a_wrong_amount_names_its_resource() -> None:
    with pytest.raises(QuantityError, match=r"^memory: 'much' is not a quantity; write 500m, 2 or 1Gi$"):
        convert_quantities({"memory": "much"})
