"""Journals in PostgreSQL: a row for each group commit, fenced by the journal's row.

Every transaction that changes a journal locks its row in `journals`, and checks the epoch there. The lock puts these
transactions in an order: a successor updates the row when it opens the journal, so what it reads then is final.

Appending is one statement, so it takes one round trip. It does not update the row: as long as another session reads
from an earlier state of the database (a backup, a report), PostgreSQL keeps all versions of a row, and each update
would visit them. A group that is repeated after an unknown outcome has the same first step, which is the key, so it is
stored once. If its first attempt is carried out after the steps were deleted, it stores steps that no reader needs.

Appending also checks that the store still has the group before, as a failover may lose what a server acknowledged if
its high availability fails (two primaries, a standby that is not synchronous). The worker ends then, and the next one
recovers what is left, rather than continue after a gap.

A snapshot is written in pieces under the worker's epoch, and counts once the row names it. So an earlier worker's
snapshot replaces nothing.
"""

import zlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain
from typing import Final

import msgspec

from yunishard.common.messages.journal_messages import Step
from yunishard.common.names import BROKER, NUMBERS_PER_INCARNATION
from yunishard.common.postgres.connection import (
    ASIDE,
    JOURNAL_TABLES,
    LONG_ANSWER_MAX_S,
    Connection,
    Database,
    delete_journal,
)
from yunishard.partition_worker.journal.protocol import (
    Fenced,
    Journal,
    Journals,
    ReadableJournal,
    Statistics,
    StepReader,
)
from yunishard.partition_worker.recovery import JournalDamaged

PAGE_ROWS: Final = 32
"""Group commits that are read at a time."""

SLICE_ROWS: Final = 128
"""Rows deleted at a time, so that a transaction is short."""

_LAST_STORED: Final = (
    "coalesce((SELECT last FROM steps WHERE partition = %(partition)s ORDER BY first DESC LIMIT 1), 0)"
)

_APPEND: Final = (
    "INSERT INTO steps SELECT partition, %(first)s, %(last)s, %(content)s, %(checksum)s FROM journals"  # noqa: S608
    f" WHERE partition = %(partition)s AND epoch = %(epoch)s"
    f" AND begins >= %(begins)s AND greatest(last, {_LAST_STORED}) = %(stored)s"
    " FOR UPDATE ON CONFLICT DO NOTHING"
)

_APPEND_FRESH: Final = (
    "WITH held AS (UPDATE journals SET begins = %(first)s, snapshot = 0, last = %(last)s"
    " WHERE partition = %(partition)s AND epoch = %(epoch)s AND last < %(first)s RETURNING partition)"
    " INSERT INTO steps SELECT partition, %(first)s, %(last)s, %(content)s, %(checksum)s FROM held"
)
"""This one also checks the order in the row: carried out late, it would declare later steps to be the first ones. A
row with the same first step is an error, which also undoes the update: it would be declared to be the first one."""

_decode_group = msgspec.msgpack.Decoder(list[bytes]).decode
_decode_step = msgspec.msgpack.Decoder(Step).decode


class _Number(msgspec.Struct, array_like=True):
    """The first field of a `Step`."""

    number: int


_decode_number = msgspec.msgpack.Decoder(_Number).decode


class _Row(msgspec.Struct, frozen=True, array_like=True):
    """The journal's row without its key."""

    begins: int
    snapshot: int
    snapshot_epoch: int
    last: int
    """The latest step; in the table, that of the last update of the row."""


def _check_row(row: _Row) -> _Row:
    """The same row. Raises JournalDamaged if no worker can have written it."""
    follows = row.begins == row.snapshot + 1 if row.snapshot else row.begins <= row.last + 1
    if row.begins < 1 or row.snapshot < 0 or not follows:
        numbers = f"begins {row.begins}, snapshot {row.snapshot}, last {row.last}"
        raise JournalDamaged(f"its row in the table journals is not valid: {numbers}")
    return row


class _Reading(StepReader):
    """The methods that read a journal, open for reading or writing."""

    _database: Database
    _partition: str

    @abstractmethod
    def read_meta(self) -> _Row:
        """The present row of the journal."""

    def _read_page(self, first: int) -> tuple[int, int, Iterator[Step]]:
        last = self.read_meta().last
        with self._database.autocommit() as connection:
            rows = connection.execute(
                "SELECT first, last, content, checksum FROM steps WHERE partition = %(partition)s"
                " AND last >= %(step)s AND first >= coalesce((SELECT max(first) FROM steps"
                " WHERE partition = %(partition)s AND first <= %(step)s), 0) ORDER BY first LIMIT %(rows)s",
                {"partition": self._partition, "step": first, "rows": PAGE_ROWS},
            ).fetchall()
        groups = (_decode_row(*msgspec.convert(row, tuple[int, int, bytes, int])) for row in rows)
        return self.read_meta().begins, last, chain.from_iterable(groups)

    def _read_pieces(self, row: _Row) -> Iterator[bytes]:
        """The pieces of the snapshot that this row names."""
        at = 0
        while True:
            with self._database.autocommit() as connection:
                found = connection.execute(
                    "SELECT content, checksum FROM snapshots"
                    " WHERE partition = %s AND number = %s AND epoch = %s AND piece = %s",
                    (self._partition, row.snapshot, row.snapshot_epoch, at),
                ).fetchone()
            if found is None:
                break
            content, checksum = msgspec.convert(found, tuple[bytes, int])
            if zlib.crc32(content) != checksum:
                raise JournalDamaged(f"piece {at} of the snapshot at step {row.snapshot} does not match its checksum")
            if not content:
                return
            yield content
            at += 1
        raise JournalDamaged(f"the snapshot at step {row.snapshot} ends after {at} pieces")


class PostgresReader(_Reading, ReadableJournal):
    """A journal that is only read, also while a worker writes to it."""

    def __init__(self, store: str, partition: str) -> None:
        self._partition, self._database = partition, Database(store, f"reader of {partition}")

    def read_meta(self) -> _Row:
        with self._database.autocommit() as connection:
            row = connection.execute(
                f"SELECT begins, snapshot, snapshot_epoch, greatest(last, {_LAST_STORED})"  # noqa: S608
                " FROM journals WHERE partition = %(partition)s",
                {"partition": self._partition},
            ).fetchone()
        if row is None:
            raise FileNotFoundError(f"the store has no journal of {self._partition}")
        return _check_row(msgspec.convert(row, _Row))

    def open_snapshot(self) -> tuple[_Row, Iterator[bytes] | None]:
        while True:
            row = self.read_meta()
            try:
                return row, iter([*self._read_pieces(row)]) if row.snapshot else None
            except JournalDamaged:
                now = self.read_meta()
                if (now.snapshot, now.snapshot_epoch) == (row.snapshot, row.snapshot_epoch):
                    raise  # else a running worker has just replaced it

    def find_first(self) -> int:
        with self._database.autocommit() as connection:
            query = "SELECT min(first) FROM steps WHERE partition = %s"
            found = msgspec.convert(connection.execute(query, (self._partition,)).fetchone(), tuple[int | None])[0]
        return self.read_meta().begins if found is None else found

    def close(self) -> None:
        self._database.close()


class PostgresJournal(_Reading, Journal):
    """The journal of one partition. See `Journal` for the errors."""

    def __init__(self, store: str, partition: str, epoch: int) -> None:
        self.has_garbage = True
        self._store, self._partition, self._epoch = store, partition, epoch
        self._name = f"worker {partition}#{epoch}"
        self._database = Database(store, self._name)
        self._is_unsettled = False
        """Whether the outcome of the last call of `append` is unknown."""
        self._trimmed = 0
        """The latest row of steps that was deleted: a search from the first one would visit all that the server keeps
        for others that still read.
        """
        self._key = (partition, epoch)
        try:
            self._row = self._claim()
            self._stored_bytes = self._count_bytes()
        except BaseException:
            self.close()
            raise

    def _claim(self) -> _Row:
        """Fence earlier workers, and read the row in a transaction that begins after that: whatever the isolation level
        is, it reads everything that they have committed.
        """
        with self._database.autocommit() as connection:
            done = connection.execute(
                "INSERT INTO journals (partition, epoch) VALUES (%s, %s) ON CONFLICT (partition)"
                " DO UPDATE SET epoch = excluded.epoch WHERE journals.epoch <= excluded.epoch",
                self._key,
            )
            if not done.rowcount:
                _check_epoch(connection, self._partition)
                raise Fenced(f"another worker has the journal of partition {self._partition}, under a later epoch")
        with self._hold_row() as connection:
            return _check_row(self._read_row(connection))

    def _read_row(self, connection: Connection) -> _Row:
        """The row, which this transaction has locked; a statement of its own, so that it reads what was committed until
        then.
        """
        row = connection.execute(
            f"UPDATE journals SET last = greatest(last, {_LAST_STORED})"  # noqa: S608
            " WHERE partition = %(partition)s RETURNING begins, snapshot, snapshot_epoch, last",
            {"partition": self._partition},
        ).fetchone()
        return msgspec.convert(row, _Row)

    def _count_bytes(self) -> int:
        sizes = " UNION ALL ".join(
            f"SELECT octet_length(content) AS size FROM {table} WHERE partition = %(partition)s"  # noqa: S608
            for table in ("steps", "snapshots")
        )
        with self._database.autocommit() as connection:
            query = f"SELECT coalesce(sum(size), 0)::bigint FROM ({sizes}) AS sizes"  # noqa: S608
            return msgspec.convert(connection.execute(query, {"partition": self._partition}).fetchone(), tuple[int])[0]

    def read_meta(self) -> _Row:
        """The row as this worker has left it: no other process may change it. `last` is the latest step that it has
        read or stored itself.
        """
        return self._row

    # Steps -----------------------------------------------------------------------------------------------------------

    def append(self, steps: Sequence[bytes], *, fresh: bool) -> int:
        numbered = [(_decode_number(step).number, step) for step in steps]
        if self._is_unsettled:
            self._settle(numbered)
        needed = self._row.begins if self._row.last < self._row.begins else self._row.last + 1
        unwritten = [(number, step) for number, step in numbered if number >= needed]
        if unwritten:
            self._is_unsettled = True
            self._append(unwritten, fresh=fresh and len(unwritten) == len(numbered))
            self._is_unsettled = False
        return numbered[-1][0]

    def _append(self, steps: Sequence[tuple[int, bytes]], *, fresh: bool) -> None:
        first, last = steps[0][0], steps[-1][0]
        content = msgspec.msgpack.encode([step for _, step in steps])
        values = {
            "partition": self._partition,
            "epoch": self._epoch,
            "first": first,
            "last": last,
            "begins": self._row.begins,
            "stored": self._row.last,
            "content": content,
            "checksum": zlib.crc32(content),
        }
        with self._database.autocommit() as connection:
            done = connection.execute(_APPEND_FRESH if fresh else _APPEND, values)
        if not done.rowcount:
            self._settle(steps)  # raises Fenced or JournalDamaged, if that is why
            raise OSError("an earlier commit has been carried out only now")
        self._stored_bytes += len(content)
        self._row = msgspec.structs.replace(self._row, last=last)
        if fresh:
            self._row = msgspec.structs.replace(self._row, begins=first, snapshot=0)
            self.has_garbage = True

    def _settle(self, steps: Sequence[tuple[int, bytes]]) -> None:
        """Find out which of these steps the last commit has stored."""
        known = self._row
        with self._hold_row() as connection:
            row = self._read_row(connection)
            found = connection.execute(
                "SELECT first, content FROM steps WHERE partition = %s AND first > %s ORDER BY first",
                (self._partition, known.last),
            ).fetchall()
        if row.last < known.last or row.begins < known.begins:
            raise JournalDamaged(
                f"the store is back at step {row.last} and snapshot {row.snapshot}, although it acknowledged"
                f" step {known.last} and snapshot {known.snapshot}: has a failover promoted a server that was not"
                " synchronous?"
            )
        own, last = {step for _, step in steps}, known.last
        for first, content in msgspec.convert(found, list[tuple[int, bytes]]):
            group = _split_group(content)
            if not own.issuperset(group):
                raise JournalDamaged(f"the store has steps from {first} on that this worker has not written")
            last = first + len(group) - 1
        if last != row.last:
            raise JournalDamaged(f"its row names {row.last} as the latest step, and its steps end at {last}")
        self._row = row

    @contextmanager
    def _hold_row(self) -> Iterator[Connection]:
        """A transaction that has locked the row under our epoch. It also writes the row, so that the commit waits until
        a standby has everything that this transaction reads.
        """
        with self._database.transaction() as connection:
            query = "UPDATE journals SET epoch = epoch WHERE partition = %s AND epoch = %s"
            if not connection.execute(query, self._key).rowcount:
                raise Fenced("another worker has the partition now")
            yield connection

    # Snapshots -------------------------------------------------------------------------------------------------------

    def write_snapshot(self, number: int, content: Iterable[bytes]) -> None:
        key = (self._partition, number, self._epoch)
        name = f"snapshot of {self._partition}#{self._epoch}"
        with (
            closing(Database(self._store, name, answer_max_s=LONG_ANSWER_MAX_S)) as database,
            database.transaction() as connection,
        ):
            connection.execute("DELETE FROM snapshots WHERE partition = %s AND number = %s AND epoch = %s", key)
            pieces = chain(filter(None, content), [b""])  # an empty piece is the end
            rows = ((*key, at, piece, zlib.crc32(piece)) for at, piece in enumerate(pieces))
            connection.cursor().executemany("INSERT INTO snapshots VALUES (%s, %s, %s, %s, %s, %s)", rows)

    def record_snapshot(self, number: int) -> bool:
        self.has_garbage = True
        if number < self._row.begins:
            return False
        with self._hold_row() as connection:
            connection.execute(
                "UPDATE journals SET begins = %s, snapshot = %s, snapshot_epoch = epoch WHERE partition = %s",
                (number + 1, number, self._partition),
            )
            row = self._read_row(connection)
        self._row = msgspec.structs.replace(row, last=self._row.last)  # `append` finds out whether later ones are ours
        self._stored_bytes = self._count_bytes()
        return True

    def read_snapshot(self) -> Iterator[bytes] | None:
        return self._read_pieces(self._row) if self._row.snapshot else None

    # Deletion --------------------------------------------------------------------------------------------------------

    def trim(self) -> None:
        row = self._row
        with self._hold_row() as connection:
            deleted = connection.execute(
                "DELETE FROM steps WHERE partition = %(partition)s AND first IN (SELECT first FROM steps"
                " WHERE partition = %(partition)s AND first >= %(first)s AND last < %(begins)s"
                " ORDER BY first LIMIT %(rows)s) RETURNING first",
                {
                    "partition": self._partition,
                    "first": self._trimmed,
                    "begins": row.begins,
                    "rows": SLICE_ROWS,
                },
            ).fetchall()
            if not deleted:  # one that is being written has a later number
                connection.execute(
                    "DELETE FROM snapshots WHERE partition = %s AND number < %s AND (number, epoch) <> (%s, %s)",
                    (self._partition, row.begins, row.snapshot, row.snapshot_epoch),
                )
        self._trimmed = max([self._trimmed, *(first for (first,) in msgspec.convert(deleted, list[tuple[int]]))])
        self.has_garbage = bool(deleted)
        if not deleted:
            self._stored_bytes = self._count_bytes()

    def used_bytes(self) -> int:
        return self._stored_bytes

    def compact(self) -> None:
        while self.has_garbage:
            self.trim()

    def statistics(self) -> Statistics:
        row = self._row
        return Statistics(row.begins, row.snapshot, max(row.last, row.snapshot), self._stored_bytes)

    def delete(self) -> None:
        self.close()
        self._database = Database(self._store, self._name, answer_max_s=LONG_ANSWER_MAX_S)
        try:
            with self._hold_row() as connection:
                delete_journal(connection, self._partition)
        finally:
            self.close()

    def close(self) -> None:
        self._database.close()


def _check_epoch(connection: Connection, partition: str) -> None:
    """Raise JournalDamaged if the epoch of a journal is later than all that brokers have granted."""
    found = connection.execute(
        "SELECT journals.epoch, leases.epoch FROM journals, leases WHERE partition = %s AND name = %s",
        (partition, BROKER),
    ).fetchone()
    if found is None:
        return
    epoch, broker = msgspec.convert(found, tuple[int, int])
    if epoch >= (broker + 1) * NUMBERS_PER_INCARNATION:
        raise JournalDamaged(f"its epoch {epoch} is later than all that broker {broker} may grant")


def _split_group(content: bytes) -> list[bytes]:
    """The encoded steps of a group commit. Raises JournalDamaged."""
    try:
        return _decode_group(content)
    except msgspec.MsgspecError as error:
        raise JournalDamaged(f"a group of steps cannot be decoded: {error}") from None


def _decode_row(first: int, last: int, content: bytes, checksum: int) -> Iterator[Step]:
    """The steps of a group commit, verified."""
    if zlib.crc32(content) != checksum:
        raise JournalDamaged(f"step {first} or a later one up to {last} does not match its checksum")
    try:
        steps = [_decode_step(step) for step in _decode_group(content)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise JournalDamaged(f"the steps from {first} to {last} cannot be decoded: {error}") from None
    if len(steps) != last - first + 1 or any(step.number != first + at for at, step in enumerate(steps)):
        raise JournalDamaged(f"the steps from {first} to {last} hold other numbers")
    return iter(steps)


class PostgresJournals(Journals):
    """The journals in a database."""

    def __init__(self, store: str) -> None:
        self._store = store

    def open(self, partition: str, epoch: int) -> PostgresJournal:
        return PostgresJournal(self._store, partition, epoch)

    def epochs(self) -> dict[str, int]:
        with closing(Database(self._store, "journals")) as database, database.autocommit() as connection:
            rows = connection.execute(
                "SELECT partition, epoch FROM journals WHERE partition NOT LIKE %s ORDER BY partition", ("% %",)
            ).fetchall()
        return dict(msgspec.convert(rows, list[tuple[str, int]]))

    def set_aside(self, partition: str, epoch: int) -> str:
        aside = partition + ASIDE
        with (
            closing(Database(self._store, f"worker {partition}#{epoch}", answer_max_s=LONG_ANSWER_MAX_S)) as database,
            database.transaction() as connection,
        ):
            query = "SELECT epoch <= %s FROM journals WHERE partition = %s FOR UPDATE"
            if connection.execute(query, (epoch, partition)).fetchone() != (True,):
                with suppress(JournalDamaged):  # then no worker has that epoch
                    _check_epoch(connection, partition)
                    raise Fenced(f"another worker has the journal of partition {partition}")
            for table in JOURNAL_TABLES:
                connection.execute(f"DELETE FROM {table} WHERE partition = %s", (aside,))  # noqa: S608
                statement = f"UPDATE {table} SET partition = %s WHERE partition = %s"  # noqa: S608
                connection.execute(statement, (aside, partition))
        return f"partition {aside!r} of the store"
