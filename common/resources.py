"""Arithmetic on resources, and quantities as text, such as `500m` or `4Gi`.

Amounts are plain dicts from resource type to integer, because they are made and compared for every decision. The type
in a signature gives the meaning of a missing key: 0 in `Resources`, unlimited in a `Limit`. Sums do not wrap or
saturate; `saturate` limits them to 64 bits where they leave the core.

Not here: what a queue may still use (`engine/queues/queue.py`).
"""

import re
from collections.abc import Iterable
from functools import lru_cache, reduce
from typing import Final

from yunishard.common.messages.kinds import INT64_MAX, INT64_MIN, Resources
from yunishard.common.names import WHITE_SPACE

Limit = dict[str, int]
"""Resource type to its maximum; a missing type is unlimited."""

NOTHING: Final[Resources] = {}


def plus(left: Resources, right: Resources) -> Resources:
    """Return the sum, over the types of both."""
    total = dict(left)
    for kind, amount in right.items():
        total[kind] = total.get(kind, 0) + amount
    return total


def minus(left: Resources, right: Resources) -> Resources:
    """Return the difference, over the types of both; may be negative."""
    total = dict(left)
    for kind, amount in right.items():
        total[kind] = total.get(kind, 0) - amount
    return total


TYPES_MAX: Final = 100
"""Types of a sum, beyond which those that are 0 are removed. RMs choose the names of types."""


def add_to(total: Resources, amount: Resources) -> None:
    """Add in place."""
    for kind, value in amount.items():
        total[kind] = total.get(kind, 0) + value


def take_from(total: Resources, amount: Resources) -> None:
    """Subtract in place; may leave negatives and zeros."""
    for kind, value in amount.items():
        total[kind] = total.get(kind, 0) - value
    if len(total) > TYPES_MAX:
        prune(total)


def prune(total: Resources) -> None:
    """Remove the types that are 0, in place."""
    for kind in [kind for kind, value in total.items() if not value]:
        del total[kind]


def total_of(amounts: Iterable[Resources]) -> Resources:
    """Return the sum of all amounts."""
    total: Resources = {}
    for amount in amounts:
        add_to(total, amount)
    return total


def fits(room: Resources, amount: Resources) -> bool:
    """Whether there is room for every type of the amount. A missing type and negative room count as 0."""
    return all(value <= 0 or value <= room.get(kind, 0) for kind, value in amount.items())


def covers(amount: Resources, wanted: Resources) -> bool:
    """Whether there is at least as much of every type, and a negative amount of none. A missing type counts as 0."""
    return all(value >= 0 for value in minus(amount, wanted).values())


def permits(limit: Limit, amount: Resources) -> bool:
    """Whether the amount is within the limit."""
    return all(value <= 0 or value <= limit.get(kind, value) for kind, value in amount.items())


def less(limit: Limit, used: Resources) -> Limit:
    """Return what a limit leaves above a usage: only the types of the limit, may be negative."""
    return {kind: most - used.get(kind, 0) for kind, most in limit.items()}


def tighten(left: Limit | None, right: Limit | None) -> Limit | None:
    """Combine two limits: the smaller one for each type. None is no limit."""
    if left is None or right is None:
        return right if left is None else left
    both = dict(left)
    for kind, most in right.items():
        both[kind] = min(most, both.get(kind, most))
    return both


def tightest(limits: Iterable[Limit | None]) -> Limit | None:
    """Combine limits: the smallest one for each type. None is no limit."""
    return reduce(tighten, limits, None)


def drop_zeros(amount: Resources) -> Resources:
    """Return the amount without the types that are 0."""
    return {kind: value for kind, value in amount.items() if value}


def is_positive(amount: Resources) -> bool:
    """Whether there is no negative value, and at least one positive one."""
    values = amount.values()
    return any(values) and min(values) >= 0


def is_zero(amount: Resources) -> bool:
    """Whether all types are 0, or there are none."""
    return not any(amount.values())


def equal(left: Resources, right: Resources) -> bool:
    """Whether both are the same amount; a missing type is 0."""
    return drop_zeros(left) == drop_zeros(right)


def saturate(amount: Resources) -> Resources:
    """Limit each type to the signed 64 bits of the scheduler interface and the REST API."""
    values = amount.values()
    if not values or (min(values) >= INT64_MIN and max(values) <= INT64_MAX):
        return dict(amount)
    return {kind: max(INT64_MIN, min(INT64_MAX, value)) for kind, value in amount.items()}


def text(amount: Resources) -> str:
    """Format for messages that YuniKorn has word for word: `map[memory:1000 vcore:1]`, types in order."""
    return f"map[{' '.join(f'{kind}:{amount[kind]}' for kind in sorted(amount))}]"


def describe_amount(amount: Resources) -> str:
    """Format for messages of our own, types in order.

    >>> describe_amount({"vcore": 1, "memory": 1000}), describe_amount({})
    ('memory=1000 vcore=1', 'nothing')
    """
    return " ".join(f"{kind}={amount[kind]}" for kind in sorted(amount)) or "nothing"


# Sums in MessagePack --------------------------------------------------------------------------------------------------

EncodedSum = dict[str, int | str]
"""Summed amounts; those beyond 64 bits are text, because MessagePack has no larger integers."""


def encode_sum(amounts: Resources) -> EncodedSum:
    """Encode summed amounts; the result must not be changed."""
    for n in amounts.values():
        if not INT64_MIN <= n <= INT64_MAX:
            return {kind: n if INT64_MIN <= n <= INT64_MAX else str(n) for kind, n in amounts.items()}
    return amounts  # type: ignore[return-value]  # an invariant type, of which nothing is written


def decode_sum(encoded: EncodedSum) -> Resources:
    """Decode summed amounts."""
    return {kind: int(n) for kind, n in encoded.items()}


# Quantities as text ---------------------------------------------------------------------------------------------------

CORES: Final = "vcore"
"""The type that is counted in thousandths, and that may be written with `m`."""

_QUANTITIES_CACHED: Final = 4096  # thousands of queues have the same few quantities
_PATTERN: Final = re.compile(r"([0-9]+)[\t\n\f\r ]*([mkKMGTPE]i?)?")
_DIGITS_MAX: Final = len(str(INT64_MAX))  # Python refuses to convert texts of thousands of digits
_MULTIPLIERS: Final[dict[str, int]] = {
    "": 1,
    **{letter: 1000**power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)},
}


class QuantityError(ValueError):
    """The text is not a quantity; its message is the reason, without the text."""


@lru_cache(_QUANTITIES_CACHED)
def parse_quantity(text: str, *, resource_type: str) -> int:
    """Return the amount in base units: thousandths for `vcore`, else units of the type; never negative.

    Raises:
        QuantityError: `invalid quantity`, `invalid suffix` or `invalid quantity: overflow`.
    """
    match = _PATTERN.fullmatch(text.strip(WHITE_SPACE))
    if match is None:
        raise QuantityError("invalid quantity")
    digits, suffix = match.group(1).lstrip("0") or "0", match.group(2) or ""
    if len(digits) > _DIGITS_MAX or int(digits) > INT64_MAX:
        raise QuantityError("invalid quantity: overflow")
    if suffix == "m" and resource_type == CORES:
        return int(digits)
    if suffix not in _MULTIPLIERS:
        raise QuantityError("invalid suffix")
    amount = int(digits) * _MULTIPLIERS[suffix] * (1000 if resource_type == CORES else 1)
    if amount > INT64_MAX:
        raise QuantityError("invalid quantity: overflow")
    return amount
