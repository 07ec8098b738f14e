"""What a transaction does, and who may make one."""

import random
import shutil
import sqlite3
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.full_disk import full_disk
from tests.partition_worker.journal.hand import encoded, files_in, numbers_in, opened, record_snapshot, sql
from yunishard.partition_worker.journal import database
from yunishard.partition_worker.journal.database import FORMAT
from yunishard.partition_worker.journal.files import Files
from yunishard.partition_worker.journal.protocol import Fenced
from yunishard.partition_worker.journal.sqlite_journal import (
    SLICE_BYTES,
    SLICE_STEPS,
    STATEMENT_STEPS,
    WAL_PREALLOCATED_BYTES,
    SqliteJournal,
)
from yunishard.partition_worker.recovery import JournalDamaged


def count(database: SqliteJournal) -> int:
    found: int = sql(database.files).execute("SELECT count(*) FROM steps").fetchone()[0]
    return found


def test_steps_are_there_for_the_next_one_who_opens_it(tmp_path: Path) -> None:
    first = opened(files_in(tmp_path), 1)
    first.append(encoded(1, 2, 3), fresh=False)
    first.append(encoded(4), fresh=False)
    first.close()
    second = opened(files_in(tmp_path), 1)
    assert second.statistics().last == 4
    assert numbers_in(files_in(tmp_path)) == [1, 2, 3, 4]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())


def test_more_than_one_statement_is_one_transaction_all_the_same(tmp_path: Path) -> None:
    database = opened(files_in(tmp_path), 1)
    many = encoded(*range(1, 3 * STATEMENT_STEPS))
    with pytest.raises(JournalDamaged):
        database.append([*many, many[0]], fresh=False)
    assert count(database) == 0
    database.append(many, fresh=False)
    assert count(database) == len(many)


def test_a_later_epoch_shuts_out_an_earlier_one_for_good(tmp_path: Path) -> None:
    earlier = opened(files_in(tmp_path), 1)
    earlier.append(encoded(1), fresh=False)
    later = opened(files_in(tmp_path), 2)
    for _ in range(2):
        with pytest.raises(Fenced):
            earlier.append(encoded(2), fresh=False)
        with pytest.raises(Fenced):
            earlier.append(encoded(*range(2, 2 * STATEMENT_STEPS)), fresh=False)
        with pytest.raises(Fenced):
            earlier.append(encoded(9), fresh=True)
        with pytest.raises(Fenced):
            earlier.append(encoded(0), fresh=False)  # which is not needed any more
        with pytest.raises(Fenced):
            record_snapshot(earlier, 1)
    later.append(encoded(2), fresh=False)
    assert numbers_in(files_in(tmp_path)) == [1, 2]
    with pytest.raises(Fenced, match="under epoch 2"):
        opened(files_in(tmp_path), 1)


def test_an_earlier_one_deletes_nothing(tmp_path: Path) -> None:
    earlier = opened(files_in(tmp_path), 1)
    earlier.append(encoded(1, 2), fresh=False)
    record_snapshot(earlier, 1)
    opened(files_in(tmp_path), 2)
    with pytest.raises(Fenced):
        earlier.trim()
    assert count(earlier) == 2


def test_a_fresh_beginning_needs_nothing_before_it(tmp_path: Path) -> None:
    database = opened(files_in(tmp_path), 1)
    database.append(encoded(1, 2), fresh=False)
    record_snapshot(database, 2)
    files_in(tmp_path).snapshot(2).write_text("old")
    database.append(encoded(5, 6), fresh=True)  # 3 and 4 were never handed over
    assert numbers_in(files_in(tmp_path)) == [5, 6]
    while database.has_garbage:
        database.trim()
    assert not files_in(tmp_path).snapshot(2).exists()
    assert count(database) == 2


def test_a_snapshot_from_before_a_fresh_beginning_is_no_news(tmp_path: Path) -> None:
    database = opened(files_in(tmp_path), 1)
    database.append(encoded(1, 2), fresh=False)
    database.append(encoded(3), fresh=True)
    assert not record_snapshot(database, 2)
    assert numbers_in(files_in(tmp_path)) == [3]


def test_a_fresh_beginning_that_a_snapshot_has_already_takes_nothing_back(tmp_path: Path) -> None:
    database = opened(files_in(tmp_path), 1)
    database.append(encoded(1), fresh=False)
    record_snapshot(database, 3)
    database.append(encoded(2), fresh=True)
    database.append(encoded(3), fresh=False)
    database.append(encoded(4), fresh=False)
    assert (database._meta.snapshot, database._meta.begins) == (3, 4)
    assert count(database) == 2  # the first one and the last
    database.close()
    assert opened(files_in(tmp_path), 1).statistics().last == 4


def test_what_is_not_needed_goes_in_slices(tmp_path: Path) -> None:
    database = opened(files_in(tmp_path), 1)
    total = 2 * SLICE_STEPS + 100
    database.append(encoded(*range(1, total + 1)), fresh=False)
    assert record_snapshot(database, total - 10)
    left = []
    while database.has_garbage:
        database.trim()
        left.append(count(database))
    assert left == [total - SLICE_STEPS, total - 2 * SLICE_STEPS, 10, 10]


def test_older_snapshots_are_removed_and_one_that_is_being_taken_is_not(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    database = opened(files, 1)
    database.append(encoded(*range(1, 7)), fresh=False)
    base = files.snapshot(0).name.removesuffix("0")
    for name in ("3", "4.tmp-1", "5", "8.tmp-2", "9"):
        (tmp_path / f"{base}{name}").touch()
    assert record_snapshot(database, 5)
    while database.has_garbage:
        database.trim()
    assert {path.name.removeprefix(base) for _, path in files.snapshots()} == {"5", "8.tmp-2", "9"}


def test_a_slice_of_large_steps_has_fewer_and_one_that_is_larger_than_a_slice_goes_alone(tmp_path: Path) -> None:
    database = opened(files_in(tmp_path), 1)
    for number, size in enumerate((SLICE_BYTES * 2, SLICE_BYTES // 2, SLICE_BYTES // 3, SLICE_BYTES // 2), 1):
        database.append(encoded(number, size=size), fresh=False)
    record_snapshot(database, 4)
    left = []
    while database.has_garbage:
        database.trim()
        left.append(count(database))
    assert left == [3, 1, 0, 0]


@pytest.mark.usefixtures("log_grows")
def test_room_that_has_become_free_does_not_count(tmp_path: Path) -> None:
    database = opened(files_in(tmp_path), 1)
    database.append(encoded(*range(1, 101), size=10_000), fresh=False)
    full = database.used_bytes()
    assert full > 1_000_000
    record_snapshot(database, 100)
    while database.has_garbage:
        database.trim()
    database._file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert database.used_bytes() < 100_000


def test_a_log_has_room_beforehand_which_does_not_count(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    database = opened(files, 1)
    assert files.wal.stat().st_size == WAL_PREALLOCATED_BYTES
    assert database.used_bytes() < 100_000
    for number in range(1, 11):
        database.append(encoded(number), fresh=False)
    assert files.wal.stat().st_size == WAL_PREALLOCATED_BYTES
    assert numbers_in(files) == list(range(1, 11))


def test_a_log_that_somebody_still_reads_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "LOCK_MAX_S", 0.01)
    files = files_in(tmp_path)
    opened(files, 1).append(encoded(1), fresh=False)
    reading = sql(files)
    reading.execute("BEGIN")
    reading.execute("SELECT * FROM steps").fetchall()
    successor = opened(files, 2)
    successor.append(encoded(2), fresh=False)
    reading.execute("ROLLBACK")
    assert numbers_in(files) == [1, 2]


def test_a_disk_without_room_for_a_log_beforehand_will_do(tmp_path: Path) -> None:
    with full_disk(WAL_PREALLOCATED_BYTES // 2):
        database = opened(files_in(tmp_path), 1)
    database.append(encoded(1), fresh=False)
    assert numbers_in(files_in(tmp_path)) == [1]


def test_what_is_left_without_a_database_belongs_to_nothing(tmp_path: Path) -> None:
    first = opened(files_in(tmp_path), 1)
    first.append(encoded(1), fresh=False)
    files_in(tmp_path).database.rename(tmp_path / "elsewhere")
    second = opened(files_in(tmp_path), 1)
    assert second.statistics().last == 0
    assert numbers_in(files_in(tmp_path)) == []


DELETES = """
import sys
from pathlib import Path
from yunishard.partition_worker.journal.protocol import Fenced
from yunishard.partition_worker.journal.sqlite_journal import SqliteJournals

journal = SqliteJournals(Path(sys.argv[1])).open(sys.argv[2], 1)
print("ready", flush=True)
sys.stdin.readline()
try:
    journal.delete()
except Fenced:
    print("fenced")
"""


def test_a_journal_that_is_opened_while_an_earlier_worker_deletes_it_is_never_lost(tmp_path: Path) -> None:
    files, outcomes = files_in(tmp_path), set()
    for _ in range(5):
        command = [sys.executable, "-P", "-c", DELETES, str(tmp_path), files.partition]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
        ) as deleter:
            assert deleter.stdout is not None
            assert deleter.stdout.readline() == "ready\n"
            assert deleter.stdin is not None
            deleter.stdin.write("now\n")
            deleter.stdin.flush()
            try:
                journal = opened(files, 2)
            except OSError as error:
                outcomes.add(str(error).rpartition(": ")[2])
                journal = opened(files, 2)
            journal.append(encoded(1), fresh=False)
            outcomes.add(deleter.stdout.read())
            assert deleter.wait() == 0
        assert numbers_in(files) == [1]
        journal.append(encoded(2), fresh=False)
        journal.close()
        successor = opened(files, 3)
        assert numbers_in(files) == [1, 2]
        successor.delete()
    assert outcomes <= {"", "fenced\n", "an earlier worker has just deleted it"}


def test_an_error_of_a_database_that_is_deleted_meanwhile_names_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(journal: SqliteJournal, _: int) -> None:
        journal.files.database.unlink()
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(SqliteJournal, "_claim", fail)
    with pytest.raises(OSError, match="an earlier worker has just deleted it"):
        opened(files_in(tmp_path), 2)


def spoil(files: Files, statement: str) -> None:
    sql(files).execute(statement)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("PRAGMA user_version=0", "it has format 0, and this release reads formats from 1 on"),
        ("UPDATE meta SET partition='rm-2_default'", "does not match its checksum"),
        ("UPDATE meta SET begins=2", "does not match its checksum"),
        ("UPDATE meta SET snapshot=1", "does not match its checksum"),
        ("DELETE FROM meta", "0 rows"),
        ("DROP TRIGGER last", "tables"),
        ("CREATE TABLE more (one)", "tables"),
    ],
)
def test_what_is_not_of_this_release_or_not_as_it_was_is_damage(tmp_path: Path, statement: str, reason: str) -> None:
    database = opened(files_in(tmp_path), 1)
    database.append(encoded(1), fresh=False)
    database.close()
    spoil(files_in(tmp_path), statement)
    for _ in range(2):
        with pytest.raises(JournalDamaged, match=reason):
            opened(files_in(tmp_path), 2)
    with pytest.raises(JournalDamaged, match=reason):
        numbers_in(files_in(tmp_path))


def test_the_journal_of_a_later_release_is_left_as_it_is(tmp_path: Path) -> None:
    opened(files_in(tmp_path), 1).close()
    spoil(files_in(tmp_path), f"PRAGMA user_version={FORMAT + 1}")
    before = files_in(tmp_path).database.read_bytes()
    with pytest.raises(OSError, match=f"has format {FORMAT + 1}, and this release reads formats up to {FORMAT}: start"):
        opened(files_in(tmp_path), 2)
    assert files_in(tmp_path).database.read_bytes() == before


def test_the_journal_of_another_partition_is_damage(tmp_path: Path) -> None:
    database = opened(files_in(tmp_path), 1)
    database.close()
    files_in(tmp_path).database.rename(tmp_path / "rm-1_gpu.sqlite")
    with pytest.raises(JournalDamaged, match="belongs to partition rm-1_default"):
        opened(Files(tmp_path, "rm-1_gpu"), 1)


def test_something_else_is_no_database(tmp_path: Path) -> None:
    files_in(tmp_path).database.write_text("queues: []\n" * 1000)
    with pytest.raises(JournalDamaged, match="not a database"):
        opened(files_in(tmp_path), 1)


def test_a_disk_that_does_not_let_us_is_no_damage(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file or directory"):
        opened(files_in(tmp_path / "nowhere"), 1)


FRAME_BYTES = 24 + 4096
HEAD_BYTES = 32
STEPS = 20


def crashed(folder: Path) -> Files:
    """The files of a worker that was killed, with each step a transaction of its own in SQLite's log."""
    (folder / "alive").mkdir()
    database = opened(files_in(folder / "alive"), 1)
    for number in range(1, STEPS + 1):
        database.append(encoded(number), fresh=False)
    shutil.copytree(folder / "alive", folder / "dead")
    database.close()
    (folder / "dead" / "rm-1_default.sqlite-shm").unlink()
    return files_in(folder / "dead")


def found(files: Files) -> list[int] | str:
    """The steps, or why there are none."""
    try:
        opened(files, 2).close()
        return numbers_in(files)
    except JournalDamaged as error:
        return str(error)


def test_the_log_of_a_crash_is_taken_whole(tmp_path: Path) -> None:
    assert found(crashed(tmp_path)) == list(range(1, STEPS + 1))


def test_no_byte_of_it_may_be_another_but_in_what_may_never_have_been_finished(tmp_path: Path) -> None:
    files = crashed(tmp_path)
    good = files.wal.read_bytes()
    ends = [at for at in range(HEAD_BYTES, len(good), FRAME_BYTES) if struct.unpack_from(">I", good, at + 4)[0]]
    safe = ends[-3] + FRAME_BYTES
    kept = {path: path.read_bytes() for path in files.all()}
    chance = random.Random(6)
    places = [*range(HEAD_BYTES), *range(HEAD_BYTES, HEAD_BYTES + 24), *(chance.randrange(safe) for _ in range(100))]
    for place in places:
        for path in files.all():
            path.unlink()
        for path, content in kept.items():
            path.write_bytes(content)
        files.wal.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        steps = found(files)
        assert isinstance(steps, str) or steps == list(range(1, STEPS + 1)), place


def test_a_transaction_that_was_not_finished_is_no_damage(tmp_path: Path) -> None:
    files = crashed(tmp_path)
    good = files.wal.read_bytes()
    ends = [at for at in range(HEAD_BYTES, len(good), FRAME_BYTES) if struct.unpack_from(">I", good, at + 4)[0]]
    good = good[: ends[-1] + FRAME_BYTES]
    for length in (len(good) - 1, len(good) - FRAME_BYTES, len(good) - FRAME_BYTES - 10):
        shutil.copytree(files.folder, tmp_path / str(length))
        cut = files_in(tmp_path / str(length))
        cut.wal.write_bytes(good[:length])
        assert found(cut) == list(range(1, STEPS))


def test_a_log_that_was_written_over_is_no_damage(tmp_path: Path) -> None:
    database = opened(files_in(tmp_path), 1)
    for number in range(1, STEPS + 1):
        database.append(encoded(number), fresh=False)
    database._file.execute("PRAGMA wal_checkpoint(PASSIVE)")
    database.append(encoded(STEPS + 1), fresh=False)  # at the beginning of the log; older transactions follow
    assert files_in(tmp_path).wal.stat().st_size > 10 * FRAME_BYTES
    assert found(files_in(tmp_path)) == list(range(1, STEPS + 2))
    with pytest.raises(OSError, match="another worker"):
        database.append(encoded(STEPS + 2), fresh=False)


def test_a_log_of_which_only_the_header_was_written_over_is_no_damage(tmp_path: Path) -> None:
    """The worker was killed while SQLite waited for the disk between the new header and the first frame."""
    (tmp_path / "alive").mkdir()
    files = files_in(tmp_path / "alive")
    database = opened(files, 1)
    for number in range(1, STEPS + 1):
        database.append(encoded(number), fresh=False)
    database._file.execute("PRAGMA wal_checkpoint(PASSIVE)")
    shutil.copytree(files.folder, tmp_path / "dead")
    database.append(encoded(STEPS + 1), fresh=False)
    dead = files_in(tmp_path / "dead")
    dead.wal_index.unlink()
    header, frames = files.wal.read_bytes()[:HEAD_BYTES], dead.wal.read_bytes()[HEAD_BYTES:]
    dead.wal.write_bytes(header + frames)
    assert found(dead) == list(range(1, STEPS + 1))


TAKES_THE_INDEX_FOR_ABANDONED = """
import fcntl, sys
with open(sys.argv[1], "r+b") as index:
    try:
        fcntl.lockf(index, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 128)  # as SQLite finds out whether nobody else has it
    except OSError:
        sys.exit(0)
sys.exit("nobody has it")
"""


def test_a_look_at_the_log_takes_no_lock_from_whoever_has_the_journal_open(tmp_path: Path) -> None:
    """Otherwise the next reader empties the index of its log, which kills the worker that has it mapped."""
    files = files_in(tmp_path)
    database = opened(files, 1)
    database.append(encoded(1), fresh=False)
    assert numbers_in(files) == [1]  # by a reader in the same process, as when a worker begins
    subprocess.run([sys.executable, "-c", TAKES_THE_INDEX_FOR_ABANDONED, str(files.wal_index)], check=True)
    database.close()
