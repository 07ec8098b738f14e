"""The broker's record in an SQLite file: who may read it, its formats, and files that cannot be used.

Not here: what every store must do (`test_store.py`).
"""

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.broker.test_store import facts, keep, read_latest
from tests.full_disk import full_disk
from tests.machines import RM
from yunishard.broker.config_versions import VERSIONS_BYTES_MAX
from yunishard.broker.sqlite_store import FORMATS, SqliteStore
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


# Formats --------------------------------------------------------------------------------------------------------------


def write_format(path: Path, number: int, *rows: str) -> None:
    """A file of an earlier format, with these rows."""
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        for each in range(1, number + 1):
            file.executescript((FORMATS / f"{each}.sql").read_text())
        for row in rows:
            file.execute(f"INSERT INTO {row}")
        file.execute(f"PRAGMA user_version={number}")


VERSION = "versions VALUES ('rm-1', 1, 'c', 0, 'alice', 'api', 'b', 'text')"


def test_a_file_of_the_first_format_is_converted_with_its_versions(path: Path) -> None:
    write_format(path, 1, VERSION)
    with closing(SqliteStore(path)) as store:
        assert read_latest(store) == "text"
        assert store.read_records() == []
        keep(store, 2, "another")
        assert store.read_records() == [facts(RM, "another")]


def test_a_file_of_the_second_format_is_converted_with_its_records(path: Path) -> None:
    text = "partitions: []\r\n# Grüße ☃ \U0001f40d \\ \t\"quoted\" 'text'\n"
    records = [facts(RM), facts("rm-2", order=2)]
    texts = [text, "other"]
    encoded = [
        json.dumps({**msgspec.to_builtins(one), "text": each}).replace("'", "''")
        for one, each in zip(records, texts, strict=True)
    ]
    rows = [f"managers VALUES ('{one.rm}', '{data}')" for one, data in zip(records, encoded, strict=True)]
    write_format(path, 2, VERSION, *rows, "managers VALUES ('x', 'no JSON')", "incarnations VALUES (1800)")
    for _ in range(2):
        with closing(SqliteStore(path)) as store:
            assert store.read_records() == records
            assert [read_latest(store, one.rm) for one in records] == texts
            version = store.read_version(RM, 1)
            assert version is not None
            assert version.config == "text"
    with closing(SqliteStore(path)) as store:
        assert store.begin(0) == (1801, "")


def test_a_conversion_that_fails_changes_nothing(path: Path) -> None:
    rows = [
        f'managers VALUES (\'rm-{number}\', \'{{"rm":"rm-{number}","text":"{"#" * 4000}"}}\')' for number in range(64)
    ]
    write_format(path, 2, *rows)
    before = path.read_bytes()
    with full_disk(path.stat().st_size // 2), pytest.raises(OSError, match=r"the record .* cannot be used: "):
        SqliteStore(path)
    assert path.read_bytes()[100:] == before[100:]
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (2,)
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    with closing(SqliteStore(path)) as store:
        assert store._file.execute("SELECT count(*) FROM managers").fetchone() == (64,)


def test_a_conversion_copies_what_the_limits_allow_and_the_new_file_is_small(path: Path) -> None:
    texts = [chr(ord("a") + number) * (4 << 20) for number in range(24)]
    rows = [
        f"versions VALUES ('rm-1', {number}, '{number}', 0, 'alice', 'api', 'b', '{text}')"
        for number, text in enumerate(texts, 1)
    ]
    record = f"""managers VALUES ('rm-1', '{msgspec.json.encode(facts(RM)).decode()}', '{texts[-1]}')"""
    write_format(path, 3, *rows, record, "incarnations VALUES (1800)")
    assert path.stat().st_size > 24 * (4 << 20)
    with closing(SqliteStore(path)) as store:
        numbers = [one.number for one in store.read_histories()[RM].entries]
        assert numbers == [*range(10, 26)], "the configuration in force has another checksum, so it is a version, too"
        assert [one.size for one in store.read_histories()[RM].entries] == [4 << 20] * 16
        assert read_latest(store) == texts[-1]
        assert store.begin(0) == (1801, "")
    assert path.stat().st_size < VERSIONS_BYTES_MAX


def test_a_conversion_that_was_interrupted_begins_again(path: Path) -> None:
    write_format(path, 3, VERSION)
    for suffix in (".new", ".new-wal"):
        path.with_name(path.name + suffix).write_text("half of it")
    with closing(SqliteStore(path)) as store:
        assert read_latest(store) == "text"
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_record_that_another_process_has_open_is_not_converted(path: Path) -> None:
    write_format(path, 3, VERSION)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("INSERT INTO incarnations VALUES (1800)")
        with pytest.raises(OSError, match="another process has it open: end that first"):
            SqliteStore(path)
    with closing(SqliteStore(path)) as store:
        assert store.begin(0) == (1801, "")


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


def test_a_file_of_a_later_format_is_refused_with_both_formats_and_not_changed(path: Path) -> None:
    latest = len([*FORMATS.iterdir()])
    with closing(SqliteStore(path)) as store:
        keep(store, 1, "text")
        with closing(sqlite3.connect(path)) as file:
            file.execute(f"PRAGMA user_version={latest + 1}")
        log = path.with_name(path.name + "-wal")
        copies = {one: one.read_bytes() for one in (path, log)}
    for file_path, content in copies.items():  # as after a crash, with a log that is not empty
        file_path.write_bytes(content)
    with pytest.raises(
        OSError, match=f"it has format {latest + 1}, this release supports up to {latest}; move it away"
    ):
        SqliteStore(path)
    assert {one: one.read_bytes() for one in copies} == copies


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
