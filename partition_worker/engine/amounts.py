"""Amounts inside the engine: the amounts of an ask as a value, and sums as lists by the number of the resource type.

The sums of queues, applications, nodes and users change with every decision. As dictionaries they took most of its
time, so each resource type has a number, and a sum is a list with the amount of each type at its number. Names appear
where amounts enter or leave the engine: in messages, records, limits and views.

A type gets its number when it first appears in this process. A list is only as long as the largest number that was
added to it needs, so a new type changes nothing that exists; what is missing at the end is 0. Numbers differ between
processes: a decision that depended on their order would come out differently after a recovery. So whatever has to
choose between types goes by their names, as `Amounts.items` does.
"""

from collections.abc import Iterator
from typing import Final

from yunishard.common.messages.kinds import Resources
from yunishard.common.resources import Limit

TYPES_MAX: Final = 1_000
"""Resource types of a process. Asks and nodes that name another one are refused, as RMs choose the names."""

KNOWN_MAX: Final = 4096
"""Different amounts that are shared between asks; beyond it, sharing starts again."""

UNLIMITED: Final = -1
"""In a list of maximums: the type has none. A maximum is never negative."""

Sum = list[int]
"""Amounts by the number of the resource type; a missing one is 0."""

_NAMES: Final[list[str]] = []
"""The resource types by number."""

_NUMBERS: Final[dict[str, int]] = {}

_KNOWN: Final[dict[tuple[tuple[str, int], ...], "Amounts"]] = {}
"""Amounts by their pairs in the order of the RM."""


def number_of(kind: str) -> int:
    """Return the number of a resource type, which gets one if it has none."""
    number = _NUMBERS.get(kind, -1)
    if number < 0:
        number = _NUMBERS[kind] = len(_NAMES)
        _NAMES.append(kind)
    return number


def find_types_objection(resources: Resources) -> str:
    """Why an object with these resources is refused; empty if it is not."""
    if len(_NAMES) + len(resources) > TYPES_MAX:
        new = [kind for kind in resources if kind not in _NUMBERS]
        if new and len(_NAMES) + len(new) > TYPES_MAX:
            return (
                f"the resource type {new[0][:32]!r} would be one too many: {TYPES_MAX} are known, and no more are taken"
            )
    return ""


class Amounts:
    """Amounts as a value, such as those of an ask. Never changed."""

    __slots__ = ("_hash", "is_negative", "is_zero", "items", "pairs", "resources", "shape", "types", "width")

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        """By name, in the order of the RM."""
        self.items: tuple[tuple[str, int], ...] = tuple(sorted(resources.items()))
        """By name, sorted."""
        self.pairs: list[tuple[int, int]] = [(number_of(kind), value) for kind, value in self.items if value]
        """The amounts other than 0, each after the number of its type."""
        self.width: int = max([number for number, _ in self.pairs], default=-1) + 1
        """The length that a sum needs at least to have them added."""
        self.types: int = 0
        """The numbers of the types of which there is something, as bits."""
        for number, _ in self.pairs:
            self.types |= 1 << number
        self.is_zero: bool = not self.pairs
        self.is_negative: bool = any(value < 0 for _, value in self.items)
        """Whether any of them is."""
        self.shape: object = None
        """The ask shape with these amounts and no other requirements, once there is one (`allocation.make_shape`)."""
        self._hash: int = hash(self.items)

    def name(self, position: int) -> tuple[str, int]:
        """Return one of the pairs with the name of its type."""
        number, value = self.pairs[position]
        return _NAMES[number], value

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self.items)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Amounts) and self.items == other.items)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Amounts({self.resources})"


def amounts_of(resources: Resources) -> Amounts:
    """Return the amounts as a value, shared between equal asks."""
    key = tuple(resources.items())
    amounts = _KNOWN.get(key)
    if amounts is None:
        if len(_KNOWN) >= KNOWN_MAX:
            _KNOWN.clear()
        amounts = _KNOWN[key] = Amounts(dict(resources))
    return amounts


def add(total: Sum, amounts: Amounts) -> None:
    """Add in place."""
    # As `total[number] += value`, mypyc makes it an operation of objects, which takes three times as long.
    if len(total) < amounts.width:
        widen(total, amounts.width)
    for number, value in amounts.pairs:
        total[number] = total[number] + value


def subtract(total: Sum, amounts: Amounts) -> None:
    """Subtract in place."""
    if len(total) < amounts.width:
        widen(total, amounts.width)
    for number, value in amounts.pairs:
        total[number] = total[number] - value


def take(total: Sum, amounts: Amounts, owner: str) -> None:
    """Subtract in place from the sum of an owner, of which something must not become negative."""
    assert len(total) >= amounts.width, (owner, name_types(total), amounts)
    for number, value in amounts.pairs:
        left = total[number] - value
        assert left >= 0, (owner, name_types(total), amounts)
        total[number] = left


def raise_all(highest: Sum, total: Sum) -> None:
    """Raise maximums in place to a sum, where that is larger and positive."""
    if len(highest) < len(total):
        widen(highest, len(total))
    for number, value in enumerate(total):
        if value > highest[number]:
            highest[number] = value


def any_of(total: Sum) -> bool:
    """Whether a sum is other than 0 for any type."""
    for value in total:  # noqa: SIM110 - compiled, a loop takes a fraction of `any`
        if value:
            return True
    return False


def subtract_sum(total: Sum, other: Sum) -> None:
    """Subtract a sum in place."""
    if len(total) < len(other):
        widen(total, len(other))
    for number, value in enumerate(other):
        total[number] = total[number] - value


def widen(total: Sum, width: int) -> None:
    """Make a sum long enough for types of higher numbers."""
    total += [0] * (width - len(total))


def fits(room: Sum, amounts: Amounts) -> bool:
    """Whether there is room for every type of the amounts, none of which is negative."""
    width = len(room)
    for number, value in amounts.pairs:  # noqa: SIM110 - for each node that is tried; a generator would double it
        if number >= width or room[number] < value:
            return False
    return True


def find_excess(total: Sum, amounts: Amounts, maximums: Sum) -> int:
    """Return which of the pairs of some amounts would exceed a maximum if they were added to a sum, the first by name;
    -1 if all are allowed. If too much is used already, a maximum still allows nothing.

    All attempts, and all that explains them, compare in this way; on nodes a type that is missing is 0 instead.
    """
    width, length = len(maximums), len(total)
    for position, (number, value) in enumerate(amounts.pairs):
        if number < width:
            most = maximums[number]
            used = total[number] if number < length else 0
            if most >= 0 and used + value > most and value > 0:
                return position
    return -1


def sum_of(resources: Resources) -> Sum:
    """Return amounts by name as a sum."""
    total: Sum = []
    add(total, Amounts(resources))
    return total


def limit_list(limit: Limit) -> Sum:
    """Return maximums by name as a list."""
    found = [UNLIMITED] * max([number_of(kind) + 1 for kind in limit], default=0)
    for kind, most in limit.items():
        found[number_of(kind)] = most
    return found


def name_types(total: Sum, types: int = 0) -> Resources:
    """Return a sum by name, without the types that are 0, except these."""
    return {_NAMES[number]: value for number, value in enumerate(total) if value or types >> number & 1}
