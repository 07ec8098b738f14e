"""The asks of one application that have no node yet, in the order in which they are tried.

Asks with the same need, priority and standing are one group, because what happens to one of them now would happen to
each: an attempt looks at the first of each group, the oldest, so it costs the number of groups, not of asks.

Not here: whether an ask can be placed (`cycle/cycle.py`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from common.messages import INT64_MAX, Resources
from partition_worker.engine.applications.allocation import Allocation
from partition_worker.engine.applications.line import Line, place_of
from partition_worker.engine.ask_shapes import Need
from partition_worker.engine.order import Order


class Standing(StrEnum):
    """How an ask waits."""

    OPEN = "open"
    """For any node."""
    RESERVED = "reserved"
    """A node is kept for it: it comes first there, and others are tried for it as soon as they have room."""
    HELD = "held"
    """For a placeholder of its task group, whose place it takes."""


class Kind(NamedTuple):
    """What the asks of a group have in common."""

    need: Need
    priority: int
    standing: Standing
    may_preempt: bool
    """Whether others may be asked to make room for them, and have not been yet."""
    task_group: str = ""
    """The one whose placeholders they wait for, if they are held."""


class Failure(NamedTuple):
    """How often attempts failed for one reason, and when the last one did."""

    times: int
    last: float
    """Unix seconds."""


@dataclass(slots=True, eq=False)
class Group:
    """Asks of one kind, in order, and what came of the attempts to place them."""

    kind: Kind
    rank: int
    asks: Line = field(default_factory=Line)
    need: Need = field(init=False)
    plain: bool = field(init=False)
    """Whether they wait for any node that has room."""
    attempted: bool = False
    """Whether all of them were tried at least once, as far as their user's quota goes."""
    told: int = 0
    """Of how many the RM knows that only a larger cluster would help."""
    failures: dict[str, Failure] = field(default_factory=dict)
    """Why they were not placed; there are not many reasons."""

    def __post_init__(self) -> None:
        self.need = need = self.kind.need
        self.plain = self.kind.standing is Standing.OPEN and not need.required_node and need.constraint is None

    def note(self, reason: str, now: float) -> None:
        """An attempt failed for this reason."""
        before = self.failures.get(reason)
        self.failures[reason] = Failure(1 if before is None else before.times + 1, now)

    @property
    def head(self) -> Allocation:
        """The first ask; a group is never empty."""
        return self.asks.head


class PendingAsks:
    """Unplaced asks: highest priority first, of equals the oldest.

    Asks that are equal in both (their times come from the RM, in whole seconds) follow the reference's insertion
    rule: a new one goes behind its equals if they are at the very end of all asks, and otherwise in front of them.
    """

    def __init__(self) -> None:
        self._groups: dict[Kind, Group] = {}
        self._heads: Order[Group] = Order()
        self._group_ranks = 0
        self._created: dict[int, int] = {}
        """How many were created at each time, in Unix nanoseconds; only of times that several can share."""
        self._lowest_rank = self._highest_rank = 0
        self.count = 0
        """How many there are, for whoever looks at thousands of applications."""
        self.priority: int | None = None
        """The highest of an ask, or None without any."""
        self.told = 0
        """Of how many the RM knows that only a larger cluster would help."""
        self._last: Allocation | None = None
        """The last of all asks; None when it has to be looked for."""

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Allocation]:
        """All asks, group by group."""
        for group in self._groups.values():
            yield from group.asks

    @property
    def first_group(self) -> Group:
        """That of the first ask; there must be one."""
        first = self._heads.first()
        assert first is not None, "asks for nothing"
        return first

    @property
    def groups(self) -> Iterator[Group]:
        """In the order of their first asks; must not change meanwhile."""
        return iter(self._heads)

    def add(self, ask: Allocation) -> None:
        """Add an ask at its place."""
        ask.rank = self._rank_among_equals(ask)
        self._put(ask)
        self._note_time(ask.created_ns)
        self.count += 1
        if self.count == 1 or (self._last is not None and place_of(ask) > place_of(self._last)):
            self._last = ask

    @property
    def kinds(self) -> Iterable[Group]:
        """In the order in which they came to be."""
        return self._groups.values()

    @property
    def ranks(self) -> tuple[int, int]:
        """The lowest and the highest rank that an ask ever had among those of its age."""
        return self._lowest_rank, self._highest_rank

    def recall(self, ranks: tuple[int, int]) -> None:
        """Go on with the ranks of one that was remembered (`engine/memory`)."""
        self._lowest_rank, self._highest_rank = ranks

    def take_up(self, asks: Sequence[Allocation], *, attempted: bool, failures: dict[str, Failure]) -> None:
        """Let asks of one kind wait in this order, with what came of the attempts, as one that was remembered did."""
        kind = _kind(asks[0])
        group = self._groups[kind] = Group(kind, self._group_ranks, attempted=attempted, failures=failures)
        self._group_ranks += 1
        for ask in asks:
            ask.group = group
            group.asks.add(ask)
            group.told += ask.scale_up_told
            self._note_time(ask.created_ns)
        self.told += group.told
        self.count += len(asks)
        self._head_changed(group)

    def resize(self, ask: Allocation, resources: Resources) -> None:
        """Let an ask that is in ask for other amounts, at its old place."""
        self._take(ask)
        ask.resize(resources)
        self._put(ask)

    def regroup(self, ask: Allocation) -> None:
        """An ask that is in waits in another way than before, at its old place. What came of the attempts goes with it,
        if it is the first that waits in this way.
        """
        before, known = ask.group, self._groups.get(_kind(ask))
        assert before is not None, ask.key
        attempted = before.attempted and (known is None or known.attempted)
        self._take(ask)
        self._put(ask)
        after = ask.group
        assert after is not None, ask.key
        after.attempted = attempted
        if after is not known:
            after.failures = dict(before.failures)

    def tell(self, ask: Allocation) -> None:
        """The RM is told that only a larger cluster would help an ask that is in; once for each."""
        assert ask.group is not None, ask.key
        assert not ask.scale_up_told, ask.key
        ask.scale_up_told = True
        ask.group.told += 1
        self.told += 1

    def remove(self, ask: Allocation) -> None:
        """Take an ask out that is in."""
        self._take(ask)
        if _shared(ask.created_ns):
            others = self._created[ask.created_ns] - 1
            if others:
                self._created[ask.created_ns] = others
            else:
                del self._created[ask.created_ns]
        self.count -= 1

    def _note_time(self, created_ns: int) -> None:
        if _shared(created_ns):
            self._created[created_ns] = self._created.get(created_ns, 0) + 1

    def _put(self, ask: Allocation) -> None:
        kind = _kind(ask)
        group = self._groups.get(kind)
        if group is None:
            group = self._groups[kind] = Group(kind, self._group_ranks)
            self._group_ranks += 1
        else:
            ask.resemble(group.head)
        ask.group = group
        line = group.asks
        line.add(ask)
        if ask.scale_up_told:
            group.told += 1
            self.told += 1
        group.attempted = False
        if line.head is ask:
            self._head_changed(group)

    def _take(self, ask: Allocation) -> None:
        if self._last is ask:
            self._last = None
        group, ask.group = ask.group, None
        assert group is not None, ask.key
        line = group.asks
        was_head = line.head is ask
        line.remove(ask)
        if ask.scale_up_told:
            group.told -= 1
            self.told -= 1
        if was_head:
            self._head_changed(group)

    def _head_changed(self, group: Group) -> None:
        """The group has another first ask, or none any more."""
        if len(group.asks):
            self._heads.put(group, place_of(group.asks.head))
        else:
            self._heads.drop(group)
            del self._groups[group.kind]
        first = self._heads.first()
        self.priority = None if first is None else first.kind.priority

    def _rank_among_equals(self, ask: Allocation) -> int:
        if ask.created_ns not in self._created:
            return 0
        if self._ends_with_equals_of(ask):
            self._highest_rank += 1
            return self._highest_rank
        self._lowest_rank -= 1
        return self._lowest_rank

    def _ends_with_equals_of(self, ask: Allocation) -> bool:
        if self._last is None:
            self._last = max((group.asks.last for group in self._groups.values()), key=place_of)
        return (self._last.priority, self._last.created_ns) == (ask.priority, ask.created_ns)


def _shared(created_ns: int) -> bool:
    """Whether several asks may have been created then: RMs say whole seconds, and our own stamps are all different."""
    return not created_ns % 1_000_000_000 or created_ns == INT64_MAX


def _kind(ask: Allocation) -> Kind:
    standing = Standing.HELD if ask.held else Standing.RESERVED if ask.reservation else Standing.OPEN
    task_group = ask.task_group if ask.held else ""
    return Kind(ask.need, ask.priority, standing, ask.may_preempt and not ask.preemption_triggered, task_group)
