"""A worker with a journal in memory."""

from collections.abc import Sequence

import msgspec

from tests.machines import ONE_QUEUE, PARTITION, SESSION, arrives, config_of
from tests.partition_worker.bench import APP, EPOCH, NODES, NOW, ask
from yunishard.common.messages.control_messages import CommitConfig, PrepareConfig, Repeat, Settings
from yunishard.common.messages.journal_messages import Append, Kept, Step, TakeSnapshot
from yunishard.common.messages.kinds import Message
from yunishard.common.messages.rm_messages import Ack
from yunishard.common.messages.wire import Incoming, Outgoing, decode_body, make_outgoing
from yunishard.common.names import BROKER, JOURNAL
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.predicates.predicate import Predicate
from yunishard.partition_worker.engine.state import DEFAULT, Tuning
from yunishard.partition_worker.partition_host import PartitionHost
from yunishard.partition_worker.worker import Worker


class Disk:
    """A journal in memory: what it was handed, and how far it says it is durable."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.snapshots: list[int] = []
        self.content: bytes | None = None
        """The latest snapshot, of those that a test has encoded."""

    def give(self, one: Outgoing) -> None:
        match one.header.kind:
            case "Append":
                append = decode_body(Append, one.body)
                steps = [step_of(encoded) for encoded in append.steps]
                assert [step.number for step in steps] == list(range(append.first, append.first + len(steps)))
                self.steps = [*([] if append.fresh else self.steps), *steps]
            case "TakeSnapshot":
                self.snapshots.append(decode_body(TakeSnapshot, one.body).number)


def step_of(encoded: bytes) -> Step:
    return msgspec.msgpack.decode(encoded, type=Step)


class Desk:
    """A worker with such a journal. `now` goes on by itself only when a test says so."""

    def __init__(self, *, running: bool = True, plugins: Sequence[Predicate] = ()) -> None:
        self.worker = Worker(PartitionHost(partition=PARTITION, epoch=EPOCH, plugins=plugins), journalled=True)
        self.disk = Disk()
        self.now = NOW
        self.seq = 0
        if running:
            self.configure()

    @property
    def partition(self) -> Partition:
        assert self.worker.partition is not None
        return self.worker.partition

    def _out(self, sends: list[Outgoing]) -> list[Outgoing]:
        for one in sends:
            if one.to == JOURNAL:
                self.disk.give(one)
        return [one for one in sends if one.to != JOURNAL]

    def hear(self, message: Message, **fields: str | int) -> list[Outgoing]:
        """As the only message of a turn, so that a tick follows if it is due."""
        sends = self.worker.handle(arrives(BROKER, message, partition=PARTITION, **fields), self.now)
        return self._out([*sends, *(self.worker.tick(self.now) if self.worker.barrier.urgent else [])])

    def take(self, command: Message) -> None:
        """The next command of the RM, which is handed over before anything is decided because of it."""
        self.seq += 1
        self._out(self.worker.handle(arrives(BROKER, command, partition=PARTITION, seq=self.seq), self.now))
        self.flush()

    def journal(self, message: Message) -> list[Outgoing]:
        one = make_outgoing(JOURNAL, message)
        return self._out(self.worker.handle(Incoming(JOURNAL, one.header, one.body), self.now))

    def kept(self) -> list[Outgoing]:
        return self.journal(Kept(number=self.disk.steps[-1].number if self.disk.steps else 0))

    def tell(self, command: Message, **fields: str | int) -> list[Outgoing]:
        self.seq += 1
        return self.hear(command, **{"seq": self.seq, **fields})

    def tick(self) -> list[Outgoing]:
        return self._out(self.worker.tick(self.now))

    def schedule(self) -> list[Outgoing]:
        sends: list[Outgoing] = []
        while self.worker.deadline <= self.now:
            sends += self.tick()
        return sends

    def configure(
        self, config: str = ONE_QUEUE, *, rollout: int = 1, session: str = SESSION, life: int = 0
    ) -> list[Outgoing]:
        sends = self.hear(PrepareConfig(rollout=rollout, config=config_of(config)), session=session, life=life)
        sends += self.hear(CommitConfig(rollout=rollout), session=session, life=life)
        self.seq = 0
        return [*sends, *self.kept()]

    def flush(self) -> None:
        """Append the steps that are not appended yet."""
        self._out(self.worker.barrier.flush())

    def take_snapshot(self) -> None:
        """Encode a snapshot that replaces the steps so far."""
        self.flush()
        self.disk.content, self.disk.steps = b"".join(self.worker.snapshot()), []

    def recovered(self, *, plugins: Sequence[Predicate] = (), tuning: Tuning = DEFAULT) -> Worker:
        """Another worker, from what is on the disk."""
        host = PartitionHost(partition=PARTITION, epoch=self.worker.host.epoch + 1, plugins=plugins, tuning=tuning)
        worker = Worker(host, journalled=True)
        content = self.disk.content
        worker.recover(None if content is None else [content], self.disk.steps)
        return worker

    def restart(self) -> None:
        """Go on with another worker, to which the RM has resumed."""
        self.flush()
        self.worker = self.recovered()
        self.hear(Repeat())


def kinds(sends: list[Outgoing]) -> list[str]:
    return [one.header.kind for one in sends]


def busy(desk: Desk) -> None:
    desk.hear(Settings(values={"event.trackingEnabled": "true"}))
    desk.tell(NODES)
    desk.tell(APP)
    for number in range(20):
        desk.tell(ask(f"k{number}"))
        desk.now += 0.25
        desk.schedule()
    desk.hear(Ack(), ack=5)
    desk.now += 100
    desk.schedule()
    desk.kept()
