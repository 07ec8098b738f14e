"""The metrics of the Kubernetes processes, for Prometheus, and the port that serves them.

`/metrics` has what the process counts and what every process reports about itself; `/health` answers while the event
loop runs, for a kubelet. Neither names a pod, a queue or a user.
"""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from yunishard.common.process.process_metrics import ProcessMetrics

_BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)


class ApiMetrics:
    """Requests to the API server, of one client or several."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.lists = Counter(
            "yunishard_k8s_lists_total",
            "Times that all objects of a kind were listed: once at the start, and again when a watch missed changes. "
            "Investigate several an hour.",
            ("kind",),  # in the plural
            registry=self.registry,
        )
        self._requests = Counter(
            "yunishard_k8s_requests_total",
            "Requests to the API server by method and status, each repetition counted, none without an answer. "
            "Investigate a rate of none, 401 (the credentials), 403 (a right is missing), 429 or 5xx that stays up.",
            ("method", "status"),
            registry=self.registry,
        )
        self._durations = Histogram(
            "yunishard_k8s_request_seconds",
            "Seconds from a request to the begin of its answer. Investigate a POST (a binding) above 0.1.",
            ("method",),
            buckets=_BOUNDS_S,
            registry=self.registry,
        )

    def record(self, method: str, status: int, seconds: float) -> None:
        """Count a request: `seconds` from sending it to the begin of the answer; status 0 without an answer."""
        self._requests.labels(method, status or "none").inc()
        if status:
            self._durations.labels(method).observe(seconds)


class ShimMetrics:
    """The state of the shim and its bindings. The driver and the lease set the values."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.has_lease = Gauge(
            "yunishard_k8s_shim_active",
            "Whether this shim has the lease (1) or waits for it (0). Investigate a sum over all shims other than 1.",
            registry=self.registry,
        )
        self.is_registered = Gauge(
            "yunishard_k8s_shim_registered",
            "Whether this shim has a session with the core. Investigate 0 for more than a minute at the active one: no "
            "pod gets a node.",
            registry=self.registry,
        )
        self.binds = Counter(
            "yunishard_k8s_binds_total",
            "Bindings of pods to nodes that the API server accepted (bound) or not (refused). A few that are refused "
            "are normal: pods are deleted at any time.",
            ("outcome",),
            registry=self.registry,
        )
        self.count_waiting: Callable[[], dict[str, int]] = dict
        """Counts what waits to be sent, by what it is."""
        self.count_pods: Callable[[], dict[str, int]] = dict
        """Counts pods by their state."""
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The driver counts these on request."""
        waiting = GaugeMetricFamily(
            "yunishard_k8s_waiting",
            "Messages to the core, writes to the API server and events that wait to be sent. Investigate writes that "
            "stay up: the API server is slow, or the setting kubernetes.qps too low.",
            labels=("what",),
        )
        pods = GaugeMetricFamily(
            "yunishard_k8s_pods",
            "Pods of this scheduler by the state that they have in the shim; Scheduling is waiting for a node.",
            labels=("state",),
        )
        for metric, counts in ((waiting, self.count_waiting()), (pods, self.count_pods())):
            for value, count in counts.items():
                metric.add_metric((value,), count)
            yield metric


class AdmissionMetrics:
    """Reviews of the admission controller, and its certificates."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.unvalidated = Counter(
            "yunishard_k8s_admission_unvalidated_total",
            "Changed queues that were admitted without validation, as the core did not answer. Investigate any.",
            registry=self.registry,
        )
        self.ends_at = Gauge(
            "yunishard_k8s_certificate_end_time_seconds",
            "When the certificate of the webhooks ends, and the first of its two authorities, in Unix seconds. They "
            "are renewed 30 and 120 days before. Investigate less than 20 days from now.",
            ("certificate",),
            registry=self.registry,
        )
        self._reviews = Counter(
            "yunishard_k8s_admission_reviews_total",
            "Reviews by webhook and outcome: unchanged, changed, refused, or malformed (no review). Investigate none "
            "while pods are created: the API server does not reach the webhook, and pods get the default scheduler.",
            ("webhook", "outcome"),
            registry=self.registry,
        )
        self._durations = Histogram(
            "yunishard_k8s_admission_review_seconds",
            "Seconds from a review to its answer. Investigate above 1: the API server waits for 5 s at most.",
            ("webhook",),
            buckets=_BOUNDS_S,
            registry=self.registry,
        )

    def record(self, webhook: str, outcome: str, seconds: float) -> None:
        """Count a review."""
        self._reviews.labels(webhook, outcome).inc()
        self._durations.labels(webhook).observe(seconds)


# The port -------------------------------------------------------------------------------------------------------------


class ListenFailed(Exception):
    """A port cannot be opened; the text names it and the reason."""


@asynccontextmanager
async def serve_metrics(address: str, process: str, *registries: CollectorRegistry) -> AsyncIterator[None]:
    """Serve the metrics of a process within the block; nothing without an address.

    Raises:
        ListenFailed: the port cannot be opened.
    """
    if not address:
        yield
        return
    own = ProcessMetrics(process)
    for registry in registries:
        own.registry.register(registry)

    async def answer(request: web.Request) -> web.Response:
        write, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=write(own.registry), headers={"Content-Type": content_type})

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
