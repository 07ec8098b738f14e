"""REST routes of the history: YuniKorn's two charts of the last day, and filtered lists of everything recorded.

A caller who may not see everything gets their own rows, and those of the queues that they may see now; the rows of a
removed partition are for scheduler administrators. Recording and queries are in `yunishard/webservice/history/`.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

import msgspec

from yunishard.common.messages.query_messages import PartitionEntry, Query
from yunishard.common.rest.records import ApplicationsAtView, ContainersAtView
from yunishard.webservice.calls import Call, PartitionNames, Reply
from yunishard.webservice.history import queries
from yunishard.webservice.history.queries import LISTS, HistoryFilter, ListName, QueueRights
from yunishard.webservice.history.store import HistoryStore
from yunishard.webservice.parameters import ANY_TEXT, Parameter, moment_ns, queue_name, whole_number
from yunishard.webservice.router import CSV, Access, Content, Route, RouteGroup
from yunishard.webservice.views import RequestError, encode

HISTORY: Final = RouteGroup("history", "Recorded history, also from before a restart.")

ROWS_DEFAULT: Final = 1_000
"""Rows of a page without the parameter `limit`."""

ROWS_MAX: Final = 10_000
_LIMIT_ERROR: Final = f"limit must be a number from 1 to {ROWS_MAX}; more comes page by page, with after"

_HISTORY: Final = "/ws/v1/history"
_FORMATS: Final = ("json", "csv")
_NEWEST: Final = "newest"
_TIME: Final = "Such as `2026-01-31T12:00:00Z`, `1769860800` (seconds since 1970) or `-24h` (a day ago)."
_PARTITION: Final = Parameter("partition", "Only of this partition, which may no longer exist.")
_RM: Final = Parameter("rm", "Only of this resource manager, which may no longer be registered.")
_COMMON: Final = (
    _PARTITION,
    _RM,
    Parameter("since", f"Nothing before this time. {_TIME}"),
    Parameter("until", f"Nothing from this time on. {_TIME}"),
    Parameter(
        "limit", f"How many rows; {ROWS_DEFAULT} if not set.", {"type": "integer", "minimum": 1, "maximum": ROWS_MAX}
    ),
    Parameter("order", "`newest` for the newest rows first.", {"type": "string", "enum": [_NEWEST, ""]}),
    Parameter("after", "Where to continue: `next` of the previous answer, with the same order."),
    Parameter("format", "Overrides `Accept`.", {"type": "string", "enum": [*_FORMATS, ""]}),
)


# YuniKorn's charts ----------------------------------------------------------------------------------------------------


def _chart_route(name: str, rows: type[object]) -> Route:
    path, statuses = f"{_HISTORY}/{name}", {500: "No history is recorded."}
    return Route(HISTORY, "GET", path, Access.KNOWN, (rows,), parameters=(_PARTITION, _RM), statuses=statuses)


@_chart_route("apps", list[ApplicationsAtView])
async def applications_at(call: Call) -> Reply:
    """The number of running applications, minute by minute."""
    found = await _read_minutes(call, "running")
    return Reply(encode([ApplicationsAtView(timestamp=at, total_applications=str(number)) for at, number in found]))


@_chart_route("containers", list[ContainersAtView])
async def containers_at(call: Call) -> Reply:
    """The number of allocations, minute by minute."""
    found = await _read_minutes(call, "allocated - released")
    return Reply(encode([ContainersAtView(timestamp=at, total_containers=str(number)) for at, number in found]))


async def _read_minutes(call: Call, what: str) -> list[tuple[int, int]]:
    history = call.services.history
    if history is None:
        raise RequestError(500, "Internal metrics collection is not enabled.")
    wanted = HistoryFilter(partition=await _find_full_name(call), rm=call.query.get("rm", ""))
    return await history.read(lambda store: queries.read_minutes(store, wanted, what))


async def _find_full_name(call: Call) -> str:
    """The full name of the registered partition that the parameter `partition` means. The value itself if no such
    partition is registered: the history may have it. Empty without the parameter.
    """
    name, rm = call.query.get("partition", ""), call.query.get("rm", "")
    if not name:
        return ""
    candidates = [one for one in (await call.services.broker.partitions()).partitions if rm in ("", one.rm_id)]
    entry = PartitionNames(candidates, call.services.settings.default_rm).find(name)
    return name if entry is None else entry.full_name


# Lists ----------------------------------------------------------------------------------------------------------------


def _list_parameters(name: ListName) -> tuple[Parameter, ...]:
    """The parameters of a list."""
    one, more = LISTS[name], list(_COMMON)
    if "queue" in one.filters:
        more.append(Parameter("queue", "Only of this queue."))
        more.append(Parameter("subtree", "With any value: also of all queues below."))
    words = [word for word in ("user", "group", "application") if word in one.filters]
    more += [Parameter(word, f"Only of this {word}.") for word in words]
    if one.states:
        more.append(Parameter("state", "Only in this state.", {"type": "string", "enum": [*one.states, ""]}))
    return tuple(more)


def _declare_list(name: ListName) -> None:
    """The route of one list."""
    path, one, parameters = f"{_HISTORY}/{name}", LISTS[name], _list_parameters(name)
    answers = (one.page, Content(ANY_TEXT, CSV))

    @Route(HISTORY, "GET", path, Access.SEEN, answers, summary=one.summary, parameters=parameters, is_private=True)
    async def read_list(call: Call) -> Reply:
        """Rows of the list.

        Oldest first unless `order` is `newest`, page by page. An unknown parameter is refused.
        """
        history = call.services.history
        if history is None:
            raise RequestError(503, "No history is recorded: start with the setting history=true")
        is_csv = _is_csv(call)
        wanted = await _make_filter(call, name)
        limit = whole_number(call.query.get("limit", str(ROWS_DEFAULT)), ROWS_MAX, _LIMIT_ERROR)

        def read(store: HistoryStore) -> tuple[str, bytes]:
            page = queries.read_page(store, name, wanted, limit=limit, after=call.query.get("after", ""))
            return page.next, queries.encode_csv(one.view, page.rows) if is_csv else encode(page)

        following, body = await history.read(read)
        headers = {"Vary": "Accept"}
        if following:
            headers["Link"] = f'<{path}?{urlencode({**call.query, "after": following})}>; rel="next"'
        if not is_csv:
            return Reply(body, headers=headers)
        headers["Content-Disposition"] = f'attachment; filename="{name}.csv"'
        return Reply(body, content_type=f"{CSV}; charset=utf-8; header=present", headers=headers)


for _name in LISTS:
    _declare_list(_name)


def _is_csv(call: Call) -> bool:
    """Whether the parameter `format` asks for CSV, or without it the header `Accept`."""
    wanted = call.query.get("format", "").lower()
    if wanted and wanted not in _FORMATS:
        raise RequestError(400, f"format must be one of {', '.join(_FORMATS)}")
    offers = [offer.partition(";")[0].strip().lower() for offer in call.headers.get("accept", "").split(",")]
    return wanted == "csv" or (not wanted and CSV in offers)


async def _make_filter(call: Call, name: ListName) -> HistoryFilter:
    """The rows that the query selects, and what of them the caller may see."""
    query, now_ns, states = call.query, time.time_ns(), LISTS[name].states
    possible = [one.name for one in _list_parameters(name)]
    for given in query:  # with a misspelt filter, the answer would have every row
        if given not in possible:
            raise RequestError(400, f"{given!r} is no parameter here, those are: {', '.join(sorted(possible))}")
    partition = await _find_full_name(call)
    state = query.get("state", "").lower()
    if state and state not in states:
        raise RequestError(400, f"state must be one of {', '.join(states)}")
    if query.get("order", "") not in (_NEWEST, ""):
        raise RequestError(400, f"order must be {_NEWEST}, or left out for the oldest rows first")
    return HistoryFilter(
        partition=partition,
        newest_first=bool(query.get("order")),
        queue=queue_name(query["queue"]) if query.get("queue") else "",
        subtree="subtree" in query,
        **{name: query.get(name, "") for name in ("rm", "user", "group", "application")},
        state=state,
        since_ns=_parse_moment("since", query.get("since", ""), now_ns),
        until_ns=_parse_moment("until", query.get("until", ""), now_ns),
        viewer=call.viewer,
        rights=await _read_rights(call, partition),
    )


def _parse_moment(name: str, text: str, now_ns: int) -> int | None:
    if not text:
        return None
    at_ns = moment_ns(text, now_ns)
    if at_ns is None:
        forms = "2026-01-31T12:00:00Z, 1769860800 (seconds since 1970) or -24h (so long ago)"
        raise RequestError(400, f"{name} must be a time such as {forms}")
    return at_ns


# Authorization --------------------------------------------------------------------------------------------------------


async def _read_rights(call: Call, partition: str) -> Mapping[str, QueueRights]:
    """The caller's rights in this partition, or without one in every registered partition that the query includes, by
    full name.

    Raises:
        RequestError: a partition does not answer; without its rights the list would silently be incomplete.
    """
    if call.viewer is None:
        return {}
    rm, query = call.query.get("rm", ""), Query(what="visible", viewer=call.viewer)

    async def read(one: PartitionEntry) -> tuple[str, QueueRights]:
        answer = (await call.services.cache.answer(one.full_name, query, one.generation)).answer
        if answer.status != 200:
            text = answer.body.decode(errors="replace")
            raise RequestError(503, f"Partition {one.full_name} does not report the rights of the caller: {text}")
        return one.full_name, msgspec.json.decode(answer.body, type=QueueRights)

    known = (await call.services.broker.partitions()).partitions
    included = [one for one in known if partition in ("", one.full_name) and rm in ("", one.rm_id)]
    return dict(await asyncio.gather(*map(read, included)))
