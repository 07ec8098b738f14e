"""An application: what it asks for, what it has, and how it came to its state.

Its methods keep its own books only. What a change means for queues, nodes and users is `ledger.py`'s, and what follows
from a state `lifecycle.py`'s.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final, Literal

from common.messages import Resources
from common.resources import add_to, plus, take_from
from partition_worker.engine.applications.allocation import Allocation
from partition_worker.engine.applications.asks import PendingAsks
from partition_worker.engine.applications.history import History
from partition_worker.engine.applications.reservation import Reservation
from partition_worker.engine.applications.states import AppState
from partition_worker.engine.applications.task_group import TaskGroup
from partition_worker.engine.nodes.secondary_indexes import Pack
from partition_worker.engine.queues.queue import NOTHING_PENDING, Queue
from partition_worker.engine.user_resolution import User

Alarm = Literal["state", "placeholders", "look"]
"""What an application may be woken for: it stayed in its state for long enough, or held placeholders; or an ask that
could not be placed may reserve a node or preempt now.
"""

GangStyle = Literal["Soft", "Hard"]

PLACEHOLDER_TIMEOUT_S: Final = 900.0
"""Where the RM does not say how long placeholders may be held."""

STATE_LOG_MAX: Final = 1000
"""States that are remembered of one application; one that goes to and fro for ever loses the oldest."""


@dataclass(slots=True, eq=False)
class Application:
    """One application of a partition. Always: `pending` is the sum of its asks, `allocated` that of its real
    allocations and `allocated_placeholder` that of its placeholders.
    """

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
    """Everything that has a node, by key, placeholders too."""
    swapping: dict[str, Allocation] = field(default_factory=dict)
    """Real ones that have a node and get what their placeholder has as soon as the RM confirms that it is gone. No key
    is in two of these three.
    """
    reservations: dict[str, Reservation] = field(default_factory=dict)
    """Nodes that are kept for its asks, by the key of the ask."""
    pending: Resources = field(default_factory=dict)
    allocated: Resources = field(default_factory=dict)
    allocated_placeholder: Resources = field(default_factory=dict)
    max_allocated: Resources = field(default_factory=dict)
    """The highest that either of them ever was, per type."""
    gang_style: GangStyle = "Soft"
    """What becomes of it when its placeholders are not there in time: it goes on without them, or fails."""
    placeholder_timeout_s: float = PLACEHOLDER_TIMEOUT_S
    """How long it may hold placeholders, from the first one on."""
    task_groups: dict[str, TaskGroup] = field(default_factory=dict)
    """By name; those for which placeholders were asked."""
    history: History = field(default_factory=dict)
    """What its allocations used that are gone."""
    started_ns: int = 0
    """When it last entered Running; 0 is never."""
    finished_ns: int = 0
    """When it ended; 0 while it has not."""
    alarms: dict[Alarm, int] = field(default_factory=dict)
    """Numbers of the alarms that count; older ones that still tick mean nothing."""
    held_by_queue: bool = False
    """Whether the history says that too many applications run in its queues for it to start."""
    held_by_quota: bool = False
    """Whether the history says that too many applications of its user or group run for it to start."""
    back_off_until: float = 0.0
    """Its asks are not tried before this Unix time, as too many of them failed."""
    pack: Pack | None = None
    """The nodes on which it runs, if it wants to be packed and has looked for one."""

    @property
    def priority(self) -> int:
        """The highest priority of what it asks for."""
        highest = self.asks.priority
        return NOTHING_PENDING if highest is None else highest

    def find(self, key: str) -> Allocation | None:
        """An ask or allocation of this application."""
        return self.requests.get(key) or self.allocations.get(key) or self.swapping.get(key)

    @property
    def charged(self) -> Resources:
        """What it uses of queues and limits: all its allocations, placeholders too."""
        return plus(self.allocated, self.allocated_placeholder) if self.allocated_placeholder else self.allocated

    def add_ask(self, ask: Allocation) -> None:
        assert ask.key not in self.requests, ask.key
        self.requests[ask.key] = ask
        self.asks.add(ask)
        add_to(self.pending, ask.resources)
        self.submitted_ns = min(self.submitted_ns, ask.created_ns)
        if ask.held:
            self.task_groups[ask.task_group].waiting += 1

    def remove_ask(self, ask: Allocation) -> None:
        del self.requests[ask.key]
        self.asks.remove(ask)
        take_from(self.pending, ask.resources)
        if ask.held:
            ask.held = False
            self.task_groups[ask.task_group].waiting -= 1

    def resize_ask(self, ask: Allocation, resources: Resources) -> None:
        take_from(self.pending, ask.resources)
        self.asks.resize(ask, resources)
        add_to(self.pending, ask.resources)

    def add_allocation(self, allocation: Allocation) -> None:
        assert self.find(allocation.key) is None, allocation.key
        self.allocations[allocation.key] = allocation
        self.grow_allocated(allocation.resources, placeholder=allocation.placeholder)
        self.submitted_ns = min(self.submitted_ns, allocation.created_ns)
        if allocation.placeholder:
            self.task_groups[allocation.task_group].free[allocation.key] = allocation

    def remove_allocation(self, allocation: Allocation) -> None:
        del self.allocations[allocation.key]
        take_from(self.allocated_placeholder if allocation.placeholder else self.allocated, allocation.resources)
        self.withhold(allocation)

    def grow_allocated(self, amount: Resources, *, placeholder: bool) -> None:
        """What it has grew, by an allocation or by one that was resized (negative: shrank)."""
        total = self.allocated_placeholder if placeholder else self.allocated
        highest = self.max_allocated
        for kind, value in amount.items():
            has = total[kind] = total.get(kind, 0) + value
            if has >= highest.get(kind, 0):
                highest[kind] = has

    # Placeholders ---------------------------------------------------------------------------------------------------

    def held_back(self, ask: Allocation) -> bool:
        """Whether an ask has to wait for a placeholder: it is a real one, of a task group that still has some."""
        group = self.task_groups.get(ask.task_group)
        return group is not None and not ask.placeholder and group.outstanding > 0

    def hold(self, ask: Allocation, *, held: bool) -> None:
        """Let one of its asks wait for a placeholder from now on, or no longer."""
        if ask.held != held:
            ask.held = held
            self.asks.regroup(ask)
            self.task_groups[ask.task_group].waiting += 1 if held else -1

    def withhold(self, allocation: Allocation) -> None:
        """If it is a placeholder, no ask may take its place any more."""
        if allocation.placeholder:
            self.task_groups[allocation.task_group].free.pop(allocation.key, None)

    def begin_swap(self, ask: Allocation, placeholder: Allocation) -> None:
        """A real ask, which is no longer among its asks, takes the place of a placeholder once that is gone."""
        self.swapping[ask.key] = ask
        ask.partner, placeholder.partner = placeholder, ask
        placeholder.released = True
        self.withhold(placeholder)

    def end_swap(self, ask: Allocation) -> None:
        """The two have nothing to do with each other any more; the placeholder still has to go, or has gone."""
        placeholder = ask.partner
        assert placeholder is not None, ask.key
        del self.swapping[ask.key]
        ask.partner = placeholder.partner = None
