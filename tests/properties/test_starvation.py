"""A large ask starts although small ones that arrive all the time would take whatever is freed."""

import os
import random
from dataclasses import dataclass, field
from math import inf

import pytest

from tests.builders import apps, asks, nodes, released
from tests.trial import Trial
from yunishard.partition_worker.engine.state import CHECK_PASSED_OVER_EVERY_S, PASSED_OVER_DELAY_S, Tuning

CLUSTERS = 1000 if os.environ.get("PROPERTIES") == "long" else 2
RUNS_MAX_S = 30
"""How long a small allocation runs at most, in seconds."""

BACKLOG = 8
"""Small asks that wait at any time, enough to take all that is freed in a second."""

BOUND_S = PASSED_OVER_DELAY_S + CHECK_PASSED_OVER_EVERY_S + RUNS_MAX_S + 1
"""The large ask reserves a node at the first placement after the delay and the pause between two checks. The node is
empty when all that runs on it has ended.
"""

LAYOUTS = {
    "its queue has the smaller share": ("root.large", "root.small"),
    "its application came first": ("root.a", "root.a"),
    "its queue has a part of the cluster guaranteed": ("root.large guaranteed=memory:4", "root.p.small"),
    "a queue is full instead of the cluster": ("root.p.large", "root.p.small"),
    "its own queue is full instead of the cluster": ("root.p.a", "root.p.a"),
}


@dataclass
class Stream:
    """Small asks, of which enough wait at any time."""

    rng: random.Random
    trial: Trial
    ends: dict[str, int] = field(default_factory=dict)
    """When each one that runs ends, by its key."""
    asked: int = 0

    def flow(self, second: int) -> None:
        """End what has run long enough, and ask for more."""
        ended = [key for key, end in self.ends.items() if end <= second]
        for key in ended:
            del self.ends[key]
        if ended:
            self.trial.does(released(*(f"small {key}" for key in ended)))
        while len(self.trial.partition.applications["small"].requests) < BACKLOG:
            self.asked += 1
            self.trial.does(asks(f"small s{self.asked} memory={self.rng.choice((1, 1, 2))}"))
        for key in self.trial.partition.applications["small"].allocations:
            if key not in self.ends:
                self.ends[key] = second + self.rng.randint(1, RUNS_MAX_S)


def start_of_large(seed: int, layout: str, tuning: Tuning, seconds: int) -> int | None:
    """Return after how many seconds the large ask starts; None if it does not within this time."""
    rng = random.Random(seed)
    large, small = LAYOUTS[layout]
    sizes = [rng.randint(8, 16) for _ in range(rng.randint(2, 5))]
    most = sum(sizes) * 2 // 3 if "instead of the cluster" in layout else sum(sizes)
    queues = dict.fromkeys((f"root.p parent max=memory:{most}", large, small))
    trial = Trial("; ".join(queues), nodes=rng.choice(("fair", "binpacking")))
    trial.partition.tuning = tuning
    trial.does(nodes(*(f"n{number} memory={size}" for number, size in enumerate(sizes))))
    trial.does(apps(f"large {large.split()[0]}", f"small {small}"))
    stream = Stream(rng, trial)
    while trial.partition.tree.root.allocated.get("memory", 0) < most:
        stream.flow(0)
    trial.does(asks(f"large whole memory={min(most, max(sizes)) - rng.randint(0, 3)}"))
    for second in range(1, seconds):
        trial.waits(1)
        stream.flow(second)
        if trial.partition.allocations["whole"].node_id:
            return second
    return None


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(CLUSTERS))
def test_a_large_ask_starts_among_small_ones_that_take_all_that_is_freed(seed: int, layout: str) -> None:
    started = start_of_large(seed, layout, Tuning(), 150)
    assert started is not None, "it never starts"
    assert started <= BOUND_S


@pytest.mark.parametrize("layout", LAYOUTS)
def test_without_reservations_the_small_ones_starve_it(layout: str) -> None:
    assert start_of_large(0, layout, Tuning(reservation_delay_s=inf), 150) is None
