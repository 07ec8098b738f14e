"""The history of several hosts: tables of the database, which the web service that holds a lease writes.

Every transaction that writes renews the lease `history` first, so a web service that has lost it writes nothing any
more. Its successor reads the read positions after that, and continues without a gap or a duplicate.

The size is computed from the lengths of the columns (`bytes` of each row), because a database does not tell how much of
its files is free. The recording web service reads the sum when it begins, and then maintains it.

Not here: the tables (`common/postgres/store_formats/`), the lease
(`common/postgres/leases.py`).
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Final

import msgspec
from psycopg.errors import QueryCanceled

from yunishard.common.lease_watch import LeaseWatch
from yunishard.common.postgres.connection import LONG_ANSWER_MAX_S, Connection, Database, execute
from yunishard.common.postgres.leases import HeldLease, acquire_lease, read_lease, release_lease, renew_lease
from yunishard.webservice.history.store import HistoryDamaged, HistoryTaken
from yunishard.webservice.history.tables import TIMED, Condition, HistoryTables, Value
from yunishard.webservice.history.writer import HistoryWriter

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
    def open_rows(self, max_s: float) -> Iterator["PostgresTables"]:
        """Read in one transaction. The time limit is that of each statement."""
        try:
            database = self._idle.pop()
        except IndexError:  # another thread reads
            database = _open_reader(self._store)
        try:
            with database.transaction() as connection:
                limit_ms = str(max(1, round(max_s * 1000)))  # 0 would be none
                connection.execute("SELECT set_config('statement_timeout', %s, true)", (limit_ms,))
                yield PostgresTables(connection)
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


# Tables ---------------------------------------------------------------------------------------------------------------


class PostgresTables(HistoryTables):
    """The tables, in one transaction."""

    join = "JOIN"  # the planner chooses the order
    texts = "json_array_elements_text(?)"
    reuses_numbers = False

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.added_bytes = 0
        """Bytes of the rows that were inserted, without the bytes of those that were deleted."""

    def rows(self, table: str, columns: Iterable[str]) -> str:
        return f"json_populate_recordset(NULL::history_{table}, ?)"

    def includes(self, beginnings: Mapping[int, frozenset[str]], queue: str) -> Condition:
        pairs = [(number, one) for number, queues in beginnings.items() for one in _find_topmost(queues)]
        text = (
            "EXISTS (SELECT FROM unnest(?::bigint[], ?::text[]) AS held (number, beginning)"
            " WHERE held.number = entry.partition AND (beginning = 'root'"
            f" OR beginning || '.' = left(lower({queue}) || '.', length(beginning) + 1)))"
        )
        return text, [[number for number, _ in pairs], [one for _, one in pairs]]

    def execute(self, sql: str, values: Sequence[Value] = ()) -> list[tuple[object, ...]]:
        return execute(self._connection, sql, values)

    def change(self, sql: str, values: Sequence[Value], sign: int = 1) -> int:
        counts = "SELECT count(*), coalesce(sum(bytes), 0)::bigint FROM changed"
        [row] = self.execute(f"WITH changed AS ({sql} RETURNING bytes) {counts}", values)
        count, size = msgspec.convert(row, tuple[int, int])
        self.added_bytes += sign * size
        return count

    def clean_name(self, text: str) -> str:
        if len(text) * 4 > NAME_BYTES_MAX and len(whole := text.encode()) > NAME_BYTES_MAX:
            start = whole[: NAME_BYTES_MAX - 40].decode(errors="ignore")
            text = f"{start}...{blake2b(whole, digest_size=16).hexdigest()}"
        return super().clean_name(text)


def _find_topmost(queues: frozenset[str]) -> list[str]:
    """Those that are not below another one."""
    return sorted(one for one in queues if not any(one.startswith(f"{other}.") for other in queues))


# Writing --------------------------------------------------------------------------------------------------------------


class PostgresWriter(HistoryWriter):
    """The tables, for writing, by one thread at a time.

    Raises:
        HistoryTaken: another web service holds the lease.
        OSError: the database cannot be used.
    """

    def __init__(self, database: Database, holder: str, watch: LeaseWatch) -> None:
        self._database = database
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
    def _reading(self) -> Iterator[PostgresTables]:
        with self._database.autocommit() as connection:
            yield PostgresTables(connection)

    @contextmanager
    def _transaction(self) -> Iterator[PostgresTables]:
        began, self._is_sound = time.monotonic(), False
        with self._database.transaction() as connection:
            if not renew_lease(connection, _LEASE, self._epoch, LEASE_S):
                raise HistoryTaken("another web service records it")
            tables = PostgresTables(connection)
            yield tables
        self._renewed_at, self._is_sound = began, True
        self._bytes += tables.added_bytes

    def used_bytes(self) -> int:
        return self._bytes

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
