"""The curves are drawn: well-formed, with all that was measured, and as flat as they are."""

from xml.etree import ElementTree

import pytest

from benchmarks.growth import points
from benchmarks.plots import PATHS, drawn
from benchmarks.results import Figure, Machine, Results
from benchmarks.svg import Curve, Panel, chart

SVG = "{http://www.w3.org/2000/svg}"


def curves_of(text: str) -> list[list[tuple[float, float]]]:
    """Where the lines go, from left to right."""
    lines = ElementTree.fromstring(text).iter(f"{SVG}polyline")
    return [[tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()] for line in lines]  # type: ignore[misc]


def texts_of(text: str) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(text).iter(f"{SVG}text")]


def test_a_flat_curve_is_flat_and_one_that_falls_by_half_ends_half_as_high() -> None:
    flat, falling = Curve("flat", [(1, 100), (10, 100)]), Curve("falling", [(1, 100), (10, 50)])
    [[(_, first), (_, same)], [(_, high), (_, low)]] = curves_of(chart([Panel("t", "x", [flat, falling])], "y"))
    assert first == same == high
    bottom = 250.0
    assert bottom - low == pytest.approx((bottom - high) / 2)


def test_the_axis_below_grows_by_factors() -> None:
    [[(first, _), (middle, _), (last, _)]] = curves_of(
        chart([Panel("t", "x", [Curve("a", [(1, 1), (10, 1), (100, 1)])])], "y")
    )
    assert middle - first == pytest.approx(last - middle)


def test_names_are_written_as_they_are() -> None:
    text = chart([Panel("a < b & c", "x", [Curve('"q" > 1', [(1, 0), (2000, 1)])])], "y")
    assert {"a < b & c", '"q" > 1', "2k"} <= set(texts_of(text))


def test_every_path_that_was_measured_has_a_drawing_with_all_curves() -> None:
    figures = [
        Figure(f"{path}/{point.name}", 20_000.0, "allocations/s") for path in list(PATHS)[:2] for point in points()
    ]
    found = dict(drawn(Results(Machine("", 2, ""), figures)))
    assert list(found) == ["growth-engine.svg", "growth-native.svg"]
    for text in found.values():
        assert [len(curve) for curve in curves_of(text)] == [7] * 4 + [5] * 4
        assert {"fair, empty", "binpacking, 98 % full", "100k"} <= set(texts_of(text))
