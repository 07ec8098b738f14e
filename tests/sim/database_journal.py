"""Journals in the simulated database, as `partition_worker/journal/postgres_journal.py` keeps them in a real one.

A group commit is one transaction that checks the epoch and the order of steps. One of unknown outcome is settled by
reading the row under our epoch before anything else is written. `DatabaseJournal` is what the conformance suite knows;
`DatabaseWriter` is the end of a worker's process, which waits for each answer.

Not here: the database (`database.py`), the writer's messages (`disk.py`).
"""

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import msgspec

from tests.sim.database import Client, Database, Tables, Work
from tests.sim.disk import Disk, JournalFile, Record, SimulatedJournal
from tests.sim.timeline import Timeline
from yunishard.common.messages.journal_messages import Append, Kept, NotKept, SnapshotTaken, Step, TakeSnapshot
from yunishard.common.messages.wire import Incoming, Outgoing, decode_body, make_outgoing
from yunishard.common.names import JOURNAL
from yunishard.partition_worker.journal.protocol import Fenced

AGAIN_S: Final = 0.5
"""How long until a transaction that failed is tried again."""

_decode_step = msgspec.msgpack.Decoder(Step).decode
_MISSING: Final = Record(b"", 1)
"""In place of a step that was never stored: it does not have its checksum."""


class JournalClient:
    """What a worker does with its journal."""

    def __init__(self, partition: str, epoch: int) -> None:
        self.partition, self.epoch = partition, epoch
        self.begins, self.last = 1, 0
        self.is_unsettled = False
        """Whether the outcome of the last commit is unknown."""

    def claim(self) -> Work[JournalFile]:
        """Open the journal under our epoch; its content."""
        file = yield partial(_claim, self.partition, self.epoch)
        assert isinstance(file, JournalFile)
        self.begins, self.last = file.begins, file.last
        return file

    def append(self, steps: Sequence[bytes], *, fresh: bool) -> Work[int]:
        numbered = [(_decode_step(step).number, step) for step in steps]
        if self.is_unsettled:
            yield from self.settle()
        needed = self.begins if self.last < self.begins else self.last + 1
        unwritten = [(number, step) for number, step in numbered if number >= needed]
        if unwritten:
            self.is_unsettled = True
            fresh = fresh and len(unwritten) == len(numbered)
            group = [step for _, step in unwritten]
            if not (yield partial(_append, self.partition, self.epoch, unwritten[0][0], group, fresh)):
                yield from self.settle()  # raises Fenced, if that is why
                raise OSError("an earlier commit has been carried out only now")
            self.is_unsettled = False
            self.last, self.begins = unwritten[-1][0], unwritten[0][0] if fresh else self.begins
        return numbered[-1][0]

    def settle(self) -> Work[None]:
        """Find out the outcome of the last commit."""
        self.begins, self.last = yield partial(_read_row, self.partition, self.epoch)

    def delete(self) -> Work[None]:
        """The partition has ended."""
        yield partial(_delete, self.partition, self.epoch)

    def record_snapshot(self, number: int, content: bytes) -> Work[bool]:
        if number < self.begins:
            return False
        self.begins = yield partial(_record_snapshot, self.partition, self.epoch, number, content)
        return self.begins == number + 1


# In the database ------------------------------------------------------------------------------------------------------


def _claim(partition: str, epoch: int, tables: Tables, now: float) -> JournalFile:
    file = tables.journal(partition)
    if file.epoch > epoch:
        raise Fenced(f"another worker has the journal of {partition}, under a later epoch")
    file.epoch = epoch
    return file.copy()


def is_ours(file: JournalFile, epoch: int) -> bool:
    """The check of the epoch in each transaction."""
    return file.epoch == epoch


def _append(
    partition: str, epoch: int, first: int, steps: list[bytes], fresh: bool, tables: Tables, now: float
) -> bool:
    file = tables.journal(partition)
    if not is_ours(file, epoch) or file.last >= first:
        return False
    if fresh:
        file.clear()
        file.begins = first
    if not file.steps:
        file.first = max(first, file.begins)
    file.steps += [_MISSING] * (first - file.last - 1)
    file.steps += [Record.of(step) for step in steps]
    return True


def _read_row(partition: str, epoch: int, tables: Tables, now: float) -> tuple[int, int]:
    file = tables.journal(partition)
    if not is_ours(file, epoch):
        raise Fenced("another worker has the partition now")
    return file.begins, file.last


def _record_snapshot(partition: str, epoch: int, number: int, content: bytes, tables: Tables, now: float) -> int:
    file = tables.journal(partition)
    if not is_ours(file, epoch):
        raise Fenced("another worker has the partition now")
    if number >= file.begins:
        file.snapshot = Record.of(content)
        file.steps = file.steps[max(0, number + 1 - file.first) :]
        file.begins = file.first = number + 1
    return file.begins


def _delete(partition: str, epoch: int, tables: Tables, now: float) -> None:
    if not is_ours(tables.journal(partition), epoch):
        raise Fenced("another worker has the partition now")
    del tables.journals[partition]


# For the conformance suite --------------------------------------------------------------------------------------------


class DatabaseJournal(SimulatedJournal):
    """A journal of which each transaction is over at once."""

    def __init__(self, disk: "DatabaseJournals", partition: str, epoch: int) -> None:
        super().__init__(disk, disk.journal(partition), epoch)
        self._database = disk.database
        self._client = JournalClient(partition, epoch)
        self._database.run(self._client.claim())

    @property
    def fenced(self) -> bool:
        return not is_ours(self._file, self._client.epoch)

    def append(self, steps: Sequence[bytes], *, fresh: bool) -> int:
        loses_answer, self.loses_answer = self.loses_answer, False
        return self._database.run(self._client.append(steps, fresh=fresh), loses_answer=loses_answer)

    def record_snapshot(self, number: int) -> bool:
        content = self._file.unfinished.get(number, _MISSING).data
        recorded = self._database.run(self._client.record_snapshot(number, content))
        self.has_garbage = True
        return recorded


class DatabaseJournals(Disk):
    """The journals in a database, as a disk."""

    def __init__(self) -> None:
        self.database = Database(Timeline(), random.Random(1))
        super().__init__()
        self.journals = self.database.primary.journals

    @property
    def full(self) -> bool:
        return self.database.full

    @full.setter
    def full(self, is_full: bool) -> None:
        self.database.full = is_full

    def open(self, partition: str, epoch: int) -> DatabaseJournal:
        return DatabaseJournal(self, partition, epoch)


# In a worker's process ------------------------------------------------------------------------------------------------


class DatabaseWriter:
    """A worker's end of its journal: an endpoint inside its process, with a thread of its own.

    `answer` takes what it says; `snapshot` gives the data of the partition as it is at this moment.
    """

    def __init__(
        self,
        client: Client,
        journal: JournalClient,
        timeline: Timeline,
        *,
        answer: Callable[[Incoming], None],
        snapshot: Callable[[], Iterable[bytes]],
    ) -> None:
        self._client, self._journal, self._timeline = client, journal, timeline
        self._answer, self._snapshot = answer, snapshot
        self._waiting: deque[Append | tuple[int, bytes]] = deque()
        """What is to be written; of a snapshot, the step and the content."""
        self._is_writing = False
        self._complained = False

    def give(self, message: Outgoing) -> None:
        """Keep this."""
        match message.header.kind:
            case "Append":
                self._waiting.append(decode_body(Append, message.body))
            case "TakeSnapshot":
                number = decode_body(TakeSnapshot, message.body).number
                self._waiting.append((number, b"".join(self._snapshot())))
            case unknown:
                raise TypeError(unknown)
        self._begin()

    def delete(self) -> None:
        """Delete the journal of a partition that has ended."""
        self._waiting.clear()
        self._client.drive(self._journal.delete(), lambda _: None)

    def _begin(self) -> None:
        if not self._is_writing and self._waiting:
            self._is_writing = True
            self._try(self._next_batch())

    def _next_batch(self) -> list[Append] | tuple[int, bytes]:
        """A snapshot, or the appends of one group commit."""
        first = self._waiting.popleft()
        if isinstance(first, tuple):
            return first
        appends = [first]
        while self._waiting and isinstance(follows := self._waiting[0], Append) and not follows.fresh:
            appends.append(follows)
            self._waiting.popleft()
        return appends

    def _try(self, batch: list[Append] | tuple[int, bytes]) -> None:
        if isinstance(batch, tuple):
            self._client.drive(self._journal.record_snapshot(*batch), partial(self._finish, batch))
        else:
            steps = [step for one in batch for step in one.steps]
            self._client.drive(self._journal.append(steps, fresh=batch[0].fresh), partial(self._finish, batch))

    def _finish(self, batch: list[Append] | tuple[int, bytes], outcome: int | bool | OSError) -> None:
        if isinstance(outcome, Fenced):
            self._say(NotKept(problem=str(outcome), fenced=True))
            return  # and nothing is ever written again
        if isinstance(outcome, OSError):
            if not self._complained:
                self._complained = True
                self._say(NotKept(problem=str(outcome)))
            self._timeline.after(AGAIN_S, partial(self._client.resume, partial(self._try, batch)))
            return
        self._complained = self._is_writing = False
        self._say(SnapshotTaken(number=batch[0]) if isinstance(batch, tuple) else Kept(number=outcome))
        self._begin()

    def _say(self, message: Kept | NotKept | SnapshotTaken) -> None:
        said = make_outgoing("", message)
        self._timeline.after(0, partial(self._answer, Incoming(JOURNAL, said.header, said.body)))
