"""Victim candidates: what remains of the guarantees of queues, and which allocations an ask may preempt.

Guarantees: a guarantee binds at its queue and for all queues below it. The remaining amount of a queue is, per type,
the least that is left on its path; below zero the queue has more than its guarantee. To try victims, only the levels
that guarantee something are copied, as a few numbers each. A trial is a few additions that are undone afterwards. No
queue changes.

Reach: an ask reaches for victims up to a fence. A partition may have thousands of candidates, so each one is checked
once; the guarantee of a queue is computed once for all its allocations. `victim_choice.py` decides which of them help.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, takewhile
from math import inf
from typing import Final

from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.reasons import Reason
from yunishard.common.resources import Limit, plus, tighten
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.amounts import Amounts
from yunishard.partition_worker.engine.application import Application
from yunishard.partition_worker.engine.preemption_log import remaining_guarantee
from yunishard.partition_worker.engine.queues.queue import Queue

Level = dict[str, int]
"""The remaining guarantee of one queue itself, for each type that it names; negative if the queue exceeds it."""

Bounds = dict[str, tuple[Level, ...]]
"""By type the levels that bind a queue, of which the least counts. Empty if no level does."""

NO_GUARANTEE_LEVEL: Final[tuple[Level, str]] = ({"": -1}, "")
"""The level, and type, of a queue without guarantee: it always has more than its guarantee."""

NOTHING: Final[Resources] = {}


@dataclass(slots=True, eq=False)
class GuaranteeShare:
    """The guarantees of a queue and of those above it, as they bind it. Queues with the same guarantees share one."""

    levels: tuple[Level, ...]
    """Those of all queues on its path that have a guarantee, from the root down."""
    bounds: Bounds
    """The levels that bind the queue."""

    def is_within(self) -> bool:
        """Whether the queue has no more than its guarantee, of any type, so that it loses nothing."""
        return bool(self.bounds) and all(level[kind] >= 0 for kind, levels in self.bounds.items() for level in levels)

    def covers(self, amounts: Resources) -> bool:
        """Whether the remaining amount covers these, of the types that are guaranteed; never without a guarantee."""
        return bool(self.bounds) and all(
            level[kind] >= amount for kind, amount in amounts.items() for level in self.bounds.get(kind, ())
        )


class Guarantees:
    """The guarantee shares of queues, as they count for an ask of one leaf; each queue is read once."""

    def __init__(self, leaf: Queue) -> None:
        self._leaf = leaf
        self._shares: dict[Queue, GuaranteeShare] = {}
        self.taker = self.share(leaf)
        """The share of the queue of the ask."""

    def share(self, queue: Queue) -> GuaranteeShare:
        """Return the share of any queue."""
        known = self._shares.get(queue)
        if known is None:
            known = self._shares[queue] = self._read(queue)
        return known

    def may_cover(self, amounts: Resources) -> bool:
        """Whether the guarantee of the leaf itself covers the amounts, of the types that it names. If not, victims do
        not help: they are in other queues and do not count there.
        """
        leaf = self._leaf
        if not leaf.guaranteed or leaf.children:  # a leaf that was a parent, or becomes one, may have victims below it
            return True
        own = self.taker.levels[-1]
        return all(own[kind] >= amount for kind, amount in amounts.items() if kind in own)

    def _read(self, queue: Queue) -> GuaranteeShare:
        above = GuaranteeShare((), {}) if queue.parent is None else self.share(queue.parent)
        if not queue.guaranteed:
            return above
        own = remaining_guarantee(queue)
        levels = (*above.levels, own)
        if queue is self._leaf:  # the queues above cannot take away what the leaf itself is guaranteed
            return GuaranteeShare(levels, {**above.bounds, **dict.fromkeys(own, (own,))})
        if queue.parent is not None and self._leaf.guaranteed and self._leaf.path.startswith(queue.path):
            # Its guarantee does not bind the queues below it against an ask from below it that has one of its own. As
            # in YuniKorn, `root.a` counts as above `root.ab`.
            return GuaranteeShare(levels, {})
        return GuaranteeShare(levels, above.bounds | {kind: (*above.bounds.get(kind, ()), own) for kind in own})


class Giver:
    """Queues with the same guarantees, whose allocations may be preempted for the queue of the ask, the taker."""

    def __init__(self, share: GuaranteeShare, taker: GuaranteeShare, wanted: Iterable[str]) -> None:
        """`wanted`: the types that the ask names."""
        bounds = share.bounds
        self._surplus = (
            [(level, kind) for kind in wanted for level in bounds.get(kind, ())] if bounds else [NO_GUARANTEE_LEVEL]
        )
        self.has_surplus = self.may_leave()
        """Whether an allocation may leave while all are there. If not, none ever may: each that leaves takes an amount
        from some levels and, as what moves between queues below a level counts there before and after, adds to none.
        """
        self._levels = share.levels
        pairs = zip(share.levels, taker.levels, strict=False)
        common = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
        self._giving, self._taking = share.levels[common:], taker.levels[common:]
        self._bounds = taker.bounds
        self._shared = {id(level) for level in share.levels[:common]}
        """The levels that count what the givers lose as well as what the taker gets."""

    def may_leave(self) -> bool:
        """Whether the givers have more than their guarantee of anything that is wanted. Their usage
        afterwards does not count: the last victim may leave them with less.
        """
        for level, kind in self._surplus:  # noqa: SIM110 - a generator costs as much as the loop, for every candidate
            if level[kind] < 0:
                return True
        return False

    def may_enter(self, amounts: Iterable[tuple[str, int]], charged: Resources = NOTHING) -> bool:
        """Whether the remaining amount of the taker, once these amounts have left, covers them, of the types that are
        guaranteed. At levels above both it does unless they are exceeded already. If not, they are too large. `charged`
        is what the taker is to use of the amounts that have left before.
        """
        bounds, shared = self._bounds, self._shared
        for kind, amount in amounts:
            used = charged.get(kind, 0)
            for level in bounds.get(kind, ()):
                if level[kind] - used < (0 if id(level) in shared else amount):
                    return False
        return True

    def move(self, amounts: Amounts, times: int = 1) -> None:
        """Try that the taker uses these amounts instead; -1 times undoes that."""
        _add(self._giving, amounts, times)
        _add(self._taking, amounts, -times)

    def leave(self, amounts: Amounts, times: int = 1) -> None:
        """Try that no queue uses these amounts any more; -1 times undoes that."""
        _add(self._levels, amounts, times)


def _add(levels: tuple[Level, ...], amounts: Amounts, times: int) -> None:
    for kind, amount in amounts.items:
        for level in levels:
            if kind in level:
                level[kind] += amount * times


# Reach ----------------------------------------------------------------------------------------------------------------


def reach_of(leaf: Queue, wanted: Resources, priority: int) -> dict[Queue, int]:
    """Return the queues from that of the ask up to its fence, with the priority of the ask at each.

    The fence is the lowest queue on the path such that only victims below it help: the first that would exceed its
    maximum, that is a fence by its policy, or the root.
    """
    tightest: dict[Queue, Limit | None] = {}
    limit: Limit | None = None
    for queue in reversed(leaf.ancestry()):
        limit = tightest[queue] = tighten(limit, queue.maximum)
    priorities: dict[Queue, int] = {}
    for queue in leaf.ancestry():
        policies = queue.policies
        priority = priorities[queue] = policies.export_priority(priority)
        limit, after = tightest[queue] or {}, plus(queue.allocated, wanted)
        if policies.preemption == "fence" or any(limit.get(kind, value) < value for kind, value in after.items()):
            break
    return priorities


def areas(priorities: dict[Queue, int]) -> Iterator[tuple[Queue, int | None]]:
    """Yield the queues below the fence that have applications, in the order of the tree, without that of the ask; and
    the highest priority of a victim in each, None without a limit. `priorities` as from `reach_of`.
    """
    leaf, fence = next(iter(priorities)), next(reversed(priorities))
    pending = [(fence, priorities[fence], False)]
    while pending:
        queue, priority, is_unlimited = pending.pop()
        if queue.applications and queue is not leaf:
            yield queue, None if is_unlimited else priority
        below: list[tuple[Queue, int, bool]] = []
        for child in queue.children.values():
            own, policies = priorities.get(child), child.policies
            if own is not None:  # against its siblings, the ask also has the offsets of the queues above
                below.append((child, own, is_unlimited))
            elif not policies.priority_fence:
                below.append((child, priority - policies.priority_offset, is_unlimited))
            elif policies.priority_offset <= priority:
                below.append((child, priority, True))
        pending.extend(reversed(below))  # a stack, so the first child is next


def find_shield(queue: Queue, guarantees: Guarantees, protected: Container[str]) -> Reason | None:
    """Return what protects all allocations of a queue from an ask; None if nothing does."""
    if queue.policies.preemption == "disabled":
        return Reason.PREEMPTION_DISABLED
    if queue.path in protected:
        return Reason.PREEMPTION_COOLDOWN
    return Reason.PREEMPTION_WITHIN_GUARANTEE if guarantees.share(queue).is_within() else None


Candidate = tuple[Allocation, Giver]
"""An allocation that may be chosen, and the queues that would give it."""


def find_victim_candidates(
    applications: Mapping[str, Application],
    priorities: dict[Queue, int],
    guarantees: Guarantees,
    wanted: Resources,
    protected: Container[str],
) -> list[Candidate]:
    """Return all candidates: those that agreed to be preempted before others, originators last among each, of equals
    the newest first. `protected` are the paths of queues that lose nothing to this ask.
    """
    grades: tuple[list[Candidate], ...] = ([], [], [], [])
    givers: dict[GuaranteeShare, Giver] = {}
    for queue, limit in areas(priorities):
        if find_shield(queue, guarantees, protected) is not None:
            continue
        share = guarantees.share(queue)
        giver = givers.get(share)
        if giver is None:
            giver = givers[share] = Giver(share, guarantees.taker, wanted)
        highest, shape, counts = inf if limit is None else limit, None, False
        for one in chain.from_iterable(applications[name].allocations.values() for name in queue.applications):
            if one.released or one.preempted or one.priority > highest:
                continue
            if one.shape is not shape:  # consecutive allocations often have the same
                shape = one.shape
                counts = not shape.required_node and not wanted.keys().isdisjoint(one.resources)
            if counts:
                grades[2 * (not one.may_be_victim) + one.originator].append((one, giver))
    for grade in grades:
        grade.sort(key=lambda candidate: candidate[0].created_ns, reverse=True)
    return list(chain.from_iterable(grades))
