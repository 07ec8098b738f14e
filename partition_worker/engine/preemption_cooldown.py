"""Who may not strike back: a queue takes nothing from one that took from it a while ago.

Without this, preemption can go round in circles: the victims of A in B are submitted again, find victims in C, these
find victims in A, and so on for ever, with every round paid for in lost work. So for each pair of queues it is written
down that the *winner* took from the *loser*, and a queue takes nothing from whoever won over it, directly or over
others that lost to the one and won over the next, while every win on that way is fresh. The first truce of a pair
lasts `COOL_DOWN_S`.

Why it comes to an end. Draw an arrow from winner to loser for each win that is fresh. A preemption that would close a
circle of arrows is not made, so there never is a circle, of two queues or of twenty, and while nothing goes stale the
arrows are an order in which the higher take from the lower. The highest never lose, so they ask for victims once for
each of their asks; those below them lose only what these take and ask again only for that, and so down the order: the
number of preemptions is finite.

Why it does not go round slowly instead. Arrows go stale, so a circle can close later. A win that closes a circle of
arrows that are *remembered*, fresh or not, gets a truce twice as long as the shortest on the way that it closes (of
several ways the one whose shortest is longest). Going round once more every win does so, hence the shortest truce of
the circle at least doubles with every round. And a round takes longer than the shortest truce: if all of it were
younger than that, all its arrows would be fresh, and the last would not have been made. So rounds take 5, 10, 20
minutes and so on up to a day, which is what is left at the worst; a pair that keeps quiet for as long as its truce has
lasted, and an hour at least, is forgotten.

Why nobody is kept from what is guaranteed to it. Two queues whose work comes and goes take from each other again and
again, too, each what the other had borrowed. Such a win is no *quarrel*: the queue is not below its guarantee because
it was pushed there (`setbacks.py`). It doubles nothing, and has to respect no truce for longer than `COOL_DOWN_S`.
There can be no endless circle of these: nobody is pushed below a guarantee without that being counted as a setback, so
while no work ends by itself, what queues lack for other reasons never grows, and each such win makes it less.

A queue that goes on taking from the same loser closes no circle and doubles nothing: filling up what is guaranteed to
it with a hundred asks is no quarrel.

Pairs are kept by path, so that a dynamic queue that goes and comes back is still known. Not here: what was taken
(`preemptions.py`). Preemptions for a required node or a quota make no truce: the former cannot be victims, the latter
win nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from common.messages import Resources
from common.resources import add_to, pruned
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


class Truces:
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
        level.lacking = pruned(lacking)


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
