"""Rows of a journal with numbers that no worker has written: the journal is put aside with one clear reason, and the
worker that starts empty goes on; or nothing has been lost. Never does a worker end again and again.
"""

import asyncio
import logging
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple

import psycopg
import pytest

from tests import postgres
from tests.machines import PARTITION
from tests.partition_worker.journal.hand import encoded, files_in
from tests.partition_worker.start import CONFIGURE, Start, closed
from yunishard.common.messages.kinds import INT64_MAX
from yunishard.common.messages.rm_messages import AddApplicationRequest, ApplicationRequest, UserGroupInformation
from yunishard.common.names import BROKER, NUMBERS_PER_INCARNATION
from yunishard.common.postgres.leases import HeldLease, acquire_lease
from yunishard.partition_worker.journal.postgres_journal import PostgresJournals
from yunishard.partition_worker.journal.protocol import Journals
from yunishard.partition_worker.journal.sqlite_journal import SqliteJournals
from yunishard.partition_worker.recovery import JournalDamaged

VALUES: Final = (-5, 0, 3, 7, INT64_MAX)

INT32_MAX: Final = 2**31 - 1

BROKER_EPOCH: Final = 1_800_000_000
FIRST: Final = BROKER_EPOCH * NUMBERS_PER_INCARNATION + 1
"""The epoch of the first worker."""


class Numbers(NamedTuple):
    """The columns of a table whose numbers are changed."""

    table: str
    columns: tuple[str, ...]


POSTGRES: Final = (
    Numbers("journals", ("epoch", "begins", "snapshot", "snapshot_epoch", "last")),
    Numbers("steps", ("first", "last", "checksum")),
    Numbers("snapshots", ("number", "epoch", "piece", "checksum")),
)
SQLITE: Final = (
    Numbers("meta", ("epoch", "begins", "snapshot", "last", "checksum")),
    Numbers("steps", ("number", "at", "checksum")),
)


def submit(number: int) -> tuple[ApplicationRequest, int]:
    """The update with this number."""
    user = UserGroupInformation(user="bob", groups=["dev"])
    new = AddApplicationRequest(application_id=f"app-{number}", queue_name="root.batch", ugi=user)
    return ApplicationRequest(new=[new]), number


async def write_journal(journals: Journals, folder: Path) -> None:
    """Two steps, a snapshot after them, and two more steps."""
    first = Start(folder, FIRST, journals=journals)
    start = await first.begins()
    await first.goes_on(start, *CONFIGURE)
    number, snapshot = start.worker.barrier.last, [*start.worker.snapshot()]
    await first.goes_on(start, submit(1), submit(2))
    closed(start)
    with closing(journals.open(PARTITION, FIRST)) as journal:
        journal.write_snapshot(number, snapshot)
        assert journal.record_snapshot(number)


async def start_twice(journals: Journals, folder: Path) -> list[str]:
    """Start two workers, one after the other, each of which goes on; the problem of each."""
    problems = []
    for epoch in (FIRST + 1, FIRST + 2):
        worker = Start(folder, epoch, journals=journals)
        start = await worker.begins()
        problems.append(start.worker.problem)
        updates = [] if start.worker.problem else [submit(start.worker.host.channel.received + 1)]
        await worker.goes_on(start, *(CONFIGURE if start.worker.problem else updates))
        closed(start)
    return problems


def check(problems: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """At most the first worker has found a problem, which was logged once."""
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert problems[1] == ""
    if problems[0]:
        assert len(errors) == 1, errors
        assert problems[0] in errors[0]
        assert "moved to" in errors[0]
    else:
        assert errors == []


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(("table", "columns"), POSTGRES)
def test_a_hostile_number_in_postgres(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, table: str, columns: tuple[str, ...], value: int
) -> None:
    for column in columns:
        store = postgres.new_store()
        with psycopg.connect(store, autocommit=True) as connection:
            acquire_lease(connection, BROKER, HeldLease("host", BROKER_EPOCH, 60.0))
            asyncio.run(write_journal(PostgresJournals(store), tmp_path))
            last = f"ctid = (SELECT max(ctid) FROM {table})"
            with suppress(psycopg.errors.UniqueViolation):  # then it is the number of another row
                number = min(value, INT32_MAX) if column == "piece" else value
                connection.execute(f"UPDATE {table} SET {column} = %s WHERE {last}", (number,))
        caplog.clear()
        check(asyncio.run(start_twice(PostgresJournals(store), tmp_path)), caplog)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(("table", "columns"), SQLITE)
def test_a_hostile_number_in_sqlite(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, table: str, columns: tuple[str, ...], value: int
) -> None:
    for column in columns:
        folder = tmp_path / column
        folder.mkdir()
        journals = SqliteJournals(folder)
        asyncio.run(write_journal(journals, folder))
        with closing(sqlite3.connect(files_in(folder).database)) as file, file:
            last = f"rowid = (SELECT max(rowid) FROM {table})"
            file.execute(f"UPDATE OR REPLACE {table} SET {column} = ? WHERE {last}", (value,))
        caplog.clear()
        check(asyncio.run(start_twice(journals, folder)), caplog)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE journals SET begins = 7", "its row in the table journals is not valid: begins 7, snapshot 2, last 4"),
        ("UPDATE journals SET snapshot = 0", "no snapshot or step of it begins a partition"),
        ("UPDATE journals SET last = 9", "its steps from 5 to 9 are missing"),
        (
            f"UPDATE journals SET epoch = {INT64_MAX}",
            f"its epoch {INT64_MAX} is later than all that broker {BROKER_EPOCH} may grant",
        ),
        (f"UPDATE steps SET last = {INT64_MAX}", f"the steps from 3 to {INT64_MAX} hold other numbers"),
    ],
)
def test_the_reason_names_what_is_not_valid(tmp_path: Path, statement: str, reason: str) -> None:
    store = postgres.new_store()
    with psycopg.connect(store, autocommit=True) as connection:
        acquire_lease(connection, BROKER, HeldLease("host", BROKER_EPOCH, 60.0))
        asyncio.run(write_journal(PostgresJournals(store), tmp_path))
        connection.execute(statement)
    assert asyncio.run(start_twice(PostgresJournals(store), tmp_path)) == [f"its journal cannot be used: {reason}", ""]


@pytest.mark.parametrize("value", [-5, 1, 10**12, INT64_MAX])
@pytest.mark.parametrize("column", ["begins", "snapshot", "last"])
def test_a_number_that_changes_below_a_worker_does_not_make_it_acknowledge_what_is_not_stored(
    column: str, value: int
) -> None:
    store = postgres.new_store()
    journals, stored = PostgresJournals(store), []
    with closing(journals.open(PARTITION, 1)) as journal:
        journal.append(encoded(1, 2), fresh=False)
        with psycopg.connect(store) as connection:
            connection.execute(f"UPDATE journals SET {column} = %s", (value,))
        try:
            for number in (3, 4, 5):
                stored.append(journal.append(encoded(number), fresh=False))
                journal.write_snapshot(number, [b"state"])
                journal.record_snapshot(number)
        except JournalDamaged:
            return
    with closing(journals.open(PARTITION, 2)) as journal:
        assert (stored, journal.statistics().last) == ([3, 4, 5], 5)
