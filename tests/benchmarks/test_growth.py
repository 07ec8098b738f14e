"""Every curve has every point."""

from benchmarks.growth import ASKS_GROW, NODES_GROW, Point, figures, flatness_figures, points
from benchmarks.results import Plan
from benchmarks.shapes import Workload

TINY = Plan(share=0.002, rounds=1)


def test_there_is_a_curve_for_each_order_of_nodes_and_each_cluster() -> None:
    found = list(points())
    assert len(found) == len(set(found)) == 4 * (len(ASKS_GROW) + len(NODES_GROW))


def test_each_point_is_as_large_as_it_says() -> None:
    seen: list[Workload] = []

    def measured(workload: Workload) -> float:
        seen.append(workload)
        return float(len(seen))

    found = list(figures("growth-x", measured, TINY))
    assert [one.name for one in found] == [f"growth-x/{point.name}" for point in points()]
    sizes = {point: (len(work.nodes), len(work.asks)) for point, work in zip(points(), seen, strict=True)}
    assert sizes[Point("fair", "empty", "asks", 100_000)] == (2, 200)
    assert sizes[Point("binpacking", "full", "nodes", 20_000)] == (40, 20)


def test_how_flat_it_is_is_judged() -> None:
    found = list(flatness_figures(TINY, ["fair"]))
    assert [one.name.removeprefix("flatness/fair/") for one in found] == [
        "empty/asks",
        "empty/nodes",
        "full/asks",
        "full/nodes",
    ]
    assert all(one.cost and one.value > 0 for one in found)
