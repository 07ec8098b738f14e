"""The SQLite file of the history: files that cannot be used, and room on the disk."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.webservice.history.accounts import MINUTE, NOW, began, portion
from yunishard.common.sqlite_file import LaterFormat
from yunishard.webservice.history.collector import RowBatch
from yunishard.webservice.history.sqlite_store import SqliteHistory, SqliteWriter
from yunishard.webservice.history.store import HistoryDamaged, delete_expired
from yunishard.webservice.history.tables import TIMED

HOUR = 60 * MINUTE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteWriter]:
    with closing(SqliteHistory(path).open_writer()) as one:
        yield one


def write(path: Path, *portions: RowBatch) -> None:
    with closing(SqliteHistory(path).open_writer()) as store:
        store.write(portions)


def read(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as file:
        return file.execute(sql).fetchall()


def file_bytes(store: SqliteWriter) -> int:
    return store.pragma("page_count") * store.pragma("page_size")


# Files that cannot be used --------------------------------------------------------------------------------------------


def test_the_file_is_private(path: Path) -> None:
    SqliteHistory(path).open_writer().close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_of_a_later_release_is_left_alone(path: Path) -> None:
    write(path, portion())
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA user_version=99")
    before = path.read_bytes()
    with pytest.raises(LaterFormat, match="it has format 99, this release supports up to 1"):
        SqliteHistory(path).open_writer()
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"no database at all, but a text of some length" * 9, None])
def test_what_is_no_history_is_damaged(path: Path, content: bytes | None) -> None:
    if content is None:
        with closing(sqlite3.connect(path)) as file:
            file.execute("CREATE TABLE other (id)")
    else:
        path.write_bytes(content)
    with pytest.raises(HistoryDamaged):
        SqliteHistory(path).open_writer()


def test_a_page_that_is_not_as_it_was_is_damage(path: Path) -> None:
    write(path, portion(*(began(f"key-{number:04}") for number in range(500))))
    raw = bytearray(path.read_bytes())
    for start in range(4096 * 3, len(raw), 4096):
        raw[start : start + 2000] = b"\x7f" * 2000
    path.write_bytes(raw)
    with pytest.raises(HistoryDamaged):
        SqliteHistory(path).open_writer()


def test_a_disk_that_is_full_is_no_damage(path: Path) -> None:
    store = SqliteHistory(path).open_writer()
    store.file.execute("PRAGMA max_page_count=60")
    with pytest.raises(OSError, match="full"):
        store.write([portion(*(began(f"key-{number:04}") for number in range(5000)))])
    store.close()
    assert read(path, "SELECT count(*) FROM allocations") == [(0,)]


def test_room_is_used_again_so_that_the_file_grows_no_further(store: SqliteWriter) -> None:
    sizes = []
    for day in range(30):
        at_ns = NOW + day * HOUR
        store.write([portion(*(began(f"k{day}-{number}", at_ns + number) for number in range(2000)))])
        delete_expired(store, bytes_max=1_000_000, age_max_ns=30 * HOUR, now_ns=at_ns + MINUTE)
        sizes.append(file_bytes(store))
    assert max(sizes) < 2_500_000


def test_a_bound_that_became_lower_gives_room_back_to_the_disk_piece_by_piece(store: SqliteWriter) -> None:
    store.write([portion(*(began(f"k{number}-{'x' * 200}", NOW - HOUR + number) for number in range(20_000)))])
    before = file_bytes(store)
    for _ in range(10):
        delete_expired(store, bytes_max=1_000_000, age_max_ns=30 * HOUR, now_ns=NOW)
    assert file_bytes(store) <= 1_100_000 < before


def test_every_table_with_a_time_is_tidied(store: SqliteWriter) -> None:
    named = store.file.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    assert {name for (name,) in named.fetchall()} == {"partitions", *TIMED}
