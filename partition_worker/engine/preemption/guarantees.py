"""Guarantees: what remains of the guaranteed resources of a queue, now and if victims were gone.

A guarantee binds at its queue and for all queues below it. The remaining amount of a queue is, per type, the least
that is left on its path; below zero the queue has more than its guarantee. To try victims, only the levels that
guarantee something are copied, as a few numbers each. A trial is a few additions that are undone afterwards. No queue
changes.
"""

from collections.abc import Iterable
from typing import Final

from common.messages import Resources
from partition_worker.engine.ask_shapes import Amounts
from partition_worker.engine.queues.queue import Queue

Level = dict[str, int]
"""What is left of the guarantee of one queue itself, for each type that it names; negative where it has more."""

Bounds = dict[str, tuple[Level, ...]]
"""By type the levels that bind a queue, of which the least counts. Empty if nothing does."""

Place = tuple[Level, str]
"""A type, and a level that guarantees something of it."""

TOO_MUCH: Final[Place] = ({"": -1}, "")
"""What a queue has to which nothing is guaranteed: too much, always."""


class Share:
    """What the guarantees of a queue and of those above it mean for it. Queues with the same guarantees share one."""

    __slots__ = ("bounds", "levels")

    def __init__(self, levels: tuple[Level, ...], bounds: Bounds) -> None:
        self.levels = levels
        """Of all queues on its way up that guarantee something: where what it gets or loses counts."""
        self.bounds = bounds
        """Those of them that bind the queue."""

    def remaining(self) -> Resources | None:
        """What is left to the queue, per type; None if nothing is guaranteed to it or above it."""
        if not self.bounds:
            return None
        return {kind: min(level[kind] for level in levels) for kind, levels in self.bounds.items()}

    def within(self) -> bool:
        """Whether the queue has no more than what is guaranteed, of any type, so that nothing may be taken from it."""
        for kind, levels in self.bounds.items():
            for level in levels:
                if level[kind] < 0:
                    return False
        return bool(self.bounds)

    def surplus(self, kinds: Iterable[str]) -> list[Place]:
        """Where it would have to have too much, of any of these types, so that something may be taken from it."""
        bounds = self.bounds
        return [(level, kind) for kind in kinds for level in bounds.get(kind, ())] if bounds else [TOO_MUCH]

    def binds(self, amounts: Amounts) -> bool:
        """Whether less remains to the queue if it gets these amounts."""
        bounds = self.bounds
        return any(amount and kind in bounds for kind, amount in amounts)

    def covers(self, amounts: Resources) -> bool:
        """Whether what remains covers the amounts, of the types that are guaranteed; never if nothing is."""
        return bool(self.bounds) and all(
            level[kind] >= amount for kind, amount in amounts.items() for level in self.bounds.get(kind, ())
        )


class Guarantees:
    """The shares of queues, as the queue of one ask sees them. Read once for each queue that is asked about."""

    def __init__(self, leaf: Queue) -> None:
        self._leaf = leaf
        self._shares: dict[Queue, Share] = {}
        self.taker = self.share(leaf)
        """That of the queue of the ask."""

    def share(self, queue: Queue) -> Share:
        """That of any queue."""
        known = self._shares.get(queue)
        if known is None:
            known = self._shares[queue] = self._read(queue)
        return known

    def may_cover(self, amounts: Resources) -> bool:
        """Whether what is guaranteed to the queue of the ask itself covers the amounts, of the types that it names.
        If not, victims do not help: they are those of other queues, and none of them counts there.
        """
        leaf = self._leaf
        if not leaf.guaranteed or leaf.children:  # one that was a parent, or becomes one, may have victims below it
            return True
        own = self.taker.levels[-1]
        return all(own[kind] >= amount for kind, amount in amounts.items() if kind in own)

    def _read(self, queue: Queue) -> Share:
        above = Share((), {}) if queue.parent is None else self.share(queue.parent)
        if not queue.guaranteed:
            return above
        allocated, preempting = queue.allocated, queue.preempting
        own = {kind: most - allocated.get(kind, 0) + preempting.get(kind, 0) for kind, most in queue.guaranteed.items()}
        levels = (*above.levels, own)
        if queue is self._leaf:  # of what it is guaranteed itself those above it cannot take anything away
            return Share(levels, {**above.bounds, **dict.fromkeys(own, (own,))})
        if queue.parent is not None and self._leaf.guaranteed and self._leaf.path.startswith(queue.path):
            # Its guarantee does not bind those below it against an ask from below it that has one of its own. That
            # `root.a` counts as above `root.ab` is so in YuniKorn, too.
            return Share(levels, {})
        if not above.bounds:
            return Share(levels, dict.fromkeys(own, (own,)))
        return Share(levels, above.bounds | {kind: (*above.bounds.get(kind, ()), own) for kind in own})


class Giver:
    """Queues with the same guarantees, from which amounts might go to the queue of the ask, the taker."""

    __slots__ = ("_apart", "_giving", "_levels", "_shared", "_surplus", "_taking", "has_surplus")

    def __init__(self, share: Share, taker: Share, wanted: Iterable[str]) -> None:
        """`wanted`: the types that the ask names."""
        self._surplus = share.surplus(wanted)
        self.has_surplus = self.may_leave()
        """Whether anything may leave them while all are there. If not, nothing ever may: whoever goes leaves less at
        some levels and, as what moves between queues below a level counts there before and after, more at none.
        """
        self._levels = share.levels
        both = _in_common(share.levels, taker.levels)
        self._giving, self._taking = share.levels[both:], taker.levels[both:]
        self._apart: Bounds = taker.bounds
        """What binds the taker, where only what it gets counts."""
        self._shared: Bounds = {}
        """The same, where what these lose counts as well."""
        if both:
            self._apart, self._shared = _divided(taker.bounds, share.levels[:both])

    def may_leave(self) -> bool:
        """Whether they have more than what is guaranteed to them, of anything that is wanted. What they have afterwards
        does not count: the last one to go may leave them with less.
        """
        for level, kind in self._surplus:  # noqa: SIM110 - a generator costs as much as the loop, for every candidate
            if level[kind] < 0:
                return True
        return False

    def may_enter(self, amounts: Amounts) -> bool:
        """Whether what remains to the taker, once these amounts have left, covers them, of the types that are
        guaranteed. Where they count for both, it does unless there is too much already.
        """
        apart, shared = self._apart, self._shared
        for kind, amount in amounts:
            for level in apart.get(kind, ()):
                if level[kind] < amount:
                    return False
            if shared:
                for level in shared.get(kind, ()):
                    if level[kind] < 0:
                        return False
        return True

    def move(self, amounts: Amounts, times: int = 1) -> None:
        """Suppose that the taker uses these amounts instead; -1 times takes that back."""
        for kind, amount in amounts:
            for level in self._giving:
                if kind in level:
                    level[kind] += amount * times
            for level in self._taking:
                if kind in level:
                    level[kind] -= amount * times

    def leave(self, amounts: Amounts, times: int = 1) -> None:
        """Suppose that nobody uses these amounts any more; -1 times takes that back."""
        for kind, amount in amounts:
            for level in self._levels:
                if kind in level:
                    level[kind] += amount * times


def _in_common(left: tuple[Level, ...], right: tuple[Level, ...]) -> int:
    """How many of the levels, from the root down, are of queues above both."""
    count = 0
    for one, other in zip(left, right, strict=False):
        if one is not other:
            break
        count += 1
    return count


def _divided(bounds: Bounds, shared: tuple[Level, ...]) -> tuple[Bounds, Bounds]:
    """What binds apart from these levels, and what of them does."""
    among = {id(level) for level in shared}
    apart = {kind: tuple([one for one in levels if id(one) not in among]) for kind, levels in bounds.items()}
    return apart, {kind: tuple([one for one in levels if id(one) in among]) for kind, levels in bounds.items()}
