"""`yunishard up`: the whole system on this machine, from one command until a signal stops it.

The event loop around the supervisor's machine: signals, the connection to the broker, and the instructions. Not here:
the sources of settings (`settings.py`), checks (`preflight.py`), decisions (`supervisor.py`), child processes
(`processes.py`).
"""

import argparse
import asyncio
import logging
import os
import re
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

from yunishard.common.messages import wire
from yunishard.common.messages.control_messages import Figures, WorkersWanted
from yunishard.common.messages.rm_messages import Heartbeat
from yunishard.common.messages.wire import BrokerAddress, Outgoing, decode_body, make_outgoing
from yunishard.common.names import BROKER, OFF, SUPERVISOR, peer_name, process_label
from yunishard.common.process.compiled import find_engine
from yunishard.common.process.folders import remove_any
from yunishard.common.process.limits import measure_capacity
from yunishard.common.process.logs import configure_logging
from yunishard.common.process.main import install_signal_handlers
from yunishard.common.process.metrics import Family, encode_families
from yunishard.common.process.process_metrics import ProcessMetrics, list_families
from yunishard.common.settings import Settings, SettingsError, add_options, given_options
from yunishard.common.transport.event_loop import BrokerConnection, clock
from yunishard.deploy import children
from yunishard.deploy.children import READY, Event, HostCapacity, Instruction
from yunishard.deploy.preflight import find_warnings, prepare
from yunishard.deploy.processes import COMMANDS, Commands, Processes
from yunishard.deploy.settings import SETTINGS_FILE, find_unknown_variables, resolve_settings
from yunishard.deploy.state_directory import StateDirectory
from yunishard.deploy.supervisor import CANNOT_START, HASTENED, STARTS_MAX, Supervisor

STARTS_PER_PROCESSOR: Final = 2
"""Workers that start at the same time, for each processor; at least `STARTS_MAX`."""

STARTS_MOST: Final = 16
"""Workers that start at the same time on any machine: the supervisor starts one process after the other, and must not
neglect everything else for long."""

TERMINAL_CLOSED: Final = (
    "SIGHUP: the terminal was closed, so the system stops; start it with `nohup` or `setsid`, or as a service, to "
    "run it without a terminal"
)
NOTHING_TO_RELOAD: Final = (
    "SIGHUP: there is nothing to reload; the files of `config`, `native-allowed`, `auth-keys` and the gRPC certificate "
    "are read again whenever they change, all other settings and the REST certificate at the next start"
)

_log = logging.getLogger("core.supervisor")


class BrokerLink:
    """The connection to the leading broker, while there is one."""

    def __init__(
        self, settings: Settings, report: Callable[[Event], None], metrics: Callable[[], Iterable[Family]]
    ) -> None:
        self.name: Final = peer_name(SUPERVISOR, settings.host_name)
        self._keys = settings.cluster_keys
        self._report = report
        self._metrics = metrics
        self._link: BrokerConnection | None = None

    def open(self, leader: BrokerAddress) -> None:
        """Connect, and send metrics."""
        self.close()
        self._link = BrokerConnection(leader, name=self.name, wake=self._read, keys=self._keys)
        self.send_metrics()

    def send_metrics(self) -> None:
        """Send the supervisor's metrics, if connected."""
        figures = Figures(families=encode_families(self._metrics()))
        self.send(make_outgoing(BROKER, figures))

    def send(self, message: Outgoing) -> None:
        """Send a message, if connected."""
        if self._link is not None:
            self._link.send(message)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def _read(self) -> None:
        while self._link is not None and (incoming := self._link.receive()) is not None:
            match incoming.header.kind:
                case "WorkersWanted":
                    self._report(decode_body(WorkersWanted, incoming.body))
                case "Heartbeat" if not decode_body(Heartbeat, incoming.body).incarnation:
                    self._report(children.HelloWanted())
                case wire.LINK_LOST:
                    self._report(children.HelloWanted())


async def supervise(settings: Settings, state: StateDirectory, commands: Commands, compiled: Path | None) -> Supervisor:
    """Run the whole system until it has stopped; return the machine in its last state, with status and failure."""
    events: asyncio.Queue[Event] = asyncio.Queue()
    report = events.put_nowait
    _handle_signals(lambda: report(children.Leave()))
    starts_max = max(STARTS_MAX, min(STARTS_MOST, STARTS_PER_PROCESSOR * len(os.sched_getaffinity(0))))
    supervisor = Supervisor(
        settings,
        broker=state.broker,
        file=str(state.settings),
        instance=_name_instance(settings),
        starts_max=starts_max,
        capacity=HostCapacity(version("yunishard"), *measure_capacity()),
    )
    manager = ServiceManager(os.environ)
    link = BrokerLink(settings, report, lambda: [*list_families(own.registry), *supervisor.metrics()])
    own = ProcessMetrics(process_label(link.name), send=link.send_metrics)
    async with asyncio.TaskGroup() as group:
        processes = Processes(commands, state.lock, group, report, compiled)
        while supervisor.status is None:
            event = await _wait_for_event(events, supervisor.deadline - clock())
            now = clock()
            instructions = supervisor.handle(event, now) if event else []
            if supervisor.deadline <= now:
                instructions += supervisor.tick(now)
            for instruction in instructions:
                await _execute(instruction, processes, link, settings.journals)
                if instruction == READY:
                    manager.send(SYSTEM_READY)
            if isinstance(event, children.Leave):
                manager.send(SYSTEM_STOPPING)
            manager.report_alive(now)
    own.close()
    link.close()
    return supervisor


def _name_instance(settings: Settings) -> str:
    """The part of the names of workers that differs from earlier supervisors of this host. Its process id does not
    suffice for the broker of another host: in a container, it is the same after each start.
    """
    return str(os.getpid()) if settings.cluster_address == OFF else secrets.token_hex(4)


async def _wait_for_event(events: asyncio.Queue[Event], timeout_s: float) -> Event | None:
    """Return the next event, or None after the timeout."""
    try:
        async with asyncio.timeout(timeout_s):
            return await events.get()
    except TimeoutError:
        return None


async def _execute(instruction: Instruction, processes: Processes, link: BrokerLink, journals: Path | None) -> None:
    match instruction:
        case children.Start():
            await processes.start(instruction)
        case children.Terminate(name):
            processes.signal(name, signal.SIGTERM)
        case children.Kill(name):
            processes.signal(name, signal.SIGKILL)
        case children.Tell(name, leader):
            processes.tell(name, leader)
        case children.Connect(leader):
            link.open(leader)
        case children.Disconnect():
            link.close()
        case Outgoing():
            link.send(instruction)
        case children.Forget(partition) if journals is not None:
            remove_journal(journals, partition)
        case children.Note(level, text):
            _log.log(logging.getLevelNamesMapping()[level.upper()], "%s", text)
        case children.Announce(line):
            _print(line)


def _print(line: str) -> None:
    if sys.stdout is None:  # the parent process closed it
        return
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except OSError:  # the reader has ended, as in `yunishard up | head -1`, or the disk is full
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _handle_signals(leave: Callable[[], None]) -> None:
    """Stop in order on SIGINT, SIGTERM, and when the terminal is closed."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, leave)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # set by `nohup`
        return
    if not _has_terminal():
        loop.add_signal_handler(signal.SIGHUP, lambda: _log.info(NOTHING_TO_RELOAD))
        return

    def hang_up() -> None:
        _log.warning(TERMINAL_CLOSED)
        leave()

    loop.add_signal_handler(signal.SIGHUP, hang_up)


def _has_terminal() -> bool:
    """Whether this process belongs to a terminal, so that SIGHUP means that it was closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


# Journals -------------------------------------------------------------------------------------------------------------

_JOURNAL_FILES: Final = r"\.(sqlite(-wal|-shm)?|snapshot-\d+(\.tmp-\d+)?|damaged|attempts(-new)?|poison-[0-9a-f]+)"
"""The ends of the names of a journal's files, after the name of the partition."""


def remove_journal(folder: Path, partition: str) -> None:
    """Remove what a killed worker has left of the journal of a partition that has ended. Errors are logged.

    The database goes first: after an interruption, the remaining files belong to no journal, and a later partition of
    the same name starts empty.
    """
    names = re.compile(re.escape(partition) + _JOURNAL_FILES)
    try:
        found = [path for path in folder.iterdir() if names.fullmatch(path.name)]
    except OSError as error:
        _log.warning("the journal of %s in %s cannot be removed: %s", partition, folder, error.strerror)
        return
    for path in sorted(found, key=lambda path: (path.suffix != ".sqlite", path.name)):
        try:
            remove_any(path)
        except OSError as error:
            _log.warning("%s: cannot be removed: %s", path, error.strerror)


# The command ----------------------------------------------------------------------------------------------------------


def add_up_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard up`."""
    add_file_option(parser)
    add_options(parser)


def add_file_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the settings file."""
    about = "file with these options (default: $YUNISHARD_SETTINGS)"
    parser.add_argument(f"--{SETTINGS_FILE}", metavar="FILE", help=about)


def run_up(args: argparse.Namespace, commands: Commands = COMMANDS) -> int:
    """Start and supervise the whole system: the broker, the ports for resource
    managers, the web service, and a worker for each partition. Prints a line for
    each endpoint and then `ready`; logs go to stderr. A process that ends is
    restarted.

    Each option can also be given in the environment (YUNISHARD_LOG_LEVEL=debug)
    or as a line of the settings file (log-level: debug; `queues.same-hierarchy`
    for --same-hierarchy). The command line overrides the environment, and the
    environment the file; `yunishard settings` shows the effective settings.

    examples:
      yunishard up                                  the usual ports
      yunishard up --ephemeral --rest 127.0.0.1:0   leaves nothing behind; any port
      yunishard up --config queues.yaml --state /var/lib/yunishard
      yunishard up --settings /etc/yunishard.yaml --scheduler-admins 'alice ops'

    exit codes:
      0    stopped in order, by SIGINT (Ctrl-C), SIGTERM, or the end of its
           terminal
      2    wrong usage, or it cannot start: one line on stderr tells why, and
           nothing is left running
      130  stopped at once, by a second SIGINT or SIGTERM
    """
    try:
        supervisor = _run(resolve_settings(given_options(args), os.environ, file=args.settings), commands)
    except SettingsError as error:
        return _fail(str(error))
    except KeyboardInterrupt:  # before the event loop handles the signals: nothing has started yet
        return HASTENED
    return _fail(supervisor.failure) if supervisor.failure else (supervisor.status or 0)


def _run(settings: Settings, commands: Commands) -> Supervisor:
    install_signal_handlers()
    configure_logging("supervisor", settings.log_level, settings.log_format)
    for line in find_unknown_variables(os.environ):
        _log.warning("%s", line)
    with prepare(settings) as (effective, state):
        for line in find_warnings(settings):
            _log.warning("%s", line)
        compiled = None if settings.interpreted else find_engine()
        if compiled is not None:
            _log.info("workers run the compiled engine in %s", compiled)
        return asyncio.run(supervise(effective, state, commands, compiled=compiled))


def _fail(reason: str) -> int:
    sys.stderr.write(f"yunishard up: {reason}\n")
    return CANNOT_START


# The service manager --------------------------------------------------------------------------------------------------

# With `Type=notify`, `systemctl start` returns once the system is ready. With `WatchdogSec=`, systemd restarts a
# supervisor whose event loop hangs.

SYSTEM_READY: Final = "READY=1"
SYSTEM_STOPPING: Final = "STOPPING=1"

ALIVE_S: Final = 1.0
"""Seconds between two reports that the supervisor is alive. WatchdogSec= should be several times as long."""


class ServiceManager:
    """Reports the state of the system to the service manager that started it, as `sd_notify(3)` describes; without
    NOTIFY_SOCKET in the environment, it sends nothing.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._alive_at = 0.0
        """When the next report that the supervisor is alive is due."""

    def send(self, state: str) -> None:
        """Report a state. The system works without its service manager, so an error is only logged."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as end:
                end.sendto(state.encode(), self._address)
        except OSError as error:
            _log.warning("the service manager at NOTIFY_SOCKET cannot be reached: %s", os.strerror(error.errno or 0))

    def report_alive(self, now: float) -> None:
        """Report that the event loop runs, if that is due."""
        if now >= self._alive_at:
            self._alive_at = now + ALIVE_S
            self.send("WATCHDOG=1")
