"""Growth curves: the rate with more asks, with more nodes, and in a nearly full cluster.

Two queues ask for the same; nodes are taken evenly (`fair`) or one after the other (`binpacking`), and the cluster is
empty or 98 % full. Flat curves are what is wanted. They are drawn for `docs/performance.md` (`charts.py`).
"""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from benchmarks import engine
from benchmarks.end_to_end import rate
from benchmarks.results import ASKS, NODES, PER_SECOND, Figure, Plan
from benchmarks.shapes import SORTINGS, Workload, nearly_full, two_queues
from benchmarks.systems import WAYS

ASKS_GROW: Final = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
NODES_GROW: Final = (1_000, 2_000, 5_000, 20_000, 100_000)
ROOM: Final = {"empty": two_queues, "full": nearly_full}


class Point(NamedTuple):
    """One place on a curve."""

    sorting: str
    room: str
    axis: str
    at: int

    @property
    def name(self) -> str:
        """As in the name of its figure."""
        return f"{self.sorting}/{self.room}/{self.axis}/{self.at}"

    def workload(self, plan: Plan) -> Workload:
        nodes, asks = (self.at, ASKS) if self.axis == "nodes" else (NODES, self.at)
        return ROOM[self.room](plan.scaled(nodes), plan.scaled(asks), sorting=self.sorting)


def points(*, ends: bool = False) -> Iterator[Point]:
    """All places; with `ends`, only those that say whether a curve is flat."""
    for sorting in SORTINGS:
        for room in ROOM:
            asks = (ASKS, ASKS_GROW[-1]) if ends else ASKS_GROW
            nodes = (NODES, NODES_GROW[-1]) if ends else NODES_GROW
            yield from chain(
                (Point(sorting, room, "asks", at) for at in asks), (Point(sorting, room, "nodes", at) for at in nodes)
            )


def engine_figures(plan: Plan) -> Iterator[Figure]:
    """Of the engine alone."""
    yield from figures("growth-engine", lambda workload: engine.measured(workload, plan.rounds).per_second, plan)


def end_to_end_figures(way: str, plan: Plan) -> Iterator[Figure]:
    """Of the whole path, on this way to the system."""
    once = plan._replace(rounds=1)
    yield from figures(f"growth-{way}", lambda workload: rate(WAYS[way], workload, once), plan)


def figures(name: str, measured: Callable[[Workload], float], plan: Plan) -> Iterator[Figure]:
    """The rate at every place of every curve."""
    for point in points():
        yield Figure(f"{name}/{point.name}", measured(point.workload(plan)), PER_SECOND)


def flatness_figures(plan: Plan) -> Iterator[Figure]:
    """Measure the cost of an allocation in the engine at both ends of each curve. The cost at the far end is compared
    with the committed one: a linear search shows there first.
    """
    for sorting in SORTINGS:
        for room in ROOM:
            for axis, (near, far) in {"asks": (ASKS // 2, ASKS * 2), "nodes": (NODES, NODES * 10)}.items():
                first, last = (
                    engine.measured(Point(sorting, room, axis, at).workload(plan), plan.rounds) for at in (near, far)
                )
                times = last.units_per_allocation / first.units_per_allocation
                yield Figure(f"flatness/{sorting}/{room}/{axis}", times, "times", last.units_per_allocation)
