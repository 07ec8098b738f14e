"""What SQLite passes over in its log is noticed."""

import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from partition_worker.journal.files import Files, JournalDamaged
from tests.partition_worker.journal.hand import files_in, numbers_in, opened, rows

FRAME_BYTES = 24 + 4096
HEAD_BYTES = 32
STEPS = 20


def crashed(folder: Path) -> Files:
    """The files of a worker that was killed, with each step a transaction of its own in SQLite's log."""
    (folder / "alive").mkdir()
    database = opened(files_in(folder / "alive"), 1)
    for number in range(1, STEPS + 1):
        database.append(rows(number), fresh=False)
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
    good = files.log.read_bytes()
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
        files.log.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        steps = found(files)
        assert isinstance(steps, str) or steps == list(range(1, STEPS + 1)), place


def test_a_transaction_that_was_not_finished_is_no_damage(tmp_path: Path) -> None:
    files = crashed(tmp_path)
    good = files.log.read_bytes()
    ends = [at for at in range(HEAD_BYTES, len(good), FRAME_BYTES) if struct.unpack_from(">I", good, at + 4)[0]]
    good = good[: ends[-1] + FRAME_BYTES]
    for length in (len(good) - 1, len(good) - FRAME_BYTES, len(good) - FRAME_BYTES - 10):
        shutil.copytree(files.folder, tmp_path / str(length))
        cut = files_in(tmp_path / str(length))
        cut.log.write_bytes(good[:length])
        assert found(cut) == list(range(1, STEPS))


def test_a_log_that_was_written_over_is_no_damage(tmp_path: Path) -> None:
    database = opened(files_in(tmp_path), 1)
    for number in range(1, STEPS + 1):
        database.append(rows(number), fresh=False)
    database._file.execute("PRAGMA wal_checkpoint(PASSIVE)")
    database.append(rows(STEPS + 1), fresh=False)  # at the beginning of the log; older transactions follow
    assert files_in(tmp_path).log.stat().st_size > 10 * FRAME_BYTES
    assert found(files_in(tmp_path)) == list(range(1, STEPS + 2))
    with pytest.raises(OSError, match="another worker"):
        database.append(rows(STEPS + 2), fresh=False)


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
    database.append(rows(1), fresh=False)
    assert numbers_in(files) == [1]  # by a reader in the same process, as when a worker begins
    subprocess.run([sys.executable, "-c", TAKES_THE_INDEX_FOR_ABANDONED, str(files.log_index)], check=True)
    database.close()
