"""A directory, fifo or the like in the place of a journal's file is set aside or replaced, and the partition starts."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.machines import PARTITION
from tests.partition_worker.journal.hand import encoded, files_in, found_in, opened, reader, record_snapshot
from tests.partition_worker.start import Start, closed
from yunishard.partition_worker.journal.quarantine import Quarantine
from yunishard.partition_worker.recovery import JournalDamaged


def make_directory(path: Path) -> None:
    path.mkdir()
    (path / "file").touch()


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, pytest.MonkeyPatch.context() as patch:
        patch.chdir(path.parent)  # the path may be too long for a socket
        listener.bind(path.name)


def make_unreadable(path: Path) -> None:
    path.write_bytes(b"secret")
    path.chmod(0)


OBSTACLES = {
    "is a directory, not a file": make_directory,
    "is a fifo, not a file": os.mkfifo,
    "is a socket, not a file": make_socket,
    "is a device, not a file": lambda path: path.symlink_to("/dev/full"),
    "is a link to nothing": lambda path: path.symlink_to("nowhere"),
    "may not be read and written by this user": make_unreadable,
}


@pytest.fixture(autouse=True)
def _root_may_not_read_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the tests have the same result for root."""
    monkeypatch.setattr(os, "access", lambda path, *_, **__: bool(Path(path).stat().st_mode & 0o400))


@pytest.mark.parametrize(("problem", "make"), OBSTACLES.items(), ids=OBSTACLES)
@pytest.mark.parametrize("end", ["", "-wal", "-shm"])
def test_a_journal_that_is_no_file_is_set_aside(
    tmp_path: Path, problem: str, make: Callable[[Path], None], end: str
) -> None:
    files = files_in(tmp_path)
    path = files.database.with_name(files.database.name + end)
    if end:
        with closing(opened(files, 4)) as journal:
            journal.append(encoded(1), fresh=True)
        path.unlink(missing_ok=True)
    make(path)

    async def start_twice() -> list[str]:
        problems = []
        for epoch in (5, 6):
            start = await Start(tmp_path, epoch).begins()
            problems.append(start.worker.problem)
            closed(start)
        return problems

    assert asyncio.run(start_twice()) == [f"its journal cannot be used: {path.name} {problem}", ""]
    assert os.path.lexists(files.damaged / path.name)


@pytest.mark.parametrize(("problem", "make"), OBSTACLES.items(), ids=OBSTACLES)
def test_a_snapshot_that_is_no_file_is_damage(tmp_path: Path, problem: str, make: Callable[[Path], None]) -> None:
    files = files_in(tmp_path)
    with closing(opened(files, 4)) as journal:
        journal.append(encoded(1), fresh=True)
        record_snapshot(journal, 1)
    files.snapshot(1).unlink()
    make(files.snapshot(1))
    with pytest.raises(JournalDamaged, match=f"{files.snapshot(1).name} {problem.replace(' and written', '')}"):
        reader(files).open_snapshot()


@pytest.mark.parametrize("make", OBSTACLES.values(), ids=OBSTACLES)
def test_a_path_for_a_new_file_is_cleared(tmp_path: Path, make: Callable[[Path], None]) -> None:
    files = files_in(tmp_path)
    journal = opened(files, 4)
    journal.append(encoded(1, 2), fresh=True)
    quarantine = Quarantine(tmp_path, PARTITION)
    places = (
        files.unfinished_snapshot(1, os.getpid()),
        files.snapshot(1),
        files.damaged,
        quarantine.attempts,
        quarantine.attempts.with_suffix(".attempts-new"),
    )
    for path in places:
        make(path)
    assert record_snapshot(journal, 1)
    quarantine.open_attempts()
    assert found_in(files).snapshot_number == 1
    journal.close()
    assert files.put_aside() == files.damaged
    assert {path.name for path in tmp_path.iterdir()} == {quarantine.attempts.name, files.damaged.name}


def test_unfinished_snapshots_of_killed_processes_are_removed_at_the_next_start(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    opened(files, 4).close()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    unfinished = [files.unfinished_snapshot(7, process) for process in (ended.pid, os.getpid(), os.getppid())]
    other = files_in(tmp_path).folder / f"other.snapshot-7.tmp-{ended.pid}"
    for path in (*unfinished, other):
        path.write_bytes(b"a part")
    opened(files, 5)
    assert [path.exists() for path in (*unfinished, other)] == [False, False, True, True]
