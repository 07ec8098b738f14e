"""The history of several hosts: tables of the database, which the web service that holds a lease writes.

Every transaction that writes renews the lease `history` first, so a web service that has lost it writes nothing any
more. Its successor reads the read positions after that, and continues without a gap or a duplicate. The rows of a batch
are written by a few statements, each with all rows of one kind as JSON, so a flood of events costs few round trips.

The size is computed from the lengths of the columns (`bytes` of each row), because a database does not tell how much of
its files is free. The recording web service reads the sum when it begins, and then maintains it.

Not here: the tables (`common/postgres/store_formats/`; `store.py` describes them), the lease
(`common/postgres/leases.py`).
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Final

import msgspec
from psycopg.errors import QueryCanceled

from yunishard.common.history_records import Began, Ended, EndedApplication, Failing, Happened, Usage
from yunishard.common.lease_watch import LeaseWatch
from yunishard.common.messages.query_messages import PartitionEntry
from yunishard.common.names import DISTINCT
from yunishard.common.postgres.connection import LONG_ANSWER_MAX_S, Connection, Database
from yunishard.common.postgres.leases import HeldLease, acquire_lease, read_lease, release_lease, renew_lease
from yunishard.webservice.history.collector import KINDS, Gap, Kind, ReadPosition, RowBatch, UsageByName
from yunishard.webservice.history.store import (
    LATEST_NS,
    MERGED_NS,
    POSITION,
    SLICE_ROWS,
    TIMED,
    UNKNOWN,
    Condition,
    HistoryDamaged,
    HistoryTaken,
    Row,
    Value,
    application_row,
    columns_of,
    decode_amounts,
    encode_column,
    ended_row,
    is_used,
)

LEASE_S: Final = 10.0
"""Seconds without a renewal after which another web service may record."""

RENEWAL_S: Final = 3.0
"""Seconds after which the lease is renewed if nothing is written."""

COUNTED_ROWS: Final = 500_000
"""Rows whose bytes one statement adds up when a web service begins to record."""

NAME_BYTES_MAX: Final = 1_000
"""Bytes of the ID of an application or the key of an allocation: PostgreSQL refuses to index long ones. Longer ones are
shortened, with a hash of the whole.
"""

_LEASE: Final = "history"

_KEYS: Final = ("application", "key")
"""Indexed columns with names that an RM chooses."""

_NUL: Final = "\0"
"""PostgreSQL refuses it in texts."""


class PostgresHistory:
    """The tables. `holder` names this web service among all, and is shown in `leases`."""

    def __init__(self, store: str, holder: str) -> None:
        """Use the database of this connection string. Raises OSError if that is not valid."""
        self._store = store
        self._holder = holder
        self._recording = Database(store, "history", answer_max_s=LONG_ANSWER_MAX_S)
        """The connection of the writer; it stays open while another web service records."""
        self._idle = [_open_reader(store)]
        """Connections that read nothing at present."""
        self._writer: PostgresWriter | None = None
        self._watch = LeaseWatch(LEASE_S)
        """Of the lease of another web service, in all attempts to record."""

    def open_writer(self) -> "PostgresWriter":
        """Begin to record."""
        self._writer = PostgresWriter(self._recording, self._holder, self._watch)
        return self._writer

    @contextmanager
    def open_rows(self, max_s: float) -> Iterator["PostgresRows"]:
        """Read in one transaction. The time limit is that of each statement."""
        try:
            database = self._idle.pop()
        except IndexError:  # another thread reads
            database = _open_reader(self._store)
        try:
            with database.transaction() as connection:
                limit_ms = str(max(1, round(max_s * 1000)))  # 0 would be none
                connection.execute("SELECT set_config('statement_timeout', %s, true)", (limit_ms,))
                yield PostgresRows(connection)
        except OSError as error:
            if isinstance(error.__cause__, QueryCanceled):
                raise TimeoutError(str(error)) from error
            raise
        finally:
            self._idle.append(database)

    def exists(self) -> bool:
        """The tables exist if the store does."""
        return True

    def size(self) -> int | None:
        """Bytes of all rows and indexes, if this web service records them."""
        return self._writer.used_bytes() if self._writer is not None and self._writer.is_open else None

    def describe(self, error: OSError) -> str:
        """The reason why the database cannot be used."""
        return str(error)

    def put_aside(self, damage: HistoryDamaged) -> str:
        """Not called: a database reports its damage as OSError, and an administrator repairs it."""
        raise AssertionError(damage)

    def close(self) -> None:
        """Close the connections, but for that of a writer, which closes it."""
        while self._idle:
            self._idle.pop().close()
        if self._writer is None or not self._writer.is_open:
            self._recording.close()


def _open_reader(store: str) -> Database:
    """A connection for reading. The server ends a query before it could count as hung."""
    return Database(store, "history-reader", answer_max_s=LONG_ANSWER_MAX_S)


# Reading --------------------------------------------------------------------------------------------------------------


class PostgresRows:
    """The tables, for reading in one transaction."""

    join = "JOIN"  # the planner chooses the order

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def table(self, name: str) -> str:
        """The name of a table in SQL."""
        return f"history_{name}"

    def execute(self, sql: str, values: Sequence[Value] = ()) -> list[tuple[object, ...]]:
        """The rows that a query selects."""
        cleaned = [clean_name(value) if isinstance(value, str) else value for value in values]
        return self._connection.execute(sql.replace("?", "%s"), cleaned).fetchall()

    def includes(self, beginnings: Mapping[int, frozenset[str]], queue: str) -> Condition:
        """Whether a right that begins at these queues holds for the queue in this column."""
        pairs = [(number, one) for number, queues in beginnings.items() for one in _find_topmost(queues)]
        text = (
            "EXISTS (SELECT FROM unnest(?::bigint[], ?::text[]) AS held (number, beginning)"
            " WHERE held.number = entry.partition AND (beginning = 'root'"
            f" OR beginning || '.' = left(lower({queue}) || '.', length(beginning) + 1)))"
        )
        return text, [[number for number, _ in pairs], [one for _, one in pairs]]


def _find_topmost(queues: frozenset[str]) -> list[str]:
    """Those that are not below another one."""
    return sorted(one for one in queues if not any(one.startswith(f"{other}.") for other in queues))


def clean_name(text: str) -> str:
    """A name that PostgreSQL accepts, also in an index."""
    if len(text) * 4 > NAME_BYTES_MAX and len(whole := text.encode()) > NAME_BYTES_MAX:
        start = whole[: NAME_BYTES_MAX - 40].decode(errors="ignore")
        text = f"{start}...{blake2b(whole, digest_size=16).hexdigest()}"
    return text.replace(_NUL, "\ufffd")


# Writing --------------------------------------------------------------------------------------------------------------


class PostgresWriter:
    """The tables, for writing, by one thread at a time.

    Raises:
        HistoryTaken: another web service holds the lease.
        OSError: the database cannot be used.
    """

    def __init__(self, database: Database, holder: str, watch: LeaseWatch) -> None:
        self._database = database
        self._added = 0
        """Bytes that the present transaction adds."""
        self._is_sound = True
        """Whether the last transaction succeeded."""
        self.is_open = False
        try:
            with database.autocommit() as connection:
                asked_at = time.monotonic()
                held = read_lease(connection, _LEASE)
                if held is not None and held.holder != holder:
                    watch.observe(held.expires, held.left_s, asked_at, time.monotonic())
                    if watch.find_ended(time.monotonic()) is None:
                        raise HistoryTaken(f"{held.holder} records it")
                # First, as it takes long. Rows that another web service writes meanwhile are not counted.
                self._bytes = sum(_sum_bytes(connection, table) for table in ("partitions", *TIMED))
            with database.transaction() as connection:
                self._renewed_at = time.monotonic()
                wanted = HeldLease(holder=holder, epoch=1, left_s=LEASE_S)
                self._epoch = acquire_lease(connection, _LEASE, wanted, watch.find_ended(time.monotonic()))
            if not self._epoch:
                raise HistoryTaken("another web service records it")
        except HistoryTaken:
            raise
        except OSError:
            database.close()
            raise
        self.is_open = True

    @property
    def is_due(self) -> bool:
        """Whether to renew the lease now."""
        return time.monotonic() - self._renewed_at >= RENEWAL_S

    def renew(self) -> None:
        """Renew the lease."""
        with self._transaction():
            pass

    def close(self) -> None:
        """Give the lease back, unless something has failed."""
        self.is_open = False
        if self._is_sound:
            with suppress(OSError), self._database.autocommit() as connection:
                release_lease(connection, _LEASE, self._epoch)
        self._database.close()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """All statements within take effect, or none."""
        began, self._added, self._is_sound = time.monotonic(), 0, False
        with self._database.transaction() as connection:
            if not renew_lease(connection, _LEASE, self._epoch, LEASE_S):
                raise HistoryTaken("another web service records it")
            yield connection
        self._renewed_at, self._is_sound = began, True
        self._bytes += self._added

    def used_bytes(self) -> int:
        """Bytes of all rows and indexes."""
        return self._bytes

    def positions(self) -> dict[str, ReadPosition]:
        """The read position of each partition, by full name."""
        with self._database.autocommit() as connection:
            rows = connection.execute(f"SELECT full_name, {POSITION} FROM history_partitions").fetchall()  # noqa: S608
        return {str(name): msgspec.convert(position, ReadPosition) for name, *position in rows}

    def latest(self) -> dict[str, UsageByName]:
        """The latest non-zero usage, by full name of the partition."""
        found: dict[str, UsageByName] = {}
        with self._database.autocommit() as connection:
            for kind in KINDS:
                for full_name, usage in _read_latest(connection, kind):
                    if is_used(usage):
                        found.setdefault(full_name, {})[kind, usage.name] = usage
        return found

    def write(self, batches: Iterable[RowBatch]) -> None:
        """Write these, all or none."""
        with self._transaction() as connection:
            for batch in batches:
                self._write(connection, batch)

    def insert(self, table: str, rows: Sequence[Row]) -> None:
        """Insert rows, all or none."""
        with self._transaction() as connection:
            self._insert(connection, table, rows)

    def _write(self, connection: Connection, batch: RowBatch) -> None:
        number = self._number(connection, batch.partition, batch.at_ns)
        account, at_ns = batch.account, batch.at_ns
        self._write_allocations(connection, number, account.happened)
        self._write_reasons(connection, number, [one for one in account.happened if isinstance(one, Failing)])
        self._write_applications(connection, number, account.ended)
        if account.sample is not None:
            totals = {name: value for name, value in columns_of(account.sample).items() if name not in KINDS}
            self._insert(connection, "totals", [{"at": at_ns, "partition": number, **totals}])
        for kind in KINDS:
            usage = [
                {"at": at_ns, "partition": number, **columns_of(one)}
                for one_kind, one in batch.usage
                if one_kind == kind
            ]
            self._insert(connection, kind, usage)
        if account.keys is not None:
            _end_all_but(connection, number, at_ns, account.keys)
        for gap in batch.gaps:
            self._write_gap(connection, number, gap)
        marks = ", ".join(["%s"] * len(batch.position))
        connection.execute(
            f"UPDATE history_partitions SET ({POSITION}) = ({marks}) WHERE id = %s",  # noqa: S608 - our own names
            (*batch.position, number),
        )

    def _number(self, connection: Connection, partition: PartitionEntry, at_ns: int) -> int:
        """The number of a partition; a removed one is known by its full name only, without its RM."""
        name, rm = partition.full_name, partition.rm_id
        row = connection.execute("SELECT id, rm FROM history_partitions WHERE full_name = %s", (name,)).fetchone()
        known = msgspec.convert(row, tuple[int, str]) if row else None
        if known is not None and rm not in ("", known[1]):
            self._rename(connection, known[0], known[1], at_ns)
            known = None
        if known is None:
            self._insert(connection, "partitions", [{"full_name": name, "name": partition.name, "rm": rm}])
            return self._number(connection, partition, at_ns)
        return known[0]

    def _rename(self, connection: Connection, number: int, rm: str, at_ns: int) -> None:
        """Give a removed partition a name that no partition has: a partition of another RM has its full name now."""
        _end_all_but(connection, number, at_ns, [])
        suffix = f"{DISTINCT}{len(rm)}.{number}"
        connection.execute("UPDATE history_partitions SET full_name = full_name || %s WHERE id = %s", (suffix, number))

    def _write_allocations(self, connection: Connection, partition: int, happened: Sequence[Happened]) -> None:
        for began, ended in _split_turns(happened):
            # A running allocation is unchanged if an RM that resumes reports it again.
            rows = [{"partition": partition, "began": one.at_ns, **columns_of(one)} for one in began.values()]
            self._insert(connection, "allocations", rows, "ON CONFLICT DO NOTHING")
            if not ended:
                continue
            done = connection.execute(
                "UPDATE history_allocations AS entry SET ended = one.ended, how = one.how"
                " FROM json_populate_recordset(NULL::history_allocations, %s) AS one"
                " WHERE entry.partition = %s AND entry.key = one.key AND entry.ended IS NULL RETURNING entry.key",
                (_encode_rows([ended_row(one) for one in ended.values()]), partition),
            ).fetchall()
            known = {key for (key,) in done}
            unknown = [{"partition": partition, **ended_row(one)} for key, one in ended.items() if key not in known]
            self._insert(connection, "allocations", unknown)

    def _write_reasons(self, connection: Connection, partition: int, failing: Sequence[Failing]) -> None:
        latest = {one.application_id: {"partition": partition, **columns_of(one)} for one in failing}
        self._change(
            connection,
            "DELETE FROM history_reasons WHERE partition = %s AND application = ANY(%s)",
            (partition, _clean_all(latest)),
            -1,
        )
        self._insert(connection, "reasons", [*latest.values()])

    def _write_applications(self, connection: Connection, partition: int, ended: Sequence[EndedApplication]) -> None:
        if not ended:
            return
        found = connection.execute(
            "SELECT application, at, message FROM history_reasons WHERE partition = %s AND application = ANY(%s)",
            (partition, _clean_all(one.application_id for one in ended)),
        ).fetchall()
        reasons = {name: (at, message) for name, at, message in msgspec.convert(found, list[tuple[str, int, str]])}
        rows, over = [], []
        for one in ended:
            name = clean_name(one.application_id)
            message = ""
            if name in reasons and reasons[name][0] >= one.submitted_ns:
                _, message = reasons.pop(name)
                over.append(name)
            rows.append({"partition": partition, **application_row(one, message)})
        if over:
            text = "DELETE FROM history_reasons WHERE partition = %s AND application = ANY(%s)"
            self._change(connection, text, (partition, over), -1)
        names = ", ".join(f'"{name}"' for name in rows[0])
        self._change(
            connection,
            f"INSERT INTO history_applications ({names}, allocations) SELECT {names}, (SELECT count(*) FROM"  # noqa: S608
            " history_allocations AS one WHERE one.partition = entry.partition AND one.application = entry.application"
            " AND one.at BETWEEN entry.submitted AND entry.at)"
            " FROM json_populate_recordset(NULL::history_applications, %s) AS entry ON CONFLICT DO NOTHING",
            (_encode_rows(rows),),
        )

    def _write_gap(self, connection: Connection, partition: int, gap: Gap) -> None:
        """Write a gap, or extend the previous one of its kind: many gaps are shown as one."""
        done = connection.execute(
            "UPDATE history_gaps SET until = %s, missed = missed + %s WHERE until >= %s AND reason = %s"
            " AND id = (SELECT max(id) FROM history_gaps WHERE partition = %s AND what = %s)",
            (gap.until_ns, gap.missed, gap.since_ns - MERGED_NS, gap.reason, partition, gap.what),
        )
        if not done.rowcount:
            row = {"what": gap.what, "until": gap.until_ns, "missed": gap.missed, "reason": gap.reason}
            self._insert(connection, "gaps", [{"at": gap.since_ns, "partition": partition, **row}])

    def _insert(self, connection: Connection, table: str, rows: Sequence[Row], conflict: str = "") -> None:
        """Insert rows with the same columns."""
        if rows:
            names = ", ".join(f'"{name}"' for name in rows[0])
            text = (
                f"INSERT INTO history_{table} ({names}) SELECT {names}"  # noqa: S608 - our own names
                f" FROM json_populate_recordset(NULL::history_{table}, %s) {conflict}"
            )
            self._change(connection, text, (_encode_rows(rows),))

    def _change(self, connection: Connection, statement: str, values: Sequence[object], sign: int = 1) -> int:
        """Insert or delete rows, and count their bytes. Returns their number."""
        counts = "SELECT count(*), coalesce(sum(bytes), 0)::bigint FROM changed"
        row = connection.execute(f"WITH changed AS ({statement} RETURNING bytes) {counts}", values).fetchone()
        count, size = msgspec.convert(row, tuple[int, int])
        self._added += sign * size
        return count

    # Deleting ---------------------------------------------------------------------------------------------------------

    def find_oldest(self) -> int | None:
        """The time of the oldest row of all tables."""
        tables = " UNION ALL ".join(f"(SELECT at FROM history_{table} ORDER BY at LIMIT 1)" for table in TIMED)  # noqa: S608
        with self._database.autocommit() as connection:
            row = connection.execute(f"SELECT min(at) FROM ({tables}) AS oldest").fetchone()  # noqa: S608
        return msgspec.convert(row, tuple[int | None])[0]

    def delete_rows(self, table: str, before_ns: int) -> int:
        """Delete the oldest rows from before this time, at most SLICE_ROWS. Returns their number."""
        oldest = f"SELECT id FROM history_{table} WHERE at < %s ORDER BY at LIMIT %s"  # noqa: S608 - our own names
        with self._transaction() as connection:
            text = f"DELETE FROM history_{table} WHERE id IN ({oldest})"  # noqa: S608 - our own names
            return self._change(connection, text, (before_ns, SLICE_ROWS), -1)

    def delete_partition(self, before_ns: int) -> None:
        """Delete a removed partition of which all rows are older, but for those that recorded its removal. These cannot
        be selected any more, and expire like others: to find them, whole tables would have to be read.
        """
        latest = "greatest(sampled_ns, last_event_ns, ended_ns)"
        found = f"SELECT id FROM history_partitions WHERE instance = '' AND {latest} < %s LIMIT 1"  # noqa: S608
        with self._database.autocommit() as connection:
            row = connection.execute(found, (before_ns,)).fetchone()
        if row is not None:
            with self._transaction() as connection:
                self._change(connection, "DELETE FROM history_partitions WHERE id = %s", row, -1)

    def release_space(self, bytes_max: int) -> None:
        pass  # the autovacuum of the database does


def _sum_bytes(connection: Connection, table: str) -> int:
    """The bytes of a table, whose rows are read in parts so that no statement takes long."""
    total, last = 0, 0
    part = f"SELECT id, bytes FROM history_{table} WHERE id > %s ORDER BY id LIMIT %s"  # noqa: S608 - our own names
    query = f"SELECT max(id), coalesce(sum(bytes), 0)::bigint FROM ({part}) AS part"  # noqa: S608
    while True:
        row = connection.execute(query, (last, COUNTED_ROWS)).fetchone()
        found, size = msgspec.convert(row, tuple[int | None, int])
        if found is None:
            return total
        total, last = total + size, found


def _read_latest(connection: Connection, kind: Kind) -> Iterator[tuple[str, Usage]]:
    """The latest usage of each queue, user or group, by full name of the partition."""
    rows = connection.execute(
        "SELECT DISTINCT ON (full_name, entry.name) full_name, entry.name, running, allocated, pending"  # noqa: S608
        f" FROM history_partitions AS known JOIN history_{kind} AS entry ON entry.partition = known.id"
        " AND at >= sampled_ns - %s ORDER BY full_name, entry.name, at DESC",
        (LATEST_NS,),
    ).fetchall()
    found = msgspec.convert(rows, list[tuple[str, str, int, str, str]])
    for full_name, name, running, allocated, pending in found:
        yield full_name, Usage(name, running, decode_amounts(allocated), decode_amounts(pending))


def _end_all_but(connection: Connection, partition: int, at_ns: int, keys: Iterable[str]) -> None:
    """End all running allocations except those with these keys."""
    connection.execute(
        "UPDATE history_allocations AS entry SET ended = %s, how = %s WHERE partition = %s AND ended IS NULL"
        " AND NOT EXISTS (SELECT FROM unnest(%s::text[]) AS running (key) WHERE running.key = entry.key)",
        (at_ns, UNKNOWN, partition, _clean_all(keys)),
    )


def _split_turns(happened: Iterable[Happened]) -> list[tuple[dict[str, Began], dict[str, Ended]]]:
    """The beginnings and ends of allocations by key, in turns, so that in a turn each key begins and ends at most once,
    in this order. A key that is used again is in the next turn.
    """
    turns: list[tuple[dict[str, Began], dict[str, Ended]]] = []
    ends: defaultdict[str, int] = defaultdict(int)
    for one in happened:
        if isinstance(one, Failing):
            continue
        key = clean_name(one.key)
        turn = ends[key]
        if turn == len(turns):
            turns.append(({}, {}))
        if isinstance(one, Began):
            turns[turn][0].setdefault(key, one)
        else:
            turns[turn][1][key] = one
            ends[key] = turn + 1
    return turns


def _clean_all(names: Iterable[str]) -> list[str]:
    return [clean_name(name) for name in names]


def _encode_rows(rows: Sequence[Row]) -> str:
    """A JSON array of rows, of which PostgreSQL accepts every text."""
    encoded = msgspec.json.encode([{name: _encode_value(name, value) for name, value in row.items()} for row in rows])
    if b"\\u0000" in encoded:  # perhaps an escaped backslash
        encoded = msgspec.json.encode(_remove_nul(msgspec.json.decode(encoded, type=list[dict[str, str | int | None]])))
    return encoded.decode()


def _encode_value(name: str, value: object) -> object:
    return clean_name(value) if name in _KEYS and isinstance(value, str) else encode_column(value)


def _remove_nul(rows: list[dict[str, str | int | None]]) -> list[dict[str, str | int | None]]:
    return [
        {name: value.replace(_NUL, "\ufffd") if isinstance(value, str) else value for name, value in row.items()}
        for row in rows
    ]
