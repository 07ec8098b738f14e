"""What was measured, as values: figures, the machine, and the file in which the last committed ones are.

There is no date in it: which commit the figures belong to, the history knows.
"""

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from benchmarks.paths.systems import System

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
    """What a later run is judged by, less being better: steps of the calibration loop, or bytes. None: it is not."""
    reference: float | None = None
    """The same of the reference, in the same run."""

    @property
    def benchmark(self) -> str:
        """What has to be asked for to have it measured again."""
        return self.name.partition("/")[0]

    @property
    def ratio(self) -> float | None:
        """To the reference."""
        return None if self.reference is None else self.value / self.reference


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
    """What was found now, and of benchmarks that were not run what there was before."""
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
