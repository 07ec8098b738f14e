"""What is about all partitions at once: the clusters, the partitions, the metrics, the health.

Partitions of several resource managers come together here and nowhere else, so here is decided what one of them that
does not answer means for the others. Not here: one partition (`partition_routes.py`).
"""

import asyncio
import time
from typing import Final, NamedTuple

from common.messages import PartitionEntry, PartitionList, Query
from webservice import health, metrics
from webservice.access import Access
from webservice.calls import ApiRoute, Call, Reply
from webservice.errors import RequestError
from webservice.metrics import Family
from webservice.resolve import Directory
from webservice.router import Route
from webservice.views import ClusterView, SilentView, encoded

CLUSTER_NAME: Final = "kubernetes"

PART_MAX_S: Final = 3.0
"""How long a partition may take to give its part of a list, of metrics or health. Whoever collects them waits for ten
seconds or so, and the other partitions must not be missing because of this one.
"""


async def clusters(call: Call) -> Reply:
    """One entry for each partition."""
    known = await call.link.partitions()
    builds = [{**build, "rmId": rm_id} for rm_id, build in sorted(known.build_information.items())]
    away = {one.rm_id: one.away_since_ns for one in known.managers}
    return Reply(
        encoded(
            [
                ClusterView(
                    start_time=known.started_ns,
                    rm_build_information=builds,
                    partition=name,
                    cluster_name=CLUSTER_NAME,
                    rm_id=entry.rm_id,
                    away_since=away.get(entry.rm_id, 0),
                )
                for name, entry in Directory(known.partitions).all()
            ]
        )
    )


async def partitions(call: Call) -> Reply:
    """What every worker says of its partition; of one that says nothing only whose it is, for others are not to miss
    theirs because of it.
    """
    known = await call.link.partitions()
    said = dict((await _parts(call, known, "partition")).said)
    bodies = [
        said.get(entry.full_name, encoded(SilentView(cluster_id=entry.rm_id, name=shown))).strip()
        for shown, entry in Directory(known.partitions).all()
    ]
    return Reply(b"[" + b",".join(bodies) + b"]\n")


async def all_metrics(call: Call) -> Reply:
    """The metrics of all partitions that answer, and of each whether it does."""
    known = await call.link.partitions()
    parts = await _parts(call, known, "metrics")
    found = []
    for partition, body in parts.said:
        try:
            found.append((partition, metrics.families(body)))
        except ValueError as error:
            raise RequestError(503, f"Partition {partition} answered what cannot be read: {error}") from None
    others = [_presence(parts), _absence(known, time.time())] if known.partitions else []
    text = metrics.text(found, others, several=len(known.partitions) > 1)
    return Reply(text, content_type=metrics.CONTENT_TYPE)


async def healthcheck(call: Call) -> Reply:
    """What the latest look at each partition found."""
    known = await call.link.partitions()
    parts = await _parts(call, known, "health")
    away = [one.rm_id for one in known.managers if one.away_since_ns]
    return Reply(encoded(health.view(parts.said, silent=[name for name, _ in parts.silent], away=away)))


class _Parts(NamedTuple):
    """What partitions said, by their full names, and why others did not."""

    said: list[tuple[str, bytes]]
    silent: list[tuple[str, str]]


async def _parts(call: Call, known: PartitionList, what: str) -> _Parts:
    """Ask all, each for itself.

    Raises:
        RequestError: nobody answers.
    """

    async def ask(shown: str, entry: PartitionEntry) -> bytes | str:
        try:
            async with asyncio.timeout(PART_MAX_S):
                return await _asked(call, shown, entry, what)
        except TimeoutError:
            return f"Partition {entry.full_name} did not answer within {PART_MAX_S:g} s"
        except RequestError as error:
            return error.text

    entries = Directory(known.partitions).all()
    answers = await asyncio.gather(*(ask(shown, entry) for shown, entry in entries))
    parts = _Parts([], [])
    for (_, entry), answer in zip(entries, answers, strict=True):
        if isinstance(answer, bytes):
            parts.said.append((entry.full_name, answer))
        else:
            parts.silent.append((entry.full_name, answer))
    if parts.silent and not parts.said:
        raise RequestError(503, parts.silent[0][1])
    return parts


async def _asked(call: Call, shown: str, entry: PartitionEntry, what: str) -> bytes:
    answer = await call.link.ask(entry.full_name, Query(what=what, name=shown))
    if answer.status != 200:
        told = answer.body.decode(errors="replace").strip()
        raise RequestError(503, f"Partition {entry.full_name} answered with status {answer.status}: {told}")
    return answer.body


def _presence(parts: _Parts) -> Family:
    samples = [([name], 1.0) for name, _ in parts.said] + [([name], 0.0) for name, _ in parts.silent]
    what = "Whether the partition answers; if not, its other series are missing."
    return Family("yunishard_partition_up", "gauge", what, [metrics.PARTITION], samples)


def _absence(known: PartitionList, now: float) -> Family:
    samples = [
        ([one.rm_id], max(0.0, round(now - one.away_since_ns / 1e9, 3)) if one.away_since_ns else 0.0)
        for one in known.managers
    ]
    what = "For how long nothing has been heard of the resource manager, and so nothing is placed; 0 while it is there."
    return Family("yunishard_rm_away_seconds", "gauge", what, ["rm"], samples)


ROUTES: Final[tuple[ApiRoute, ...]] = (
    Route("GET", "/ws/v1/clusters", clusters, Access.KNOWN),
    Route("GET", "/ws/v1/partitions", partitions, Access.KNOWN),
    Route("GET", "/ws/v1/metrics", all_metrics, Access.ADMINS),
    Route("GET", "/ws/v1/scheduler/healthcheck", healthcheck, Access.KNOWN),
)
