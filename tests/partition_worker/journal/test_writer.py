"""A few steps are written at once, by whoever hands them over, if the disk is quick; all others by the thread."""

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import pytest

from common.journal_messages import Append, Kept
from partition_worker.journal import writer as written
from partition_worker.journal.database import Database, Row
from partition_worker.journal.writer import AT_ONCE_BYTES, QUICK_S, REST, Said, Writer
from tests.partition_worker.journal.hand import PATIENCE_S, encoded, files_in

THREAD: Final = "journal"


class Clock:
    """The time that writers see."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def perf_counter(self) -> float:
        return self.now_s


class Disk(Database):
    """Says who wrote, and takes as long as it is told, or fails."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(files_in(folder), 1)
        while self.forgetful:
            self.forget_some()
        self.clock = clock
        self.takes_s = 0.0
        self.fails = 0
        self.by: list[str] = []

    def append(self, rows: Sequence[Row], *, fresh: bool) -> None:
        self.clock.now_s += self.takes_s
        if self.fails:
            self.fails -= 1
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        super().append(rows, fresh=fresh)
        self.by.append(threading.current_thread().name)


class Hand:
    """A writer, and what it says."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.said: SimpleQueue[Said] = SimpleQueue()
        self.disk = Disk(folder, clock)
        self.writer = Writer(self.disk, bytes_max=1 << 30, say=self.said.put)
        self._last = 0

    def puts(self, *, size: int = 100, fresh: bool = False) -> bool:
        """One step more, once the thread rests; whether it was written at once."""
        until = time.monotonic() + PATIENCE_S
        while not self.writer._resting:
            assert time.monotonic() < until, "the thread does not rest"
        self._last += 1
        kept = self.writer.put(Append(steps=encoded(self._last, size=size), first=self._last, fresh=fresh))
        if kept is not None:
            assert kept == Kept(number=self._last)
            return True
        while not isinstance(said := self.said.get(timeout=PATIENCE_S), Kept):
            continue
        assert said == Kept(number=self._last)
        return False


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(written, "time", clock)
    return clock


@pytest.fixture
def hand(tmp_path: Path, clock: Clock) -> Iterator[Hand]:
    hand = Hand(tmp_path, clock)
    yield hand
    hand.writer.close(PATIENCE_S)


def test_a_few_steps_are_kept_at_once(hand: Hand) -> None:
    assert [hand.puts() for _ in range(3)] == [True] * 3
    assert hand.disk.by == [threading.current_thread().name] * 3
    assert sum(hand.writer.commits.counts) == 3


def test_many_bytes_and_a_new_beginning_are_for_the_thread(hand: Hand) -> None:
    assert not hand.puts(fresh=True)
    assert not hand.puts(size=AT_ONCE_BYTES)
    assert hand.disk.by == [THREAD] * 2
    assert hand.puts()


def test_after_one_that_was_slow_the_thread_writes_for_a_while(hand: Hand, clock: Clock) -> None:
    hand.disk.takes_s = 2 * QUICK_S
    assert hand.puts()
    hand.disk.takes_s = 0.0
    clock.now_s += 2 * QUICK_S * (REST - 1)
    assert not hand.puts()
    clock.now_s += 3 * QUICK_S
    assert hand.puts()


def test_what_does_not_work_at_once_is_tried_again_by_the_thread(hand: Hand) -> None:
    hand.disk.fails = 1
    assert not hand.puts()
    assert hand.disk.by == [THREAD]
