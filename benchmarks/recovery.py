"""Recovery time of a worker that replaces a killed one.

A worker has made so many allocations and has a journal. It is started as a process and killed with SIGKILL; measured is
from the start of its replacement to its Hello, with everything in place. In it are about half a second in which Python
starts and imports, which a spare worker has behind it.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final, NamedTuple, TypeVar

import zmq

from benchmarks.local_worker import NAME, NOW_S, RM, SESSION, LocalWorker
from benchmarks.results import Figure, Plan
from benchmarks.shapes import application, batches, cluster, release
from yunishard.common.messages.control_messages import Grant, Hello
from yunishard.common.messages.journal_messages import Append, Kept
from yunishard.common.messages.kinds import Header, Message
from yunishard.common.messages.query_messages import Answer, Query
from yunishard.common.messages.rm_messages import (
    Allocation,
    AllocationReleasesRequest,
    AllocationRequest,
    ApplicationRequest,
    NodeRequest,
)
from yunishard.common.messages.wire import Incoming, Outgoing, decode_body, decode_header, encode_body, encode_frames
from yunishard.common.names import JOURNAL, WORKER_PREFIX
from yunishard.partition_worker.journal.files import Files
from yunishard.partition_worker.journal.sqlite_journal import SqliteJournal

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


class JournalledWorker(LocalWorker):
    """A worker with its journal, and the resource manager that keeps it busy."""

    def __init__(self, files: Files) -> None:
        self._journal = SqliteJournal(files, 1)
        self._steps: list[bytes] = []
        """Steps that are not written yet."""
        self._fresh = False
        super().__init__(CONFIG, journalled=True)

    def snapshot(self) -> None:
        """Take one now."""
        recorder = self.worker.barrier
        assert recorder is not None
        self._write(recorder.flush())
        self._journal.write_snapshot(recorder.last, self.worker.snapshot())
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

    def receive(self, sends: list[Outgoing]) -> None:
        """To the journal; the requests for snapshots, which would end the tail, come to nothing."""
        for send in sends:
            if send.to != JOURNAL or send.header.kind != Append.__name__:
                continue
            append = decode_body(Append, send.body)
            self._fresh = self._fresh or append.fresh
            self._steps += append.steps
            kept = encode_body(Kept(number=append.first + len(append.steps) - 1))
            self.receive(self.worker.handle(Incoming(JOURNAL, Header(kind=Kept.__name__), kept), NOW_S))

    def _write(self, sends: list[Outgoing]) -> None:
        """All of it."""
        self.receive(sends)
        if self._steps:
            self._journal.append(self._steps, fresh=self._fresh)
        self._steps, self._fresh = [], False


def write_journal(files: Files, shape: Shape) -> int:
    """A journal of this shape; the number of steps after its snapshot."""
    worker = JournalledWorker(files)
    capacity = {"memory": 1 << 40, "vcore": 1_000 * (shape.allocations // shape.nodes + 2)}
    worker.order(NodeRequest(nodes=cluster(shape.nodes, [capacity])))
    new = [application(_application(n, shape), f"root.{'abc'[n % 3]}") for n in range(shape.applications)]
    worker.order(ApplicationRequest(new=new))
    for numbers in batches(range(shape.allocations), BATCH):
        worker.order(AllocationRequest(allocations=[_ask(number, shape) for number in numbers]))
    worker.snapshot()
    recorder = worker.worker.barrier
    assert recorder is not None
    base, number = recorder.last, 0
    while recorder.last < base + shape.tail:
        ask = _ask(shape.allocations + number, shape)
        ended = release(_application(number, shape), f"ask-{number}")
        releases = AllocationReleasesRequest(allocations_to_release=[ended])
        worker.order(AllocationRequest(allocations=[ask], releases=releases))
        number += 1
    partition = worker.worker.partition
    assert partition is not None
    assert partition.running_allocations == shape.allocations
    return worker.close() - base


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


def measured_s(shape: Shape, rounds: int) -> float:
    """The median of all rounds."""
    with tempfile.TemporaryDirectory(prefix="recovery-") as folder:
        files = Files(Path(folder) / "journals", NAME)
        files.folder.mkdir()
        write_journal(files, shape)
        with closing(Broker(Path(folder))) as broker:
            return median(broker.replaced(files, rounds, shape.allocations))


def figures(plan: Plan) -> Iterator[Figure]:
    """Each shape, at the usual size."""
    nodes, allocations, tail = plan.scaled(NODES), plan.scaled(ALLOCATIONS), plan.scaled(TAIL_STEPS)
    for shape in (
        Shape("snapshot only", nodes, allocations, applications=100, tail=0),
        Shape(f"snapshot and {tail} steps", nodes, allocations, applications=100, tail=tail),
        Shape("many applications", nodes, allocations, applications=max(1, allocations // 15), tail=0),
    ):
        yield Figure(f"recovery/{shape.name}", measured_s(shape, plan.rounds), "s")
