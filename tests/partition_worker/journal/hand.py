"""A real journal in a directory of its own, and somebody who hands it steps and hears what it says."""

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.machines import PARTITION
from yunishard.common.messages.journal_messages import TICK, Append, Kept, SentMessage, Step
from yunishard.common.messages.kinds import Message
from yunishard.common.messages.wire import Incoming, decode_body, encode_body, make_outgoing
from yunishard.common.names import JOURNAL
from yunishard.common.transport.event_loop import Transport
from yunishard.partition_worker.journal.database import JournalReader
from yunishard.partition_worker.journal.files import Files
from yunishard.partition_worker.journal.sqlite_journal import SqliteJournal
from yunishard.partition_worker.journal.writer import JournalWriter

PATIENCE_S = 20.0

M = TypeVar("M", bound=Message)


def files_in(folder: Path) -> Files:
    return Files(folder, PARTITION)


def step(number: int, size: int = 100) -> Step:
    told = [SentMessage(number, "AllocationResponse", bytes([number % 251]) * size)]
    return Step(number=number, at=1000.0 + number, kind=TICK, told=told)


def encoded(*numbers: int, size: int = 100) -> list[bytes]:
    return [encode_body(step(number, size)) for number in numbers]


@dataclass(frozen=True)
class Found:
    """Everything that a worker would begin from."""

    snapshot: bytes | None
    snapshot_number: int
    steps: list[Step]


def found_in(files: Files) -> Found:
    with closing(JournalReader(files)) as found:
        meta, snapshot = found.open_snapshot()
        return Found(
            None if snapshot is None else b"".join(snapshot), meta.snapshot, list(found.read_steps(meta.begins))
        )


OPEN: list[SqliteJournal | JournalReader | sqlite3.Connection] = []
"""What a test has opened, and `conftest.py` closes at its end."""


def opened(files: Files, epoch: int) -> SqliteJournal:
    """A journal for writing."""
    OPEN.append(journal := SqliteJournal(files, epoch))
    return journal


def record_snapshot(journal: SqliteJournal, number: int, content: bytes = b"") -> bool:
    """Take a snapshot, as a writer does."""
    journal.write_snapshot(number, [content])
    return journal.record_snapshot(number)


def reader(files: Files) -> JournalReader:
    OPEN.append(found := JournalReader(files))
    return found


def sql(files: Files) -> sqlite3.Connection:
    """The database, for somebody who does not keep to the rules."""
    OPEN.append(found := sqlite3.connect(files.database, isolation_level=None))
    return found


def numbers_in(files: Files) -> list[int]:
    """The steps that a worker would play again; each is as it was written."""
    found = found_in(files).steps
    assert found == [step(one.number, len(one.told[0].body)) for one in found]
    return [one.number for one in found]


class Hand:
    """Hands over and listens."""

    def __init__(self, folder: Path, *, epoch: int = 1, **options: int | float) -> None:
        self.wire = Transport()
        self._woken = asyncio.Event()
        self.state = b"nothing"
        """What a snapshot says."""
        self.slow: Callable[[], None] = lambda: None
        """What taking one does first."""
        self.files = files_in(folder)
        self.heard: list[Incoming] = []
        self.journal = JournalWriter(
            SqliteJournal(self.files, epoch),
            snapshot=self._snapshot,
            wake=self._woken.set,
            **options,  # type: ignore[arg-type]
        )
        self.wire.add(JOURNAL, self.journal)

    def _snapshot(self) -> list[bytes]:
        self.slow()
        return [self.state]

    def gives(self, message: Message) -> None:
        self.wire.send(make_outgoing(JOURNAL, message))

    def appends(self, *numbers: int, fresh: bool = False, size: int = 100) -> None:
        self.gives(Append(steps=encoded(*numbers, size=size), first=numbers[0], fresh=fresh))

    async def hears(self, kind: type[M]) -> M:
        """The next message of this kind; those before it are put into `heard`."""
        async with asyncio.timeout(PATIENCE_S):
            while (incoming := await self.next()).header.kind != kind.__name__:
                self.heard.append(incoming)
            return decode_body(kind, incoming.body)

    async def next(self) -> Incoming:
        """The next message."""
        while (incoming := self.journal.receive()) is None:
            self._woken.clear()
            await self._woken.wait()
        return incoming

    async def keeps(self, number: int) -> None:
        """Until this step is durable."""
        while (await self.hears(Kept)).number < number:
            continue


def run(test: Callable[[], Coroutine[None, None, None]]) -> None:
    """A test that waits for a journal."""
    asyncio.run(test())
