"""What an ask needs, as a value: asks with equal needs are the same to queues and nodes, and are tried once for all."""

from typing import NamedTuple

from common.messages import Resources

Shape = tuple[tuple[str, int], ...]
"""Amounts by type, sorted by type."""


class Need(NamedTuple):
    """Amounts, and the only node that will do; empty if any will."""

    shape: Shape
    required_node: str = ""


def shape_of(resources: Resources) -> Shape:
    """The amounts as a value."""
    return tuple(sorted(resources.items()))
