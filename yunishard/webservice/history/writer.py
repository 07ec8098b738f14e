"""Writes the history: the statements, which are the same for all stores.

The rows of a batch are written by a few statements, each with all rows of one kind as JSON: a flood of events costs few
round trips to a database. Not here: how a store keeps other web services from recording (`sqlite_store.py`,
`postgres_store.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Final

import msgspec

from yunishard.common.messages.query_messages import Began, Ended, EndedApplication, Failing, PartitionEntry, Usage
from yunishard.common.names import DISTINCT
from yunishard.webservice.history.collector import KINDS, Gap, ReadPosition, RowBatch, UsageByName
from yunishard.webservice.history.tables import (
    NUL,
    REPLACEMENT,
    TIMED,
    HistoryTables,
    Row,
    application_row,
    columns_of,
    decode_amounts,
    is_used,
)

LATEST_NS: Final = 2 * 3600 * 10**9
"""How far back to look for the latest usage: all usage is recorded once an hour."""

MERGED_NS: Final = 60 * 10**9
"""Gaps of one kind that are not farther apart are merged."""

UNKNOWN: Final = "UNKNOWN"
"""How an allocation ended if the worker did not report its end."""

SLICE_ROWS: Final = 2_000
"""Rows deleted by one statement: some ten milliseconds."""

_POSITION: Final = ", ".join(ReadPosition._fields)
"""The columns of a read position in `partitions`."""

_KEYS: Final = ("application", "key")
"""Indexed columns with names that an RM chooses."""


class HistoryWriter(ABC):
    """Writes rows, for one thread at a time. Only one web service has one.

    Its methods raise HistoryDamaged if the content is damaged, and OSError if it cannot be used at present; then
    nothing is written.
    """

    @property
    def is_due(self) -> bool:
        """Whether to call `renew` now, unless rows are written."""
        return False

    @abstractmethod
    def renew(self) -> None:
        """Keep other web services from recording."""

    @abstractmethod
    def close(self) -> None:
        """Let another web service record."""

    @abstractmethod
    def used_bytes(self) -> int:
        """Bytes of all rows and indexes."""

    @abstractmethod
    def release_space(self, bytes_max: int) -> None:
        """Return free space to the disk if more than this is in use."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[HistoryTables]:
        """The tables, for statements that change nothing."""

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[HistoryTables]:
        """The tables; all statements within take effect, or none, and only if no other web service records."""

    # Reading ----------------------------------------------------------------------------------------------------------

    def positions(self) -> dict[str, ReadPosition]:
        """The read position of each partition, by full name."""
        with self._reading() as tables:
            rows = tables.execute(f"SELECT full_name, {_POSITION} FROM history_partitions")  # noqa: S608 - our names
        # SQLite has no truth values.
        return {str(name): msgspec.convert(position, ReadPosition, strict=False) for name, *position in rows}

    def latest(self) -> dict[str, UsageByName]:
        """The latest non-zero usage, by full name of the partition."""
        found: dict[str, UsageByName] = {}
        for kind in KINDS:
            ranked = (
                "SELECT full_name, entry.name AS name, running, allocated, pending,"  # noqa: S608 - our own names
                " row_number() OVER (PARTITION BY full_name, entry.name ORDER BY at DESC) AS age"
                f" FROM history_partitions AS known JOIN history_{kind} AS entry ON entry.partition = known.id"
                " AND at >= sampled_ns - ?"
            )
            query = f"SELECT full_name, name, running, allocated, pending FROM ({ranked}) AS ranked WHERE age = 1"  # noqa: S608
            with self._reading() as tables:
                rows = tables.execute(query, (LATEST_NS,))
            values = msgspec.convert(rows, list[tuple[str, str, int, str, str]])
            for full_name, name, running, allocated, pending in values:
                usage = Usage(name, running, decode_amounts(allocated), decode_amounts(pending))
                if is_used(usage):
                    found.setdefault(full_name, {})[kind, name] = usage
        return found

    def find_oldest(self) -> int | None:
        """The time of the oldest row of all tables."""
        times = " UNION ALL ".join(f"SELECT min(at) AS at FROM history_{table}" for table in TIMED)  # noqa: S608
        with self._reading() as tables:
            rows = tables.execute(f"SELECT min(at) FROM ({times}) AS times")  # noqa: S608 - our own names
        return msgspec.convert(rows[0][0], int | None)

    # Writing ----------------------------------------------------------------------------------------------------------

    def write(self, batches: Iterable[RowBatch]) -> None:
        """Write these, all or none."""
        with self._transaction() as tables:
            for batch in batches:
                _write(tables, batch)

    def insert(self, table: str, rows: Sequence[Row]) -> None:
        """Insert rows, all or none. Each gets a new number."""
        with self._transaction() as tables:
            _insert(tables, table, rows)

    def delete_rows(self, table: str, before_ns: int) -> int:
        """Delete the oldest rows from before this time, at most SLICE_ROWS. Returns their number."""
        oldest = f"SELECT id FROM history_{table} WHERE at < ? ORDER BY at LIMIT ?"  # noqa: S608 - our own names
        with self._transaction() as tables:
            statement = f"DELETE FROM history_{table} WHERE id IN ({oldest})"  # noqa: S608 - our own names
            return tables.change(statement, (before_ns, SLICE_ROWS), -1)

    def delete_partition(self, before_ns: int) -> None:
        """Delete a removed partition whose removal was recorded before this time."""
        query = (
            "SELECT id FROM history_partitions"
            " WHERE instance = '' AND sampled_ns < ? AND last_event_ns < ? AND ended_ns < ? LIMIT 1"
        )
        with self._reading() as tables:
            rows = tables.execute(query, (before_ns, before_ns, before_ns))
        if not rows:
            return
        number = msgspec.convert(rows[0][0], int)
        with self._transaction() as tables:
            # The rows that recorded its removal are later. They cannot be selected without it, and expire like others:
            # finding them takes reading whole tables, which is only done where a new partition may get its number.
            for table in TIMED if tables.reuses_numbers else ():
                tables.change(f"DELETE FROM history_{table} WHERE partition = ?", (number,), -1)  # noqa: S608
            tables.change("DELETE FROM history_partitions WHERE id = ?", (number,), -1)


def _write(tables: HistoryTables, batch: RowBatch) -> None:
    number = _find_number(tables, batch.partition, batch.at_ns)
    account, sampled = batch.account, {"at": batch.at_ns, "partition": number}
    _write_allocations(tables, number, [one for one in account.happened if not isinstance(one, Failing)])
    _write_reasons(tables, number, [one for one in account.happened if isinstance(one, Failing)])
    _write_applications(tables, number, account.ended)
    if account.sample is not None:
        totals = {name: value for name, value in columns_of(account.sample).items() if name not in KINDS}
        _insert(tables, "totals", [{**sampled, **totals}])
    for kind in KINDS:
        _insert(tables, kind, [{**sampled, **columns_of(one)} for of, one in batch.usage if of == kind])
    if account.keys is not None:
        _end_all_but(tables, number, batch.at_ns, account.keys)
    for gap in batch.gaps:
        _write_gap(tables, number, gap)
    marks = ", ".join("?" * len(batch.position))
    statement = f"UPDATE history_partitions SET ({_POSITION}) = ({marks}) WHERE id = ?"  # noqa: S608 - our own names
    tables.execute(statement, (*batch.position, number))


def _find_number(tables: HistoryTables, partition: PartitionEntry, at_ns: int) -> int:
    """The number of a partition; a removed one is known by its full name only, without its RM."""
    name, rm = partition.full_name, partition.rm_id
    rows = tables.execute("SELECT id, rm FROM history_partitions WHERE full_name = ?", (name,))
    if rows:
        number, known_rm = msgspec.convert(rows[0], tuple[int, str])
        if rm in ("", known_rm):
            return number
        _rename(tables, number, known_rm, at_ns)
    _insert(tables, "partitions", [{"full_name": name, "name": partition.name, "rm": rm}])
    return _find_number(tables, partition, at_ns)


def _rename(tables: HistoryTables, number: int, rm: str, at_ns: int) -> None:
    """Give a removed partition a name that no partition has: a partition of another RM has its full name now."""
    _end_all_but(tables, number, at_ns, [])
    suffix = f"{DISTINCT}{len(rm)}.{number}"
    tables.execute("UPDATE history_partitions SET full_name = full_name || ? WHERE id = ?", (suffix, number))


def _write_allocations(tables: HistoryTables, partition: int, events: Sequence[Began | Ended]) -> None:
    if not events:
        return
    keys = [tables.clean_name(one.key) for one in events]
    found = tables.execute(
        "SELECT key, id FROM history_allocations WHERE partition = ? AND ended IS NULL"  # noqa: S608 - our own names
        f" AND key IN (SELECT value FROM {tables.texts})",
        (partition, _encode(keys)),
    )
    running = dict(msgspec.convert(found, list[tuple[str, int]]))
    ended: list[Row] = []
    new: list[dict[str, object]] = []
    begun: dict[str, dict[str, object]] = {}
    for key, one in zip(keys, events, strict=True):
        row = {"partition": partition, "began": None, "ended": None, "how": "", **columns_of(one)}
        if isinstance(one, Ended):
            end = {"ended": one.at_ns, "how": one.how}
            if key in running:
                ended.append({"id": running.pop(key), **end})
            elif key in begun:
                begun.pop(key).update(end)
            else:
                new.append(row | end)
        elif key not in running and key not in begun:  # else an RM that resumes has reported it again
            begun[key] = row | {"began": one.at_ns}
            new.append(begun[key])
    if ended:
        statement = (
            "UPDATE history_allocations AS entry SET ended = one.ended, how = one.how"  # noqa: S608 - our own names
            f" FROM {tables.rows('allocations', ended[0])} AS one WHERE entry.id = one.id"
        )
        tables.execute(statement, (_encode_rows(tables, ended),))
    _insert(tables, "allocations", new)


def _end_all_but(tables: HistoryTables, partition: int, at_ns: int, keys: Iterable[str]) -> None:
    """End all running allocations except those with these keys."""
    tables.execute(
        "UPDATE history_allocations SET ended = ?, how = ? WHERE partition = ? AND ended IS NULL"  # noqa: S608
        f" AND key NOT IN (SELECT value FROM {tables.texts})",
        (at_ns, UNKNOWN, partition, _encode([tables.clean_name(key) for key in keys])),
    )


def _write_reasons(tables: HistoryTables, partition: int, failing: Sequence[Failing]) -> None:
    latest = {tables.clean_name(one.application_id): {"partition": partition, **columns_of(one)} for one in failing}
    _take_reasons(tables, partition, [*latest])
    _insert(tables, "reasons", [*latest.values()])


def _take_reasons(tables: HistoryTables, partition: int, applications: list[str]) -> dict[str, tuple[int, str]]:
    """Delete the reasons why these applications fail. Returns their times and texts."""
    of = f"FROM history_reasons WHERE partition = ? AND application IN (SELECT value FROM {tables.texts})"  # noqa: S608
    values = (partition, _encode(applications))
    found = tables.execute(f"SELECT application, at, message {of}", values) if applications else []
    if found:
        tables.change(f"DELETE {of}", values, -1)
    return {name: (at, message) for name, at, message in msgspec.convert(found, list[tuple[str, int, str]])}


def _write_applications(tables: HistoryTables, partition: int, ended: Sequence[EndedApplication]) -> None:
    if not ended:
        return
    names = [tables.clean_name(one.application_id) for one in ended]
    reasons = _take_reasons(tables, partition, names)
    rows = []
    for name, one in zip(names, ended, strict=True):
        at, message = reasons.get(name, (0, ""))
        if at < one.submitted_ns:  # the reason of an earlier application with this name
            message = ""
        reasons.pop(name, None)
        rows.append({"partition": partition, **application_row(one, message)})
    columns = _quote(rows[0])
    # Without a condition, SQLite reads ON CONFLICT as part of a join.
    tables.change(
        f"INSERT INTO history_applications ({columns}, allocations) SELECT {columns}, (SELECT count(*) FROM"  # noqa: S608
        " history_allocations AS one WHERE one.partition = entry.partition AND one.application = entry.application"
        f" AND one.at BETWEEN entry.submitted AND entry.at) FROM {tables.rows('applications', rows[0])} AS entry"
        " WHERE TRUE ON CONFLICT DO NOTHING",
        (_encode_rows(tables, rows),),
    )


def _write_gap(tables: HistoryTables, partition: int, gap: Gap) -> None:
    """Write a gap, or extend the previous one of its kind: many gaps are shown as one."""
    extended = tables.execute(
        "UPDATE history_gaps SET until = ?, missed = missed + ? WHERE until >= ? AND reason = ?"
        " AND id = (SELECT max(id) FROM history_gaps WHERE partition = ? AND what = ?) RETURNING id",
        (gap.until_ns, gap.missed, gap.since_ns - MERGED_NS, gap.reason, partition, gap.what),
    )
    if not extended:
        row = {"what": gap.what, "until": gap.until_ns, "missed": gap.missed, "reason": gap.reason}
        _insert(tables, "gaps", [{"at": gap.since_ns, "partition": partition, **row}])


# Rows as JSON ---------------------------------------------------------------------------------------------------------


def _insert(tables: HistoryTables, table: str, rows: Sequence[Row]) -> None:
    """Insert rows with the same columns."""
    if rows:
        names = _quote(rows[0])
        tables.change(
            f"INSERT INTO history_{table} ({names})"  # noqa: S608 - our own names
            f" SELECT {names} FROM {tables.rows(table, rows[0])} AS entry",
            (_encode_rows(tables, rows),),
        )


def _quote(columns: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _encode_rows(tables: HistoryTables, rows: Sequence[Row]) -> str:
    """A JSON array of rows, with texts that each store accepts."""
    return _encode([{name: _encode_value(tables, name, value) for name, value in row.items()} for row in rows])


def _encode_value(tables: HistoryTables, name: str, value: object) -> object:
    if isinstance(value, dict | list):
        return msgspec.json.encode(value, order="deterministic").decode()
    if isinstance(value, str):
        return tables.clean_name(value) if name in _KEYS else value.replace(NUL, REPLACEMENT)
    return value
