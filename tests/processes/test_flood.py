"""Floods of what nobody should send: memory and log stay within bounds, and others are served meanwhile."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.system import FREE_PORTS, eventually, up
from tests.processes.peer import CONFIG, Peer, connected
from tests.processes.system import System
from yunishard.sdk.blocking import BlockingResourceManager
from yunishard.sdk.items import node

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

MESSAGES: Final = 40_000
GROWTH_MAX_BYTES: Final = 256 << 20
"""What a flood may add to the memory of a process at its worst."""

LOG_LINES_MAX: Final = 100
"""What a flood may add to the log."""

ASK_MAX_S: Final = 10.0
"""What a well-behaved resource manager may wait for an allocation and its release meanwhile, at the worst."""

ASK_USUAL_S: Final = 2.0
"""The same, of half of them. The flood takes a core for itself, and the core as much as it gets."""

HUGE_BYTES: Final = 200 << 20
PROXY_MAX_BYTES: Final = 512 << 20


def memory_of(process: int, line: str = "VmHWM") -> int:
    """Bytes that it has used at most since it began, or since `forget_peak`. A process that has ended, of which a
    zombie may be left that has no memory, raises ProcessLookupError.
    """
    for text in Path(f"/proc/{process}/status").read_text().splitlines():
        if text.startswith(f"{line}:"):
            return int(text.split()[1]) << 10
    raise ProcessLookupError(process)


def forget_peak(process: int) -> int:
    """Bytes that it uses now, from which its peak is counted anew."""
    Path(f"/proc/{process}/clear_refs").write_text("5")
    return memory_of(process)


@contextmanager
def bounded(system: System) -> Iterator[None]:
    """Neither memory nor log grow beyond their bounds meanwhile, and nobody dies."""
    before = {number: forget_peak(number) for number in system.up.children}
    lines = len(system.up.errors.splitlines())
    with system.unharmed():
        yield
    for number, used in before.items():
        assert memory_of(number) - used <= GROWTH_MAX_BYTES, system.up.children[number]
    added = system.up.errors.splitlines()[lines:]
    assert len(added) <= LOG_LINES_MAX, "\n".join(added[:LOG_LINES_MAX])


@contextmanager
def furnished(system: System, rm_id: str) -> Iterator[Peer]:
    """A well-behaved resource manager."""
    with connected(system.native, rm_id) as peer:
        peer.furnish()
        yield peer


def test_a_flood_of_malformed_messages(system: System) -> None:
    command = (sys.executable, "-m", "tests.processes.flood", system.native, str(MESSAGES), "7")
    waits: list[float] = []
    with furnished(system, "beside-nonsense") as peer, bounded(system):
        with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as flood:
            while flood.poll() is None:
                begun = time.monotonic()
                peer.works()
                waits.append(time.monotonic() - begun)
        assert flood.returncode == 0
        peer.works()
    waits.sort()
    assert len(waits) >= 10, "too few to say anything"
    assert waits[-1] <= ASK_MAX_S
    assert waits[len(waits) // 2] <= ASK_USUAL_S


def test_messages_that_are_far_too_large_end_their_connection(system: System) -> None:
    with furnished(system, "beside-the-huge") as peer, bounded(system):
        for _ in range(4):
            with connected(system.native, "huge") as huge:
                huge.send_frames(b"YSH1", b"x", bytes(HUGE_BYTES))
                peer.works()


def test_connections_that_say_nothing_are_closed_and_slow_nobody(system: System) -> None:
    host, port = system.native.removeprefix("tcp://").rsplit(":", 1)
    with furnished(system, "beside-the-silent") as peer, bounded(system):
        silent = [socket.create_connection((host, int(port))) for _ in range(500)]
        peer.works()
        for one in silent:
            one.settimeout(30)
            while one.recv(100):  # its greeting, and then the end
                pass
            one.close()


# Messages that never end ----------------------------------------------------------------------------------------------


GREETING: Final = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY: Final = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00"
FRAME: Final = b"\x01\xff" + bytes(255)
"""One of many: more follow."""


def watched(process: int) -> Callable[[], int]:
    """What a process uses at most until it ends, as far as it was seen: to be asked once it has ended."""
    worst = 0

    def watch() -> None:
        nonlocal worst
        with suppress(FileNotFoundError, ProcessLookupError):  # it is gone
            while True:
                worst = max(worst, memory_of(process))
                time.sleep(0.01)

    thread = threading.Thread(target=watch)
    thread.start()

    def most() -> int:
        thread.join()
        return worst

    return most


def endless(address: str) -> None:
    """Send frames of one message until the other side ends the connection. No socket of ZeroMQ would do that."""
    host, port = address.removeprefix("tcp://").rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as raw, suppress(ConnectionError):
        raw.sendall(GREETING)
        raw.recv(len(GREETING), socket.MSG_WAITALL)
        raw.sendall(b"\x04" + bytes([len(READY)]) + READY)
        raw.recv(1)
        while True:
            raw.sendall(FRAME * 4096)


def test_a_message_without_end_costs_a_reconnect_and_nobody_their_allocations(tmp_path: Path) -> None:
    options = ("--ephemeral", "--proxy-memory-max", f"{PROXY_MAX_BYTES >> 20}MiB")
    with up(*options, *FREE_PORTS, folder=tmp_path) as running:
        native = running.announced()["native"]
        most = watched(running.child("-m rmproxy"))
        with BlockingResourceManager(native, rm_id="rm-1", config=CONFIG) as rm:
            rm.update_nodes([node("n1", {"vcore": "1"})])
            endless(native)
            assert most() <= PROXY_MAX_BYTES + GROWTH_MAX_BYTES
            running.until(lambda: running.says("(`proxy-memory-max`): it restarts"))
            eventually(lambda: any("-m rmproxy" in command for command in running.children.values()))
            rm.update_nodes([node("n2", {"vcore": "1"})])  # waits until the session has been resumed
        assert running.stop() == 0
