"""Cost of the engine alone: a partition used as a library, without processes, encoded messages, or a journal.

    python -m benchmarks.engine two-queues backlog --asks 20000

All asks exist before the first decision, which is the hardest case. The figures are processor time, for submitting the
asks and for deciding, with the garbage collection settings of a worker. A calibration loop between rounds measures the
speed of the machine (`calibration.py`).
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from time import process_time
from typing import Final, NamedTuple

from benchmarks.calibration import as_in_a_worker, calibrated
from benchmarks.results import PER_SECOND, Figure, Plan
from benchmarks.shapes import RELEASED_AT_ONCE, SHAPES, Workload, batches, nearly_full, release
from yunishard.common.config.validation import load
from yunishard.common.messages.rm_messages import (
    Allocation,
    AllocationReleasesRequest,
    AllocationRequest,
    ApplicationRequest,
    NodeRequest,
)
from yunishard.common.process.compiled import find_engine
from yunishard.partition_worker.engine.effects import Effect
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.worker import BUDGET_DECISIONS

NOW_S: Final = 1_700_000_000.0
EVERY: Final = {**SHAPES, "nearly-full": nearly_full}


class Cost(NamedTuple):
    """Cost of an allocation, from several rounds."""

    per_second: float
    """Allocations in a second of processor time, in the best round: other work of the machine makes a round worse,
    never better.
    """
    units_per_allocation: float
    """Steps of the calibration loop for each, the median: a disturbed calibration loop makes a round look better."""


class Engine:
    """A partition with a workload in it, ready to be timed."""

    def __init__(self, workload: Workload) -> None:
        self.running: dict[str, str] = {}
        """Keys and applications of the allocations that were made last, in their order."""
        self._workload = workload
        self.partition = Partition(load(workload.config).partitions[0], name="bench_default", now=NOW_S)
        for nodes in batches(workload.nodes):
            self.partition.apply(NodeRequest(nodes=list(nodes)), NOW_S)
        self.partition.apply(ApplicationRequest(new=list(workload.applications)), NOW_S)
        self._ask(workload.before)
        self._record(decide(self.partition))
        running = self.partition.running_allocations
        assert running == workload.running, f"{running} run before the clock starts, not {workload.running}"

    def run(self) -> float:
        """Run the timed part; returns its processor time in seconds."""
        return self._replace_running() if self._workload.released else self._allocate_all()

    def _allocate_all(self) -> float:
        before = self.partition.decided
        began = process_time()
        self._ask(self._workload.asks)
        decide(self.partition)
        spent = process_time() - began
        made = self.partition.decided - before
        assert made == self._workload.timed, f"{made} allocations were made, not {self._workload.timed}"
        return spent

    def _replace_running(self) -> float:
        """Release the oldest allocations, in batches, and let pending asks replace them."""
        left, spent, waiting = self._workload.released, 0.0, list(self.running.items())
        while left:
            some = waiting[: min(RELEASED_AT_ONCE, left)]
            spent += self._turn(some)
            waiting = waiting[len(some) :] + list(self.running.items())
            left -= len(some)
        return spent

    def _turn(self, chosen: list[tuple[str, str]]) -> float:
        """Release these allocations; afterwards `running` contains the ones that replaced them."""
        ends = [release(owner, key) for key, owner in chosen]
        update = AllocationRequest(releases=AllocationReleasesRequest(allocations_to_release=ends))
        self.running.clear()
        began = process_time()
        self.partition.apply(update, NOW_S)
        effects = decide(self.partition)
        spent = process_time() - began
        self._record(effects)
        assert len(self.running) == len(chosen), f"{len(self.running)} were allocated for {len(chosen)}"
        return spent

    def _ask(self, asks: Sequence[Allocation]) -> None:
        for some in batches(asks):
            self.partition.apply(AllocationRequest(allocations=list(some)), NOW_S)

    def _record(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect.part, Allocation):
                self.running[effect.part.allocation_key] = effect.part.application_id


def decide(partition: Partition, now: float = NOW_S) -> list[Effect]:
    """Make all possible decisions; returns their effects."""
    effects: list[Effect] = []
    while not partition.idle:
        effects += partition.step(now, BUDGET_DECISIONS)
    return effects


def measured(workload: Workload, rounds: int) -> Cost:
    """So many rounds, each with a fresh partition."""
    seconds, units = [], []
    for _ in range(rounds):
        engine = Engine(workload)
        with as_in_a_worker():
            spent, unit = calibrated(engine.run)
        seconds.append(spent / workload.timed)
        units.append(seconds[-1] / unit)
        del engine
    return Cost(1 / min(seconds), median(units))


def figures(plan: Plan) -> Iterator[Figure]:
    """Every shape."""
    for name, shape in EVERY.items():
        found = measured(shape(plan.nodes, plan.asks), plan.rounds)
        yield Figure(f"engine/{name}", found.per_second, PER_SECOND, found.units_per_allocation)


def compiled_figures(plan: Plan) -> Iterator[Figure]:
    """Every shape with the compiled engine, in a process that finds it first; none if this checkout has none."""
    folder = find_engine()
    if folder is None:
        return
    sizes = ("--nodes", str(plan.nodes), "--asks", str(plan.asks), "--rounds", str(plan.rounds))
    command = [sys.executable, "-P", "-m", "benchmarks.engine", "--plain", *sizes]
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{Path(__file__).parents[1]}"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:  # noqa: S603 - ours
        assert process.stdout is not None
        for line in process.stdout:
            name, rate, cost = line.split()
            yield Figure(f"engine/compiled/{name}", float(rate), PER_SECOND, float(cost))
    assert not process.returncode, command


def main(arguments: list[str] | None = None) -> int:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=f"of {', '.join(EVERY)}; all if none is named")
    parser.add_argument("--nodes", type=int, default=1_000, metavar="N")
    parser.add_argument("--asks", type=int, default=10_000, metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="the best of so many is shown")
    parser.add_argument("--plain", action="store_true", help="print names and figures only, for programs")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.shapes) - EVERY.keys()):
        parser.error(f"there is no {', '.join(unknown)}")
    for name in options.shapes or EVERY:
        found = measured(EVERY[name](options.nodes, options.asks), options.rounds)
        rate = f"{found.per_second:10,.0f} allocations/s"
        sys.stdout.write(
            f"{name} {found.per_second} {found.units_per_allocation}\n"
            if options.plain
            else f"  {name:<12} {rate}   {found.units_per_allocation:7.2f} steps of the calibration loop each\n"
        )
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
