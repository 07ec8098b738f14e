"""Asks that wait together for a search for victims get what they would get if all asks were tried at every moment.

Two partitions receive the same. One parks applications, as always. In the other one, all applications are tried again
before each decision, as in YuniKorn, so nothing depends on who is woken for which search, and when. The clusters are
full, and their backlogs long: many applications of one ask each, few ask shapes.
"""

import os
import random
from collections import Counter

import pytest

from tests.builders import PARTITION, apps, asks, config, gone, nodes, released
from tests.invariants import check
from tests.trial import START_S, line
from yunishard.common.messages.kinds import Command
from yunishard.common.messages.rm_messages import (
    NODE_DRAIN,
    NODE_DRAIN_TO_SCHEDULABLE,
    PREEMPTED_BY_SCHEDULER,
    Allocation,
    AllocationRelease,
)
from yunishard.common.messages.wire import NEVER
from yunishard.partition_worker.engine.effects import Effect
from yunishard.partition_worker.engine.partition import Partition

CLUSTERS = 2000 if os.environ.get("PROPERTIES") == "long" else 40
CLUSTERS_PER_TEST = 20
STEPS = 40

QUICK = "preemption.delay=1s"
TREES = (
    f"root.a {QUICK} guaranteed=memory:12; root.b {QUICK} guaranteed=memory:6 max=memory:10; root.c {QUICK}",
    f"root.p guaranteed=memory:14 max=memory:24; root.p.a {QUICK} guaranteed=memory:8; root.p.b {QUICK}; root.c",
    f"""root.a {QUICK} guaranteed=memory:14 limit.user.*=memory:6 limit.group.dev=memory:8; root.c max=memory:30;
        root.b {QUICK} guaranteed=memory:8 limit.user.bob=memory:4""",
    f"""root.a {QUICK} guaranteed=memory:14 maxapps=2; root.p maxapps=3; root.p.a {QUICK} guaranteed=memory:10;
        root.p.b {QUICK} guaranteed=memory:6; root.c""",
    f"""root.a {QUICK} guaranteed=memory:16 limit.user.*=apps:1,memory:8 limit.group.dev=apps:2; root.c;
        root.b {QUICK} guaranteed=memory:8 application.sort.policy=fair""",
    f"""root limit.user.*=memory:9 limit.group.dev=memory:10; root.c;
        root.a {QUICK} guaranteed=memory:10; root.b {QUICK} guaranteed=memory:10""",
    f"root.p maxapps=4; root.p.a {QUICK} guaranteed=memory:12; root.p.b {QUICK} guaranteed=memory:12; root.c",
    f"root limit.user.*=apps:3; root.c; root.a {QUICK} guaranteed=memory:12; root.b {QUICK} guaranteed=memory:12",
    f"""root.a {QUICK} guaranteed=memory:10 preemption.policy=fence; root.c priority.offset=1;
        root.b {QUICK} guaranteed=memory:10 application.unschedasks.backoff=2 application.sort.priority=disabled""",
)
"""Queues that may take from each other, with all that keeps an application from being tried."""

LEAVES = ("root.a", "root.b", "root.c", "root.p.a", "root.p.b")
WHO = ("user=bob", "user=eve", "user=ann groups=dev", "user=joe groups=dev")
SECONDS = (0.05, 0.1, 0.5, 0.9, 1.1, 2.5, 6.0, 15.0, 16.0)


class Twins:
    """One cluster, twice."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.now = START_S
        wanted = config(self.rng.choice(TREES), nodes=self.rng.choice(("fair", "binpacking")))
        self.partition = Partition(wanted, name=PARTITION, now=self.now)
        self.tireless = Partition(wanted, name=PARTITION, now=self.now)
        self.leaves = [path for path in LEAVES if self.partition.tree.find(path) is not None]
        self.releases_at_once = self.rng.random() < 0.5
        self.decisions: Counter[str] = Counter()
        self._numbers = 0

    def play(self) -> None:
        sizes = [self.rng.choice((6, 8, 10)) for _ in range(self.rng.randint(2, 4))]
        self.apply(nodes(*(f"n{number} memory={size} gpu=1" for number, size in enumerate(sizes))))
        self.submit("root.c", 12)
        self.elapse(1.0)
        for _ in range(STEPS):
            self.step()
        check(self.partition)

    def step(self) -> None:
        kind = self.rng.choice(
            ("time",) * 8 + ("end",) * 6 + ("submit",) * 4 + ("confirm",) * 4 + ("ask", "kill", "node")
        )
        known = list(self.partition.allocations.values())
        if kind == "time":
            self.elapse(self.rng.choice(SECONDS))
        elif kind == "submit":
            self.submit(self.rng.choice(self.leaves), self.rng.randint(1, 8))
        elif kind == "ask" and self.partition.applications:
            self.apply(asks(*(self.one_ask(self.rng.choice(list(self.partition.applications))) for _ in range(3))))
        elif kind == "kill" and self.partition.applications:
            self.apply(gone(self.rng.choice(list(self.partition.applications))))
        elif kind == "node":
            self.apply(
                nodes(f"n{self.rng.randrange(4)}", action=self.rng.choice((NODE_DRAIN, NODE_DRAIN_TO_SCHEDULABLE)))
            )
        elif kind == "confirm":
            self.confirm()
        elif kind == "end" and (running := [one for one in known if one.node_id and not one.preempted]):
            one = self.rng.choice(running)
            self.apply(released(f"{one.application_id} {one.key}"))

    def submit(self, leaf: str, count: int) -> None:
        names = [f"app-{self._numbers + number}" for number in range(count)]
        self._numbers += count
        self.apply(apps(*(f"{name} {leaf} {self.rng.choice(WHO)}" for name in names)), settles=False)
        self.apply(asks(*(self.one_ask(name) for name in names)))

    def one_ask(self, application: str) -> str:
        self._numbers += 1
        amount = self.rng.choice(("memory=2", "memory=2", "memory=3", "memory=4 gpu=1"))
        priority = self.rng.choice(("", "", " priority=1"))
        agrees = self.rng.choice((" preemptor", " preemptor", " victim preemptor", " victim", ""))
        return f"{application} k{self._numbers} {amount}{priority}{agrees}"

    def confirm(self) -> None:
        leaving = [one for one in self.partition.allocations.values() if one.preempted]
        if leaving:
            one = self.rng.choice(leaving)
            self.apply(released(f"{one.application_id} {one.key} type=PREEMPTED_BY_SCHEDULER"))

    # Both -----------------------------------------------------------------------------------------------------------

    def apply(self, command: Command, *, settles: bool = True) -> None:
        mine, theirs = (one.apply(command, self.now) for one in (self.partition, self.tireless))
        assert as_lines(mine) == as_lines(theirs), self
        if settles:
            self.settle()

    def elapse(self, seconds: float) -> None:
        """Let time pass, with a step of both at each moment at which one of them has something to do."""
        until = self.now + seconds
        while (now := min(self.partition.next_change, self.tireless.next_change)) < until:
            assert now < NEVER
            self.now = max(now, self.now)
            self.settle()
        self.now = until
        self.settle()

    def settle(self) -> None:
        mine, theirs = self.partition.step(self.now, 0), self.tireless.step(self.now, 0)
        while not self.partition.idle:
            mine += self.partition.step(self.now, self.rng.choice((1, 3, 100)))
        while True:
            for application in self.tireless.applications.values():
                self.tireless.readiness.touch_application(application)
            decided = self.tireless.step(self.now, 1)
            theirs += decided
            if self.tireless.idle:
                break
        assert as_lines(mine) == as_lines(theirs), self
        kept = [
            [(one.ask.key, one.node.node_id) for one in both.reservation_index.by_rank.values()]
            for both in (self.partition, self.tireless)
        ]
        assert kept[0] == kept[1], f"{self}: reservations"
        self.decisions.update(type(effect.part).__name__ for effect in mine)
        gone_now = [one.part for one in mine if isinstance(one.part, AllocationRelease)]
        if self.releases_at_once:
            for one in gone_now:
                if one.termination_type == PREEMPTED_BY_SCHEDULER:
                    self.apply(released(f"{one.application_id} {one.allocation_key} type=PREEMPTED_BY_SCHEDULER"))

    def __str__(self) -> str:
        return f"seed {self.seed} at {self.now - START_S:.2f} s"


def as_lines(effects: list[Effect]) -> list[str]:
    """The effects for the RM, without the reports that only a larger cluster would help."""
    return [text for effect in effects if "larger cluster" not in (text := line(effect.part))]


@pytest.mark.parametrize("first", range(0, CLUSTERS, CLUSTERS_PER_TEST))
def test_parked_applications_get_what_they_would_get_if_all_were_tried_at_every_moment(first: int) -> None:
    decisions: Counter[str] = Counter()
    for seed in range(first, first + CLUSTERS_PER_TEST):
        twins = Twins(seed)
        twins.play()
        decisions += twins.decisions
    assert decisions[Allocation.__name__] > 10 * CLUSTERS_PER_TEST
    assert decisions[AllocationRelease.__name__] > CLUSTERS_PER_TEST, "most clusters preempt"
