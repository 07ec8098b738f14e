"""The snapshot format: the structs that a partition is encoded as, in MessagePack, and the references between them.

Every struct is encoded as an array, so the order of its fields is the format, and the names are not. Queues, nodes and
applications are referenced by rank. Allocations are referenced by their position among all encoded allocations:
application by application, and within each the requests, then the allocations, then the swaps. Where order matters, it
is the order of the list.

Sums of amounts, and sort keys made of sums, may have more than 64 bits. MessagePack has no such integers, so they are
encoded as text.

If you add, remove or change a field, or change what it means, increase FORMAT. A worker reads only its own format.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from common import rm_messages
from common.config.model import PartitionConfig
from common.messages import INT64_MAX, INT64_MIN, Resources
from partition_worker.engine.allocation import Allocation, AskShape, Constraint
from partition_worker.engine.application import Application, AppState
from partition_worker.engine.nodes.node_index import Node
from partition_worker.engine.order import Key
from partition_worker.engine.preemption_log import Kind, Victim
from partition_worker.engine.queues.queue import Queue, QueueState
from partition_worker.engine.user_limits import QueueUsage
from partition_worker.engine.user_resolution import User

FORMAT: Final = 2

EncodedAmounts = Mapping[str, int | str]
"""Summed amounts by resource type. A sum beyond 64 bits is encoded as text, as MessagePack has no larger integers."""

EncodedSortKey = tuple[bool | int | float | str | tuple[int | float, ...], ...]
"""A sort key; integers beyond 64 bits are text here too."""

EncodedOrder = list[tuple[int, EncodedSortKey]]
"""The ranks of the items of an order, with their sort keys."""

NeedSnapshot = tuple[tuple[tuple[str, int], ...], str, int]
"""Resources, required node, and the position of an allocation with the same constraint (NO_RANK without one)."""

NO_RANK: Final = -1
"""Stands for a missing rank or position."""


class SnapshotStruct(msgspec.Struct, array_like=True, gc=False):
    """Base of all structs of the format."""


# Scheduling state ---------------------------------------------------------------------------------------------------

WantSnapshot = tuple[NeedSnapshot, bool, bool, bool]


class ShelfSnapshot(SnapshotStruct):
    """A bucket of unschedulable asks of one shape in a leaf queue, with nested buckets for further limits."""

    want: WantSnapshot
    rank: int
    of: int
    closed_by: int
    vain_at: int
    applications: EncodedOrder
    inner: "list[ShelfSnapshot]"


class AsideSnapshot(SnapshotStruct):
    """The unschedulable asks of one leaf queue."""

    leaf: int
    searched_at: int
    brought_back: tuple[int, WantSnapshot] | None
    shelves: list[ShelfSnapshot]


class LineSnapshot(SnapshotStruct):
    """The state-aware application order of one leaf queue."""

    leaf: int
    starting: list[int]
    accepted: EncodedOrder
    turn: int


class ReadinessSnapshot(SnapshotStruct):
    """Which queues and applications are ready, and which asks wait for what."""

    reliefs: int
    touched: list[int]
    touched_applications: list[int]
    ready_children: list[tuple[int, EncodedOrder]]
    ready_applications: list[tuple[int, EncodedOrder]]
    lines: list[LineSnapshot]
    asides: list[AsideSnapshot]
    shelf_ranks: int
    resting: list[tuple[int, EncodedOrder]]
    waits: list[tuple[int, list[tuple[NeedSnapshot, bool, int]]]]
    searched: list[tuple[int, int]]


class SwappableSnapshot(SnapshotStruct):
    """Applications that may have a placeholder to swap."""

    offered: EncodedOrder
    stuck: list[int]
    seen: int


class ReservationSnapshot(SnapshotStruct):
    """A node reserved for an ask."""

    application: int
    ask: str
    node: int
    created: float
    rank: int
    keeps: Resources


class ReservedSnapshot(SnapshotStruct):
    """All reservations, oldest first."""

    reservations: list[ReservationSnapshot]
    by_need: list[int]
    """Ranks of the reservations without a required node, in the order of their ask shapes."""
    nudged: list[int]
    ranks: int
    stale: bool
    seen: int


# Applications -------------------------------------------------------------------------------------------------------


class AllocationSnapshot(SnapshotStruct):
    """An ask, an allocation, or a foreign allocation."""

    key: str
    resources: int
    """Index in `PartitionSnapshot.amounts`: thousands of asks have the same amounts."""
    created_ns: int
    priority: int
    node: int
    tags: dict[str, str]
    task_group: str
    flags: int
    bound_ns: int
    rank: int
    rare: tuple[str, int, float, float] | None
    """The key of the placeholder that it is about to replace, the creation time of the placeholder that it replaced,
    and when the RM was last informed that no node fits, and that no preemption victims exist. None if all are unset.
    """


class GroupSnapshot(SnapshotStruct):
    """An ask group: pending asks with equal resources and constraints."""

    attempted: bool
    failures: list[tuple[str, int, float]]
    asks: list[int]
    """Indexes in the application's requests."""


class TaskGroupSnapshot(SnapshotStruct):
    """A task group of a gang."""

    name: str
    minimum: EncodedAmounts
    count: int
    replaced: int
    timed_out: int
    waiting: int
    free: list[str]


class ApplicationSnapshot(SnapshotStruct):
    """An application, ended or not."""

    application_id: str
    rank: int
    user: int
    """Index in `PartitionSnapshot.submitters`."""
    queue: int
    submitted_ns: int
    tags: dict[str, str]
    placeholder_ask: Resources
    state: AppState
    state_log: list[tuple[int, AppState]]
    lowest_rank: int
    highest_rank: int
    """`lowest_rank` and `highest_rank` bound the ranks of its pending asks; they order asks of equal age."""
    requests: list[AllocationSnapshot]
    groups: list[GroupSnapshot]
    allocations: list[AllocationSnapshot]
    swapping: list[AllocationSnapshot]
    pending: EncodedAmounts
    allocated: EncodedAmounts
    allocated_placeholder: EncodedAmounts
    max_allocated: EncodedAmounts
    hard: bool
    placeholder_timeout_s: float
    task_groups: list[TaskGroupSnapshot]
    history: list[tuple[str, str, EncodedAmounts]]
    started_ns: int
    finished_ns: int
    alarms: list[tuple[str, int, float]]
    """Kind, number and time of each timer."""
    held_by_queue: bool
    held_by_quota: bool
    back_off_until: float
    packed: bool
    """Whether its nodes are tried first, and one has been searched for."""


# Nodes --------------------------------------------------------------------------------------------------------------


class NodeSnapshot(SnapshotStruct):
    """A node."""

    node_id: str
    rank: int
    capacity: Resources
    attributes: dict[str, str]
    schedulable: bool
    guarded: bool
    allocated: EncodedAmounts
    occupied: EncodedAmounts
    available: EncodedAmounts
    allocations: list[int]
    foreign: list[AllocationSnapshot]


class FleetSnapshot(SnapshotStruct):
    """All nodes, in order of arrival."""

    nodes: list[NodeSnapshot]
    total: EncodedAmounts
    ranks: int
    guarded: bool
    lineups: list[tuple[str, list[tuple[int, float]]]]
    """By policy, nodes with the score that each had when it was last sorted, which may not be its present one."""


# Queues -------------------------------------------------------------------------------------------------------------


AclSnapshot = tuple[bool, list[str], list[str]]

TemplateSnapshot = tuple[int, dict[str, str], Resources | None, Resources | None]


TriedSnapshot = tuple[tuple[tuple[str, int], ...], str, dict[str, str] | None, str, int, float]
"""Resources, required node, tags if they carry constraints, the ask key if the RM evaluates predicates, priority, and
the time of the preemption attempt.
"""


class QueueSnapshot(SnapshotStruct):
    """A queue, or a removed queue that an ended application still refers to."""

    path: str
    rank: int
    parent: int
    leaf: bool
    managed: bool
    state: QueueState
    draining_since_ns: int
    draining_told_ns: int
    maximum: EncodedAmounts | None
    guaranteed: Resources | None
    once_limited: list[str]
    once_guaranteed: list[str]
    properties: dict[str, str]
    template: TemplateSnapshot | None
    submit_acl: AclSnapshot
    admin_acl: AclSnapshot
    admin_text: str
    max_applications: int
    allocated: EncodedAmounts
    pending: EncodedAmounts
    preempting: EncodedAmounts
    kept: EncodedAmounts
    lacking: EncodedAmounts
    quota_preemption_at: float
    running: int
    preemption_window: float
    preemption_attempts: int
    preemption_tried: list[TriedSnapshot]
    allocating: list[str]
    applications: list[int]
    reached: list[tuple[AppState, int]]
    bound: int
    released: int


class TreeSnapshot(SnapshotStruct):
    """All queues, each after its parent."""

    queues: list[QueueSnapshot]
    gone: list[QueueSnapshot]
    next_rank: int


class LevelSnapshot(SnapshotStruct):
    """The usage of one user or group in one queue."""

    path: str
    rank: int
    used: EncodedAmounts
    applications: list[str]


class UsageSnapshot(SnapshotStruct):
    """The usage of all users and groups."""

    users: list[tuple[str, list[LevelSnapshot]]]
    groups: list[tuple[str, list[LevelSnapshot]]]
    accounts: list[tuple[int, str | None, bool]]
    """The application's rank, the group that is charged, and whether the application is counted."""
    idle: list[str]
    ranks: int


class PreemptionSnapshot(SnapshotStruct):
    """One recorded preemption."""

    at: float
    kind: Kind
    queue: str
    application_id: str
    ask_key: str
    node_id: str
    victims: tuple[Victim, ...]
    victim_count: int
    resources: EncodedAmounts
    lost: EncodedAmounts


class PreemptionsSnapshot(SnapshotStruct):
    """Recorded preemptions, and preemption cooldowns."""

    entries: list[PreemptionSnapshot]
    pause_until: float
    paused_for: str
    turned_away: list[str]
    wins: list[tuple[str, str, float, float]]


PairSnapshot = tuple[str, str, bool]
"""Ask key, node ID, and whether the question is about an allocation (else about a reservation)."""

QuestionSnapshot = tuple[int, list[tuple[PairSnapshot, int]], float]
"""Number, pairs with the rank of the node (NO_RANK if the node has changed), and the deadline."""


class VerdictsSnapshot(SnapshotStruct):
    """Predicate results from the RM, the question in flight, and those still to be sent."""

    deadline: float
    said: list[tuple[str, list[tuple[str, bool, str, int | None, int]]]]
    """By ask: node, whether it is about an allocation, refusal, rank of the node (NO_RANK if the node has changed, None
    if that does not matter), and round.
    """
    wanted: list[tuple[str, list[tuple[PairSnapshot, int]]]]
    turned_away: list[str]
    question: QuestionSnapshot | None
    late: QuestionSnapshot | None
    numbers: int
    silences: int
    paused_until: float
    forget: list[tuple[float, int, tuple[str, ...]]]


class PredicatesSnapshot(SnapshotStruct):
    """The predicate state that cannot be computed again."""

    asks_manager: bool
    complained: list[str]
    in_vain: list[tuple[NeedSnapshot, bool]]
    verdicts: VerdictsSnapshot


class WaitingSnapshot(SnapshotStruct):
    """Submissions that wait for the group lookup of their user."""

    users: list[str]
    submissions: list[rm_messages.AddApplicationRequest]
    held: list[tuple[str, list[tuple[rm_messages.Allocation | None, rm_messages.AllocationRelease | None]]]]


class CountersSnapshot(SnapshotStruct):
    """The partition's counters."""

    allocated: int
    released: int
    rejected: int
    errors: int
    submitted: int
    refused: int
    decommissioned: int
    reached: list[tuple[str, AppState, int]]


RejectionSnapshot = tuple[str, str, str, list[str], int, str]

Learned = tuple[str, list[str] | None, float]
"""A user, the user's groups (None if the lookup failed), and the time of the lookup."""


ReportSnapshot = tuple[tuple[int, int, int], list[str], list[str], list[str]]
"""State sync in progress: counts of reported nodes, applications and allocations, then their IDs."""


class PartitionSnapshot(SnapshotStruct):
    """The whole partition."""

    config: PartitionConfig
    resolver: str
    created_ns: int
    step: int
    now: float
    idle: bool
    tracking: bool
    retired: bool
    clean_at: float
    quota_look_at: float
    outstanding: tuple[float, int]
    """When the next search for asks that need a larger cluster is due, and how many applications it has examined."""
    latest_stamp_ns: int
    application_ranks: int
    alarm_numbers: int
    counters: CountersSnapshot
    amounts: list[Resources]
    submitters: list[tuple[str, list[str]]]
    tree: TreeSnapshot
    fleet: FleetSnapshot
    applications: list[ApplicationSnapshot]
    ended: list[ApplicationSnapshot]
    rejections: list[RejectionSnapshot]
    reserved: ReservedSnapshot
    usage: UsageSnapshot
    readiness: ReadinessSnapshot
    swappable: SwappableSnapshot
    preemptions: PreemptionsSnapshot
    predicates: PredicatesSnapshot
    learned: list[Learned]
    waiting: WaitingSnapshot
    report: ReportSnapshot | None


# Amounts, sort keys and references ------------------------------------------------------------------------------------


def encode_amounts(amounts: Mapping[str, int]) -> EncodedAmounts:
    """Encode summed amounts."""
    for n in amounts.values():
        if not INT64_MIN <= n <= INT64_MAX:
            return {kind: n if INT64_MIN <= n <= INT64_MAX else str(n) for kind, n in amounts.items()}
    return amounts


def decode_amounts(written: EncodedAmounts) -> Resources:
    """Decode summed amounts."""
    return {kind: int(n) for kind, n in written.items()}


def encode_sort_key(place: Key) -> EncodedSortKey:
    """Encode a sort key."""
    return tuple(str(part) if isinstance(part, int) and not INT64_MIN <= part <= INT64_MAX else part for part in place)


def decode_sort_key(written: EncodedSortKey) -> Key:
    """Decode a sort key. A text is an integer: no encoded sort key holds text of its own."""
    return tuple(int(part) if isinstance(part, str) else part for part in written)


class ReferenceEncoder:
    """Numbers the objects of a partition while it is encoded."""

    def __init__(self, nodes: Mapping[str, int]) -> None:
        self.nodes = nodes
        """Node ranks by node ID."""
        self.places: dict[Allocation, int] = {}
        self.amounts: dict[tuple[tuple[str, int], ...], int] = {}
        self.submitters: dict[User, int] = {}
        self._known: dict[int, int] = {}  # by id() of shared amounts, which outlive this encoder
        self._sources: dict[Constraint, int] = {}

    def place(self, one: Allocation) -> None:
        """Assign the next position to an allocation (foreign allocations have none)."""
        at = self.places[one] = len(self.places)
        if one.constraint is not None:
            self._sources.setdefault(one.constraint, at)

    def amount(self, resources: Resources) -> int:
        """The index of these amounts, whose order of types matters, among all encoded amounts."""
        at = self._known.get(id(resources))
        if at is None:
            at = self.amounts.setdefault(tuple(resources.items()), len(self.amounts))
            self._known[id(resources)] = at
        return at

    def submitter(self, user: User) -> int:
        return self.submitters.setdefault(user, len(self.submitters))

    def shape(self, shape: AskShape) -> NeedSnapshot | None:
        """Encode an ask shape; None if no encoded allocation has its constraint any more."""
        source = NO_RANK if shape.constraint is None else self._sources.get(shape.constraint)
        return None if source is None else (shape.amounts, shape.required_node, source)


class ReferenceDecoder:
    """Resolves references while a partition is decoded."""

    def __init__(self) -> None:
        self.amounts: list[Resources] = []
        self.submitters: list[User] = []
        self.queues: dict[int, Queue] = {}
        self.nodes: dict[int, Node] = {}
        self.applications: dict[int, Application] = {}
        self.allocations: list[Allocation] = []
        self.levels: dict[int, QueueUsage] = {}
        self._needs: dict[NeedSnapshot, AskShape] = {}

    def shape(self, memory: NeedSnapshot) -> AskShape:
        """Decode an ask shape; equal ones share one object."""
        known = self._needs.get(memory)
        if known is None:
            amounts, required_node, source = memory
            constraint = None if source == NO_RANK else self.allocations[source].constraint
            known = self._needs[memory] = AskShape(amounts, required_node, constraint)
        return known

    def level(self, rank: int) -> QueueUsage:
        """The usage level of this rank, or an empty one if it was removed: nothing reads that again."""
        return self.levels.get(rank) or QueueUsage("", rank, None)
