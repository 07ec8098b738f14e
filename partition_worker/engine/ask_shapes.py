"""Ask shapes: what an ask needs of queues and nodes, as a value. Asks with equal needs are tried once for all of them.

What the demands in a constraint mean is defined by the predicates (`predicates/`).
"""

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final, NamedTuple

from common.messages import Resources

if TYPE_CHECKING:
    pass

KNOWN_MAX: Final = 4096
"""Different amounts that are kept for those who ask for the same. With more all are forgotten, and kept anew."""

Amounts = tuple[tuple[str, int], ...]
"""Amounts by type, sorted by type."""


class AskShape(NamedTuple):
    """Amounts, and the only node that will do; empty if any will."""

    amounts: Amounts
    required_node: str = ""
    constraint: "Constraint | None" = None
    """What else is demanded of a node; None if nothing is."""


def amounts_of(resources: Resources) -> Amounts:
    """The amounts as a value."""
    return tuple(sorted(resources.items()))


class AskShapes:
    """Amounts that were asked for, and what an ask needs that asks for nothing else: each is kept once, however many
    asks have it.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, int], ...], tuple[Resources, AskShape]] = {}

    def of(self, resources: Resources) -> tuple[Resources, AskShape]:
        """The same amounts, and the need. Neither may be changed."""
        said = tuple(resources.items())
        known = self._known.get(said)
        if known is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            known = self._known[said] = dict(resources), AskShape(amounts_of(resources))
        return known


Demands = tuple[Hashable | None, ...]
"""What each predicate in use read from the tags, in their order."""


class Constraint(NamedTuple):
    """An ask without demands, of a resource manager that is not asked, has none at all."""

    demands: Demands
    asked: str = ""
    """The key of the ask under which the resource manager says where it may run; empty if it has no say."""
