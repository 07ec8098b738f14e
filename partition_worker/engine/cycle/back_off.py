"""Leaving an application alone for a while of which too many asks fit no node.

The asks of an application are tried in order, and where its queue says so it is given up as soon as another one comes
after so many that failed. Asks that have been placed count as ones that come, though nobody tries them.

Not here: trying (`descent.py`).
"""

from collections.abc import Iterator
from heapq import merge
from itertools import chain, islice

from partition_worker.engine.applications.allocation import Allocation
from partition_worker.engine.applications.application import Application
from partition_worker.engine.applications.asks import Group
from partition_worker.engine.applications.line import Place, place_of


def due(failed: list[Group], enough: int, ask: Allocation) -> bool:
    """Whether so many asks that fit no node come before this one."""
    return sum(1 for _ in islice(_before(place_of(ask), failed), enough)) == enough


def due_at_the_end(application: Application, failed: list[Group], enough: int) -> bool:
    """Whether any ask comes after so many that fit no node, now that all have been tried."""
    places = merge(*([place_of(ask) for ask in group.asks] for group in failed))
    last = next(islice(places, enough - 1, None), None)
    return last is not None and any(place_of(one) > last for one in _in_order(application))


def _before(place: Place, failed: list[Group]) -> Iterator[Allocation]:
    for group in failed:
        for one in group.asks:
            if place_of(one) < place:
                yield one


def _in_order(application: Application) -> Iterator[Allocation]:
    """All asks that ever were in the order and are not released; what an RM placed never was."""
    yield from chain(application.requests.values(), application.swapping.values())
    for one in application.allocations.values():
        if not one.recovered:
            yield one
