"""What an ask needs, as a value: asks with equal needs are the same to queues and nodes, and are tried once for all."""

from typing import TYPE_CHECKING, NamedTuple

from common.messages import Resources

if TYPE_CHECKING:
    from partition_worker.engine.predicates.constraint import Constraint

Shape = tuple[tuple[str, int], ...]
"""Amounts by type, sorted by type."""


class Need(NamedTuple):
    """Amounts, and the only node that will do; empty if any will."""

    shape: Shape
    required_node: str = ""
    constraint: "Constraint | None" = None
    """What else is demanded of a node; None if nothing is."""


def shape_of(resources: Resources) -> Shape:
    """The amounts as a value."""
    return tuple(sorted(resources.items()))
