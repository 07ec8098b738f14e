"""The metrics of the Kubernetes processes, for Prometheus, and the port that serves them.

`/metrics` has what the process counts and what every process reports about itself; `/health` answers while the event
loop runs, for a kubelet. Neither names a pod, a queue or a user.

Not here: the text format (`common/process/metrics_text.py`).
"""

import os
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import Final

from aiohttp import web

from yunishard.common.process.metrics import Family, Histogram, counter, distribution, gauge
from yunishard.common.process.metrics_text import CONTENT_TYPE, render
from yunishard.common.process.process_metrics import ProcessMetrics

_BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)

MetricSource = Callable[[], Iterable[Family]]


class ApiMetrics:
    """Requests to the API server, of one client or several."""

    def __init__(self) -> None:
        self.lists: Counter[str] = Counter()
        """Lists by the plural of their kind."""
        self._requests: Counter[tuple[str, str]] = Counter()
        """By method and status; the status is `none` without an answer."""
        self._durations: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(_BOUNDS_S))
        """By method."""

    def record(self, method: str, status: int, seconds: float) -> None:
        """Count a request: `seconds` from sending it to the begin of the answer; status 0 without an answer."""
        self._requests[method, str(status or "none")] += 1
        if status:
            self._durations[method].observe(seconds)

    def families(self) -> Iterator[Family]:
        yield counter(
            "yunishard_k8s_requests_total",
            "Requests to the API server by method and status, each repetition counted, none without an answer. "
            "Investigate a rate of none, 401 (the credentials), 403 (a right is missing), 429 or 5xx that stays up.",
            ("method", "status"),
            self._requests.items(),
        )
        yield distribution(
            "yunishard_k8s_request_seconds",
            "Seconds from a request to the begin of its answer. Investigate a POST (a binding) above 0.1.",
            ("method",),
            [((method,), took) for method, took in self._durations.items()],
        )
        yield counter(
            "yunishard_k8s_lists_total",
            "Times that all objects of a kind were listed: once at the start, and again when a watch missed changes. "
            "Investigate several an hour.",
            ("kind",),
            [((kind,), count) for kind, count in self.lists.items()],
        )


class ShimMetrics:
    """The state of the shim and its bindings. The driver and the lease set the values."""

    def __init__(self) -> None:
        self.has_lease = False
        self.is_registered = False
        """Whether there is a session with the core."""
        self.binds: Counter[str] = Counter()
        """By outcome: `bound`, `refused`."""
        self.count_waiting: Callable[[], dict[str, int]] = dict
        """Counts what waits to be sent, by what it is."""
        self.count_pods: Callable[[], dict[str, int]] = dict
        """Counts pods by their state."""

    def families(self) -> Iterator[Family]:
        yield gauge(
            "yunishard_k8s_shim_active",
            "Whether this shim has the lease (1) or waits for it (0). Investigate a sum over all shims other than 1.",
            (),
            [((), int(self.has_lease))],
        )
        yield gauge(
            "yunishard_k8s_shim_registered",
            "Whether this shim has a session with the core. Investigate 0 for more than a minute at the active one: no "
            "pod gets a node.",
            (),
            [((), int(self.is_registered))],
        )
        yield counter(
            "yunishard_k8s_binds_total",
            "Bindings of pods to nodes that the API server accepted (bound) or not (refused). A few that are refused "
            "are normal: pods are deleted at any time.",
            ("outcome",),
            [((outcome,), count) for outcome, count in self.binds.items()],
        )
        yield gauge(
            "yunishard_k8s_waiting",
            "Messages to the core, writes to the API server and events that wait to be sent. Investigate writes that "
            "stay up: the API server is slow, or the setting kubernetes.qps too low.",
            ("what",),
            [((what,), count) for what, count in self.count_waiting().items()],
        )
        yield gauge(
            "yunishard_k8s_pods",
            "Pods of this scheduler by the state that they have in the shim; Scheduling is waiting for a node.",
            ("state",),
            [((state,), count) for state, count in self.count_pods().items()],
        )


class AdmissionMetrics:
    """Reviews of the admission controller, and its certificates."""

    def __init__(self) -> None:
        self.unvalidated = 0
        """Configurations that were admitted although the core did not answer."""
        self.ends_at: dict[str, float] = {}
        """When certificates end, in Unix seconds, by what they are for."""
        self._reviews: Counter[tuple[str, str]] = Counter()
        self._durations: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(_BOUNDS_S))

    def record(self, webhook: str, outcome: str, seconds: float) -> None:
        """Count a review."""
        self._reviews[webhook, outcome] += 1
        self._durations[webhook].observe(seconds)

    def families(self) -> Iterator[Family]:
        yield counter(
            "yunishard_k8s_admission_reviews_total",
            "Reviews by webhook and outcome: unchanged, changed, refused, or malformed (no review). Investigate none "
            "while pods are created: the API server does not reach the webhook, and pods get the default scheduler.",
            ("webhook", "outcome"),
            self._reviews.items(),
        )
        yield distribution(
            "yunishard_k8s_admission_review_seconds",
            "Seconds from a review to its answer. Investigate above 1: the API server waits for 5 s at most.",
            ("webhook",),
            [((webhook,), took) for webhook, took in self._durations.items()],
        )
        yield counter(
            "yunishard_k8s_admission_unvalidated_total",
            "Changed queues that were admitted without validation, as the core did not answer. Investigate any.",
            (),
            [((), self.unvalidated)],
        )
        yield gauge(
            "yunishard_k8s_certificate_end_time_seconds",
            "When the certificate of the webhooks ends, and the first of its two authorities, in Unix seconds. They "
            "are renewed 30 and 120 days before. Investigate less than 20 days from now.",
            ("certificate",),
            [((name,), at) for name, at in self.ends_at.items()],
        )


# The port -------------------------------------------------------------------------------------------------------------


class ListenFailed(Exception):
    """A port cannot be opened; the text names it and the reason."""


@asynccontextmanager
async def serve_metrics(address: str, process: str, sources: Iterable[MetricSource]) -> AsyncIterator[None]:
    """Serve the metrics of a process within the block; nothing without an address.

    Raises:
        ListenFailed: the port cannot be opened.
    """
    if not address:
        yield
        return
    own = ProcessMetrics(process)

    async def answer(_: web.Request) -> web.Response:
        families = [*own.collect(), *(family for source in sources for family in source())]
        return web.Response(body=render((), families), headers={"Content-Type": CONTENT_TYPE})

    application = web.Application(client_max_size=0)
    application.router.add_get("/metrics", answer)
    application.router.add_get("/health", answer_health)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await open_port(runner, address, option="--metrics")
        yield
    finally:
        await runner.cleanup()
        own.close()


async def open_port(runner: web.AppRunner, address: str, *, option: str, tls: SSLContext | None = None) -> None:
    """Listen at HOST:PORT, which the option names.

    Raises:
        ListenFailed: the port cannot be opened.
    """
    host, _, port = address.rpartition(":")
    try:
        await web.TCPSite(runner, host.strip("[]"), int(port), ssl_context=tls).start()
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno else str(error)
        raise ListenFailed(f"{address} cannot be opened: {reason}; {option} names another address") from None


async def answer_health(_: web.Request) -> web.Response:
    """Answer that the event loop runs."""
    return web.Response(text="OK")
