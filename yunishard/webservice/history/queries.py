"""Reads the history: selects the rows that match a filter and that the viewer may see, page by page, as JSON or CSV.

Each query runs in one of a few threads, and is aborted when it takes too long. Queries do not wait for the recorder,
nor it for them. The SQL is the same for all stores (`tables.py`).
"""

import asyncio
import base64
import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeVar, get_args

import msgspec

from yunishard.common.messages.query_messages import Actor
from yunishard.common.rest import records
from yunishard.common.rest.records import PastPageView, PastRow
from yunishard.common.rest.views import HistoryView, format_rfc3339
from yunishard.webservice.history.recorder import HistoryRecorder
from yunishard.webservice.history.store import HistoryStore
from yunishard.webservice.history.tables import NUL, REPLACEMENT, Condition, HistoryTables, Value
from yunishard.webservice.views import RequestError

SECONDS_MAX: Final = 5.0
"""Seconds that a query may take."""

MINUTES_MAX: Final = 1440
"""Entries of a chart, as many as YuniKorn has."""


# The lists ------------------------------------------------------------------------------------------------------------

ListName = Literal["applications", "allocations", "queues", "users", "groups", "gaps"]

_JSON: Final = frozenset(
    {"groups", "resource", "resourceHistory", "allocatedResource", "pendingResource", "resourceUsage"}
)
"""Keys whose columns are JSON."""

_COLUMNS: Final = {
    "partition": "full_name",
    "rmId": "rm",
    "applicationID": "application",
    "queueName": "queue",
    "user": '"user"',
    "userName": "entry.name",
    "groupName": "entry.name",
    "applicationState": "state",
    "submissionTime": "submitted",
    "allocationCount": "allocations",
    "resourceHistory": "used",
    "allocationKey": "key",
    "nodeId": "node",
    "resource": "resources",
    "terminationType": "how",
    "timestamp": "at",
    "runningApps": "running",
    "allocatedResource": "allocated",
    "pendingResource": "pending",
    "resourceUsage": "allocated",
    "since": "at",
}
"""The column of each key; any other key has the name of its column."""

_FILTERS: Final = {
    "queueName": "queue",
    "user": "user",
    "userName": "user",
    "groupName": "group",
    "applicationID": "application",
}
"""The filter that compares each key."""


class PastList(NamedTuple):
    """A list, which has the name of its table."""

    summary: str
    page: type[object]
    """A page of its rows."""
    view: type[PastRow]
    states: tuple[str, ...]
    """Possible values of the filter `state`; empty if the list has no such filter."""
    columns: Mapping[str, str]
    """By the key in the view."""
    filters: Mapping[str, str]
    """The column that each filter compares."""

    def row(self, values: Sequence[object]) -> PastRow:
        """The view of a row with these values of the columns.

        Raises:
            msgspec.MsgspecError: they are not as they were written.
        """
        shown = {
            key: msgspec.json.decode(value) if key in _JSON and isinstance(value, str) else value
            for key, value in zip(self.columns, values, strict=True)
            if value is not None
        }
        return msgspec.convert(shown, self.view)


def _list(summary: str, page: type[object], *, states: tuple[str, ...] = (), **own_columns: str) -> PastList:
    view: type[PastRow] = get_args(page)[0]
    columns = {key: {**_COLUMNS, **own_columns}.get(key, key) for key in view.__struct_encode_fields__}
    filters = {word: columns[key] for key, word in _FILTERS.items() if key in columns}
    return PastList(summary, page, view, states, columns, filters)


LISTS: Final[Mapping[ListName, PastList]] = {
    "applications": _list(
        "Applications that have ended",
        PastPageView[records.PastApplicationView],
        states=("completed", "failed", "removed", "rejected"),
        startTime="started",
        finishedTime="at",
    ),
    "allocations": _list(
        "Allocations that ended or still run",
        PastPageView[records.PastAllocationView],
        states=("running", "ended"),
        startTime="began",
        finishedTime="ended",
    ),
    "queues": _list("The usage of queues over time", PastPageView[records.PastQueueView], queueName="entry.name"),
    "users": _list("The usage of users over time", PastPageView[records.PastUserView]),
    "groups": _list("The usage of groups over time", PastPageView[records.PastGroupView]),
    "gaps": _list("Periods for which the history is incomplete", PastPageView[records.GapView]),
}


class QueueRights(msgspec.Struct, frozen=True):
    """The rights of a viewer in a partition: the queues at which each right begins, which holds for all below."""

    submit: frozenset[str]
    admin: frozenset[str]


@dataclass(frozen=True, slots=True)
class HistoryFilter:
    """Selects rows; an empty field selects all."""

    partition: str = ""
    """A full name, which means one partition; or `<name>` or `[<rm-id>]<name>`, which mean all partitions so named."""
    rm: str = ""
    queue: str = ""
    subtree: bool = False
    """Whether all queues below are included."""
    user: str = ""
    group: str = ""
    application: str = ""
    state: str = ""
    """The last state of an application, in lower case; of an allocation `running` or `ended`."""
    since_ns: int | None = None
    until_ns: int | None = None
    """Exclusive."""
    newest_first: bool = False
    """The order of the rows: a cursor belongs to one order."""
    viewer: Actor | None = None
    """A caller who may not see everything: they see their own rows, and those that their rights allow."""
    rights: Mapping[str, QueueRights] = field(default_factory=dict)
    """Of the viewer, by full name of the partition. Of any other partition they see nothing."""


def read_page(
    history: HistoryStore, name: ListName, wanted: HistoryFilter, *, limit: int, after: str
) -> PastPageView[PastRow]:
    """The rows after this cursor.

    Raises:
        RequestError: there is no such cursor or partition, the query takes too long, or the history cannot be read.
    """
    with open_history(history) as reading:
        sql, values = page_query(reading, name, wanted, after=after)
        found = reading.execute(sql, (*values, limit + 1))
        rows = [LISTS[name].row(columns) for _, _, *columns in found[:limit]]
    if len(found) <= limit:
        return PastPageView(rows=rows)
    at, number, *_ = found[limit - 1]
    return PastPageView(rows=rows, next=base64.urlsafe_b64encode(f"{at}.{number}".encode()).decode().rstrip("="))


def page_query(reading: HistoryTables, name: ListName, wanted: HistoryFilter, *, after: str) -> tuple[str, list[Value]]:
    """The SQL query, with the values of its question marks but the last, which is the number of rows.

    Raises:
        RequestError: there is no such cursor or partition.
    """
    one = LISTS[name]
    conditions: list[Condition] = [*_filter_rows(reading, one, wanted)]
    beyond, direction = ("<", "DESC") if wanted.newest_first else (">", "ASC")
    if after:
        at, number = _parse_cursor(after)
        conditions.append((f"at {beyond}= ? AND (at {beyond} ? OR entry.id {beyond} ?)", [at, at, number]))
    if wanted.viewer is not None:
        conditions += _restrict_to_viewer(reading, name, wanted.viewer, wanted.rights)
    text, values = _join_conditions([*conditions, *_filter_partitions(reading, wanted)])
    columns = ", ".join(one.columns.values())
    sql = (
        f"SELECT at, entry.id, {columns} FROM history_{name} AS entry {reading.join}"  # noqa: S608 - our own names
        f" history_partitions AS known ON known.id = entry.partition WHERE {text}"
        f" ORDER BY at {direction}, entry.id {direction} LIMIT ?"
    )
    return sql, values


def read_minutes(history: HistoryStore, wanted: HistoryFilter, what: str) -> list[tuple[int, int]]:
    """A chart: times, and the sum of an expression over `totals`, minute by minute.

    Raises:
        RequestError: there is no such partition, the query takes too long, or the history cannot be read.
    """
    with open_history(history) as reading:
        text, values = _join_conditions([*_filter_partitions(reading, wanted)])
        sql = (
            f"SELECT at, CAST(sum({what}) AS bigint) FROM history_totals AS entry"  # noqa: S608 - our names
            f" WHERE {text} GROUP BY at ORDER BY at DESC LIMIT ?"
        )
        found = reading.execute(sql, (*values, MINUTES_MAX))
    return msgspec.convert(found[::-1], list[tuple[int, int]])


# Conditions -----------------------------------------------------------------------------------------------------------


def _join_conditions(conditions: Sequence[Condition]) -> tuple[str, list[Value]]:
    text = " AND ".join(f"({one})" for one, _ in conditions) or "TRUE"
    values = [value for _, values in conditions for value in values]
    return text, [value.replace(NUL, REPLACEMENT) if isinstance(value, str) else value for value in values]


def _filter_rows(reading: HistoryTables, one: PastList, wanted: HistoryFilter) -> Iterator[Condition]:
    if wanted.since_ns is not None:
        yield "at >= ?", [wanted.since_ns]
    if wanted.until_ns is not None:
        yield "at < ?", [wanted.until_ns]
    if wanted.queue and wanted.subtree:
        column = one.filters["queue"]
        below = f"{column} = ? OR ({column} >= ? AND {column} < ?)"
        yield below, [wanted.queue, wanted.queue + ".", wanted.queue + "/"]
    elif wanted.queue:
        yield f"{one.filters['queue']} = ?", [wanted.queue]
    application = reading.clean_name(wanted.application)
    for word, value in (("user", wanted.user), ("group", wanted.group), ("application", application)):
        if value:
            yield f"{one.filters[word]} = ?", [value]
    if wanted.state in ("running", "ended"):
        yield f"ended IS {'NOT ' if wanted.state == 'ended' else ''}NULL", []
    elif wanted.state:
        yield "lower(state) = ?", [wanted.state]


def _filter_partitions(reading: HistoryTables, wanted: HistoryFilter) -> Iterator[Condition]:
    """Select partitions by name and RM, including removed ones."""
    if wanted.partition:
        name = wanted.partition
        known = reading.execute("SELECT id, full_name, name, rm FROM history_partitions")
        chosen = [str(number) for number, full, _, _ in known if name == full] or [
            str(number) for number, _, plain, rm in known if name in (plain, f"[{rm}]{plain}")
        ]
        if not chosen:
            raise RequestError(404, "Partition not found")
        yield f"entry.partition IN ({', '.join(chosen)})", []
    if wanted.rm:
        yield "entry.partition IN (SELECT id FROM history_partitions WHERE rm = ?)", [wanted.rm]


def _restrict_to_viewer(
    reading: HistoryTables, name: ListName, viewer: Actor, all_rights: Mapping[str, QueueRights]
) -> Iterator[Condition]:
    """Select the rows that the viewer may see."""
    filters = LISTS[name].filters
    known = reading.execute("SELECT full_name, id FROM history_partitions")
    ids = dict(msgspec.convert(known, list[tuple[str, int]]))
    rights = {ids[partition]: right for partition, right in all_rights.items() if partition in ids}
    yield f"entry.partition IN ({', '.join(map(str, rights))})" if rights else "FALSE", []

    def administers(queue: str, *, or_own: str, own: Sequence[Value]) -> Condition:
        text, values = reading.includes({partition: right.admin for partition, right in rights.items()}, queue)
        return f"{or_own} OR {text}", [*own, *values]

    match name:
        case "applications" | "allocations":
            yield administers(filters["queue"], or_own=f"{filters['user']} = ?", own=[viewer.user])
        case "queues":
            submit = {partition: right.submit for partition, right in rights.items()}
            yield reading.includes(submit, filters["queue"])
        case "users":
            yield administers("'root'", or_own=f"{filters['user']} = ?", own=[viewer.user])
        case "groups":
            is_own = " OR ".join(f"{filters['group']} = ?" for _ in viewer.groups) or "FALSE"
            yield administers("'root'", or_own=is_own, own=viewer.groups)
        case "gaps":
            pass  # they contain no names


def _parse_cursor(text: str) -> tuple[int, int]:
    """The time and number of a row."""
    try:
        padded = text + "=" * (-len(text) % 4)
        at, number = base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii").split(".")
        found = int(at), int(number)
        if max(map(abs, found)) < 2**63:
            return found
    except ValueError:
        pass
    raise RequestError(400, "after must be the value of next in an earlier answer")


# Reading --------------------------------------------------------------------------------------------------------------


@contextmanager
def open_history(history: HistoryStore) -> Iterator[HistoryTables]:
    """The history, for reading, and not for longer than SECONDS_MAX.

    Raises:
        RequestError: it cannot be read, or the time is over, also while it is open.
    """
    try:
        with history.open_rows(SECONDS_MAX) as reading:
            yield reading
    except TimeoutError as error:
        text = f"This takes longer than {SECONDS_MAX:g} s: ask for less time, with since and until"
        raise RequestError(503, text) from error
    except (OSError, msgspec.MsgspecError) as error:
        raise RequestError(503, f"The history cannot be read: {error}") from error


READERS_MAX: Final = 2
"""Concurrent queries."""

WAITING_MAX: Final = 32
"""Queries that wait; more are refused."""

_T = TypeVar("_T")


class HistoryReader:
    """Reads the history of a recorder."""

    def __init__(self, recorder: HistoryRecorder) -> None:
        self.recorder = recorder
        self._readers = ThreadPoolExecutor(max_workers=READERS_MAX, thread_name_prefix="history-reader")
        self._open = 0
        """Queries without an answer yet."""

    async def read(self, query: Callable[[HistoryStore], _T]) -> _T:
        """Call a function with the history, in a thread.

        Raises:
            RequestError: there is no history at present, or the function raised it.
        """
        if self.recorder.problem:
            raise RequestError(503, f"There is no history: {self.recorder.problem}")
        if self._open >= READERS_MAX + WAITING_MAX:
            raise RequestError(503, f"{self._open} queries about the history are waiting already, try again later")
        self._open += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, query, self.recorder.history)
        finally:
            self._open -= 1

    def close(self) -> None:
        """Answer no further queries."""
        self._readers.shutdown(wait=False, cancel_futures=True)
        self.recorder.history.close()


# CSV ------------------------------------------------------------------------------------------------------------------

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""The first characters of a formula in a spreadsheet."""

_TIMES: Final = frozenset({"submission_time", "start_time", "finished_time", "timestamp", "since", "until"})


def encode_csv(view: type[PastRow], rows: Iterable[PastRow]) -> bytes:
    """The rows as CSV, after a line with the keys of the view."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(view.__struct_encode_fields__)
    writer.writerows([_format_cell(name, getattr(row, name)) for name in view.__struct_fields__] for row in rows)
    return text.getvalue().encode()


def _format_cell(name: str, value: object) -> str:
    match value:
        case None:
            return ""
        case int():
            return (format_rfc3339(value) if value else "") if name in _TIMES else str(value)
        case str():
            return _escape_formula(value)
        case list():
            return _escape_formula(";".join(map(str, value)))
        case dict():
            return _escape_formula(_format_amounts(value))
        case HistoryView():
            return _escape_formula("; ".join(_format_uses(value)))
    raise TypeError(f"{name} is {value!r}")


def _escape_formula(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def _format_amounts(amounts: Mapping[str, int]) -> str:
    return " ".join(f"{kind}={amounts[kind]}" for kind in sorted(amounts))


def _format_uses(used: HistoryView) -> Iterator[str]:
    """Amounts times seconds, by purpose and instance type."""
    for key, by_type in msgspec.to_builtins(used).items():
        for instance_type in sorted(by_type):
            yield f"{key} {instance_type}: {_format_amounts(by_type[instance_type])}"
