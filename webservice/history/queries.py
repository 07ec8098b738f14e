"""Reads the history: selects the rows that match a filter and that the viewer may see, page by page.

Each query opens the file read-only, in one of a few threads, and is aborted when it takes too long. Queries do not wait
for the recorder, nor it for them.
"""

import asyncio
import base64
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from common.rest_records import ApplicationsAtView, ContainersAtView, PastRow
from webservice.history.tables import FORMAT, LISTS, ListName, PastList
from webservice.views import RequestError

SECONDS_MAX: Final = 5.0
"""How long a question may take; who asks for more is told to ask for less time."""

STEPS: Final = 10_000
"""Instructions of SQLite between two looks at the clock."""

MINUTES_MAX: Final = 1440
"""Entries of what ran each minute, as many as YuniKorn has."""


class TooMuch(Exception):
    """A question that takes too long."""


class Unreadable(Exception):
    """A file that cannot be read; the text says why."""


class NoSuchPartition(LookupError):
    """A partition of which the history knows nothing."""


class BadCursor(ValueError):
    """No cursor of ours."""


@dataclass(frozen=True, slots=True)
class QueueRights:
    """What a viewer may see of a partition: the queues where a right begins that holds for all below."""

    submit: frozenset[str]
    admin: frozenset[str]


@dataclass(frozen=True, slots=True)
class HistoryViewer:
    """Who asks and does not see everything: what is theirs, and what their rights are, by full name of the partition.
    Of a partition that is not mentioned they see nothing.
    """

    user: str
    groups: tuple[str, ...]
    rights: Mapping[str, QueueRights]


@dataclass(frozen=True, slots=True)
class HistoryFilter:
    """Which rows; what is empty or None does not narrow them."""

    partition: str = ""
    """A full name, which means one partition; or `<name>` or `[<rm-id>]<name>`, which mean all that are called so."""
    rm: str = ""
    queue: str = ""
    subtree: bool = False
    """Whether all below the queue are meant too."""
    user: str = ""
    group: str = ""
    application: str = ""
    state: str = ""
    """Of applications the one in which they ended, in lower case; of allocations `running` or `ended`."""
    since_ns: int | None = None
    until_ns: int | None = None
    """Up to here, without."""
    viewer: HistoryViewer | None = None
    """None for one who sees everything."""


class Page(NamedTuple):
    """Rows, and where the list goes on; an empty text at its end."""

    rows: list[PastRow]
    next: str


def page(
    path: Path, name: ListName, wanted: HistoryFilter, *, limit: int, after: str, seconds_max: float = SECONDS_MAX
) -> Page:
    """So many rows after this cursor, the oldest first.

    Raises:
        BadCursor, NoSuchPartition, TooMuch, Unreadable: what is wrong.
    """
    with opened(path, seconds_max) as file:
        sql, values = question(file, name, wanted, after=after)
        found = file.execute(sql, (*values, limit + 1)).fetchall()
        rows = [LISTS[name].row(columns) for _, _, *columns in found[:limit]]
    return Page(rows, _written(found[limit - 1][0], found[limit - 1][1]) if len(found) > limit else "")


def question(
    file: sqlite3.Connection, name: ListName, wanted: HistoryFilter, *, after: str
) -> tuple[str, list[str | int]]:
    """In SQL, with the values of its question marks but the last, which is how many rows.

    Raises:
        BadCursor, NoSuchPartition: what is wrong.
    """
    one = LISTS[name]
    conditions = _Conditions()
    _narrow(conditions, one, wanted)
    if after:
        at, number = _cursor(after)
        conditions.add("at >= ? AND (at > ? OR entry.id > ?)", at, at, number)
    _restrict(file, conditions, name, one, wanted.viewer)
    _choose_partitions(file, conditions, wanted)
    sql = (
        f"SELECT at, entry.id, {one.selected} FROM {name} AS entry"  # noqa: S608 - names of ours
        f" CROSS JOIN partitions ON partitions.id = entry.partition WHERE {conditions.sql}"
        " ORDER BY at, entry.id LIMIT ?"
    )
    return sql, conditions.values


def applications_at(path: Path, wanted: HistoryFilter) -> list[ApplicationsAtView]:
    """How many applications ran, minute by minute.

    Raises:
        NoSuchPartition, TooMuch, Unreadable: what is wrong.
    """
    return [ApplicationsAtView(timestamp=at, total_applications=str(n)) for at, n in _sums(path, wanted, "running")]


def containers_at(path: Path, wanted: HistoryFilter) -> list[ContainersAtView]:
    """How many allocations there were, minute by minute.

    Raises:
        NoSuchPartition, TooMuch, Unreadable: what is wrong.
    """
    found = _sums(path, wanted, "allocated - released")
    return [ContainersAtView(timestamp=at, total_containers=str(n)) for at, n in found]


def _sums(path: Path, wanted: HistoryFilter, what: str) -> list[tuple[int, int]]:
    conditions = _Conditions()
    with opened(path) as file:
        _choose_partitions(file, conditions, wanted)
        sql = f"SELECT at, sum({what}) FROM totals AS entry WHERE {conditions.sql} GROUP BY at ORDER BY at DESC LIMIT ?"  # noqa: S608
        found: list[tuple[int, int]] = file.execute(sql, (*conditions.values, MINUTES_MAX)).fetchall()
    return found[::-1]


# Which rows -----------------------------------------------------------------------------------------------------------


class _Conditions:
    """What has to be true of a row, and the values that stand for its question marks."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self.values: list[str | int] = []

    def add(self, text: str, *values: str | int) -> None:
        self._texts.append(f"({text})")
        self.values += values

    @property
    def sql(self) -> str:
        return " AND ".join(self._texts) or "TRUE"


def _narrow(conditions: _Conditions, one: PastList, wanted: HistoryFilter) -> None:
    if wanted.since_ns is not None:
        conditions.add("at >= ?", wanted.since_ns)
    if wanted.until_ns is not None:
        conditions.add("at < ?", wanted.until_ns)
    if wanted.queue and wanted.subtree:
        below = f"{one.queue} >= ? AND {one.queue} < ?"
        conditions.add(f"{one.queue} = ? OR ({below})", wanted.queue, wanted.queue + ".", wanted.queue + "/")
    elif wanted.queue:
        conditions.add(f"{one.queue} = ?", wanted.queue)
    for column, value in ((one.user, wanted.user), (one.group, wanted.group), (one.application, wanted.application)):
        if value:
            conditions.add(f"{column} = ?", value)
    if wanted.state in ("running", "ended"):
        conditions.add(f"ended IS {'NOT ' if wanted.state == 'ended' else ''}NULL")
    elif wanted.state:
        conditions.add("lower(state) = ?", wanted.state)


def _choose_partitions(file: sqlite3.Connection, conditions: _Conditions, wanted: HistoryFilter) -> None:
    """By name and RM; those that are gone too."""
    if wanted.partition:
        name = wanted.partition
        known = file.execute("SELECT id, full_name, name, rm FROM partitions").fetchall()
        chosen = [str(number) for number, full, _, _ in known if name == full] or [
            str(number) for number, _, plain, rm in known if name in (plain, f"[{rm}]{plain}")
        ]
        if not chosen:
            raise NoSuchPartition(name)
        conditions.add(f"entry.partition IN ({', '.join(chosen)})")
    if wanted.rm:
        conditions.add("entry.partition IN (SELECT id FROM partitions WHERE rm = ?)", wanted.rm)


def _restrict(
    file: sqlite3.Connection, conditions: _Conditions, name: ListName, one: PastList, viewer: HistoryViewer | None
) -> None:
    """Leave what the viewer may see."""
    if viewer is None:
        return
    ids = dict(file.execute("SELECT full_name, id FROM partitions").fetchall())
    rights = {ids[partition]: right for partition, right in viewer.rights.items() if partition in ids}

    def administers(partition: int, queue: str) -> bool:
        return _holds(rights[partition].admin, queue)

    def submits(partition: int, queue: str) -> bool:
        return _holds(rights[partition].submit, queue)

    file.create_function("administers", 2, administers, deterministic=True)
    file.create_function("submits", 2, submits, deterministic=True)
    conditions.add(f"entry.partition IN ({', '.join(map(str, rights))})")
    match name:
        case "applications" | "allocations":
            conditions.add(f"{one.user} = ? OR administers(entry.partition, {one.queue})", viewer.user)
        case "queues":
            conditions.add(f"submits(entry.partition, {one.queue})")
        case "users":
            conditions.add(f"{one.user} = ? OR administers(entry.partition, 'root')", viewer.user)
        case "groups":
            marks = ", ".join("?" * len(viewer.groups))
            conditions.add(f"{one.group} IN ({marks}) OR administers(entry.partition, 'root')", *viewer.groups)
        case "gaps":
            pass  # they name nobody


def _holds(beginnings: frozenset[str], queue: str) -> bool:
    """Whether a right that begins at these queues holds for this one. Who has it at the root has it for what never was
    a queue, too.
    """
    if "root" in beginnings:
        return True
    path = queue.lower()  # that of an application that was refused is as somebody wrote it
    while path and path not in beginnings:
        path = path.rpartition(".")[0]
    return bool(path)


# Cursors --------------------------------------------------------------------------------------------------------------


def _written(at: int, number: int) -> str:
    return base64.urlsafe_b64encode(f"{at}.{number}".encode()).decode().rstrip("=")


def _cursor(text: str) -> tuple[int, int]:
    """The time and number of a row."""
    try:
        padded = text + "=" * (-len(text) % 4)
        at, number = base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii").split(".")
        found = int(at), int(number)
    except ValueError as error:
        raise BadCursor(text) from error
    if max(map(abs, found)) >= 2**63:
        raise BadCursor(text)
    return found


# The file -------------------------------------------------------------------------------------------------------------


@contextmanager
def opened(path: Path, seconds_max: float = SECONDS_MAX) -> Iterator[sqlite3.Connection]:
    """The file, for reading only and not for longer than this.

    Raises:
        TooMuch, Unreadable: what is wrong, also while it is open.
    """
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            deadline = time.monotonic() + seconds_max
            file.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
            version = file.execute("PRAGMA user_version").fetchone()[0]
            if version != FORMAT:
                raise Unreadable(f"it has format {version}, and this release knows {FORMAT}")
            yield file
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
            raise TooMuch from error
        raise Unreadable(str(error)) from error
    except msgspec.MsgspecError as error:
        raise Unreadable(f"a row is not as it was written: {error}") from error


READERS_MAX: Final = 2
"""Questions that are answered at once."""

WAITING_MAX: Final = 32
"""Questions that wait for that; more are refused."""

_T = TypeVar("_T")


class Kept(Protocol):
    """Who keeps the history (`keeping.py`)."""

    @property
    def path(self) -> Path: ...

    @property
    def problem(self) -> str:
        """Why it is not kept at present; empty while it is."""


class HistoryReader:
    """The history in one file, for reading."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._readers = ThreadPoolExecutor(max_workers=READERS_MAX, thread_name_prefix="past")
        self._open = 0
        """Questions that are not answered yet."""

    async def read(self, question: Callable[[Path], _T]) -> _T:
        """The answer to a question of `reading.py`.

        Raises:
            RequestError: there is none.
        """
        if self._kept.problem:
            raise RequestError(503, f"There is no history: {self._kept.problem}")
        if self._open >= READERS_MAX + WAITING_MAX:
            raise RequestError(503, f"{self._open} questions about the history are waiting already, try again later")
        self._open += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, question, self._kept.path)
        except NoSuchPartition:
            raise RequestError(404, "Partition not found") from None
        except BadCursor:
            raise RequestError(400, "after must be what an earlier answer gave as next") from None
        except TooMuch:
            text = f"This takes longer than {SECONDS_MAX:g} s: ask for less time, with since and until"
            raise RequestError(503, text) from None
        except Unreadable as error:
            raise RequestError(503, f"The history cannot be read: {error}") from None
        finally:
            self._open -= 1

    def close(self) -> None:
        """Answer nothing more."""
        self._readers.shutdown(wait=False, cancel_futures=True)
