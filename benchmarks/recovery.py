"""Recovery time of a worker that replaces a killed one.

    python -m benchmarks.recovery --allocations 150000

A worker has made so many allocations and has a journal. It is started as a process and killed with SIGKILL; measured is
from the start of its replacement to its Hello, with everything in place. In it are about half a second in which Python
starts and imports, which a spare worker has behind it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final, NamedTuple, TypeVar

import zmq

from benchmarks.results import Figure, Plan
from common.config.validation import load
from common.control_messages import CommitConfig, Grant, Hello, PrepareConfig
from common.journal_messages import Append, Kept
from common.messages import Header, Message
from common.names import BROKER, JOURNAL, WORKER_PREFIX
from common.query_messages import Answer, Query
from common.rm_messages import (
    NODE_CREATE,
    STOPPED_BY_RM,
    Ack,
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    ApplicationRequest,
    NodeInfo,
    NodeRequest,
    UserGroupInformation,
)
from common.wire import Incoming, Outgoing, decode_body, decode_header, encode_body, encode_frames
from partition_worker.journal.files import Files
from partition_worker.journal.sqlite_journal import SqliteJournal
from partition_worker.partition_host import PartitionHost
from partition_worker.worker import Worker

NAME: Final = "rm-1_default"
RM: Final = "rm-1"
SESSION: Final = "session-1"
NOW_S: Final = 1_700_000_000.0
BATCH: Final = 1000
"""Asks in one message while the partition is filled."""

TAIL_STEPS: Final = 20_000
"""Steps after the snapshot: about as many small ones as fit before the next snapshot is due."""

NODES: Final = 5_000
ALLOCATIONS: Final = 150_000
PATIENCE_MS: Final = 120_000
CONFIG: Final = """
partitions:
- name: default
  queues: [{name: root, submitacl: "*", queues: [{name: a}, {name: b}, {name: c}]}]
"""

M = TypeVar("M", bound=Message)


class Shape(NamedTuple):
    """Content of the journal."""

    name: str
    nodes: int
    allocations: int
    applications: int
    tail: int
    """Steps after the snapshot."""


class Result(NamedTuple):
    """Measurements: medians over all rounds."""

    shape: str
    snapshot_bytes: int
    steps: int
    seconds: float


class Office:
    """A worker with its journal, and the resource manager that keeps it busy."""

    def __init__(self, files: Files) -> None:
        self.worker = Worker(PartitionHost(partition=NAME, epoch=1), journalled=True)
        self._journal = SqliteJournal(files, 1)
        self._seq = 0
        self._steps: list[bytes] = []
        """Steps that are not written yet."""
        self._fresh = False
        self.snapshot_bytes = 0

    def tell(self, message: Message, *, seq: int = 0, ack: int = 0) -> None:
        kind = type(message).__name__
        header = Header(kind=kind, rm=RM, partition=NAME, session=SESSION, seq=seq, ack=ack)
        self._carry(self.worker.handle(Incoming(BROKER, header, encode_body(message)), NOW_S))

    def order(self, message: Message) -> None:
        """A numbered command, and all decisions that follow, with the acknowledgement of what they lead to."""
        self._seq += 1
        self.tell(message, seq=self._seq)
        while self.worker.deadline <= NOW_S:
            self._carry(self.worker.tick(NOW_S))
            self.tell(Ack(), ack=self.worker.host.channel.outbox.last)

    def snapshot(self) -> None:
        """Take one now."""
        recorder = self.worker.barrier
        assert recorder is not None
        self._write(recorder.flush())
        content = list(self.worker.snapshot())
        self.snapshot_bytes = sum(map(len, content))
        self._journal.write_snapshot(recorder.last, content)
        assert self._journal.record_snapshot(recorder.last)
        while self._journal.has_garbage:
            self._journal.trim()

    def close(self) -> int:
        """Hand over what is not handed over yet; the number of the last step."""
        recorder = self.worker.barrier
        assert recorder is not None
        self._write(recorder.flush())
        self._journal.close()
        return recorder.last

    def _carry(self, sends: list[Outgoing]) -> None:
        """To the journal; the requests for snapshots, which would end the tail, come to nothing."""
        for send in sends:
            if send.to != JOURNAL or send.header.kind != Append.__name__:
                continue
            append = decode_body(Append, send.body)
            self._fresh = self._fresh or append.fresh
            self._steps += append.steps
            kept = encode_body(Kept(number=append.first + len(append.steps) - 1))
            self._carry(self.worker.handle(Incoming(JOURNAL, Header(kind=Kept.__name__), kept), NOW_S))

    def _write(self, sends: list[Outgoing]) -> None:
        """All of it."""
        self._carry(sends)
        if self._steps:
            self._journal.append(self._steps, fresh=self._fresh)
        self._steps, self._fresh = [], False


def write_journal(files: Files, shape: Shape) -> tuple[int, int]:
    """A journal of this shape; bytes of the snapshot, and steps after it."""
    office = Office(files)
    office.tell(PrepareConfig(rollout=1, config=load(CONFIG).partitions[0]))
    office.tell(CommitConfig(rollout=1))
    capacity = {"memory": 1 << 40, "vcore": 1_000 * (shape.allocations // shape.nodes + 2)}
    names = [f"node-{number:05}" for number in range(shape.nodes)]
    office.order(NodeRequest(nodes=[NodeInfo(one, action=NODE_CREATE, schedulable_resource=capacity) for one in names]))
    user = UserGroupInformation(user="ann", groups=["dev"])
    new = [
        AddApplicationRequest(f"app-{number:05}", f"root.{'abc'[number % 3]}", ugi=user)
        for number in range(shape.applications)
    ]
    office.order(ApplicationRequest(new=new))
    for start in range(0, shape.allocations, BATCH):
        numbers = range(start, min(start + BATCH, shape.allocations))
        office.order(AllocationRequest(allocations=[_ask(number, shape) for number in numbers]))
    office.snapshot()
    recorder = office.worker.barrier
    assert recorder is not None
    base, number = recorder.last, 0
    while recorder.last < base + shape.tail:
        release = AllocationRelease(
            application_id=_application(number, shape), allocation_key=f"ask-{number}", termination_type=STOPPED_BY_RM
        )
        ask = _ask(shape.allocations + number, shape)
        releases = AllocationReleasesRequest(allocations_to_release=[release])
        office.order(AllocationRequest(allocations=[ask], releases=releases))
        number += 1
    partition = office.worker.partition
    assert partition is not None
    assert partition.running_allocations == shape.allocations
    return office.snapshot_bytes, office.close() - base


def _application(number: int, shape: Shape) -> str:
    return f"app-{number % shape.applications:05}"


def _ask(number: int, shape: Shape) -> Allocation:
    need = {"memory": 1 << 30, "vcore": 1_000}
    return Allocation(f"ask-{number}", application_id=_application(number, shape), resource_per_alloc=need)


# The processes --------------------------------------------------------------------------------------------------------


class Broker:
    """A socket that stands in for the broker."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._address = f"ipc://{folder}/broker"
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(self._address)

    def replaced(self, files: Files, rounds: int, allocations: int) -> Iterator[float]:
        """Start a worker, kill it, start the next one, and so on; seconds from each start to its Hello."""
        for epoch in range(2, rounds + 2):
            command = ["partition_worker", "--broker", self._address, "--instance", str(epoch)]
            command += ["--state", str(files.folder.parent), "--log-level", "warning"]
            started_s = perf_counter()
            with subprocess.Popen([sys.executable, "-P", "-m", *command]) as process:  # noqa: S603 - our own
                try:
                    self._receive(epoch, Hello)
                    self._send(epoch, Grant())
                    hello = self._receive(epoch, Hello)
                    yield perf_counter() - started_s
                    assert (hello.rollout, hello.problem) == (1, ""), hello
                    self._send(epoch, Query(what="partition", name="default"))
                    assert json.loads(self._receive(epoch, Answer).body)["totalContainers"] == allocations
                finally:
                    process.kill()

    def close(self) -> None:
        self._socket.close()

    def _receive(self, epoch: int, kind: type[M]) -> M:
        while True:
            assert self._socket.poll(PATIENCE_MS), "the worker does not answer"
            name, *frames = self._socket.recv_multipart()
            if name == f"{WORKER_PREFIX}{epoch}".encode() and decode_header(frames).kind == kind.__name__:
                return decode_body(kind, frames[2])

    def _send(self, epoch: int, message: Message) -> None:
        header = Header(kind=type(message).__name__, rm=RM, partition=NAME, session=SESSION, ref="q", epoch=epoch)
        self._socket.send_multipart([f"{WORKER_PREFIX}{epoch}".encode(), *encode_frames(header, encode_body(message))])


def measured(shape: Shape, rounds: int) -> Result:
    """One shape."""
    with tempfile.TemporaryDirectory(prefix="recovery-") as folder:
        files = Files(Path(folder) / "journals", NAME)
        files.folder.mkdir()
        size, steps = write_journal(files, shape)
        broker = Broker(Path(folder))
        try:
            seconds = list(broker.replaced(files, rounds, shape.allocations))
        finally:
            broker.close()
    return Result(shape.name, size, steps, median(seconds))


def shapes(nodes: int, allocations: int, tail: int) -> list[Shape]:
    """Return the journals to measure."""
    return [
        Shape("snapshot only", nodes, allocations, applications=100, tail=0),
        Shape(f"snapshot and {tail} steps", nodes, allocations, applications=100, tail=tail),
        Shape("many applications", nodes, allocations, applications=max(1, allocations // 15), tail=0),
    ]


def figures(plan: Plan) -> Iterator[Figure]:
    """Each shape, at the usual size."""
    for shape in shapes(plan.scaled(NODES), plan.scaled(ALLOCATIONS), plan.scaled(TAIL_STEPS)):
        yield Figure(f"recovery/{shape.name}", measured(shape, plan.rounds).seconds, "s")


def main() -> int:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery", description=__doc__.split("\n\n")[0])
    parser.add_argument("--nodes", type=int, default=NODES, metavar="N")
    parser.add_argument("--allocations", type=int, default=ALLOCATIONS, metavar="N")
    parser.add_argument("--tail", type=int, default=TAIL_STEPS, metavar="N", help="steps after the snapshot")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="the median of so many is shown")
    parser.add_argument("--json", action="store_true", help="one object instead of a table")
    options = parser.parse_args()
    rows = [measured(shape, options.rounds) for shape in shapes(options.nodes, options.allocations, options.tail)]
    if options.json:
        found = {"nodes": options.nodes, "allocations": options.allocations, "rows": [row._asdict() for row in rows]}
        sys.stdout.write(json.dumps(found) + "\n")
        return 0
    lines = [f"{options.nodes} nodes, {options.allocations} allocations, median of {options.rounds}", ""]
    lines += [
        f"  {row.shape:<30} {row.seconds:8.2f} s   snapshot of {row.snapshot_bytes:>10} bytes, {row.steps} steps"
        for row in rows
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
