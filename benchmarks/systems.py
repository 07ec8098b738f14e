"""Systems to measure: this one, as `yunishard up` starts it, and the reference; and the processor time of processes.

The reference serves one resource manager only, on fixed ports; a comparison needs a network of its own.
"""

import asyncio
import multiprocessing
import os
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fcntl import ioctl
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from time import process_time
from typing import Final, NamedTuple, TypeAlias, TypeVar

from benchmarks.resource_managers import GrpcRm, NativeRm, Rm
from yunishard.common.names import WORKER


@contextmanager
def system(*options: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    """The supervisor's process id, and the endpoints by the names under which it announces them."""
    ports = ["--native", "tcp://127.0.0.1:0", "--grpc", "127.0.0.1:0", "--rest", "127.0.0.1:0"]
    command = [
        sys.executable,
        "-P",
        "-m",
        "yunishard.deploy",
        "--ephemeral",
        "--log-level",
        "warning",
        *ports,
        *options,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own
        assert process.stdout is not None
        announced: dict[str, str] = {}
        for line in process.stdout:
            name, _, where = line.strip().partition(" ")
            if name == "ready":
                break
            announced[name] = where.strip()
        try:
            yield process.pid, announced
        finally:
            process.terminate()


# The reference and this system ----------------------------------------------------------------------------------------

REFERENCE_GRPC: Final = "127.0.0.1:3333"
CLIENT: Final = "client"
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class NoReference(Exception):
    """The reference cannot be built or started, and why."""


@dataclass(frozen=True, slots=True)
class Up:
    """A system that runs."""

    connect: Callable[[str], Rm]
    """Register a resource manager with this configuration."""
    processes: Callable[[], Mapping[int, str]]
    """Ids and roles of its processes."""

    def cpu_s(self) -> dict[str, float]:
        """Processor time so far by role; `client` is this process."""
        spent = {CLIENT: process_time()}
        for process, role in self.processes().items():
            spent[role] = spent.get(role, 0.0) + cpu_s_of(process)
        return spent


System = Callable[[], AbstractContextManager[Up]]
"""Starts one, and ends it."""


MANAGERS: Final[Mapping[str, Callable[[str, str], Rm]]] = {"native": NativeRm, "grpc": GrpcRm}


@contextmanager
def own(way: str, *options: str) -> Iterator[Up]:
    """This system, by way of the native protocol or of the scheduler interface."""
    with system(*options) as (supervisor, at):
        yield Up(partial(MANAGERS[way], at[way]), partial(roles_of, supervisor))


def reference(command: str) -> System:
    """The reference scheduler, which this command starts."""

    @contextmanager
    def started() -> Iterator[Up]:
        words = shlex.split(command)
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:  # noqa: S603 - asked for
            try:
                yield Up(partial(GrpcRm, REFERENCE_GRPC), lambda: {process.pid: "reference"})
            finally:
                process.kill()

    return started


WAYS: Final[Mapping[str, System]] = {way: partial(own, way) for way in MANAGERS}
"""The ways to this system, by name."""

INTERPRETED: Final[Mapping[str, System]] = {way: partial(own, way, "--interpreted") for way in MANAGERS}
"""The same with the engine as Python, which is what can be compared between machines with a C compiler and others."""


# Resource managers in other processes ---------------------------------------------------------------------------------

SPAWN: Final = multiprocessing.get_context("spawn")
READY_MAX_S: Final = 300.0
Line: TypeAlias = "Connection[None, None]"
Size = TypeVar("Size")
Manage: TypeAlias = Callable[[str, Size, Line], Coroutine[None, None, None]]
"""Runs resource managers: takes the address of the system, their size, and the line."""


@contextmanager
def in_background(manage: Manage[Size], address: str, size: Size) -> Iterator[None]:
    """Resource managers in a process of their own. On the line, they send None once they are ready; to end them, this
    sends None.
    """
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_manage, args=(manage, address, size, theirs))
    process.start()
    try:
        assert ours.poll(READY_MAX_S), "the resource managers are not ready"
        ours.recv()
        yield
    finally:
        ours.send(None)
        process.join()


def _manage(manage: Manage[Size], address: str, size: Size, line: Line) -> None:
    asyncio.run(manage(address, size, line))


# Processes ------------------------------------------------------------------------------------------------------------


def roles_of(supervisor: int) -> dict[int, str]:
    """The processes of a system: the supervisor's own and those that it has started."""
    found = {supervisor: "supervisor"}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "cmdline").read_text().split("\0") if parent == supervisor else []
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        if "-m" in words:
            found[int(folder.name)] = words[words.index("-m") + 1].removeprefix("yunishard.")
        elif words and words[0].startswith(WORKER):  # the title of one that has a partition
            found[int(folder.name)] = WORKER
    return found


def cpu_s_of(process: int) -> float:
    """Processor time of all its threads so far, to the nanosecond where the system counts so well."""
    try:
        threads = list(Path(f"/proc/{process}/task").iterdir())
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
    except FileNotFoundError:
        return ticks_s_of(process)


def ticks_s_of(process: int) -> float:
    """Processor time so far, also that of threads which have ended, to a hundredth of a second."""
    stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / TICKS_PER_S


class Memory(NamedTuple):
    """Memory of a process, as the kernel counts it."""

    resident_bytes: int
    proportional_bytes: int
    """Pages that several processes share count in part."""


def memory_of(process: int) -> Memory:
    """The present memory of a process."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith(" kB")}
    return Memory(sizes["Rss"], sizes["Pss"])


# The reference --------------------------------------------------------------------------------------------------------


@contextmanager
def built(source: Path) -> Iterator[str]:
    """The command of the reference, made from Go source.

    Raises:
        NoReference: there is no such source, or no Go.
    """
    if not (source / "go.mod").is_file():
        raise NoReference(f"there is no Go source of the reference in {source}")
    go = shutil.which("go")
    if go is None:
        raise NoReference("Go is needed to build the reference, and is not installed")
    with tempfile.TemporaryDirectory(prefix="reference-") as folder:
        binary = Path(folder) / "reference"
        subprocess.run([go, "build", "-o", binary, "."], cwd=source, check=True)  # noqa: S603 - asked for
        yield str(binary)


def again_in_own_network(arguments: Sequence[str]) -> int:
    """Run this program once more where all ports are free; its exit status.

    Raises:
        NoReference: this machine has no way to do that.
    """
    unshare = shutil.which("unshare")
    if unshare is None:
        raise NoReference("unshare (of util-linux) is needed: the reference wants a network of its own")
    command = [unshare, "--map-root-user", "--net", sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, check=False).returncode  # noqa: S603 - our own


def bring_loopback_up() -> None:
    """In a new network even the loopback interface is down."""
    up_and_running, set_flags = 0x1 | 0x40, 0x8914
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        ioctl(any_socket, set_flags, struct.pack("16sh14x", b"lo", up_and_running))
