"""The engine makes the decisions, one by one, that a plain scheduler makes which sorts everything every time."""

import os
import random

import pytest

from tests.builders import PARTITION, apps, config
from tests.invariants import check
from tests.properties.plain_scheduler import Decision, PlainScheduler
from tests.properties.workload import LEAVES, TREES, Livelier
from tests.trial import START_S
from yunishard.common.messages.kinds import Command
from yunishard.common.messages.rm_messages import (
    PLACEHOLDER_REPLACED,
    PREEMPTED_BY_SCHEDULER,
    TIMEOUT,
    AllocationRelease,
)
from yunishard.common.messages.wire import NEVER
from yunishard.partition_worker.engine import queue_traversal
from yunishard.partition_worker.engine.effects import Effect
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.state import (
    RESERVATION_MAX_S,
    Allocate,
    Preempt,
    Release,
    Replace,
    Reserve,
    Tuning,
)

CLUSTERS = 20_010 if os.environ.get("PROPERTIES") == "long" else 510
CLUSTERS_PER_TEST = 15
STEPS = 25
EVERYTHING = 1000
"""Decisions, more than there ever are at one moment."""

SHORT_S = 7.0
"""How long reservations last in every second cluster."""

QUESTIONS = (TIMEOUT, PREEMPTED_BY_SCHEDULER, PLACEHOLDER_REPLACED)


class Duel:
    """One cluster, seen by both."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        tree, policy = self.rng.choice(TREES), self.rng.choice(("fair", "binpacking"))
        self.seed = seed
        self.now = START_S
        lasts_s = RESERVATION_MAX_S if seed % 2 else SHORT_S
        tuning = Tuning(reservation_max_s=lasts_s)
        self.partition = Partition(config(tree, nodes=policy), name=PARTITION, now=self.now, tuning=tuning)
        self.plain = PlainScheduler(config(tree).root, policy=policy, now=self.now, reservation_s=lasts_s)
        self.decisions: list[Decision] = []
        self._asked: list[AllocationRelease] = []
        leaves = tuple(path for path in LEAVES if self.partition.tree.find(path) is not None)
        self.workload = Livelier(self.rng, leaves=leaves, told=self._asked)
        self.last: Command | float | None = None

    def play(self) -> None:
        for step in self.workload.start():
            self.step(step)
        for _ in range(STEPS):  # each is made after the decisions before it, as it may confirm what they asked for
            self.step(self.workload.next_step())
        check(self.partition)

    def step(self, step: Command | float) -> None:
        self.last = step
        if isinstance(step, float):
            self._wait(step)
        else:
            self._hear(self.partition.apply(step, self.now))
            self.plain.apply(step)
            self._compare(self.rng.choice((0, 0, 1, 3, EVERYTHING)))  # now and then asks pile up

    def _wait(self, seconds: float) -> None:
        """Everything is decided before time passes, and whenever a timer has gone off."""
        self._compare(EVERYTHING)
        until = self.now + seconds
        while self.partition.next_timer <= until:
            assert self.partition.next_timer < NEVER
            self._pass_time(max(self.now, self.partition.next_timer))
        self._pass_time(until)

    def _pass_time(self, now: float) -> None:
        self.now = now
        self._hear(self.partition.step(now, 0))
        self.plain.elapse(now)
        self._compare(EVERYTHING)

    def _hear(self, effects: list[Effect]) -> None:
        releases = [effect.part for effect in effects if isinstance(effect.part, AllocationRelease)]
        self._asked += [one for one in releases if one.termination_type in QUESTIONS]

    def _compare(self, times: int) -> None:
        self._compare_states()
        for _ in range(times):
            mine, may_be = self.decided(), self.plain.choices()
            assert mine in may_be if may_be else mine is None, (
                f"{self}: the engine decides {mine}, it should be one of {may_be}"
            )
            if mine is None:
                break
            self.decisions.append(mine)
            self.plain.commit(mine)
            self._compare_states()

    def decided(self) -> Decision | None:
        """The engine's next decision, carried out."""
        self.partition.step(self.now, 0)  # for the time
        decision = as_plain(queue_traversal.decide(self.partition))
        self._hear(self.partition.step(self.now, 1))
        return decision

    def _compare_states(self) -> None:
        mine = {app_id: str(app.state) for app_id, app in self.partition.applications.items()}
        theirs = {app_id: app.state for app_id, app in self.plain.apps.items()}
        assert mine == theirs, f"{self}: states"
        reserved = {one.ask.key: one.node.node_id for one in self.partition.reservation_index.by_rank.values()}
        assert reserved == {ask.key: node.name for node in self.plain.nodes.values() for ask in node.reserving}, (
            f"{self}: reservations"
        )

    def __str__(self) -> str:
        return f"seed {self.seed}, decision {len(self.decisions)}, after {self.last}"


def as_plain(decision: queue_traversal.Decision | None) -> Decision | None:
    match decision:
        case Allocate(ask=ask, node=node):
            return Decision("place", ask.key, node.node_id)
        case Reserve(_, ask, node, keeps):
            return Decision("reserve", ask.key, node.node_id, keeps=keeps)
        case Replace(_, ask, placeholder, node):
            return Decision("swap", ask.key, node.node_id, (placeholder.key,))
        case Release(_, ask, placeholders):
            return Decision("release", ask.key, "", tuple(one.key for one in placeholders))
        case Preempt(_, ask, node, victims):
            return Decision("preempt", ask.key, node.node_id, tuple(one.key for one in victims))
    return None


@pytest.mark.parametrize("first", range(0, CLUSTERS, CLUSTERS_PER_TEST))
def test_engine_and_plain_scheduler_decide_the_same(first: int) -> None:
    decisions: list[Decision] = []
    for seed in range(first, first + CLUSTERS_PER_TEST):
        duel = Duel(seed)
        duel.play()
        decisions += duel.decisions
    assert len(decisions) > CLUSTERS_PER_TEST, "the generated clusters decide something"


def test_every_kind_of_decision_is_among_them() -> None:
    missing = {"place", "reserve", "swap", "release", "preempt"}
    for seed in range(CLUSTERS):
        duel = Duel(seed)
        duel.play()
        missing -= {decision.what for decision in duel.decisions}
        if not missing:
            return
    raise AssertionError(missing)


def test_the_plain_scheduler_can_tell_a_difference() -> None:
    plain = PlainScheduler(config("root.a").root, policy="fair", now=0.0)
    plain.apply(apps("app-1 root.a"))
    assert plain.choices() == []
    assert not plain.apps["app-1"].asks
