"""A few steps are written at once, by whoever hands them over, if the disk is quick; all others by the thread."""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.system import eventually
from tests.full_disk import full_disk
from tests.partition_worker.journal.hand import PATIENCE_S, Hand, encoded, files_in, found_in, numbers_in, run, sql
from yunishard.common.messages.control_messages import Hello
from yunishard.common.messages.journal_messages import Append, Kept, NotKept, SnapshotTaken, TakeSnapshot
from yunishard.common.messages.wire import decode_body, make_outgoing
from yunishard.common.names import JOURNAL
from yunishard.common.process import health
from yunishard.partition_worker.journal import writer as written
from yunishard.partition_worker.journal.files import Files
from yunishard.partition_worker.journal.protocol import Fenced
from yunishard.partition_worker.journal.sqlite_journal import SqliteJournal
from yunishard.partition_worker.journal.writer import (
    INLINE_BYTES,
    INLINE_MAX_S,
    QUEUED_BYTES_MAX,
    SLOW_COMMIT_FACTOR,
    JournalWriter,
)

THREAD: Final = "journal"


class Clock:
    """The time that writers see."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def perf_counter(self) -> float:
        return self.now_s


class Disk(SqliteJournal):
    """Records which thread wrote, takes the given time, or fails."""

    clock: Clock
    takes_s = 0.0
    fails = 0

    def __init__(self, files: Files, epoch: int) -> None:
        super().__init__(files, epoch)
        while self.has_garbage:
            self.trim()
        self.by: list[str] = []

    def append(self, steps: Sequence[bytes], *, fresh: bool) -> int:
        self.clock.now_s += self.takes_s
        if self.fails:
            self.fails -= 1
            raise OSError("disk I/O error")
        last = super().append(steps, fresh=fresh)
        self.by.append(threading.current_thread().name)
        return last


class InlineHand:
    """A journal, its disk and its answers."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._open(folder))
        self._last = 0

    async def _open(self, folder: Path) -> None:
        self.disk = Disk(files_in(folder), 1)
        self.journal = JournalWriter(self.disk, snapshot=list, wake=lambda: None)

    def close(self) -> None:
        self.journal.close()
        self._loop.close()

    def puts(self, *, size: int = 100, fresh: bool = False) -> bool:
        """Append a step while the thread waits for work; return whether it was committed inline."""
        until = time.monotonic() + PATIENCE_S
        while not self.journal._idle:
            assert time.monotonic() < until, "the thread does not rest"
        self._last += 1
        append = Append(steps=encoded(self._last, size=size), first=self._last, fresh=fresh)
        self.journal.send(make_outgoing(JOURNAL, append))
        answer = self.journal.receive()
        while answer is None or answer.header.kind != "Kept":
            assert time.monotonic() < until, "nothing is kept"
            answer = self.journal.receive()
        assert decode_body(Kept, answer.body) == Kept(number=self._last)
        return self.disk.by[-1] != THREAD


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(written, "time", clock)
    monkeypatch.setattr(Disk, "clock", clock, raising=False)
    return clock


@pytest.fixture
def hand(tmp_path: Path, clock: Clock) -> Iterator[InlineHand]:
    hand = InlineHand(tmp_path)
    yield hand
    hand.close()


def test_a_few_steps_are_kept_at_once(hand: InlineHand) -> None:
    assert [hand.puts() for _ in range(3)] == [True] * 3
    assert hand.disk.by == [threading.current_thread().name] * 3
    assert sum(one.value for one in hand.journal.commits.collect()[0].samples if one.name.endswith("_count")) == 3


def test_many_bytes_and_a_new_beginning_are_for_the_thread(hand: InlineHand) -> None:
    assert not hand.puts(fresh=True)
    assert not hand.puts(size=INLINE_BYTES)
    assert hand.disk.by == [THREAD] * 2
    assert hand.puts()


def test_after_one_that_was_slow_the_thread_writes_for_a_while(hand: InlineHand, clock: Clock) -> None:
    hand.disk.takes_s = 2 * INLINE_MAX_S
    assert hand.puts()
    hand.disk.takes_s = 0.0
    clock.now_s += 2 * INLINE_MAX_S * (SLOW_COMMIT_FACTOR - 1)
    assert not hand.puts()
    clock.now_s += 3 * INLINE_MAX_S
    assert hand.puts()


def test_what_does_not_work_at_once_is_tried_again_by_the_thread(hand: InlineHand) -> None:
    hand.disk.fails = 1
    assert not hand.puts()
    assert hand.disk.by == [THREAD]


def test_what_is_kept_is_on_the_disk(tmp_path: Path) -> None:
    async def test() -> None:
        hand = Hand(tmp_path)
        hand.appends(1, 2, 3)
        assert await hand.hears(Kept) == Kept(number=3)
        assert numbers_in(hand.files) == [1, 2, 3]
        hand.appends(4)
        assert await hand.hears(Kept) == Kept(number=4)
        assert numbers_in(hand.files) == [1, 2, 3, 4]
        hand.journal.close()

    run(test)


def test_what_waits_becomes_one_transaction(tmp_path: Path) -> None:
    async def test() -> None:
        hand = Hand(tmp_path)
        other = sql(hand.files)
        other.execute("BEGIN IMMEDIATE")  # somebody else writes
        for number in range(1, 101):
            hand.appends(number)
        other.execute("ROLLBACK")
        await hand.keeps(100)
        assert len(hand.heard) <= 2
        hand.journal.close()

    run(test)


def test_the_end_of_the_process_writes_what_waits(tmp_path: Path) -> None:
    async def test() -> None:
        hand = Hand(tmp_path)
        for number in range(1, 1001):
            hand.appends(number)
        hand.journal.close()
        assert numbers_in(hand.files) == list(range(1, 1001))

    run(test)


def test_the_next_worker_goes_on_with_the_next_number(tmp_path: Path) -> None:
    async def test() -> None:
        first = Hand(tmp_path)
        first.appends(1, 2)
        first.journal.close()
        second = Hand(tmp_path, epoch=2)
        with pytest.raises(AssertionError):
            second.appends(4)
        with pytest.raises(AssertionError):
            second.appends(2)
        second.appends(3)
        await second.keeps(3)
        second.appends(7, fresh=True)
        await second.keeps(7)
        assert numbers_in(second.files) == [7]
        second.journal.close()

    run(test)


def test_only_what_a_journal_is_asked_for_can_be_said_to_it(tmp_path: Path) -> None:
    async def test() -> None:
        hand = Hand(tmp_path)
        with pytest.raises(TypeError, match="Hello"):
            hand.journal.send(make_outgoing(JOURNAL, Hello(role="worker")))
        hand.journal.close()

    run(test)


# The disk ---------------------------------------------------------------------------------------------------------


def test_a_write_that_waits_for_the_file_is_reported_while_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "WRITE_STALLED_S", 0.05)

    async def test() -> None:
        hand = Hand(tmp_path)
        other = sql(hand.files)
        other.execute("BEGIN IMMEDIATE")
        hand.appends(1, size=INLINE_BYTES)
        await asyncio.to_thread(eventually, lambda: bool(hand.journal.writes.describe_problem()))
        assert hand.journal.writes.describe_problem() == "a write has been under way for 0 s"
        other.execute("ROLLBACK")
        await hand.keeps(1)
        assert hand.journal.writes.describe_problem() == ""
        assert hand.journal.writes.slowest_s > 0.05
        hand.journal.close()

    run(test)


@pytest.mark.usefixtures("log_grows")
def test_a_full_disk_is_told_once_and_everything_is_kept_once_there_is_room(tmp_path: Path) -> None:
    async def test() -> None:
        hand = Hand(tmp_path)
        hand.appends(1)
        await hand.keeps(1)
        with full_disk(hand.files.wal.stat().st_size):
            for number in range(2, 50):
                hand.appends(number)
            assert (await hand.hears(NotKept)).fenced is False
            assert numbers_in(hand.files) == [1]
        await hand.keeps(49)
        assert numbers_in(hand.files) == list(range(1, 50))
        assert "NotKept" not in {incoming.header.kind for incoming in hand.heard}
        hand.journal.close()

    run(test)


@pytest.mark.usefixtures("log_grows")
def test_a_full_disk_does_not_keep_the_process_from_ending_and_nothing_is_written_after_a_gap(tmp_path: Path) -> None:
    async def test() -> None:
        hand = Hand(tmp_path)
        hand.appends(1)
        await hand.keeps(1)
        with full_disk(hand.files.wal.stat().st_size + 4 * 4120):
            hand.appends(2, size=100_000)
            hand.appends(3, size=0)
            for number in range(4, 400):
                hand.appends(number, size=0)
            await hand.hears(NotKept)
            started_s = time.monotonic()
            hand.journal.close()
            assert time.monotonic() - started_s < 2.0
        assert numbers_in(hand.files) == [1]

    run(test)


def test_a_journal_that_has_reached_its_limit_says_so_and_goes_on_after_a_snapshot(tmp_path: Path) -> None:
    async def test() -> None:
        hand = Hand(tmp_path, bytes_max=3 << 20)
        number = 1
        hand.appends(number)
        async with asyncio.timeout(PATIENCE_S):
            while (answer := await hand.next()).header.kind == "Kept":
                number += 1
                hand.appends(number, size=50_000)  # in a transaction of its own, as none waits before it
        assert "--journal-max" in decode_body(NotKept, answer.body).problem
        assert hand.files.size_bytes() < 5 << 20
        hand.gives(TakeSnapshot(number=number))
        assert (await hand.hears(SnapshotTaken)).problem == ""
        hand.appends(number + 1)
        await hand.keeps(number + 1)
        assert numbers_in(hand.files) == [number + 1]
        hand.journal.close()

    run(test)


def test_steps_that_wait_are_bounded_and_the_process_ends(tmp_path: Path) -> None:
    async def test() -> None:
        hand = Hand(tmp_path)
        other = sql(hand.files)
        other.execute("BEGIN IMMEDIATE")
        third = encoded(1, size=QUEUED_BYTES_MAX // 3)[0]
        hand.appends(1)
        for number in (2, 3):
            hand.gives(Append(steps=[third], first=number))
        with pytest.raises(OSError, match="bytes to write and cannot"):
            hand.gives(Append(steps=[third * 2], first=4))
        other.execute("ROLLBACK")
        hand.journal.close()

    run(test)


def test_a_database_that_breaks_while_it_is_open_ends_the_process(tmp_path: Path) -> None:
    async def test() -> None:
        hand = Hand(tmp_path)
        hand.appends(1)
        await hand.keeps(1)
        other = sql(hand.files)
        other.execute("DROP TABLE meta")
        hand.appends(2)
        with pytest.raises(OSError, match="cannot be written"):
            await hand.hears(Kept)
        hand.journal.close()

    run(test)


def test_a_journal_is_deleted_with_all_that_is_on_its_way(tmp_path: Path) -> None:
    async def test() -> None:
        hand = Hand(tmp_path)
        hand.slow = lambda: time.sleep(PATIENCE_S)
        hand.appends(1, 2)
        hand.gives(TakeSnapshot(number=2))
        for number in range(3, 1000):
            hand.appends(number)
        started_s = time.monotonic()
        hand.journal.close(delete=True)
        assert time.monotonic() - started_s < PATIENCE_S / 2

    run(test)
    assert list(tmp_path.iterdir()) == []


def test_the_journal_of_a_successor_is_not_deleted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        old, new = Hand(tmp_path, epoch=1), Hand(tmp_path, epoch=2)
        new.appends(1)
        await new.keeps(1)
        old.journal.close(delete=True)
        assert "cannot be deleted: " in caplog.text
        assert numbers_in(new.files) == [1]
        new.journal.close()

    run(test)


# Another worker -----------------------------------------------------------------------------------------------------


def test_a_worker_that_lost_its_lease_is_told_once_and_keeps_nothing_any_more(tmp_path: Path) -> None:
    async def test() -> None:
        old = Hand(tmp_path, epoch=1)
        old.appends(1)
        await old.keeps(1)
        new = Hand(tmp_path, epoch=2)
        old.appends(2)
        assert (await old.hears(NotKept)).fenced
        old.appends(3)
        old.journal.close()
        assert old.journal.receive() is None
        new.appends(2)
        await new.keeps(2)
        assert numbers_in(new.files) == [1, 2]
        new.journal.close()
        with pytest.raises(Fenced):
            Hand(tmp_path, epoch=1)

    run(test)


# Snapshots ----------------------------------------------------------------------------------------------------------


def test_a_snapshot_is_of_the_moment_in_which_it_is_asked_for_and_steps_go_on_meanwhile(tmp_path: Path) -> None:
    async def test() -> None:
        hand = Hand(tmp_path)
        hand.slow = lambda: time.sleep(0.5)
        hand.state = b"after two"
        hand.appends(1, 2)
        hand.gives(TakeSnapshot(number=2))
        hand.state = b"later"
        hand.appends(3)
        await hand.keeps(3)
        assert "SnapshotTaken" not in {incoming.header.kind for incoming in hand.heard}
        assert await hand.hears(SnapshotTaken) == SnapshotTaken(number=2)
        found = found_in(hand.files)
        assert (found.snapshot, [step.number for step in found.steps]) == (b"after two", [3])
        hand.journal.close()

    run(test)


def test_one_snapshot_is_taken_at_a_time_and_the_last_one_stays(tmp_path: Path) -> None:
    async def test() -> None:
        hand = Hand(tmp_path)
        hand.slow = lambda: time.sleep(0.2)
        hand.appends(1, 2)
        hand.gives(TakeSnapshot(number=1))
        hand.gives(TakeSnapshot(number=2))
        assert await hand.hears(SnapshotTaken) == SnapshotTaken(number=2, problem="another one is being taken")
        assert await hand.hears(SnapshotTaken) == SnapshotTaken(number=1)
        hand.slow = lambda: None
        hand.gives(TakeSnapshot(number=2))
        assert await hand.hears(SnapshotTaken) == SnapshotTaken(number=2)
        hand.appends(3)
        await hand.keeps(3)
        hand.journal.close()
        assert [number for number, _ in hand.files.snapshots()] == [2]

    run(test)


def test_a_snapshot_that_fails_changes_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        hand = Hand(tmp_path, snapshot_limit_s=0.1)
        hand.slow = lambda: time.sleep(60)
        hand.appends(1)
        hand.gives(TakeSnapshot(number=1))
        assert (await hand.hears(SnapshotTaken)).problem == "it took longer than 0.1 s"
        assert numbers_in(hand.files) == [1]
        hand.journal.close()

    run(test)


def test_a_snapshot_of_what_has_begun_anew_since_is_given_up(tmp_path: Path) -> None:
    async def test() -> None:
        hand = Hand(tmp_path)
        hand.slow = lambda: time.sleep(0.2)
        hand.appends(1, 2)
        hand.gives(TakeSnapshot(number=2))
        hand.appends(3, fresh=True)
        assert (await hand.hears(SnapshotTaken)).problem == "the partition has restarted since"
        hand.appends(4)
        await hand.keeps(4)
        hand.journal.close()
        assert found_in(hand.files).snapshot is None
        assert list(hand.files.snapshots()) == []

    run(test)


def test_the_end_of_the_process_waits_for_a_snapshot(tmp_path: Path) -> None:
    async def test() -> None:
        hand = Hand(tmp_path)
        hand.slow = lambda: time.sleep(0.2)
        hand.state = b"the end"
        hand.appends(1, 2)
        hand.gives(TakeSnapshot(number=2))
        hand.journal.close()
        found = found_in(hand.files)
        assert (found.snapshot, list(found.steps)) == (b"the end", [])

    run(test)


@pytest.mark.usefixtures("log_grows")
def test_a_snapshot_may_be_noted_before_the_steps_that_it_has(tmp_path: Path) -> None:
    async def test() -> None:
        hand = Hand(tmp_path)
        hand.appends(1)
        await hand.keeps(1)
        with full_disk(hand.files.wal.stat().st_size + 4 * 4120):
            hand.appends(2, size=100_000)
            await hand.hears(NotKept)
            hand.gives(TakeSnapshot(number=2))
            assert await hand.hears(SnapshotTaken) == SnapshotTaken(number=2)
            hand.journal.close()
        assert found_in(hand.files).snapshot_number == 2
        assert numbers_in(hand.files) == []
        after = Hand(tmp_path, epoch=2)
        after.appends(3)
        await after.keeps(3)
        assert numbers_in(after.files) == [3]
        after.journal.close()

    run(test)


def test_many_snapshots_while_many_steps_are_written(tmp_path: Path) -> None:
    async def test() -> None:
        threads = threading.active_count()
        hand = Hand(tmp_path)
        number = 0
        for _ in range(5):
            for _ in range(1000):
                number += 1
                hand.appends(number)
            hand.state = f"after {number}".encode()
            hand.gives(TakeSnapshot(number=number))
            assert (await hand.hears(SnapshotTaken)).problem == ""
        hand.appends(number + 1)
        await hand.keeps(number + 1)
        hand.journal.close()
        found = found_in(hand.files)
        assert (found.snapshot, [step.number for step in found.steps]) == (b"after 5000", [5001])
        left = sql(hand.files).execute("SELECT count(*) FROM steps").fetchone()[0]
        assert left < 2000
        assert threading.active_count() < threads + 10

    run(test)
