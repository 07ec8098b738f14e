"""A queue: its settings, exported priority, count of running applications, sums, headroom, and fair share.

One class serves parents and leaves, because a configuration may turn one into the other. Most methods charge or check a
leaf and every queue above it; they cost the depth of the tree. Limits of users and room on nodes are separate.
Configuration, edges and lookup are in `tree.py`. A property that cannot be parsed means the default; `common/config`
reports it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from yunishard.common.config.acl import Acl
from yunishard.common.config.model import (
    parse_allocation_batch,
    parse_backoff_attempts,
    parse_delay,
    parse_priority_offset,
)
from yunishard.common.messages.kinds import Resources
from yunishard.common.names import RECOVERY_QUEUE
from yunishard.common.node_sort_policies import parse_node_choice
from yunishard.common.resources import NOTHING, Limit, add_to, less, prune, take_from, tightest
from yunishard.partition_worker.engine.allocation import AskShape
from yunishard.partition_worker.engine.amounts import Amounts, Sum, add, find_excess, limit_list, name_types, take
from yunishard.partition_worker.engine.durable_records import OperatorMark, Template
from yunishard.partition_worker.engine.sorted_items import NO_SHARES, Item, Key, Shares, SortedItems, SortKey
from yunishard.partition_worker.engine.user_resolution import User

ApplicationSort = Literal["fifo", "fair", "stateaware"]
PreemptionPolicy = Literal["default", "fence", "disabled"]

# Policies -----------------------------------------------------------------------------------------------------------

NODE_SORT: Final = "node.sort.policy"
ALLOCATION_BATCH: Final = "allocation.batch"
"""A property of queues, and a tag of applications with the same meaning."""

POLICIES_MAX: Final = 1024
"""Cached parse results: thousands of queues have equal properties."""

PREEMPTION_DELAY_S: Final = 30.0
PREEMPTION_COOLDOWN_S: Final = 300.0
BACK_OFF_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Policies:
    """The parsed properties of one queue."""

    application_sort: ApplicationSort = "fifo"
    priority_sort: bool = True
    priority_fence: bool = False
    priority_offset: int = 0
    preemption: PreemptionPolicy = "default"
    preemption_delay_s: float = PREEMPTION_DELAY_S
    preemption_cooldown_s: float = PREEMPTION_COOLDOWN_S
    """The first cooldown of the queue towards a queue with which it has traded places (`preemption_log.py`)."""
    quota_preemption_delay_s: float = 0.0
    """0 disables it."""
    back_off_after: int = 0
    """Failed asks of an application after which it backs off; 0 is never."""
    back_off_s: float = BACK_OFF_S
    node_sort: str | None = None
    """The node sort policy; None is that of the partition."""
    allocation_batch: int = 1
    """Asks of one group that an application may allocate in a row."""

    def export_priority(self, priority: int) -> int:
        """Return the priority that the parent of the queue sees. It is not cut to 32 bits: offsets add up."""
        return self.priority_offset if self.priority_fence else priority + self.priority_offset


def parse_policies(properties: Mapping[str, str], *, leaf: bool) -> Policies:
    """Parse properties; some only apply to a leaf."""
    return _read(tuple(properties.items()), leaf=leaf)


@lru_cache(POLICIES_MAX)
def _read(items: tuple[tuple[str, str], ...], *, leaf: bool) -> Policies:
    properties = dict(items)
    sort = properties.get("application.sort.policy", "")
    preemption = properties.get("preemption.policy", "").lower()
    return Policies(
        application_sort="fair" if sort == "fair" else "stateaware" if sort == "stateaware" else "fifo",
        priority_sort=properties.get("application.sort.priority", "").lower() != "disabled",
        priority_fence=properties.get("priority.policy", "").lower() == "fence",
        priority_offset=parse_priority_offset(properties.get("priority.offset", "")) or 0,
        preemption="fence" if preemption == "fence" else "disabled" if preemption == "disabled" else "default",
        preemption_delay_s=(parse_delay(properties.get("preemption.delay", "")) if leaf else None)
        or PREEMPTION_DELAY_S,
        preemption_cooldown_s=parse_delay(properties.get("preemption.cooldown", "")) or PREEMPTION_COOLDOWN_S,
        quota_preemption_delay_s=parse_delay(properties.get("quota.preemption.delay", "")) or 0.0,
        back_off_after=parse_backoff_attempts(properties.get("application.unschedasks.backoff", "")) or 0,
        back_off_s=parse_delay(properties.get("application.unschedasks.backoff.delay", "")) or BACK_OFF_S,
        node_sort=parse_node_choice(properties.get(NODE_SORT, "")),
        allocation_batch=parse_allocation_batch(properties.get(ALLOCATION_BATCH, "")) or 1,
    )


def inherit_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that a configured queue passes on to its children."""
    passed = dict(properties)
    if "priority.policy" in passed:
        passed["priority.policy"] = "default"
    if "priority.offset" in passed:
        passed["priority.offset"] = "0"
    if passed.get("preemption.policy", "disabled").lower() != "disabled":
        passed["preemption.policy"] = "default"
    return passed


# Queues ---------------------------------------------------------------------------------------------------------------


class Tally:
    """A bag of integers and its maximum. Removing the maximum looks at each distinct value; there are few."""

    __slots__ = ("_counts", "highest")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.highest: int | None = None
        """The largest number, or None if the bag is empty."""

    def exchange(self, old: int | None, new: int | None) -> None:
        """Remove one `old` and add one `new`; None is no number."""
        if old is not None:
            self._counts[old] -= 1
            if not self._counts[old]:
                del self._counts[old]
        if new is not None:
            self._counts[new] += 1
        self.highest = max(self._counts) if self._counts else None


QueueState = Literal["Active", "Draining"]

NOTHING_PENDING: Final = -(2**31)
"""The priority of a queue or application without pending asks."""


ONCE_MAX: Final = 100
"""Resource types of earlier limits of a queue, and of earlier guarantees, whose metric series stay; RMs choose those of
dynamic queues.
"""


class Queue(Item):
    """One queue. Its sums are those of its children and its own applications.

    A leaf has no children and a parent no applications, except after a reconfiguration that turned one into the other,
    until what it had ends.
    """

    def __init__(self, path: str, parent: "Queue | None", rank: int, *, leaf: bool, managed: bool) -> None:
        super().__init__(rank)  # in order of creation
        self.path = path
        """Lower case, dotted, starting with `root`."""
        self.parent = parent
        self.leaf = leaf
        self.managed = managed
        """Whether the configuration defines it; otherwise placement created it."""
        self.state: QueueState = "Active"
        self.draining_since_ns: int = 0
        """When it started draining, in Unix nanoseconds; 0 if it does not."""
        self.draining_told_ns: int = 0
        """When its draining was last logged; 0 if it does not drain."""
        self.stop: OperatorMark | None = None
        """Set if an operator stopped it (`Tree.stops`): it and the queues below it take no new applications, and get
        nothing new.
        """
        self.once_limited: dict[str, None] = {}
        """Types that its maximum names, or ever named."""
        self.once_guaranteed: dict[str, None] = {}
        """Types that its guarantee names, or ever named."""
        self.properties: dict[str, str] = {}
        self.policies = Policies()
        self.template: Template | None = None
        self.submit_acl = Acl()
        self.admin_acl = Acl()
        self.admin_text: str = ""
        """The admin ACL as configured."""
        self.max_applications: int = 0
        """Applications that may run at once below it; 0 is unlimited."""

        self.allocated_sum: Sum = []
        self.pending_sum: Sum = []
        self.allocated_types: int = 0
        self.pending_types: int = 0
        """The types that either sum ever had, as bits: their metric series stay when the sum is 0 again."""
        self._maximum: Limit | None = None
        self.limits: Sum | None = None
        """Its maximum by type."""
        self._guaranteed: Resources | None = None
        self._fair_maximum: Limit = {}
        self.guarantees: Sum = []
        """Its guarantee by type."""
        self._entitlements: Sum | None = None
        """The list of `entitlements`; None until it is needed."""
        self.preempting: Resources = {}
        """Allocations whose release the RM was asked for by preemption, and has not confirmed."""
        self.kept: Resources = {}
        """Room kept for asks below it that preempted, or that were passed over for too long; other asks do not get it.
        """
        self.lacking: Resources = {}
        """Its guarantee deficit: how far preemptions pushed it below its guarantee (`preemption_log.py`)."""
        self.quota_preemption_at: float = 0.0
        """When quota preemption brings it down to its maximum, in Unix seconds; 0 is never."""
        self.reported_excess: Resources = {}
        """The excess in the latest event about that; an equal one without victims is not reported again."""
        self.last_bound_ns: int = 0
        """The start of the latest allocation of its own applications, in Unix nanoseconds, as far as it is known: after
        a recovery, of the latest that still runs. 0 if there is none.
        """
        self.running: int = 0
        """Applications below it that are Starting or Running."""
        self.preemption_window: float = 0.0
        """Start of the window in which preemption attempts of this leaf are counted, in Unix seconds."""
        self.preemption_attempts: int = 0
        """Attempts in this window, including those refused by the limit."""
        self.preemption_tried: dict[tuple[AskShape, int], float] = {}
        """The last search for victims without result, by ask shape and priority."""
        self.allocating: dict[str, None] = {}
        """Accepted applications below it that have a reservation or placeholder: they count as running for the limit.
        """
        self.priorities = Tally()
        """The highest ask priority of each of its applications with asks."""
        self.child_priorities = Tally()
        """The exported priority of each of its children with asks."""

        self.children: dict[str, Queue] = {}
        """By the last part of the path."""
        self.applications: dict[str, None] = {}
        """Ids of its applications, in order of arrival. Applications of a parent get nothing new."""
        self.ready_children: SortedItems[Queue] = SortedItems()
        """Children with pending asks worth trying, in sort order."""
        self.ready_applications: SortedItems[Item] = SortedItems()
        """Applications of a leaf with asks worth trying, in sort order."""
        self.is_parked: bool = False
        """Whether it is with the parked queues of its parent instead (`ParkedQueues`)."""

        self.reached: Counter[str] = Counter()
        """How often its applications entered a state; refused ones count for the queue they asked for."""
        self.bound: int = 0
        """Allocations of its applications that the RM reported with a node."""
        self.released: int = 0
        """Allocations of its applications that the RM released or that ended with their node."""
        self._ancestry: tuple[Queue, ...] = (self,) if parent is None else (self, *parent.ancestry())

    @property
    def allocated(self) -> Resources:
        """All native allocations below it."""
        return name_types(self.allocated_sum)

    @property
    def pending(self) -> Resources:
        """All asks below it without a node."""
        return name_types(self.pending_sum)

    @property
    def maximum(self) -> Limit | None:
        """None is no maximum. The root's is the cluster size, where a missing type is 0."""
        return self._maximum

    @maximum.setter
    def maximum(self, maximum: Limit | None) -> None:
        self._maximum = maximum
        self.limits = None if maximum is None else limit_list(maximum)

    @property
    def guaranteed(self) -> Resources | None:
        return self._guaranteed

    @guaranteed.setter
    def guaranteed(self, guaranteed: Resources | None) -> None:
        self._guaranteed, self._entitlements = guaranteed, None
        self.guarantees = limit_list(guaranteed or {})

    @property
    def fair_maximum(self) -> Limit:
        """The default entitlement for shares (`refresh_fair_maximum`)."""
        return self._fair_maximum

    @fair_maximum.setter
    def fair_maximum(self, maximum: Limit) -> None:
        self._fair_maximum, self._entitlements = maximum, None

    @property
    def entitlements(self) -> Sum:
        """The amounts by which its share is measured: of each type its guarantee, or else the default."""
        if self._entitlements is None:
            self._entitlements = limit_list({**self._fair_maximum, **(self._guaranteed or {})})
        return self._entitlements

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def draining(self) -> bool:
        return self.state == "Draining"

    @property
    def stopped(self) -> bool:
        return self.stop is not None

    @property
    def status(self) -> str:
        """Active, Draining or Stopped. A draining queue that was stopped before counts as draining."""
        return "Stopped" if self.stopped and not self.draining else self.state

    def find_stopped(self) -> "Queue | None":
        """The lowest stopped queue on the path; None if no queue of the path is stopped."""
        return next((level for level in self.ancestry() if level.stop is not None), None)

    @property
    def state_aware(self) -> bool:
        """Whether it starts one application at a time (`StateAwareTurns` in `ready_queues.py`)."""
        return self.policies.application_sort == "stateaware"

    @property
    def priority(self) -> int:
        """The priority exported to its parent: that of its children, and of its applications if it is a leaf."""
        highest = self.child_priorities.highest
        if self.leaf:
            own = self.priorities.highest
            highest = own if highest is None else highest if own is None else max(own, highest)
        if highest is None or highest == NOTHING_PENDING:
            return NOTHING_PENDING
        policies = self.policies
        if policies.priority_fence:
            return policies.priority_offset
        if policies.priority_offset:
            return max(-(2**31), min(2**31 - 1, highest + policies.priority_offset))
        return highest

    @property
    def population(self) -> int:
        """The number of applications in it and below it."""
        return len(self.applications) + sum(child.population for child in self.children.values())

    def entitle(self, *, maximum: Limit | None, guaranteed: Resources | None) -> None:
        """Set maximum and guarantee. Sums and orders are not updated."""
        self.maximum, self.guaranteed = maximum, guaranteed
        for once, amounts in ((self.once_limited, maximum), (self.once_guaranteed, guaranteed)):
            once.update(dict.fromkeys(amounts or ()))
            for kind in tuple(once)[:-ONCE_MAX]:
                del once[kind]

    def ancestry(self) -> "tuple[Queue, ...]":
        """The queue, then each parent up to the root; a queue never changes its parent."""
        if self._ancestry or self.parent is None:
            return self._ancestry
        return (self, *self.parent.ancestry())

    def leave_tree(self) -> None:
        """Discard the path of a queue that was removed: it contains the queue, and a worker never frees cycles. Ended
        applications may still ask for it.
        """
        self._ancestry = ()

    def list_below(self) -> "Iterator[Queue]":
        """Yield the queue, then all below it, each before its children."""
        yield self
        for child in self.children.values():
            yield from child.list_below()

    def admits_submission(self, user: User) -> bool:
        """Whether the user may submit: by an ACL of this queue or of one above it."""
        return self.find_grant(user) is not None

    def find_grant(self, user: User) -> "Grant | None":
        """Return the lowest ACL that lets the user submit; None if none does."""
        if self.path == RECOVERY_QUEUE:
            return None
        for level in self.ancestry():
            if level.submit_acl.allows(user.name, user.groups):
                return Grant(level, "submit", level.submit_acl)
            if level.admin_acl.allows(user.name, user.groups):
                return Grant(level, "admin", level.admin_acl)
        return None

    def admits_administration(self, user: User) -> bool:
        """Whether the user may administer: by an admin ACL of this queue or of one above it."""
        return any(level.admin_acl.allows(user.name, user.groups) for level in self.ancestry())

    # Priorities -----------------------------------------------------------------------------------------------------

    def update_priority(self, before: int) -> None:
        """Pass on that the policies or type of a queue changed; it exported the priority `before`."""
        _pass_up(self.parent, before, self.priority)

    def exchange_priority(self, old: int | None, new: int | None) -> None:
        """Replace the highest ask priority of an application; None is no asks."""
        if old == new:
            return
        before = self.priority
        self.priorities.exchange(old, new)
        _pass_up(self.parent, before, self.priority)

    # Running applications -------------------------------------------------------------------------------------------

    def may_start(self, application_id: str) -> bool:
        """Whether the application may start: no queue on the path is at its limit, or the application counts already.

        An accepted application counts as running once it has a reservation or placeholder; otherwise any number could
        start at once.
        """
        return application_id in self.allocating or self.has_opening()

    def has_opening(self) -> bool:
        """Whether one more application may start."""
        return self.find_queue_without_opening() is None

    def find_queue_without_opening(self) -> "Queue | None":
        """The lowest queue on the path below which no further application may start; None if there is none."""
        for level in self.ancestry():
            if 0 < level.max_applications <= level.running + len(level.allocating):
                return level
        return None

    def is_limited(self) -> bool:
        """Whether any queue on the path limits running applications."""
        return any(level.max_applications for level in self.ancestry())

    def count_allocating(self, application_id: str) -> None:
        """Count an accepted application with a reservation or placeholder."""
        for level in self.ancestry():
            level.allocating[application_id] = None

    def discount_allocating(self, application_id: str) -> bool:
        """Stop counting it as accepted; returns whether it was counted."""
        if application_id not in self.allocating:
            return False
        for level in self.ancestry():
            del level.allocating[application_id]
        return True

    def add_running(self, change: int) -> None:
        """Count applications that entered Starting or Running (1), or left them (-1)."""
        for level in self.ancestry():
            level.running += change
            assert level.running >= 0, level.path

    # Resources ------------------------------------------------------------------------------------------------------

    def has_room(self, amounts: Amounts, kept: Resources = NOTHING, end: "Queue | None" = None) -> bool:
        """Whether an ask of these amounts fits all queues of the path, below `end` if given."""
        return self.find_full(amounts, kept, end) is None

    def find_full(self, amounts: Amounts, kept: Resources = NOTHING, end: "Queue | None" = None) -> "Queue | None":
        """Return the lowest queue of the path, below `end` if given, that an ask of this shape does not fit: it would
        exceed the maximum, or take room that is kept for other asks. `kept` is the room kept for this ask.
        """
        queue: Queue | None = self
        while queue is not end:
            assert queue is not None, "`end` is above"
            limits = queue.limits
            if limits is not None and (
                find_excess(queue.allocated_sum, amounts, limits) >= 0
                or (queue.kept and not queue.leaves_kept(amounts, kept))
            ):
                return queue
            queue = queue.parent
        return None

    def may_ever_have_room(self, amounts: Amounts, end: "Queue | None" = None) -> bool:
        """Whether an ask of this shape would fit if the queues of the path, below `end` if given, were empty."""
        levels = self.ancestry() if end is None else self.ancestry()[: self.ancestry().index(end)]
        return all(level.limits is None or find_excess([], amounts, level.limits) < 0 for level in levels)

    def leaves_kept(self, amounts: Amounts, own: Resources) -> bool:
        """Whether the room that the queue keeps for other asks stays free. For an ask with kept room of its own, room
        of victims that are still leaving counts as free, or each such ask would wait for the victims of all.
        """
        assert self.limits is not None, self.path
        leaving, together = self.preempting if own else NOTHING, []
        for kind, value in amounts:
            others = self.kept.get(kind, 0) - own.get(kind, 0) - leaving.get(kind, 0)
            if value > 0 and others > 0:
                together.append((kind, value + others))
        return find_excess(self.allocated_sum, Amounts(dict(together)), self.limits) < 0

    def find_lacks(self, amounts: Amounts, own: Resources = NOTHING) -> "list[tuple[Queue, Resources]]":
        """Return the queues of the path that have no room for an ask even once all victims have left, and what each of
        them lacks. Room kept for other asks is not available; `own` is the room kept for this ask.
        """
        found: list[tuple[Queue, Resources]] = []
        for level in self.ancestry():
            maximum, lacks = level.maximum or {}, {}
            for kind, value in amounts:
                if value > 0 and kind in maximum:
                    staying = level.allocated.get(kind, 0) - level.preempting.get(kind, 0)
                    lack = staying + value + max(0, level.kept.get(kind, 0) - own.get(kind, 0)) - maximum[kind]
                    if lack > 0:
                        lacks[kind] = lack
            if lacks:
                found.append((level, lacks))
        return found

    def add_kept(self, amount: Resources) -> None:
        """Keep room for one ask, below all queues of the path. The root keeps none: there the node is reserved."""
        for level in self.ancestry():
            if level.parent is not None:
                add_to(level.kept, amount)

    def subtract_kept(self, amount: Resources) -> None:
        """Undo `add_kept`."""
        for level in self.ancestry():
            if level.parent is not None:
                take_from(level.kept, amount)
                prune(level.kept)
                assert min(level.kept.values(), default=1) > 0, (level.path, level.kept, amount)

    def compute_headroom(self) -> Limit | None:
        """The headroom of the queue, per type; None is unlimited."""
        return tightest([None if one.maximum is None else less(one.maximum, one.allocated) for one in self.ancestry()])

    def add_pending(self, amounts: Amounts) -> None:
        """Count an ask, here and above."""
        queue: Queue | None = self
        while queue is not None:
            add(queue.pending_sum, amounts)
            queue.pending_types = queue.pending_types | amounts.types
            queue = queue.parent

    def subtract_pending(self, amounts: Amounts) -> None:
        """Undo `add_pending`."""
        queue: Queue | None = self
        while queue is not None:
            take(queue.pending_sum, amounts, queue.path)
            queue = queue.parent

    def add_allocated(self, amounts: Amounts) -> None:
        """Count an allocation, or by how much one grew, here and above, whether or not there is room."""
        queue: Queue | None = self
        while queue is not None:
            add(queue.allocated_sum, amounts)
            queue.allocated_types = queue.allocated_types | amounts.types
            queue = queue.parent

    def subtract_allocated(self, amounts: Amounts) -> None:
        """Undo `add_allocated`."""
        queue: Queue | None = self
        while queue is not None:
            take(queue.allocated_sum, amounts, queue.path)
            queue = queue.parent

    def settle_pending(self, amounts: Amounts) -> None:
        """Turn a pending amount into an allocated one, here and above."""
        queue: Queue | None = self
        while queue is not None:
            take(queue.pending_sum, amounts, queue.path)
            add(queue.allocated_sum, amounts)
            queue.allocated_types = queue.allocated_types | amounts.types
            queue = queue.parent

    def add_preempting(self, amounts: Amounts) -> None:
        """Count a victim, or by how much one grew (negative: shrank), here and above."""
        for level in self.ancestry():
            add_to(level.preempting, amounts.resources)

    def subtract_preempting(self, amounts: Amounts) -> None:
        """Undo `add_preempting`."""
        for level in self.ancestry():
            take_from(level.preempting, amounts.resources)
            assert min(level.preempting.values(), default=0) >= 0, (level.path, level.preempting, amounts)


class Grant(NamedTuple):
    """The ACL that lets a user submit."""

    queue: Queue
    """The queue that has it."""
    kind: Literal["submit", "admin"]
    acl: Acl


def _pass_up(queue: Queue | None, old: int, new: int) -> None:
    """Replace a child's exported priority, upwards as far as anything changes."""
    while queue is not None and old != new:
        before = queue.priority
        queue.child_priorities.exchange(
            None if old == NOTHING_PENDING else old, None if new == NOTHING_PENDING else new
        )
        old, new, queue = before, queue.priority, queue.parent


def outranks(leaf: Queue, priority: int, other: Queue, other_priority: int) -> bool:
    """Whether an ask of one leaf has a higher priority than an ask of another, as the lowest queue above both sees
    them: with the offsets of the queues in between, and none but the offset of a fence behind it.
    """
    seen: dict[Queue, int] = {}
    for level in other.ancestry():
        seen[level] = other_priority
        other_priority = level.policies.export_priority(other_priority)
    for level in leaf.ancestry():
        if level in seen:
            return priority > seen[level]
        priority = level.policies.export_priority(priority)
    raise AssertionError(f"{leaf.path} and {other.path} are in different trees")


# Fair share -----------------------------------------------------------------------------------------------------------
#
# The share of a queue is the highest ratio of usage to entitlement over all resource types: weighted dominant resource
# fairness (Ghodsi et al., NSDI 2011), with the guarantee, or else the maximum obtainable, as the weight.
# `ready_queues.py` keeps the orders.


def share(allocated: Sum, entitlements: Sum) -> float:
    """The largest ratio of usage to entitlement over all types; 0.0 if no type has an entitlement.

    Any usage of a type with an entitlement of 0 counts as 1.0.
    """
    largest = 0.0
    width = len(entitlements)
    for number, used in enumerate(allocated):
        if used > 0 and number < width:
            entitled = entitlements[number]
            if entitled >= 0:
                ratio = used / entitled if entitled > 0 else 1.0
                if ratio > largest:
                    largest = ratio
    return largest


def queue_key(queue: Queue) -> SortKey:
    """The sort key of a queue among its siblings, by the policy of its parent.

    Priority (if the parent sorts by it), then share; ties go to the queue with more pending resources. The reference
    compares those type by type, which leaves some pairs undecided; the sum agrees wherever that decides.
    """
    parent = queue.parent
    assert parent is not None, queue.path
    own_share = share(queue.allocated_sum, queue.entitlements)
    waiting = 0
    for value in queue.pending_sum:
        waiting -= value
    if parent.policies.priority_sort:
        return -queue.priority, own_share, NO_SHARES, 0, waiting
    return 0, own_share, NO_SHARES, -queue.priority, waiting


def path_key(leaf: Queue) -> Key:
    """The sort key of a leaf among all leaves, in the order of queue traversal."""
    path = [level for level in leaf.ancestry() if level.parent is not None]
    return tuple(part for level in reversed(path) for part in (*queue_key(level), level.rank))


def descending_shares(used: Sum, guarantees: Sum) -> Shares:
    """The ratio of each type to its guarantee (the plain amount without one), largest first, without zeros."""
    ratios: list[float] = []
    width = len(guarantees)
    for number, value in enumerate(used):
        if value:
            guaranteed = guarantees[number] if number < width else 0
            ratios.append(value / guaranteed if guaranteed > 0 else float(value))
    if len(ratios) > 1:
        ratios.sort(reverse=True)
    return tuple(ratios)


def refresh_fair_maximum(queue: Queue) -> None:
    """Compute the default entitlement from this queue down: the cluster size, overridden by maximums of the path."""
    if queue.parent is None:
        queue.fair_maximum = dict(queue.maximum or {})
    else:
        above, maximum = queue.parent.fair_maximum, queue.maximum
        queue.fair_maximum = {**above, **maximum} if above and maximum is not None else dict(above)
    for child in queue.children.values():
        refresh_fair_maximum(child)
