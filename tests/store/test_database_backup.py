"""Backups of a store, by the commands in docs/operating/backup.md: a dump, and a base backup with archived log."""

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import psycopg
import pytest

from tests import postgres
from tests.partition_worker.journal.hand import encoded
from tests.store.test_cli import OTHER, fill, verify
from yunishard.common.postgres.connection import convert
from yunishard.partition_worker.journal.postgres_journal import PostgresJournals

PLACES: Final = ("--dbname=", "--file=", "--pgdata=")
PAGE: Final = (Path(__file__).parents[2] / "docs" / "operating" / "backup.md").read_text()


def documented(program: str) -> list[str]:
    """The options with which the page calls a program, without names of places."""
    (line,) = (line for line in map(str.strip, PAGE.splitlines()) if line.startswith(f"{program} "))
    return [word for word in line.split() if word.startswith("--") and not word.startswith(PLACES)]


def new_database(place: postgres.Server, name: str) -> str:
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return place.dsn.replace("/postgres?", f"/{name}?")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that the user of the servers may use."""
    found = Path(postgres.run("mktemp", "--directory", "--tmpdir", "backup-XXXXXX").strip())
    yield found
    shutil.rmtree(found)


def test_a_dump_restores_the_system(folder: Path) -> None:
    place, dump = postgres.server(), folder / "yunishard.dump"
    old, new = new_database(place, "dumped"), new_database(place, "restored")
    convert(old, is_new=True)
    fill(old)
    postgres.run(postgres.binaries() / "pg_dump", *documented("pg_dump"), f"--file={dump}", old)
    postgres.run(postgres.binaries() / "pg_restore", *documented("pg_restore"), f"--dbname={new}", dump)
    verify(new)
    verify(old)


def test_a_base_backup_and_the_archived_log_restore_everything_up_to_the_end(folder: Path) -> None:
    archive, base = folder / "archive", folder / "base"
    postgres.run("mkdir", archive)
    place = postgres.Server("archive_mode=on", f"archive_command=cp %p {archive}/%f")
    convert(place.dsn, is_new=True)
    fill(place.dsn)
    options = documented("pg_basebackup")
    postgres.run(postgres.binaries() / "pg_basebackup", *options, f"--pgdata={base}", f"--dbname={place.dsn}")
    with closing(PostgresJournals(place.dsn).open(OTHER, 9)) as journal:
        journal.append(encoded(2000), fresh=False)
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        connection.execute("SELECT pg_switch_wal()")
    place.stop()
    shutil.rmtree(place.data)
    os.rename(base, place.data)
    postgres.run("touch", place.data / "recovery.signal")
    place.settings = (f"restore_command=cp {archive}/%f %p",)
    place.start()
    postgres.wait_for(place, "SELECT WHERE NOT pg_is_in_recovery()")
    with closing(PostgresJournals(place.dsn).open(OTHER, 9)) as journal:
        assert journal.statistics().last == 2000
