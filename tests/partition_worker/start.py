"""A worker with a real journal that starts and goes on, without a process of its own."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from tests.machines import PARTITION, arrives, config_of
from tests.partition_worker.bench import NOW
from yunishard.common.messages.control_messages import CommitConfig, PrepareConfig
from yunishard.common.messages.kinds import Message
from yunishard.common.messages.wire import Incoming, Outgoing
from yunishard.common.names import BROKER, JOURNAL
from yunishard.common.process.main import Lease
from yunishard.partition_worker.journal.files import Files
from yunishard.partition_worker.journal.protocol import Journals
from yunishard.partition_worker.journal.sqlite_journal import SqliteJournals
from yunishard.partition_worker.partition_host import PartitionHost
from yunishard.partition_worker.service import StartedWorker, recover_or_start_empty
from yunishard.partition_worker.worker import Worker

PATIENCE_S = 20.0


@dataclass
class Start:
    """How a worker starts, and what it does then."""

    folder: Path
    epoch: int
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    journals: Journals | None = None
    """Where its journal is, if that is not in the folder."""

    @property
    def files(self) -> Files:
        return Files(self.folder, PARTITION)

    async def begins(self) -> StartedWorker:
        return await recover_or_start_empty(
            lambda: Worker(PartitionHost(partition=PARTITION, epoch=self.epoch), journalled=True),
            self.journals or SqliteJournals(self.folder),
            Lease(partition=PARTITION, epoch=self.epoch),
            self.woken.set,
        )

    async def goes_on(self, start: StartedWorker, *inputs: tuple[Message, int]) -> None:
        """With these, until everything is durable."""
        for message, seq in inputs:
            self.give(start, start.worker.handle(arrives(BROKER, message, partition=PARTITION, seq=seq), NOW))
        recorder = start.worker.barrier
        assert recorder is not None
        self.give(start, recorder.flush())
        while recorder.kept < recorder.last:
            incoming = await self.hears(start)
            self.give(start, start.worker.handle(incoming, NOW))

    async def hears(self, start: StartedWorker) -> Incoming:
        assert start.journal is not None
        async with asyncio.timeout(PATIENCE_S):
            while (incoming := start.journal.receive()) is None:
                self.woken.clear()
                await self.woken.wait()
        return incoming

    def give(self, start: StartedWorker, sends: list[Outgoing]) -> None:
        assert start.journal is not None
        for message in sends:
            if message.to == JOURNAL:
                start.journal.send(message)


CONFIGURE = ((PrepareConfig(rollout=1, config=config_of()), 0), (CommitConfig(rollout=1), 0))


def closed(start: StartedWorker) -> None:
    assert start.journal is not None
    start.journal.close()
