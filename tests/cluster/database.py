"""A primary and its synchronous standby, each on a machine of its own; the operator's part of a failover is here.

A server never commits without the other one, so a primary that is cut off cannot either.
"""

import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import psycopg

from tests import postgres
from tests.cluster.network import NOBODY, Machine

START_MAX_S: Final = 30.0
LAG_S: Final = 0.5
"""Time that the standby lags behind a primary that crashes."""

PORT: Final = 5432
NAME: Final = "store"
PAIR: Final = ("db1", "db2")

PORTS: Final = "host all all 10.77.0.0/24 trust\nhost replication all 10.77.0.0/24 trust\n"


class Database(Protocol):
    """What the hosts of a cluster keep their state in."""

    machines: Sequence[Machine]

    @property
    def dsn(self) -> str:
        """The connection string, which names all servers."""

    def start(self) -> None:
        """Start all servers, on machines that are on."""

    def crash_primary(self) -> None:
        """Turn the machine of the primary off, and see to it that another server takes its place."""

    def cut_off_primary(self) -> None:
        """Unplug the machine of the primary, which goes on, and see to it that another server takes its place."""

    def crash_standby(self) -> None:
        """Turn the machine of the standby off."""

    @property
    def primary_machine(self) -> Machine:
        """Where the primary runs."""

    def mend(self) -> None:
        """Turn on what is off, and wait until it replicates."""

    def wait(self) -> None:
        """Wait until no server is missing, and commits wait for one that may be promoted."""


class Server:
    """A PostgreSQL server on a machine."""

    def __init__(self, machine: Machine, folder: Path, names: Sequence[str]) -> None:
        self.machine = machine
        self._folder = folder / machine.name
        self._folder.mkdir(mode=0o755)
        self._data = self._folder / "data"
        self._log = self._folder / "log"
        with suppress(PermissionError):  # the only user of a namespace owns it already
            shutil.chown(self._folder, NOBODY, NOBODY)
        self._settings = (
            *postgres.FAST,
            "listen_addresses=*",
            f"unix_socket_directories={self._folder}",
            f"cluster_name={machine.name}",
            f"synchronous_standby_names=FIRST 1 ({', '.join(names)})",
            "wal_sender_timeout=5s",
            "wal_receiver_timeout=5s",
        )

    @property
    def dsn(self) -> str:
        return f"postgresql://{postgres.USER}@{self.machine.address}/{NAME}?connect_timeout=2"

    def initialize(self) -> None:
        """Make an empty database cluster."""
        words = ("-U", postgres.USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        self.machine.run(postgres.binaries() / "initdb", "-D", self._data, *words)
        with (self._data / "pg_hba.conf").open("a") as ports:
            ports.write(PORTS)

    def copy(self, source: "Server") -> None:
        """Make a standby of another server."""
        shutil.rmtree(self._data, ignore_errors=True)
        where = f"postgresql://{postgres.USER}@{source.machine.address}"
        words = ("-R", "--no-sync", "-c", "fast", "-d", where)
        self.machine.run(postgres.binaries() / "pg_basebackup", "-D", self._data, *words)

    def start(self) -> None:
        options = [word for one in self._settings for word in ("-c", one)]
        with self._log.open("a") as log:
            self.machine.start(postgres.binaries() / "postgres", "-D", self._data, *options, output=log)
        self.query("SELECT 1", database="postgres")

    def query(self, text: str, *, database: str = NAME) -> tuple[object, ...]:
        """The first row, once the server answers and there is one.

        Raises:
            OSError: there is none in START_MAX_S.
        """
        until = time.monotonic() + START_MAX_S
        reason = "no row"
        while time.monotonic() < until:
            try:
                with psycopg.connect(self.dsn, dbname=database, autocommit=True) as connection:
                    found = connection.execute(text)
                    if (row := found.fetchone() if found.description else ()) is not None:
                        return row
            except psycopg.OperationalError as error:
                reason = str(error)
            time.sleep(0.02)
        raise OSError(f"{self.machine.name}: {text}: {reason}\n{self._log.read_text()[-2000:]}")


class Pair:
    """A primary with a synchronous standby. Who is which changes with each failover."""

    def __init__(self, machines: Sequence[Machine], folder: Path) -> None:
        self.machines = machines
        names = [one.name for one in machines]
        self.primary, self.standby = (Server(one, folder, names) for one in machines)

    @property
    def dsn(self) -> str:
        return f"postgresql://{postgres.USER}@{','.join(one.address for one in self.machines)}/{NAME}"

    def start(self) -> None:
        self.primary.initialize()
        self.primary.start()
        self._add_standby()
        self.primary.query(f"CREATE DATABASE {NAME}", database="postgres")

    def crash_primary(self) -> None:
        self.standby.machine.unplug()
        time.sleep(LAG_S)  # what the primary writes now is lost with it, so nobody may have been told
        self.primary.machine.crash()
        self.standby.machine.plug()
        self.promote()

    def cut_off_primary(self) -> None:
        self.primary.machine.unplug()
        self.promote()

    def crash_standby(self) -> None:
        self.standby.machine.crash()

    @property
    def primary_machine(self) -> Machine:
        return self.primary.machine

    def promote(self) -> None:
        """Make the standby the primary, which never commits again without a standby."""
        self.primary, self.standby = self.standby, self.primary
        self.primary.query("SELECT pg_promote()", database="postgres")

    def mend(self) -> None:
        """Make a new standby, on the machine that is not the primary's."""
        machine = self.standby.machine
        if machine.is_on:
            machine.crash()  # also a primary that was cut off: it must not come back as one
        machine.boot()
        self._add_standby()

    def _add_standby(self) -> None:
        self.standby.copy(self.primary)
        self.standby.start()
        self.wait()

    def wait(self) -> None:
        query = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
        self.primary.query(query, database="postgres")
