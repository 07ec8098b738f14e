"""The metrics of the web service. Collecting those of other processes is in `cluster_routes.py`, their text format in
`common/process/metrics_text.py`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from yunishard.common.process.metrics import Family, Histogram, counter, distribution

_BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class RestMetrics:
    """The metrics of this process: requests and their durations by route, and those of `sources`."""

    def __init__(self) -> None:
        self.sources: list[Callable[[], Iterable[Family]]] = []
        """Other metrics of this process."""
        self._requests: Counter[tuple[str, str, int]] = Counter()
        """By method, path of the route and status."""
        self._durations: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(_BOUNDS_S))
        """By path of the route."""

    def record(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answered request; for a stream, `seconds` is the time to its start."""
        self._requests[method, route, status] += 1
        self._durations[route].observe(seconds)

    def families(self) -> Iterator[Family]:
        """All families with their current values."""
        yield counter(
            "yunishard_rest_requests_total",
            "Answered requests by route and status, without those for unknown paths. Investigate many of status 503 (a "
            "process does not answer), 500 (a defect) or 403.",
            ("method", "route", "status"),
            [((method, route, str(status)), count) for (method, route, status), count in self._requests.items()],
        )
        yield distribution(
            "yunishard_rest_request_seconds",
            "Seconds from a request to its answer, of a stream to its start. Investigate lists that take longer than a "
            "second: read them page by page (limit).",
            ("route",),
            [((route,), took) for route, took in self._durations.items()],
        )
        for source in self.sources:
            yield from source()
