"""A whole cluster on this machine: hosts, and a database of several servers, each on a machine of its own."""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import msgspec
import psycopg

from tests.cluster.database import Database
from tests.cluster.hosts import CLUSTER, YUNISHARD, Host, until
from tests.cluster.network import Machine, Network
from yunishard.common.rest.records import HostsView
from yunishard.deploy.supervisor import CANNOT_START

HOSTS: Final = ("a", "b", "c")
SPARE: Final = "spare"
"""A machine on which nothing runs, until it is made a clone of another one."""

MakeDatabase = Callable[[Sequence[Machine], Path], Database]


class Cluster:
    """A context: everything runs within it, and nothing is left after it. With the `sources` of an earlier commit, the
    hosts run these until they are restarted.
    """

    def __init__(
        self, folder: Path, make_database: MakeDatabase, servers: Sequence[str], *, sources: Path | None = None
    ) -> None:
        self.folder = folder
        machines = [Machine(name, number) for number, name in enumerate(HOSTS, 1)]
        self._spare = Machine(SPARE, len(HOSTS) + 1)
        self._servers = [Machine(name, number) for number, name in enumerate(servers, 11)]
        self._network = Network([*machines, self._spare, *self._servers])
        self.database = make_database(self._servers, folder)
        self._keys = folder / "keys"
        self.hosts = [Host(one, folder, self._list_arguments(one, one.name), sources=sources) for one in machines]

    def _list_arguments(self, machine: Machine, name: str) -> tuple[str, ...]:
        return (
            *("--store", self.database.dsn, "--host-name", name),
            *("--cluster-address", f"tcp://{machine.address}:{CLUSTER}"),
            *("--cluster-keys", str(self._keys / name)),
        )

    def run_clone(self, host: Host) -> str:
        """Start a copy of a host on another machine, with its state, name and keys; its log, once it has ended.

        The copy starts once the host has renewed its lease: before, either of them may be the host, and with an outage
        of the database just before that takes a while.

        Raises:
            OSError: it does not end, or not because it is refused.
        """
        clone = Host(self._spare, self.folder, self._list_arguments(self._spare, host.name), sources=host.sources)
        try:
            clone.copy_state(host)
            copied = clone.read_tokens()
            until(lambda: self._read_token(host) not in copied, f"host {host.name} renews its lease")
            clone.start()
            status = clone.wait_for_end()
            if status != CANNOT_START or clone.is_ready:
                raise OSError(f"a clone of {host.name} ended with status {status}:\n{clone.log[-3000:]}")
            return clone.log
        finally:
            clone.remove()

    def _read_token(self, host: Host) -> int:
        with self.connect() as connection:
            row = connection.execute("SELECT writes FROM leases WHERE name = %s", (f"host {host.name}",)).fetchone()
        assert row is not None, host.name
        return msgspec.convert(row, tuple[int])[0]

    def connect(self) -> "psycopg.Connection[tuple[object, ...]]":
        """A connection to the primary, which takes effect whatever is set for the database."""
        options = "-c statement_timeout=0 -c transaction_timeout=0 -c lock_timeout=0"
        where = {"connect_timeout": 2, "target_session_attrs": "read-write", "options": options}
        return psycopg.connect(self.database.dsn, autocommit=True, **where)  # type: ignore[arg-type]

    def read_leader(self) -> tuple[str, int]:
        """The host whose broker leads, and its epoch."""
        with self.connect() as connection:
            row = connection.execute("SELECT holder, epoch FROM leases WHERE name = 'broker'").fetchone()
        assert row is not None
        return msgspec.convert(row, tuple[str, int])

    def __enter__(self) -> Self:
        self._network.__enter__()
        try:
            for machine in self._network.machines:
                machine.boot()
            self.database.start()
            yunishard("store", "init", self.database.dsn)
            yunishard("cluster", "init", str(self._keys), *HOSTS)
            for host in self.hosts:
                host.start()
            for host in self.hosts:
                host.wait()
        except BaseException:
            self._network.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._network.__exit__()

    @property
    def servers(self) -> Sequence[Machine]:
        """The machines of the database."""
        return self._servers

    @property
    def addresses(self) -> Sequence[str]:
        """Where resource managers connect."""
        return [host.native for host in self.hosts]

    @property
    def leader(self) -> Host:
        """The host whose broker leads."""
        return self.host(self.read_leader()[0])

    def count_moving(self) -> int:
        """How many partitions move to another host."""
        with suppress(OSError):
            view = msgspec.json.decode(self.leader.run("hosts", "list", "--json"), type=HostsView)
            return sum(one.leaving for one in view.hosts)
        return 1  # another broker is about to lead

    def host(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    def others(self, host: Host) -> list[Host]:
        """All hosts but one."""
        return [other for other in self.hosts if other is not host]

    @property
    def places(self) -> Mapping[str, str]:
        """The host of each partition's worker."""
        return {partition: host.name for host in self.hosts if host.machine.is_on for partition in host.partitions()}

    @property
    def last_words(self) -> str:
        """The ends of all logs."""
        return "\n".join(f"--- {host.name}\n{host.log[-3000:]}" for host in self.hosts)


def yunishard(*words: str) -> str:
    """Run a command; what it prints.

    Raises:
        OSError: it failed.
    """
    done = subprocess.run([YUNISHARD, *words], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise OSError(f"yunishard {' '.join(words)}: status {done.returncode}: {done.stdout}")
    return done.stdout
