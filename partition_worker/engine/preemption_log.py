"""The log of preemptions, the pause after each, the preemption cooldown and the guarantee deficit.

The log holds victims, the asks they were preempted for, and the lost work: what a victim used, as amount times seconds.
The latest entries are kept for queries.

Preemption cooldown: a queue preempts nothing from a queue that preempted from it a short while ago. Without it,
preemption can go in circles: the victims of A in B are submitted again, find victims in C, these find victims in A, and
each round costs the lost work. So this module records for each pair of queues that a *winner* preempted from a *loser*.
A queue preempts nothing from a queue that won over it, directly or through a chain of wins, while every win of the
chain is fresh.

How long a win is fresh. The loser may take back what it is guaranteed after its `preemption.delay`. But if the two have
traded places, so that the win closes a circle of recorded wins, its `preemption.cooldown` counts.

Why preemption ends. Draw an arrow from winner to loser for each fresh win. A preemption that would close a circle is
not made, so no circle exists, and while no win becomes stale the arrows are an order in which higher queues take from
lower ones. The highest queue never loses, so it preempts once for each of its asks. The queues below lose only what
higher queues take, and ask again only for that. So the number of preemptions is finite.

Why there is no slow circle. Arrows become stale, so a circle can close later. A win that closes a circle of recorded
arrows, fresh or not, gets a cooldown twice as long as the shortest on the chain that it closes (of several chains,
the one whose shortest is longest), and at least the `preemption.cooldown`. So after the first round, in which each win
may last as long as a delay only, the shortest cooldown of a circle at least doubles with every round. A round
takes longer than the shortest cooldown: otherwise all its arrows would be fresh, and its last win would not have been
made. So by default rounds take 5, 10, 20 minutes and so on, up to a day. A pair without wins for as long as its
cooldown has lasted, and at least one hour, is dropped.

Why no queue is kept from its guarantee. Two queues whose work comes and goes preempt from each other repeatedly, each
what the other had borrowed. Such a win is no *quarrel*, because the queue is not below its guarantee on account of
preemption. It doubles no cooldown and respects none for longer than the `preemption.cooldown` of the queue. There is no
endless circle of these wins: every push below a guarantee is counted in the guarantee deficit, so while no work ends by
itself, what queues lack for other reasons never grows, and each such win reduces it. A queue that preempts repeatedly
from the same loser closes no circle and doubles nothing.

Guarantee deficit: for each queue with a guarantee, how far preemption pushed it below that guarantee. Amounts that the
queue has won back, or had in excess, do not count. Only an ask that this deficit explains can be part of an endless
circle.

Pairs are kept by path, so a dynamic queue that is removed and created again keeps its cooldown. Preemption for a
required node or for a quota starts no cooldown: asks with a required node cannot be victims, and a quota wins
nothing.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

from yunishard.common.messages.kinds import Resources
from yunishard.common.resources import add_to, drop_zeros, encode_sum, total_of
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.application import Application
from yunishard.partition_worker.engine.durable_records import CooldownRecord, PreemptionRecord, VictimRecord
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.queues.queue import Queue

ENTRIES_MAX: Final = 1_000
"""Entries that are kept; beyond it the oldest are dropped. Cooldowns stay."""

VICTIMS_MAX: Final = 100
"""Victims that an entry lists; others only count in its sums."""

Kind = Literal["guaranteed", "required-node", "quota"]


class Preemptions:
    """The latest preemptions of a partition, their cooldowns, and the pause after the last one."""

    def __init__(self, applications: Mapping[str, Application]) -> None:
        self._applications = applications
        """Those of the partition, by id."""
        self.cooldowns = PreemptionCooldowns()
        self.pause_until = 0.0
        """No ask looks for victims before this Unix time."""
        self.paused_for = ""
        """The key of the ask that the pause waits for."""
        self.made: Counter[Kind] = Counter()
        """Number of preemptions by kind since the process started."""
        self.victims = 0
        """Number of victims since the process started."""
        self.held_back = 0
        """Number of failed attempts while a cooldown protected a queue."""
        self.entries: deque[PreemptionRecord] = deque(maxlen=ENTRIES_MAX)
        """The newest first."""

    def record(self, now: float, ask: Allocation, node: Node, victims: Sequence[Allocation]) -> PreemptionRecord:
        """Record the victims of an ask, and return the entry. Call it before they are marked."""
        application = self._applications[ask.application_id]
        leaf = application.queue
        kind: Kind = "required-node" if ask.shape.required_node else "guaranteed"
        entry = self._append(now, kind, leaf, victims, (application.application_id, ask.key, node.node_id))
        if kind == "guaranteed":
            is_quarrel = explains_ask(leaf, ask.resources)
            losses = [(self._queue(victim), victim.resources) for victim in victims]
            for loser in dict.fromkeys(queue for queue, _ in losses):
                policies = loser.policies
                first_s, again_s = policies.preemption_delay_s, policies.preemption_cooldown_s
                self.cooldowns.record_win(
                    leaf.path, loser.path, now, first_s=first_s, again_s=again_s, is_quarrel=is_quarrel
                )
            add_deficits(losses)
        return entry

    def record_quota(self, now: float, queue: Queue, victims: Sequence[Allocation]) -> PreemptionRecord:
        """Record the victims of a queue whose quota is enforced. Call it before they are marked."""
        return self._append(now, "quota", queue, victims, ("", "", ""))

    def pause(self, ask: Allocation, until: float) -> None:
        """Let no ask look for victims until this one is placed, or until this Unix time."""
        self.pause_until, self.paused_for = until, ask.key

    def end_pause(self, ask: Allocation) -> float:
        """End the pause if it waits for this ask; return until when it would have lasted, 0.0 if it did not wait."""
        if ask.key != self.paused_for:
            return 0.0
        until, self.pause_until, self.paused_for = self.pause_until, 0.0, ""
        return until

    def protected(self, now: float, claimant: Queue, wanted: Resources) -> dict[str, float]:
        """Return the paths of the queues that a cooldown protects from an ask of this queue for these amounts, and for
        how many seconds.
        """
        at_most_s = COOL_DOWN_MAX_S if explains_ask(claimant, wanted) else claimant.policies.preemption_cooldown_s
        return self.cooldowns.winners_over(claimant.path, now, at_most_s)

    def _append(
        self, now: float, kind: Kind, queue: Queue, victims: Sequence[Allocation], ask: tuple[str, str, str]
    ) -> PreemptionRecord:
        """`ask` is the id of its application, its key, and its node."""
        self.made[kind] += 1
        self.victims += len(victims)
        listed = [
            VictimRecord(
                key=one.key,
                application_id=one.application_id,
                queue=self._queue(one).path,
                node_id=one.node_id,
                resources=dict(one.resources),
                ran_s=max(0, int(now - one.bound_ns / 1e9)),
            )
            for one in victims
        ]
        resources = encode_sum(total_of(one.resources for one in listed))
        lost = encode_sum(
            total_of({kind: value * one.ran_s for kind, value in one.resources.items()} for one in listed)
        )
        entry = PreemptionRecord(now, kind, queue.path, *ask, tuple(listed[:VICTIMS_MAX]), len(listed), resources, lost)
        self.entries.appendleft(entry)
        return entry

    def _queue(self, allocation: Allocation) -> Queue:
        return self._applications[allocation.application_id].queue


# Preemption cooldown --------------------------------------------------------------------------------------------------

COOL_DOWN_MAX_S: Final = 24 * 3600.0
"""Maximum cooldown, for queues that push each other below their guarantees again and again."""

QUIET_S: Final = 3600.0
"""A pair whose cooldown has ended is kept for as long as it lasted, and at least this long."""

PAIRS_MAX: Final = 10_000
"""Pairs of queues that are kept; beyond it the pair with the oldest preemption is dropped. With so many pairs still in
their cooldown, one might be preempted from too early, which is better than keeping all from their guarantees.
"""


def _time_left(win: CooldownRecord, now: float, at_most_s: float) -> float:
    """Seconds for which a win is still fresh, by a cooldown of at most so many seconds; 0.0 if it is not."""
    return max(0.0, win.at + min(win.cool_down_s, at_most_s) - now)


def _is_kept(win: CooldownRecord, now: float) -> bool:
    return now < win.at + win.cool_down_s + max(win.cool_down_s, QUIET_S)


class PreemptionCooldowns:
    """Which queue preempted from which, and how long that protects the winner."""

    def __init__(self) -> None:
        self.wins: OrderedDict[tuple[str, str], CooldownRecord] = OrderedDict()
        """By the paths of winner and loser, the latest last."""
        self._by_loser: defaultdict[str, dict[str, CooldownRecord]] = defaultdict(dict)
        """The same wins, by loser and winner."""
        self._changed: dict[tuple[str, str], None] = {}
        """Pairs that were recorded or dropped since `drain_changed`."""

    def drain_changed(self) -> dict[tuple[str, str], None]:
        """Return the pairs that were recorded or dropped since the last call."""
        changed, self._changed = self._changed, {}
        return changed

    def store_win(self, win: CooldownRecord) -> None:
        """Add the latest win, as it is."""
        self.wins[win.winner, win.loser] = self._by_loser[win.loser][win.winner] = win

    def count_fresh(self, now: float) -> int:
        """Return the number of pairs whose loser preempts nothing from the winner now."""
        return sum(_time_left(win, now, COOL_DOWN_MAX_S) > 0 for win in self.wins.values())

    def record_win(
        self, winner: str, loser: str, now: float, *, first_s: float, again_s: float, is_quarrel: bool = True
    ) -> None:
        """Record that a queue (by path) preempted from another. The cooldown is `first_s`, and at least `again_s` if
        the win closes a circle. It is a quarrel if preemption had pushed the winner below its guarantee. Call it once
        for all victims of one preemption.
        """
        if winner == loser:
            return
        while self.wins and not _is_kept(next(iter(self.wins.values())), now):
            self._drop_oldest()
        known = self.wins.pop((winner, loser), None)
        cool_down_s = known.cool_down_s if known is not None and _is_kept(known, now) else first_s
        back = self._chains(winner, lambda win: win.cool_down_s if _is_kept(win, now) else 0.0)
        if loser in back:
            cool_down_s = max(cool_down_s, again_s, 2 * back[loser] if is_quarrel else 0.0)
        cool_down_s = min(cool_down_s, COOL_DOWN_MAX_S)
        self.store_win(CooldownRecord(winner=winner, loser=loser, at=now, cool_down_s=cool_down_s))
        self._changed[winner, loser] = None
        if len(self.wins) > PAIRS_MAX:
            self._drop_oldest()

    def winners_over(self, loser: str, now: float, at_most_s: float = COOL_DOWN_MAX_S) -> dict[str, float]:
        """Return the queues from which this one preempts nothing now, and for how many seconds, if it respects no
        cooldown for longer than `at_most_s`.
        """
        return self._chains(loser, lambda win: _time_left(win, now, at_most_s))

    def _chains(self, start: str, weigh: Callable[[CooldownRecord], float]) -> dict[str, float]:
        """Return the queues that won over `start`, directly or through others, with the smallest weight on a chain; of
        several chains that whose smallest weight is largest. A win of weight 0 does not count.
        """
        strongest: dict[str, float] = {}
        pending = [(COOL_DOWN_MAX_S, start)]
        while pending:
            strength, queue = pending.pop()
            for winner, win in self._by_loser.get(queue, {}).items():
                reached = min(strength, weigh(win))
                if reached > strongest.get(winner, 0.0):
                    strongest[winner] = reached
                    pending.append((reached, winner))
        return strongest

    def _drop_oldest(self) -> None:
        (winner, loser), _ = self.wins.popitem(last=False)
        del self._by_loser[loser][winner]
        self._changed[winner, loser] = None
        if not self._by_loser[loser]:
            del self._by_loser[loser]


# Guarantee deficit ----------------------------------------------------------------------------------------------------


def add_deficits(losses: Iterable[tuple[Queue, Resources]]) -> None:
    """Count these amounts, which preemption is about to take from these leaves; the victims are not marked yet."""
    taken: dict[Queue, Resources] = {}
    for leaf, amount in losses:
        for level in leaf.ancestry():
            if level.guaranteed:
                add_to(taken.setdefault(level, {}), amount)
    for level, amounts in taken.items():
        level.lacking = drop_zeros(
            {
                kind: max(0, min(level.lacking.get(kind, 0), room) + amounts.get(kind, 0))
                for kind, room in remaining_guarantee(level).items()
            }
        )


def explains_ask(leaf: Queue, wanted: Resources) -> bool:
    """Whether an ask for these amounts would not fit the guarantee of its queue even without preemption."""
    fits_somewhere = False
    for level in leaf.ancestry():
        for kind, room in remaining_guarantee(level).items():
            if amount := wanted.get(kind, 0):
                lacking = level.lacking.get(kind, 0)
                fits = amount <= room - lacking
                if lacking and not fits:
                    return True
                fits_somewhere = fits_somewhere or fits
    return not fits_somewhere


def remaining_guarantee(level: Queue) -> Resources:
    """Return the remaining guarantee of a queue itself; victims that are still leaving count as gone. Negative
    if the queue has more than its guarantee.
    """
    allocated, preempting = level.allocated, level.preempting
    return {
        kind: most - allocated.get(kind, 0) + preempting.get(kind, 0) for kind, most in (level.guaranteed or {}).items()
    }
