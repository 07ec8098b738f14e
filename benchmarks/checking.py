"""Whether something has become slower or larger than what is committed: what `make bench-check` says.

Only figures with a `cost` are judged, never seconds: processor time in steps of a calibration loop that is measured in
between (`calibration.py`), and bytes. Whatever is worse at first is measured once more, with more rounds, before it is
called a regression: a busy machine makes figures worse, and never better.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from benchmarks.results import Benchmark, Figure, Plan, Results

TOLERANCE: Final = 0.20
"""How much worse than committed a cost may be."""

MORE_ROUNDS: Final = 2
"""Times as many, when something is measured once more."""


def regressions(committed: Results, found: Sequence[Figure]) -> list[str]:
    """A line for each figure that is worse than it may be."""
    before = committed.by_name
    return [
        f"{one.name}: costs {(one.cost / was.cost - 1) * 100:+.0f} % (at most {TOLERANCE * 100:+.0f} %), "
        f"{was.cost:.4g} committed, {one.cost:.4g} now: {one.value:.4g} {one.unit}; "
        f"look closer: python -m benchmarks {one.benchmark}"
        for one in found
        if (was := before.get(one.name)) is not None and was.cost and one.cost and _worse(was.cost, one.cost)
    ]


def absent(committed: Results, found: Sequence[Figure], benchmarks: Sequence[str]) -> list[str]:
    """A line for each judged figure of these benchmarks that is on one side only: nobody would notice what it does."""
    was = {one.name: one.benchmark for one in committed.figures if one.cost and one.benchmark in benchmarks}
    now = {one.name: one.benchmark for one in found if one.cost}
    gone = [f"{name}: committed, but not measured any more" for name in was if name not in now]
    new = [f"{name}: measured, but not committed yet" for name in now if name not in was]
    names = {**was, **now}
    return [f"{line}; python -m benchmarks --update {names[line.partition(':')[0]]}" for line in (*gone, *new)]


def told(benchmark: Benchmark, plan: Plan, say: Callable[[str], None]) -> Iterator[Figure]:
    """What it measures, each named as soon as it is known."""
    for figure in benchmark.measured(plan):
        say(figure.name)
        yield figure


def checked(
    benchmarks: Sequence[Benchmark], committed: Results, plan: Plan, say: Callable[[str], None]
) -> tuple[list[Figure], list[str]]:
    """Measure, and what is wrong, measured once more first."""
    found: list[Figure] = []
    complaints: list[str] = []
    for benchmark in benchmarks:
        figures = list(told(benchmark, plan, say))
        if regressions(committed, figures):
            say(f"{benchmark.name}: once more")
            again = list(told(benchmark, plan._replace(rounds=plan.rounds * MORE_ROUNDS), say))
            figures = [_better(first, second) for first, second in zip(figures, again, strict=True)]
        found += figures
        complaints += regressions(committed, figures)
    return found, complaints + absent(committed, found, [one.name for one in benchmarks])


def _better(first: Figure, second: Figure) -> Figure:
    assert first.name == second.name
    return first if first.cost is None or second.cost is None or first.cost < second.cost else second


def _worse(was: float, now: float) -> bool:
    return now > was * (1 + TOLERANCE)
