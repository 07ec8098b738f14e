"""A partition's worker in this process, without sockets, and the resource manager that sends it commands.

Messages are encoded and decoded as between processes.
"""

from time import process_time
from typing import Final

from yunishard.common.config.validation import load
from yunishard.common.messages.control_messages import CommitConfig, PrepareConfig
from yunishard.common.messages.kinds import Command, Header, Message
from yunishard.common.messages.query_messages import Answer, Query
from yunishard.common.messages.rm_messages import Ack
from yunishard.common.messages.wire import Incoming, Outgoing, decode_body, encode_body
from yunishard.common.names import BROKER
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
        self._seq = 0
        self._rollout = 0
        self.reconfigure(config)

    def reconfigure(self, text: str) -> list[float]:
        """Take a configuration; seconds of processor time of each piece of work that is done without a break."""
        config, live = load(text).partitions[0], self.worker.partition is not None
        self._rollout += 1
        return [
            *self._timed(PrepareConfig(rollout=self._rollout, config=config, live=live)),
            *self._timed(CommitConfig(rollout=self._rollout)),
        ]

    def order(self, command: Command) -> None:
        """A numbered command, and all decisions that follow, with the acknowledgement of what they lead to."""
        self._seq += 1
        self._tell(command, seq=self._seq)
        self._settle()

    def answer(self, query: Query) -> Answer:
        """To a question."""
        [send] = self._tell(query, ref="question")
        return decode_body(Answer, send.body)

    def receive(self, sends: list[Outgoing]) -> None:
        """Process what the worker sends, which comes to nothing here."""

    def _timed(self, message: Message) -> list[float]:
        incoming = self._delivery(message)
        began = process_time()
        sends = self.worker.handle(incoming, NOW_S)
        spent = process_time() - began
        self.receive(sends)
        return [spent, *self._settle()]

    def _settle(self) -> list[float]:
        """Everything that is due; how long each turn took."""
        spent = []
        while self.worker.deadline <= NOW_S:
            began = process_time()
            sends = self.worker.tick(NOW_S)
            spent.append(process_time() - began)
            self.receive(sends)
            self._tell(Ack(), ack=self.worker.host.channel.outbox.last)
        return spent

    def _tell(self, message: Message, *, seq: int = 0, ack: int = 0, ref: str = "") -> list[Outgoing]:
        sends = self.worker.handle(self._delivery(message, seq=seq, ack=ack, ref=ref), NOW_S)
        self.receive(sends)
        return sends

    def _delivery(self, message: Message, *, seq: int = 0, ack: int = 0, ref: str = "") -> Incoming:
        kind = type(message).__name__
        header = Header(kind=kind, rm=RM, partition=NAME, session=SESSION, seq=seq, ack=ack, ref=ref)
        return Incoming(BROKER, header, encode_body(message))
