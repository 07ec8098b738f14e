"""The state of a partition (`PartitionState`): queues, nodes, applications, users, timers, counters, events, effects.

Queries read it; the modules of the engine change it: `ledger.py` for asks and allocations, `lifecycle.py` for
application states, the `*_updates.py` modules for updates of the RM, `queue_traversal.py` for scheduling decisions.

An RM chooses how much a partition stores. An object that exceeds a bound is refused with a reason that names the bound;
existing objects are never affected. Queues created for applications, task groups, users and groups are bounded with the
objects that refer to them.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from math import inf
from typing import Final, NamedTuple

from yunishard.common.config.model import PartitionConfig
from yunishard.common.messages import event_codes, rm_messages
from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.wire import NEVER
from yunishard.common.node_sort_policies import NODE_SORT_POLICIES
from yunishard.common.resources import NOTHING
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.amounts import Amounts
from yunishard.partition_worker.engine.application import RETENTION_S, Alarm, Application, AppState, Timer
from yunishard.partition_worker.engine.durable_records import PreemptionRecord, RejectionRecord
from yunishard.partition_worker.engine.effects import Effect, Event, LogLine, Part
from yunishard.partition_worker.engine.nodes.node_index import Node, Reservation
from yunishard.partition_worker.engine.nodes.nodes import Nodes
from yunishard.partition_worker.engine.placement import build_chain
from yunishard.partition_worker.engine.predicates.evaluation import Predicates
from yunishard.partition_worker.engine.predicates.predicate import Predicate
from yunishard.partition_worker.engine.preemption_log import Preemptions
from yunishard.partition_worker.engine.queues.tree import Tree
from yunishard.partition_worker.engine.ready_queues import Readiness, SwapCandidates
from yunishard.partition_worker.engine.reservation_index import ReservationIndex
from yunishard.partition_worker.engine.rm_errors import RmErrors
from yunishard.partition_worker.engine.sorted_items import Order
from yunishard.partition_worker.engine.user_limits import Usage, UsageAccount
from yunishard.partition_worker.engine.user_resolution import PendingSubmissions, Users

# Options and bounds ---------------------------------------------------------------------------------------------------

RESERVATION_DELAY_S: Final = 2.0
"""Seconds before an unschedulable ask may reserve a node."""

RESERVATION_SHARE_PERCENT: Final = 25
"""Percentage of the nodes that one application may have reserved, at least one node; beyond it, its asks wait without
a reservation.
"""

RESERVATION_MAX_S: Final = 7200.0
"""Maximum age of a reservation in seconds; then it ends, and its node is free for other asks."""

CHECK_PASSED_OVER_EVERY_S: Final = 10.0
"""Seconds between two checks of the asks that others pass over, at least. With many kinds of waiting asks, a full
cluster would check all of them for each decision.
"""

PASSED_OVER_DELAY_S: Final = 60.0
"""Seconds that an ask waits for room in the cluster or its queues before it may reserve a node."""

PASSED_OVER_NODES_PERCENT: Final = 5
"""Percentage of the nodes that are reserved for asks that others passed over, on average over time: with fewer than 20
nodes, there is a pause after each such reservation. Without it, large asks that arrive all the time would keep half of
a cluster of two nodes idle.
"""

VICTIMS_LEAVE_MAX_S: Final = 600.0
"""Seconds in which victims leave. After that they count as allocations that stay: the reservation for their room ends,
and others are preempted in their place.
"""

PREEMPTION_PAUSE_S: Final = 15.0
"""Seconds before an ask searches for victims again after a search without result."""

ASKS_MAX: Final = 2_000_000
"""Default for the asks and allocations of a partition: about 2 GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Options of the engine."""

    reservation_delay_s: float = RESERVATION_DELAY_S
    """Infinite if reservations are disabled, except those for required nodes and after preemption."""
    reservation_share_percent: int = RESERVATION_SHARE_PERCENT
    reservation_max_s: float = RESERVATION_MAX_S
    preemption_pause_s: float = PREEMPTION_PAUSE_S
    preemption_threshold: float = 0.0
    """Fraction of the cluster, 0.0 to 1.0 of the most used resource type, that must be used before asks preempt. Asks
    with a required node and quota preemption ignore it.
    """
    asks_max: int = ASKS_MAX
    """Asks and allocations of a partition, including foreign ones; further ones are refused."""
    simulated_nodes: frozenset[str] = frozenset()
    """Names of the nodes that the partition has without a report of the RM, so a full report does not remove them."""


DEFAULT: Final = Tuning()
"""The defaults of YuniKorn."""

TEXT_MAX: Final = 512 << 10
"""Characters in the names, tags, attributes and groups of one ask, application or node: twice the limit of Kubernetes
for the annotations of a pod.
"""


def find_text_objection(names: Iterable[str], tags: Mapping[str, str], size: int = 0) -> str:
    """Why an object with these names and tags, and other texts of this size, is refused; empty if it is not."""
    for name in names:
        size += len(name)
    if tags:
        size += sum(map(len, tags)) + sum(map(len, tags.values()))
    return f"its texts have {size} characters, at most {TEXT_MAX} are allowed" if size > TEXT_MAX else ""


# Decisions: checked before they are made, carried out by `queue_traversal.py` ----------------------------------------


class Allocate:
    """Allocate the ask on the node."""

    __slots__ = ("application", "ask", "node")

    def __init__(self, application: Application, ask: Allocation, node: Node) -> None:
        self.application = application
        self.ask = ask
        self.node = node


class Replace(NamedTuple):
    """Replace the placeholder with the ask, on the placeholder's node or on another one."""

    application: Application
    ask: Allocation
    placeholder: Allocation
    node: Node


class Release(NamedTuple):
    """Release placeholders that are smaller than this ask of their task group."""

    application: Application
    ask: Allocation
    placeholders: tuple[Allocation, ...]


class Reserve(NamedTuple):
    """Reserve the node for the ask."""

    application: Application
    ask: Allocation
    node: Node
    keeps: bool = False
    """Whether the queues of the ask keep room for it, too."""


class Preempt(NamedTuple):
    """Ask the RM to release the victims, and reserve the node for the ask; conflicting reservations end."""

    application: Application
    ask: Allocation
    node: Node
    victims: tuple[Allocation, ...]
    cancels: tuple[Reservation, ...] = ()


# State ----------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Report:
    """The objects that the RM has reported since `SyncBegin`: ids in order of first mention, accepted or not, and the
    number of items including repetitions.
    """

    count: rm_messages.SyncEnd = field(default_factory=rm_messages.SyncEnd)

    nodes: dict[str, None] = field(default_factory=dict)
    applications: dict[str, None] = field(default_factory=dict)
    allocations: dict[str, None] = field(default_factory=dict)
    """Asks, allocations and foreign allocations."""
    deadline: float = NEVER
    """When it is given up without a further update, in Unix seconds."""
    is_interrupted: bool = False
    """Whether the worker restarted meanwhile: then this report cannot be completed."""


class Timers:
    """The timers of the applications of a partition."""

    def __init__(self) -> None:
        self._order: Order[Timer] = Order()
        self.last = 0
        """The number of the latest timer."""

    def __iter__(self) -> Iterator[Timer]:
        """The timers, earliest first."""
        return iter(self._order)

    @property
    def deadline(self) -> float:
        """When the next timer is due, or NEVER."""
        timer = self._order.first()
        return NEVER if timer is None else timer.at

    def start(self, application: Application, alarm: Alarm, at: float) -> None:
        """Start a timer of the application; replaces an earlier one of this kind."""
        self.last += 1
        self.stop(application, alarm)
        timer = application.alarms[alarm] = Timer(self.last, at, alarm, application)
        self._order.put(timer, (at,))

    def stop(self, application: Application, alarm: Alarm) -> None:
        timer = application.alarms.pop(alarm, None)
        if timer is not None:
            self._order.drop(timer)

    def pop_due(self, now: float) -> Timer | None:
        """Remove and return the next due timer; None if none is due."""
        timer = self._order.first()
        if timer is None or timer.at > now:
            return None
        self.stop(timer.application, timer.alarm)
        return timer


CLEAN_EVERY_S: Final = 10.0
"""Seconds between removals of empty dynamic and draining queues."""

QUOTA_LOOK_EVERY_S: Final = 1.0
"""Seconds between checks of queues that quota preemption is to bring down to their maximum, while there are any."""

ENDED_MAX: Final = 50_000
"""Ended applications, and also rejected ones, that are kept; beyond it the oldest are dropped early."""


EXPIRED_AT_ONCE: Final = 512
"""Expired applications, and also rejected ones, that one step drops; the next step continues."""

REMOVED_MAX: Final = 10_000
"""Applications removed by the RM that are kept for the history collector, which polls every few seconds; beyond it the
oldest are dropped, and missing there.
"""

REACHED_MAX: Final = 20_000
"""Counted (queue, state) pairs, each a metric series. Beyond it a removed dynamic queue adds its counts to its
parent's.
"""


@dataclass(slots=True)
class Counters:
    """Counters of a partition since its creation; they only grow."""

    allocated: int = 0
    released: int = 0
    rejected: int = 0
    errors: RmErrors = field(default_factory=RmErrors)
    submitted: int = 0
    refused: int = 0
    decommissioned: int = 0
    reached: Counter[tuple[str, AppState]] = field(default_factory=Counter)
    """How often applications of a queue entered a state, also for removed queues. A refused application counts for the
    queue it asked for, or for "" if that does not exist, so that RMs cannot create arbitrarily many names.
    """

    def fold(self, path: str, into: str) -> None:
        """Add the counts of a removed queue to those of its parent, if too many pairs are counted."""
        if len(self.reached) > REACHED_MAX:
            for state in AppState:
                if count := self.reached.pop((path, state), 0):
                    self.reached[into, state] += count

    def entries(self, state: AppState) -> int:
        """How often applications entered this state."""
        return sum(count for (_, reached), count in self.reached.items() if reached is state)


class Changes:
    """The objects of which this step changed a durable field; `recording.py` builds their records. Whatever changes
    such a field marks its object here.
    """

    def __init__(self) -> None:
        self.partition = False
        """Whether the configuration or a mark of an operator changed, or the partition retired."""
        self.report = False
        """Whether a full report began or ended."""
        self.allocations: dict[str, Allocation | None] = {}
        """By key; None if it is gone."""
        self.applications: dict[int, Application] = {}
        """Changed, new, or gone, by rank."""
        self.entered: dict[int, None] = {}
        """The ranks of those that entered a state."""
        self.submitted: dict[int, None] = {}
        """The ranks of new ones."""
        self.queues: dict[str, None] = {}
        """By path."""
        self.nodes: dict[str, None] = {}
        self.foreign: dict[str, None] = {}
        self.reservations: dict[str, None] = {}
        """By key of the ask."""
        self.rejections: dict[str, None] = {}
        self.submissions: dict[str, None] = {}
        """By id of the application."""
        self.held_updates: dict[int, None] = {}
        """By number."""
        self.preemptions: list[PreemptionRecord] = []
        self.cooldowns: dict[tuple[str, str], None] = {}
        """By paths of winner and loser."""

    @property
    def has_others(self) -> bool:
        """Whether anything but asks, allocations and applications changed."""
        return bool(
            self.partition
            or self.report
            or self.queues
            or self.nodes
            or self.foreign
            or self.reservations
            or self.rejections
            or self.submissions
            or self.held_updates
            or self.preemptions
            or self.cooldowns
        )


class PartitionState:
    """All state of one partition. Queries read it; only modules of the engine change it."""

    def __init__(
        self,
        config: PartitionConfig,
        *,
        name: str,
        now: float,
        plugins: Sequence[Predicate] = (),
        tuning: Tuning = DEFAULT,
    ) -> None:
        self.name, self.config, self.tuning = name, config, tuning
        self.changes = Changes()
        self.changes.partition = True
        self.tracking = True
        """Whether events are recorded."""
        self._events: list[Event] = []
        self.tree = Tree(config)
        for queue in self.tree:
            self.changes.queues[queue.path] = None
            self.record_event(event_codes.QUEUE, queue.path, event_codes.ADD, event_codes.DETAILS_NONE)
        self.nodes = Nodes(self.node_sort(config), config.node_sort_policy.weights, Predicates(plugins))
        self.placement = build_chain(config.placement_rules)
        self.users = Users(config.user_group_resolver.type)
        self.pending_submissions = PendingSubmissions()
        self.usage = Usage(config, self.record_event)
        self.applications: dict[str, Application] = {}
        """Applications that have not ended, by id."""
        self.readiness = Readiness(self.tree, self.nodes, self.applications)
        self.preemptions = Preemptions(self.applications)
        self.reservation_index = ReservationIndex()
        self.swap_candidates = SwapCandidates()
        self.ended: OrderedDict[str, Application] = OrderedDict()
        """Completed and failed applications, by id and end time. Finding the first entry of a `dict` passes over all
        that were dropped before it."""
        self.removed: deque[Application] = deque(maxlen=REMOVED_MAX)
        """Applications that the RM removed, by end time. No decision depends on them, so snapshots leave them out."""
        self.rejections: OrderedDict[str, RejectionRecord] = OrderedDict()
        self.allocations: dict[str, Allocation] = {}
        """Every native ask and allocation, by key; keys are unique in a partition."""
        self.foreign: dict[str, Node] = {}
        """The node of every foreign allocation, by key."""
        self.leaving: dict[str, Allocation] = {}
        """Victims of preemption that have not left, by key, those first that wait longest."""
        self.running_allocations = 0
        """Native allocations that have a node."""
        self.timers = Timers()
        self.counters = Counters()
        self.created_ns = int(now * 1e9)
        self.step_number = 0
        """Number of the latest input or cycle; effects name it as their cause."""
        self.now = now
        self.now_ns: int = int(now * 1e9)
        self.report: Report | None = None
        """The report of the RM during a resynchronization; nothing is scheduled until it ends."""
        self.retired = False
        """Whether the partition left the configuration: it is empty and accepts nothing."""
        self.cleanup_at = self.quota_check_at = NEVER
        """When empty queues are removed, and when quota preemption is checked next."""
        self.latest_stamp_ns = self.application_ranks = 0
        self._effects: list[Effect] = []

    @staticmethod
    def node_sort(config: PartitionConfig) -> str:
        """The node sort policy of the configuration."""
        policy = config.node_sort_policy.policy
        return policy if policy in NODE_SORT_POLICIES else "fair"

    def emit(self, part: Part) -> None:
        """Append an effect to those of this step."""
        kind = type(part)
        if kind is rm_messages.Allocation:
            self.counters.allocated += 1
        elif kind is rm_messages.AllocationRelease:
            self.counters.released += 1
        elif kind is rm_messages.RejectedAllocation:
            self.counters.rejected += 1
        self._effects.append(Effect(self.step_number, part))

    def announce(self, ask: Allocation) -> None:
        """Announce to the RM that an ask got its node."""
        self.counters.allocated += 1
        self._effects.append(Effect(self.step_number, ask.make_announcement()))

    def record_event(
        self,
        kind: int,
        object_id: str,
        change: int,
        detail: int,
        reference: str = "",
        resource: Resources = NOTHING,
        message: str = "",
    ) -> None:
        """Record an event, if events are recorded. The amounts must not change afterwards."""
        if self.tracking:
            self._events.append(Event(kind, object_id, reference, change, detail, message, resource))

    def record_usage_event(self, account: UsageAccount, change: int, amounts: Amounts) -> None:
        """Record that the user and the group of an application use more or less."""
        application = account.application
        path, resources = application.queue.path, amounts.resources
        self.record_event(
            event_codes.USERGROUP, application.user.name, change, event_codes.UG_USER_RESOURCE, path, resources
        )
        if account.group_name is not None:
            self.record_event(
                event_codes.USERGROUP, account.group_name, change, event_codes.UG_GROUP_RESOURCE, path, resources
            )

    def record_application_event(self, change: int, detail: int, one: Allocation) -> None:
        """Record that an ask or allocation was added to its application or removed."""
        self.record_event(event_codes.APP, one.application_id, change, detail, one.key, one.resources)

    def record_node_event(
        self, node_id: str, change: int, one: Allocation, detail: int = event_codes.NODE_ALLOC
    ) -> None:
        """Record that an allocation or a reservation of an ask was added to a node or removed."""
        self.record_event(event_codes.NODE, node_id, change, detail, one.key, one.resources)

    def log_debug(self, text: str) -> None:
        """Log that an input had no effect."""
        self.emit(LogLine(text))

    def log_warning(self, text: str) -> None:
        """Log a probable mistake of the RM, of which the RM receives no result."""
        self.emit(LogLine(text, is_warning=True))

    def log_info(self, text: str) -> None:
        """Log a line for operators."""
        self.emit(LogLine(text, for_operators=True))

    def stamp_ns(self) -> int:
        """The present in Unix nanoseconds, greater than every earlier stamp, so that simultaneous inputs keep their
        order.
        """
        stamp_ns = self.latest_stamp_ns + 1
        if stamp_ns < self.now_ns:
            stamp_ns = self.now_ns
        self.latest_stamp_ns = stamp_ns
        return stamp_ns

    @property
    def is_passed_over_check_due(self) -> bool:
        """Whether the next ask that is placed is compared with those that it passes over (`passed_over.py`)."""
        is_time = self.now >= self.readiness.passed_over_check_at
        return is_time and not self.reservation_index.shares and self.tuning.reservation_delay_s < inf

    @property
    def leaving_deadline(self) -> float:
        """When a victim counts as staying next, or NEVER."""
        return min((one.preempted_at + VICTIMS_LEAVE_MAX_S for one in islice(self.leaving.values(), 1)), default=NEVER)

    def schedule_cleanup(self) -> None:
        """Schedule the removal of empty queues, as long as there are dynamic or draining queues."""
        if self.cleanup_at == NEVER:
            self.cleanup_at = self.now + CLEAN_EVERY_S

    def schedule_quota_check(self) -> None:
        """Schedule the next check for quota preemption."""
        if self.quota_check_at == NEVER and self.config.preemption.is_quota_enabled:
            self.quota_check_at = self.now + QUOTA_LOOK_EVERY_S

    def has(self, application: Application) -> bool:
        """Whether this application runs or is kept as ended."""
        if self.applications.get(application.application_id) is application:
            return True
        return self.ended.get(f"{application.application_id}-{application.finished_ns}") is application

    def keep_ended(self, application: Application) -> None:
        """Keep an ended application for queries; its id is free again."""
        self.ended[f"{application.application_id}-{application.finished_ns}"] = application
        if len(self.ended) > ENDED_MAX:
            self.drop_ended(next(iter(self.ended.values())))

    def drop_ended(self, application: Application) -> None:
        """Drop an ended application."""
        self.ended.pop(f"{application.application_id}-{application.finished_ns}", None)
        self.changes.applications[application.rank] = application

    def keep_rejection(self, rejection: RejectionRecord) -> None:
        """Keep a rejection for queries; it replaces an earlier one of this id."""
        self.rejections.pop(rejection.application_id, None)
        self.rejections[rejection.application_id] = rejection
        self.changes.rejections[rejection.application_id] = None
        if len(self.rejections) > ENDED_MAX:
            self._drop_rejection(next(iter(self.rejections)))

    def _drop_rejection(self, application_id: str) -> None:
        del self.rejections[application_id]
        self.changes.rejections[application_id] = None

    @property
    def next_expiry(self) -> float:
        """When the oldest rejection or ended application expires, or NEVER."""
        ended = [one.finished_ns for one in islice(self.ended.values(), 1)]
        ended += [one.at_ns for one in islice(self.rejections.values(), 1)]
        return min(map(_expires_at, ended), default=NEVER)

    def drop_expired(self) -> list[Application]:
        """Drop expired rejections; return expired applications; of both EXPIRED_AT_ONCE."""
        now = self.now
        rejections = takewhile(lambda one: _expires_at(one.at_ns) <= now, self.rejections.values())
        for rejection in tuple(islice(rejections, EXPIRED_AT_ONCE)):
            self._drop_rejection(rejection.application_id)
        applications = takewhile(lambda one: _expires_at(one.finished_ns) <= now, self.ended.values())
        return list(islice(applications, EXPIRED_AT_ONCE))

    def begin_step(self, now: float) -> None:
        """Begin a step: the following effects have it as their cause."""
        assert not self._effects, "effects of an earlier step are left"
        self.step_number += 1
        if now > self.now:
            self.now, self.now_ns = now, int(now * 1e9)

    def retract_effects(self, unwanted: Callable[[Part], bool]) -> None:
        """Drop effects of this step."""
        self._effects = [effect for effect in self._effects if not unwanted(effect.part)]

    @property
    def event_count(self) -> int:
        """Number of events recorded since `drain_events`."""
        return len(self._events)

    def sort_events(self, first: int, places: Mapping[int, int]) -> None:
        """Sort the events from this index on by the place of their detail, without one first; the sort is stable."""
        self._events[first:] = sorted(self._events[first:], key=lambda event: places.get(event.detail, -1))

    def drain_events(self) -> list[Event]:
        """Return the events recorded since the last call."""
        events, self._events = self._events, []
        return events

    def drain_effects(self) -> list[Effect]:
        """Return the effects since the last call."""
        effects, self._effects = self._effects, []
        return effects


def _expires_at(ended_ns: int) -> float:
    return ended_ns / 1e9 + RETENTION_S
