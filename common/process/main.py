"""The shell of every server process: command line, signals, and the lifeline to the supervisor.

The supervisor starts a process with the address of the broker, the settings file that it has written, and a lifeline:
one end of a socket pair, for lines of JSON. The process writes a line when it is ready (`{"ready": {...}}`, with the
endpoints it opened) or cannot start (`{"failed": "..."}`), and a heartbeat while its loop runs (`{"alive": 7}`). A
worker also reports the lease that the broker has granted it (`{"granted": {...}}`), and is ready again once it serves
that partition. The broker reports that its whole system must not run (`{"refused": "..."}`), and where the leading
broker is (`{"leader": {...}}`); the supervisor writes that line to all others when it changes. When the other end
closes, the supervisor is gone, however it ended, and the process stops. Without a lifeline, a process runs until a
signal stops it.

Not here: decisions (each process's machine), restarts (`deploy/`), the format of log lines (`logs.py`).
"""

import argparse
import asyncio
import ctypes
import faulthandler
import fcntl
import gc
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from yunishard.common.messages.wire import BrokerAddress
from yunishard.common.names import FRONT_ENDS, INSTANCE, WORKER, lease_name, peer_name
from yunishard.common.process import gc_tuning
from yunishard.common.process.folders import find_intruder
from yunishard.common.process.logs import configure_logging
from yunishard.common.settings import (
    Settings,
    SettingsError,
    add_options,
    parse_options,
    read_settings,
    replace_settings,
)

LEAVE_MAX_S: Final = 5.0
"""Seconds for an orderly stop after the supervisor is gone; then the process exits at once."""

HEARTBEAT_S: Final = Settings().heartbeat_s

IGNORED: Final = [
    signal.Signals[f"SIG{name}"] for name in ("USR2", "ALRM", "VTALRM", "PROF", "IO", "PWR", "PIPE", "XFSZ")
]
"""Signals that would end a process without a handler; a stray one must not. Child processes inherit this.
Without SIGXFSZ, a file that reaches the limit on its size is an OSError.
`docs/operating/monitoring.md` lists the effect of each signal.
"""


class Lease(msgspec.Struct, frozen=True):
    """The partition that the broker has granted a worker."""

    partition: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Arguments:
    """The command line of a server process."""

    broker: BrokerAddress
    """Where the process reaches the broker; the leading one, of several. Of a broker: its own socket."""
    settings: Settings
    instance: str
    """Name of this process among those of its role."""


class LeaderLine(msgspec.Struct):
    """A line of the supervisor."""

    leader: BrokerAddress


class Life:
    """Start and stop of this process: reports to the supervisor, and wakes waiters when it is time to stop."""

    def __init__(self, lifeline: int | None, *, heartbeat_s: float = HEARTBEAT_S) -> None:
        self.stopping = asyncio.Event()
        self._lifeline = lifeline
        self._heartbeat_s = heartbeat_s
        self._heartbeats = 0
        self._waiters: list[Callable[[], None]] = []
        self._leader: BrokerAddress | None = None
        """The latest line of the supervisor."""
        self._move: Callable[[BrokerAddress], None] | None = None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        if lifeline is not None:
            line = socket.socket(fileno=os.dup(lifeline))
            threading.Thread(target=self._follow, args=(line, loop), name="lifeline", daemon=True).start()
            loop.call_later(heartbeat_s, self._send_heartbeat, line, loop)

    def on_stop(self, wake: Callable[[], None]) -> None:
        """Register a function to call when it is time to stop."""
        self._waiters.append(wake)

    def stop(self) -> None:
        """Begin to stop."""
        self.stopping.set()
        for wake in self._waiters:
            wake()

    def on_leader(self, move: Callable[[BrokerAddress], None]) -> None:
        """Call this function when another broker leads, now and later."""
        self._move = move
        if self._leader is not None:
            move(self._leader)

    def leads(self, leader: BrokerAddress) -> None:
        """Report where the processes of this host reach the leading broker."""
        write_line(self._lifeline, {"leader": leader})

    def ready(self, **endpoints: str) -> None:
        """Report that all endpoints are open."""
        write_line(self._lifeline, {"ready": endpoints})

    def refuse(self, reason: str) -> None:
        """Report that this whole system must not run, and why."""
        write_line(self._lifeline, {"refused": reason})

    def granted(self, lease: Lease) -> None:
        """Report that this worker starts to serve a partition, and show that in its title."""
        write_line(self._lifeline, {"granted": lease})
        set_title(f"{WORKER} {lease_name(lease.partition, lease.epoch)}")

    def _send_heartbeat(self, line: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        """Report that the loop runs, and again later. If the supervisor does not read, heartbeats are dropped: the
        process must not wait for it.
        """
        self._heartbeats += 1
        with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            line.send(msgspec.json.encode({"alive": self._heartbeats}) + b"\n", socket.MSG_DONTWAIT)
        loop.call_later(self._heartbeat_s, self._send_heartbeat, line, loop)

    def _follow(self, line: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        try:
            # A reset means that the other end is gone, which this thread waits for.
            with suppress(ConnectionResetError), line.makefile("rb") as lines:
                for text in lines:
                    leader = msgspec.json.decode(text, type=LeaderLine).leader
                    loop.call_soon_threadsafe(self._set_leader, leader)
            loop.call_soon_threadsafe(self.stop)
        except RuntimeError:  # the loop has already ended
            line.close()
            return
        time.sleep(LEAVE_MAX_S)
        os._exit(70)

    def _set_leader(self, leader: BrokerAddress) -> None:
        self._leader = leader
        if self._move is not None:
            self._move(leader)


def write_line(lifeline: int | None, line: dict[str, object]) -> None:
    """Write one line to the supervisor, if there is one."""
    if lifeline is None:
        return
    with suppress(BrokenPipeError, ConnectionResetError):  # it is gone: the lifeline's reader stops the process
        os.write(lifeline, msgspec.json.encode(line) + b"\n")


def set_title(title: str) -> None:
    """Replace the command line of this process, as `ps` shows it. It is in the memory between two addresses that the
    kernel tells; a longer title is cut off. Without such memory the title stays.
    """
    with suppress(OSError, ValueError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        ctypes.memmove(start, title.encode()[: end - start - 1].ljust(end - start, b"\0"), end - start)


def make_parser(role: str, about: str) -> argparse.ArgumentParser:
    """Make the parser of a server process. It takes the options of `yunishard up`, too, but its help omits them."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {role}", description=about, epilog="The options of `yunishard up` override the settings file."
    )
    parser.add_argument("--broker", required=True, metavar="ADDRESS", help="the broker's socket, as in ipc://PATH")
    about = "public key of a broker on another machine, tcp://HOST:PORT"
    parser.add_argument("--broker-key", default="", metavar="KEY", help=about)
    about = "JSON file of the effective settings, made by `yunishard up` (default: the default settings, no state)"
    parser.add_argument("--settings", type=Path, metavar="FILE", help=about)
    parser.add_argument("--lifeline", type=int, metavar="FD", help="socket to the supervisor (set by `yunishard up`)")
    about = "name of this process among those of its role, which no other may have (default: a random one)"
    parser.add_argument("--instance", default="", metavar="NAME", help=about)
    add_options(parser, help_of=lambda setting: argparse.SUPPRESS)
    return parser


def parse_arguments(args: argparse.Namespace) -> Arguments:
    """Read the settings, and combine them with the options.

    Raises:
        SettingsError: a setting is invalid, the file cannot be read, or another user could replace the state directory.
    """
    settings = read_settings(args.settings) if args.settings else Settings()
    instance = args.instance or secrets.token_hex(4)
    if not INSTANCE.fullmatch(instance):
        raise SettingsError(f"--instance: expected up to 96 letters, digits and '_', '.', '-', got {instance!r}")
    broker = BrokerAddress(args.broker, args.broker_key)
    settings = replace_settings(settings, parse_options(args))
    if settings.state is not None and (problem := find_intruder(settings.state)):
        raise settings.error("state", problem)
    return Arguments(broker, settings, instance)


def lock_name(broker: str, name: str) -> None:
    """Lock the name of a front end, beside the broker's socket, until this process ends. The broker would take a second
    process with this name for a restart of the first, and cut the first one off.

    Raises:
        OSError: another process has the name.
    """
    if not broker.startswith("ipc://"):
        return
    path = f"{broker.removeprefix('ipc://')}.{name.replace('/', '-')}.lock"
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise OSError(f"another process at this broker is {name}: choose another --instance") from None


def install_signal_handlers() -> None:
    """Write the stack of each thread to standard error on SIGUSR1 and on a crash, and ignore stray signals."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    if sys.stderr is not None:  # the parent process may have closed it: then there is no log
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1)
    else:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def main(role: str, about: str, serve: Callable[[Arguments, Life], Awaitable[None]]) -> int:
    """Run a server process until `serve` returns; return the exit status. An OSError is reported in one line."""
    args = make_parser(role, about).parse_args()
    gc_tuning.collect_rarely()
    install_signal_handlers()
    if args.lifeline is not None:  # the supervisor decides when to stop, not a terminal
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    async def run(arguments: Arguments) -> None:
        await serve(arguments, Life(args.lifeline, heartbeat_s=arguments.settings.heartbeat_s))

    status = 0
    try:
        arguments = parse_arguments(args)
        configure_logging(role, arguments.settings.log_level, arguments.settings.log_format)
        if args.instance and role in FRONT_ENDS:
            lock_name(args.broker, peer_name(role, args.instance))
        uvloop.run(run(arguments))
    except* (OSError, SettingsError) as found:  # alone, or of a task in a group
        status, error = 2, found.exceptions[0]
        if args.lifeline is None:
            sys.stderr.write(f"{role}: {error}\n")
        write_line(args.lifeline, {"failed": str(error)})
    finally:
        gc.freeze()  # the system frees all memory: collecting the cycles of a large partition first takes seconds
    return status
