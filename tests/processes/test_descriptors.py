"""Processes that run out of file descriptors: none ends, none spins, and each serves again once some are free."""

import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.system import FREE_PORTS, eventually, up
from tests.processes.system import System
from tests.processes.test_hostile_grpc import everything_works

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

CONNECTIONS: Final = 150
"""More than a process with the limit below can hold."""

SPARE: Final = 50
"""Descriptors that a process may open besides those it has."""

LOCAL_PAUSE_S: Final = 0.01
"""Between two connections to the broker. ZeroMQ aborts a process that runs out of descriptors while it accepts an
`ipc://` connection, so the broker has to pause within so many of them."""

OBSERVED_S: Final = 2.0
BUSY_MAX: Final = 0.5
"""Of a processor, while connections wait that cannot be accepted. A loop that spins takes all of it."""

WARNING: Final = "no connections are accepted for now: "
OVER: Final = "connections are accepted again"


@contextmanager
def short_of_descriptors(number: int) -> Iterator[None]:
    """Let a process open only a few more descriptors than it has."""
    before = resource.prlimit(number, resource.RLIMIT_NOFILE)
    resource.prlimit(number, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{number}/fd")) + SPARE, before[1]))
    try:
        yield
    finally:
        resource.prlimit(number, resource.RLIMIT_NOFILE, before)


@contextmanager
def flooded(address: str) -> Iterator[None]:
    """Hold many connections to an address; those that find no room in the backlog may be missing."""
    address = address.removeprefix("tcp://")
    family = socket.AF_UNIX if "/" in address else socket.AF_INET
    host, _, port = address.rpartition(":")
    where = address if family == socket.AF_UNIX else (host, int(port))
    held = []
    try:
        for _ in range(CONNECTIONS):
            held.append(socket.socket(family))
            held[-1].setblocking(False)
            held[-1].connect_ex(where)
            if family == socket.AF_UNIX:  # as fast as processes of one machine start
                time.sleep(LOCAL_PAUSE_S)
        yield
    finally:
        for one in held:
            one.close()


def busy_s(number: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load_of(number: int) -> float:
    """The part of a processor that a process uses."""
    began, before = time.monotonic(), busy_s(number)
    eventually(lambda: time.monotonic() > began + OBSERVED_S)
    return (busy_s(number) - before) / (time.monotonic() - began)


def socket_of_broker(system: System) -> str:
    [command] = [one for one in system.up.children.values() if " broker " in one]
    return command.partition("ipc://")[2].split()[0]


@pytest.mark.parametrize(
    ("role", "port"),
    [("rmproxy", "native"), ("rmproxy", "grpc"), ("webservice", "rest"), ("broker", "socket")],
    ids=lambda value: value,
)
def test_a_process_without_free_descriptors_waits_until_there_are_some(tmp_path: Path, role: str, port: str) -> None:
    with up("--ephemeral", *FREE_PORTS, folder=tmp_path) as running:
        system = System(running, running.announced())
        address = socket_of_broker(system) if port == "socket" else getattr(system, port)
        number = running.child(f" {role} ")
        with system.unharmed(leaving=True):
            with short_of_descriptors(number), flooded(address):
                running.until(lambda: running.says(WARNING))
                load = load_of(number)
            running.until(lambda: running.says(OVER))
            everything_works(system)
        assert load < BUSY_MAX, f"{load:.0%} of a processor"
        assert "Traceback" not in running.errors
        assert (running.errors.count(WARNING), running.errors.count(OVER)) == (1, 1)
        assert running.stop() == 0
