"""From the first ask sent to the last allocation heard: one workload, once, over one way.

Not here: which workload (`shapes.py`), and what the figures are compared with.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter, sleep
from typing import Final, NamedTuple

from benchmarks.paths.heard import Rm
from benchmarks.paths.systems import System, Up
from benchmarks.shapes import RELEASED_AT_ONCE, Workload, batches
from common.rm_messages import STOPPED_BY_RM, AllocationRelease

NODES_AT_ONCE: Final = 1_000


class Timed(NamedTuple):
    """What one run took."""

    allocations: int
    seconds: float
    cpu_s: Mapping[str, float]
    """Processor time while the clock ran, by role."""

    @property
    def per_second(self) -> float:
        return self.allocations / self.seconds

    def cpu_us(self) -> dict[str, float]:
        """Microseconds for each allocation, by role."""
        return {role: spent / self.allocations * 1e6 for role, spent in self.cpu_s.items()}


def measured(system: System, workload: Workload, settling_s: float) -> Timed:
    """Start a system, run the workload on it, and end it."""
    with prepared(system, workload, settling_s) as (up, rm):
        return timed(up, rm, workload)


@contextmanager
def prepared(system: System, workload: Workload, settling_s: float = 0.0) -> Iterator[tuple[Up, Rm]]:
    """A system in which everything is there, and its resource manager; both end afterwards."""
    with system() as up:
        rm = up.connect(workload.config)
        try:
            prepare(rm, workload, settling_s)
            yield up, rm
        finally:
            rm.close()


def prepare(rm: Rm, workload: Workload, settling_s: float = 0.0) -> None:
    """Everything that has to be there before the clock starts.

    `settling_s` is for asks that come to nothing: nobody is told when a scheduler has taken them.
    """
    heard = rm.heard
    for nodes in batches(workload.nodes, NODES_AT_ONCE):
        rm.nodes(nodes)
    heard.until(lambda: heard.nodes >= len(workload.nodes))
    rm.applications(workload.applications)
    heard.until(lambda: heard.applications >= len(workload.applications))
    for asks in batches(workload.before):
        rm.asks(asks)
    heard.until(lambda: len(heard.running) >= workload.running)
    if len(workload.before) > workload.running:
        sleep(settling_s)


def timed(up: Up, rm: Rm, workload: Workload) -> Timed:
    """What is timed of it."""
    before = up.cpu_s()
    began = perf_counter()
    if workload.released:
        _turn_over(rm, workload.released)
    else:
        wanted = len(rm.heard.running) + len(workload.asks)
        for asks in batches(workload.asks):
            rm.asks(asks)
        rm.heard.until(lambda: len(rm.heard.running) >= wanted)
    seconds = perf_counter() - began
    spent = {role: cpu_s - before.get(role, 0.0) for role, cpu_s in up.cpu_s().items()}
    return Timed(workload.timed, seconds, spent)


def _turn_over(rm: Rm, count: int) -> None:
    """So many end, always those that run longest, and each time as many get in as have gone."""
    running = rm.heard.running
    full = len(running)
    while count:
        some = list(running.items())[: min(RELEASED_AT_ONCE, count)]
        count -= len(some)
        for key, _ in some:
            del running[key]
        rm.releases(
            [
                AllocationRelease(application_id=owner, allocation_key=key, termination_type=STOPPED_BY_RM)
                for key, owner in some
            ]
        )
        rm.heard.until(lambda: len(running) >= full)
