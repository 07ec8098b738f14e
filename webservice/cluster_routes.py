"""REST routes about all partitions at once: clusters, partitions, node utilization, health check, metrics.

The answers of several partitions are joined only here, so this module decides how an unresponsive partition affects the
others: it is missing or marked, and never fails the whole answer.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from common.metrics import Family, decode_families, gauge
from common.names import BROKER
from common.process_up import WORKER, journal_stuck, up
from common.query_messages import PartitionEntry, PartitionList, Query
from common.rest_views import (
    CapacityView,
    NodeSortingView,
    PartitionView,
    SilentPartitionView,
    SilentUtilisationView,
    UtilisationView,
)
from webservice import metrics
from webservice.calls import Call, Reply, age_header, names_of, registered
from webservice.health import HealthView, SystemProblems, health_view
from webservice.parameters import ANY_TEXT, RM
from webservice.response_cache import CachedAnswer
from webservice.router import TEXT, Access, Content, RouteGroup
from webservice.views import ClusterView, RequestError, encoded

CLUSTER: Final = RouteGroup("cluster", "All partitions of all resource managers.")

CLUSTER_NAME: Final = "kubernetes"

PARTITION_MAX_S: Final = 3.0
"""Seconds for one partition to answer its part of a list or of the health check. Monitoring systems time out after
about ten seconds, and the other partitions must arrive by then.
"""


@CLUSTER.route("GET", "/ws/v1/clusters", Access.KNOWN, list[ClusterView], parameters=(RM,))
async def clusters(call: Call) -> Reply:
    """Every partition with the build information of the resource managers, its own RM first."""
    known = await registered(call)
    builds = [{**build, "rmId": rm_id} for rm_id, build in known.build_information.items()]
    away = {one.rm_id: one.away_since_ns for one in known.managers}
    return Reply(
        encoded(
            [
                ClusterView(
                    start_time=known.started_ns,
                    rm_build_information=sorted(builds, key=lambda build: build["rmId"] != entry.rm_id),
                    partition=name,
                    cluster_name=CLUSTER_NAME,
                    rm_id=entry.rm_id,
                    away_since=away.get(entry.rm_id, 0),
                )
                for name, entry in names_of(call, known).all()
            ]
        )
    )


@CLUSTER.route("GET", "/ws/v1/partitions", Access.KNOWN, list[PartitionView], parameters=(RM,))
async def partitions(call: Call) -> Reply:
    """Every partition with its totals.

    A partition that does not answer has the `state` `Silent`, and everything else in it is empty or 0.
    """
    known = await registered(call)
    parts = _require_answer(await _ask_all(call, known, "partition"))
    return _joined("partition", call, known, parts, lambda shown, entry: encoded(_silent_partition(shown, entry)))


def _silent_partition(shown: str, entry: PartitionEntry) -> PartitionView:
    """The entry of a partition that does not answer, with every key that the web UI reads."""
    return SilentPartitionView(
        cluster_id=entry.rm_id,
        name=shown,
        capacity=CapacityView(),
        node_sorting_policy=NodeSortingView(type="", resource_weights={}),
        preemption_enabled=False,
        quota_preemption_enabled=False,
        applications={"total": 0},
    )


@CLUSTER.route(
    "GET", "/ws/v1/scheduler/node-utilizations", Access.KNOWN, Content(list[UtilisationView] | None), parameters=(RM,)
)
async def node_utilisations(call: Call) -> Reply:
    """The utilization of nodes, by partition.

    By resource type, in ten buckets. `null` while no RM is registered, as clients of YuniKorn expect.
    """
    known = await registered(call)
    if not known.build_information:
        return Reply(b"null\n")
    parts = _require_answer(await _ask_all(call, known, "utilisation"))
    return _joined(
        "utilisation",
        call,
        known,
        parts,
        lambda shown, entry: encoded(SilentUtilisationView(cluster_id=entry.rm_id, partition=shown)),
    )


@CLUSTER.route("GET", "/ws/v1/scheduler/healthcheck", Access.KNOWN, HealthView, parameters=(RM,))
async def healthcheck(call: Call) -> Reply:
    """The result of the latest health check of each partition.

    The status is 200 whether or not a check failed. Names and paths are hidden from callers who may not see everything.
    """
    known = await registered(call)
    parts, storage = await asyncio.gather(_ask_all(call, known, "health"), call.storage.problems())
    problems = SystemProblems(
        silent=[name for name, _ in parts.failed],
        unstartable=[(one.full_name, one.problem) for one in known.partitions if one.problem],
        away=[one.rm_id for one in known.managers if one.away_since_ns],
        failed_nodes={one.rm_id: one.nodes_astray for one in known.managers},
        record=known.record_problem,
        storage=storage,
    )
    view = health_view(parts.bodies, problems, whole=call.viewer is None)
    return Reply(encoded(view), headers=age_header(parts.age_s))


# Answers of all partitions --------------------------------------------------------------------------------------------


class _Answers(NamedTuple):
    """The answers of partitions by full name, and the errors of those that did not answer."""

    bodies: list[tuple[str, bytes]]
    failed: list[tuple[str, str]]
    age_s: float
    """Age of the oldest answer."""


def _joined(
    what: str, call: Call, known: PartitionList, parts: _Answers, silent: Callable[[str, PartitionEntry], bytes]
) -> Reply:
    """The entries of all partitions as a list; `silent` makes the entry of a partition that did not answer."""
    answered = dict(parts.bodies)
    bodies = [answered.get(entry.full_name) or silent(shown, entry) for shown, entry in names_of(call, known).all()]
    body = b"[" + b",".join(body.strip() for body in bodies) + b"]\n"
    key = repr((what, call.query.get("rm", "")))  # a registered RM, so keys are bounded
    return Reply(call.cache.joined(key, body), headers=age_header(parts.age_s))


def _require_answer(parts: _Answers) -> _Answers:
    """The same answers.

    Raises:
        RequestError: no partition answers.
    """
    if parts.failed and not parts.bodies:
        raise RequestError(503, parts.failed[0][1])
    return parts


async def _ask_all(call: Call, known: PartitionList, what: str) -> _Answers:
    """Query all partitions concurrently, each with its own time limit."""

    async def ask(shown: str, entry: PartitionEntry) -> CachedAnswer | str:
        try:
            async with asyncio.timeout(PARTITION_MAX_S):
                return await _ask(call, shown, entry, what)
        except TimeoutError:
            return f"Partition {entry.full_name} did not answer within {PARTITION_MAX_S:g} s"
        except RequestError as error:
            return error.text

    entries = names_of(call, known).all()
    answers = await asyncio.gather(*(ask(shown, entry) for shown, entry in entries))
    found: list[tuple[str, CachedAnswer]] = []
    failed: list[tuple[str, str]] = []
    for (_, entry), answer in zip(entries, answers, strict=True):
        if isinstance(answer, CachedAnswer):
            found.append((entry.full_name, answer))
        else:
            failed.append((entry.full_name, answer))
    oldest_s = max((one.age_s for _, one in found), default=0.0)
    return _Answers([(name, one.answer.body) for name, one in found], failed, oldest_s)


async def _ask(call: Call, shown: str, entry: PartitionEntry, what: str) -> CachedAnswer:
    found = await call.cache.answer(entry.full_name, Query(what=what, name=shown), entry.generation)
    if found.answer.status != 200:
        text = found.answer.body.decode(errors="replace").strip()
        raise RequestError(503, f"Partition {entry.full_name} answered with status {found.answer.status}: {text}")
    return found


# Metrics --------------------------------------------------------------------------------------------------------------

METRICS_MAX_S: Final = 3.5
"""Seconds for all processes to report their metrics, together; Prometheus times out after ten seconds by default."""

_NONE_KNOWN: Final = PartitionList(partitions=[], build_information={}, started_ns=0)


@CLUSTER.route("GET", "/ws/v1/metrics", Access.ADMINS, Content(ANY_TEXT, TEXT), parameters=(RM,))
async def all_metrics(call: Call) -> Reply:
    """The metrics of all processes, for Prometheus.

    With `rm`, only the metrics of that resource manager. A process that does not answer in time is reported as down,
    and its other metrics are missing.
    """
    return await metrics_page(call, within_s=METRICS_MAX_S)


async def metrics_page(call: Call, *, within_s: float) -> Reply:
    """The metrics of the processes that answer within this time, even without a broker.

    Raises:
        RequestError: there is no such resource manager.
    """
    until = asyncio.get_running_loop().time() + within_s
    known, broker = await asyncio.gather(_known_until(until, call), _metrics_of(until, call, "", ""))
    entries = names_of(call, known).all()
    answers = await asyncio.gather(*(_metrics_of(until, call, entry.full_name, shown) for shown, entry in entries))
    found = [(entry.full_name, one) for (_, entry), one in zip(entries, answers, strict=True) if one is not None]
    answered = {name for name, _ in found}
    others = [
        *_up_metrics([entry for _, entry in entries], answered),
        *_unstartable_metrics(known.partitions, answered),
        *_rm_metrics(known, time.time()),
    ]
    system = [*call.metrics.families(), *([up(BROKER, here=False)] if broker is None else broker)]
    rm_id = call.query.get("rm", "")
    others += _only_of_rm(system, rm_id) if rm_id else system
    text = await asyncio.to_thread(metrics.render, found, others, several=len(known.partitions) > 1)
    return Reply(text, content_type=metrics.CONTENT_TYPE)


async def _known_until(until: float, call: Call) -> PartitionList:
    """The registered RMs and partitions; none if the broker does not answer in time.

    Raises:
        RequestError: there is no such resource manager.
    """
    try:
        async with asyncio.timeout_at(until):
            return await registered(call)
    except TimeoutError:
        return _NONE_KNOWN
    except RequestError as error:
        if error.status != 503:
            raise
        return _NONE_KNOWN


async def _metrics_of(until: float, call: Call, partition: str, shown: str) -> list[Family] | None:
    """The metrics of a worker, or without a partition of the broker; None without an answer."""
    try:
        async with asyncio.timeout_at(until):
            answer = await call.cache.uncached(partition, Query(what="metrics", name=shown))
        return decode_families(answer.body) if answer.status == 200 else None
    except (TimeoutError, RequestError, ValueError):
        return None  # reported by `_up_metrics`


def _up_metrics(partitions: Sequence[PartitionEntry], answered: set[str]) -> Iterator[Family]:
    text = (
        "Whether the worker of the partition answers; if not, its other series are missing. Investigate at 0 for more"
        " than a minute: nothing is scheduled meanwhile."
    )
    samples = [((one.full_name, one.rm_id), float(one.full_name in answered)) for one in partitions]
    yield gauge("yunishard_partition_up", text, (metrics.PARTITION, "rm"), samples)
    for one in partitions:
        if one.full_name not in answered:
            yield up(WORKER, one.full_name, here=False)


def _unstartable_metrics(partitions: Iterable[PartitionEntry], answered: set[str]) -> Iterator[Family]:
    """The metric that a worker cannot report itself: that it cannot start."""
    for one in partitions:
        if one.problem and one.full_name not in answered:
            yield journal_stuck(one.full_name, stuck=True)


def _rm_metrics(known: PartitionList, now: float) -> Iterator[Family]:
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
        total = sum(one.nodes_astray for one in known.managers)
        yield gauge(failed, text, ("state",), [(("failed",), total)])
    elif known.partitions:
        samples = [((one.rm_id, "failed"), float(one.nodes_astray)) for one in known.managers]
        yield gauge(failed, text, ("rm", "state"), samples)


def _only_of_rm(found: Iterable[Family], rm_id: str) -> list[Family]:
    """The series of one resource manager."""
    labelled = [(family, family.labels.index("rm")) for family in found if "rm" in family.labels]
    return [
        replace(family, samples=[sample for sample in family.samples if sample[0][place] == rm_id])
        for family, place in labelled
    ]
