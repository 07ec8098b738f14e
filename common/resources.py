"""Arithmetic on resources, written once.

Amounts are plain dicts from resource type to integer, because they are made and compared for every decision. Their
meaning lies in the type that the signature names: in `Resources` a missing type is 0, in a `Limit` it is unlimited.
Sums do not wrap or saturate while they are calculated with; `saturate` cuts them to 64 bits where they leave the
core.

Not here: quantities as text (`quantity.py`), what a queue may still use (`engine/queues/headroom.py`).
"""

import re
from collections.abc import Iterable
from typing import Final

from common.messages import INT64_MAX, INT64_MIN, Resources
from common.names import WHITE_SPACE

Limit = dict[str, int]
"""Resource type to the most that is allowed; a missing type is unlimited."""

NOTHING: Final[Resources] = {}


def plus(left: Resources, right: Resources) -> Resources:
    """The sum, over the types of both."""
    total = dict(left)
    for kind, amount in right.items():
        total[kind] = total.get(kind, 0) + amount
    return total


def minus(left: Resources, right: Resources) -> Resources:
    """The difference, over the types of both; may be negative."""
    total = dict(left)
    for kind, amount in right.items():
        total[kind] = total.get(kind, 0) - amount
    return total


def add_to(total: Resources, amount: Resources) -> None:
    """Add in place."""
    for kind, value in amount.items():
        total[kind] = total.get(kind, 0) + value


def take_from(total: Resources, amount: Resources) -> None:
    """Subtract in place; may leave negatives and zeros."""
    for kind, value in amount.items():
        total[kind] = total.get(kind, 0) - value


def total_of(amounts: Iterable[Resources]) -> Resources:
    """The sum of many."""
    total: Resources = {}
    for amount in amounts:
        add_to(total, amount)
    return total


def fits(room: Resources, amount: Resources) -> bool:
    """Whether every type of the amount is covered; a type without room takes only 0, negative room counts as 0."""
    return all(value <= 0 or value <= room.get(kind, 0) for kind, value in amount.items())


def admits(limit: Limit, amount: Resources) -> bool:
    """As `fits`, but a type that the limit does not name is unlimited."""
    return all(value <= 0 or value <= limit.get(kind, value) for kind, value in amount.items())


def less(limit: Limit, used: Resources) -> Limit:
    """What a limit leaves over a usage; only the types of the limit, may be negative."""
    return {kind: most - used.get(kind, 0) for kind, most in limit.items()}


def tighten(left: Limit | None, right: Limit | None) -> Limit | None:
    """Both limits at once: per type the smaller, where only one names a type that one. None is no limit at all."""
    if left is None or right is None:
        return right if left is None else left
    both = dict(left)
    for kind, most in right.items():
        both[kind] = min(most, both.get(kind, most))
    return both


def drop_zeros(amount: Resources) -> Resources:
    """Without the types that are 0."""
    return {kind: value for kind, value in amount.items() if value}


def is_positive(amount: Resources) -> bool:
    """No negative value, and at least one positive."""
    values = amount.values()
    return any(values) and min(values) >= 0


def is_zero(amount: Resources) -> bool:
    """Nothing at all: no types, or all of them 0."""
    return not any(amount.values())


def equal(left: Resources, right: Resources) -> bool:
    """The same amounts, where a missing type is 0."""
    return drop_zeros(left) == drop_zeros(right)


def peak(left: Resources, right: Resources) -> Resources:
    """Per type the larger."""
    return {kind: max(left.get(kind, 0), right.get(kind, 0)) for kind in {**left, **right}}


def saturate(amount: Resources) -> Resources:
    """Cut to the signed 64 bits that the scheduler interface and the REST API carry."""
    values = amount.values()
    if not values or (min(values) >= INT64_MIN and max(values) <= INT64_MAX):
        return dict(amount)
    return {kind: max(INT64_MIN, min(INT64_MAX, value)) for kind, value in amount.items()}


def text(amount: Resources) -> str:
    """As the messages print it that YuniKorn has word for word (recorded in `tests/captures` and `tests/data`):
    `map[memory:1000 vcore:1]`, types in order. For messages of our own see `describe_amount`.
    """
    return f"map[{' '.join(f'{kind}:{amount[kind]}' for kind in sorted(amount))}]"


def describe_amount(amount: Resources) -> str:
    """As our own messages print it, types in order.

    >>> described({"vcore": 1, "memory": 1000}), describe_amount({})
    ('memory=1000 vcore=1', 'nothing')
    """
    return " ".join(f"{kind}={amount[kind]}" for kind in sorted(amount)) or "nothing"


# Quantities as text ---------------------------------------------------------------------------------------------------

QUANTITY_MAX: Final = 2**63 - 1  # amounts travel as signed 64 bit integers
CORES: Final = "vcore"  # the one type that is counted in thousandths and may be written with `m`

_PATTERN: Final = re.compile(r"([0-9]+)[\t\n\f\r ]*([mkKMGTPE]i?)?")
_DIGITS_MAX: Final = len(str(QUANTITY_MAX))
_MULTIPLIERS: Final[dict[str, int]] = {
    "": 1,
    **{letter: 1000**power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)},
}


class QuantityError(ValueError):
    """The text is no quantity; its text is the short reason, without the offending quantity."""


def parse_quantity(text: str, *, resource_type: str) -> int:
    """Return the amount that `text` stands for: thousandths for `vcore`, else units of the type; never negative.

    Raises QuantityError with `invalid quantity`, `invalid suffix` or `invalid quantity: overflow`.
    """
    match = _PATTERN.fullmatch(text.strip(WHITE_SPACE))
    if match is None:
        raise QuantityError("invalid quantity")
    digits, suffix = match.group(1).lstrip("0") or "0", match.group(2) or ""
    # Measured before it is converted: Python refuses, in its own words, to convert thousands of digits.
    if len(digits) > _DIGITS_MAX or int(digits) > QUANTITY_MAX:
        raise QuantityError("invalid quantity: overflow")
    amount = int(digits) * _multiplier(suffix, resource_type=resource_type)
    if amount > QUANTITY_MAX:
        raise QuantityError("invalid quantity: overflow")
    return amount


def _multiplier(suffix: str, *, resource_type: str) -> int:
    if suffix == "m" and resource_type == CORES:
        return 1
    if suffix not in _MULTIPLIERS:
        raise QuantityError("invalid suffix")
    return _MULTIPLIERS[suffix] * (1000 if resource_type == CORES else 1)
