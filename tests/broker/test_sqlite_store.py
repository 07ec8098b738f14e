"""The broker's record in an SQLite file: who may read it, its size, and files that cannot be used.

Not here: what every store must do (`test_store.py`).
"""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.broker.test_store import facts, keep, read_latest
from tests.machines import RM
from yunishard.broker.sqlite_store import SqliteStore
from yunishard.common import sqlite_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(path)) as opened:
        yield opened


def test_only_the_owner_may_read_it(path: Path) -> None:
    before = os.umask(0)
    try:
        with closing(SqliteStore(path)) as store:
            keep(store, 1, "text")
            modes = {one.name: one.stat().st_mode & 0o777 for one in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert set(modes) > {path.name}
    assert set(modes.values()) == {0o600}


def test_a_record_that_cannot_be_read_is_left_out_and_the_others_are_known(path: Path, store: SqliteStore) -> None:
    keep(store, 1, "text")
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("INSERT INTO managers VALUES ('x', '{\"rm\": 7}')")
        file.execute("INSERT INTO managers VALUES ('y', CAST(X'7B22726DFF' AS TEXT))")
    assert store.read_records() == [facts(RM, "text")]


def test_a_file_that_another_process_has_locked_refuses_the_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "LOCK_MAX_S", 0.01)
    with closing(SqliteStore(path)) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(OSError, match=r"^database is locked$"):
            keep(store, 1, "first")
        other.execute("ROLLBACK")
        assert store.read_histories() == {}
        keep(store, 1, "first")


# Size -----------------------------------------------------------------------------------------------------------------


def test_pages_of_removed_texts_are_used_for_later_ones(path: Path, store: SqliteStore) -> None:
    def change(number: int) -> None:
        keep(store, number, chr(64 + number) * 200_000)
        store.remove_versions(RM, number - 2)
        store._file.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    for number in range(1, 6):
        change(number)
    before = path.stat().st_size
    for number in range(6, 30):
        change(number)
    assert path.stat().st_size <= 1.5 * before


@pytest.mark.parametrize("size", [0, 100_000])
def test_of_a_large_file_only_the_tables_that_a_start_reads_are_checked(
    path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(SqliteStore(path)) as store:
        keep(store, 1, "text" * 50_000)
        rows = store._file.execute("SELECT rootpage FROM sqlite_schema WHERE name='texts'").fetchone()
    with path.open("r+b") as file:  # the root page of the texts
        file.seek((rows[0] - 1) * 4096)
        file.write(b"\xff" * 4096)
    monkeypatch.setattr(sqlite_file, "CHECKED_BYTES_MAX", size or path.stat().st_size)
    if not size:
        with pytest.raises(OSError, match="cannot be used: "):
            SqliteStore(path)
        return
    with closing(SqliteStore(path)) as store:
        assert len(store.read_histories()[RM].entries) == 1
        with pytest.raises(OSError, match="malformed"):
            store.read_version(RM, 1)


# Files that cannot be used --------------------------------------------------------------------------------------------


def test_a_file_that_is_no_record_is_refused_and_left_as_it_is(path: Path) -> None:
    path.write_text("partitions: []\n" * 100)
    with pytest.raises(OSError, match=r"record\.db: the record of RMs and .* cannot be used: .*; move it away"):
        SqliteStore(path)
    assert path.read_text() == "partitions: []\n" * 100


def test_another_database_is_refused_and_left_as_it_is(path: Path) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE things (name)")
    before = path.read_bytes()
    with pytest.raises(OSError, match="cannot be used: it has no format: another program wrote it; move it away"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file or directory; move it away"):
        SqliteStore(tmp_path / "missing" / "record.db")


def test_a_record_of_which_pages_are_damaged_is_refused(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        for number in range(1, 9):
            keep(store, number, "text" * 2_000)
    content = path.read_bytes()
    path.write_bytes(content[:8_000] + bytes(len(content) - 8_000))
    with pytest.raises(OSError, match=r"the record of RMs and .* cannot be used: [^\n]*; move it away[^\n]*$"):
        SqliteStore(path)


# Files that are deleted or replaced while the record is open ----------------------------------------------------------


@pytest.mark.parametrize("deleted", [["", "-wal", "-shm"], [""], ["-wal"], ["-shm", "-wal"]])
def test_a_record_that_was_deleted_is_written_again_and_nothing_is_lost(
    path: Path, store: SqliteStore, deleted: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert store.begin(7) == (7, "")
    keep(store, 1, "first")
    assert store.has_own_files()
    for suffix in deleted:
        path.with_name(path.name + suffix).unlink()
    assert not store.has_own_files()
    keep(store, 2, "second")
    assert [one.getMessage() for one in caplog.records] == [
        f"{path} was deleted while the broker runs: it is written again, and nothing is lost"
    ]
    assert store.has_own_files()
    assert path.stat().st_mode & 0o777 == 0o600
    with closing(SqliteStore(path)) as another:
        assert [one.number for one in another.read_histories()[RM].entries] == [1, 2]
        assert read_latest(another) == "second"
        assert another.read_records() == [facts(RM, "second")]
        assert another.begin(0) == (8, "")


def test_a_file_in_place_of_the_record_is_left_alone_and_changes_are_refused(path: Path, store: SqliteStore) -> None:
    keep(store, 1, "first")
    path.rename(path.with_name("moved"))
    path.write_text("another file")
    with pytest.raises(OSError, match="is another file than the one with which the broker started: changes are ref"):
        keep(store, 2, "second")
    assert path.read_text() == "another file"
    assert read_latest(store) == "first"
    path.unlink()
    keep(store, 2, "second")
    assert read_latest(store) == "second"


def test_a_record_whose_folder_was_deleted_refuses_changes_until_the_folder_is_there(
    path: Path, store: SqliteStore
) -> None:
    keep(store, 1, "first")
    shutil.rmtree(path.parent)
    with pytest.raises(OSError, match=r"was deleted while the broker runs, and cannot be written again: No such file"):
        keep(store, 2, "second")
    path.parent.mkdir()
    store.probe()
    with closing(SqliteStore(path)) as another:
        assert read_latest(another) == "first"
