"""Upgrades to a next format that exists only here: files are converted to it, and this build refuses them unchanged.

The files are those of the state directories that releases have left (`write.py`).
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from shutil import copytree
from typing import Any, NamedTuple

import psycopg
import pytest

from tests import postgres
from tests.broker.test_store import facts, keep
from tests.machines import RM
from tests.upgrade.content import PARTITIONS
from tests.upgrade.write import ARCHIVES, extract, name_archive
from yunishard.broker import sqlite_store as record_store
from yunishard.broker.postgres_store import PostgresStore
from yunishard.broker.sqlite_store import SqliteStore
from yunishard.cli.main import main
from yunishard.common.postgres import connection
from yunishard.partition_worker.journal import database
from yunishard.partition_worker.journal.database import JournalReader
from yunishard.partition_worker.journal.files import Files
from yunishard.partition_worker.journal.sqlite_journal import SqliteJournals
from yunishard.webservice.history import sqlite_store as history_store
from yunishard.webservice.history.sqlite_store import SqliteHistory


@pytest.fixture(params=ARCHIVES, ids=name_archive)
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    archive: Path = request.param
    return extract(archive, tmp_path)


def read_folder(folder: Path) -> dict[str, bytes]:
    """The files of a folder, without the indexes of SQLite's logs, which any reader rebuilds."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.suffix != ".lock"}


def count_formats(module: Any) -> int:
    """The latest format of this build."""
    return len([*module.FORMATS.glob("*.sql")])


def invent(module: Any, query: str, folder: Path, patch: pytest.MonkeyPatch, *more: str) -> None:
    """Invent the next format, with another table that the conversion fills from the others."""
    formats = copytree(module.FORMATS, folder / "formats", dirs_exist_ok=True)
    statements = ("CREATE TABLE added (name TEXT NOT NULL)", f"INSERT INTO added {query}", *more)
    (formats / f"{count_formats(module) + 1}.sql").write_text("".join(f"{statement};\n" for statement in statements))
    patch.setattr(module, "FORMATS", formats)


# SQLite files that statements convert ---------------------------------------------------------------------------------


class Kind(NamedTuple):
    """A file that `common/sqlite_file.py` opens."""

    module: Any
    """The module with the folder of statements."""
    path: str
    open: Callable[[Path], Any]
    query: str
    """Selects names that each file has."""
    names: list[str]


RECORD = Kind(record_store, "broker.sqlite", SqliteStore, "SELECT rm FROM managers", [*PARTITIONS])
HISTORY = Kind(
    history_store,
    "history/history.sqlite",
    lambda path: SqliteHistory(path).open_writer(),
    "SELECT full_name FROM partitions",
    sorted(name for names in PARTITIONS.values() for name in names),
)


@pytest.fixture(params=[RECORD, HISTORY], ids=["record", "history"])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


def read_added(path: Path) -> tuple[int, list[str]]:
    """The format, and the names in the other table."""
    with closing(sqlite3.connect(path)) as file:
        (number,) = file.execute("PRAGMA user_version").fetchone()
        has_table = file.execute("SELECT 1 FROM sqlite_schema WHERE name = 'added'").fetchone()
        rows = file.execute("SELECT name FROM added ORDER BY name").fetchall() if has_table else []
    return number, [name for (name,) in rows]


def test_a_file_is_converted_once(state: Path, tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    latest = count_formats(kind.module)
    invent(kind.module, kind.query, tmp_path, monkeypatch)
    for _ in range(2):
        kind.open(state / kind.path).close()
        assert read_added(state / kind.path) == (latest + 1, kind.names)


def test_a_conversion_that_fails_changes_nothing(
    state: Path, tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_added(state / kind.path)
    with monkeypatch.context() as patch:
        invent(kind.module, kind.query, tmp_path, patch, "INSERT INTO added VALUES (NULL)")
        with pytest.raises((OSError, sqlite3.Error), match="NOT NULL constraint failed"):
            kind.open(state / kind.path)
    assert read_added(state / kind.path) == before
    kind.open(state / kind.path).close()


def test_a_converted_file_is_refused_by_the_build_before_and_not_changed(
    state: Path, tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, latest = state / kind.path, count_formats(kind.module)
    with monkeypatch.context() as patch:
        invent(kind.module, kind.query, tmp_path, patch)
        with closing(kind.open(path)):
            copies = read_folder(path.parent)  # as after a crash, with a log that is not empty
    for name, content in copies.items():
        (path.parent / name).write_bytes(content)
    with pytest.raises(OSError, match=f"it has format {latest + 1}, this release supports up to {latest}"):
        kind.open(path)
    left = read_folder(path.parent)
    assert {name: left[name] for name in copies if not name.endswith("-shm")} == {
        name: content for name, content in copies.items() if not name.endswith("-shm")
    }


# Journals, which have the same tables in each format ------------------------------------------------------------------

EPOCH = 1 << 60
"""Above the epochs of the workers that wrote the journals."""


def open_and_close(folder: Path, partition: str) -> list[int]:
    """Open a journal as a worker does; the numbers of its steps."""
    with closing(SqliteJournals(folder).open(partition, EPOCH)) as journal:
        return [step.number for step in journal.read_steps(journal.statistics().begins)]


@pytest.mark.parametrize("partition", [name for names in PARTITIONS.values() for name in names])
def test_a_journal_goes_over_to_the_next_format_when_a_worker_opens_it_and_not_back(
    state: Path, partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, files, latest = state / "journals", Files(state / "journals", partition), database.FORMAT
    with monkeypatch.context() as patch:
        patch.setattr(database, "FORMAT", latest + 1)
        with closing(JournalReader(files)) as reader:
            numbers = [step.number for step in reader.read_steps(reader.read_meta().begins)]
        assert open_and_close(folder, partition) == open_and_close(folder, partition) == numbers
    before = {path: path.read_bytes() for path in (files.database, *(path for _, path in files.snapshots()))}
    refused = f"journal of partition {partition} has format {latest + 1}, and this release reads formats up to {latest}"
    with pytest.raises(OSError, match=refused):
        open_and_close(folder, partition)
    with pytest.raises(OSError, match=refused), closing(JournalReader(files)) as reader:
        reader.read_meta()
    assert {path: path.read_bytes() for path in before} == before


# Stores in PostgreSQL -------------------------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], action: str, store: str) -> tuple[int, str]:
    """Run `yunishard store`; the exit status, and what it has written."""
    status = main(["store", action, store])
    shown = capsys.readouterr()
    return status, shown.out + shown.err


def test_a_store_is_converted_by_migrate_only_and_then_refused_by_the_build_before(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that starts may create tables, but must not convert those of hosts that still run."""
    uri, latest = postgres.new_store(), connection.FORMAT
    with closing(PostgresStore(uri)) as store:
        store.begin(1000)
        keep(store, 1, "text")
    with monkeypatch.context() as patch:
        patch.setattr(connection, "FORMAT", latest + 1)
        earlier = f"the store has format {latest}, this release needs {latest + 1}: run `yunishard store migrate`"
        status, shown = run(capsys, "init", uri)
        assert status == 2
        assert shown.endswith(f"{earlier}; stop all hosts first\n")
        with pytest.raises(OSError, match=earlier), closing(PostgresStore(uri)) as store:
            store.read_records()
        with monkeypatch.context() as failing:
            invent(connection, "SELECT rm FROM managers", tmp_path, failing, "INSERT INTO added VALUES (NULL)")
            assert run(capsys, "migrate", uri)[0] == 2
        invent(connection, "SELECT rm FROM managers", tmp_path, patch)
        assert run(capsys, "migrate", uri) == (0, f"the store has format {latest + 1} now, before {latest}\n")
        done = (0, f"the store has format {latest + 1} already\n")
        assert run(capsys, "migrate", uri) == run(capsys, "init", uri) == done
        with closing(PostgresStore(uri)) as store:
            assert store.read_records() == [facts(RM, "text")]
    for action in ("init", "migrate", "check"):
        status, shown = run(capsys, action, uri)
        assert status == 2
        assert f"the store has format {latest + 1}, and this release reads formats up to {latest}: start the" in shown
    with psycopg.connect(uri) as opened:
        rows = opened.execute("SELECT number, (SELECT name FROM added) FROM store_format").fetchall()
    assert rows == [(latest + 1, RM)]
