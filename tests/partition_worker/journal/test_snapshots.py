"""A snapshot is there whole or not at all."""

import errno
import os
import queue
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from yunishard.partition_worker.journal import files
from yunishard.partition_worker.journal.snapshot_process import SnapshotProcess
from yunishard.partition_worker.recovery import JournalDamaged

CONTENT = b"everything that a partition knows" * 10


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.snapshot-7"
    for content in (CONTENT, b""):
        files.write_snapshot(path, 7, [content])
        assert b"".join(files.read_snapshot(path, 7)) == content
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_no_byte_of_it_may_be_another(tmp_path: Path) -> None:
    path = tmp_path / "a.snapshot-7"
    files.write_snapshot(path, 7, [CONTENT])
    good = path.read_bytes()
    for place in range(0, len(good), 3):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(JournalDamaged):
            b"".join(files.read_snapshot(path, 7))
    for length in range(0, len(good), 7):
        path.write_bytes(good[:length])
        with pytest.raises(JournalDamaged):
            b"".join(files.read_snapshot(path, 7))


def test_one_that_is_missing_or_of_another_step_is_damage(tmp_path: Path) -> None:
    with pytest.raises(JournalDamaged, match=r"a\.snapshot-7 is missing"):
        b"".join(files.read_snapshot(tmp_path / "a.snapshot-7", 7))
    files.write_snapshot(tmp_path / "a.snapshot-7", 6, [CONTENT])
    with pytest.raises(JournalDamaged, match="does not match its checksum"):
        b"".join(files.read_snapshot(tmp_path / "a.snapshot-7", 7))


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.snapshot-7.tmp-1"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            files.write_snapshot(path, 7, [CONTENT])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


ROOT = Path(__file__).parents[3]
PATIENCE_S = 20.0


def said(work: Callable[[], None], *, limit_s: float = PATIENCE_S) -> str:
    answers: queue.Queue[str] = queue.Queue()
    SnapshotProcess(work, limit_s=limit_s).watch(answers.put)
    return answers.get(timeout=PATIENCE_S)


def test_the_child_sees_what_was_so_when_it_was_made(tmp_path: Path) -> None:
    memory = ["then"]
    answers: queue.Queue[str] = queue.Queue()

    def work() -> None:
        (tmp_path / "seen").write_text(memory[0])

    child = SnapshotProcess(work, limit_s=PATIENCE_S)
    memory[0] = "now"
    child.watch(answers.put)
    assert answers.get(timeout=PATIENCE_S) == ""
    assert (tmp_path / "seen").read_text() == "then"


def full() -> None:
    raise OSError(errno.ENOSPC, "full")


def broken() -> None:
    raise KeyError("a defect")


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("work", "problem"),
    [
        (full, "no space left on device"),
        (broken, "its process failed; standard error has the reason"),
        (killed, "its process ended by signal 9"),
    ],
)
def test_what_goes_wrong_is_told(work: Callable[[], None], problem: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert said(work) == problem
    assert ("KeyError: 'a defect'" in capfd.readouterr().err) == (work is broken)


def test_time_runs_out_whatever_the_child_does() -> None:
    def for_ever() -> None:
        while True:
            continue

    assert said(for_ever, limit_s=0.05) == "it took longer than 0.05 s"


def test_nothing_stays_open_in_the_child(tmp_path: Path) -> None:
    lock = (tmp_path / "lock").open("w")

    def work() -> None:
        (tmp_path / "fds").write_text(" ".join(sorted(os.listdir("/proc/self/fd"))))

    assert said(work) == ""
    lock.close()
    assert {int(number) for number in (tmp_path / "fds").read_text().split()} <= {0, 1, 2, 3, 4}


def test_the_end_of_the_process_waits_a_little_and_then_no_more() -> None:
    answers: queue.Queue[str] = queue.Queue()
    child = SnapshotProcess(lambda: time.sleep(PATIENCE_S), limit_s=PATIENCE_S)
    child.watch(answers.put)
    assert not child.stop(0.01)
    assert answers.get(timeout=PATIENCE_S) == "its process ended by signal 9"
    assert child.stop(PATIENCE_S), "long over"


ALONE = """
import os, resource
from yunishard.partition_worker.journal.snapshot_process import SnapshotProcess
if os.getuid() == 0:
    os.setuid(65534)  # nothing limits the processes of root
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
seen = []
SnapshotProcess(lambda: seen.append(os.getpid()), limit_s=5).watch(seen.append)
print(seen == [os.getpid(), ""])
"""


def test_where_no_process_can_be_made_the_work_is_done_here() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", ALONE], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_it_ends_with_its_parent() -> None:
    """Standard output stays open as long as one of them lives."""
    script = (
        "import os, signal, time\n"
        "from yunishard.partition_worker.journal.snapshot_process import SnapshotProcess\n"
        "SnapshotProcess(lambda: time.sleep(3600), limit_s=3600)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, timeout=PATIENCE_S, check=False
    )
    assert ended.returncode == -signal.SIGKILL
