"""A journal as a worker writes it: the steps of a partition host that receives commands at times of the test."""

from contextlib import closing
from pathlib import Path

from tests.builders import apps, asks, config, gone, nodes, released
from tests.machines import PARTITION, arrives
from tests.partition_worker.journal.hand import files_in, opened
from yunishard.common.config.model import PartitionConfig
from yunishard.common.messages.control_messages import CommitConfig, PrepareConfig
from yunishard.common.messages.journal_messages import TICK
from yunishard.common.messages.kinds import Message
from yunishard.common.messages.wire import encode_body
from yunishard.common.names import BROKER
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.partition_host import PartitionHost
from yunishard.partition_worker.recovery import encode_snapshot

START_S = 1_700_000_000.0
BUDGET = 5


class Session:
    """One session of an RM; `at` are seconds since its start."""

    def __init__(self, wanted: PartitionConfig) -> None:
        self.host = PartitionHost(partition=PARTITION, epoch=1)
        self.steps: list[bytes] = []
        self.seq = 0
        self.configure(wanted, live=False)

    @property
    def partition(self) -> Partition:
        assert self.host.partition is not None
        return self.host.partition

    def configure(self, wanted: PartitionConfig, at: float = 0.0, *, live: bool = True) -> None:
        """The broker rolls out a configuration."""
        self._apply(PrepareConfig(rollout=len(self.steps) + 1, config=wanted, live=live), at, seq=0)
        assert self.host.session.prepared is not None
        self._apply(CommitConfig(rollout=self.host.session.prepared[1].rollout), at, seq=0)

    def tell(self, at: float, *commands: Message) -> "Session":
        """The RM sends commands, and the partition decides until it is idle."""
        self.wait(at)
        for command in commands:
            self.seq += 1
            self._apply(command, at, seq=self.seq)
        self.wait(at)
        return self

    def put(self, message: Message) -> None:
        """The broker sends a message."""
        self._apply(message, self.partition.now - START_S, seq=0)

    def wait(self, at: float) -> None:
        """Time passes: every timer fires when it is due."""
        while (due := max(self.partition.deadline, self.partition.now)) <= START_S + at:
            if due == self.partition.next_timer != self.partition.next_change:
                self.partition.audit(due)
                continue
            self.host.advance(due, BUDGET)
            self._record(TICK, due)

    def _apply(self, message: Message, at: float, *, seq: int) -> None:
        self.host.apply(arrives(BROKER, message, partition=PARTITION, seq=seq), START_S + at)
        self._record(type(message).__name__, START_S + at, with_session=seq == 0)

    def _record(self, kind: str, now: float, *, with_session: bool = False) -> None:
        step = self.host.build_step(len(self.steps) + 1, kind, now, with_session=with_session, is_needed=with_session)
        if step is not None:
            self.steps.append(encode_body(step))

    def write(self, folder: Path, *, snapshot_after: int = 0) -> Path:
        """Write the journal; the steps up to this one are replaced by a snapshot of the partition as it is now."""
        folder.mkdir(parents=True, exist_ok=True)
        with closing(opened(files_in(folder), 1)) as journal:
            journal.append(self.steps, fresh=False)
            if snapshot_after:
                journal.write_snapshot(snapshot_after, encode_snapshot(self.host, snapshot_after))
                assert journal.record_snapshot(snapshot_after)
                journal.compact()
        return files_in(folder).database


QUEUES = "root.batch max=memory:10; root.prod guaranteed=memory:6"
"""The queues of `preempting`."""


def preempting() -> Session:
    """Batch fills the cluster, production preempts from it, and one ask of each waits at the end."""
    one = Session(config(QUEUES))
    one.tell(0, nodes("node-east memory=10 tag.rack=r17"), apps("etl-job root.batch user=alice groups=analysts"))
    one.tell(1, asks("etl-job etl-1 memory=5 victim", "etl-job etl-2 memory=5 victim"))
    one.tell(2, asks("etl-job etl-3 memory=5 victim"), apps("web-job root.prod user=bob tag.namespace=shop"))
    one.tell(10, asks("web-job web-1 memory=5 preemptor"))
    one.wait(50)
    for key in [key for key, found in one.partition.allocations.items() if found.preempted]:
        one.tell(60, released(f"etl-job {key} type=PREEMPTED_BY_SCHEDULER"))
    one.tell(70, asks("web-job web-2 memory=20"))
    one.tell(90, released("web-job web-1"))
    one.tell(95, gone("etl-job"))
    return one
