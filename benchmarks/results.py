"""Figures, the file with the committed figures, and the detection of regressions for `make bench-check`.

The file has no date: its history in version control shows which commit the figures belong to.

Only figures with a `cost` are compared, never seconds: processor time in steps of the calibration loop
(`calibration.py`), and bytes. A figure that is worse is measured again with more rounds before it counts as a
regression: a busy machine makes figures worse, never better.
"""

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Final, NamedTuple

import msgspec

from benchmarks.systems import System

COMMITTED: Final = Path(__file__).parent / "results.json"

PER_SECOND: Final = "allocations/s"
"""The only unit of which more is better."""

NODES: Final = 1_000
ASKS: Final = 10_000
ROUNDS: Final = 3
SETTLING_S: Final = 1.0


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was measured."""

    name: str
    """`benchmark/what`."""
    value: float
    unit: str
    cost: float | None = None
    """The value to compare later, less is better: steps of the calibration loop, or bytes. None: it is not compared."""
    reference: float | None = None
    """The same of the reference, in the same run."""

    @property
    def benchmark(self) -> str:
        """The name of its benchmark."""
        return self.name.partition("/")[0]

    @property
    def ratio(self) -> float | None:
        """To the reference."""
        return None if self.reference is None else self.value / self.reference


class Waits(NamedTuple):
    """How long requests took."""

    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, found_ms: Sequence[float]) -> "Waits":
        """The median and the 99th percentile of these durations."""
        return cls(median(found_ms), quantiles(found_ms, n=100)[-1] if len(found_ms) > 1 else found_ms[0])


class Machine(msgspec.Struct, frozen=True):
    """Where it was measured."""

    cpu: str
    cores: int
    python: str


class Results(msgspec.Struct, frozen=True):
    """A whole run."""

    machine: Machine
    figures: list[Figure]

    @property
    def by_name(self) -> Mapping[str, Figure]:
        return {figure.name: figure for figure in self.figures}


class Plan(NamedTuple):
    """How a run goes about it."""

    share: float = 1.0
    """Of the full sizes. Smaller ones are quick, and compare with nothing."""
    rounds: int = ROUNDS
    reference: System | None = None
    """The reference, where there is one."""

    @property
    def nodes(self) -> int:
        return self.scaled(NODES)

    @property
    def settling_s(self) -> float:
        """How long a scheduler is given to take asks that come to nothing."""
        return SETTLING_S * self.share

    @property
    def asks(self) -> int:
        return self.scaled(ASKS)

    def scaled(self, full: int) -> int:
        """This many, or fewer."""
        return max(1, int(full * self.share))


class Benchmark(NamedTuple):
    """Something that can be asked for by name."""

    name: str
    about: str
    measured: Callable[[Plan], Iterator[Figure]]
    judged: bool = False
    """Whether `make bench-check` runs it."""


def this_machine() -> Machine:
    """The one that this runs on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return Machine((names or [platform.processor()])[0], os.cpu_count() or 1, platform.python_version())


def read(file: Path) -> Results:
    """Figures that were written before; none if there is no such file."""
    if not file.exists():
        return Results(this_machine(), [])
    return msgspec.json.decode(file.read_bytes(), type=Results)


def write(file: Path, results: Results) -> None:
    """A line for each figure, so that differences can be read."""
    lines = ",\n".join("    " + msgspec.json.encode(_rounded(figure)).decode() for figure in results.figures)
    machine = msgspec.json.encode(results.machine).decode()
    file.write_text(f'{{\n  "machine": {machine},\n  "figures": [\n{lines}\n  ]\n}}\n')


def merged(before: Results, found: Results) -> Results:
    """Return the new figures, and the earlier ones of benchmarks that were not run."""
    run = {figure.benchmark for figure in found.figures}
    return Results(found.machine, [one for one in before.figures if one.benchmark not in run] + found.figures)


def _rounded(figure: Figure) -> Figure:
    """To four digits that mean something."""
    kept = [None if number is None else float(f"{number:.4g}") for number in (figure.cost, figure.reference)]
    return Figure(figure.name, float(f"{figure.value:.4g}"), figure.unit, *kept)


# The table ------------------------------------------------------------------------------------------------------------


def table(found: Sequence[Figure], committed: Results) -> str:
    """A line for each figure, with what it was and what the reference has."""
    before = committed.by_name
    width = max([len(figure.name) for figure in found], default=0)
    return "".join(_line(figure, before.get(figure.name), width) + "\n" for figure in found)


def _line(figure: Figure, before: Figure | None, width: int) -> str:
    text = f"  {figure.name:<{width}} {_number(figure.value):>12} {figure.unit:<13}"
    if before is not None and before.value:
        text += f" {(figure.value / before.value - 1) * 100:+7.1f} % of committed {_number(before.value)}"
    if figure.reference is not None and figure.ratio is not None:
        text += f"   {figure.ratio:.2f} times the reference's {_number(figure.reference)}"
    return text.rstrip()


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


# Regressions ----------------------------------------------------------------------------------------------------------

TOLERANCE: Final = 0.20
"""Allowed increase of a cost."""

MORE_ROUNDS: Final = 2
"""Factor for the rounds of a repeated measurement."""


def regressions(committed: Results, found: Sequence[Figure]) -> list[str]:
    """Return a line for each figure whose cost has increased too much."""
    before = committed.by_name
    return [
        f"{one.name}: costs {(one.cost / was.cost - 1) * 100:+.0f} % (at most {TOLERANCE * 100:+.0f} %), "
        f"{was.cost:.4g} committed, {one.cost:.4g} now: {one.value:.4g} {one.unit}; "
        f"look closer: python -m benchmarks {one.benchmark}"
        for one in found
        if (was := before.get(one.name)) is not None and was.cost and one.cost and _worse(was.cost, one.cost)
    ]


def absent(committed: Results, found: Sequence[Figure], benchmarks: Sequence[str]) -> list[str]:
    """Return a line for each compared figure of these benchmarks that is only measured or only committed."""
    was = {one.name: one.benchmark for one in committed.figures if one.cost and one.benchmark in benchmarks}
    now = {one.name: one.benchmark for one in found if one.cost}
    gone = [f"{name}: committed, but not measured any more" for name in was if name not in now]
    new = [f"{name}: measured, but not committed yet" for name in now if name not in was]
    names = {**was, **now}
    return [f"{line}; python -m benchmarks --update {names[line.partition(':')[0]]}" for line in (*gone, *new)]


def measure_reporting(benchmark: Benchmark, plan: Plan, say: Callable[[str], None]) -> Iterator[Figure]:
    """Run a benchmark and report the name of each figure when it is available."""
    for figure in benchmark.measured(plan):
        say(figure.name)
        yield figure


def checked(
    benchmarks: Sequence[Benchmark], committed: Results, plan: Plan, say: Callable[[str], None]
) -> tuple[list[Figure], list[str]]:
    """Run the benchmarks; returns the figures, and a line for each regression or missing figure."""
    found: list[Figure] = []
    complaints: list[str] = []
    for benchmark in benchmarks:
        figures = list(measure_reporting(benchmark, plan, say))
        if regressions(committed, figures):
            say(f"{benchmark.name}: once more")
            again = list(measure_reporting(benchmark, plan._replace(rounds=plan.rounds * MORE_ROUNDS), say))
            figures = [_better(first, second) for first, second in zip(figures, again, strict=True)]
        found += figures
        complaints += regressions(committed, figures)
    return found, complaints + absent(committed, found, [one.name for one in benchmarks])


def _better(first: Figure, second: Figure) -> Figure:
    assert first.name == second.name
    return first if first.cost is None or second.cost is None or first.cost < second.cost else second


def _worse(was: float, now: float) -> bool:
    return now > was * (1 + TOLERANCE)
