"""The tables of the history.

    partitions    who was there, and up to where each has been read
    totals        a row for each partition and minute
    queues, users, groups    their usage, a row when it is another than before and one each hour
    applications  a row for each that has ended
    allocations   a row for each, from its beginning on
    gaps          what is not known
    reasons       why applications fail that have not ended yet

All but the first have `at`, the time by which a row is found and forgotten: that of a sample, of the end of an
application, of the beginning of an allocation (or its end, where the beginning is not known) or of a gap. Times are
Unix nanoseconds, resources and the like JSON.

Not here: what is done with them (`store.py`, `retention.py`, `reading.py`).
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, Literal, NamedTuple

import msgspec

from common.rest_records import (
    GapView,
    PastAllocationView,
    PastApplicationView,
    PastGroupView,
    PastQueueView,
    PastRow,
    PastUserView,
)
from common.rest_views import HistoryView, format_rfc3339

FORMAT: Final = 1
"""Of the file, in its `user_version`; another one with each change of the tables."""

_USAGE: Final = """(
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, partition INTEGER NOT NULL,
    name TEXT NOT NULL, running INTEGER NOT NULL, allocated TEXT NOT NULL, pending TEXT NOT NULL
) STRICT"""

SCHEMA: Final = f"""
CREATE TABLE partitions (
    id INTEGER PRIMARY KEY, full_name TEXT NOT NULL UNIQUE, name TEXT NOT NULL, rm TEXT NOT NULL,
    instance TEXT NOT NULL DEFAULT '', next_event INTEGER NOT NULL DEFAULT 0,
    last_event_ns INTEGER NOT NULL DEFAULT 0, ended_ns INTEGER NOT NULL DEFAULT 0,
    sampled_ns INTEGER NOT NULL DEFAULT 0, unsure INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE totals (
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, partition INTEGER NOT NULL, running INTEGER NOT NULL,
    allocated INTEGER NOT NULL, released INTEGER NOT NULL, capacity TEXT NOT NULL, used TEXT NOT NULL
) STRICT;
CREATE TABLE queues {_USAGE};
CREATE TABLE users {_USAGE};
CREATE TABLE groups {_USAGE};
CREATE TABLE applications (
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, partition INTEGER NOT NULL, application TEXT NOT NULL,
    queue TEXT NOT NULL, user TEXT NOT NULL, groups TEXT NOT NULL, state TEXT NOT NULL,
    submitted INTEGER NOT NULL, started INTEGER NOT NULL, allocations INTEGER NOT NULL,
    message TEXT NOT NULL, used TEXT NOT NULL, UNIQUE (application, partition, at)
) STRICT;
CREATE TABLE allocations (
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, partition INTEGER NOT NULL, key TEXT NOT NULL,
    application TEXT NOT NULL, queue TEXT NOT NULL, user TEXT NOT NULL, node TEXT NOT NULL,
    resources TEXT NOT NULL, began INTEGER, ended INTEGER, how TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE UNIQUE INDEX running ON allocations (partition, key) WHERE ended IS NULL;
CREATE INDEX allocations_of ON allocations (application, partition);
CREATE TABLE gaps (
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, partition INTEGER NOT NULL, what TEXT NOT NULL,
    until INTEGER NOT NULL, missed INTEGER, reason TEXT NOT NULL
) STRICT;
CREATE TABLE reasons (
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, partition INTEGER NOT NULL, application TEXT NOT NULL,
    message TEXT NOT NULL, UNIQUE (application, partition)
) STRICT;
"""

TIMED: Final = ("totals", "queues", "users", "groups", "applications", "allocations", "gaps", "reasons")
"""The tables whose rows have a time; each has an index on it."""


ListName = Literal["applications", "allocations", "queues", "users", "groups", "gaps"]

_WHOSE: Final = {"partition": "full_name", "rmId": "rm"}
_JSON: Final = frozenset(
    {"groups", "resource", "resourceHistory", "allocatedResource", "pendingResource", "resourceUsage"}
)
"""Keys of what is no number and no text."""


class PastList(NamedTuple):
    """A list, which has the name of its table."""

    view: type[PastRow]
    columns: Mapping[str, str]
    """By the key that the view shows."""
    queue: str = ""
    """The column by which it is that the filter `queue` compares; empty if the list has no such filter. The same for
    those below.
    """
    user: str = ""
    group: str = ""
    application: str = ""
    state: bool = False
    """Whether it has the filter `state`."""

    @property
    def selected(self) -> str:
        """What stands between SELECT and FROM."""
        return ", ".join(self.columns.values())

    def row(self, values: Sequence[object]) -> PastRow:
        """What is shown of a row with these values of the columns.

        Raises:
            msgspec.MsgspecError: they are not what we write.
        """
        shown = {
            key: msgspec.json.decode(value) if key in _JSON and isinstance(value, str) else value
            for key, value in zip(self.columns, values, strict=True)
            if value is not None
        }
        return msgspec.convert(shown, self.view)


LISTS: Final[Mapping[ListName, PastList]] = {
    "applications": PastList(
        PastApplicationView,
        {
            **_WHOSE,
            "applicationID": "application",
            "queueName": "queue",
            "user": "user",
            "groups": "groups",
            "applicationState": "state",
            "submissionTime": "submitted",
            "startTime": "started",
            "finishedTime": "at",
            "allocationCount": "allocations",
            "message": "message",
            "resourceHistory": "used",
        },
        queue="queue",
        user="user",
        application="application",
        state=True,
    ),
    "allocations": PastList(
        PastAllocationView,
        {
            **_WHOSE,
            "allocationKey": "key",
            "applicationID": "application",
            "queueName": "queue",
            "user": "user",
            "nodeId": "node",
            "resource": "resources",
            "startTime": "began",
            "finishedTime": "ended",
            "terminationType": "how",
        },
        queue="queue",
        user="user",
        application="application",
        state=True,
    ),
    "queues": PastList(
        PastQueueView,
        {
            **_WHOSE,
            "timestamp": "at",
            "queueName": "entry.name",
            "runningApps": "running",
            "allocatedResource": "allocated",
            "pendingResource": "pending",
        },
        queue="entry.name",
    ),
    "users": PastList(
        PastUserView,
        {
            **_WHOSE,
            "timestamp": "at",
            "userName": "entry.name",
            "runningApps": "running",
            "resourceUsage": "allocated",
        },
        user="entry.name",
    ),
    "groups": PastList(
        PastGroupView,
        {
            **_WHOSE,
            "timestamp": "at",
            "groupName": "entry.name",
            "runningApps": "running",
            "resourceUsage": "allocated",
        },
        group="entry.name",
    ),
    "gaps": PastList(
        GapView,
        {**_WHOSE, "what": "what", "since": "at", "until": "until", "missed": "missed", "reason": "reason"},
    ),
}


MEDIA: Final = "text/csv"

LINES: Final = 500
"""In one piece of what is sent."""

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What the text of a formula begins with."""

_TIMES: Final = frozenset({"submission_time", "start_time", "finished_time", "timestamp", "since", "until"})


def csv_pieces(view: type[PastRow], rows: Sequence[PastRow]) -> Iterator[bytes]:
    """The text, in pieces of several lines."""
    names = view.__struct_fields__
    yield _lines([view.__struct_encode_fields__])
    waiting = iter(rows)
    while some := list(islice(waiting, LINES)):
        yield _lines([[_cell(name, getattr(row, name)) for name in names] for row in some])


def _lines(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def _cell(name: str, value: object) -> str:
    match value:
        case None:
            return ""
        case int():
            return (format_rfc3339(value) if value else "") if name in _TIMES else str(value)
        case str():
            return _harmless(value)
        case list():
            return _harmless(";".join(map(str, value)))
        case dict():
            return _harmless(_amounts(value))
        case HistoryView():
            return _harmless("; ".join(_uses(value)))
    raise TypeError(f"{name} is {value!r}")


def _harmless(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def _amounts(amounts: Mapping[str, int]) -> str:
    return " ".join(f"{kind}={amounts[kind]}" for kind in sorted(amounts))


def _uses(used: HistoryView) -> Iterator[str]:
    """Amounts times seconds: what for, on which type of instance, how much."""
    for key, by_type in msgspec.to_builtins(used).items():
        for instance_type in sorted(by_type):
            yield f"{key} {instance_type}: {_amounts(by_type[instance_type])}"
