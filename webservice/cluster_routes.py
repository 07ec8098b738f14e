"""What is about all partitions at once: the clusters, the partitions, the health.

Partitions of several resource managers come together here and nowhere else, so here is decided what one of them that
does not answer means for the others. Not here: one partition (`partition_routes.py`), the metrics (`metric_routes.py`).
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from common.families import Family, families, gauge
from common.names import BROKER
from common.process_up import WORKER, journal_stuck, up
from common.query_messages import PartitionEntry, PartitionList, Query
from common.rest_views import CapacityView, NodeSortingView, PartitionView, SilentPartitionView, SilentUtilisationView
from webservice import health, metrics
from webservice.access import Access
from webservice.calls import ApiRoute, Call, Reply, age, directory_of, registered
from webservice.response_cache import Shelved
from webservice.router import Route
from webservice.views import ClusterView, RequestError, encoded

CLUSTER_NAME: Final = "kubernetes"

PART_MAX_S: Final = 3.0
"""How long a partition may take to give its part of a list or of health. Whoever collects them waits for ten
seconds or so, and the other partitions must not be missing because of this one.
"""


async def clusters(call: Call) -> Reply:
    """One entry for each partition, with the build information of its own RM first."""
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
                for name, entry in directory_of(call, known).all()
            ]
        )
    )


async def partitions(call: Call) -> Reply:
    """What every worker says of its partition. One that does not answer is listed as silent and with nothing in it, so
    that the others are not missing because of it.
    """
    known = await registered(call)
    parts = _answered(await _parts(call, known, "partition"))
    return _listed("partition", call, known, parts, lambda shown, entry: encoded(_silent(shown, entry)))


def _silent(shown: str, entry: PartitionEntry) -> PartitionView:
    """An entry for a partition that does not answer, with every key that the web UI reads."""
    return SilentPartitionView(
        cluster_id=entry.rm_id,
        name=shown,
        capacity=CapacityView(),
        node_sorting_policy=NodeSortingView(type="", resource_weights={}),
        preemption_enabled=False,
        quota_preemption_enabled=False,
        applications={"total": 0},
    )


async def node_utilisations(call: Call) -> Reply:
    """How full the nodes of every partition are, without those of one that does not answer; `null` while no RM is
    registered, as clients of YuniKorn expect.
    """
    known = await registered(call)
    if not known.build_information:
        return Reply(b"null\n")
    parts = _answered(await _parts(call, known, "utilisation"))
    return _listed(
        "utilisation",
        call,
        known,
        parts,
        lambda shown, entry: encoded(SilentUtilisationView(cluster_id=entry.rm_id, partition=shown)),
    )


async def healthcheck(call: Call) -> Reply:
    """What the latest look at each partition found; which allocations and sums are wrong is for those only who see
    everything.
    """
    known = await registered(call)
    parts, storage = await asyncio.gather(_parts(call, known, "health"), call.storage.problems())
    problems = health.SystemProblems(
        silent=[name for name, _ in parts.silent],
        unstartable=[(one.full_name, one.problem) for one in known.partitions if one.problem],
        away=[one.rm_id for one in known.managers if one.away_since_ns],
        failed_nodes={one.rm_id: one.nodes_astray for one in known.managers},
        record=known.record_problem,
        storage=storage,
    )
    view = health.view(parts.said, problems, whole=call.viewer is None)
    return Reply(encoded(view), headers=age(parts.age_s))


class _Parts(NamedTuple):
    """What partitions said, by their full names, and why others did not."""

    said: list[tuple[str, bytes]]
    silent: list[tuple[str, str]]
    age_s: float
    """Of the oldest answer among them."""


def _listed(
    what: str, call: Call, known: PartitionList, parts: _Parts, silent: Callable[[str, PartitionEntry], bytes]
) -> Reply:
    """What each partition said of itself, in a list; of those that said nothing what is known without them."""
    said = dict(parts.said)
    bodies = [said.get(entry.full_name) or silent(shown, entry) for shown, entry in directory_of(call, known).all()]
    body = b"[" + b",".join(body.strip() for body in bodies) + b"]\n"
    key = repr((what, call.query.get("rm", "")))  # of an RM that is registered
    return Reply(call.shelf.shared(key, body), headers=age(parts.age_s))


def _answered(parts: _Parts) -> _Parts:
    """The same.

    Raises:
        RequestError: nobody answers.
    """
    if parts.silent and not parts.said:
        raise RequestError(503, parts.silent[0][1])
    return parts


async def _parts(call: Call, known: PartitionList, what: str) -> _Parts:
    """Ask all, each for itself."""

    async def ask(shown: str, entry: PartitionEntry) -> Shelved | str:
        try:
            async with asyncio.timeout(PART_MAX_S):
                return await _asked(call, shown, entry, what)
        except TimeoutError:
            return f"Partition {entry.full_name} did not answer within {PART_MAX_S:g} s"
        except RequestError as error:
            return error.text

    entries = directory_of(call, known).all()
    answers = await asyncio.gather(*(ask(shown, entry) for shown, entry in entries))
    said: list[tuple[str, Shelved]] = []
    silent: list[tuple[str, str]] = []
    for (_, entry), answer in zip(entries, answers, strict=True):
        if isinstance(answer, Shelved):
            said.append((entry.full_name, answer))
        else:
            silent.append((entry.full_name, answer))
    oldest_s = max((found.age_s for _, found in said), default=0.0)
    return _Parts([(name, found.answer.body) for name, found in said], silent, oldest_s)


async def _asked(call: Call, shown: str, entry: PartitionEntry, what: str) -> Shelved:
    found = await call.shelf.answer(entry.full_name, Query(what=what, name=shown), entry.generation)
    if found.answer.status != 200:
        told = found.answer.body.decode(errors="replace").strip()
        raise RequestError(503, f"Partition {entry.full_name} answered with status {found.answer.status}: {told}")
    return found


PAGE_MAX_S: Final = 3.5
"""How long all may take to tell their figures, together. Whoever collects them waits for ten seconds or so."""

_NOBODY: Final = PartitionList(partitions=[], build_information={}, started_ns=0)


async def all_metrics(call: Call) -> Reply:
    """The figures of all processes that answer, and of each whether it does; or of one resource manager what it has."""
    return await page(call, within_s=PAGE_MAX_S)


async def page(call: Call, *, within_s: float) -> Reply:
    """The same, without whoever has not answered by then.

    Raises:
        RequestError: there is no such resource manager.
    """
    until = asyncio.get_running_loop().time() + within_s
    known, broker = await asyncio.gather(_known(until, call), _told(until, call, "", ""))
    entries = directory_of(call, known).all()
    answers = await asyncio.gather(*(_told(until, call, entry.full_name, shown) for shown, entry in entries))
    found = [(entry.full_name, told) for (_, entry), told in zip(entries, answers, strict=True) if told is not None]
    others = [
        *_presence([entry for _, entry in entries], {name for name, _ in found}),
        *_unstartable(known.partitions, {name for name, _ in found}),
        *_managers(known, time.time()),
    ]
    system = [*call.figures.families(), *([up(BROKER, here=False)] if broker is None else broker)]
    rm_id = call.query.get("rm", "")
    others += _of_manager(system, rm_id) if rm_id else system
    text = await asyncio.to_thread(metrics.text, found, others, several=len(known.partitions) > 1)
    return Reply(text, content_type=metrics.CONTENT_TYPE)


async def _known(until: float, call: Call) -> PartitionList:
    """Who is registered; nobody if the broker does not say so in time.

    Raises:
        RequestError: there is no such resource manager.
    """
    try:
        async with asyncio.timeout_at(until):
            return await registered(call)
    except TimeoutError:
        return _NOBODY
    except RequestError as error:
        if error.status != 503:
            raise
        return _NOBODY


async def _told(until: float, call: Call, partition: str, shown: str) -> list[Family] | None:
    """The figures of a partition's worker, or without one of the broker; None if it does not tell them."""
    try:
        async with asyncio.timeout_at(until):
            answer = await call.shelf.fresh(partition, Query(what="metrics", name=shown))
        return families(answer.body) if answer.status == 200 else None
    except (TimeoutError, RequestError, ValueError):
        return None  # which is told: see `_presence`


def _presence(partitions: Sequence[PartitionEntry], answered: set[str]) -> Iterator[Family]:
    what = (
        "Whether the worker of the partition answers; if not, its other series are missing. Worry at 0 for more than a "
        "minute: nothing is placed meanwhile."
    )
    samples = [((one.full_name, one.rm_id), float(one.full_name in answered)) for one in partitions]
    yield gauge("yunishard_partition_up", what, (metrics.PARTITION, "rm"), samples)
    for one in partitions:
        if one.full_name not in answered:
            yield up(WORKER, one.full_name, here=False)


def _unstartable(partitions: Iterable[PartitionEntry], answered: set[str]) -> Iterator[Family]:
    """What those cannot tell themselves whose worker cannot start."""
    for one in partitions:
        if one.problem and one.full_name not in answered:
            yield journal_stuck(one.full_name, stuck=True)


def _managers(known: PartitionList, now: float) -> Iterator[Family]:
    what = (
        "For how many seconds nothing has been heard of the resource manager, and so nothing is placed for it; 0 while "
        "it is there. Worry above a minute."
    )
    away = [
        ((one.rm_id,), max(0.0, round(now - one.away_since_ns / 1e9, 3)) if one.away_since_ns else 0.0)
        for one in known.managers
    ]
    yield gauge("yunishard_rm_away_seconds", what, ("rm",), away)
    what = "Nodes that were registered for a partition that does not exist (failed)."
    failed = "yunikorn_scheduler_node"
    if len(known.partitions) == 1:
        total = sum(one.nodes_astray for one in known.managers)
        yield gauge(failed, what, ("state",), [(("failed",), total)])
    elif known.partitions:
        samples = [((one.rm_id, "failed"), float(one.nodes_astray)) for one in known.managers]
        yield gauge(failed, what, ("rm", "state"), samples)


def _of_manager(found: Iterable[Family], rm_id: str) -> list[Family]:
    """What of this is about a resource manager."""
    named = [(family, family.labels.index("rm")) for family in found if "rm" in family.labels]
    return [
        replace(family, samples=[sample for sample in family.samples if sample[0][place] == rm_id])
        for family, place in named
    ]


ROUTES: Final[tuple[ApiRoute, ...]] = (
    Route("GET", "/ws/v1/clusters", clusters, Access.KNOWN),
    Route("GET", "/ws/v1/partitions", partitions, Access.KNOWN),
    Route("GET", "/ws/v1/scheduler/node-utilizations", node_utilisations, Access.KNOWN),
    Route("GET", "/ws/v1/scheduler/healthcheck", healthcheck, Access.KNOWN),
    Route("GET", "/ws/v1/metrics", all_metrics, Access.ADMINS),
)
