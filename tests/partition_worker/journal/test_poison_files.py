"""Which message ended a worker is known to the next one, though the worker had no time to say it."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from yunishard.common.messages.kinds import Header
from yunishard.partition_worker.journal import quarantine as quarantine_file
from yunishard.partition_worker.journal.quarantine import KEPT_MAX, REMEMBERED_S, Quarantine, identify_parent_process
from yunishard.partition_worker.partition_host import ENTRIES_MAX, PAGE_BYTES, QuarantinedMessage, ReceivedMessage

ONE, OTHER = b"1" * 16, b"2" * 16


@pytest.fixture
def quarantine(tmp_path: Path) -> Quarantine:
    return Quarantine(tmp_path, "rm-1_default")


def test_a_message_that_was_begun_and_not_ended_counts(quarantine: Quarantine) -> None:
    quarantine.open_attempts().begin_attempt(ONE)
    second = quarantine.open_attempts()
    assert (second.count_deaths(ONE), second.count_deaths(OTHER)) == (1, 0)
    second.begin_attempt(ONE)
    third = quarantine.open_attempts()
    assert third.count_deaths(ONE) == 2
    assert quarantine.open_attempts().count_deaths(ONE) == 2


def test_a_message_that_was_handled_does_not_count(quarantine: Quarantine) -> None:
    first = quarantine.open_attempts()
    first.begin_attempt(ONE)
    first.end_attempt()
    assert quarantine.open_attempts().count_deaths(ONE) == 0


def test_a_message_that_is_handled_after_all_is_forgotten(quarantine: Quarantine) -> None:
    quarantine.open_attempts().begin_attempt(ONE)
    quarantine.open_attempts().begin_attempt(OTHER)
    third = quarantine.open_attempts()
    third.begin_attempt(ONE)
    third.end_attempt()
    fourth = quarantine.open_attempts()
    assert (fourth.count_deaths(ONE), fourth.count_deaths(OTHER)) == (0, 1)


def test_two_ends_together_with_the_supervisor_count_as_one_death(quarantine: Quarantine) -> None:
    """An operator has killed everything while a large update was handled."""
    for number in range(4):
        quarantine.open_attempts(f"supervisor {number}".encode()).begin_attempt(ONE)
    assert quarantine.open_attempts(b"supervisor 4").count_deaths(ONE) == 2
    quarantine.open_attempts(b"supervisor 5").begin_attempt(ONE)
    assert quarantine.open_attempts(b"supervisor 5").count_deaths(ONE) == 3


def test_two_workers_of_one_supervisor_know_it_and_those_of_another_do_not() -> None:
    program = (
        "from yunishard.partition_worker.journal import quarantine; print(quarantine.identify_parent_process().hex())"
    )
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    children = [subprocess.check_output([sys.executable, "-c", program], env=environment) for _ in range(2)]
    assert children[0] == children[1]
    assert bytes.fromhex(children[0].decode()) != identify_parent_process()


def test_a_process_that_is_killed_leaves_what_it_was_doing(quarantine: Quarantine) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; "
        "from yunishard.partition_worker.journal.quarantine import Quarantine; "
        f"found = Quarantine(Path({str(quarantine.attempts.parent)!r}), 'rm-1_default'); "
        f"found.open_attempts().begin_attempt({ONE!r}); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": os.getcwd()}, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert quarantine.open_attempts().count_deaths(ONE) == 1


def test_a_predecessor_that_still_runs_cannot_touch_the_file_of_its_successor(quarantine: Quarantine) -> None:
    before = quarantine.open_attempts()
    before.begin_attempt(ONE)
    successor = quarantine.open_attempts()
    successor.begin_attempt(OTHER)
    before.end_attempt()
    third = quarantine.open_attempts()
    assert (third.count_deaths(ONE), third.count_deaths(OTHER)) == (1, 1)


def test_the_oldest_of_too_many_is_forgotten_and_so_is_what_is_old(
    quarantine: Quarantine, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(quarantine_file.time, "time", lambda: now)
    names = [bytes([number]) * 16 for number in range(1, ENTRIES_MAX + 2)]
    for name in names:
        now += 1
        quarantine.open_attempts().begin_attempt(name)
    now += 1
    last = quarantine.open_attempts()
    assert [last.count_deaths(name) for name in names] == [0] + [1] * ENTRIES_MAX
    now += REMEMBERED_S + 1
    assert quarantine.open_attempts().count_deaths(names[-1]) == 0


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\0" * PAGE_BYTES])
def test_a_file_that_is_none_counts_nothing(quarantine: Quarantine, content: bytes) -> None:
    quarantine.attempts.write_bytes(content)
    first = quarantine.open_attempts()
    first.begin_attempt(ONE)
    assert quarantine.open_attempts().count_deaths(ONE) == 1


def test_only_its_owner_may_read_it(quarantine: Quarantine) -> None:
    quarantine.open_attempts()
    assert stat.S_IMODE(quarantine.attempts.stat().st_mode) == 0o600


def test_messages_that_were_set_aside_are_kept_the_latest_ones(quarantine: Quarantine) -> None:
    for number in range(KEPT_MAX + 3):
        header, body = Header(kind="NodeRequest", seq=number), bytes([number])
        message = ReceivedMessage(0, 1000.0 + number, "broker", header, body)
        path = quarantine.write(QuarantinedMessage(f"reason {number}", message))
        os.utime(path, (number, number))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    kept = [one for _, one in quarantine.read()]
    assert [one.reason for one in kept] == [f"reason {number}" for number in range(3, 11)]
    assert (kept[-1].message.header.seq, kept[-1].message.body) == (10, b"\x0a")
