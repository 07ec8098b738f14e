"""The rate of every shape from end to end: over the native protocol, and over the scheduler interface.

The clock runs from the first ask sent to the last allocation heard, in the journal of which each is by then. Over the
scheduler interface the reference is driven by the same client in the same run, where there is one.
"""

from collections.abc import Iterable, Iterator
from statistics import median

from benchmarks.paths.systems import System, grpc, native
from benchmarks.paths.timing import measured
from benchmarks.results import PER_SECOND, Figure, Plan
from benchmarks.shapes import SHAPES, Workload


def native_figures(plan: Plan) -> Iterator[Figure]:
    """Over the native protocol, which the reference does not speak."""
    yield from figures("native", native, plan._replace(reference=None))


def grpc_figures(plan: Plan) -> Iterator[Figure]:
    """Over the scheduler interface."""
    yield from figures("grpc", grpc, plan)


def figures(name: str, system: System, plan: Plan, shapes: Iterable[str] = SHAPES) -> Iterator[Figure]:
    """The rate of each shape, and right after it the reference's."""
    for shape in shapes:
        workload = SHAPES[shape](plan.nodes, plan.asks)
        ours = rate(system, workload, plan)
        theirs = None if plan.reference is None else rate(plan.reference, workload, plan._replace(rounds=1))
        yield Figure(f"{name}/{shape}", ours, PER_SECOND, reference=theirs)


def rate(system: System, workload: Workload, plan: Plan) -> float:
    """Allocations a second, the median of all rounds."""
    return median(measured(system, workload, plan.settling_s).per_second for _ in range(plan.rounds))
