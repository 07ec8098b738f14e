"""Preemption comes to an end, also if whoever had to go asks again at once.

Random queues with guarantees, priorities and fences share a cluster that is too small for what they ask. Some asks can
run on one node only, and now and then a maximum is lowered to which its queue is brought down. The RM confirms every
eviction at once and submits each victim anew as a new ask, the worst that it can do. Hours later the cluster has to be
at rest.
"""

import os
import random
import re
from dataclasses import dataclass, field

import pytest

from tests.builders import apps, asks, nodes, released
from tests.trial import Trial
from yunishard.common.messages.rm_messages import PREEMPTED_BY_SCHEDULER, AllocationRelease
from yunishard.partition_worker.engine.allocation import Allocation

CLUSTERS = 400 if os.environ.get("PROPERTIES") == "long" else 10
HOURS = 12
STEP_S = 60.0
LATER_STEP_S = 300.0
UNREST_S = 2 * 3600.0
TAIL_S = 6 * 3600.0
"""At the end, in which hardly anything may have to go: the cooldown of a quarrel have grown longer than half of it."""
EVICTIONS_MAX_PER_ALLOCATION = 3
TAIL_MAX = 4
"""Rounds of a quarrel that began late in the unrest."""

LEAVES = ("root.a", "root.b", "root.p.c", "root.p.d", "root.p.q.e")


AMOUNTS = ("memory=1", "memory=2", "memory=3", "gpu=1", "memory=1 gpu=1", "memory=2 gpu=1", "memory=1 gpu=2")


def some_queues(rng: random.Random) -> list[str]:
    """Guarantees of two types: what a queue may take of the one is often taken from those who lack the other."""

    def settings(path: str) -> str:
        found = [path, "preemption.delay=1s quota.preemption.delay=1s"]
        most = [f"memory:{rng.randint(3, 10)}", f"gpu:{rng.randint(1, 5)}"]
        chosen = rng.choice((most, most, most[:1], most[1:], []))
        if chosen:
            found.append(f"guaranteed={','.join(chosen)}")
        if rng.random() < 0.2:
            found.append("max=memory:12")
        if rng.random() < 0.2:
            found.append(f"priority.offset={rng.randint(-2, 2)}")
        if rng.random() < 0.1:
            found.append(rng.choice(("priority.policy=fence", "preemption.policy=fence", "preemption.policy=disabled")))
        return " ".join(found)

    return [settings(path) for path in LEAVES]


@dataclass
class ThrashingManager:
    """An RM that brings every victim back at once, and counts."""

    trial: Trial
    queues: list[str]
    evicted_at: list[float] = field(default_factory=list)
    _heard: int = 0
    _asked: int = 0

    def submit(self, app: str, what: str) -> None:
        self._asked += 1
        self.trial.does(asks(f"{app} k{self._asked} {what}"))

    def answer(self) -> None:
        """Confirm and resubmit, until nobody has to go any more."""
        while self._heard < len(self.trial.effects):
            new = self.trial.effects[self._heard :]
            self._heard = len(self.trial.effects)
            for effect in new:
                if (
                    isinstance(effect.part, AllocationRelease)
                    and effect.part.termination_type == PREEMPTED_BY_SCHEDULER
                ):
                    self._bring_back(self.trial.partition.allocations[effect.part.allocation_key])

    def _bring_back(self, victim: Allocation) -> None:
        self.evicted_at.append(self.trial.now)
        what = " ".join(f"{kind}={amount}" for kind, amount in victim.resources.items())
        self.trial.does(released(f"{victim.application_id} {victim.key} type=PREEMPTED_BY_SCHEDULER"))
        flags = ("victim" if victim.may_be_victim else "") + (" preemptor" if victim.may_preempt else "")
        self.submit(victim.application_id, f"{what} priority={victim.priority} {flags}")


def crowded(rng: random.Random) -> ThrashingManager:
    """A cluster, and more asks than it has room for."""
    queues = some_queues(rng)
    trial = Trial("; ".join(queues), nodes=rng.choice(("fair", "binpacking")), quota_preemption=True)
    trial.does(nodes(*(f"n{number} memory={rng.randint(3, 6)} gpu={rng.randint(1, 3)}" for number in range(5))))
    trial.does(apps(*(f"app-{number} {path} user=u{number}" for number, path in enumerate(LEAVES))))
    rm = ThrashingManager(trial, queues)
    for _ in range(rng.randint(20, 30)):
        priority = rng.choice((0, 0, 0, 0, 1))
        flags = rng.choice(("victim preemptor",) * 5 + ("preemptor",))
        rm.submit(f"app-{rng.randrange(len(LEAVES))}", f"{rng.choice(AMOUNTS)} priority={priority} {flags}")
        rm.answer()
        trial.now += rng.choice((0.0, 0.0, 20.0))
    return rm


def change_a_maximum(rng: random.Random, rm: ThrashingManager) -> None:
    """Of one queue. What was guaranteed stays below it."""
    number = rng.randrange(len(rm.queues))
    words = [word for word in rm.queues[number].split() if not word.startswith("max=")]
    least = int((re.findall(r"memory:(\d+)", " ".join(words)) or ["1"])[0])
    rm.queues[number] = " ".join([*words, f"max=memory:{rng.randint(least, least + 4)}"])
    rm.trial.reconfigures("; ".join(rm.queues))
    rm.answer()


def run_for_hours(rng: random.Random, rm: ThrashingManager) -> None:
    """At first something ends now and then, and something else is asked for; then nothing but what the RM repeats."""
    trial, start = rm.trial, rm.trial.now
    while trial.now < start + HOURS * 3600.0:
        trial.now += STEP_S if trial.now < start + UNREST_S else LATER_STEP_S
        trial.effects += trial.partition.step(trial.now, 0)
        trial.settles()
        rm.answer()
        running = [one for one in trial.partition.allocations.values() if one.node_id]
        if trial.now < start + UNREST_S and running and rng.random() < 0.3:
            ends = rng.choice(running)
            trial.does(released(f"{ends.application_id} {ends.key}"))
            rm.answer()
            where = f"required=n{rng.randrange(5)}" if rng.random() < 0.1 else ""
            rm.submit(f"app-{rng.randrange(len(LEAVES))}", f"{rng.choice(AMOUNTS)} victim preemptor {where}")
            rm.answer()
        if trial.now < start + UNREST_S and rng.random() < 0.05:
            change_a_maximum(rng, rm)


@pytest.mark.parametrize("first", range(0, CLUSTERS, 5))
def test_evictions_come_to_an_end_although_every_victim_asks_again_at_once(first: int) -> None:
    evictions = 0
    for seed in range(first, first + 5):
        rng = random.Random(seed)
        rm = crowded(rng)
        run_for_hours(rng, rm)
        every = len(rm.trial.partition.allocations)
        late = [at for at in rm.evicted_at if at > rm.trial.now - TAIL_S]
        assert len(rm.evicted_at) <= EVICTIONS_MAX_PER_ALLOCATION * every, f"seed {seed}"
        assert len(late) <= TAIL_MAX, f"seed {seed}"
        evictions += len(rm.evicted_at)
    assert evictions > 0, "somebody has to go in the generated clusters"
