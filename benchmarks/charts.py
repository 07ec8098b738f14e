"""Growth curves of the committed figures as SVG charts, for `docs/performance.md`.

The horizontal axis is logarithmic, because work grows by factors. The vertical axis starts at 0, so that a curve looks
as flat as it is. SVG is text: it can be committed and compared.
"""

from collections.abc import Iterator, Sequence
from html import escape
from math import ceil, floor, log10
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.growth import ROOM
from benchmarks.results import PER_SECOND, Results
from benchmarks.shapes import SORTINGS

PANEL: Final = (440, 300)
MARGIN: Final = {"left": 62, "right": 18, "top": 46, "bottom": 50}
LEGEND: Final = 34
COLOURS: Final = ("#1f6fb4", "#d1495b", "#2a9d6f", "#8f5fbf", "#c77f1a", "#5b6770")
DASHES: Final = ("", "6 4", "2 3", "8 3 2 3", "", "")
INK: Final = "#24292f"
FAINT: Final = "#d8dee4"
STEPS_MAX: Final = 6
"""Lines across a chart."""


class Curve(NamedTuple):
    """One line, by its points from left to right."""

    name: str
    points: Sequence[tuple[float, float]]


class Panel(NamedTuple):
    """One chart."""

    title: str
    across: str
    """Unit of the horizontal axis."""
    curves: Sequence[Curve]


def chart(panels: Sequence[Panel], up: str) -> str:
    """Charts beside each other, whose axes at the side are alike and count `up`; curves of one name look the same."""
    names = list(dict.fromkeys(curve.name for panel in panels for curve in panel.curves))
    step, top = _scale(max(y for panel in panels for curve in panel.curves for _, y in curve.points))
    width, height = PANEL[0] * len(panels), PANEL[1] + LEGEND
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f'<g font-family="system-ui, sans-serif" font-size="12" fill="{INK}">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate({number * PANEL[0]} 0)">')
        parts += _panel(panel, names, step, top, up)
        parts.append("</g>")
    parts += _legend(names, width)
    return "\n".join([*parts, "</g>", "</svg>"]) + "\n"


def _panel(panel: Panel, names: Sequence[str], step: float, top: float, up: str) -> list[str]:
    left, right = MARGIN["left"], PANEL[0] - MARGIN["right"]
    high, low = MARGIN["top"], PANEL[1] - MARGIN["bottom"]
    xs = sorted({x for curve in panel.curves for x, _ in curve.points})
    first, span = log10(xs[0]), (log10(xs[-1]) - log10(xs[0])) or 1.0

    def across(x: float) -> float:
        return left + (log10(x) - first) / span * (right - left)

    def upward(y: float) -> float:
        return low - y / top * (low - high)

    parts = [f'<text x="{left}" y="18" font-size="14" font-weight="600">{escape(panel.title)}</text>']
    parts.append(f'<text x="{left}" y="36" fill="#57606a">{escape(up)}</text>')
    for line in range(round(top / step) + 1):
        y = upward(line * step)
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="{FAINT}"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{_short(line * step)}</text>')
    for x in xs:
        parts.append(f'<line x1="{across(x):.1f}" y1="{low}" x2="{across(x):.1f}" y2="{low + 5}" stroke="{INK}"/>')
        parts.append(f'<text x="{across(x):.1f}" y="{low + 19}" text-anchor="middle">{_short(x)}</text>')
    middle = (left + right) / 2
    parts.append(f'<text x="{middle}" y="{low + 38}" text-anchor="middle" fill="#57606a">{escape(panel.across)}</text>')
    for curve in panel.curves:
        colour, dash = _look(names.index(curve.name))
        at = [(across(x), upward(y)) for x, y in curve.points]
        line_at = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        parts.append(f'<polyline points="{line_at}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in at]
    return parts


def _legend(names: Sequence[str], width: float) -> list[str]:
    """All names in a row below."""
    each = (width - 2 * MARGIN["left"]) / len(names)
    y = PANEL[1] + LEGEND / 2 - 2
    parts = []
    for number, name in enumerate(names):
        x, (colour, dash) = MARGIN["left"] + number * each, _look(number)
        parts.append(
            f'<line x1="{x:.1f}" y1="{y}" x2="{x + 26:.1f}" y2="{y}" stroke="{colour}" stroke-width="2"{dash}/>'
        )
        parts.append(f'<text x="{x + 33:.1f}" y="{y + 4}">{escape(name)}</text>')
    return parts


def _look(number: int) -> tuple[str, str]:
    """Colour, and a dash pattern for readers who cannot distinguish colours."""
    dash = DASHES[number % len(DASHES)]
    return COLOURS[number % len(COLOURS)], f' stroke-dasharray="{dash}"' if dash else ""


def _scale(most: float) -> tuple[float, float]:
    """A round step, and the top of the axis: a whole number of them."""
    rough = max(most, 1e-9) / (STEPS_MAX - 1)
    power = 10.0 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    return step, step * ceil(most / step)


def _short(number: float) -> str:
    return f"{number / 1000:g}k" if number >= 1000 else f"{number:g}"


# Growth curves --------------------------------------------------------------------------------------------------------

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
