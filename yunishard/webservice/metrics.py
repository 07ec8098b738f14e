"""The metrics of the web service, and the page of the metrics of all processes.

The page is collected through a registry, with a collector for the families of each process. Not here: asking
the processes (`cluster_routes.py`).
"""

import re
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from yunishard.common.process.metrics import Family

TEXT_TYPE: Final = f"{CONTENT_TYPE_PLAIN_0_0_4}; escaping=underscores"
OPENMETRICS_TYPE: Final = CONTENT_TYPE_LATEST
OPENMETRICS: Final = OPENMETRICS_TYPE.partition(";")[0]

PARTITION: Final = "partition"

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_UNESCAPED: Final = re.compile(r'[^\\\n"]*')

_BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class RestMetrics:
    """Requests and their durations by route, and the registry of all metrics of this process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "yunishard_rest_requests_total",
            "Answered requests by route and status, without those for unknown paths. Investigate many of status 503 (a "
            "process does not answer), 500 (a defect) or 403.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._durations = Histogram(
            "yunishard_rest_request_seconds",
            "Seconds from a request to its answer, of a stream to its start. Investigate lists that take longer than a "
            "second: read them page by page (limit).",
            ("route",),
            buckets=_BOUNDS_S,
            registry=self.registry,
        )

    def record(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answered request; for a stream, `seconds` is the time to its start."""
        self._requests.labels(method, route, status).inc()
        self._durations.labels(route).observe(seconds)


# The page -------------------------------------------------------------------------------------------------------------


class FamilyCollector:
    """The families that a process sent, as metrics of the library; with the label `partition` if that is given."""

    def __init__(self, families: Iterable[Family], partition: str = "") -> None:
        self._families = families
        self._partition = partition

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            own = (self._partition,) if self._partition and PARTITION not in family.labels else ()
            labels = (*family.labels, *(PARTITION for _ in own))
            if family.kind == "histogram":
                yield _make_histogram(family, labels, own)
                continue
            metric = Metric(family.name, family.help, family.kind)
            order = sorted(range(len(labels)), key=labels.__getitem__)
            name, names = family.name, [labels[place] for place in order]
            for values, value in family.samples:
                of_all = values + own
                metric.samples.append(
                    Sample(name, dict(zip(names, [of_all[place] for place in order], strict=True)), value)
                )
            yield metric


def _make_histogram(family: Family, labels: tuple[str, ...], own: tuple[str, ...]) -> Metric:
    """Each bucket of the library counts the values of the ones before, too."""
    metric = HistogramMetricFamily(family.name, family.help, labels=labels)
    bounds = [*(str(float(bound)) for bound in family.bounds), "+Inf"]
    for values, counts, total in family.distributions:
        metric.add_metric((*values, *own), list(zip(bounds, accumulate(counts), strict=True)), total)
    return metric


def write_page(source: Collector, *, is_openmetrics: bool) -> bytes:
    """Write metrics by name, and series by the values of their labels, which are in the order of their names.

    The library's writers put `_total` after the name of every counter, and YuniKorn has counters without. OpenMetrics
    has none, so their type is `unknown` there, as is that of `queue_app_total` beside the gauge `queue_app`.
    """
    lines: list[str] = []
    joined = _join_metrics(source)
    for name, metric in sorted(joined.items()):
        shown, kind, text = name, metric.type, metric.documentation.replace("\\", r"\\").replace("\n", r"\n")
        if is_openmetrics:
            shown, text = name.removesuffix("_total") if kind == "counter" else name, text.replace('"', r"\"")
            if kind == "counter" and shown in joined:  # also if nothing was removed
                shown, kind = name, "unknown"
        lines.append(f"# HELP {shown} {text}\n# TYPE {shown} {kind}\n")
        if kind != "histogram":  # whose samples follow each other in a fixed order
            metric.samples.sort(key=lambda sample: [*sample.labels.values()])
        for sample in metric.samples:
            labels = sample.labels
            if kind == "histogram" and "le" in labels and not is_openmetrics:
                labels["le"] = labels["le"].removesuffix(".0")  # as YuniKorn does; OpenMetrics demands the fraction
            pairs = [f'{label}="{_escape(value)}"' for label, value in labels.items()]
            number = floatToGoString(sample.value).removesuffix(".0")  # type: ignore[no-untyped-call]
            lines.append(f"{sample.name}{{{','.join(pairs)}}} {number}\n" if pairs else f"{sample.name} {number}\n")
    return "".join([*lines, "# EOF\n" if is_openmetrics else ""]).encode()


def _join_metrics(source: Collector) -> dict[str, Metric]:
    """Metrics by the name of their samples; of several processes as one, with the help text of the first."""
    joined: dict[str, Metric] = {}
    for metric in source.collect():
        if metric.samples:
            first = joined.setdefault(metric.samples[0].name if metric.type == "counter" else metric.name, metric)
            if first is not metric and first.type == metric.type:  # a name has one type; our own never differ
                first.samples += metric.samples
        for sample in metric.samples:
            if sample.labels.get(PARTITION) == "":
                del sample.labels[PARTITION]  # Prometheus takes an empty label for none
    return joined


def _escape(value: str) -> str:
    """Escape the value of a label; of tens of thousands, nearly all need no escapes."""
    return value if _UNESCAPED.fullmatch(value) else value.translate(_ESCAPES)


def wants_openmetrics(accept: str) -> bool:
    """Whether a header `Accept` names the format; Prometheus names both, and prefers it."""
    return any(kind.partition(";")[0].strip() == OPENMETRICS for kind in accept.split(","))
