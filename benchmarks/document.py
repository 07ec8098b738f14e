"""Writes the committed figures into `docs/performance.md`.

    python -m benchmarks.document

It replaces the text between `<!-- figures NAME -->` and `<!-- end -->`, and the growth curves. All other text of the
document is written by hand.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import charts, longest_turn, must, store
from benchmarks.growth import points
from benchmarks.processor_time import CORES, MORE, PARTITIONS, ROLES
from benchmarks.results import COMMITTED, Figure, Results, read
from benchmarks.shapes import SHAPES

DOCUMENT: Final = Path(__file__).parents[1] / "docs" / "performance.md"
UNKNOWN: Final = "not measured"
_BLOCK: Final = re.compile(r"(<!-- figures ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


RATIO: Final = " of embedded"
"""The unit of a rate that is compared with another one of the same run."""


class Wish(NamedTuple):
    """A goal."""

    what: str
    figure: str
    wanted: float
    unit: str

    @property
    def is_least(self) -> bool:
        return self.unit in ("/s", RATIO)

    def holds(self, value: float) -> bool:
        return value >= self.wanted if self.is_least else value <= self.wanted


WISHES: Final = (
    Wish("two-queues, native, one partition", "native/two-queues", 90_000, "/s"),
    Wish("two-queues, engine alone, compiled", "engine/compiled/two-queues", 200_000, "/s"),
    Wish("two-queues, with a store in PostgreSQL and a synchronous standby", "store/ratio", 0.5, RATIO),
    Wish("a pending ask in the worker", "footprint/ask", 1024, " bytes"),
    Wish("an allocation in the worker", "footprint/allocation", 1536, " bytes"),
    Wish("a worker with nothing in it", "footprint/empty", 45, " MiB"),
    Wish("a decision to preempt, 2,000 candidates on 500 nodes", "preemption/decision", 5, " ms"),
    Wish("10,000 queues reloaded: decisions stall at the worker for", "reload/every maximum/longest", 100, " ms"),
    Wish("the same from end to end: an ask waits for", "reload/end to end/longest wait", 100, " ms"),
    *(Wish(f"the longest turn: {name}", f"longest-turn/{name}", 50, " ms") for name in longest_turn.SCENARIOS),
    Wish("a tree of 2,000 queues, at the worker", "queue-tree/after changes", 30, " ms"),
    Wish(
        "10,000 queues: validation, and the slowest change in the engine",
        "configuration/validate and the slowest change",
        2,
        " s",
    ),
    Wish("a month of 200,000 jobs in `yunishard simulate`", "simulate/200,000 jobs", 300, " s"),
    Wish("1,024 questions to the predicates of the Kubernetes shim, 10,000 pods", "kubernetes/question", 20, " ms"),
    Wish("the auditor's share of a processor", "auditor/share", 2, " %"),
)


def rewritten(text: str, results: Results) -> str:
    """Return the document with the present figures.

    Raises:
        KeyError: it contains an unknown table name.
    """
    return _BLOCK.sub(lambda found: f"{found[1]}{TABLES[found[2]](results.by_name, results)}{found[3]}", text)


def _machine(_: Mapping[str, Figure], results: Results) -> str:
    machine = results.machine
    return f"{machine.cpu}, {machine.cores} cores, Python {machine.python}\n"


def _shapes(figures: Mapping[str, Figure], _: Results) -> str:
    rows = []
    for name in SHAPES:
        rates = [_value(figures, f"{path}/{name}") for path in ("engine", "engine/compiled", "native", "grpc")]
        rows.append([name, *rates, *_reference(figures, f"grpc/{name}"), str(must.RATIOS[name])])
    return _table(
        ["shape", "engine alone", "engine, compiled", "native", "gRPC", "reference, gRPC", "ratio", "at least"], rows
    )


def _latency(figures: Mapping[str, Figure], _: Results) -> str:
    rows = []
    for when in ("idle", "loaded"):
        for what in ("median", "99 of 100"):
            ours = [_value(figures, f"latency/{way}/{when}/{what}") for way in ("native", "grpc")]
            theirs = _reference(figures, f"latency/grpc/{when}/{what}")
            rows.append([f"{when}, {what}", *ours, *theirs, number(must.LATENCY_MAX[what]) if when == "idle" else ""])
    return _table(["ms", "native", "gRPC", "reference, gRPC", "ratio", "at most"], rows)


def _growth(figures: Mapping[str, Figure], _: Results) -> str:
    ends = list(points(ends=True))
    rows = []
    for near, far in zip(ends[::2], ends[1::2], strict=True):
        row = [f"{far.sorting}, {charts.ROOMS[far.room]}", f"{near.at:,} to {far.at:,} {far.axis}"]
        for path in charts.PATHS:
            first, last = (figures.get(f"{path}/{point.name}") for point in (near, far))
            row.append(number(last.value / first.value) if first and last else UNKNOWN)
        rows.append([*row, number(must.GROWTH[far.axis])])
    return _table(["nodes", "from, to", "engine alone", "native", "gRPC", "at least"], rows)


def _wishes(figures: Mapping[str, Figure], _: Results) -> str:
    rows = []
    for wish in WISHES:
        found = figures.get(wish.figure)
        reached = UNKNOWN if found is None else f"{number(found.value)}{wish.unit}"
        sign = "at least" if wish.is_least else "at most"
        holds = "" if found is None else "yes" if wish.holds(found.value) else "**no**"
        rows.append([wish.what, f"{sign} {number(wish.wanted)}{wish.unit}", reached, holds])
    return _table(["what", "wanted", "reached", "holds"], rows)


def _budget(figures: Mapping[str, Figure], _: Results) -> str:
    installed = "partition_worker, as installed"
    rows = [
        [role, *(_value(figures, f"budget/{way}/{role}") for way in ("native", "grpc"))]
        for role in (*ROLES, "server", installed)
    ]
    return _table(["µs for an allocation", "native", "gRPC"], rows)


def _scaling(figures: Mapping[str, Figure], _: Results) -> str:
    rows = [["measured here", *(_value(figures, f"scaling/{n}") if n in PARTITIONS else "" for n in MORE)]]
    rows += [
        [f"reckoned, {cores} cores", *(_value(figures, f"scaling/reckoned/{cores} cores/{n}") for n in MORE)]
        for cores in CORES
    ]
    return _table(["allocations/s, by partitions", *map(str, MORE)], rows)


def _commits(figures: Mapping[str, Figure], _: Results) -> str:
    rows = [
        [name, *(_value(figures, f"store/commit of {steps}/{name}") for steps in store.GROUPS)]
        for name in ("embedded", "postgresql")
    ]
    return _table(["ms, by steps of a commit", *map(str, store.GROUPS)], rows)


def _store(figures: Mapping[str, Figure], _: Results) -> str:
    rows = [[role, _value(figures, f"store/{role}")] for role in (*ROLES, *store.SERVERS.values(), store.OTHERS)]
    return _table(["µs for an allocation", "with a store in PostgreSQL"], rows)


def _hosts(figures: Mapping[str, Figure], _: Results) -> str:
    rates = [_value(figures, f"store/reckoned/{n}") for n in store.PARTITIONS]
    return _table(["allocations/s, by partitions", *map(str, store.PARTITIONS)], [["reckoned", *rates]])


TABLES: Final[Mapping[str, Callable[[Mapping[str, Figure], Results], str]]] = {
    "machine": _machine,
    "shapes": _shapes,
    "latency": _latency,
    "growth": _growth,
    "wishes": _wishes,
    "budget": _budget,
    "scaling": _scaling,
    "commits": _commits,
    "store": _store,
    "hosts": _hosts,
}


def _value(figures: Mapping[str, Figure], name: str) -> str:
    return number(figures[name].value) if name in figures else UNKNOWN


def _reference(figures: Mapping[str, Figure], name: str) -> list[str]:
    """The figure of the reference, and the ratio to it."""
    figure = figures.get(name)
    return [number(value) if value else UNKNOWN for value in (figure and figure.reference, figure and figure.ratio)]


def number(value: float) -> str:
    """Format with three significant digits, or all digits before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *rows))


def render_files(results: Results) -> Iterator[tuple[Path, str]]:
    """Render each file: path and content."""
    yield DOCUMENT, rewritten(DOCUMENT.read_text(encoding="utf-8"), results)
    for name, text in charts.drawn(results):
        yield charts.FOLDER / name, text


def main() -> int:
    """Write them."""
    charts.FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in render_files(read(COMMITTED)):
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"  {path.relative_to(DOCUMENT.parents[1])}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
