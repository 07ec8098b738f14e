"""The store of several hosts: the broker's record in PostgreSQL.

Each write is a transaction that locks the broker's row in `leases`, checks its epoch there, and counts itself. If the
connection breaks before the answer, the count shows the outcome; the write is not over before that is known.

Not here: the messages to the record, and what the methods promise (`store.py`).
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from yunishard.broker.config_versions import VersionHistory
from yunishard.broker.host_lease import delete_host
from yunishard.broker.hosts import HostRow
from yunishard.broker.registry import RmRecord
from yunishard.broker.store import COLUMNS, Store, build_histories, build_records, build_version, compute_digest
from yunishard.common.messages.control_messages import ConfigVersion, HostChange, ManagerRecord
from yunishard.common.messages.kinds import INT64_MAX
from yunishard.common.names import BROKER
from yunishard.common.postgres.connection import Connection, Database, OutcomeUnknown, delete_journal
from yunishard.common.postgres.leases import read_lease
from yunishard.common.process.repeated_failure import RepeatedFailure

SETTLE_INTERVAL_S: Final = 0.5
"""Pause between two attempts to find out the outcome of a write."""

_LEASE: Final = BROKER

_COLUMNS: Final = ", ".join(COLUMNS)

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
    def _transaction(self) -> Iterator[Connection]:
        """All statements within take effect, or none. Raises OSError then, or if a later broker has written."""
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
        with self._transaction():
            pass

    def write(self, rm: str, record: ManagerRecord) -> None:
        with self._transaction() as connection:
            if record.facts:
                connection.execute(
                    "INSERT INTO managers VALUES (%s, %s) ON CONFLICT (rm) DO UPDATE SET facts = excluded.facts",
                    (rm, record.facts.decode()),
                )
            else:
                connection.execute("DELETE FROM managers WHERE rm = %s", (rm,))
            if record.version is not None:
                _write_version(connection, rm, record.version)

    def remove_versions(self, rm: str, up_to: int) -> None:
        with self._transaction() as connection:
            _remove(connection, "rm = %s AND number <= %s", rm, up_to)

    def rebase(self, rm: str, base: str) -> None:
        with self._transaction() as connection:
            connection.execute(
                "UPDATE versions SET base = %s WHERE rm = %s"
                " AND number = (SELECT max(number) FROM versions WHERE rm = %s)",
                (base, rm, rm),
            )

    def change_host(self, host: str, change: HostChange) -> None:
        with self._transaction() as connection:
            if change == "remove":
                delete_host(connection, host)
                return
            query = "UPDATE hosts SET is_draining = %s WHERE name = %s RETURNING name"
            if not connection.execute(query, (change == "drain", host)).fetchone():
                raise OSError(f"the store has no host {host}")

    def remove_journal(self, partition: str, epoch: int) -> None:
        with self._transaction() as connection:
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

    def read_records(self) -> list[RmRecord]:
        with self._database.autocommit() as connection:
            rows = connection.execute("SELECT rm, facts FROM managers").fetchall()
        return build_records((rm, facts.encode()) for rm, facts in msgspec.convert(rows, list[tuple[str, str]]))

    def read_histories(self) -> dict[str, VersionHistory]:
        with self._database.autocommit() as connection:
            query = f"SELECT rm, {_COLUMNS} FROM versions ORDER BY rm, number"  # noqa: S608
            return build_histories(connection.execute(query).fetchall())

    def count_rms(self) -> int:
        """The RMs that have a record, and those that have versions, readable or not."""
        query = "SELECT (SELECT count(*) FROM managers) + (SELECT count(DISTINCT rm) FROM versions)"
        with self._database.autocommit() as connection:
            return msgspec.convert(connection.execute(query).fetchone(), tuple[int])[0]

    def read_version(self, rm: str, number: int) -> ConfigVersion | None:
        with self._database.autocommit() as connection:
            row = connection.execute(
                f"SELECT digest, config, {_COLUMNS} FROM versions LEFT JOIN texts USING (digest)"  # noqa: S608
                " WHERE rm = %s AND number = %s",
                (rm, min(number, INT64_MAX)),
            ).fetchone()
        if row is None:
            return None
        digest, config, *fields = row
        return build_version(rm, *msgspec.convert((digest, config), tuple[str, bytes | None]), *fields)

    def close(self) -> None:
        self._database.close()


def _write_version(connection: Connection, rm: str, version: ConfigVersion) -> None:
    """Write a version in place of those from its number on."""
    config = version.config.encode()
    digest = compute_digest(config)
    _remove(connection, "rm = %s AND (number >= %s OR number < 1)", rm, version.number)
    connection.execute(
        "INSERT INTO texts VALUES (%s, %s) ON CONFLICT (digest) DO UPDATE SET config = excluded.config"
        " WHERE texts.config <> excluded.config",  # damaged
        (digest, config),
    )
    values = [rm, *(getattr(version, name) for name in COLUMNS), digest]
    places = ", ".join(["%s"] * len(values))
    connection.execute(f"INSERT INTO versions (rm, {_COLUMNS}, digest) VALUES ({places})", values)  # noqa: S608


def _remove(connection: Connection, condition: str, rm: str, number: int) -> None:
    """Remove versions, and the texts that no other version has."""
    query = f"DELETE FROM versions WHERE {condition} RETURNING digest"  # noqa: S608
    digests = [digest for (digest,) in connection.execute(query, (rm, number)).fetchall()]
    connection.execute(
        "DELETE FROM texts WHERE digest = ANY(%s)"
        " AND NOT EXISTS (SELECT 1 FROM versions WHERE versions.digest = texts.digest)",
        (digests,),
    )
