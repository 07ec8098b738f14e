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
from enum import StrEnum
from typing import Final, NamedTuple

from yunishard.common.messages import rm_messages
from yunishard.common.messages.kinds import INT64_MAX, Resources
from yunishard.partition_worker.engine.amounts import Amounts, Sum, add, amounts_of, subtract
from yunishard.partition_worker.engine.attempt_log import AttemptLog
from yunishard.partition_worker.engine.sorted_items import NO_SHARES, Item, SortedItems

# Ask shapes -----------------------------------------------------------------------------------------------------------

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


class AskShape:
    """The requirements of an ask, as a value. Never changed. It is the key of many dictionaries, so its hash is
    computed once.
    """

    __slots__ = ("_hash", "amounts", "constraint", "required_node")

    def __init__(self, amounts: Amounts, required_node: str = "", constraint: Constraint | None = None) -> None:
        self.amounts = amounts
        self.required_node = required_node
        """The only node that it may run on; empty if it may run on any."""
        self.constraint = constraint
        """Further demands on a node; None if there are none."""
        self._hash: int = hash((amounts, required_node, constraint))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, AskShape)
            and self.required_node == other.required_node
            and self.amounts == other.amounts
            and self.constraint == other.constraint
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"AskShape({self.amounts}, {self.required_node!r}, {self.constraint})"


def make_shape(amounts: Amounts, tags: dict[str, str], constraint: Constraint | None) -> AskShape:
    """Return the shape of an ask with these tags; shared if it has no other requirements than its amounts."""
    if constraint is None and (not tags or REQUIRED_NODE not in tags):
        shape = amounts.shape
        if shape is None:
            shape = amounts.shape = AskShape(amounts)
        assert isinstance(shape, AskShape)
        return shape
    return AskShape(amounts, tags.get(REQUIRED_NODE, ""), constraint)


# Asks and allocations -------------------------------------------------------------------------------------------------

CREATION_TIME: Final = "creationTime"
REQUIRED_NODE: Final = "yunikorn.apache.org/requiredNode"
FOREIGN: Final = "foreign"
NO_TAGS: Final[dict[str, str]] = {}
"""Shared by all without tags."""


class Allocation:
    """An ask, a running allocation, or (without an application) a foreign allocation."""

    __slots__ = (
        "application_id",
        "bound_ns",
        "created_ns",
        "group",
        "held",
        "is_overdue",
        "key",
        "lacks_queue_room",
        "lacks_quota",
        "node_id",
        "originator",
        "partner",
        "placeholder",
        "placeholder_created_ns",
        "placeholder_used",
        "preempted",
        "preempted_at",
        "preemption_policy",
        "preemption_triggered",
        "priority",
        "rank",
        "recovered",
        "released",
        "reserved",
        "scale_up_told",
        "shape",
        "tags",
        "task_group",
        "unschedulable_told_at",
    )

    def __init__(
        self,
        key: str,
        application_id: str,
        shape: AskShape,
        created_ns: int,
        priority: int = 0,
        node_id: str = "",
        tags: dict[str, str] = NO_TAGS,
        task_group: str = "",
        placeholder: bool = False,  # noqa: FBT001, FBT002 - as keywords, they would make each ask cost more
        originator: bool = False,  # noqa: FBT001, FBT002
        preemption_policy: rm_messages.PreemptionPolicy | None = None,
    ) -> None:
        self.key = key
        self.application_id = application_id
        """Empty for a foreign allocation."""
        self.shape = shape
        """The ask shape: amounts, required node, and constraint."""
        self.created_ns = created_ns
        self.priority = priority
        self.node_id = node_id
        """Empty while it waits for a node."""
        self.tags = tags
        self.task_group = task_group
        self.placeholder = placeholder
        self.originator = originator
        self.preemption_policy = preemption_policy
        self.bound_ns: int = 0
        self.rank: int = 0
        """Order among asks of equal priority and creation time; set by the pending asks of the application."""
        self.group: AskGroup | None = None
        """The group of pending asks it is in; None if it is not pending."""
        self.held = False
        """Whether it waits for a placeholder of its task group instead of a node."""
        self.reserved = False
        """Whether a node is reserved for it while it waits; the application holds the reservation."""
        self.recovered = False
        """Whether an RM reported it with its node, so that it never was pending."""
        self.released = False
        """Whether the RM was asked to release it, with its gang or as a placeholder, and has not confirmed; never with
        `preempted`.
        """
        self.preempted = False
        """Whether the RM was asked to release it by preemption, and has not confirmed."""
        self.preempted_at: float = 0.0
        """When it was asked, in Unix seconds."""
        self.is_overdue = False
        """Whether the RM has not confirmed in time; then the allocation counts as one that stays."""
        self.partner: Allocation | None = None
        """The other side of a swap in progress: of a placeholder the ask that replaces it, and vice versa."""
        self.placeholder_used = False
        """Whether it replaced a placeholder."""
        self.placeholder_created_ns: int = 0
        """When the placeholder was created that it replaced."""
        self.preemption_triggered = False
        """Whether victims were preempted for it, and its reservation keeps their room."""
        self.scale_up_told = False
        """Whether an update to the RM reported that only a larger cluster would help."""
        self.lacks_quota = False
        """Whether an event reported that its user or group has no room for it."""
        self.lacks_queue_room = False
        """Whether an event reported that its queues have no room for it."""
        self.unschedulable_told_at: float = -math.inf
        """When an event last reported why no node takes it, or that no victim helps it, in Unix seconds."""

    @property
    def resources(self) -> Resources:
        """Its amounts by name, shared by equal asks: never changed."""
        return self.shape.amounts.resources

    @property
    def constraint(self) -> Constraint | None:
        """Node constraint from its tags."""
        return self.shape.constraint

    def resize(self, resources: Resources) -> None:
        """Set other amounts. Not while it is pending, as pending asks are grouped by shape."""
        self.shape = make_shape(amounts_of(resources), self.tags, self.shape.constraint)

    def constrain(self, constraint: Constraint) -> None:
        """Set another constraint. Not while it is pending, as above."""
        self.shape = make_shape(self.shape.amounts, self.tags, constraint)

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
            resource_per_alloc=self.shape.amounts.resources,
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


def find_creation_time(tags: dict[str, str], stamp_ns: int) -> int:
    """Return the time that a tag sets, in Unix nanoseconds, or else this stamp."""
    tag = tags.get(CREATION_TIME, "") if tags else ""
    if tag.isascii() and tag.isdecimal() and len(tag) < 12:
        return min(int(tag) * 1_000_000_000, INT64_MAX)
    return stamp_ns


# Pending asks ---------------------------------------------------------------------------------------------------------

REMOVED_MAX: Final = 512
"""Removed asks that stay at the front of a list, so that most removals move nothing."""

Place = tuple[int, int, int]


def place_of(ask: Allocation) -> Place:
    """The sort key of an ask within its application; smaller is tried first."""
    return (-ask.priority, ask.created_ns, ask.rank)


class Standing(StrEnum):
    """The kind of room that an ask waits for."""

    OPEN = "open"
    """For any node."""
    RESERVED = "reserved"
    """A node is reserved for it; others are tried as soon as they have room."""
    HELD = "held"
    """For a placeholder of its task group, to replace it."""


_OPEN: Final = Standing.OPEN
_HELD: Final = Standing.HELD
_RESERVED: Final = Standing.RESERVED

GroupKey = tuple[AskShape, int, Standing, bool, str]
"""The common properties of the asks of a group: shape, priority, standing, whether victims may be preempted for them
and have not been yet, and the task group whose placeholders they wait for, if held.
"""


class AskGroup(Item):
    """Equal asks in order, and the results of the attempts to place them. It is sorted by its first ask.

    Most asks are added at the end and taken from the front, without a search; for others, a search is followed by a
    shift of the asks behind them.
    """

    def __init__(self, shape: AskShape, priority: int, standing: Standing, may_preempt: bool, task_group: str) -> None:  # noqa: FBT001 - as in a GroupKey
        super().__init__(0)  # no two groups have a first ask with the same sort key
        self.shape = shape
        self.priority = priority
        self.standing = standing
        self.may_preempt = may_preempt
        """Whether victims may be preempted for them, and have not been yet."""
        self.task_group = task_group
        """The task group whose placeholders they wait for, if held."""
        self._asks: list[Allocation] = []
        self._first: int = 0
        """The index of the first ask; those before it were removed."""
        self.attempted = False
        """Whether all of them were tried at least once, as far as their user's quota allows."""
        self.told: int = 0
        """Number of its asks with `scale_up_told`."""
        self.log: AttemptLog = {}
        """The failed attempts to place them."""

    @property
    def is_plain(self) -> bool:
        """Whether any node with room will do."""
        return self.standing is _OPEN and not self.shape.required_node and self.shape.constraint is None

    @property
    def key(self) -> GroupKey:
        """The common properties of its asks."""
        return self.shape, self.priority, self.standing, self.may_preempt, self.task_group

    @property
    def head(self) -> Allocation:
        """The first ask; a group is never empty."""
        return self._asks[self._first]

    @property
    def last(self) -> Allocation:
        """The last ask."""
        return self._asks[-1]

    def has(self, ask: Allocation) -> bool:
        """Whether this pending ask belongs to the group."""
        if ask.held:
            return self.key == _key_of(ask)
        return (
            self.priority == ask.priority
            and self.standing is (_RESERVED if ask.reserved else _OPEN)
            and self.may_preempt is (ask.may_preempt and not ask.preemption_triggered)
            and self.shape == ask.shape
        )

    def add(self, ask: Allocation) -> bool:
        """Add an ask; return whether it is the first now."""
        asks = self._asks
        if not asks:
            asks.append(ask)
            return True
        last = asks[-1]
        if last.created_ns < ask.created_ns or (last.created_ns == ask.created_ns and last.rank < ask.rank):
            asks.append(ask)
            return False
        insort(asks, ask, self._first, key=place_of)
        return asks[self._first] is ask

    def remove(self, ask: Allocation) -> bool:
        """Remove an ask; return whether it was the first."""
        asks, first = self._asks, self._first
        if asks[first] is not ask:
            index = bisect_left(asks, place_of(ask), first, key=place_of)
            assert asks[index] is ask, ask.key
            del asks[index]
            return False
        if first + 1 < len(asks) and first + 1 < REMOVED_MAX:
            self._first = first + 1
        else:
            del asks[: first + 1]
            self._first = 0
        return True

    def __iter__(self) -> Iterator[Allocation]:
        """Asks in order; they must not change during iteration."""
        return self.iterate_from(0)

    def iterate_from(self, index: int) -> Iterator[Allocation]:
        """Return an iterator over the asks without so many first ones, at the same conditions."""
        return map(self._asks.__getitem__, range(self._first + index, len(self._asks)))

    def __len__(self) -> int:
        return len(self._asks) - self._first


class PendingAsks:
    """Asks without a node: highest priority first, then oldest.

    Asks equal in both (RMs send whole seconds) follow the reference's insertion rule: a new one goes after its equals
    if they are the very last asks, otherwise before them.
    """

    def __init__(self) -> None:
        self.groups_by_key: dict[GroupKey, AskGroup] = {}
        """In order of creation."""
        self._heads: SortedItems[AskGroup] = SortedItems()
        self._recent: AskGroup | None = None
        """The group of the ask that was added last: mostly the next one is equal, and its key need not be made."""
        self._amounts: Amounts | None = None
        """Those of the ask that was added last."""
        self._created: dict[int, int] = {}
        """Number of asks by creation time in Unix nanoseconds; only times that several may share."""
        self.lowest_rank: int = 0
        self.highest_rank: int = 0
        """The lowest and highest rank given to an ask among those of its age."""
        self.told: int = 0
        """Number of asks with `scale_up_told`."""
        self.told_sum: Sum = []
        """The total of those that are not held."""
        self._last: Allocation | None = None
        """The last ask; None if it has to be searched."""

    def __iter__(self) -> Iterator[Allocation]:
        """All asks, group by group."""
        for group in self.groups_by_key.values():
            yield from group

    def make_amounts(self, resources: Resources) -> Amounts:
        """Return the amounts of a further ask as a value; they are mostly those of the last one."""
        amounts = self._amounts
        return amounts if amounts is not None and amounts.resources == resources else amounts_of(resources)

    @property
    def priority(self) -> int | None:
        """The highest priority of an ask, or None."""
        first = self._heads.first()
        return None if first is None else first.priority

    @property
    def first_group(self) -> AskGroup | None:
        """The group of the first ask; None without asks."""
        return self._heads.first()

    @property
    def groups(self) -> Iterator[AskGroup]:
        """Groups in the order of their first asks; must not change during iteration."""
        return iter(self._heads)

    def add(self, ask: Allocation, *, is_restored: bool = False) -> None:
        """Add an ask; a restored one has its rank already."""
        may_share = may_share_time(ask.created_ns)
        if is_restored:
            self.lowest_rank, self.highest_rank = min(self.lowest_rank, ask.rank), max(self.highest_rank, ask.rank)
        else:
            ask.rank = self._rank_among_equals(ask) if may_share else 0
        last = self._last
        if not self.groups_by_key or (last is not None and place_of(ask) > place_of(last)):
            self._last = ask
        self._put(ask)
        if may_share:
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
        before, known = ask.group, self.groups_by_key.get(_key_of(ask))
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
        created_ns = ask.created_ns
        if may_share_time(created_ns):
            self._created[created_ns] -= 1
            if not self._created[created_ns]:
                del self._created[created_ns]

    def _put(self, ask: Allocation) -> AskGroup:
        """Add an ask to its group, and return the group."""
        group = self._recent
        if group is None or not group.has(ask):
            key = _key_of(ask)
            group = self.groups_by_key.get(key)
            if group is None:
                group = self.groups_by_key[key] = AskGroup(*key)
            self._recent = group
        ask.group = group
        ask.shape = group.shape  # stored once for thousands of asks
        self._amounts = group.shape.amounts
        if group.add(ask):
            self._heads.put(group, (-group.priority, 0.0, NO_SHARES, ask.created_ns, ask.rank))
        if ask.scale_up_told:
            self._count_told(group, 1)
        group.attempted = False
        return group

    def _take(self, ask: Allocation) -> None:
        if self._last is ask:
            self._last = None
        group, ask.group = ask.group, None
        assert group is not None, ask.key
        if ask.scale_up_told:
            self._count_told(group, -1)
        if not group.remove(ask):
            return
        if len(group):
            head = group.head
            self._heads.put(group, (-group.priority, 0.0, NO_SHARES, head.created_ns, head.rank))
        else:
            self._heads.drop(group)
            del self.groups_by_key[group.key]
            if self._recent is group:
                self._recent = None

    def _count_told(self, group: AskGroup, change: int) -> None:
        """Count one ask with `scale_up_told` more or less."""
        group.told += change
        self.told += change
        if group.standing is _HELD:  # the room of their placeholders is theirs
            return
        if change > 0:
            add(self.told_sum, group.shape.amounts)
        else:
            subtract(self.told_sum, group.shape.amounts)

    def _rank_among_equals(self, ask: Allocation) -> int:
        if ask.created_ns not in self._created:
            return 0
        if self._last is None:
            self._last = max((group.last for group in self.groups_by_key.values()), key=place_of)
        if self._last.priority == ask.priority and self._last.created_ns == ask.created_ns:
            self.highest_rank += 1
            return self.highest_rank
        self.lowest_rank -= 1
        return self.lowest_rank


def may_share_time(created_ns: int) -> bool:
    """Whether several asks may share this creation time: RMs send whole seconds, our own stamps are unique."""
    return not created_ns % 1_000_000_000 or created_ns == INT64_MAX


def _key_of(ask: Allocation) -> GroupKey:
    standing = _HELD if ask.held else _RESERVED if ask.reserved else _OPEN
    task_group = ask.task_group if ask.held else ""
    return ask.shape, ask.priority, standing, ask.may_preempt and not ask.preemption_triggered, task_group
