"""A node: its capacity, its allocations, its reservations, and what is available on it."""

from dataclasses import dataclass, field
from typing import Final

from common.messages import Resources
from common.resources import add_to, drop_zeros, minus, take_from
from partition_worker.engine.allocation import Allocation, Amounts, AskShape
from partition_worker.engine.queues.queue import Queue

UNKNOWN_INSTANCE: Final = "UNKNOWN"
"""The instance type of a node that names none."""


@dataclass(slots=True, eq=False)
class Node:
    """One node. Always: available = capacity - allocated - occupied; negative only after a shrink or a forced
    addition.
    """

    node_id: str
    rank: int
    capacity: Resources
    """Pruned: a type of 0 is a type that the node lacks."""
    attributes: dict[str, str]
    schedulable: bool = True
    allocated: Resources = field(default_factory=dict)
    """By allocations of the partition."""
    occupied: Resources = field(default_factory=dict)
    """By foreign allocations, which another scheduler placed."""
    available: Resources = field(default_factory=dict)
    allocations: dict[str, Allocation] = field(default_factory=dict)
    """Allocations of the partition, by key."""
    foreign: dict[str, Allocation] = field(default_factory=dict)
    """Foreign allocations, by key."""
    reservations: "dict[str, Reservation]" = field(default_factory=dict)
    """Its reservations by the key of the ask; more than one only if each ask requires this node."""
    guarded: bool = False
    """Whether it refuses some asks without constraint."""
    version: int = 0
    """Number of changes of its allocations and its capacity."""

    def __post_init__(self) -> None:
        self.capacity = drop_zeros(self.capacity)
        self._recount()

    @property
    def kept_for_preemption(self) -> bool:
        """Whether it is reserved for an ask that does not require it and whose victims are leaving."""
        return any(one.keeps and not one.for_required_node for one in self.reservations.values())

    @property
    def instance_type(self) -> str:
        return self.attributes.get("si/instance-type") or UNKNOWN_INSTANCE

    def attribute(self, name: str) -> str:
        """Return `hostname` or `rackname`, in either spelling that RMs use."""
        return self.attributes.get(f"si/{name}") or self.attributes.get(f"si.io/{name}", "")

    def has_room(self, amounts: Amounts) -> bool:
        """Whether these amounts are available; a negative amount counts as none."""
        available = self.available
        for kind, value in amounts:  # noqa: SIM110 - a generator costs as much as the loop itself, for every node tried
            if value > 0 and available.get(kind, 0) < value:
                return False
        return True

    def is_large_enough(self, amounts: Amounts) -> bool:
        """Whether these amounts would fit on the empty node."""
        capacity = self.capacity
        for kind, value in amounts:  # noqa: SIM110 - as above
            if value > 0 and capacity.get(kind, 0) < value:
                return False
        return True

    def add(self, allocation: Allocation) -> None:
        """Add an allocation, whether or not there is room."""
        self.version += 1
        self.allocations[allocation.key] = allocation
        allocated, available = self.allocated, self.available
        for kind, value in allocation.resources.items():
            allocated[kind] = allocated.get(kind, 0) + value
            available[kind] = available.get(kind, 0) - value

    def remove(self, allocation: Allocation) -> None:
        """Remove an allocation of the partition."""
        self.version += 1
        del self.allocations[allocation.key]
        take_from(self.allocated, allocation.resources)
        add_to(self.available, allocation.resources)

    def resize_allocation(self, delta: Resources) -> None:
        """Apply the amount by which an allocation here grew (negative: shrank)."""
        self.version += 1
        add_to(self.allocated, delta)
        take_from(self.available, delta)

    def put_foreign(self, allocation: Allocation) -> None:
        """Add a foreign allocation, or replace the one with its key."""
        self.remove_foreign(allocation.key)
        self.foreign[allocation.key] = allocation
        add_to(self.occupied, allocation.resources)
        self._recount()

    def remove_foreign(self, key: str) -> bool:
        """Remove a foreign allocation; return whether it was here."""
        known = self.foreign.pop(key, None)
        if known is None:
            return False
        take_from(self.occupied, known.resources)
        self._recount()
        return True

    def resize(self, capacity: Resources) -> None:
        self.capacity = drop_zeros(capacity)
        self._recount()

    def _recount(self) -> None:
        self.version += 1
        self.available = minus(minus(self.capacity, self.allocated), self.occupied)


@dataclass(slots=True, eq=False)
class Reservation:
    """A node that is reserved for one ask until it has room; no other ask is placed there meanwhile.

    A reservation holds no resources and is charged to nothing. `reservations.py` decides which ask may reserve which
    node, and when a reservation ends.
    """

    ask: Allocation
    node: Node
    leaf: Queue
    """The queue of the ask's application, which cannot move while it holds a reservation."""
    created: float
    """Unix seconds."""
    rank: int
    """In order of creation."""
    shape: AskShape = field(init=False)
    """The shape of the ask by which the reservation is indexed."""
    keeps: Resources = field(default_factory=dict)
    """Room that the queues keep for the ask because victims were preempted for it; empty otherwise."""

    def __post_init__(self) -> None:
        self.shape = self.ask.shape

    @property
    def for_required_node(self) -> bool:
        """Whether the ask requires this node. Only such reservations may share a node."""
        return bool(self.ask.shape.required_node)
