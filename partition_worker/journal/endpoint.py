"""The journal as a peer of the worker's machine inside its own process: it is handed steps and says when they are
durable, and it takes snapshots while the worker goes on.

A snapshot is written by a child that has the memory of the moment in which it was asked for; once its file is durable
the database notes it, and only then what came before may go.

Not here: the thread that writes (`writer.py`), when it is time for a snapshot (`partition_worker/recorder.py`).
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from common.histogram import Histogram
from common.journal_messages import Append, SnapshotTaken, TakeSnapshot
from common.machine import Delivery, Send
from common.messages import Header
from common.names import JOURNAL
from common.wire import body_of, decoded
from partition_worker.journal import snapshots
from partition_worker.journal.child import Child
from partition_worker.journal.database import Database
from partition_worker.journal.files import Files
from partition_worker.journal.reading import Recovered, recovered
from partition_worker.journal.writer import Said, Writer

SNAPSHOT_MAX_S: Final = 60.0
"""How long a snapshot may take. One that takes longer fails, and the next one is due when as much has come again."""

CLOSE_MAX_S: Final = 25.0
"""How long the end of the process may take for what is being written; less than the supervisor's patience."""

BYTES_MAX: Final = 1 << 30
"""How large the steps may become on the disk if nobody says otherwise."""

_log = logging.getLogger("core.scheduler.journal")


class Journal:
    """The open journal of a partition.

    Raises:
        Fenced: another worker has the partition under a later epoch.
        JournalDamaged: it cannot be understood.
        OSError: the disk does not let us.
    """

    def __init__(
        self,
        files: Files,
        *,
        epoch: int,
        snapshot: Callable[[], bytes],
        wake: Callable[[], None],
        bytes_max: int = BYTES_MAX,
        snapshot_limit_s: float = SNAPSHOT_MAX_S,
    ) -> None:
        database = Database(files, epoch)
        self.files = files
        self._last = database.last
        """The latest step that was handed over."""
        self._snapshot = snapshot
        self._snapshot_limit_s = snapshot_limit_s
        self._child: Child | None = None
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._answers: deque[Delivery] = deque()
        self.snapshot_at, self.snapshot_took_s = time.monotonic(), 0.0
        """When the latest snapshot was begun (in monotonic seconds), or the process, and how long that took."""
        self._writer = Writer(database, bytes_max=bytes_max, say=self._say)

    def recovered(self) -> AbstractContextManager[Recovered]:
        """What is in it; to be read before the first step is handed over.

        Raises:
            JournalDamaged: also while its steps are read.
        """
        return recovered(self.files)

    @property
    def commits(self) -> Histogram:
        """How long transactions took."""
        return self._writer.commits

    def size_bytes(self) -> int:
        """What it takes on the disk, with its snapshots."""
        return self.files.size_bytes()

    def close(self) -> None:
        """Write what waits, and end. A snapshot that is being taken may end, too, if it does so soon."""
        until = time.monotonic() + CLOSE_MAX_S
        if self._child is not None and not self._child.end(CLOSE_MAX_S):
            _log.warning("no snapshot within %g s: the next worker has to replay steps", CLOSE_MAX_S)
        self._writer.close(until - time.monotonic())

    # Endpoint -------------------------------------------------------------------------------------------------------

    def receive(self) -> Delivery | None:
        """The next answer.

        Raises:
            OSError: nothing can be written any more, ever.
        """
        if self._writer.broken:
            raise OSError(self._writer.broken)
        return self._answers.popleft() if self._answers else None

    def send(self, message: Send) -> None:
        match message.header.kind:
            case "Append":
                append = decoded(Append, message.body)
                follows = append.first > self._last if append.fresh else append.first == self._last + 1
                assert append.steps, message
                assert follows, (append.first, self._last)
                self._last = append.first + len(append.steps) - 1
                kept = self._writer.put(append)
                if kept is not None:
                    self._answers.append(_answer(kept))
                    self._wake()
            case "TakeSnapshot":
                self._take_snapshot(decoded(TakeSnapshot, message.body).number)
            case unknown:
                raise TypeError(unknown)

    def _take_snapshot(self, number: int) -> None:
        if self._child is not None:
            self._say(SnapshotTaken(number=number, problem="another one is being taken"))
            return
        started_s = time.monotonic()
        path = self.files.snapshot(number)

        def write() -> None:
            snapshots.write(path, number, self._snapshot())

        def done(problem: str) -> None:
            self._child = None
            if problem:
                self._say(SnapshotTaken(number=number, problem=problem))
                return
            self.snapshot_at, self.snapshot_took_s = started_s, time.monotonic() - started_s
            _log.debug("snapshot after step %d, in %.2f s", number, self.snapshot_took_s)
            self._writer.note_snapshot(number)

        child = Child(write, limit_s=self._snapshot_limit_s)
        self._child = child
        child.follow(done)

    def _say(self, message: Said) -> None:
        """From any thread."""
        self._answers.append(_answer(message))
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            return  # the loop has ended, and the process will


def _answer(message: Said) -> Delivery:
    return Delivery(JOURNAL, Header(kind=type(message).__name__), body_of(message))
