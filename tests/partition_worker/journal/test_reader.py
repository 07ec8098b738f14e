"""Whoever reads finds what was written, or that something is wrong with it."""

import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.partition_worker.journal.hand import encoded, files_in, found_in, numbers_in, opened, reader, record_snapshot
from yunishard.partition_worker.journal.database import PAGE_STEPS, decode_step, make_row
from yunishard.partition_worker.journal.sqlite_journal import SqliteJournal
from yunishard.partition_worker.recovery import JournalDamaged


def kept(folder: Path, *numbers: int, size: int = 100) -> SqliteJournal:
    database = opened(files_in(folder), 1)
    database.append(encoded(*numbers, size=size), fresh=False)
    return database


def test_a_journal_that_was_just_begun_is_empty(tmp_path: Path) -> None:
    opened(files_in(tmp_path), 1)
    found = found_in(files_in(tmp_path))
    assert (found.snapshot, found.snapshot_number, found.steps) == (None, 0, [])


def test_steps_follow_the_snapshot(tmp_path: Path) -> None:
    database = kept(tmp_path, *range(1, 11))
    record_snapshot(database, 7, b"seven")
    found = found_in(files_in(tmp_path))
    assert (found.snapshot, found.snapshot_number) == (b"seven", 7)
    assert [step.number for step in found.steps] == [8, 9, 10]
    assert [row.number for row in reader(files_in(tmp_path)).read_steps(1)] == list(range(1, 11))


def test_nothing_after_the_snapshot_is_nothing_missing(tmp_path: Path) -> None:
    database = kept(tmp_path, 1, 2)
    record_snapshot(database, 2, b"two")
    while database.has_garbage:
        database.trim()
    assert numbers_in(files_in(tmp_path)) == []
    assert reader(files_in(tmp_path)).find_first() == 3


def test_a_snapshot_that_is_gone_is_damage(tmp_path: Path) -> None:
    record_snapshot(kept(tmp_path, 1, 2), 2)
    files_in(tmp_path).snapshot(2).unlink()
    with pytest.raises(JournalDamaged, match="snapshot-2 is missing"):
        found_in(files_in(tmp_path))


@pytest.mark.parametrize("missing", [1, 2, PAGE_STEPS, PAGE_STEPS + 1, PAGE_STEPS + 50])
def test_a_step_that_is_missing_is_damage(tmp_path: Path, missing: int) -> None:
    database = kept(tmp_path, *range(1, PAGE_STEPS + 51), size=1)
    database._file.execute("DELETE FROM steps WHERE number = ?", (missing,))
    with pytest.raises(JournalDamaged, match="missing"):
        numbers_in(files_in(tmp_path))


def test_a_step_behind_the_last_one_is_damage(tmp_path: Path) -> None:
    database = kept(tmp_path, 1, 2)
    database._file.execute("UPDATE meta SET last = 1")
    with pytest.raises(JournalDamaged, match="step 2 is after the last recorded step 1"):
        numbers_in(files_in(tmp_path))


@pytest.mark.parametrize(
    "change", ["at = at + 1", "kind = 'Settings'", "step = zeroblob(9)", "checksum = checksum + 1", "number = 9"]
)
def test_a_step_that_is_not_as_it_was_is_damage(tmp_path: Path, change: str) -> None:
    database = kept(tmp_path, 1, 2, 3)
    database._file.execute(f"UPDATE steps SET {change} WHERE number = 3")
    with pytest.raises(JournalDamaged):
        numbers_in(files_in(tmp_path))


def test_a_step_of_another_release_is_damage() -> None:
    with pytest.raises(JournalDamaged, match="step 4 cannot be decoded"):
        decode_step(make_row(4, 1.0, "tick", b"\x91\x04"))
    with pytest.raises(JournalDamaged, match="step 4 holds the number 5"):
        decode_step(make_row(4, 1.0, "tick", encoded(5)[0]))


def test_a_running_worker_may_delete_what_is_not_needed_while_somebody_reads(tmp_path: Path) -> None:
    database = kept(tmp_path, *range(1, 3 * PAGE_STEPS + 1), size=1)
    reading = reader(files_in(tmp_path)).read_steps(1)
    seen = [next(reading).number for _ in range(10)]
    record_snapshot(database, 2500, b"")
    while database.has_garbage:
        database.trim()
    database.append(encoded(3 * PAGE_STEPS + 1), fresh=False)
    seen += [row.number for row in reading]
    assert seen == [*range(1, PAGE_STEPS + 1), *range(2501, 3 * PAGE_STEPS + 2)]


def test_a_reader_keeps_nobody_from_emptying_the_log(tmp_path: Path) -> None:
    database = kept(tmp_path, *range(1, 2 * PAGE_STEPS + 1), size=1)
    reading = reader(files_in(tmp_path)).read_steps(1)
    next(reading)
    busy, written, moved = database._file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert (busy, written, moved) == (0, 0, 0)
    assert len(list(reading)) == 2 * PAGE_STEPS - 1


def test_large_steps_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    kept(tmp_path, *range(1, 12), size=1 << 20)
    _, _, page = reader(files_in(tmp_path))._read_page(1)
    assert [row.number for row in page] == list(range(1, 9))
    assert numbers_in(files_in(tmp_path)) == list(range(1, 12))


def test_no_byte_of_the_database_may_be_another(tmp_path: Path) -> None:
    kept(tmp_path, *range(1, 121), size=150).close()
    path = files_in(tmp_path).database
    good = path.read_bytes()
    expected = list(range(1, 121))
    chance = random.Random(6)
    noticed = 0
    for place in [*range(100), *(chance.randrange(len(good)) for _ in range(200))]:
        for other in files_in(tmp_path).all():
            other.unlink()
        path.write_bytes(good[:place] + bytes([good[place] ^ (1 << chance.randrange(8))]) + good[place + 1 :])
        try:
            opened(files_in(tmp_path), 2).close()
            assert numbers_in(files_in(tmp_path)) == expected, place
        except (JournalDamaged, OSError, sqlite3.Error):  # OSError: the format of a later release
            noticed += 1
    assert noticed > 150


def test_where_there_is_no_journal_nobody_makes_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no journal"):
        reader(files_in(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("column", ["epoch", "begins", "snapshot", "last", "checksum"])
def test_a_journal_that_says_something_else_than_a_number_about_itself_is_damaged(tmp_path: Path, column: str) -> None:
    kept(tmp_path, 1, 2)
    file = sqlite3.connect(files_in(tmp_path).database, isolation_level=None)
    file.execute("PRAGMA writable_schema=ON")
    file.execute("UPDATE sqlite_schema SET sql = replace(sql, ' STRICT', '') WHERE name = 'meta'")
    file.execute("PRAGMA writable_schema=RESET")
    file.execute(f"UPDATE meta SET {column} = 'seven'")
    file.execute("PRAGMA writable_schema=ON")
    file.execute("UPDATE sqlite_schema SET sql = sql || ' STRICT' WHERE name = 'meta'")
    file.close()
    with pytest.raises(JournalDamaged, match="its meta row"):
        reader(files_in(tmp_path)).read_meta()


def copied(source: Path, target: Path) -> Path:
    """A copy of a journal in use, without the index of its log: as a backup might be."""
    target.mkdir()
    for path in source.iterdir():
        if path.suffix != ".sqlite-shm":
            shutil.copy(path, target)
    return target


@pytest.mark.parametrize("case", ["stopped", "running", "backup"])
def test_reading_leaves_no_file_behind_and_needs_no_right_to_write(tmp_path: Path, case: str) -> None:
    folder = tmp_path / "journals"
    folder.mkdir()
    database = kept(folder, 1, 2, 3)
    if case == "stopped":
        database.close()
    if case == "backup":
        folder = copied(folder, tmp_path / "backup")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert (f"{files_in(folder).partition}.sqlite-shm" in before) == (case == "running")
    folder.chmod(0o500)
    try:
        assert numbers_in(files_in(folder)) == [1, 2, 3]
    finally:
        folder.chmod(0o700)
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    if case == "running":  # SQLite marks in the index what is read
        assert after.keys() == before.keys()
    else:
        assert after == before


def test_a_reader_notices_that_a_worker_has_started(tmp_path: Path) -> None:
    kept(tmp_path, 1, 2).close()
    found = reader(files_in(tmp_path))
    assert found.read_meta().last == 2
    database = opened(files_in(tmp_path), 2)
    database.append(encoded(3), fresh=False)
    assert found.read_meta().last == 3
    assert [row.number for row in found.read_steps(1)] == [1, 2, 3]
