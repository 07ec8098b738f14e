"""The store of several hosts: the broker's record in PostgreSQL.

Each write is a transaction that locks the broker's row in `leases`, checks its epoch there, and counts itself. If the
connection breaks before the answer, the count shows the outcome; the write is not over before that is known.

Not here: the messages to the record, and the statements (`store.py`).
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import msgspec

from yunishard.broker.candidacy import delete_host
from yunishard.broker.hosts import HostRow
from yunishard.broker.store import Execute, Store
from yunishard.common.messages.control_messages import HostChange
from yunishard.common.names import BROKER
from yunishard.common.postgres.connection import Connection, Database, OutcomeUnknown, delete_journal, execute
from yunishard.common.postgres.leases import read_lease
from yunishard.common.retries import RepeatedFailure

SETTLE_INTERVAL_S: Final = 0.5
"""Pause between two attempts to find out the outcome of a write."""

_LEASE: Final = BROKER

_log = logging.getLogger("core.config")


class Replaced(OSError):
    """A later broker has taken the place of this one."""


class PostgresStore(Store):
    """The record in a database, for one thread at a time."""

    def __init__(self, store: str) -> None:
        self._database = Database(store, "broker")
        self._writes = 0
        """Of this broker, also those that failed."""
        self._failure = RepeatedFailure()
        """To find out the outcome of a write."""
        try:
            self.read_incarnation()
        except OSError:
            self.close()
            raise

    def read_incarnation(self) -> int:
        with self._database.autocommit() as connection:
            row = connection.execute("SELECT epoch FROM leases WHERE name = %s", (_LEASE,)).fetchone()
        return msgspec.convert(row, tuple[int])[0] if row else 0

    def find_leader(self) -> str:
        """The host whose broker leads at present; empty if none does."""
        with self._database.autocommit() as connection:
            held = read_lease(connection, _LEASE)
        return held.holder if held is not None and held.left_s > 0 else ""

    # Writing ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[Execute]:
        with self._database.autocommit() as connection:
            yield partial(execute, connection)

    @contextmanager
    def _transaction(self) -> Iterator[Execute]:
        with self._write() as connection:
            yield partial(execute, connection)

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        """A transaction; raises OSError if it does not take effect, or if a later broker has written."""
        self._writes += 1
        try:
            with self._database.transaction() as connection:
                self._lock(connection, self._writes)
                yield connection
        except OutcomeUnknown as error:
            if self._settle() != self._writes:
                raise OSError(str(error)) from error

    def _lock(self, connection: Connection, writes: int) -> None:
        """Lock the broker's row until the end of the transaction, and write it."""
        row = connection.execute(
            "INSERT INTO leases (name, epoch, writes) VALUES (%(name)s, %(epoch)s, %(writes)s)"
            " ON CONFLICT (name) DO UPDATE SET epoch = greatest(leases.epoch, excluded.epoch),"
            " writes = CASE WHEN leases.epoch > excluded.epoch THEN leases.writes ELSE excluded.writes END"
            " RETURNING epoch",
            {"name": _LEASE, "epoch": self.incarnation, "writes": writes},
        ).fetchone()
        self._check_epoch(*msgspec.convert(row, tuple[int]))

    def _check_epoch(self, epoch: int) -> None:
        if epoch > self.incarnation:
            raise Replaced(f"broker {epoch} has taken the place of this one, {self.incarnation}")

    def _settle(self) -> int:
        """The number of this broker's last write that was carried out, as soon as that is known. The row is written, so
        that the commit waits until a standby has what was read.
        """
        while True:
            try:
                with self._database.transaction() as connection:
                    query = "UPDATE leases SET epoch = epoch WHERE name = %s RETURNING epoch, writes"
                    row = connection.execute(query, (_LEASE,)).fetchone()
            except OSError as error:
                if self._failure.is_news(str(error), time.monotonic()):
                    _log.warning("the outcome of a write is not known yet: %s", error)
                time.sleep(SETTLE_INTERVAL_S)
                continue
            self._failure.is_over()
            epoch, writes = msgspec.convert(row, tuple[int, int]) if row else (0, 0)
            self._check_epoch(epoch)
            return writes if epoch == self.incarnation else 0

    def probe(self) -> None:
        with self._write():
            pass

    def change_host(self, host: str, change: HostChange) -> None:
        with self._write() as connection:
            if change == "remove":
                delete_host(connection, host)
                return
            query = "UPDATE hosts SET is_draining = %s WHERE name = %s RETURNING name"
            if not connection.execute(query, (change == "drain", host)).fetchone():
                raise OSError(f"the store has no host {host}")

    def remove_journal(self, partition: str, epoch: int) -> None:
        with self._write() as connection:
            held = "SELECT 1 FROM journals WHERE partition = %s AND epoch <= %s FOR UPDATE"
            if connection.execute(held, (partition, epoch)).fetchone():
                delete_journal(connection, partition)

    # Reading ---------------------------------------------------------------------------------------------------------

    def read_hosts(self) -> list[HostRow]:
        with self._database.autocommit() as connection:
            rows = connection.execute(
                "SELECT name, address, cores, memory_bytes, release, is_draining,"
                " extract(epoch FROM clock_timestamp() - heartbeat)::float8 FROM hosts ORDER BY name"
            ).fetchall()
        names = ("name", "address", "cores", "memory_bytes", "release", "is_draining", "age_s")
        return [msgspec.convert(dict(zip(names, row, strict=True)), HostRow) for row in rows]

    def count_rms(self) -> int:
        """The RMs that have a record, and those that have versions, readable or not."""
        query = "SELECT (SELECT count(*) FROM managers) + (SELECT count(DISTINCT rm) FROM versions)"
        with self._database.autocommit() as connection:
            return msgspec.convert(connection.execute(query).fetchone(), tuple[int])[0]

    def close(self) -> None:
        self._database.close()
