"""A worker's machine in this process, without a journal: for what is measured of the worker and needs no wire.

Messages are encoded and decoded as between processes; what the worker says is dropped, but for answers.
"""

from time import process_time
from typing import Final

from common.config.validation import load
from common.control_messages import CommitConfig, PrepareConfig
from common.messages import Command, Header, Message
from common.names import BROKER
from common.query_messages import Answer, Query
from common.rm_messages import Ack
from common.wire import Incoming, Outgoing, decode_body, encode_body
from partition_worker.worker import Worker

NAME: Final = "bench_default"
RM: Final = "bench"
SESSION: Final = "session-1"
NOW_S: Final = 1_700_000_000.0


class OneWorker:
    """A partition with this configuration, and the resource manager that talks to it."""

    def __init__(self, config: str) -> None:
        self.now = NOW_S
        self.worker = Worker(partition=NAME, epoch=1)
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
        """An update, and all decisions that follow."""
        self._seq += 1
        self._tell(command, seq=self._seq)
        self._settle()

    def answer(self, query: Query) -> Answer:
        """To a question."""
        [send] = self._tell(query, ref="question")
        return decode_body(Answer, send.body)

    def _timed(self, message: Message) -> list[float]:
        incoming = self._delivery(message)
        began = process_time()
        self.worker.handle(incoming, self.now)
        return [process_time() - began, *self._settle()]

    def _settle(self) -> list[float]:
        """Everything that is due; how long each turn took."""
        spent = []
        while self.worker.deadline <= self.now:
            began = process_time()
            self.worker.tick(self.now)
            spent.append(process_time() - began)
            self._tell(Ack(), ack=self.worker.host.channel.outbox.last)
        return spent

    def _tell(self, message: Message, *, seq: int = 0, ack: int = 0, ref: str = "") -> list[Outgoing]:
        return self.worker.handle(self._delivery(message, seq=seq, ack=ack, ref=ref), self.now)

    def _delivery(self, message: Message, *, seq: int = 0, ack: int = 0, ref: str = "") -> Incoming:
        kind = type(message).__name__
        header = Header(kind=kind, rm=RM, partition=NAME, session=SESSION, seq=seq, ack=ack, ref=ref)
        return Incoming(BROKER, header, encode_body(message))
