"""A node that is kept for an ask until there is room on it: nobody else gets anything there meanwhile.

Not here: who may reserve which node, and when a reservation ends (`engine/reservations.py`).
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from common.messages import Resources
from partition_worker.engine.ask_shapes import Need

if TYPE_CHECKING:
    from partition_worker.engine.applications.allocation import Allocation
    from partition_worker.engine.applications.application import Application
    from partition_worker.engine.nodes.node import Node


@dataclass(slots=True, eq=False)
class Reservation:
    """One ask and one node. It holds no resources and is charged to nobody."""

    application: "Application"
    ask: "Allocation"
    node: "Node"
    created: float
    """Unix seconds."""
    rank: int
    """In order of creation."""
    need: Need = field(init=False)
    """What the ask needs, as others know the reservation by it."""
    keeps: Resources = field(default_factory=dict)
    """What its queues keep for the ask, because others were asked to make room for it; nothing otherwise."""

    def __post_init__(self) -> None:
        self.need = self.ask.need

    @property
    def for_required_node(self) -> bool:
        """Whether no other node would do. Only such reservations may share a node."""
        return bool(self.ask.need.required_node)
