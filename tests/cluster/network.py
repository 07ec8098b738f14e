"""Machines of a cluster as Linux namespaces, joined by a bridge, whose links can be cut one way or both.

A machine has a network, processes and mounts of its own; its first process ends with the power, and the kernel then
kills all others at once. A cut from A to B gives B's address another link-layer address in A: packets are lost without
an error at either end, as in a switch that has lost a route, and also those of established connections.

Everything happens in a namespace around all machines, in which `enter` restarts the program, so nothing stays behind,
however the program ends. This needs `ip`, `nsenter`, `setpriv` and `unshare`, and either root or user namespaces.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, NoReturn

ENTERED: Final = "CLUSTER_ENTERED"
"""The environment variable that says that the program runs in the namespace around all machines."""

NAMESPACES: Final = ("--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc")
PROGRAMS: Final = ("ip", "nsenter", "setpriv", "unshare")
NOBODY: Final = 65534

BRIDGE: Final = "bridge"
ADDRESS: Final = "10.77.0.{}"
OUTSIDE: Final = 254
"""The number of the namespace around all machines, where resource managers and tests run."""

WIRE: Final = "02:00:0a:4d:00:{:02x}"
NOWHERE: Final = WIRE.format(255)
"""A link-layer address that no machine has."""

END_MAX_S: Final = 10.0


def find_obstacle() -> str:
    """Why there can be no machines here; empty if there can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)}: not installed (Debian: iproute2, util-linux)"
    probe = "ip link add x type bridge && ip link add y type veth peer name z"
    tried = subprocess.run([*_unshare(), "sh", "-c", probe], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"neither root nor user namespaces: {tried.stderr.strip()}"


def enter() -> None:
    """Start this program again in a namespace around all machines, unless it runs there already.

    Raises:
        OSError: that is not possible here.
    """
    if ENTERED in os.environ:
        return
    if obstacle := find_obstacle():
        raise OSError(obstacle)
    _become(*_unshare(), sys.executable, *sys.orig_argv[1:])


def _become(*command: str) -> NoReturn:
    os.execvpe(command[0], command, {**os.environ, ENTERED: "1"})


def _unshare() -> tuple[str, ...]:
    return ("unshare", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")), *NAMESPACES)


class Machine:
    """One machine; `boot` turns it on. Its number is the last part of its address."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.address = ADDRESS.format(number)
        self._power: subprocess.Popen[str] | None = None
        self._init = 0
        self._started: list[subprocess.Popen[Any]] = []

    @property
    def is_on(self) -> bool:
        return self._power is not None

    def boot(self) -> None:
        """Turn it on, without any program, and plug it in."""
        assert not self.is_on, self.name
        command = ("unshare", *NAMESPACES, "sh", "-c", "echo on; sleep infinity & wait")
        self._power = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._power.stdout is not None
        assert self._power.stdout.readline() == "on\n", f"{self.name} does not boot"
        [self._init] = _children(self._power.pid)
        _ip(f"link add name {self.name} type veth peer name eth0 netns {self._init}")
        _ip(f"link set dev {self.name} master {BRIDGE} up")
        self.ip(
            "link set lo up",
            f"link set eth0 address {WIRE.format(self.number)}",
            f"address add {self.address}/24 dev eth0",
            "link set eth0 up",
        )

    def crash(self) -> None:
        """Turn the power off: no process gets a signal that it could handle, and no connection is closed."""
        assert self._power is not None, self.name
        self.unplug()
        with suppress(ProcessLookupError):
            os.kill(self._init, signal.SIGKILL)
        for one in self._started:
            one.send_signal(signal.SIGCONT)  # `nsenter` stops with its program, and could not notice the end
        self._power.wait(END_MAX_S)
        self._power.communicate()
        self._power = None
        self._started.clear()
        with suppress(OSError):  # it went with its other end
            _ip(f"link delete dev {self.name}")

    def unplug(self) -> None:
        """Cut the link to all others, both ways."""
        _ip(f"link set dev {self.name} down")

    def plug(self) -> None:
        """End `unplug`."""
        _ip(f"link set dev {self.name} up")

    def ip(self, *commands: str) -> None:
        """Change the network of this machine."""
        _ip(*commands, prefix=self.prefix(as_root=True))

    def prefix(self, *, as_root: bool = False) -> tuple[str, ...]:
        """The words that make a command run on this machine: as a user that is not root, unless told otherwise."""
        inside = ("nsenter", f"--target={self._init}", "--net", "--pid", "--mount", "--")
        return inside if as_root else (*inside, *_another_user())

    def run(self, *command: str | Path, as_root: bool = False) -> str:
        """Run a program that ends; what it says.

        Raises:
            OSError: it failed.
        """
        done = subprocess.run(
            [*self.prefix(as_root=as_root), *command],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
        )
        if done.returncode != 0:
            raise OSError(f"{self.name}: {command[0]}: {done.stdout}")
        return done.stdout

    def start(self, *command: str | Path, output: "IO[str]", as_root: bool = False, **options: Any) -> subprocess.Popen:  # type: ignore[type-arg]
        """Start a program that stays."""
        words = [*self.prefix(as_root=as_root), *command]
        self._started.append(subprocess.Popen(words, stderr=output, **{"stdout": output, "cwd": "/", **options}))
        return self._started[-1]

    def processes(self) -> Iterator[tuple[int, str]]:
        """What runs there besides the first process: the number of each process outside, and its command
        line or title.
        """
        inside = os.readlink(f"/proc/{self._init}/ns/pid")
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.readlink(folder / "ns" / "pid") == inside and int(folder.name) != self._init:
                    yield int(folder.name), (folder / "cmdline").read_text().replace("\0", " ").strip()


class Network:
    """All machines, and this program as one more; a context."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.machines = machines

    def __enter__(self) -> "Network":
        _ip(
            "link set lo up",
            f"link add name {BRIDGE} address {WIRE.format(OUTSIDE)} type bridge",
            f"address add {ADDRESS.format(OUTSIDE)}/24 dev {BRIDGE}",
            f"link set {BRIDGE} up",
        )
        return self

    def __exit__(self, *_: object) -> None:
        for machine in self.machines:
            if machine.is_on:
                machine.crash()
        _ip(f"link delete {BRIDGE}")


def cut(source: Machine, *targets: Machine) -> None:
    """Lose all packets from one machine to others; what they send to it still arrives."""
    source.ip(*(f"neighbor replace {one.address} lladdr {NOWHERE} dev eth0 nud permanent" for one in targets))


def heal(source: Machine, *targets: Machine) -> None:
    """End `cut`."""
    wires = ((one.address, WIRE.format(one.number)) for one in targets)
    source.ip(*(f"neighbor replace {address} lladdr {wire} dev eth0 nud reachable" for address, wire in wires))


def _ip(*commands: str, prefix: Sequence[str] = ()) -> None:
    words, lines = [*prefix, "ip", "-batch", "-"], "\n".join(commands)
    done = subprocess.run(words, input=lines, text=True, check=False, capture_output=True)
    if done.returncode != 0:
        raise OSError(f"ip: {lines}: {done.stderr}")


def _another_user() -> tuple[str, ...]:
    """How root becomes another user, also where root is the only one."""
    if Path("/proc/self/uid_map").read_text().split()[2] == "1":
        return ("unshare", "--user", "--map-user=1000")
    return ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


def _children(number: int) -> list[int]:
    """The children of a process, once there are any."""
    until = time.monotonic() + END_MAX_S
    while time.monotonic() < until:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == number:
                    found.append(int(folder.name))
        if found:
            return found
    raise AssertionError(f"process {number} has no children")
