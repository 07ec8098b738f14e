"""REST routes about all partitions at once: clusters, partitions, node utilization, probes, health check, metrics.

The answers of several partitions are joined only here, so this module decides how an unresponsive partition affects the
others: it is missing or marked, and never fails the whole answer.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from yunishard.common.messages.query_messages import PartitionEntry, PartitionList, Query
from yunishard.common.names import BROKER, WORKER
from yunishard.common.process.metrics import Family, decode_families, gauge, report_journal_stuck, report_process_up
from yunishard.common.process.process_metrics import list_families
from yunishard.common.rest import views
from yunishard.webservice.calls import Call, NamedPartition, Reply, age_header, partition_names, read_registry
from yunishard.webservice.health import NONE_REGISTERED, HealthView, find_storage_problems, health_view
from yunishard.webservice.metrics import (
    OPENMETRICS,
    OPENMETRICS_TYPE,
    PARTITION,
    TEXT_TYPE,
    FamilyCollector,
    wants_openmetrics,
    write_page,
)
from yunishard.webservice.parameters import ANY_TEXT, RM
from yunishard.webservice.response_cache import CachedAnswer
from yunishard.webservice.router import TEXT, Access, Content, Route, RouteGroup
from yunishard.webservice.views import ClusterView, RequestError, encode

CLUSTER: Final = RouteGroup("cluster", "All partitions of all resource managers.")

PARTITION_MAX_S: Final = 3.0
"""Seconds for one partition to answer its part of a list or of the health check. Monitoring systems time out after
about ten seconds, and the other partitions must arrive by then.
"""

READY_MAX_S: Final = 2.0
"""Seconds for the broker to answer a readiness probe; a later answer counts as none. Probes time out after a few."""

_PLAIN_TEXT: Final = "text/plain; charset=utf-8"


def _route(path: str, access: Access, *answers: Content | type[object]) -> Route:
    return Route(CLUSTER, "GET", f"/ws/v1/{path}", access, answers, parameters=(RM,))


@_route("clusters", Access.KNOWN, list[ClusterView])
async def clusters(call: Call) -> Reply:
    """Every partition with the build information of the resource managers, its own RM first."""
    known = await read_registry(call)
    builds = [{**build, "rmId": rm_id} for rm_id, build in known.build_information.items()]
    away = {one.rm_id: one.away_since_ns for one in known.managers}
    views = [
        ClusterView(
            start_time=known.started_ns,
            rm_build_information=sorted(builds, key=lambda build: build["rmId"] != entry.rm_id),
            partition=name,
            cluster_name="kubernetes",
            rm_id=entry.rm_id,
            away_since=away.get(entry.rm_id, 0),
        )
        for name, entry in partition_names(call, known).all()
    ]
    return Reply(encode(views))


@_route("partitions", Access.KNOWN, list[views.PartitionView])
async def partitions(call: Call) -> Reply:
    """Every partition with its totals.

    A partition that does not answer has the `state` `Silent`, and everything else in it is empty or 0.
    """

    def make_silent(one: NamedPartition) -> views.SilentPartitionView:
        return views.SilentPartitionView(cluster_id=one.entry.rm_id, name=one.shown)

    return await _join(call, await read_registry(call), "partition", make_silent)


@_route("scheduler/node-utilizations", Access.KNOWN, Content(list[views.UtilisationView] | None))
async def node_utilisations(call: Call) -> Reply:
    """The utilization of nodes, by partition.

    By resource type, in ten buckets. `null` while no RM is registered, as clients of YuniKorn expect.
    """
    known = await read_registry(call)
    if not known.build_information:
        return Reply(b"null\n")

    def make_silent(one: NamedPartition) -> views.SilentUtilisationView:
        return views.SilentUtilisationView(cluster_id=one.entry.rm_id, partition=one.shown)

    return await _join(call, known, "utilisation", make_silent)


@Route(CLUSTER, "GET", "/ws/v1/livez", Access.ANYBODY, (Content(ANY_TEXT, TEXT),))
async def live(call: Call) -> Reply:
    """Whether this web service answers, for liveness probes.

    It depends on no other process, so an unreachable broker or database is no reason to restart this host.
    """
    return Reply(b"live\n", content_type=_PLAIN_TEXT)


@Route(CLUSTER, "GET", "/ws/v1/readyz", Access.ANYBODY, (Content(ANY_TEXT, TEXT),))
async def ready(call: Call) -> Reply:
    """Whether this host can serve requests, for readiness probes and load balancers.

    The status is 503 while the broker that leads does not answer this web service within 2 s.
    """
    try:
        async with asyncio.timeout(READY_MAX_S):
            await call.services.broker.partitions()
    except TimeoutError:
        raise RequestError(503, f"The broker did not answer within {READY_MAX_S:g} s") from None
    return Reply(b"ready\n", content_type=_PLAIN_TEXT)


@_route("scheduler/healthcheck", Access.KNOWN, HealthView)
async def healthcheck(call: Call) -> Reply:
    """The result of the latest health check of each partition.

    The status is 200 whether or not a check failed. Names and paths are hidden from callers who may not see everything.
    """
    known = await read_registry(call)
    answers, storage = await asyncio.gather(_ask_all(call, known, "health"), find_storage_problems(call.services))
    silent = [one.entry.full_name for one, answer in answers.items() if isinstance(answer, str)]
    problems = replace(storage, known=known, silent=silent)
    found = [(one.entry.full_name, it.answer) for one, it in answers.items() if isinstance(it, CachedAnswer)]
    return Reply(encode(health_view(found, problems, whole=call.viewer is None)), headers=_make_age_header(answers))


# Answers of all partitions --------------------------------------------------------------------------------------------


_Answers = Mapping[NamedPartition, CachedAnswer | str]
"""The answers of partitions, or why they did not answer."""


async def _join(
    call: Call, known: PartitionList, what: str, silent_entry: Callable[[NamedPartition], msgspec.Struct]
) -> Reply:
    """The entries of all partitions as a list; `silent_entry` makes the entry of a partition that does not answer.

    Raises:
        RequestError: no partition answers.
    """
    answers = await _ask_all(call, known, what)
    failed = [answer for answer in answers.values() if isinstance(answer, str)]
    if failed and len(failed) == len(answers):
        raise RequestError(503, failed[0])
    entries = [
        answer.answer.body if isinstance(answer, CachedAnswer) else encode(silent_entry(one))
        for one, answer in answers.items()
    ]
    return Reply(b"[" + b",".join(map(bytes.strip, entries)) + b"]\n", headers=_make_age_header(answers))


def _make_age_header(answers: _Answers) -> Mapping[str, str]:
    """An answer is as old as the oldest of its parts."""
    return age_header(max((one.age_s for one in answers.values() if isinstance(one, CachedAnswer)), default=0.0))


async def _ask_all(call: Call, known: PartitionList, what: str) -> _Answers:
    """Query all partitions concurrently, each with its own time limit."""

    async def ask(shown: str, entry: PartitionEntry) -> CachedAnswer | str:
        name = entry.full_name
        try:
            async with asyncio.timeout(PARTITION_MAX_S):
                found = await call.services.cache.answer(name, Query(what=what, name=shown), entry.generation)
        except TimeoutError:
            return f"Partition {name} did not answer within {PARTITION_MAX_S:g} s"
        except RequestError as error:
            return error.text
        if found.answer.status != 200:
            text = found.answer.body.decode(errors="replace").strip()
            return f"Partition {name} answered with status {found.answer.status}: {text}"
        return found

    partitions = partition_names(call, known).all()
    answers = await asyncio.gather(*(ask(shown, entry) for shown, entry in partitions))
    return dict(zip(partitions, answers, strict=True))


# Metrics --------------------------------------------------------------------------------------------------------------

METRICS_MAX_S: Final = 3.5
"""Seconds for all processes to report their metrics, together; Prometheus times out after ten seconds by default."""


@_route("metrics", Access.ADMINS, Content(ANY_TEXT, TEXT), Content(ANY_TEXT, OPENMETRICS))
async def all_metrics(call: Call) -> Reply:
    """The metrics of all processes, for Prometheus.

    In OpenMetrics if the header `Accept` names it, as Prometheus does; otherwise in Prometheus' text format. With `rm`,
    only the metrics of that resource manager. A process that does not answer in time is reported as down,
    and its other metrics are missing.
    """
    until = asyncio.get_running_loop().time() + METRICS_MAX_S
    known, broker = await asyncio.gather(_read_registry_until(until, call), _read_metrics(until, call, "", ""))
    entries = partition_names(call, known).all()
    answers = await asyncio.gather(*(_read_metrics(until, call, entry.full_name, shown) for shown, entry in entries))
    found = {entry.full_name: one for (_, entry), one in zip(entries, answers, strict=True) if one is not None}
    others = [*_make_partition_metrics(known.partitions, found), *_make_rm_metrics(known, time.time())]
    of_broker = [report_process_up(BROKER, is_up=False)] if broker is None else broker
    rm_id = call.query.get("rm", "")
    others += _select_rm(of_broker, rm_id) if rm_id else of_broker
    page = CollectorRegistry()
    for name, families in found.items():
        page.register(FamilyCollector(families, name if len(known.partitions) > 1 else ""))
    page.register(FamilyCollector(others))
    if not rm_id:  # values of this process are read here, as the page is written in a thread
        page.register(FamilyCollector(list_families(call.services.metrics.registry)))
    is_openmetrics = wants_openmetrics(call.headers.get("accept", ""))
    text = await asyncio.to_thread(write_page, page, is_openmetrics=is_openmetrics)
    return Reply(text, content_type=OPENMETRICS_TYPE if is_openmetrics else TEXT_TYPE)


async def _read_registry_until(until: float, call: Call) -> PartitionList:
    """The registered RMs and partitions; none if the broker does not answer in time.

    Raises:
        RequestError: there is no such resource manager.
    """
    try:
        async with asyncio.timeout_at(until):
            return await read_registry(call)
    except (TimeoutError, RequestError) as error:
        if isinstance(error, RequestError) and error.status != 503:
            raise
        return NONE_REGISTERED


async def _read_metrics(until: float, call: Call, partition: str, shown: str) -> list[Family] | None:
    """The metrics of a worker, or without a partition of the broker; None without an answer."""
    try:
        async with asyncio.timeout_at(until):
            answer = await call.services.cache.answer_now(partition, Query(what="metrics", name=shown))
        return decode_families(answer.body) if answer.status == 200 else None
    except (TimeoutError, RequestError, ValueError):
        return None  # reported by `_make_partition_metrics`


def _make_partition_metrics(partitions: Iterable[PartitionEntry], answered: Collection[str]) -> Iterator[Family]:
    """The metrics that a worker cannot report itself: that it does not answer, or cannot start."""
    text = (
        "Whether the worker of the partition answers; if not, its other series are missing. Investigate at 0 for more"
        " than a minute: nothing is scheduled meanwhile."
    )
    samples = [((one.full_name, one.rm_id), float(one.full_name in answered)) for one in partitions]
    yield gauge("yunishard_partition_up", text, (PARTITION, "rm"), samples)
    for one in partitions:
        if one.full_name not in answered:
            yield report_process_up(WORKER, one.full_name, is_up=False)
            if one.problem:
                yield report_journal_stuck(one.full_name, is_stuck=True)


def _make_rm_metrics(known: PartitionList, now: float) -> Iterator[Family]:
    text = (
        "Seconds since the last message of the resource manager while it is away, so that nothing is scheduled for it;"
        " 0 while it is connected. Investigate above a minute."
    )
    away = [
        ((one.rm_id,), max(0.0, round(now - one.away_since_ns / 1e9, 3)) if one.away_since_ns else 0.0)
        for one in known.managers
    ]
    yield gauge("yunishard_rm_away_seconds", text, ("rm",), away)
    text = "Nodes that were registered for a partition that does not exist (failed)."
    failed = "yunikorn_scheduler_node"
    if len(known.partitions) == 1:
        yield gauge(failed, text, ("state",), [(("failed",), sum(one.nodes_astray for one in known.managers))])
    elif known.partitions:
        samples = [((one.rm_id, "failed"), float(one.nodes_astray)) for one in known.managers]
        yield gauge(failed, text, ("rm", "state"), samples)


def _select_rm(found: Iterable[Family], rm_id: str) -> list[Family]:
    """The series of one resource manager."""
    found_rm = [(family, family.labels.index("rm")) for family in found if "rm" in family.labels]
    return [
        replace(family, samples=[sample for sample in family.samples if sample[0][place] == rm_id])
        for family, place in found_rm
    ]
