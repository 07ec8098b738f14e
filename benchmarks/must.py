"""Requirements: minimum ratios to the reference in one run, short turns, and flat growth curves.

The same gRPC client drives both systems one after the other. A ratio of one run is more reliable than a rate.
"""

from collections.abc import Callable, Iterator
from statistics import median
from typing import Final, NamedTuple

from benchmarks import end_to_end, longest_turn
from benchmarks.end_to_end import rate
from benchmarks.growth import Point, points
from benchmarks.results import Plan, Waits
from benchmarks.shapes import SHAPES
from benchmarks.systems import WAYS, System

RATIOS: Final = {"two-queues": 17, "many-queues": 17, "many-apps": 180, "mixed": 9, "backlog": 500, "churn": 5}
"""Times the rate of the reference, at least."""

LATENCY_MAX: Final = {"median": 2.5, "99 of 100": 3.5}
"""Maximum latency of a single ask over gRPC, as a multiple of the reference's: median and 99th percentile."""

GROWTH: Final = {"asks": 0.80, "nodes": 0.60}
"""Of the rate at the near end of a curve, at least, at its far end."""


TURN_MAX_MS: Final = 50.0
"""Maximum of the longest turn of a worker, in milliseconds of processor time."""


class Verdict(NamedTuple):
    """One thing that has to hold, and whether it does."""

    what: str
    wanted: str
    reached: str
    holds: bool

    def __str__(self) -> str:
        return f"  {'pass' if self.holds else 'FAIL'}  {self.what:<40} {self.wanted:<14} {self.reached}"


def verdicts(plan: Plan, ours: System = WAYS["grpc"]) -> Iterator[Verdict]:
    """Each as soon as it is known; without the reference, those that need none."""
    if plan.reference is not None:
        yield from _rates(plan, ours, plan.reference)
        yield from _latencies(plan, ours, plan.reference)
    yield from _turns(plan)
    once = plan._replace(rounds=1)
    often = 2 * plan.rounds - 1  # a fifth of a second decides, twice for each ratio
    yield from growth(lambda point: rate(ours, point.workload(plan), once), often)


def _rates(plan: Plan, system: System, reference: System) -> Iterator[Verdict]:
    for name, least in RATIOS.items():
        workload = SHAPES[name](plan.nodes, plan.asks)
        ours, theirs = rate(system, workload, plan), rate(reference, workload, plan._replace(rounds=1))
        ratio = ours / theirs
        told = f"{ratio:.2f} ({ours:,.0f} and {theirs:,.0f} allocations/s)"
        yield Verdict(f"{name}, times the reference", f"at least {least}", told, ratio >= least)


def _turns(plan: Plan) -> Iterator[Verdict]:
    most = f"at most {TURN_MAX_MS:.0f} ms"
    for figure in longest_turn.figures(plan):
        _, name, *rest = figure.name.split("/")
        if not rest:  # not the sum of all turns
            yield Verdict(f"the longest turn: {name}", most, f"{figure.value:.1f} ms", figure.value <= TURN_MAX_MS)


def _latencies(plan: Plan, system: System, reference: System) -> Iterator[Verdict]:
    """In turn, as the third worst of 300 asks is another one each time."""
    rounds = [(end_to_end.idle(system, plan), end_to_end.idle(reference, plan)) for _ in range(plan.rounds)]
    ours, theirs = (Waits(*map(median, zip(*side, strict=True))) for side in zip(*rounds, strict=True))
    for what, mine, other in (("median", ours.p50_ms, theirs.p50_ms), ("99 of 100", ours.p99_ms, theirs.p99_ms)):
        most, told = LATENCY_MAX[what], f"{mine / other:.2f} ({mine:.2f} and {other:.2f} ms)"
        yield Verdict(f"latency, {what}, times the reference", f"at most {most}", told, mine <= most * other)


def growth(measured: Callable[[Point], float], rounds: int) -> Iterator[Verdict]:
    """Of the rates at both ends of each curve, each time one right after the other: the speed of a machine that others
    use, too, changes within minutes. The pair with the median of these ratios counts; the rounds are an odd number.
    """
    ends = list(points(ends=True))
    for near, far in zip(ends[::2], ends[1::2], strict=True):
        assert near._replace(at=far.at) == far
        pairs = sorted(((measured(near), measured(far)) for _ in range(rounds)), key=lambda pair: pair[1] / pair[0])
        first, last = pairs[rounds // 2]
        told = f"{last / first:.2f} ({first:,.0f} and {last:,.0f} allocations/s)"
        what = f"{far.sorting}, {far.room}: {far.at:,} {far.axis}"
        yield Verdict(what, f"at least {GROWTH[far.axis]:.2f}", told, last / first >= GROWTH[far.axis])
