"""The log of preemptions: victims, the asks they were preempted for, and the work that was lost.

The lost work of a victim is what it used, as amount times seconds. The latest entries are kept for queries. The log
also holds the preemption cooldown (`preemption_cooldown.py`) and the pause after a preemption.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from common.messages import Resources
from common.resources import total_of
from partition_worker.engine import preemption_cooldown
from partition_worker.engine.allocation import Allocation
from partition_worker.engine.application import Application
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.preemption_cooldown import PreemptionCooldowns
from partition_worker.engine.queues.queue import Queue

ENTRIES_MAX: Final = 1_000
"""Entries that are kept; beyond it the oldest are forgotten, which changes no truce."""

VICTIMS_MAX: Final = 100
"""Victims that an entry names. Of those beyond it only the sums are kept."""

CALLED_MAX: Final = 16
"""Applications that look for victims at once when a pause ends early; others do when it would have ended."""

Kind = Literal["guaranteed", "required-node", "quota"]


class Victim(NamedTuple):
    """An allocation that had to go."""

    key: str
    application_id: str
    queue: str
    node_id: str
    resources: Resources
    ran_s: int
    """For how long it had its node, whole seconds."""


class Preemption(NamedTuple):
    """Something that made allocations go, all at once."""

    at: float
    """Unix seconds."""
    kind: Kind
    queue: str
    """Path of the queue of the ask for which it was done, or of the one whose quota was enforced."""
    application_id: str
    """Whose ask it was; empty for a quota."""
    ask_key: str
    """Empty for a quota."""
    node_id: str
    """Where the ask is to run; empty for a quota."""
    victims: tuple[Victim, ...]
    """The first of them."""
    victim_count: int
    """All of them."""
    resources: Resources
    """What all of them used."""
    lost: Resources
    """Amount times seconds, over all of them."""


class Preemptions:
    """The latest preemptions of a partition, and the truces that follow from them."""

    def __init__(self, applications: Mapping[str, Application]) -> None:
        self._applications = applications
        """Those of the partition, by id."""
        self.cooldowns = PreemptionCooldowns()
        self.pause_until = 0.0
        """No ask looks for victims before this Unix time."""
        self.paused_for = ""
        """The ask that is waited for, or none."""
        self.turned_away: dict[str, None] = {}
        """Applications that would look for victims now."""
        self.made: Counter[Kind] = Counter()
        """Of each kind, since this process began."""
        self.victims = 0
        """Who had to go, in all of them."""
        self.held_back = 0
        """Attempts that came to nothing while a truce protected somebody."""
        self._entries: deque[Preemption] = deque(maxlen=ENTRIES_MAX)

    def __iter__(self) -> Iterator[Preemption]:
        """Those that are kept, the newest first."""
        return reversed(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def recall(self, entries: Iterable[Preemption]) -> None:
        """Go on where one was that is remembered (`engine/memory`), with these entries, the oldest first."""
        self._entries.extend(entries)

    def record(self, now: float, ask: Allocation, node: Node, victims: Sequence[Allocation]) -> None:
        """These have to go so that the ask can run on the node. To be called before they are marked."""
        application = self._applications[ask.application_id]
        kind: Kind = "required-node" if ask.shape.required_node else "guaranteed"
        path = application.queue.path
        self._add(now, kind, path, application.application_id, ask.key, node.node_id, victims)
        if kind == "guaranteed":
            quarrel = preemption_cooldown.explain(application.queue, ask.resources)
            losers = [(self._queue(victim), victim.resources) for victim in victims]
            for loser in dict.fromkeys(queue.path for queue, _ in losers):
                self.cooldowns.took(path, loser, now, quarrel=quarrel)
            preemption_cooldown.suffer(losers)

    def record_quota(self, now: float, queue: Queue, victims: Sequence[Allocation]) -> None:
        """These have to go because their queue, or one above it, has more than its maximum by now."""
        self._add(now, "quota", queue.path, "", "", "", victims)

    def pause(self, ask: Allocation, until: float) -> None:
        """Nobody else looks for victims until this ask runs, or for so long (Unix seconds)."""
        self.pause_until, self.paused_for = until, ask.key
        self.turned_away = {}

    def turn_away(self, application_id: str) -> None:
        """An ask of the application would look for victims now, were it not for the pause."""
        if len(self.turned_away) < CALLED_MAX:
            self.turned_away[application_id] = None

    def settled(self, ask: Allocation) -> tuple[str, ...]:
        """Nothing has to be kept any more for an ask for which others had to go. If the pause was for it, that is over;
        the applications that were turned away, the first one in front.
        """
        if ask.key != self.paused_for:
            return ()
        called = tuple(self.turned_away)
        self.pause_until, self.paused_for, self.turned_away = 0.0, "", {}
        return called

    def protected(self, now: float, claimant: Queue, wanted: Resources) -> frozenset[str]:
        """The paths of queues that lose nothing to an ask of this queue for so much, as it lost to them."""
        quarrel = preemption_cooldown.explain(claimant, wanted)
        return self.cooldowns.winners_over(claimant.path, now, quarrel=quarrel)

    def _add(
        self,
        now: float,
        kind: Kind,
        queue: str,
        application_id: str,
        ask_key: str,
        node_id: str,
        victims: Sequence[Allocation],
    ) -> None:
        self.made[kind] += 1
        self.victims += len(victims)
        losses = [self._loss(victim, now) for victim in victims]
        self._entries.append(
            Preemption(
                at=now,
                kind=kind,
                queue=queue,
                application_id=application_id,
                ask_key=ask_key,
                node_id=node_id,
                victims=tuple(losses[:VICTIMS_MAX]),
                victim_count=len(losses),
                resources=total_of(one.resources for one in losses),
                lost=total_of({kind: n * one.ran_s for kind, n in one.resources.items()} for one in losses),
            )
        )

    def _loss(self, one: Allocation, now: float) -> Victim:
        ran_s, path = max(0, int(now - one.bound_ns / 1e9)), self._queue(one).path
        return Victim(one.key, one.application_id, path, one.node_id, dict(one.resources), ran_s)

    def _queue(self, allocation: Allocation) -> Queue:
        return self._applications[allocation.application_id].queue
