"""Write the journal: a background thread commits steps, and a forked process writes snapshots.

    send --> queued --one transaction, with other queued appends--> Kept is returned
     |         |  ^
     |         disk error: reported once, then retried in order after a pause
     |
     small, and the thread is idle: committed at once in the caller's thread

Handing a few steps to a thread and back takes as long as writing them. So they are committed at once if the queue is
empty and the disk is fast; after a slow commit, everything goes through the thread for a while.

A snapshot is written by a forked process, which has a copy of the memory. Once it is durable, the journal
records it, before all queued steps: that frees room on a full disk. Only then are older steps deleted, in slices
between transactions. After another worker has taken the partition over, nothing is written any more.

`protocol.py` defines the transactions; `partition_worker/rm_channel.py` decides when a snapshot is due.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import Histogram

from yunishard.common.messages.journal_messages import Append, Kept, NotKept, SnapshotTaken, TakeSnapshot
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.wire import Incoming, Outgoing, decode_body, encode_body
from yunishard.common.names import JOURNAL
from yunishard.common.process.health import WriteTimes
from yunishard.common.settings import Settings
from yunishard.partition_worker.journal.protocol import Fenced, Journal
from yunishard.partition_worker.journal.snapshot_process import SnapshotProcess
from yunishard.partition_worker.recovery import JournalDamaged

GROUP_BYTES: Final = 2 << 20
GROUP_STEPS: Final = 256
"""Bytes and number of queued steps that share one transaction."""

QUEUED_BYTES_MAX: Final = 256 << 20
"""Bytes of steps that wait for the disk. A worker stops scheduling long before that. If its RM still fills the queue,
the worker ends; its successor can repeat everything that was not sent. Steps of any size pass if nothing else waits.
"""

INLINE_BYTES: Final = 64 << 10
"""Steps up to this size may be committed in the caller's thread."""

INLINE_MAX_S: Final = 0.005
"""An inline commit that takes longer counts as slow."""

SLOW_COMMIT_FACTOR: Final = 20
"""After a slow inline commit, nothing is committed inline for this many times its duration: a slow disk blocks the
worker's event loop for a twentieth of its time at most.
"""

RETRY_S: Final = 1.0
"""Pause after a disk error."""

SIZE_CHECK_BYTES: Final = 1 << 20
"""Bytes of steps between two checks of the file size."""

COMMIT_BOUNDS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Histogram buckets of commit times: a good disk takes one or two milliseconds."""

SNAPSHOT_MAX_S: Final = 60.0
"""Time limit of a snapshot. A snapshot that exceeds it fails; the next one is due after as many steps again."""

CLOSE_MAX_S: Final = 25.0
"""How long closing may wait for pending writes; less than the supervisor's stop timeout."""

BYTES_MAX: Final = Settings().journal_max_bytes
"""Default size limit of the steps on the disk."""

WriterReply = Kept | NotKept | SnapshotTaken

_log = logging.getLogger("core.scheduler.journal")


class JournalWriter:
    """An endpoint of the worker's process that writes its journal, with the thread that commits steps.

    It receives `Append` and `TakeSnapshot`, answers with `Kept`, `NotKept` and `SnapshotTaken`, and closes the journal.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        snapshot: Callable[[], Iterable[bytes]],
        wake: Callable[[], None],
        bytes_max: int = BYTES_MAX,
        snapshot_limit_s: float = SNAPSHOT_MAX_S,
    ) -> None:
        self.journal = journal
        self._last = journal.statistics().last
        """The latest step that was received."""
        self._encode_snapshot = snapshot
        self._snapshot_limit_s = snapshot_limit_s
        self._process: SnapshotProcess | None = None
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._answers: deque[Incoming] = deque()
        self.snapshot_at, self.snapshot_took_s = time.monotonic(), 0.0
        """Monotonic start time of the latest snapshot (or of the process, before the first one), and its duration."""
        self.commits = Histogram(
            "yunishard_journal_commit_seconds",
            "Seconds until a transaction was durable; messages that depend on it are sent then. Investigate if most "
            "take more than 0.05: the disk is slow, and so is every message.",
            buckets=COMMIT_BOUNDS_S,
            registry=None,
        )
        self.writes = WriteTimes()
        """The same of the last minutes, for the health check."""
        self._failure = ""
        """Why the journal can never be written again, although no other worker has the partition."""
        self._changed = threading.Condition()
        self._queue: deque[Append] = deque()
        self._queued_bytes = 0
        self._snapshot: int | None = None
        """The step of a durable snapshot that is not yet recorded."""
        self._closing = self._deleting = False
        self._idle = False
        """Whether the thread waits for work."""
        """The fields from `_queue` to here are shared and protected by `_changed`."""
        self._bytes_max = bytes_max
        self._slow_until = 0.0
        """Monotonic time before which nothing is committed inline."""
        self._stopped = False
        """Whether nothing is written any more: another worker has the partition, or the process ends while the disk
        fails.
        """
        self._problem = ""
        """The last reported disk error, until a commit succeeds."""
        self._unchecked_bytes = SIZE_CHECK_BYTES
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def close(self, *, delete: bool = False) -> None:
        """Write what is queued, wait for a running snapshot within CLOSE_MAX_S, and close the journal; or delete it, if
        the partition has ended.
        """
        until = time.monotonic() + CLOSE_MAX_S
        if self._process is not None and not self._process.stop(0.0 if delete else CLOSE_MAX_S) and not delete:
            _log.warning("no snapshot within %g s: the next worker has more steps to read", CLOSE_MAX_S)
        with self._changed:
            self._closing, self._deleting = True, delete
            self._changed.notify()
        self._thread.join(max(0.0, until - time.monotonic()))

    # Endpoint -------------------------------------------------------------------------------------------------------

    def receive(self) -> Incoming | None:
        """The next answer.

        Raises:
            OSError: the journal can never be written again.
        """
        if self._failure:
            raise OSError(self._failure)
        return self._answers.popleft() if self._answers else None

    def send(self, message: Outgoing) -> None:
        """Store steps, or start a snapshot.

        Raises:
            OSError: too many steps wait for the disk.
        """
        match message.header.kind:
            case "Append":
                append = decode_body(Append, message.body)
                follows = append.first > self._last if append.fresh else append.first == self._last + 1
                assert append.steps, message
                assert follows, (append.first, self._last)
                self._last = append.first + len(append.steps) - 1
                self._enqueue(append)
            case "TakeSnapshot":
                self._take_snapshot(decode_body(TakeSnapshot, message.body).number)
            case unknown:
                raise TypeError(unknown)

    def _enqueue(self, append: Append) -> None:
        """Write the steps after all that are queued."""
        size = sum(map(len, append.steps))
        with self._changed:
            if self._idle and not self._queue and size <= INLINE_BYTES and not append.fresh:
                kept = self._commit_inline(append)
                if kept is not None:
                    self._answers.append(_answer(kept))
                    self._wake()
                    return
            if self._queued_bytes and self._queued_bytes + size > QUEUED_BYTES_MAX:
                raise OSError(f"the journal has {self._queued_bytes} bytes to write and cannot: {self._problem}")
            self._queue.append(append)
            self._queued_bytes += size
            self._changed.notify()

    def _commit_inline(self, append: Append) -> Kept | None:
        """Commit under `_changed`, so that the thread stays idle. On failure the thread retries."""
        began_s = time.monotonic()
        if self._stopped or self._closing or self._snapshot is not None or began_s < self._slow_until:
            return None
        try:
            kept = self._commit([append])
        except (OSError, JournalDamaged):
            kept = None
        ended_s = time.monotonic()
        if kept is None:
            self._slow_until = ended_s + RETRY_S
        elif ended_s - began_s > INLINE_MAX_S:
            self._slow_until = ended_s + SLOW_COMMIT_FACTOR * (ended_s - began_s)
        return kept

    def _take_snapshot(self, number: int) -> None:
        if self._process is not None:
            self._reply(SnapshotTaken(number=number, problem="another one is being taken"))
            return
        started_s = time.monotonic()

        def finish(problem: str) -> None:
            self._process = None
            if problem:
                self._reply(SnapshotTaken(number=number, problem=problem))
                return
            self.snapshot_at, self.snapshot_took_s = started_s, time.monotonic() - started_s
            _log.debug("snapshot after step %d, in %.2f s", number, self.snapshot_took_s)
            with self._changed:
                self._snapshot = number
                self._changed.notify()

        process = SnapshotProcess(
            lambda: self.journal.write_snapshot(number, self._encode_snapshot()), limit_s=self._snapshot_limit_s
        )
        self._process = process
        process.watch(finish)

    def _reply(self, message: WriterReply) -> None:
        """Queue an answer and wake the driver; called from any thread."""
        self._answers.append(_answer(message))
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            return  # the event loop has ended, and the process ends

    # In the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (appends := self._next_batch()) is not None:
                if not self._stopped:
                    self._write(appends)
                if self.journal.has_garbage and not self._stopped:
                    self._trim()
        except Exception as error:
            if not isinstance(error, JournalDamaged):  # its text is enough
                _log.exception("the journal thread has failed")
            self._failure = f"the journal cannot be written: {error}"
            self._reply(NotKept(problem=self._failure))
        finally:
            self._finish()

    def _finish(self) -> None:
        try:
            self.journal.delete() if self._deleting else self.journal.close()
        except (OSError, JournalDamaged) as error:
            _log.warning("the journal of a partition that has ended cannot be deleted: %s", error)

    def _next_batch(self) -> list[Append] | None:
        """The appends of the next transaction; empty if there is only a snapshot to record or old steps to delete; None
        at the end.
        """
        with self._changed:
            while not self._queue:
                if self._snapshot is not None and not self._stopped:
                    return []
                if self._closing:
                    return None
                if self.journal.has_garbage and not self._stopped:
                    return []
                self._idle = True
                self._changed.wait()
                self._idle = False
            appends, steps, size = [self._queue.popleft()], 0, 0
            while True:
                latest = appends[-1]
                steps, size = steps + len(latest.steps), size + sum(map(len, latest.steps))
                follows = self._queue[0] if self._queue else None
                if follows is None or latest.fresh or follows.fresh:
                    break
                if size >= GROUP_BYTES or steps + len(follows.steps) > GROUP_STEPS:
                    break
                appends.append(self._queue.popleft())
            self._queued_bytes -= size
            return appends

    def _write(self, appends: list[Append]) -> None:
        """Retry until it succeeds, another worker has the partition, or the thread must end."""
        while True:
            try:
                self._commit_snapshot()
                kept = self._commit(appends) if appends else None
            except Fenced as error:
                self._report_fenced(error)
                return
            except OSError as error:
                if appends and str(error) != self._problem:
                    self._problem = str(error)
                    self._reply(NotKept(problem=self._problem))
                if not self._wait_for_retry():
                    self._stopped = True
                    return
            else:
                self._problem = ""
                if kept is not None:
                    self._reply(kept)
                return

    def _commit(self, appends: list[Append]) -> Kept:
        steps = [step for append in appends for step in append.steps]
        self._check_size(sum(map(len, steps)))
        began_s = time.perf_counter()
        with self.writes.measure():
            number = self.journal.append(steps, fresh=appends[0].fresh)
        self.commits.observe(time.perf_counter() - began_s)
        return Kept(number=number)

    def _commit_snapshot(self) -> None:
        with self._changed:
            number = self._snapshot
        if number is None:
            return
        new = self.journal.record_snapshot(number)
        with self._changed:
            self._snapshot = None
        self._reply(SnapshotTaken(number=number, problem="" if new else "the partition has restarted since"))

    def _wait_for_retry(self) -> bool:
        """Pause, but not longer than until a snapshot may free room; False if the thread must end."""
        with self._changed:
            known = self._snapshot
            self._changed.wait_for(lambda: self._closing or self._snapshot != known, RETRY_S)
            return not self._closing

    def _check_size(self, more: int) -> None:
        """Check the file size every SIZE_CHECK_BYTES, and on each commit while it is too large."""
        self._unchecked_bytes += more
        if self._unchecked_bytes < SIZE_CHECK_BYTES:
            return
        used = self.journal.used_bytes()
        if used + more > self._bytes_max:
            self.journal.compact()
            used = self.journal.used_bytes()
        if used + more > self._bytes_max:
            text = f"the journal has {used} bytes and gets {more} more, allowed are {self._bytes_max} (--journal-max)"
            raise OSError(text)
        self._unchecked_bytes = 0

    def _trim(self) -> None:
        """Delete some old steps. After an error, the next snapshot triggers another attempt."""
        try:
            self.journal.trim()
        except Fenced as error:
            self._report_fenced(error)
        except OSError as error:
            _log.warning("old steps cannot be removed from the journal for now: %s", error)

    def _report_fenced(self, error: Fenced) -> None:
        self._stopped = True
        self._reply(NotKept(problem=str(error), fenced=True))


def _answer(message: WriterReply) -> Incoming:
    return Incoming(JOURNAL, Header(kind=type(message).__name__), encode_body(message))
