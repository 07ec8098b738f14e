"""PostgreSQL with automatic failover: Patroni on three machines, with an etcd on each; one standby is synchronous.

It needs Debian's packages `postgresql`, `patroni` and `etcd-server`. Machines keep their disks when they lose power.

Patroni uses version 2 of etcd's API: with version 3, Patroni 3.0.2 and earlier let a primary that was stopped for a
while take the lock back from its successor, and what the successor acknowledged is lost (fixed in Patroni 3.0.3).
"""

import json
import shutil
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psycopg

from tests import postgres
from tests.cluster import faults
from tests.cluster.database import NAME
from tests.cluster.faults import Fault
from tests.cluster.network import NOBODY, Machine

SERVERS: Final = ("db1", "db2", "db3")
FAILOVER_MAX_S: Final = 90.0
LOOK_EVERY_S: Final = 0.1
REJOIN_MAX_S: Final = 20.0
"""Time for a former primary to come back by itself."""


CONFIGURATION: Final = """\
scope: store
name: {name}
restapi: {{listen: '{address}:8008', connect_address: '{address}:8008'}}
etcd: {{hosts: '{etcds}'}}
bootstrap:
  dcs:
    ttl: 10
    loop_wait: 1
    retry_timeout: 3
    synchronous_mode: true
    synchronous_mode_strict: true
    postgresql: {{use_pg_rewind: true, use_slots: true, parameters: {{max_connections: 200}}}}
  initdb: [encoding: UTF8, locale: C]
postgresql:
  listen: '{address}:5432'
  connect_address: '{address}:5432'
  data_dir: '{folder}/data'
  bin_dir: '{binaries}'
  pgpass: '{folder}/pgpass'
  authentication:
    superuser: {{username: {user}}}
    replication: {{username: {user}}}
    rewind: {{username: {user}}}
  pg_hba: ['local all all trust', 'host all all 10.77.0.0/24 trust', 'host replication all 10.77.0.0/24 trust']
  basebackup: {{checkpoint: fast}}
  parameters:
    unix_socket_directories: '{folder}'
    wal_log_hints: 'on'
    wal_sender_timeout: 5s
    wal_receiver_timeout: 5s
    fsync: 'off'
    shared_buffers: 32MB
"""


def find_obstacle() -> str:
    """Why Patroni cannot run here; empty if it can."""
    missing = [name for name in ("patroni", "etcd") if shutil.which(name) is None]
    if not _binaries().is_dir():
        missing.append("postgresql")
    return f"{', '.join(missing)}: not installed (Debian: postgresql, patroni, etcd-server)" if missing else ""


def _binaries() -> Path:
    """The latest installed version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    return found[-1] if found else Path("/usr/lib/postgresql/bin")


class Patroni:
    """The servers as Patroni sees them. Only power and links are ours to change; the rest happens by itself."""

    def __init__(self, machines: Sequence[Machine], folder: Path) -> None:
        self.machines = machines
        self._folder = folder

    @property
    def dsn(self) -> str:
        return f"postgresql://{postgres.USER}@{','.join(one.address for one in self.machines)}/{NAME}"

    @property
    def primary_machine(self) -> Machine:
        return self._until(lambda roles: "leader" in roles)["leader"]

    def start(self) -> None:
        for machine in self.machines:
            self._configure(machine)
            self._boot(machine)
        self.wait()
        where = f"postgresql://{postgres.USER}@{self.primary_machine.address}/postgres"
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {NAME}")

    def crash_primary(self) -> None:
        former = self.primary_machine
        former.crash()
        self._wait_for_another(former)

    def cut_off_primary(self) -> None:
        former = self.primary_machine
        former.unplug()
        self._wait_for_another(former)

    def crash_standby(self) -> None:
        self._until(lambda roles: "sync_standby" in roles)["sync_standby"].crash()

    def mend(self) -> None:
        for machine in self.machines:
            if machine.is_on:
                machine.plug()
            else:
                machine.boot()
                self._boot(machine)
        self.wait()

    def _configure(self, machine: Machine) -> None:
        folder = self._folder / machine.name
        folder.mkdir(mode=0o755)
        etcds = ",".join(f"{one.address}:2379" for one in self.machines)
        (folder / "patroni.yaml").write_text(
            CONFIGURATION.format(
                name=machine.name,
                address=machine.address,
                etcds=etcds,
                folder=folder,
                binaries=_binaries(),
                user=postgres.USER,
            )
        )
        with suppress(PermissionError):  # the only user of a namespace owns it already
            shutil.chown(folder, NOBODY, NOBODY)

    def _boot(self, machine: Machine) -> None:
        """Start the programs of a machine that is on."""
        folder = self._folder / machine.name
        client, peer = (f"http://{machine.address}:{port}" for port in (2379, 2380))
        peers = ",".join(f"{one.name}=http://{one.address}:2380" for one in self.machines)
        with (folder / "log").open("a") as log:
            machine.start(
                *("etcd", "--name", machine.name, "--data-dir", str(folder / "etcd")),
                *("--enable-v2", "--unsafe-no-fsync"),
                *("--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer),
                *("--initial-advertise-peer-urls", peer, "--initial-cluster", peers),
                output=log,
            )
            machine.start("patroni", folder / "patroni.yaml", output=log)

    def _wait_for_another(self, former: Machine) -> None:
        self._until(lambda roles: roles.get("leader", former) is not former)

    def wait(self) -> None:
        """Wait until no server is missing, and Patroni knows the one that may be promoted. A standby that does not come
        back by itself is copied again, as its operator would do.
        """
        reinitialize_at = time.monotonic() + REJOIN_MAX_S

        def is_whole(roles: Mapping[str, Machine]) -> bool:
            nonlocal reinitialize_at
            missing = self._list_missing(roles["leader"]) if "leader" in roles else ()
            if missing and time.monotonic() > reinitialize_at:
                reinitialize_at = time.monotonic() + REJOIN_MAX_S
                for machine in missing:
                    self._reinitialize(machine)
            return len(roles) == len(self.machines) and not missing

        self._until(is_whole)

    def _list_missing(self, primary: Machine) -> Sequence[Machine]:
        """The machines that do not replicate from this one."""
        found = {one["application_name"] for one in self._read(primary, "patroni").get("replication", ())}
        return [one for one in self.machines if one is not primary and one.name not in found]

    def _reinitialize(self, machine: Machine) -> None:
        body = json.dumps({"force": True}).encode()
        with suppress(OSError):  # it is tried again
            urllib.request.urlopen(f"http://{machine.address}:8008/reinitialize", data=body, timeout=5).close()

    def _until(self, holds: Callable[[Mapping[str, Machine]], bool]) -> Mapping[str, Machine]:
        """Wait until this holds of the machines by the roles of their servers, which run.

        Raises:
            OSError: it does not in FAILOVER_MAX_S.
        """
        until = time.monotonic() + FAILOVER_MAX_S
        roles: Mapping[str, Machine] = {}
        while time.monotonic() < until:
            for machine in self.machines:
                with suppress(OSError, ValueError):
                    roles = self._read_roles(machine)
                    if holds(roles):
                        return roles
            time.sleep(LOOK_EVERY_S)
        logs = (self._folder / one.name / "log" for one in self.machines)
        ends = "\n".join(f"--- {log}\n{log.read_text()[-2000:]}" for log in logs)
        raise OSError(f"no failover: { ({role: one.name for role, one in roles.items()}) }\n{ends}")

    def _read_roles(self, machine: Machine) -> Mapping[str, Machine]:
        """The machine of each role whose server runs, as one machine knows it. A former leader leads nobody."""
        members = self._read(machine, "cluster")["members"]
        by_name = {one.name: one for one in self.machines}
        return {one["role"]: by_name[one["name"]] for one in members if one["state"] in ("running", "streaming")}

    def _read(self, machine: Machine, path: str) -> Any:
        with urllib.request.urlopen(f"http://{machine.address}:8008/{path}", timeout=1) as answer:
            return json.load(answer)


FAULTS: Final = (
    *(Fault(sort="crash primary", strike=faults.crash_primary),) * 3,
    *(Fault(sort="cut off primary", strike=faults.cut_off_primary),) * 2,
    *(Fault(sort="hang primary", strike=faults.hang_primary),) * 2,
    *(Fault(sort="crash standby", strike=faults.crash_standby),) * 2,
    Fault(sort="crash the leader's host", strike=faults.crash_host, target=faults.LEADER, loses_host=True),
    Fault(sort="unplug host", strike=faults.unplug_host, target=faults.LEADER, loses_host=True),
)
"""The faults of a run with Patroni, which takes over from servers that hang, too."""
