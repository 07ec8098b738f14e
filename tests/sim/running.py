"""Running seeds: one with its story, or many in several processes.

Not here: the command (`__main__.py`), what a run is (`world.py`).
"""

import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tests.sim.auditor import Violation
from tests.sim.faults import ANY, Traits
from tests.sim.world import World

AT_ONCE: Final = 10
"""Seeds that are handed to a process at a time."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a seed."""

    seed: int
    digest: str
    steps: int
    problem: str = ""
    """Empty if nothing is wrong."""
    story: tuple[str, ...] = ()
    kinds: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    options: str = ""
    cluster: bool = False

    @property
    def report(self) -> str:
        """For people: the seed, how to have it again, the mixture, the story, and what was wrong."""
        lines = (
            f"seed {self.seed}",
            f"again: python -m tests.sim {'--cluster ' if self.cluster else ''}--seed {self.seed}",
            self.options,
            *self.story,
            self.problem,
        )
        return "\n".join(lines)


def run(seed: int, *, compares: bool = True, cluster: bool = False, traits: Traits = ANY) -> Outcome:
    """One seed, with these traits; without comparisons of recovered workers, only what a wrong recovery leads to is
    found.
    """
    world = World(seed, compares=compares, cluster=cluster, traits=traits)
    problem = ""
    names: tuple[str, ...] = ()
    try:
        world.run()
    except Violation as violation:
        problem, names = str(violation), violation.names
    except Exception:  # whatever a machine raises is a defect that a seed has found
        problem = traceback.format_exc()
    story = tuple(world.story.about(names)) if problem else ()
    return Outcome(
        seed=seed,
        digest=world.digest,
        steps=world.timeline.steps,
        problem=problem,
        story=story,
        kinds=Counter(world.kinds),
        faults=Counter(world.faults.injected),
        options=str(world.options),
        cluster=cluster,
    )


def run_many(first: int, count: int, *, processes: int, cluster: bool = False) -> Iterator[Outcome]:
    """Seeds from `first` on, in order."""
    seeds, run_one = range(first, first + count), partial(run, cluster=cluster)
    if processes == 1:
        yield from map(run_one, seeds)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(run_one, seeds, chunksize=AT_ONCE)
