"""The disks of the simulation: a journal for each partition, which outlives the workers that write it.

It does what the real journal does with SQLite: what waits is written in one transaction, which a crash leaves wholly
there or not at all; every record has a checksum; the epoch in the file fences every writer of an earlier one. It can be
slow, full, damaged, lost, and replaced by an earlier copy.

Not here: when any of that happens (`faults.py`), what the records mean.
"""

import random
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import msgspec

from tests.attempts import MemoryAttempts
from tests.sim.timeline import Timeline
from yunishard.common.messages.journal_messages import Append, Kept, NotKept, SnapshotTaken, Step, TakeSnapshot
from yunishard.common.messages.wire import Incoming, Outgoing, decode_body, make_outgoing
from yunishard.common.names import JOURNAL
from yunishard.partition_worker.journal.protocol import Fenced, Statistics
from yunishard.partition_worker.recovery import JournalDamaged

WRITE_MAX_S: Final = 0.003
"""How long a transaction takes on a disk that is well."""

SLOW_WRITE_MAX_S: Final = 0.4
COPIES_MAX: Final = 4
"""States of a journal to which it can go back: so many of its partition's present life, so many of earlier ones."""

COPIED: Final = 0.05
"""The share of transactions after which there is a copy."""

AGAIN_S: Final = 0.5
"""How long until a transaction that found no room is tried again."""


FORMAT: Final = 1
"""Of what is on the disk."""

_step = msgspec.msgpack.Decoder(Step)


@dataclass(slots=True)
class Record:
    """Bytes, and what they should add up to."""

    data: bytes
    checksum: int

    @classmethod
    def of(cls, data: bytes) -> "Record":
        return cls(data, zlib.crc32(data))

    @property
    def whole(self) -> bool:
        return zlib.crc32(self.data) == self.checksum


@dataclass(slots=True)
class JournalFile:
    """What is on the disk of one partition."""

    epoch: int = 0
    """Of the latest worker that opened it."""
    openings: int = 0
    """How often it was opened: an earlier worker under the same lease is fenced, too."""
    snapshot: Record | None = None
    begins: int = 1
    """Number of the first step that is needed."""
    first: int = 1
    """Number of the first of the steps."""
    steps: list[Record] = field(default_factory=list)
    unfinished: dict[int, Record] = field(default_factory=dict)
    """Snapshots that are not recorded, by the step."""
    format: int = FORMAT
    copies: deque["JournalFile"] = field(default_factory=partial(deque, maxlen=COPIES_MAX))
    """As it was earlier."""
    before: deque["JournalFile"] = field(default_factory=partial(deque, maxlen=COPIES_MAX))
    """As it was at the end of earlier lives of its partition."""

    def copy(self) -> "JournalFile":
        """As it is now, without its copies."""
        snapshot = replace(self.snapshot) if self.snapshot is not None else None
        steps = [replace(one) for one in self.steps]
        return replace(self, snapshot=snapshot, steps=steps, copies=deque(), before=deque())

    def go_back(self, rng: random.Random) -> bool:
        """Become one of the copies; whether there was one."""
        choices = [one for one in (self.copies, self.before) if one]
        if not choices:
            return False
        earlier = rng.choice(rng.choice(choices)).copy()
        self.epoch, self.snapshot, self.steps = earlier.epoch, earlier.snapshot, earlier.steps
        self.begins, self.first = earlier.begins, earlier.first
        return True

    @property
    def empty(self) -> bool:
        return self.snapshot is None and not self.steps

    def read(self) -> tuple[bytes | None, list[bytes]]:
        """The snapshot and the steps after it. Raises JournalDamaged."""
        if self.snapshot is not None and not self.snapshot.whole:
            raise JournalDamaged("the snapshot does not have its checksum")
        if self.steps and self.first != self.begins:
            raise JournalDamaged(f"step {self.begins} is missing")
        for number, step in enumerate(self.steps, self.first):
            if not step.whole:
                raise JournalDamaged(f"step {number} does not have its checksum")
        return self.snapshot.data if self.snapshot else None, [one.data for one in self.steps]

    def flip(self, rng: random.Random) -> bool:
        """Damage one byte somewhere; whether there was one."""
        records = [one for one in (self.snapshot, *self.steps) if one is not None and one.data]
        if not records:
            return False
        record = rng.choice(records)
        at = rng.randrange(len(record.data))
        record.data = record.data[:at] + bytes([record.data[at] ^ 0x55]) + record.data[at + 1 :]
        return True

    def clear(self) -> None:
        """Nothing is left but the epoch."""
        self.snapshot, self.begins, self.first, self.steps, self.unfinished = None, 1, 1, [], {}

    @property
    def last(self) -> int:
        return self.first + len(self.steps) - 1


class SimulatedJournal:
    """A journal on a simulated disk."""

    def __init__(self, disk: "Disk", file: JournalFile, epoch: int) -> None:
        if file.format > FORMAT:
            raise OSError(f"the journal has format {file.format}, and formats up to {FORMAT} are read")
        if file.epoch > epoch:
            raise Fenced(f"another worker has the partition, under epoch {file.epoch}")
        file.read()
        self._disk, self._file = disk, file
        file.epoch, file.openings = epoch, file.openings + 1
        self._opening = file.openings
        self.has_garbage = False
        self.loses_answer = False
        """Whether the next transaction is made, and nobody hears of it."""

    @property
    def fenced(self) -> bool:
        """Whether somebody has opened the file since."""
        return self._file.openings > self._opening

    def _begin(self) -> None:
        if self.fenced:
            raise Fenced("another worker has the partition")
        if self._disk.full:
            raise OSError("the disk is full")

    def append(self, steps: Sequence[bytes], *, fresh: bool) -> int:
        self._begin()
        file, first = self._file, _step.decode(steps[0]).number
        last = first + len(steps) - 1
        if fresh and first > file.last and first >= file.begins:
            file.before.append(file.copy())
            file.clear()
            file.begins = first
        if not file.steps:
            file.first = max(first, file.begins)
        more = steps[max(0, file.last + 1 - first) :]
        assert not more or first <= file.last + 1, (first, file.last)
        file.steps += [Record.of(step) for step in more]
        if self.loses_answer:
            self.loses_answer = False
            raise OSError("the connection is lost")
        return last

    def read_steps(self, first: int) -> Iterator[Step]:
        _, steps = self._file.read()
        return (one for step in steps if (one := _step.decode(step)).number >= first)

    def write_snapshot(self, number: int, content: Iterable[bytes]) -> None:
        if self._disk.full:
            raise OSError("the disk is full")
        self._file.unfinished[number] = Record.of(b"".join(content))

    def record_snapshot(self, number: int) -> bool:
        if self.fenced:
            raise Fenced("another worker has the partition")
        file = self._file
        if number < file.begins:
            return False
        file.snapshot, file.unfinished = file.unfinished[number], {}
        file.steps = file.steps[max(0, number + 1 - file.first) :]
        file.begins = file.first = number + 1
        self.has_garbage = True
        return True

    def read_snapshot(self) -> Iterator[bytes] | None:
        content, _ = self._file.read()
        return None if content is None else iter([content[:9], content[9:]])

    def trim(self) -> None:
        self.has_garbage = False
        if self.fenced:
            raise Fenced("another worker has the partition")

    def compact(self) -> None:
        self.trim()

    def used_bytes(self) -> int:
        return sum(len(one.data) for one in self._file.steps)

    def statistics(self) -> Statistics:
        file = self._file
        snapshot = file.begins - 1 if file.snapshot is not None else 0
        size = self.used_bytes() + (len(file.snapshot.data) if file.snapshot is not None else 0)
        return Statistics(file.begins, snapshot, max(file.last, snapshot), size)

    def delete(self) -> None:
        if self.fenced:
            raise Fenced("another worker has the partition")
        self._disk.forget(self._file)

    def close(self) -> None:
        """Nothing to release."""


class Disk:
    """All journals, and how the disk is that they are on."""

    def __init__(self) -> None:
        self.journals: dict[str, JournalFile] = {}
        self.aside: dict[str, JournalFile] = {}
        self.full = False
        self.slow = False
        self.deadly: set[bytes] = set()
        """Messages that end every worker that handles them."""
        self._attempts: dict[str, MemoryAttempts] = {}

    def attempts_of(self, partition: str) -> MemoryAttempts:
        """For the next worker of the partition."""
        before = self._attempts.get(partition)
        found = MemoryAttempts(deadly=self.deadly) if before is None else before.successor()
        self._attempts[partition] = found
        return found

    def journal(self, partition: str) -> JournalFile:
        return self.journals.setdefault(partition, JournalFile())

    def open(self, partition: str, epoch: int) -> SimulatedJournal:
        return SimulatedJournal(self, self.journal(partition), epoch)

    def epochs(self) -> dict[str, int]:
        return {name: one.epoch for name, one in sorted(self.journals.items())}

    def set_aside(self, partition: str, epoch: int) -> str:
        if self.journals[partition].epoch > epoch:
            raise Fenced("another worker has the partition")
        self.aside[partition] = self.journals.pop(partition)
        return f"{partition}, aside"

    def forget(self, file: JournalFile) -> None:
        """The journal of a partition that has ended."""
        for found in (self.journals, self.aside):
            for partition in [name for name, one in found.items() if one is file]:
                del found[partition]


class Writer:
    """A worker's end of its journal: an endpoint inside its process, with a thread of its own.

    `answer` takes what it says; `snapshot` gives the data of the partition as it is at this moment; `stopped` says
    whether the process stands still, and its thread with it.
    """

    def __init__(
        self,
        disk: Disk,
        file: JournalFile,
        epoch: int,
        timeline: Timeline,
        rng: random.Random,
        *,
        answer: Callable[[Incoming], None],
        snapshot: Callable[[], Iterable[bytes]],
        stopped: Callable[[], bool],
    ) -> None:
        self._disk, self._file = disk, file
        self._journal = SimulatedJournal(disk, file, epoch)
        self._timeline, self._rng = timeline, rng
        self._answer, self._snapshot, self._stopped = answer, snapshot, stopped
        self._waiting: deque[tuple[str, Append | int | None, bytes]] = deque()
        """Kind, what to write, and the data of a snapshot."""
        self._writing: list[tuple[str, Append | int | None, bytes]] = []
        self._complained = False
        self._ended = False

    def give(self, message: Outgoing) -> None:
        """Keep this."""
        match message.header.kind:
            case "Append":
                self._waiting.append(("Append", decode_body(Append, message.body), b""))
            case "TakeSnapshot":
                number = decode_body(TakeSnapshot, message.body).number
                self._waiting.append(("TakeSnapshot", number, b"".join(self._snapshot())))
            case unknown:
                raise TypeError(unknown)
        self._begin()

    def crash(self) -> None:
        """The process dies: the transaction on its way is there, or not; what waited is lost."""
        self._ended = True
        if self._writing and not self._journal.fenced and not self._disk.full and self._rng.random() < 0.5:
            for kind, what, data in self._writing:
                self._write(kind, what, data)
        self._writing = []
        self._waiting.clear()

    def _begin(self) -> None:
        if not self._writing and self._waiting:
            self._writing = list(self._waiting)
            self._waiting.clear()
            seconds = self._rng.uniform(0.0001, SLOW_WRITE_MAX_S if self._disk.slow else WRITE_MAX_S)
            self._timeline.after(seconds, self._finish)

    def _finish(self) -> None:
        """The transaction is durable, unless something is in its way."""
        if self._ended:
            return
        if self._stopped():
            self._timeline.after(0.05, self._finish)
            return
        if self._journal.fenced:
            self._ended = True
            self._say(NotKept(problem="another worker has the partition", fenced=True))
            return
        if self._disk.full:
            if not self._complained:
                self._complained = True
                self._say(NotKept(problem="the disk is full"))
            self._timeline.after(AGAIN_S, self._finish)
            return
        self._complained = False
        if self._rng.random() < COPIED:
            self._file.copies.append(self._file.copy())
        written, self._writing = self._writing, []
        kept = 0
        for kind, what, data in written:
            self._write(kind, what, data)
            if isinstance(what, Append):
                kept = what.first + len(what.steps) - 1
            elif kind == "TakeSnapshot":
                assert isinstance(what, int)
                self._say(SnapshotTaken(number=what))
        if kept:
            self._say(Kept(number=kept))
        self._begin()

    def _write(self, kind: str, what: Append | int | None, data: bytes) -> None:
        if isinstance(what, Append):
            self._journal.append(what.steps, fresh=what.fresh)
        else:
            assert isinstance(what, int)
            self._journal.write_snapshot(what, [data])
            self._journal.record_snapshot(what)  # not if the next snapshot has no step more

    def _say(self, message: Kept | NotKept | SnapshotTaken) -> None:
        said = make_outgoing("", message)
        self._timeline.after(0, partial(self._answer, Incoming(JOURNAL, said.header, said.body)))
