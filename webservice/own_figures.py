"""What the web service counts of itself: requests by route, and how long they took.

Everything else that it has to tell (its process, its streams, its history) is told by whoever knows it; `around` has
them all. Not here: the page (`metric_routes.py`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from common.families import Family, counter, distribution
from common.histogram import Histogram

_BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class OwnFigures:
    """The figures of this process."""

    def __init__(self) -> None:
        self.around: list[Callable[[], Iterable[Family]]] = []
        """Who else in this process tells figures."""
        self._answered: Counter[tuple[str, str, int]] = Counter()
        """By method, path of the route and status."""
        self._took: dict[str, Histogram] = {}
        """By path of the route."""

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request was answered after so long; of a stream, begun to be."""
        self._answered[method, route, status] += 1
        if route not in self._took:
            self._took[route] = Histogram(_BOUNDS_S)
        self._took[route].observe(seconds)

    def families(self) -> Iterator[Family]:
        """All of them, as of now."""
        yield counter(
            "yunishard_rest_requests_total",
            "Requests that were answered, by route and status; those for what is not there are not among them. Worry "
            "about many of status 503 (somebody behind does not answer), 500 (a defect) or 403.",
            ("method", "route", "status"),
            [((method, route, str(status)), count) for (method, route, status), count in self._answered.items()],
        )
        yield distribution(
            "yunishard_rest_request_seconds",
            "Seconds from a request to its answer, of a stream to its beginning. Worry if lists take longer than a "
            "second: ask for parts of them (limit).",
            ("route",),
            [((route,), took) for route, took in self._took.items()],
        )
        for told in self.around:
            yield from told()
