"""What queues have left of what is guaranteed to them, and what they would have left if victims went.

A guarantee binds at its queue and for all below it. What remains to a queue is, per type, the least that is left on its
way up; below zero it has more than is guaranteed to it. Victims are tried by supposing them gone, so only the levels
that guarantee something are written down, each as a few numbers, and a supposition is a few additions that are taken
back. No queue is copied, and none is changed.

Not here: who may be a victim (`candidates.py`), and what the answers are used for (`nodes.py`, `guaranteed.py`).
"""

from collections.abc import Iterable

from common.messages import Resources
from partition_worker.engine.needs import Shape
from partition_worker.engine.queues.queue import Queue

Level = dict[str, int]
"""What is left of the guarantee of one queue itself, for each type that it names; negative where it has more."""

Entry = tuple[Level, str, int]
"""An amount of a type, and a level where it counts."""


class Share:
    """What the guarantees of a queue and of those above it mean for the queue."""

    def __init__(self, levels: tuple[Level, ...], bounds: dict[str, tuple[Level, ...]]) -> None:
        self.levels = levels
        """Of all queues on its way up that guarantee something: where what it gets or loses counts."""
        self.bounds = bounds
        """By type those of them that bind the queue, of which the least counts. Empty if nothing does."""

    def remaining(self) -> Resources | None:
        """What is left to the queue, per type; None if nothing is guaranteed to it or above it."""
        if not self.bounds:
            return None
        return {kind: min(level[kind] for level in levels) for kind, levels in self.bounds.items()}

    def within(self) -> bool:
        """Whether the queue has no more than what is guaranteed, of any type, so that nothing may be taken from it."""
        return bool(self.bounds) and all(level[kind] >= 0 for kind, levels in self.bounds.items() for level in levels)

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
        return Share(levels, above.bounds | {kind: (*above.bounds.get(kind, ()), own) for kind in own})


class Transfer:
    """Amounts that might leave one queue, and enter that of the ask."""

    __slots__ = ("_entering", "_leaving", "_needed", "_surplus", "gains")

    def __init__(self, giver: Share, taker: Share, shape: Shape, wanted: Iterable[str]) -> None:
        """`wanted`: the types that the ask names."""
        amounts = dict(shape)
        self.gains = tuple(amounts.get(kind, 0) for kind in wanted)
        """Of each type that is wanted, what it frees on a node."""
        self._surplus = [(level, kind) for kind in wanted for level in giver.bounds.get(kind, ())]
        if not giver.bounds:
            self._surplus = [({"": -1}, "")]  # a queue without any guarantee always has too much
        self._leaving = _entries(giver.levels, shape)
        self._entering = _entries(taker.levels, shape)
        self._needed: list[Entry] = [(level, kind, n) for kind, n in shape for level in taker.bounds.get(kind, ())]

    def may_leave(self) -> bool:
        """Whether the queue has more than what is guaranteed to it, of anything that is wanted. What it has
        afterwards does not count: the last one may leave it with less.
        """
        for level, kind in self._surplus:  # noqa: SIM110 - a generator costs as much as the loop, for every candidate
            if level[kind] < 0:
                return True
        return False

    def leave(self) -> None:
        """Suppose that the amounts are no longer used by the queue."""
        for level, kind, amount in self._leaving:
            level[kind] += amount

    def stay(self) -> None:
        """Take `leave` back."""
        for level, kind, amount in self._leaving:
            level[kind] -= amount

    def may_enter(self) -> bool:
        """Whether what remains to the queue of the ask covers the amounts, of the types that are guaranteed."""
        for level, kind, amount in self._needed:  # noqa: SIM110 - as above
            if level[kind] < amount:
                return False
        return True

    @property
    def matters(self) -> bool:
        """Whether less remains to the queue of the ask once the amounts have entered it."""
        return any(amount for _, _, amount in self._needed)

    def enter(self) -> None:
        """Suppose that the queue of the ask uses the amounts."""
        for level, kind, amount in self._entering:
            level[kind] -= amount

    def withdraw(self) -> None:
        """Take `enter` back."""
        for level, kind, amount in self._entering:
            level[kind] += amount


def _entries(levels: tuple[Level, ...], shape: Shape) -> list[Entry]:
    return [(level, kind, amount) for kind, amount in shape for level in levels if kind in level]
