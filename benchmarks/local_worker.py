"""A partition's worker in this process, without sockets, and the resource manager that sends it commands.

Messages are encoded and decoded as between processes.
"""

from collections.abc import Callable
from time import process_time
from typing import Final

from yunishard.common.config.validation import load
from yunishard.common.messages.control_messages import CommitConfig, PrepareConfig
from yunishard.common.messages.kinds import Command, Header, Message
from yunishard.common.messages.query_messages import Answer, Query
from yunishard.common.messages.rm_messages import Ack
from yunishard.common.messages.wire import Incoming, Outgoing, decode_body, encode_body
from yunishard.common.names import BROKER
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.partition_host import PartitionHost
from yunishard.partition_worker.worker import Worker

NAME: Final = "rm-1_default"
RM: Final = "rm-1"
SESSION: Final = "session-1"
NOW_S: Final = 1_700_000_000.0


class LocalWorker:
    """A worker whose partition has this configuration."""

    def __init__(self, config: str, *, journalled: bool = False) -> None:
        self.worker = Worker(PartitionHost(partition=NAME, epoch=1), journalled=journalled)
        self.now = NOW_S
        """Unix seconds."""
        self.pieces: list[float] = []
        """Seconds of processor time of each piece of work that was done without a break."""
        self._seq = 0
        self._rollout = 0
        self.reconfigure(config)

    @property
    def partition(self) -> Partition:
        """The partition that the worker hosts."""
        partition = self.worker.partition
        assert partition is not None
        return partition

    def reconfigure(self, text: str, *, settles: bool = True) -> None:
        """Take a configuration, and make all decisions that follow, unless `settles` is false."""
        config, live = load(text).partitions[0], self.worker.partition is not None
        self._rollout += 1
        self._tell(PrepareConfig(rollout=self._rollout, config=config, live=live))
        self._tell(CommitConfig(rollout=self._rollout))
        if settles:
            self.settle()

    def order(self, command: Command, *, settles: bool = True) -> None:
        """Apply a numbered command, and make all decisions that follow, unless `settles` is false."""
        self._seq += 1
        self._tell(command, seq=self._seq)
        if settles:
            self.settle()

    def answer(self, query: Query) -> Answer:
        """Return the answer to a query."""
        sends = self._tell(query, ref="question")
        while not sends:
            sends = self._timed(lambda: self.worker.tick(self.now))
        [send] = sends
        return decode_body(Answer, send.body)

    def settle(self, until: Callable[[], bool] = lambda: False) -> None:
        """Do everything that is due, or as much of it as leads to this condition."""
        while self.worker.deadline <= self.now and not until():
            self.receive(self._timed(lambda: self.worker.tick(self.now)))
            self._tell(Ack(), ack=self.worker.host.channel.outbox.last)

    def receive(self, sends: list[Outgoing]) -> None:
        """Process what the worker sends, which comes to nothing here."""

    def _timed(self, work: Callable[[], list[Outgoing]]) -> list[Outgoing]:
        began = process_time()
        sends = work()
        self.pieces.append(process_time() - began)
        return sends

    def _tell(self, message: Message, *, seq: int = 0, ack: int = 0, ref: str = "") -> list[Outgoing]:
        kind = type(message).__name__
        header = Header(kind=kind, rm=RM, partition=NAME, session=SESSION, seq=seq, ack=ack, ref=ref)
        incoming = Incoming(BROKER, header, encode_body(message))
        sends = self._timed(lambda: self.worker.handle(incoming, self.now))
        self.receive(sends)
        return sends
