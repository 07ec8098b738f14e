"""The growth curves of the committed figures, drawn for `docs/performance.md`.

One file for each path: how the rate changes with the number of asks, and of nodes. Not here: writing the files
(`document.py`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.growth import ROOM
from benchmarks.results import PER_SECOND, Results
from benchmarks.shapes import SORTINGS
from benchmarks.svg import Curve, Panel, chart

FOLDER: Final = Path(__file__).parents[1] / "docs" / "performance"
PATHS: Final = {
    "growth-engine": "The engine alone",
    "growth-native": "Native protocol, end to end",
    "growth-grpc": "Scheduler interface, end to end",
}
ACROSS: Final = {"asks": "asks at once, 1,000 nodes", "nodes": "nodes, 10,000 asks"}
ROOMS: Final = {"empty": "empty", "full": "98 % full"}


def drawn(results: Results) -> Iterator[tuple[str, str]]:
    """Names of files, and what is in them; of paths that were measured."""
    for path, title in PATHS.items():
        panels = [
            Panel(f"{title}: more {axis}", ACROSS[axis], found)
            for axis in ACROSS
            if (found := _curves(results, path, axis))
        ]
        if panels:
            yield f"{path}.svg", chart(panels, PER_SECOND)


def _curves(results: Results, path: str, axis: str) -> list[Curve]:
    found = []
    for sorting in SORTINGS:
        for room in ROOM:
            prefix = f"{path}/{sorting}/{room}/{axis}/"
            points = [
                (float(one.name.removeprefix(prefix)), one.value)
                for one in results.figures
                if one.name.startswith(prefix)
            ]
            if points:
                found.append(Curve(f"{sorting}, {ROOMS[room]}", sorted(points)))
    return found
