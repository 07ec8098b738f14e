""""""

import random

import pytest

from yunishard.common.messages.kinds import INT64_MAX, INT64_MIN, Resources
from yunishard.common.resources import (
    NOTHING,
    QuantityError,
    add_to,
    describe_amount,
    drop_zeros,
    equal,
    fits,
    is_positive,
    is_zero,
    less,
    minus,
    parse_quantity,
    permits,
    plus,
    saturate,
    take_from,
    text,
    tighten,
    total_of,
)


def test_a_missing_type_is_nothing_in_a_sum() -> None:
    assert plus({"vcore": 1}, {"vcore": 2, "memory": 3}) == {"vcore": 3, "memory": 3}
    assert minus({"vcore": 1}, {"vcore": 2, "memory": 3}) == {"vcore": -1, "memory": -3}
    assert plus(NOTHING, {}) == {}


def test_sums_leave_their_operands_alone() -> None:
    left, right = {"vcore": 1}, {"vcore": 2}
    plus(left, right)
    minus(left, right)
    assert (left, right) == ({"vcore": 1}, {"vcore": 2})


def test_a_total_can_be_kept_in_place() -> None:
    total = {"vcore": 1}
    add_to(total, {"vcore": 2, "gpu": 1})
    take_from(total, {"gpu": 2})
    assert total == {"vcore": 3, "gpu": -1}
    assert total_of([{"a": 1}, {"b": 2}, {"a": 3}]) == {"a": 4, "b": 2}
    assert total_of([]) == {}


@pytest.mark.parametrize(
    ("room", "amount", "answer"),
    [
        ({}, {}, True),
        ({}, {"vcore": 0}, True),
        ({}, {"vcore": 1}, False),
        ({"vcore": 5}, {"vcore": 5}, True),
        ({"vcore": 5}, {"vcore": 6}, False),
        ({"vcore": 5}, {"vcore": 5, "gpu": 1}, False),
        ({"vcore": -1}, {"vcore": 0}, True),
        ({"vcore": -1}, {"memory": 0}, True),
        ({"vcore": 1}, {"memory": -1}, True),
    ],
)
def test_what_fits(room: Resources, amount: Resources, answer: bool) -> None:
    assert fits(room, amount) is answer


@pytest.mark.parametrize(
    ("limit", "amount", "answer"),
    [
        ({}, {"vcore": 10**30}, True),
        ({"vcore": 0}, {"vcore": 1}, False),
        ({"vcore": 0}, {"vcore": 0, "memory": 5}, True),
        ({"vcore": -1}, {"vcore": 0}, True),
        ({"vcore": 3}, {"vcore": 3}, True),
    ],
)
def test_a_limit_admits_every_amount_of_a_type_that_it_does_not_name(
    limit: Resources, amount: Resources, answer: bool
) -> None:
    assert permits(limit, amount) is answer


def test_what_a_limit_leaves_has_only_its_own_types_and_may_be_negative() -> None:
    assert less({"vcore": 5, "gpu": 1}, {"vcore": 7, "memory": 3}) == {"vcore": -2, "gpu": 1}


def test_two_limits_at_once_are_the_smaller_of_each_type() -> None:
    assert tighten({"a": 1, "b": 5}, {"b": 2, "c": 3}) == {"a": 1, "b": 2, "c": 3}
    assert tighten(None, {"a": 1}) == {"a": 1}
    assert tighten({"a": 1}, None) == {"a": 1}
    assert tighten(None, None) is None


def test_types_of_which_there_is_nothing_do_not_count() -> None:
    assert drop_zeros({"a": 0, "b": 1}) == {"b": 1}
    assert equal({"a": 0, "b": 1}, {"b": 1, "c": 0})
    assert not equal({"a": 1}, {"b": 1})
    assert is_zero({})
    assert is_zero({"a": 0})
    assert not is_zero({"a": -1})


@pytest.mark.parametrize(
    ("amount", "answer"), [({}, False), ({"a": 0}, False), ({"a": 1, "b": 0}, True), ({"a": 1, "b": -1}, False)]
)
def test_a_positive_amount_has_something_and_lacks_nothing(amount: Resources, answer: bool) -> None:
    assert is_positive(amount) is answer


def test_nothing_wraps_and_what_leaves_the_core_is_cut_to_64_bits() -> None:
    much = plus({"vcore": INT64_MAX}, {"vcore": INT64_MAX})
    assert much == {"vcore": 2 * INT64_MAX}
    assert saturate(much) == {"vcore": INT64_MAX}
    assert saturate({"a": INT64_MIN - 1, "b": 5}) == {"a": INT64_MIN, "b": 5}


def test_people_read_types_in_order() -> None:
    assert text({"vcore": 1, "memory": 1000}) == "map[memory:1000 vcore:1]"
    assert text({}) == "map[]"


def test_our_own_messages_show_amounts_as_pairs() -> None:
    assert describe_amount({"vcore": 1, "memory": 1000}) == "memory=1000 vcore=1"
    assert describe_amount({}) == "nothing"


def test_adding_and_taking_away_again_changes_nothing() -> None:
    rng = random.Random(1)
    for _ in range(100):
        left, right = ({kind: rng.randint(-9, 9) for kind in rng.sample("abcd", 3)} for _ in range(2))
        assert equal(minus(plus(left, right), right), left)


# Quantity text to numbers ---------------------------------------------------------------------------------------------


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
        (str(INT64_MAX), INT64_MAX),
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
        (f"{INT64_MAX}m", INT64_MAX),
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
        ("memory", str(INT64_MAX + 1)),
        ("memory", "8Ei"),
        ("memory", "10E"),
        ("vcore", "9223372036854776"),
        ("memory", "9" * 10_000),
        ("memory", f"{INT64_MAX + 1}K"),
    ],
)
def test_what_does_not_fit_64_bits_is_refused(kind: str, text: str) -> None:
    with pytest.raises(QuantityError, match=r"^invalid quantity: overflow$"):
        parse_quantity(text, resource_type=kind)
