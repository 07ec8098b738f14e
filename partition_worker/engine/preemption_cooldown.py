"""Preemption cooldown: a queue preempts nothing from a queue that preempted from it a short while ago.

Without it, preemption can go in circles: the victims of A in B are submitted again, find victims in C, these find
victims in A, and each round costs the lost work. So this module records for each pair of queues that a *winner*
preempted from a *loser*. A queue preempts nothing from a queue that won over it, directly or through a chain of wins,
while every win of the chain is fresh. The first cooldown of a pair lasts `COOL_DOWN_S`.

Why preemption ends. Draw an arrow from winner to loser for each fresh win. A preemption that would close a circle is
not made, so no circle exists, and while no win becomes stale the arrows are an order in which higher queues take from
lower ones. The highest queue never loses, so it preempts once for each of its asks. The queues below lose only what
higher queues take, and ask again only for that. So the number of preemptions is finite.

Why there is no slow circle. Arrows become stale, so a circle can close later. A win that closes a circle of recorded
arrows, fresh or not, gets a cooldown twice as long as the shortest on the chain that it closes (of several chains,
the one whose shortest is longest). So the shortest cooldown of a circle at least doubles with every round. A round
takes longer than the shortest cooldown: otherwise all its arrows would be fresh, and its last win would not have been
made. So rounds take 5, 10, 20 minutes and so on, up to a day. A pair without wins for as long as its cooldown has
lasted, and at least one hour, is dropped.

Why no queue is kept from its guarantee. Two queues whose work comes and goes preempt from each other repeatedly, each
what the other had borrowed. Such a win is no *quarrel*, because the queue is not below its guarantee on account of
preemption. It doubles no cooldown and respects none for longer than `COOL_DOWN_S`. There is no endless circle of
these wins: every push below a guarantee is counted in the guarantee deficit, so while no work ends by itself, what
queues lack for other reasons never grows, and each such win reduces it. A queue that preempts repeatedly from the
same loser closes no circle and doubles nothing.

Guarantee deficit: for each queue with a guarantee, how far preemption pushed it below that guarantee. What the queue
has won back, or had in excess, does not count. Only an ask that this deficit explains can be part of an endless
circle.

Pairs are kept by path, so a dynamic queue that is removed and created again keeps its cooldown. Preemption for a
required node or for a quota starts no cooldown: asks with a required node cannot be victims, and a quota wins
nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from common.messages import Resources
from common.resources import add_to, drop_zeros
from partition_worker.engine.queues.queue import Queue

COOL_DOWN_S: Final = 300.0
"""How long a queue takes nothing from one that took from it."""

COOL_DOWN_MAX_S: Final = 24 * 3600.0
"""The longest that this becomes for queues that push each other below their guarantees again and again."""

QUIET_S: Final = 3600.0
"""A truce that ended is remembered for as long as it lasted, and for this long at least."""

PAIRS_MAX: Final = 10_000
"""Pairs of queues that are remembered. With more, the one is forgotten whose last preemption is the longest ago: of so
many within its truce the first could be struck back too early, which is better than to keep all from what is theirs.
"""


@dataclass(slots=True)
class _Win:
    """That one queue took from another, the last time."""

    at: float
    """Unix seconds."""
    cool_down_s: float

    def fresh(self, now: float, at_most_s: float) -> bool:
        return now < self.at + min(self.cool_down_s, at_most_s)

    def remembered(self, now: float) -> bool:
        return now < self.at + self.cool_down_s + max(self.cool_down_s, QUIET_S)


class PreemptionCooldowns:
    """Which queue took from which, and for how long that counts."""

    def __init__(self) -> None:
        self._wins: dict[tuple[str, str], _Win] = {}  # (winner, loser), the one that took last at the end
        self._winners: dict[str, dict[str, _Win]] = {}  # by loser, by winner; the same wins

    def __len__(self) -> int:
        """Pairs that are remembered."""
        return len(self._wins)

    def in_force(self, now: float) -> int:
        """Pairs of which the loser takes nothing from the winner now."""
        return sum(win.fresh(now, COOL_DOWN_MAX_S) for win in self._wins.values())

    def wins(self) -> Iterator[tuple[str, str, float, float]]:
        """Winner, loser, when, and for how long (seconds), the one that took last at the end."""
        for (winner, loser), win in self._wins.items():
            yield winner, loser, win.at, win.cool_down_s

    def recall(self, wins: Iterable[tuple[str, str, float, float]]) -> None:
        """Go on where one was that is remembered (`engine/memory`)."""
        for winner, loser, at, cool_down_s in wins:
            self._wins[winner, loser] = self._winners.setdefault(loser, {})[winner] = _Win(at, cool_down_s)

    def took(self, winner: str, loser: str, now: float, *, quarrel: bool = True) -> None:
        """One queue (by path) took something from another, because it had been pushed below its guarantee if it is a
        quarrel. However many go at once, that is once.
        """
        if winner == loser:
            return
        self._forget(now)
        known = self._wins.pop((winner, loser), None)
        before_s = known.cool_down_s if known is not None and known.remembered(now) else COOL_DOWN_S
        cool_down_s = max(before_s, 2 * self._shortest_back(winner, loser, now)) if quarrel else before_s
        win = _Win(now, min(cool_down_s, COOL_DOWN_MAX_S))
        self._wins[winner, loser] = self._winners.setdefault(loser, {})[winner] = win
        if len(self._wins) > PAIRS_MAX:
            self._drop(*next(iter(self._wins)))

    def winners_over(self, loser: str, now: float, *, quarrel: bool = True) -> frozenset[str]:
        """The queues from which this one takes nothing now; `quarrel` as in `took`."""
        at_most_s = COOL_DOWN_MAX_S if quarrel else COOL_DOWN_S
        return frozenset(self._back(loser, lambda win: float(win.fresh(now, at_most_s))))

    def _shortest_back(self, winner: str, loser: str, now: float) -> float:
        """The shortest truce on the way from the loser to the winner, of several ways the longest such; 0 without."""
        return self._back(winner, lambda win: win.cool_down_s if win.remembered(now) else 0.0).get(loser, 0.0)

    def _back(self, start: str, weight: Callable[[_Win], float]) -> dict[str, float]:
        """All who won over `start`, directly or over others, with the weakest win on the strongest such way. A win
        without weight does not count.
        """
        strongest: dict[str, float] = {}
        open_ways = [(COOL_DOWN_MAX_S, start)]
        while open_ways:
            strength, queue = open_ways.pop()
            for winner, win in self._winners.get(queue, {}).items():
                reached = min(strength, weight(win))
                if reached > strongest.get(winner, 0.0):
                    strongest[winner] = reached
                    open_ways.append((reached, winner))
        return strongest

    def _forget(self, now: float) -> None:
        """Drop from the oldest on whatever is not remembered any more; one that is still in keeps those behind it."""
        while self._wins and not next(iter(self._wins.values())).remembered(now):
            self._drop(*next(iter(self._wins)))

    def _drop(self, winner: str, loser: str) -> None:
        del self._wins[winner, loser]
        winners = self._winners[loser]
        del winners[winner]
        if not winners:
            del self._winners[loser]


def suffer(losses: Iterable[tuple[Queue, Resources]]) -> None:
    """These amounts are about to be taken from these leaves, and the victims are not marked yet."""
    taken: dict[Queue, Resources] = {}
    for leaf, amount in losses:
        for level in leaf.ancestry():
            if level.guaranteed:
                add_to(taken.setdefault(level, {}), amount)
    for level, amounts in taken.items():
        lacking: Resources = {}
        for kind, room in _room(level).items():
            lost = amounts.get(kind, 0)
            lacking[kind] = max(0, min(level.lacking.get(kind, 0), room) + lost)
        level.lacking = drop_zeros(lacking)


def explain(leaf: Queue, wanted: Resources) -> bool:
    """Whether an ask for this would not fit what is guaranteed to its queue, had nothing been taken from it."""
    fits_somewhere = False
    for level in leaf.ancestry():
        for kind, room in _room(level).items():
            if amount := wanted.get(kind, 0):
                lacking = level.lacking.get(kind, 0)
                fits = amount <= room - lacking
                if lacking and not fits:
                    return True
                fits_somewhere = fits_somewhere or fits
    return not fits_somewhere


def _room(level: Queue) -> Resources:
    """What is left of the guarantee of a queue; what was asked back already counts as gone."""
    allocated, preempting = level.allocated, level.preempting
    return {
        kind: most - allocated.get(kind, 0) + preempting.get(kind, 0) for kind, most in (level.guaranteed or {}).items()
    }
