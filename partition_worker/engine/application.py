"""An application: its asks, allocations, reservations, task groups, usage history, and the state machine.

The methods keep only the application's own sums and indexes. `ledger.py` applies a change to queues, nodes, users and
groups; `lifecycle.py` implements what follows from entering a state:

    New --RUN--> Accepted --RUN--> Running --COMPLETE--> Completing --COMPLETE--> Completed --EXPIRE--> Expired
     |               |--RUN--> Starting --RUN--> Running     (in a state-aware leaf; otherwise like Running)
     |               \\--COMPLETE--> Completing <--RUN-- (back to Running when the application has work again)
     |                                 Completing --WAIT--> Accepted  (if too many others run by then)
     |--REJECT--> Rejected --EXPIRE--> Expired
     |--FAIL--> Failing --FAIL--> Failed --EXPIRE--> Expired          (FAIL also from Accepted and Running)
     \\--RESUME--> Resuming --RUN--> Accepted                         (RESUME also from Accepted)
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Literal

from yunishard.common.messages.kinds import Resources
from yunishard.common.resources import describe_amount, plus, total_of
from yunishard.partition_worker.engine.allocation import Allocation, PendingAsks
from yunishard.partition_worker.engine.amounts import Amounts, Sum, add, name_types, raise_all, subtract
from yunishard.partition_worker.engine.nodes.node_index import PackIndex, Reservation
from yunishard.partition_worker.engine.queues.queue import NOTHING_PENDING, Queue
from yunishard.partition_worker.engine.sorted_items import Item
from yunishard.partition_worker.engine.user_resolution import User


class AppState(StrEnum):
    """The state of an application; RMs and users read the values."""

    NEW = "New"
    ACCEPTED = "Accepted"
    STARTING = "Starting"
    RUNNING = "Running"
    RESUMING = "Resuming"
    COMPLETING = "Completing"
    COMPLETED = "Completed"
    FAILING = "Failing"
    FAILED = "Failed"
    REJECTED = "Rejected"
    EXPIRED = "Expired"


class AppEvent(StrEnum):
    """A state machine event; the value is the message that the RM gets when there is no more specific one."""

    RUN = "runApplication"
    COMPLETE = "completeApplication"
    WAIT = "waitApplication"
    FAIL = "failApplication"
    RESUME = "resumeApplication"
    REJECT = "rejectApplication"
    EXPIRE = "expireApplication"


_S = AppState
TRANSITIONS: Final[Mapping[AppEvent, Mapping[AppState, AppState]]] = {
    AppEvent.RUN: {
        **dict.fromkeys((_S.NEW, _S.RESUMING), _S.ACCEPTED),
        **dict.fromkeys((_S.ACCEPTED, _S.STARTING, _S.RUNNING, _S.COMPLETING), _S.RUNNING),
    },
    AppEvent.COMPLETE: {
        **dict.fromkeys((_S.ACCEPTED, _S.STARTING, _S.RUNNING), _S.COMPLETING),
        _S.COMPLETING: _S.COMPLETED,
    },
    AppEvent.FAIL: {
        **dict.fromkeys((_S.NEW, _S.ACCEPTED, _S.STARTING, _S.RUNNING), _S.FAILING),
        _S.FAILING: _S.FAILED,
    },
    AppEvent.WAIT: {_S.COMPLETING: _S.ACCEPTED},
    AppEvent.RESUME: dict.fromkeys((_S.NEW, _S.ACCEPTED), _S.RESUMING),
    AppEvent.REJECT: {_S.NEW: _S.REJECTED},
    AppEvent.EXPIRE: dict.fromkeys((_S.COMPLETED, _S.FAILED, _S.REJECTED), _S.EXPIRED),
}

LINGER_S: Final[Mapping[AppState, tuple[float, AppEvent]]] = {
    AppState.STARTING: (300.0, AppEvent.RUN),
    AppState.COMPLETING: (30.0, AppEvent.COMPLETE),
}
"""For how many seconds an application stays in a state, and the event that then fires."""

RETENTION_S: Final = 3 * 24 * 3600.0
"""Seconds after which an ended or rejected application expires."""

ENDED: Final = frozenset({AppState.COMPLETED, AppState.FAILED, AppState.REJECTED, AppState.EXPIRED})
"""States in which an application has left its queue."""

ACTIVE: Final = frozenset({AppState.STARTING, AppState.RUNNING})
"""States in which an application counts as running, also for the application limits of queues."""


def next_state(state: AppState, event: AppEvent, *, state_aware: bool = False) -> AppState | None:
    """The state that the event leads to; None if the event does not apply in this state.

    With `state_aware`, an accepted application enters Starting before Running.
    """
    if state_aware and event is AppEvent.RUN and state is AppState.ACCEPTED:
        return AppState.STARTING
    return TRANSITIONS[event].get(state)


# Applications --------------------------------------------------------------------------------------------------------

Alarm = Literal["state", "placeholders", "look"]
"""Timers of an application: it stays in its state too long, it holds placeholders too long, or one of its unschedulable
asks may reserve a node or preempt now.
"""


@dataclass(slots=True, eq=False)
class Timer:
    """A running timer."""

    rank: int
    """In order of start."""
    at: float
    """When it is due, in Unix seconds."""
    alarm: Alarm
    application: "Application" = field(repr=False)


GangStyle = Literal["Soft", "Hard"]

PLACEHOLDER_TIMEOUT_S: Final = 900.0
"""Placeholder timeout of an application whose RM does not set one."""

STATE_LOG_MAX: Final = 1000
"""State changes kept for one application; beyond it the oldest are dropped."""


class Use(StrEnum):
    """The use of an allocation, when it ended."""

    REAL = "real"
    PREEMPTED = "preempted"
    PLACEHOLDER = "placeholder"


History = dict[tuple[Use, str], Resources]
"""Resource usage of ended allocations, as amounts times whole seconds, by use and instance type."""


@dataclass(slots=True)
class TaskGroup:
    """A task group of a gang: its placeholders, and the real asks that wait for them."""

    name: str
    minimum: Resources = field(default_factory=dict)
    """Resources of one placeholder, taken from the first."""
    count: int = 0
    """Placeholders ever asked for or recovered. Like the next two counters, it only grows."""
    replaced: int = 0
    """Placeholders replaced by a real allocation."""
    timed_out: int = 0
    """Placeholders that ended in any other way."""
    free: dict[str, Allocation] = field(default_factory=dict)
    """Placeholders that have a node and that the RM was not asked to release, by key, oldest first."""
    waiting: int = 0
    """Real asks that wait for a placeholder."""

    @property
    def outstanding(self) -> int:
        """Placeholders that a real allocation may still replace; while there are any, real asks of the group wait."""
        return self.count - self.replaced - self.timed_out


class Application(Item):
    """One application of a partition.

    Invariants: `pending` is the sum of its asks, `allocated` the sum of its real allocations, and
    `allocated_placeholder` the sum of its placeholders.
    """

    def __init__(
        self,
        application_id: str,
        rank: int,
        user: User,
        queue: Queue,
        submitted_ns: int,
        tags: dict[str, str] | None = None,
        *,
        placeholder_ask: Resources | None = None,
        state: AppState = AppState.NEW,
        gang_style: GangStyle = "Soft",
        placeholder_timeout_s: float = PLACEHOLDER_TIMEOUT_S,
    ) -> None:
        super().__init__(rank)  # in order of arrival; breaks ties in the order of its queue
        self.application_id = application_id
        self.user = user
        self.queue = queue
        """Its leaf queue. An ended application keeps the reference, for queries."""
        self.submitted_ns = submitted_ns
        """Arrival time, or the earliest creation time of its asks and allocations."""
        self.tags: dict[str, str] = {} if tags is None else tags
        self.placeholder_ask: Resources = {} if placeholder_ask is None else placeholder_ask
        """Total of all placeholders, as submitted; empty without gang scheduling."""
        self.state = state
        self.state_log: deque[tuple[int, AppState]] = deque(maxlen=STATE_LOG_MAX)
        """(Unix nanoseconds, state) for each state entered after New, the latest of them."""
        self.asks = PendingAsks()
        self.requests: dict[str, Allocation] = {}
        """All asks without a node, by key."""
        self.allocations: dict[str, Allocation] = {}
        """Everything that has a node, by key, including placeholders."""
        self.swapping: dict[str, Allocation] = {}
        """Real asks that have a node and replace their placeholder as soon as the RM confirms its release. A key is in
        at most one of these three dictionaries.
        """
        self.reservations: dict[str, Reservation] = {}
        """Reservations of its asks, by the key of the ask."""
        self.pending_sum: Sum = []
        self.allocated_sum: Sum = []
        self.placeholder_sum: Sum = []
        self.max_sum: Sum = []
        """The maximum from which either sum fell; what they are now may be more."""
        self.gang_style = gang_style
        """Whether it continues without placeholders that time out (Soft) or fails (Hard)."""
        self.placeholder_timeout_s = placeholder_timeout_s
        """How long it may hold placeholders, counted from the first one."""
        self.task_groups: dict[str, TaskGroup] = {}
        """Task groups with placeholders, by name."""
        self.history: History = {}
        self.started_ns: int = 0
        """When it last entered Starting or Running from another state; 0 if it never did."""
        self.finished_ns: int = 0
        """When it ended; 0 before that."""
        self.alarms: dict[Alarm, Timer] = {}
        """Its running timers."""
        self.has_changed_asks: bool = False
        """Whether it is among `Readiness.changed_asks`."""
        self.held_by_queue: bool = False
        """Whether an event reported that the application limits of its queues prevent it from starting."""
        self.held_by_quota: bool = False
        """Whether an event reported that the application limits of its user or group prevent it from starting."""
        self.back_off_until: float = 0.0
        """Unix time before which its asks are not tried, because too many of them failed."""
        self.reserves_anew_at: float = 0.0
        """When a reservation last ended by its age, in Unix seconds: its asks wait for others as if they were new."""
        self.account: object = None
        """Its usage account, which `Usage.find` returns; None if it has none."""
        self.pack: PackIndex | None = None
        """The nodes it runs on, if its node sort policy is `pack` and a node was sought for it."""

    @property
    def pending(self) -> Resources:
        """The sum of its asks without a node."""
        return name_types(self.pending_sum)

    @property
    def allocated(self) -> Resources:
        """The sum of its real allocations."""
        return name_types(self.allocated_sum)

    @property
    def allocated_placeholder(self) -> Resources:
        """The sum of its placeholders."""
        return name_types(self.placeholder_sum)

    @property
    def max_allocated(self) -> Resources:
        """The maximum that either sum ever reached, per resource type."""
        highest = list(self.max_sum)
        raise_all(highest, self.allocated_sum)
        raise_all(highest, self.placeholder_sum)
        return name_types(highest)

    @property
    def holds_placeholders(self) -> bool:
        """Whether any of its allocations is a placeholder."""
        return any(self.placeholder_sum)

    @property
    def priority(self) -> int:
        """The highest priority of its pending asks."""
        highest = self.asks.priority
        return NOTHING_PENDING if highest is None else highest

    def find(self, key: str) -> Allocation | None:
        """An ask or allocation of this application."""
        return self.requests.get(key) or self.allocations.get(key) or self.swapping.get(key)

    @property
    def charged(self) -> Resources:
        """Its usage of queues and limits: all its allocations, including placeholders."""
        return plus(self.allocated, self.allocated_placeholder) if self.placeholder_sum else self.allocated

    def add_ask(self, ask: Allocation, *, is_restored: bool = False) -> None:
        """Add an ask without a node; a restored one has its rank and its standing already."""
        before = len(self.requests)
        self.requests[ask.key] = ask
        assert len(self.requests) > before, ask.key
        self.asks.add(ask, is_restored=is_restored)
        add(self.pending_sum, ask.shape.amounts)
        if ask.created_ns < self.submitted_ns:
            self.submitted_ns = ask.created_ns
        if ask.held:
            self.task_groups[ask.task_group].waiting += 1

    def remove_ask(self, ask: Allocation) -> None:
        del self.requests[ask.key]
        self.asks.remove(ask)
        subtract(self.pending_sum, ask.shape.amounts)
        if ask.held:
            ask.held = False
            self.task_groups[ask.task_group].waiting -= 1

    def resize_ask(self, ask: Allocation, resources: Resources) -> None:
        subtract(self.pending_sum, ask.shape.amounts)
        self.asks.resize(ask, resources)
        add(self.pending_sum, ask.shape.amounts)

    def add_allocation(self, allocation: Allocation) -> None:
        key = allocation.key
        before = len(self.allocations)
        self.allocations[key] = allocation
        assert len(self.allocations) > before, key
        self.grow_allocated(allocation.shape.amounts, placeholder=allocation.placeholder)
        if allocation.created_ns < self.submitted_ns:
            self.submitted_ns = allocation.created_ns
        if allocation.placeholder:
            self.task_groups[allocation.task_group].free[key] = allocation

    def remove_allocation(self, allocation: Allocation) -> None:
        del self.allocations[allocation.key]
        total = self.placeholder_sum if allocation.placeholder else self.allocated_sum
        raise_all(self.max_sum, total)
        subtract(total, allocation.shape.amounts)
        self.withdraw_placeholder(allocation)

    def grow_allocated(self, amounts: Amounts, *, placeholder: bool) -> None:
        """Add amounts (negative: subtract) to the sum of its real allocations or of its placeholders."""
        total = self.placeholder_sum if placeholder else self.allocated_sum
        if amounts.is_negative:
            raise_all(self.max_sum, total)
        add(total, amounts)

    # Placeholders ---------------------------------------------------------------------------------------------------

    def must_hold(self, ask: Allocation) -> bool:
        """Whether an ask has to wait for a placeholder: a real ask of a task group with outstanding placeholders."""
        group = self.task_groups.get(ask.task_group)
        return group is not None and not ask.placeholder and group.outstanding > 0

    def hold(self, ask: Allocation, *, held: bool) -> None:
        """Let one of its asks wait for a placeholder, or for any node again."""
        if ask.held != held:
            ask.held = held
            self.asks.regroup(ask)
            self.task_groups[ask.task_group].waiting += 1 if held else -1

    def withdraw_placeholder(self, allocation: Allocation) -> None:
        """If it is a placeholder, no ask may replace it any more."""
        if allocation.placeholder:
            self.task_groups[allocation.task_group].free.pop(allocation.key, None)

    def begin_swap(self, ask: Allocation, placeholder: Allocation) -> None:
        """Let a real ask, already removed from the pending asks, replace a placeholder once that is released."""
        self.swapping[ask.key] = ask
        ask.partner, placeholder.partner = placeholder, ask
        placeholder.released = True
        self.withdraw_placeholder(placeholder)

    def end_swap(self, ask: Allocation) -> None:
        """Separate the ask from its placeholder, which is released or still has to be."""
        placeholder = ask.partner
        assert placeholder is not None, ask.key
        del self.swapping[ask.key]
        ask.partner = placeholder.partner = None

    # Usage ----------------------------------------------------------------------------------------------------------

    def record_usage(self, allocation: Allocation, instance_type: str, ended_ns: int) -> None:
        """Add an ended allocation on a node of this type to the usage history; less than a second counts as 0."""
        seconds = max(0, (ended_ns - allocation.bound_ns) // 1_000_000_000)
        use = Use.PREEMPTED if allocation.preempted else Use.PLACEHOLDER if allocation.placeholder else Use.REAL
        total = self.history.setdefault((use, instance_type), {})
        for kind, amount in allocation.resources.items():
            total[kind] = total.get(kind, 0) + amount * seconds

    def format_summary(self) -> str:
        """The log line about an application that ran and has ended; times are UTC."""
        times = (self.submitted_ns, self.started_ns, self.finished_ns)
        submitted, started, finished = (datetime.fromtimestamp(at // 10**9, UTC).isoformat() for at in times)
        return (
            f"summary of application {self.application_id}: {self.state}, "
            f"user {self.user.name}, queue {self.queue.path}, "
            f"submitted {submitted}, started {started}, finished {finished}, "
            f"used {self._format_usage(Use.REAL)}, preempted {self._format_usage(Use.PREEMPTED)}, "
            f"placeholders {self._format_usage(Use.PLACEHOLDER)} (amounts times seconds, by type of instance)"
        )

    def _format_usage(self, wanted: Use) -> str:
        by_type = {kind: used for (use, kind), used in self.history.items() if use is wanted}
        return "{" + ", ".join(f"{kind}: {describe_amount(by_type[kind])}" for kind in sorted(by_type)) + "}"


def find_queue_lack(
    applications: Mapping[str, Application], leaf: Queue, amounts: Amounts, victims: Iterable[Allocation]
) -> tuple[Queue, Resources] | None:
    """Return the lowest queue of the path that has no room for an ask even once these victims, and all that were
    preempted before, have left; and what it and those above it lack. Only victims below a queue free room in it.
    """
    lowest: Queue | None = None
    missing: Resources = {}
    for level, lacks in leaf.find_lacks(amounts):
        below = [one for one in victims if level in applications[one.application_id].queue.ancestry()]
        freed = total_of(one.resources for one in below)
        for kind, lack in lacks.items():
            if lack > freed.get(kind, 0):
                lowest = lowest or level
                missing[kind] = max(missing.get(kind, 0), lack - freed.get(kind, 0))
    return None if lowest is None else (lowest, missing)
