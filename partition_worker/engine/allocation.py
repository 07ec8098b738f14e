"""Asks and allocations: one object from the request to the release, and the order of the pending asks of an
application.

An ask shape is what an ask requires of queues and nodes, as a value; the predicates (`predicates/`) define the meaning
of the demands in a constraint. Pending asks with the same shape, priority and standing form a group: what happens to
one of them would happen to each, so an attempt only looks at the first of each group. `application.py` has the owner,
`ledger.py` the accounting.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from yunishard.common.messages import rm_messages
from yunishard.common.messages.kinds import INT64_MAX, Resources
from yunishard.common.resources import Limit
from yunishard.partition_worker.engine.attempt_log import AttemptLog
from yunishard.partition_worker.engine.sorted_items import Order

# Ask shapes -----------------------------------------------------------------------------------------------------------

KNOWN_MAX: Final = 4096
"""Different amounts that are shared between asks."""

Amounts = tuple[tuple[str, int], ...]
"""Amounts by type, sorted by type."""

Demands = tuple[Hashable | None, ...]
"""The result of each predicate for the tags of an ask, in the order of the predicates."""


class Constraint(NamedTuple):
    """The constraint of an ask. An ask without demands has none, if the RM evaluates no predicates."""

    demands: Demands
    asked: str = ""
    """The key of the ask, by which the RM is asked about nodes; empty if it is not: it evaluates no predicates, or
    the ask has the scope `none`.
    """
    is_wide: bool = False
    """Whether the RM's verdict about a node also depends on what is placed on other nodes."""


class AskShape(NamedTuple):
    """The requirements of an ask."""

    amounts: Amounts
    required_node: str = ""
    """The only node that it may run on; empty if it may run on any."""
    constraint: Constraint | None = None
    """Further demands on a node; None if there are none."""


def amounts_of(resources: Resources) -> Amounts:
    """Return the amounts as a value."""
    return tuple(sorted(resources.items()))


def find_excess(limit: Limit, used: Resources, wanted: Amounts) -> tuple[str, int] | None:
    """Return the first amount that would exceed a limit besides what is used; None if all are allowed. If too much is
    used already, the limit still allows nothing.

    All attempts, and all that explains them, compare in this way; on nodes a type that is missing is 0 instead.
    """
    for one in wanted:
        kind, value = one
        if value > 0 and kind in limit and used.get(kind, 0) + value > limit[kind]:
            return one
    return None


@lru_cache(KNOWN_MAX)
def share_shape(amounts: tuple[tuple[str, int], ...]) -> tuple[Resources, AskShape]:
    """Return these amounts and the shape of an ask without other requirements; shared, so neither may be changed."""
    return dict(amounts), AskShape(tuple(sorted(amounts)))


# Asks and allocations -------------------------------------------------------------------------------------------------

CREATION_TIME: Final = "creationTime"
REQUIRED_NODE: Final = "yunikorn.apache.org/requiredNode"
FOREIGN: Final = "foreign"
NO_TAGS: Final[dict[str, str]] = {}
"""Shared by all without tags."""


@dataclass(slots=True, eq=False)
class Allocation:
    """An ask, a running allocation, or (without an application) a foreign allocation."""

    key: str
    application_id: str
    """Empty for a foreign allocation."""
    resources: Resources
    created_ns: int
    priority: int = 0
    node_id: str = ""
    """Empty while it waits for a node."""
    tags: dict[str, str] = field(default_factory=dict)
    task_group: str = ""
    placeholder: bool = False
    originator: bool = False
    preemption_policy: rm_messages.PreemptionPolicy | None = None
    bound_ns: int = 0
    rank: int = 0
    """Order among asks of equal priority and creation time; set by the pending asks of the application."""
    shape: AskShape = field(init=False)
    """The ask shape: amounts, required node, and constraint."""
    constraint: Constraint | None = None
    """Node constraint from its tags."""
    group: "AskGroup | None" = None
    """The group of pending asks it is in; None if it is not pending."""
    held: bool = False
    """Whether it waits for a placeholder of its task group instead of a node."""
    reserved: bool = False
    """Whether a node is reserved for it while it waits; the application holds the reservation."""
    recovered: bool = False
    """Whether an RM reported it with its node, so that it never was pending."""
    released: bool = False
    """Whether the RM was asked to release it, with its gang or as a placeholder, and has not confirmed; never with
    `preempted`.
    """
    preempted: bool = False
    """Whether the RM was asked to release it by preemption, and has not confirmed."""
    preempted_at: float = 0.0
    """When it was asked, in Unix seconds."""
    is_overdue: bool = False
    """Whether the RM has not confirmed in time; then the allocation counts as one that stays."""
    partner: "Allocation | None" = None
    """The other side of a swap in progress: of a placeholder the ask that replaces it, and vice versa."""
    placeholder_used: bool = False
    """Whether it replaced a placeholder."""
    placeholder_created_ns: int = 0
    """When the placeholder was created that it replaced."""
    preemption_triggered: bool = False
    """Whether victims were preempted for it, and its reservation keeps their room."""
    scale_up_told: bool = False
    """Whether an update to the RM reported that only a larger cluster would help."""
    lacks_quota: bool = False
    """Whether an event reported that its user or group has no room for it."""
    lacks_queue_room: bool = False
    """Whether an event reported that its queues have no room for it."""
    unschedulable_told_at: float = -math.inf
    """When an event last reported why no node takes it, in Unix seconds."""
    no_victim_told_at: float = -math.inf
    """When an event last reported that no victim helps it, in Unix seconds."""

    def __post_init__(self) -> None:
        self.resize(self.resources)

    def resize(self, resources: Resources) -> None:
        """Set other amounts. Not while it is pending, as pending asks are grouped by shape."""
        self.resources, self.shape = share_shape(tuple(resources.items()))
        if self.constraint is not None or REQUIRED_NODE in self.tags:
            self.shape = AskShape(self.shape.amounts, self.tags.get(REQUIRED_NODE, ""), self.constraint)

    def constrain(self, constraint: "Constraint") -> None:
        """Set another constraint. Not while it is pending, as above."""
        self.constraint = constraint
        self.resize(self.resources)

    @property
    def may_be_victim(self) -> bool:
        """Whether it agreed to be preempted; others are preempted only if nothing else helps."""
        return self.preemption_policy is not None and self.preemption_policy.allow_preempt_self

    @property
    def is_leaving(self) -> bool:
        """Whether its room counts as free soon, because the RM was asked to release it by preemption."""
        return self.preempted and not self.is_overdue

    @property
    def may_preempt(self) -> bool:
        """Whether it may preempt others."""
        return self.preemption_policy is not None and self.preemption_policy.allow_preempt_other

    def make_announcement(self) -> rm_messages.Allocation:
        """The message that announces it to the RM."""
        return rm_messages.Allocation(
            allocation_key=self.key,
            application_id=self.application_id,
            node_id=self.node_id,
            resource_per_alloc=self.resources,
            task_group_name=self.task_group,
            placeholder=self.placeholder,
            originator=self.originator,
            preemption_policy=self.preemption_policy,
        )

    def release(
        self, partition: str, reason: str, termination_type: int = rm_messages.STOPPED_BY_RM
    ) -> rm_messages.AllocationRelease:
        """The message that asks the RM to release it, or reports its release; `partition` is the normalized name."""
        return rm_messages.AllocationRelease(
            partition_name=partition,
            application_id=self.application_id,
            allocation_key=self.key,
            termination_type=termination_type,
            message=reason,
        )


def from_message(
    message: rm_messages.Allocation, application_id: str, *, stamp_ns: int, constraint: Constraint | None = None
) -> Allocation:
    """Create an allocation from a message; `stamp_ns` is its creation time unless a tag sets one."""
    tags = message.allocation_tags or NO_TAGS
    tag = tags.get(CREATION_TIME, "")
    created_ns = int(tag) * 1_000_000_000 if tag.isascii() and tag.isdecimal() and len(tag) < 12 else stamp_ns
    return Allocation(
        key=message.allocation_key,
        application_id=application_id,
        resources=message.resource_per_alloc,
        created_ns=min(created_ns, INT64_MAX),
        priority=message.priority,
        tags=tags,
        task_group=message.task_group_name,
        placeholder=message.placeholder,
        originator=message.originator,
        preemption_policy=message.preemption_policy,
        constraint=constraint,
    )


# Pending asks ---------------------------------------------------------------------------------------------------------

REMOVED_MAX: Final = 512
"""Removed asks that stay at the front of a list, so that most removals move nothing."""

Place = tuple[int, int, int]


def place_of(ask: Allocation) -> Place:
    """The sort key of an ask within its application; smaller is tried first."""
    return (-ask.priority, ask.created_ns, ask.rank)


class SortedAsks:
    """Asks in ascending order of their sort keys. A key is unique, and must not change while its ask is in.

    Most asks are added at the end and taken from the front, without a search; for others, a search is followed by a
    shift of the asks behind them.
    """

    __slots__ = ("_asks", "_first")

    def __init__(self) -> None:
        self._asks: list[Allocation] = []
        self._first = 0
        """The index of the first ask; those before it were removed."""

    @property
    def head(self) -> Allocation:
        """The first ask; there must be one."""
        return self._asks[self._first]

    @property
    def last(self) -> Allocation:
        """The last ask; there must be one."""
        return self._asks[-1]

    def add(self, ask: Allocation) -> None:
        """Add an ask."""
        asks = self._asks
        if not asks or place_of(asks[-1]) < place_of(ask):
            asks.append(ask)
        else:
            insort(asks, ask, self._first, key=place_of)

    def remove(self, ask: Allocation) -> None:
        """Remove an ask."""
        asks, first = self._asks, self._first
        if asks[first] is not ask:
            index = bisect_left(asks, place_of(ask), first, key=place_of)
            assert asks[index] is ask, ask.key
            del asks[index]
        elif first + 1 < min(REMOVED_MAX, len(asks)):
            self._first += 1
        else:
            del asks[: first + 1]
            self._first = 0

    def __iter__(self) -> Iterator[Allocation]:
        """Asks in order; they must not change during iteration."""
        return self.iterate_from(0)

    def iterate_from(self, index: int) -> Iterator[Allocation]:
        """Return an iterator over the asks without so many first ones, at the same conditions."""
        return map(self._asks.__getitem__, range(self._first + index, len(self._asks)))

    def __len__(self) -> int:
        return len(self._asks) - self._first


class Standing(StrEnum):
    """The kind of room that an ask waits for."""

    OPEN = "open"
    """For any node."""
    RESERVED = "reserved"
    """A node is reserved for it; others are tried as soon as they have room."""
    HELD = "held"
    """For a placeholder of its task group, to replace it."""


class GroupKey(NamedTuple):
    """The properties that the asks of a group have in common."""

    shape: AskShape
    priority: int
    standing: Standing
    may_preempt: bool
    """Whether victims may be preempted for them, and have not been yet."""
    task_group: str = ""
    """The task group whose placeholders they wait for, if held."""


@dataclass(slots=True, eq=False)
class AskGroup:
    """Equal asks in order, and the results of the attempts to place them."""

    kind: GroupKey
    rank: int = 0
    """The same for all groups: no two have a first ask with the same sort key."""
    asks: SortedAsks = field(default_factory=SortedAsks)
    shape: AskShape = field(init=False)
    plain: bool = field(init=False)
    """Whether any node with room will do."""
    attempted: bool = False
    """Whether all of them were tried at least once, as far as their user's quota allows."""
    told: int = 0
    """Number of its asks with `scale_up_told`."""
    log: AttemptLog = field(default_factory=dict)
    """The failed attempts to place them."""

    def __post_init__(self) -> None:
        self.shape = shape = self.kind.shape
        self.plain = self.kind.standing is Standing.OPEN and not shape.required_node and shape.constraint is None

    @property
    def head(self) -> Allocation:
        """The first ask; a group is never empty."""
        return self.asks.head


class PendingAsks:
    """Asks without a node: highest priority first, then oldest.

    Asks equal in both (RMs send whole seconds) follow the reference's insertion rule: a new one goes after its equals
    if they are the very last asks, otherwise before them.
    """

    def __init__(self) -> None:
        self.groups_by_kind: dict[GroupKey, AskGroup] = {}
        """In order of creation."""
        self._heads: Order[AskGroup] = Order()
        self._created: dict[int, int] = {}
        """Number of asks by creation time in Unix nanoseconds; only times that several may share."""
        self.lowest_rank = self.highest_rank = 0
        """The lowest and highest rank given to an ask among those of its age."""
        self.priority: int | None = None
        """The highest priority of an ask, or None."""
        self.told = 0
        """Number of asks with `scale_up_told`."""
        self.told_amounts: Resources = {}
        """The total of those that are not held. Types of which there is nothing are left out."""
        self._last: Allocation | None = None
        """The last ask; None if it has to be searched."""

    def __iter__(self) -> Iterator[Allocation]:
        """All asks, group by group."""
        for group in self.groups_by_kind.values():
            yield from group.asks

    @property
    def first_group(self) -> AskGroup:
        """The group of the first ask; there must be one."""
        first = self._heads.first()
        assert first is not None, "asks for nothing"
        return first

    @property
    def groups(self) -> Iterator[AskGroup]:
        """Groups in the order of their first asks; must not change during iteration."""
        return iter(self._heads)

    def add(self, ask: Allocation, *, is_restored: bool = False) -> None:
        """Add an ask; a restored one has its rank already."""
        if is_restored:
            self.lowest_rank, self.highest_rank = min(self.lowest_rank, ask.rank), max(self.highest_rank, ask.rank)
        else:
            ask.rank = self._rank_among_equals(ask)
        if not self.groups_by_kind or (self._last is not None and place_of(ask) > place_of(self._last)):
            self._last = ask
        self._put(ask)
        if may_share_time(ask.created_ns):
            self._created[ask.created_ns] = self._created.get(ask.created_ns, 0) + 1

    def resize(self, ask: Allocation, resources: Resources) -> None:
        """Resize a pending ask at its place."""
        self._take(ask)
        ask.resize(resources)
        self._put(ask)

    def constrain(self, ask: Allocation, constraint: Constraint) -> None:
        """Set another constraint of a pending ask at its place."""
        self._take(ask)
        ask.constrain(constraint)
        self._put(ask)

    def regroup(self, ask: Allocation) -> None:
        """Move an ask whose standing changed to its new group, at its place. It keeps the results of the attempts if it
        is the first of that group.
        """
        before, known = ask.group, self.groups_by_kind.get(_kind(ask))
        assert before is not None, ask.key
        attempted = before.attempted and (known is None or known.attempted)
        self._take(ask)
        after = self._put(ask)
        after.attempted = attempted
        if after is not known:
            after.log = dict(before.log)

    def tell(self, ask: Allocation) -> None:
        """Set `scale_up_told` of an ask; once for each."""
        assert ask.group is not None, ask.key
        assert not ask.scale_up_told, ask.key
        ask.scale_up_told = True
        self._count_told(ask.group, 1)

    def remove(self, ask: Allocation) -> None:
        """Remove an ask."""
        self._take(ask)
        if may_share_time(ask.created_ns):
            self._created[ask.created_ns] -= 1
            if not self._created[ask.created_ns]:
                del self._created[ask.created_ns]

    def _put(self, ask: Allocation) -> AskGroup:
        """Add an ask to its group, and return the group."""
        kind = _kind(ask)
        group = self.groups_by_kind.get(kind)
        if group is None:
            group = self.groups_by_kind[kind] = AskGroup(kind)
        else:
            head = group.head
            ask.resources, ask.shape = head.resources, head.shape  # stored once for thousands of asks
        ask.group = group
        line = group.asks
        line.add(ask)
        if ask.scale_up_told:
            self._count_told(group, 1)
        group.attempted = False
        if line.head is ask:
            self._head_changed(group)
        return group

    def _take(self, ask: Allocation) -> None:
        if self._last is ask:
            self._last = None
        group, ask.group = ask.group, None
        assert group is not None, ask.key
        line = group.asks
        was_head = line.head is ask
        line.remove(ask)
        if ask.scale_up_told:
            self._count_told(group, -1)
        if was_head:
            self._head_changed(group)

    def _count_told(self, group: AskGroup, change: int) -> None:
        """Count one ask with `scale_up_told` more or less."""
        group.told += change
        self.told += change
        if group.kind.standing is Standing.HELD:  # the room of their placeholders is theirs
            return
        for kind, value in group.shape.amounts:
            amount = self.told_amounts.get(kind, 0) + change * value
            if amount:
                self.told_amounts[kind] = amount
            else:
                self.told_amounts.pop(kind, None)

    def _head_changed(self, group: AskGroup) -> None:
        """Update the order of groups for a changed or missing first ask."""
        if len(group.asks):
            self._heads.put(group, place_of(group.asks.head))
        else:
            self._heads.drop(group)
            del self.groups_by_kind[group.kind]
        first = self._heads.first()
        self.priority = None if first is None else first.kind.priority

    def _rank_among_equals(self, ask: Allocation) -> int:
        if ask.created_ns not in self._created:
            return 0
        if self._last is None:
            self._last = max((group.asks.last for group in self.groups_by_kind.values()), key=place_of)
        if (self._last.priority, self._last.created_ns) == (ask.priority, ask.created_ns):
            self.highest_rank += 1
            return self.highest_rank
        self.lowest_rank -= 1
        return self.lowest_rank


def may_share_time(created_ns: int) -> bool:
    """Whether several asks may share this creation time: RMs send whole seconds, our own stamps are unique."""
    return not created_ns % 1_000_000_000 or created_ns == INT64_MAX


def _kind(ask: Allocation) -> GroupKey:
    standing = Standing.HELD if ask.held else Standing.RESERVED if ask.reserved else Standing.OPEN
    task_group = ask.task_group if ask.held else ""
    return GroupKey(ask.shape, ask.priority, standing, ask.may_preempt and not ask.preemption_triggered, task_group)
