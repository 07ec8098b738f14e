"""An application: what it asks for, what it has, and how it came to its state.

Its methods keep its own books only. What a change means for queues, nodes and users is `ledger.py`'s, and what follows
from a state `lifecycle.py`'s.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from common.messages import Resources
from common.resources import add_to, take_from
from partition_worker.engine.applications.allocation import Allocation
from partition_worker.engine.applications.asks import PendingAsks
from partition_worker.engine.applications.states import AppState
from partition_worker.engine.queues.queue import NOTHING_PENDING, Queue
from partition_worker.engine.users import User

STATE_LOG_MAX: Final = 1000
"""States that are remembered of one application; one that goes to and fro for ever loses the oldest."""


@dataclass(slots=True, eq=False)
class Application:
    """One application of a partition. Always: `pending` is the sum of its asks, `allocated` that of its allocations."""

    application_id: str
    rank: int
    """In order of arrival; breaks ties in the order of its queue."""
    user: User
    queue: Queue
    """Its leaf; kept after it left, for those who ask where it was."""
    submitted_ns: int
    """Its arrival, or the earliest creation time of its asks and allocations."""
    tags: dict[str, str] = field(default_factory=dict)
    placeholder_ask: Resources = field(default_factory=dict)
    """What all its placeholders together ask for, as it was submitted; nothing if it is no gang."""
    state: AppState = AppState.NEW
    state_log: deque[tuple[int, AppState]] = field(default_factory=lambda: deque(maxlen=STATE_LOG_MAX))
    """(Unix nanoseconds, state) for each state entered after New, the latest of them."""
    asks: PendingAsks = field(default_factory=PendingAsks)
    requests: dict[str, Allocation] = field(default_factory=dict)
    """All asks without a node, by key."""
    allocations: dict[str, Allocation] = field(default_factory=dict)
    """Everything that has a node, by key. No key is in both."""
    pending: Resources = field(default_factory=dict)
    allocated: Resources = field(default_factory=dict)
    max_allocated: Resources = field(default_factory=dict)
    """The highest that `allocated` ever was, per type."""
    started_ns: int = 0
    """When it last entered Running; 0 is never."""
    finished_ns: int = 0
    """When it ended; 0 while it has not."""
    timer: int = 0
    """Number of the timer that counts for the present state; older ones that still tick mean nothing."""

    @property
    def priority(self) -> int:
        """The highest priority of what it asks for."""
        highest = self.asks.priority
        return NOTHING_PENDING if highest is None else highest

    def find(self, key: str) -> Allocation | None:
        """An ask or allocation of this application."""
        return self.requests.get(key) or self.allocations.get(key)

    def add_ask(self, ask: Allocation) -> None:
        assert self.find(ask.key) is None, ask.key
        self.requests[ask.key] = ask
        self.asks.add(ask)
        add_to(self.pending, ask.resources)
        self.submitted_ns = min(self.submitted_ns, ask.created_ns)

    def remove_ask(self, ask: Allocation) -> None:
        del self.requests[ask.key]
        self.asks.remove(ask)
        take_from(self.pending, ask.resources)

    def resize_ask(self, ask: Allocation, resources: Resources) -> None:
        take_from(self.pending, ask.resources)
        self.asks.resize(ask, resources)
        add_to(self.pending, ask.resources)

    def add_allocation(self, allocation: Allocation) -> None:
        assert self.find(allocation.key) is None, allocation.key
        self.allocations[allocation.key] = allocation
        self.grow_allocated(allocation.resources)
        self.submitted_ns = min(self.submitted_ns, allocation.created_ns)

    def remove_allocation(self, allocation: Allocation) -> None:
        del self.allocations[allocation.key]
        take_from(self.allocated, allocation.resources)

    def grow_allocated(self, amount: Resources) -> None:
        """What it has grew, by an allocation or by one that was resized (negative: shrank)."""
        add_to(self.allocated, amount)
        for kind in amount:
            self.max_allocated[kind] = max(self.allocated[kind], self.max_allocated.get(kind, 0))
