"""Which message ended a worker is known to the next one, though the worker had no time to say it."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from common.messages import Header
from partition_worker.journal import files as journal_files
from partition_worker.journal.files import Files, open_attempts
from partition_worker.partition_host import ENTRIES_MAX, PAGE_BYTES, QuarantinedMessage, ReceivedMessage

ONE, OTHER = b"1" * 16, b"2" * 16


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path, "rm-1_default")


def test_a_message_that_was_begun_and_not_ended_counts(files: Files) -> None:
    open_attempts(files).begin_attempt(ONE)
    second = open_attempts(files)
    assert (second.count_deaths(ONE), second.count_deaths(OTHER)) == (1, 0)
    second.begin_attempt(ONE)
    third = open_attempts(files)
    assert third.count_deaths(ONE) == 2
    assert open_attempts(files).count_deaths(ONE) == 2


def test_a_message_that_was_handled_does_not_count(files: Files) -> None:
    first = open_attempts(files)
    first.begin_attempt(ONE)
    first.end_attempt()
    assert open_attempts(files).count_deaths(ONE) == 0


def test_a_message_that_is_handled_after_all_is_forgotten(files: Files) -> None:
    open_attempts(files).begin_attempt(ONE)
    open_attempts(files).begin_attempt(OTHER)
    third = open_attempts(files)
    third.begin_attempt(ONE)
    third.end_attempt()
    fourth = open_attempts(files)
    assert (fourth.count_deaths(ONE), fourth.count_deaths(OTHER)) == (0, 1)


def test_two_ends_together_with_the_supervisor_count_as_one_death(files: Files) -> None:
    """An operator has killed everything while a large update was handled."""
    for number in range(4):
        open_attempts(files, f"supervisor {number}".encode()).begin_attempt(ONE)
    assert open_attempts(files, b"supervisor 4").count_deaths(ONE) == 2
    open_attempts(files, b"supervisor 5").begin_attempt(ONE)
    assert open_attempts(files, b"supervisor 5").count_deaths(ONE) == 3


def test_two_workers_of_one_supervisor_know_it_and_those_of_another_do_not() -> None:
    program = "from partition_worker.journal.files import identify_parent_process as parent; print(parent().hex())"
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    children = [subprocess.check_output([sys.executable, "-c", program], env=environment) for _ in range(2)]
    assert children[0] == children[1]
    assert bytes.fromhex(children[0].decode()) != journal_files.identify_parent_process()


def test_a_process_that_is_killed_leaves_what_it_was_doing(files: Files) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; "
        "from partition_worker.journal.files import open_attempts; "
        "from partition_worker.journal.files import Files; "
        f"open_attempts(Files(Path({str(files.folder)!r}), 'rm-1_default')).begin_attempt({ONE!r}); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": os.getcwd()}, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert open_attempts(files).count_deaths(ONE) == 1


def test_a_predecessor_that_still_runs_cannot_touch_the_file_of_its_successor(files: Files) -> None:
    before = open_attempts(files)
    before.begin_attempt(ONE)
    successor = open_attempts(files)
    successor.begin_attempt(OTHER)
    before.end_attempt()
    third = open_attempts(files)
    assert (third.count_deaths(ONE), third.count_deaths(OTHER)) == (1, 1)


def test_the_oldest_of_too_many_is_forgotten_and_so_is_what_is_old(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(journal_files.time, "time", lambda: now)
    names = [bytes([number]) * 16 for number in range(1, ENTRIES_MAX + 2)]
    for name in names:
        now += 1
        open_attempts(files).begin_attempt(name)
    now += 1
    last = open_attempts(files)
    assert [last.count_deaths(name) for name in names] == [0] + [1] * ENTRIES_MAX
    now += journal_files.REMEMBERED_S + 1
    assert open_attempts(files).count_deaths(names[-1]) == 0


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\0" * PAGE_BYTES])
def test_a_file_that_is_none_counts_nothing(files: Files, content: bytes) -> None:
    files.attempts.write_bytes(content)
    first = open_attempts(files)
    first.begin_attempt(ONE)
    assert open_attempts(files).count_deaths(ONE) == 1


def test_only_its_owner_may_read_it(files: Files) -> None:
    open_attempts(files)
    assert stat.S_IMODE(files.attempts.stat().st_mode) == 0o600


def test_messages_that_were_set_aside_are_kept_the_latest_ones(files: Files) -> None:
    for number in range(journal_files.KEPT_MAX + 3):
        header, body = Header(kind="NodeRequest", seq=number), bytes([number])
        message = ReceivedMessage(0, 1000.0 + number, "broker", header, body)
        path = journal_files.write_poison(files, QuarantinedMessage(f"reason {number}", message))
        os.utime(path, (number, number))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    kept = [one for _, one in journal_files.read_poisons(files)]
    assert [one.reason for one in kept] == [f"reason {number}" for number in range(3, 11)]
    assert (kept[-1].message.header.seq, kept[-1].message.body) == (10, b"\x0a")
