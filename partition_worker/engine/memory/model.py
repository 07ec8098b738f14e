"""What is written of a partition, as plain values: this file is the format.

Things refer to each other by what never changes: queues, nodes and applications by their rank, allocations by their
place among all that are written (application by application, and in each of them requests, allocations, swaps). Where
an order means something it is that of the list.

Whoever adds, drops or changes a field here, or what one means, counts FORMAT up: nobody reads another one.

Not here: how a thing becomes its memory and the other way round (a file for each area).
"""

from typing import Final

from common.config.model import PartitionConfig
from common.messages import Resources
from common.rm_messages import AddApplicationRequest, Allocation, AllocationRelease
from partition_worker.engine.applications.states import AppState
from partition_worker.engine.memory.orders import ReadinessMemory, ReservedMemory, SwappableMemory
from partition_worker.engine.memory.values import Memory, NeedMemory, Sums
from partition_worker.engine.nodes.scoring import NodeSort
from partition_worker.engine.preemptions import Kind, Victim
from partition_worker.engine.queues.queue import QueueState

FORMAT: Final = 2


class AllocationMemory(Memory):
    """An ask, an allocation, or a foreign one."""

    key: str
    resources: int
    """Its place in `PartitionMemory.amounts`: thousands have the same."""
    created_ns: int
    priority: int
    node: int
    tags: dict[str, str]
    task_group: str
    flags: int
    bound_ns: int
    rank: int
    rare: tuple[str, int, float, float] | None
    """The key of the placeholder whose place it is about to take, when that was created whose place it took, and when
    it was told last that no node would take it, and that nobody can make room; None if nothing of that is so.
    """


class GroupMemory(Memory):
    """Asks of one kind."""

    attempted: bool
    failures: list[tuple[str, int, float]]
    asks: list[int]
    """Their places among the requests."""


class TaskGroupMemory(Memory):
    """A task group of a gang."""

    name: str
    minimum: Sums
    count: int
    replaced: int
    timed_out: int
    waiting: int
    free: list[str]


class ApplicationMemory(Memory):
    """An application, ended or not."""

    application_id: str
    rank: int
    user: int
    """The place in `PartitionMemory.submitters`."""
    queue: int
    submitted_ns: int
    tags: dict[str, str]
    placeholder_ask: Resources
    state: AppState
    state_log: list[tuple[int, AppState]]
    lowest_rank: int
    highest_rank: int
    """Of its pending asks, among those of equal age."""
    requests: list[AllocationMemory]
    groups: list[GroupMemory]
    allocations: list[AllocationMemory]
    swapping: list[AllocationMemory]
    pending: Sums
    allocated: Sums
    allocated_placeholder: Sums
    max_allocated: Sums
    hard: bool
    placeholder_timeout_s: float
    task_groups: list[TaskGroupMemory]
    history: list[tuple[str, str, Sums]]
    started_ns: int
    finished_ns: int
    alarms: list[tuple[str, int, float]]
    """What for, the number, and when."""
    held_by_queue: bool
    held_by_quota: bool
    back_off_until: float
    packed: bool
    """Whether it wants its nodes to be tried first, and has looked for one."""


class NodeMemory(Memory):
    """A node."""

    node_id: str
    rank: int
    capacity: Resources
    attributes: dict[str, str]
    schedulable: bool
    guarded: bool
    allocated: Sums
    occupied: Sums
    available: Sums
    allocations: list[int]
    foreign: list[AllocationMemory]


class FleetMemory(Memory):
    """All nodes, in order of arrival."""

    nodes: list[NodeMemory]
    total: Sums
    ranks: int
    guarded: bool
    lineups: list[tuple[NodeSort, list[tuple[int, float]]]]
    """By policy, nodes with their scores: those of when each moved last, not of now."""


AclMemory = tuple[bool, list[str], list[str]]

TemplateMemory = tuple[int, dict[str, str], Resources | None, Resources | None]


TriedMemory = tuple[tuple[tuple[str, int], ...], str, dict[str, str] | None, str, int, float]
"""Shape, required node, tags if they demand something, the ask if the resource manager is asked, priority, and when."""


class QueueMemory(Memory):
    """A queue, also one that is gone and that an ended application remembers."""

    path: str
    rank: int
    parent: int
    leaf: bool
    managed: bool
    state: QueueState
    draining_since_ns: int
    draining_told_ns: int
    maximum: Sums | None
    guaranteed: Resources | None
    once_limited: list[str]
    once_guaranteed: list[str]
    properties: dict[str, str]
    template: TemplateMemory | None
    submit_acl: AclMemory
    admin_acl: AclMemory
    admin_text: str
    max_applications: int
    allocated: Sums
    pending: Sums
    preempting: Sums
    kept: Sums
    lacking: Sums
    quota_preemption_at: float
    running: int
    preemption_window: float
    preemption_attempts: int
    preemption_tried: list[TriedMemory]
    allocating: list[str]
    applications: list[int]
    reached: list[tuple[AppState, int]]
    bound: int
    released: int


class TreeMemory(Memory):
    """All queues, each behind its parent."""

    queues: list[QueueMemory]
    gone: list[QueueMemory]
    next_rank: int


class LevelMemory(Memory):
    """What one user or group has in one queue."""

    path: str
    rank: int
    used: Sums
    applications: list[str]


class UsageMemory(Memory):
    """What users and groups have."""

    users: list[tuple[str, list[LevelMemory]]]
    groups: list[tuple[str, list[LevelMemory]]]
    accounts: list[tuple[int, str | None, bool]]
    """The application, the group that is charged, and whether it counts."""
    idle: list[str]
    ranks: int


class PreemptionMemory(Memory):
    """An entry of the ledger of preemptions."""

    at: float
    kind: Kind
    queue: str
    application_id: str
    ask_key: str
    node_id: str
    victims: tuple[Victim, ...]
    victim_count: int
    resources: Sums
    lost: Sums


class PreemptionsMemory(Memory):
    """The ledger of preemptions, and truces."""

    entries: list[PreemptionMemory]
    pause_until: float
    paused_for: str
    turned_away: list[str]
    wins: list[tuple[str, str, float, float]]


PairMemory = tuple[str, str, bool]
"""An ask, a node, and whether it is to run there."""

QuestionMemory = tuple[int, list[tuple[PairMemory, int]], float]
"""Number, pairs with the rank of the node if it is as it was, and the deadline."""


class VerdictsMemory(Memory):
    """What the resource manager said, is asked, and will be asked."""

    deadline: float
    said: list[tuple[str, list[tuple[str, bool, str, int | None, int]]]]
    """By ask: node, whether to run there, refusal, rank of the node if it is as it was (None if that does not matter),
    and round.
    """
    wanted: list[tuple[str, list[tuple[PairMemory, int]]]]
    turned_away: list[str]
    question: QuestionMemory | None
    late: QuestionMemory | None
    numbers: int
    silences: int
    paused_until: float
    forget: list[tuple[float, int, tuple[str, ...]]]


class PredicatesMemory(Memory):
    """What predicates have answered, as far as it has to be known again."""

    asks_manager: bool
    complained: list[str]
    in_vain: list[tuple[NeedMemory, bool]]
    verdicts: VerdictsMemory


class WaitingMemory(Memory):
    """Submissions whose user is being looked up."""

    users: list[str]
    submissions: list[AddApplicationRequest]
    held: list[tuple[str, list[tuple[Allocation | None, AllocationRelease | None]]]]


class CountersMemory(Memory):
    """What has happened so far."""

    allocated: int
    released: int
    rejected: int
    errors: int
    submitted: int
    refused: int
    decommissioned: int
    reached: list[tuple[str, AppState, int]]


RejectionMemory = tuple[str, str, str, list[str], int, str]

Learned = tuple[str, list[str] | None, float]
"""A user, the groups (None if the look-up failed), and when that was learned."""


ReportMemory = tuple[tuple[int, int, int], list[str], list[str], list[str]]
"""How many nodes, applications and allocations were mentioned, and which."""


class PartitionMemory(Memory):
    """Everything."""

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
    """When asks are looked for that only a larger cluster would help, and how many applications were looked at."""
    latest_stamp_ns: int
    application_ranks: int
    alarm_numbers: int
    counters: CountersMemory
    amounts: list[Resources]
    submitters: list[tuple[str, list[str]]]
    tree: TreeMemory
    fleet: FleetMemory
    applications: list[ApplicationMemory]
    ended: list[ApplicationMemory]
    rejections: list[RejectionMemory]
    reserved: ReservedMemory
    usage: UsageMemory
    readiness: ReadinessMemory
    swappable: SwappableMemory
    preemptions: PreemptionsMemory
    predicates: PredicatesMemory
    learned: list[Learned]
    waiting: WaitingMemory
    report: ReportMemory | None
