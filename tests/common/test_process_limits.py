"""Listeners that pause while there are few free descriptors, and the limit itself."""

import asyncio
import errno
import logging
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from mmap import PAGESIZE, mmap

import pytest

from yunishard.common import retries
from yunishard.common.process import limits
from yunishard.common.process.limits import (
    ENOUGH,
    RESERVE,
    Acceptor,
    DescriptorGuard,
    MemoryLimit,
    count_open_descriptors,
    descriptor_limit,
    is_shortage,
    resident_bytes,
)
from yunishard.common.process.process_metrics import count_threads

PATIENCE_S = 10
PAUSED = "no connections are accepted for now: "


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await story()

    asyncio.run(bounded())


@contextmanager
def free_descriptors(count: int) -> Iterator[None]:
    """Let this process open only so many more. Descriptors of the test run leave holes, which are filled first."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    names = os.listdir("/proc/self/fd")
    taken = {int(name) for name in names if os.path.lexists(f"/proc/self/fd/{name}")}
    with ExitStack() as stack:
        for number in set(range(max(taken))) - taken:
            stack.callback(os.close, os.dup2(0, number))
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken) + 1 + count, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)


class FakeListener:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failure: OSError | None = None
        self.called = asyncio.Event()

    def pause(self) -> None:
        self._note("pause")

    def resume(self) -> None:
        self._note("resume")
        if self.failure is not None:
            raise self.failure

    def _note(self, call: str) -> None:
        self.calls.append(call)
        self.called.set()

    async def until(self, calls: list[str]) -> None:
        while self.calls != calls:
            self.called.clear()
            await self.called.wait()


def test_a_listener_pauses_below_the_reserve_and_resumes_once_there_are_enough(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)

    async def story() -> None:
        free = RESERVE - 1
        looks = asyncio.Semaphore(0)

        def count() -> int:
            looks.release()
            return free

        monkeypatch.setattr(limits, "count_free_descriptors", count)
        guard = DescriptorGuard(check_every_s=0.001)
        listener = FakeListener()
        guard.add(listener)
        await listener.until(["pause"])
        free = ENOUGH - 1
        looks = asyncio.Semaphore(0)
        for _ in range(3):
            await looks.acquire()
        assert listener.calls == ["pause"], "between the two bounds nothing changes"
        free = ENOUGH
        await listener.until(["pause", "resume"])
        guard.close()

    play(story)
    first, second = [record.getMessage() for record in caplog.records]
    assert first.startswith(f"{PAUSED}too few free file descriptors ({RESERVE - 1} of ")
    assert "`ulimit -n`" in first
    assert second.startswith("connections are accepted again, after ")


def test_episodes_that_follow_each_other_soon_are_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "count_free_descriptors", lambda: ENOUGH)

    async def story() -> None:
        guard = DescriptorGuard(check_every_s=0.001)
        listener = FakeListener()
        guard.add(listener)
        for round_ in range(1, 4):
            guard.pause("too many open files")
            await listener.until(["pause", "resume"] * round_)
        guard.close()

    play(story)
    assert caplog.text.count(PAUSED) == 1


def test_a_listener_that_cannot_resume_yet_is_tried_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "LOG_EVERY_S", 0.0)
    monkeypatch.setattr(limits, "count_free_descriptors", lambda: ENOUGH)

    async def story() -> None:
        guard = DescriptorGuard(check_every_s=0.001)
        listener = FakeListener()
        guard.add(listener)
        listener.failure = OSError(errno.EADDRINUSE, "cannot listen on tcp://127.0.0.1:9090: in use")
        guard.pause("too many open files")
        await listener.until(["pause", "resume", "resume"])
        listener.failure = None
        await listener.until(["pause", "resume", "resume", "resume"])
        guard.close()

    play(story)
    assert "connections cannot be accepted again yet: " in caplog.text
    assert "cannot listen on tcp://127.0.0.1:9090: in use" in caplog.text


def test_connections_that_find_no_descriptor_are_accepted_later(caplog: pytest.LogCaptureFixture) -> None:
    """The reserve stays free for what the process opens itself."""
    room = ENOUGH + 10 - RESERVE

    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as held:
            arrived: asyncio.Queue[socket.socket] = asyncio.Queue()

            def accepted(connection: socket.socket) -> None:
                arrived.put_nowait(held.enter_context(connection))

            clients = [held.enter_context(socket.socket()) for _ in range(room + 4)]
            guard = DescriptorGuard(check_every_s=0.01)
            acceptor = Acceptor(server, accepted, guard)
            listener = FakeListener()
            guard.add(listener)
            with free_descriptors(ENOUGH + 10):
                for client in clients:
                    client.setblocking(False)
                    client.connect_ex(server.getsockname())
                early = [await arrived.get() for _ in range(room)]
                await listener.until(["pause"])
                assert PAUSED in caplog.text
                assert descriptor_limit() - count_open_descriptors() == RESERVE
                for one in early:
                    one.close()
                for _ in range(3):  # one was closed, as there was no room for it
                    await arrived.get()
            acceptor.close()
            guard.close()

    play(story)


def test_descriptors_and_memory_are_counted_without_a_free_descriptor() -> None:
    before = count_open_descriptors()
    with ExitStack() as held:
        ours, theirs = socket.socketpair()
        held.enter_context(ours)
        held.enter_context(theirs)
        assert count_open_descriptors() == before + 2
        with free_descriptors(0):
            assert count_open_descriptors() == descriptor_limit()
            assert resident_bytes() > 0
            assert count_threads() == 0


def test_a_shortage_is_told_from_other_failures() -> None:
    assert is_shortage(OSError(errno.EMFILE, "too many open files"))
    assert is_shortage(OSError(errno.ENFILE, "too many open files in system"))
    assert not is_shortage(OSError(errno.EACCES, "permission denied"))


def test_the_limit_is_raised_as_far_as_the_system_allows() -> None:
    program = (
        "import resource as r; from yunishard.common.process.limits import raise_descriptor_limit as limit;"
        "r.setrlimit(r.RLIMIT_NOFILE, (100, 200));"
        "print(limit(), r.getrlimit(r.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "200 (200, 200)\n"


def test_the_process_stops_once_it_uses_too_much(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    uses = iter((10, 100 << 20, 101 << 20))
    monkeypatch.setattr(limits, "resident_bytes", lambda: next(uses))
    monkeypatch.setattr(limits, "MEMORY_CHECK_S", 0.001)

    async def story() -> None:
        done = asyncio.Event()
        limit = MemoryLimit(100 << 20, done.set, "%d of %d")
        async with asyncio.timeout(10):
            await done.wait()
        limit.close()

    asyncio.run(story())
    assert caplog.messages == ["101 of 100"]


def test_a_process_sees_what_it_takes() -> None:
    size = 64 << 20
    before = resident_bytes()
    with mmap(-1, size) as taken:  # from the system: an allocator may give again what it has kept
        for place in range(0, size, PAGESIZE):
            taken[place] = 1  # memory is only taken when it is used
        assert resident_bytes() - before >= size // 2
