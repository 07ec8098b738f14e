"""Ask shapes: the requirements of an ask on queues and nodes, as a value. Asks of equal shape are tried once for all.

The predicates (`predicates/`) define the meaning of the demands in a constraint.
"""

from collections.abc import Hashable
from typing import Final, NamedTuple

from common.messages import Resources

KNOWN_MAX: Final = 4096
"""Different amounts that are shared between asks; beyond it all are dropped."""

Amounts = tuple[tuple[str, int], ...]
"""Amounts by type, sorted by type."""

Demands = tuple[Hashable | None, ...]
"""The result of each predicate for the tags of an ask, in the order of the predicates."""


class Constraint(NamedTuple):
    """The constraint of an ask. An ask without demands has none, if the RM evaluates no predicates."""

    demands: Demands
    asked: str = ""
    """The key of the ask, by which the RM is asked about nodes; empty if the RM evaluates no predicates."""


class AskShape(NamedTuple):
    """The requirements of an ask."""

    amounts: Amounts
    required_node: str = ""
    """The only node that it may run on; empty if it may run on any."""
    constraint: Constraint | None = None
    """Further demands on a node; None if there are none."""


def amounts_of(resources: Resources) -> Amounts:
    """Return the amounts as a value."""
    return tuple(sorted(resources.items()))


class AskShapes:
    """The amounts of asks, and the shapes of asks without other requirements: each is stored once for all asks."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, int], ...], tuple[Resources, AskShape]] = {}

    def of(self, resources: Resources) -> tuple[Resources, AskShape]:
        """Return equal amounts and their shape, both shared; neither may be changed."""
        items = tuple(resources.items())
        known = self._known.get(items)
        if known is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            known = self._known[items] = dict(resources), AskShape(amounts_of(resources))
        return known
