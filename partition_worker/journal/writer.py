"""What writes: everything that waits becomes one transaction of a thread, while the worker goes on deciding.

    put --> waits --one transaction, with what waits beside it--> said to be kept
     |        |  ^
     |        full: the problem is said once, and after a pause it is tried again, all in order
     |
     little, and nothing else to do: written at once, and kept

To hand a few steps to a thread and back takes as long as to write them. So they are written at once where nothing waits
and the disk is quick; after one transaction that was not, everything goes to the thread for a while.

A snapshot is noted before everything that waits: it has whatever those steps did, and where there is no room it makes
some. Once another worker has the partition nothing is written any more. What is not needed is deleted in slices between
transactions, and while nothing else is to be done.

Not here: what a transaction consists of (`database.py`), messages on their way (`endpoint.py`).
"""

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from common.histogram import Histogram
from common.journal_messages import Append, Kept, NotKept, SnapshotTaken
from common.messages import Header
from partition_worker.journal.database import STATEMENT_STEPS, Database, Row, passing, row_of
from partition_worker.journal.files import Fenced

GROUP_BYTES: Final = 2 << 20
"""Steps that become one transaction, if more than one `Append` waits; STATEMENT_STEPS bounds it, too."""

WAITING_BYTES_MAX: Final = 256 << 20
"""Steps that wait for the disk. A worker decides nothing long before; should its RM still fill this, the worker ends,
and what it has not told can be told again by the one that follows it.
"""

AT_ONCE_BYTES: Final = 64 << 10
"""Steps that may be written at once."""

QUICK_S: Final = 0.005
"""What such a transaction may take."""

REST: Final = 20
"""After one that was not quick nothing is written at once for so many times as long: the worker's loop stands still for
a slow disk a twentieth of its time at most.
"""

RETRY_S: Final = 1.0
"""Pause after the disk did not take something."""

LOOK_BYTES: Final = 1 << 20
"""Bytes of steps between two looks at how large the files are."""

COMMIT_BOUNDS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Buckets for the time of a transaction: a good disk takes one or two milliseconds."""

_log = logging.getLogger("core.scheduler.journal")


class _Label(msgspec.Struct, array_like=True):
    """The beginning of a `Step`: what stands in columns of its own."""

    number: int
    at: float
    source: str
    header: Header


_label = msgspec.msgpack.Decoder(_Label)


Said = Kept | NotKept | SnapshotTaken


class TooLarge(OSError):
    """The files have reached their limit."""


class Writer:
    """The thread. `say` is called in it."""

    def __init__(self, database: Database, *, bytes_max: int, say: Callable[[Said], None]) -> None:
        self._database = database
        self._bytes_max = bytes_max
        self._say = say
        self.broken = ""
        """Why nothing will ever be written again, though nobody else has the partition."""
        self._changed = threading.Condition()
        self._waiting: deque[Append] = deque()
        self._waiting_bytes = 0
        self._snapshot: int | None = None
        """The step after which one has been taken that is to be noted."""
        self._closing = False
        self._resting = False
        """Whether the thread has nothing to do and waits."""
        """These five are shared, under `_changed`."""
        self._slow_until = 0.0
        """Until then nothing is written at once, in monotonic seconds."""
        self._over = False
        """Whether nothing is written any more: another worker has the partition, or the process ends and the disk does
        not take what comes next.
        """
        self._problem = ""
        """The last one that was said, while it lasts."""
        self._unlooked = LOOK_BYTES
        self.commits = Histogram(COMMIT_BOUNDS_S)
        """How long transactions took that kept something, in seconds; only ever read from other threads."""
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def put(self, append: Append) -> Kept | None:
        """Have it written, after everything that was put before; None if it is to be said later what came of that.

        Raises:
            OSError: too much waits already.
        """
        size = sum(map(len, append.steps))
        with self._changed:
            if self._resting and not self._waiting and size <= AT_ONCE_BYTES and not append.fresh:
                kept = self._at_once(append)
                if kept is not None:
                    return kept
            if self._waiting_bytes + size > WAITING_BYTES_MAX:
                raise OSError(f"the journal has {self._waiting_bytes} bytes to write and cannot: {self._problem}")
            self._waiting.append(append)
            self._waiting_bytes += size
            self._changed.notify()
        return None

    def _at_once(self, append: Append) -> Kept | None:
        """Under `_changed`, so that the thread goes on resting. What does not work is for the thread to try again."""
        began_s = time.monotonic()
        if self._over or self._closing or self._snapshot is not None or began_s < self._slow_until:
            return None
        try:
            kept = self._done([append])
        except (Fenced, sqlite3.Error, OSError):
            kept = None
        ended_s = time.monotonic()
        if kept is None:
            self._slow_until = ended_s + RETRY_S
        elif ended_s - began_s > QUICK_S:
            self._slow_until = ended_s + REST * (ended_s - began_s)
        return kept

    def note_snapshot(self, number: int) -> None:
        """One has been taken after this step."""
        with self._changed:
            self._snapshot = number
            self._changed.notify()

    def close(self, limit_s: float) -> None:
        """Write what waits, if the disk takes it within this time, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(max(0.0, limit_s))

    # In the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (appends := self._next()) is not None:
                if not self._over:
                    self._do(appends)
                if self._database.forgetful and not self._over:
                    self._forget()
        except Exception as error:
            _log.exception("nothing more can be written")
            self.broken = f"the journal cannot be written: {error}"
            self._say(NotKept(problem=self.broken))
        finally:
            self._database.close()

    def _next(self) -> list[Append] | None:
        """What becomes the next transaction; nothing if there is only a snapshot to be noted, or something to forget;
        None at the end.
        """
        with self._changed:
            while not self._waiting:
                if self._snapshot is not None and not self._over:
                    return []
                if self._closing:
                    return None
                if self._database.forgetful and not self._over:
                    return []
                self._resting = True
                self._changed.wait()
                self._resting = False
            appends, steps, size = [self._waiting.popleft()], 0, 0
            while True:
                latest = appends[-1]
                steps, size = steps + len(latest.steps), size + sum(map(len, latest.steps))
                follows = self._waiting[0] if self._waiting else None
                if follows is None or latest.fresh or follows.fresh:
                    break
                if size >= GROUP_BYTES or steps + len(follows.steps) > STATEMENT_STEPS:
                    break
                appends.append(self._waiting.popleft())
            self._waiting_bytes -= size
            return appends

    def _do(self, appends: list[Append]) -> None:
        """Until it works, another worker has the partition, or it is time to end."""
        while True:
            try:
                self._note()
                answer = self._done(appends) if appends else None
            except Fenced as error:
                self._over = True
                self._say(NotKept(problem=str(error), fenced=True))
                return
            except (sqlite3.Error, OSError) as error:
                if isinstance(error, sqlite3.Error) and not passing(error):
                    raise
                if appends and str(error) != self._problem:
                    self._problem = str(error)
                    self._say(NotKept(problem=self._problem))
                if not self._waited():
                    self._over = True
                    return
            else:
                self._problem = ""
                if answer is not None:
                    self._say(answer)
                return

    def _done(self, appends: list[Append]) -> Kept:
        rows = [row for append in appends for row in _rows(append)]
        self._check_size(sum(len(row.step) for row in rows))
        began_s = time.perf_counter()
        self._database.append(rows, fresh=appends[0].fresh)
        self.commits.observe(time.perf_counter() - began_s)
        return Kept(number=rows[-1].number)

    def _note(self) -> None:
        """The snapshot, if there is one."""
        with self._changed:
            number = self._snapshot
        if number is None:
            return
        new = self._database.note_snapshot(number)
        with self._changed:
            self._snapshot = None
        self._say(SnapshotTaken(number=number, problem="" if new else "the partition has begun anew since"))

    def _waited(self) -> bool:
        """A pause, unless a snapshot comes that may make room; False if it is time to end."""
        with self._changed:
            known = self._snapshot
            self._changed.wait_for(lambda: self._closing or self._snapshot != known, RETRY_S)
            return not self._closing

    def _check_size(self, more: int) -> None:
        """Look from time to time, and whenever it was too large."""
        self._unlooked += more
        if self._unlooked < LOOK_BYTES:
            return
        used = self._database.used_bytes()
        if used + more > self._bytes_max:
            while self._database.forgetful:
                self._forget()
            self._database.empty_log()
            used = self._database.used_bytes()
        if used + more > self._bytes_max:
            text = f"the journal has {used} bytes and gets {more} more, allowed are {self._bytes_max} (--journal-max)"
            raise TooLarge(text)
        self._unlooked = 0

    def _forget(self) -> None:
        """Should it fail, there will be another snapshot."""
        try:
            self._database.forget_some()
        except Fenced:
            return  # the next step will tell
        except (sqlite3.Error, OSError) as error:
            if isinstance(error, sqlite3.Error) and not passing(error):
                raise
            _log.warning("old steps cannot be removed from the journal for now: %s", error)
            self._database.forgetful = False


def _rows(append: Append) -> list[Row]:
    rows = []
    for step in append.steps:
        label = _label.decode(step)
        rows.append(row_of(label.number, label.at, label.header.kind, step))
    return rows
