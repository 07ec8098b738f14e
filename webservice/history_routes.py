"""The history: what YuniKorn tells of the last day, and everything that is kept, by lists that can be narrowed.

Who does not see everything gets the rows that are theirs, and those of the queues that they may see now; of a partition
that is gone nobody but a scheduler administrator sees anything. Not here: keeping it and looking it up
(`webservice/history/`).
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Iterable
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import msgspec

from common.query_messages import PartitionEntry, Query
from common.rest_records import PastPageView, PastRow
from common.rest_views import encoded
from webservice.access import Access
from webservice.calls import ApiRoute, Call, Reply, Respond
from webservice.history import queries, tables
from webservice.history.queries import Past, Right, Viewer, Wanted
from webservice.history.tables import LISTS, ListName
from webservice.parameters import moment_ns, queue_name
from webservice.partition_names import Directory
from webservice.router import Route
from webservice.views import RequestError

_HISTORY: Final = "/ws/v1/history"

LIMIT: Final = 1_000
"""Rows in an answer if nobody says how many."""

LIMIT_MAX: Final = 10_000

ENDED_STATES: Final = ("completed", "failed", "removed", "rejected")
ALLOCATION_STATES: Final = ("running", "ended")

_STATES: Final = {"applications": ENDED_STATES, "allocations": ALLOCATION_STATES}
_ALWAYS: Final = ("partition", "rm", "since", "until", "limit", "after", "format")
_FORMATS: Final = ("json", "csv")


class _Visible(msgspec.Struct):
    """What a worker says that a viewer may see: where each right begins."""

    submit: frozenset[str]
    admin: frozenset[str]


# What YuniKorn tells --------------------------------------------------------------------------------------------------


async def applications_at(call: Call) -> Reply:
    """How many applications ran, minute by minute."""
    past, wanted = _metrics_of(call), await _partitions(call)
    return Reply(encoded(await past.read(partial(queries.applications_at, wanted=wanted))))


async def containers_at(call: Call) -> Reply:
    """How many allocations there were, minute by minute."""
    past, wanted = _metrics_of(call), await _partitions(call)
    return Reply(encoded(await past.read(partial(queries.containers_at, wanted=wanted))))


def _metrics_of(call: Call) -> Past:
    if call.past is None:
        raise RequestError(500, "Internal metrics collection is not enabled.")
    return call.past


async def _partitions(call: Call) -> Wanted:
    return Wanted(partition=await _partition(call), rm=call.query.get("rm", ""))


async def _partition(call: Call) -> str:
    """The full name of the registered partition that the parameter `partition` means; if it means none, its value as it
    is, which may name partitions that are gone. Empty without the parameter.
    """
    name, rm = call.query.get("partition", ""), call.query.get("rm", "")
    if not name:
        return ""
    there = [one for one in (await call.link.partitions()).partitions if rm in ("", one.rm_id)]
    entry = Directory(there, call.startup.default_rm).find(name)
    return name if entry is None else entry.full_name


# Lists ----------------------------------------------------------------------------------------------------------------


def listed(name: ListName) -> Respond:
    """Answer with rows of this list."""

    async def respond(call: Call) -> Reply:
        if call.past is None:
            raise RequestError(503, "No history is kept: start with the setting history=true")
        is_csv = _is_csv(call)
        wanted = await _wanted(call, name)
        limit, after = _limit(call.query.get("limit", str(LIMIT))), call.query.get("after", "")

        def found(path: Path) -> tuple[str, bytes | list[bytes]]:
            page = queries.page(path, name, wanted, limit=limit, after=after)
            if is_csv:
                return page.next, list(tables.pieces(LISTS[name].view, page.rows))
            return page.next, _json(PastPageView(rows=page.rows, next=page.next))

        following, body = await call.past.read(found)
        headers = {"Vary": "Accept"}
        if following:
            headers["Link"] = f'<{_HISTORY}/{name}?{urlencode({**call.query, "after": following})}>; rel="next"'
        if isinstance(body, bytes):
            return Reply(body, headers=headers)
        headers["Content-Disposition"] = f'attachment; filename="{name}.csv"'
        return Reply(_streamed(body), content_type=f"{tables.MEDIA}; charset=utf-8; header=present", headers=headers)

    return respond


def _json(page: PastPageView[PastRow]) -> bytes:
    return encoded(page)


async def _streamed(pieces: Iterable[bytes]) -> AsyncGenerator[bytes, None]:
    for piece in pieces:
        yield piece


def _is_csv(call: Call) -> bool:
    """What the query says counts, else whether the header prefers CSV."""
    wanted = call.query.get("format", "").lower()
    if wanted and wanted not in _FORMATS:
        raise RequestError(400, f"format must be one of {', '.join(_FORMATS)}")
    offers = [offer.partition(";")[0].strip().lower() for offer in call.headers.get("accept", "").split(",")]
    return wanted == "csv" or (not wanted and tables.MEDIA in offers)


def _limit(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= LIMIT_MAX:
        raise RequestError(400, f"limit must be a number from 1 to {LIMIT_MAX}; more comes page by page, with after")
    return int(text)


async def _wanted(call: Call, name: ListName) -> Wanted:
    """Which rows the query means, and what of that the viewer may see."""
    _check_names(call, name)
    query = call.query
    now_ns = time.time_ns()
    partition = await _partition(call)
    state = query.get("state", "").lower()
    if state and state not in _STATES[name]:
        raise RequestError(400, f"state must be one of {', '.join(_STATES[name])}")
    return Wanted(
        partition=partition,
        rm=query.get("rm", ""),
        queue=queue_name(query["queue"]) if query.get("queue") else "",
        subtree="subtree" in query,
        user=query.get("user", ""),
        group=query.get("group", ""),
        application=query.get("application", ""),
        state=state,
        since_ns=_moment("since", query.get("since", ""), now_ns),
        until_ns=_moment("until", query.get("until", ""), now_ns),
        viewer=await _viewer(call, partition),
    )


def _check_names(call: Call, name: ListName) -> None:
    """A filter that is not known would show everything to whoever has mistyped it."""
    one = LISTS[name]
    possible = [*_ALWAYS, *(("queue", "subtree") if one.queue else ())]
    possible += [word for word in ("user", "group", "application", "state") if getattr(one, word)]
    for given in call.query:
        if given not in possible:
            raise RequestError(400, f"{given!r} is no parameter here, those are: {', '.join(sorted(possible))}")


def _moment(name: str, text: str, now_ns: int) -> int | None:
    if not text:
        return None
    at_ns = moment_ns(text, now_ns)
    if at_ns is None:
        forms = "2026-01-31T12:00:00Z, 1769860800 (seconds since 1970) or -24h (so long ago)"
        raise RequestError(400, f"{name} must be a time such as {forms}")
    return at_ns


# Who may see what -----------------------------------------------------------------------------------------------------


async def _viewer(call: Call, partition: str) -> Viewer | None:
    """What the viewer may see of this partition, or without one of each that is meant and is there.

    Raises:
        RequestError: one of them does not say; what is left would be taken for everything.
    """
    if call.viewer is None:
        return None
    rm = call.query.get("rm", "")
    known = (await call.link.partitions()).partitions
    there = [one for one in known if partition in ("", one.full_name) and rm in ("", one.rm_id)]
    rights = await asyncio.gather(*(_right(call, one) for one in there))
    return Viewer(call.viewer.user, tuple(call.viewer.groups), dict(rights))


async def _right(call: Call, partition: PartitionEntry) -> tuple[str, Right]:
    query = Query(what="visible", viewer=call.viewer)
    answer = (await call.shelf.answer(partition.full_name, query, partition.generation)).answer
    if answer.status != 200:
        told = answer.body.decode(errors="replace")
        raise RequestError(503, f"Partition {partition.full_name} does not say what may be seen: {told}")
    visible = msgspec.json.decode(answer.body, type=_Visible)
    return partition.full_name, Right(submit=visible.submit, admin=visible.admin)


_LISTED: Final[tuple[ApiRoute, ...]] = tuple(
    Route("GET", f"{_HISTORY}/{name}", listed(name), Access.SEEN) for name in LISTS
)

ROUTES: Final[tuple[ApiRoute, ...]] = (
    Route("GET", f"{_HISTORY}/apps", applications_at, Access.KNOWN),
    Route("GET", f"{_HISTORY}/containers", containers_at, Access.KNOWN),
    *_LISTED,
)
