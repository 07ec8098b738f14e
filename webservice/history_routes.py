"""REST routes of the history: YuniKorn's two charts of the last day, and filtered lists of everything recorded.

A caller who may not see everything gets their own rows, and those of the queues that they may see now; the rows of a
partition that no longer exists are for scheduler administrators. Recording and lookup are in `webservice/history/`.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import msgspec

from common.query_messages import PartitionEntry, Query
from common.rest_records import (
    ApplicationsAtView,
    ContainersAtView,
    GapView,
    PastAllocationView,
    PastApplicationView,
    PastGroupView,
    PastPageView,
    PastQueueView,
    PastRow,
    PastUserView,
)
from common.rest_views import encode_view
from webservice.calls import Call, Reply, Respond
from webservice.history import queries, tables
from webservice.history.queries import HistoryFilter, HistoryReader, HistoryViewer, QueueRights
from webservice.history.tables import LISTS, ListName
from webservice.parameters import ANY_TEXT, LINK, Parameter, moment_ns, queue_name
from webservice.partition_names import PartitionNames
from webservice.router import CSV, Access, Content, RouteGroup
from webservice.views import RequestError

HISTORY: Final = RouteGroup("history", "Recorded history, also from before a restart.")

ROWS_DEFAULT: Final = 1_000
"""Rows of a page unless the caller says how many."""

ROWS_MAX: Final = 10_000

ENDED_STATES: Final = ("completed", "failed", "removed", "rejected")
ALLOCATION_STATES: Final = ("running", "ended")

_HISTORY: Final = "/ws/v1/history"
_STATES: Final = {"applications": ENDED_STATES, "allocations": ALLOCATION_STATES}
_FORMATS: Final = ("json", "csv")
_TIME: Final = "Such as `2026-01-31T12:00:00Z`, `1769860800` (seconds since 1970) or `-24h` (a day ago)."
_PARTITION: Final = Parameter("partition", "Only of this partition, which may no longer exist.")
_RM: Final = Parameter("rm", "Only of this resource manager, which may no longer be registered.")
_COMMON: Final = (
    _PARTITION,
    _RM,
    Parameter("since", f"Nothing before this time. {_TIME}"),
    Parameter("until", f"Nothing from this time on. {_TIME}"),
    Parameter(
        "limit",
        f"How many rows; {ROWS_DEFAULT} if not set.",
        {"type": "integer", "minimum": 1, "maximum": ROWS_MAX},
    ),
    Parameter("after", "Where to continue: `next` of the previous answer."),
    Parameter("format", "Overrides `Accept`.", {"type": "string", "enum": [*_FORMATS, ""]}),
)
_PAGES: Final[dict[ListName, tuple[str, type[object]]]] = {
    "applications": ("Applications that have ended", PastPageView[PastApplicationView]),
    "allocations": ("Allocations that ended or still run", PastPageView[PastAllocationView]),
    "queues": ("The usage of queues over time", PastPageView[PastQueueView]),
    "users": ("The usage of users over time", PastPageView[PastUserView]),
    "groups": ("The usage of groups over time", PastPageView[PastGroupView]),
    "gaps": ("Periods for which the history is incomplete", PastPageView[GapView]),
}


class _Visible(msgspec.Struct):
    """A worker's answer about what a caller may see: the queues at which each right begins."""

    submit: frozenset[str]
    admin: frozenset[str]


# YuniKorn's charts ----------------------------------------------------------------------------------------------------

_NOT_KEPT: Final = {500: "No history is kept."}


@HISTORY.route(
    "GET",
    f"{_HISTORY}/apps",
    Access.KNOWN,
    list[ApplicationsAtView],
    parameters=(_PARTITION, _RM),
    statuses=_NOT_KEPT,
)
async def applications_at(call: Call) -> Reply:
    """The number of running applications, minute by minute."""
    history, wanted = _require_history(call), await _partitions(call)
    return Reply(encode_view(await history.read(partial(queries.applications_at, wanted=wanted))))


@HISTORY.route(
    "GET",
    f"{_HISTORY}/containers",
    Access.KNOWN,
    list[ContainersAtView],
    parameters=(_PARTITION, _RM),
    statuses=_NOT_KEPT,
)
async def containers_at(call: Call) -> Reply:
    """The number of allocations, minute by minute."""
    history, wanted = _require_history(call), await _partitions(call)
    return Reply(encode_view(await history.read(partial(queries.containers_at, wanted=wanted))))


def _require_history(call: Call) -> HistoryReader:
    if call.history is None:
        raise RequestError(500, "Internal metrics collection is not enabled.")
    return call.history


async def _partitions(call: Call) -> HistoryFilter:
    return HistoryFilter(partition=await _full_name(call), rm=call.query.get("rm", ""))


async def _full_name(call: Call) -> str:
    """The full name of the registered partition that the parameter `partition` means. The value itself if no such
    partition is registered: the history may know it. Empty without the parameter.
    """
    name, rm = call.query.get("partition", ""), call.query.get("rm", "")
    if not name:
        return ""
    candidates = [one for one in (await call.broker.partitions()).partitions if rm in ("", one.rm_id)]
    entry = PartitionNames(candidates, call.startup.default_rm).find(name)
    return name if entry is None else entry.full_name


# Lists ----------------------------------------------------------------------------------------------------------------


def _filters(name: ListName) -> Iterator[Parameter]:
    """The parameters that filter a list."""
    one = LISTS[name]
    if one.queue:
        yield Parameter("queue", "Only of this queue.")
        yield Parameter("subtree", "With any value: also of all queues below.")
    for word in ("user", "group", "application"):
        if getattr(one, word):
            yield Parameter(word, f"Only of this {word}.")
    if one.state:
        yield Parameter("state", "Only in this state.", {"type": "string", "enum": [*_STATES[name], ""]})


def _declare_list(name: ListName) -> Respond:
    """The route of one list."""
    summary, rows = _PAGES[name]

    @HISTORY.route(
        "GET",
        f"{_HISTORY}/{name}",
        Access.SEEN,
        rows,
        Content(ANY_TEXT, CSV),
        summary=summary,
        parameters=(*_COMMON, *_filters(name)),
        headers={"Link": LINK},
        is_private=True,
    )
    async def read_list(call: Call) -> Reply:
        """Rows of the list.

        Oldest first, page by page. An unknown parameter is refused.
        """
        if call.history is None:
            raise RequestError(503, "No history is kept: start with the setting history=true")
        is_csv = _is_csv(call)
        wanted = await _filter(call, name)
        limit, after = _limit(call.query.get("limit", str(ROWS_DEFAULT))), call.query.get("after", "")

        def found(path: Path) -> tuple[str, bytes | list[bytes]]:
            page = queries.page(path, name, wanted, limit=limit, after=after)
            if is_csv:
                return page.next, list(tables.csv_pieces(LISTS[name].view, page.rows))
            return page.next, _json(PastPageView(rows=page.rows, next=page.next))

        following, body = await call.history.read(found)
        headers = {"Vary": "Accept"}
        if following:
            headers["Link"] = f'<{_HISTORY}/{name}?{urlencode({**call.query, "after": following})}>; rel="next"'
        if isinstance(body, bytes):
            return Reply(body, headers=headers)
        headers["Content-Disposition"] = f'attachment; filename="{name}.csv"'
        return Reply(_streamed(body), content_type=f"{CSV}; charset=utf-8; header=present", headers=headers)

    return read_list


for _name in LISTS:
    _declare_list(_name)


def _json(page: PastPageView[PastRow]) -> bytes:
    return encode_view(page)


async def _streamed(pieces: Iterable[bytes]) -> AsyncGenerator[bytes, None]:
    for piece in pieces:
        yield piece


def _is_csv(call: Call) -> bool:
    """Whether the parameter `format` asks for CSV, or without it the header `Accept`."""
    wanted = call.query.get("format", "").lower()
    if wanted and wanted not in _FORMATS:
        raise RequestError(400, f"format must be one of {', '.join(_FORMATS)}")
    offers = [offer.partition(";")[0].strip().lower() for offer in call.headers.get("accept", "").split(",")]
    return wanted == "csv" or (not wanted and CSV in offers)


def _limit(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= ROWS_MAX:
        raise RequestError(400, f"limit must be a number from 1 to {ROWS_MAX}; more comes page by page, with after")
    return int(text)


async def _filter(call: Call, name: ListName) -> HistoryFilter:
    """The rows that the query selects, and what of them the caller may see."""
    _check_names(call, name)
    query = call.query
    now_ns = time.time_ns()
    partition = await _full_name(call)
    state = query.get("state", "").lower()
    if state and state not in _STATES[name]:
        raise RequestError(400, f"state must be one of {', '.join(_STATES[name])}")
    return HistoryFilter(
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
    """Refuse unknown parameters: with a misspelt filter, the answer would have every row."""
    possible = [one.name for one in (*_COMMON, *_filters(name))]
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


# Authorization --------------------------------------------------------------------------------------------------------


async def _viewer(call: Call, partition: str) -> HistoryViewer | None:
    """The caller's rights in this partition, or without one in every registered partition that the query includes.

    Raises:
        RequestError: a partition does not answer; without its rights the list would silently be incomplete.
    """
    if call.viewer is None:
        return None
    rm = call.query.get("rm", "")
    known = (await call.broker.partitions()).partitions
    included = [one for one in known if partition in ("", one.full_name) and rm in ("", one.rm_id)]
    rights = await asyncio.gather(*(_rights(call, one) for one in included))
    return HistoryViewer(call.viewer.user, tuple(call.viewer.groups), dict(rights))


async def _rights(call: Call, partition: PartitionEntry) -> tuple[str, QueueRights]:
    query = Query(what="visible", viewer=call.viewer)
    answer = (await call.cache.answer(partition.full_name, query, partition.generation)).answer
    if answer.status != 200:
        text = answer.body.decode(errors="replace")
        raise RequestError(503, f"Partition {partition.full_name} does not say what may be seen: {text}")
    visible = msgspec.json.decode(answer.body, type=_Visible)
    return partition.full_name, QueueRights(submit=visible.submit, admin=visible.admin)
