"""The one page of metrics for all processes.

Everything is asked for when somebody asks for the page, so what died leaves no series behind but the one that says so.
Whoever does not answer in time is missing, never the page: it comes within PAGE_MAX_S, even without a broker.

Not here: how it is written (`metrics.py`), what this process counts itself (`own_figures.py`).
"""

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from common.families import Family, families, gauge
from common.names import BROKER
from common.process_up import WORKER, journal_stuck, up
from common.query_messages import PartitionEntry, PartitionList, Query
from webservice import metrics
from webservice.access import Access
from webservice.calls import ApiRoute, Call, Reply, directory_of, registered
from webservice.errors import RequestError
from webservice.router import Route

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


ROUTES: Final[tuple[ApiRoute, ...]] = (Route("GET", "/ws/v1/metrics", all_metrics, Access.ADMINS),)
