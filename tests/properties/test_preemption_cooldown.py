"""Preemption comes to an end although every victim is submitted again at once and may then preempt in its turn."""

import random

from tests.builders import apps, asks, nodes
from tests.trial import START_S, Trial
from yunishard.partition_worker.engine import ledger
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.preemption import victim_choice
from yunishard.partition_worker.engine.queues.queue import PREEMPTION_COOLDOWN_S, PREEMPTION_DELAY_S
from yunishard.partition_worker.engine.state import Preempt

LEAVES = ("root.a", "root.b", "root.c", "root.p.x", "root.p.y")
AMOUNTS = ("memory=1", "memory=2", "memory=3", "gpu=1", "memory=1 gpu=1", "memory=2 gpu=1", "memory=1 gpu=2")
ASKS = 24
ROUNDS_MAX = 40
"""Far more than a cluster of this size takes to find its peace."""

CLUSTERS = 80


class Cluster:
    """Some queues that want more than there is, in rounds: whoever finds room runs; of the others all make somebody go
    who can; these leave, and come back as new asks. All of that at one moment.

    In this way a queue can take more than is guaranteed to it, for what it has made go counts for it only when it runs
    there. Then others have a right to some of it.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.submitted = 0
        self.took: list[tuple[str, str]] = []
        self.took_at: list[float] = []
        """Seconds since the beginning."""
        self.trial = Trial("; ".join(self._queue(path) for path in ("root.p", *LEAVES)))
        self.trial.takes(
            nodes(*(f"n{n} memory={self.rng.randint(3, 6)} gpu={self.rng.randint(1, 3)}" for n in range(5)))
        )
        self.trial.takes(apps(*(f"{path} {path}" for path in LEAVES)))
        for _ in range(ASKS):
            self._submit(self.rng.choice(LEAVES), self.rng.choice(AMOUNTS))

    def _queue(self, path: str) -> str:
        most = [f"memory:{self.rng.randint(3, 10)}", f"gpu:{self.rng.randint(1, 5)}"]
        chosen = self.rng.choice((most, most, most[:1], most[1:], []))
        return f"{path} guaranteed={','.join(chosen)}" if chosen else path

    def _submit(self, path: str, amounts: str) -> None:
        self.submitted += 1
        self.trial.partition.drain_effects()
        self.trial.takes(
            asks(f"{path} ask-{self.submitted} victim preemptor {amounts} created={1000 + self.submitted}")
        )

    def rounds(self, *, cooldown: bool = True, seconds: float = 0.0) -> int:
        """How many rounds it takes until nobody has to go any more, with so much time in between."""
        for number in range(ROUNDS_MAX):
            self.trial.now += seconds
            self.trial.partition.now = self.trial.now
            for ask in self._waiting():
                for node in self.trial.partition.nodes:
                    self._place(ask, node)
            plans = [(ask, plan) for ask in self._waiting() if (plan := self._plan(ask, cooldown=cooldown)) is not None]
            if not plans:
                return number
            for _, plan in plans:
                for victim in plan.victims:
                    self._leave(victim)
            for ask, plan in plans:
                self._place(ask, plan.node)
        return ROUNDS_MAX

    def _plan(self, ask: Allocation, *, cooldown: bool) -> Preempt | None:
        """Who has to go for the ask; they are marked, and the ask does not try again."""
        partition = self.trial.partition
        application = partition.applications[ask.application_id]
        if ask.preemption_triggered:
            return None
        plan = victim_choice.plan_victims(partition, application, ask, nodes_tried=True)
        if isinstance(plan, str):
            return None
        ask.preemption_triggered = True
        if cooldown:
            partition.preemptions.record(partition.now, ask, plan.node, plan.victims)
        for victim in plan.victims:
            owner = partition.applications[victim.application_id]
            ledger.mark_preempted(partition, owner, victim)
            self.took.append((application.queue.path, owner.queue.path))
            self.took_at.append(partition.now - START_S)
        return plan

    def _waiting(self) -> list[Allocation]:
        return [ask for path in LEAVES for ask in self.trial.app(path).requests.values()]

    def _place(self, ask: Allocation, node: Node) -> None:
        """Let the ask run there, if it does not run yet and has room."""
        if not ask.node_id and node.has_room(ask.shape.amounts):
            ledger.place_ask(self.trial.partition, self.trial.app(ask.application_id), ask, node)

    def _leave(self, victim: Allocation) -> None:
        ledger.remove_allocation(self.trial.partition, self.trial.app(victim.application_id), victim)
        self._submit(victim.application_id, " ".join(f"{kind}={n}" for kind, n in victim.resources.items()))


def goes_in_a_circle(took: list[tuple[str, str]]) -> bool:
    """Whether somebody took from a loser, or from a loser of a loser and so on, and lost to them as well."""
    losers: dict[str, dict[str, None]] = {}
    for winner, loser in took:
        losers.setdefault(winner, {})[loser] = None

    def below(queue: str, seen: dict[str, None]) -> dict[str, None]:
        for loser in losers.get(queue, ()):
            if loser not in seen:
                seen[loser] = None
                below(loser, seen)
        return seen

    return any(queue in below(queue, {}) for queue in losers)


def test_it_comes_to_an_end_and_nobody_strikes_back() -> None:
    for seed in range(CLUSTERS):
        cluster = Cluster(seed)
        assert cluster.rounds() < ROUNDS_MAX, seed
        assert not goes_in_a_circle(cluster.took), (seed, cluster.took)


def times_traded(took: list[tuple[str, str]]) -> int:
    """How often any two of them traded places, at most."""
    winners: dict[frozenset[str], list[str]] = {}
    for winner, loser in took:
        before = winners.setdefault(frozenset((winner, loser)), [winner])
        if before[-1] != winner:
            before.append(winner)
    return max((len(one) - 1 for one in winners.values()), default=0)


def test_two_queues_trade_places_once_before_the_cooldown_counts() -> None:
    """Each round takes longer than the preemption delay, and all of them are over before the first cooldown."""
    traded = 0
    for seed in range(CLUSTERS):
        cluster = Cluster(seed)
        assert cluster.rounds(seconds=PREEMPTION_DELAY_S + 1) < ROUNDS_MAX, seed
        early = [pair for at, pair in zip(cluster.took_at, cluster.took, strict=True) if at < PREEMPTION_COOLDOWN_S]
        assert times_traded(early) <= 1, (seed, early)
        traded += times_traded(early)
    assert traded > 0


def test_without_cooldown_some_do_strike_back() -> None:
    """So what the test above says is not true by itself."""
    clusters = [Cluster(seed) for seed in range(CLUSTERS)]
    for cluster in clusters:
        cluster.rounds(cooldown=False)
    assert any(goes_in_a_circle(cluster.took) for cluster in clusters)
