"""Makes plans in a forked process, which has a copy of the worker's memory, while the worker continues.

    worker ──PlanWanted──► fork ──► plays the changes ──► report ──pipe──► PlanMade ──► worker
                             └─ fork ──► plays without them ──pipe──┘

The process changes its own copy only: it has no socket, no journal and no thread of the worker. As for a snapshot
(`journal/snapshot_process.py`), it closes what it inherited and ends with its parent and after a time limit. It runs
with a low priority and may take MEMORY_MAX bytes more than the worker.

Rejected: building the copy from a snapshot, which takes seconds for a large partition, and loses what is not recorded
(failed searches for victims, the order in which equal asks are tried).
"""

import asyncio
import errno
import gc
import os
import resource
import signal
import threading
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from yunishard.common.messages.kinds import Header
from yunishard.common.messages.query_messages import Answer
from yunishard.common.messages.wire import Incoming, Outgoing, encode_body
from yunishard.common.names import PLANNER
from yunishard.common.rest.plan import PlanOrder
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.journal.snapshot_process import CRASHED, run_forked
from yunishard.partition_worker.plan_requests import PlanWanted, answer_plan
from yunishard.partition_worker.planning import Course, play

PLAN_MAX_S: Final = 30.0
"""Seconds that making a plan may take; then its process is killed, and the answer is 503 with that reason."""

MEMORY_MAX: Final = 2 << 30
"""Bytes that the process may allocate beyond what the worker has; then the answer is 503 with that reason."""

NICENESS: Final = 10
"""How much lower its priority is than that of the worker."""

READ_BYTES: Final = 1 << 16

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_decode_wanted: Final = msgspec.msgpack.Decoder(PlanWanted).decode
_decode_course: Final = msgspec.msgpack.Decoder(Course).decode
_encode: Final = msgspec.msgpack.Encoder().encode


class Planner:
    """An endpoint that takes PlanWanted and answers each with one PlanMade. The caller sends one at a time."""

    def __init__(
        self,
        *,
        wake: Callable[[], None],
        find_partition: Callable[[], Partition | None],
        limit_s: float = PLAN_MAX_S,
    ) -> None:
        """`wake` is called when there is an answer, in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._wake, self._find_partition, self._limit_s = wake, find_partition, limit_s
        self._answers: deque[Incoming] = deque()
        self._process: int | None = None

    def send(self, message: Outgoing) -> None:
        """Fork a process with the state of this moment."""
        ref, partition = message.header.ref, self._find_partition()
        wanted = _decode_wanted(message.body)
        if partition is None:
            self._answer(ref, Answer(status=503, body=b"the partition is starting"))
            return
        found = fork(lambda output: _make_plan(partition, wanted, output), self._limit_s)
        if found is None:
            self._answer(ref, Answer(status=503, body=b"the system cannot start another process for the plan"))
            return
        self._process, pipe = found
        threading.Thread(target=self._wait, args=(self._process, pipe, ref), name="plan", daemon=True).start()

    def receive(self) -> Incoming | None:
        return self._answers.popleft() if self._answers else None

    def close(self) -> None:
        """Kill the process."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process, signal.SIGKILL)

    def _wait(self, process: int, pipe: int, ref: str) -> None:
        """Read the answer of a process, in a thread of its own."""
        body = read_all(pipe)
        _, status = os.waitpid(process, 0)
        with suppress(RuntimeError):  # the event loop has ended, and so does the process
            self._loop.call_soon_threadsafe(self._finish, ref, _decode_answer(body, status, self._limit_s))

    def _finish(self, ref: str, answer: Answer) -> None:
        self._process = None
        self._answer(ref, answer)

    def _answer(self, ref: str, answer: Answer) -> None:
        self._answers.append(Incoming(PLANNER, Header(kind="PlanMade", ref=ref), encode_body(answer)))
        self._wake()


def _decode_answer(body: bytes, status: int, limit_s: float) -> Answer:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        late = f"making it took longer than {limit_s:g} s: plan with a nearer horizon"
        problem = late if number == signal.SIGALRM else f"its process ended by signal {number}"
    elif code := os.WEXITSTATUS(status):
        problem = "its process failed; standard error has the reason" if code == CRASHED else os.strerror(code).lower()
    else:
        with suppress(msgspec.MsgspecError):
            return msgspec.msgpack.decode(body, type=Answer)
        problem = "its process ended without an answer"
    return Answer(status=503, body=f"there is no plan: {problem}".encode())


# Forking --------------------------------------------------------------------------------------------------------------


def fork(work: Callable[[int], None], limit_s: float) -> tuple[int, int] | None:
    """Run `work` in a forked process with the descriptor of a pipe to write to; return the process and the pipe to read
    from, None if the system cannot fork.
    """
    parent, (output, write_end) = os.getpid(), os.pipe()
    process = -1
    with warnings.catch_warnings(), suppress(OSError):
        warnings.simplefilter("ignore", DeprecationWarning)  # about locks of other threads, of which it uses none
        process = os.fork()
    if process == 0:
        run_forked(lambda: work(write_end), limit_s, parent, keep=write_end)
    os.close(write_end)
    if process < 0:
        os.close(output)
        return None
    return process, output


def read_all(pipe: int) -> bytes:
    """Read a pipe to its end, and close it."""
    pieces = []
    while piece := os.read(pipe, READ_BYTES):
        pieces.append(piece)
    os.close(pipe)
    return b"".join(pieces)


def write_all(pipe: int, content: bytes) -> None:
    """Write everything to a pipe."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(pipe, rest) :]


# In the forked process ------------------------------------------------------------------------------------------------


def _make_plan(partition: Partition, wanted: PlanWanted, output: int) -> None:
    """Make the plan, and write the answer."""
    os.nice(NICENESS)
    try:
        limit_memory(MEMORY_MAX)
        collect_new_objects()
        answer = answer_plan(partition, wanted, lambda order: _play_in_fork(partition, order, wanted))
    except MemoryError:
        text = f"there is no plan: it needs more than {MEMORY_MAX >> 20} MiB: plan with a nearer horizon"
        answer = Answer(status=503, body=text.encode())
    write_all(output, _encode(answer))


def _play_in_fork(partition: Partition, order: PlanOrder, wanted: PlanWanted) -> Course:
    """Play without the changes, in a process of its own, as this one's copy is for the changes."""

    def work(output: int) -> None:
        try:
            collect_new_objects()
            content = _encode(play(partition, order, now=wanted.at, viewer=wanted.viewer))
        except MemoryError:
            raise OSError(errno.ENOMEM, "no memory") from None  # becomes the exit status
        write_all(output, content)

    found = fork(work, PLAN_MAX_S)
    if found is None:
        raise OSError(errno.EAGAIN, "the system cannot start another process")
    process, pipe = found
    body = read_all(pipe)
    _, status = os.waitpid(process, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == errno.ENOMEM:
        raise MemoryError
    if status:
        raise RuntimeError(f"the process that plays without the changes ended with status {status}")
    return _decode_course(body)


def collect_new_objects() -> None:
    """Let the garbage collector run, but visit no object of the parent, which would copy its page."""
    gc.freeze()
    gc.enable()


def limit_memory(more: int) -> None:
    """Limit the memory of this process to what it has, and some bytes more."""
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * _PAGE_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = size + more if hard == resource.RLIM_INFINITY else min(size + more, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
