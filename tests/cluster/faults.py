"""What happens to a cluster: machines without power, links that lose packets, killed and stopped processes.

A fault strikes, and returns how it is healed. All of this blocks, for seconds at most.
"""

import os
import random
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tests.cluster.cluster import Cluster
from tests.cluster.database import NAME
from tests.cluster.hosts import SUPERVISOR, Host, until
from tests.cluster.network import Machine, cut, heal
from tests.common.test_postgres_sessions import REPLACED
from tests.postgres import USER

Heal = Callable[[], None]
Strike = Callable[[Cluster, Host], Heal]

LEADER: Final = "leader"
ANY: Final = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, to a host or to the database."""

    sort: str
    strike: Strike
    target: str = ANY
    """A host's name, LEADER, or ANY by chance; without meaning for the database."""
    is_survived: bool = True
    """Whether all partitions must decide while it lasts."""
    loses_host: bool = False
    """Whether the partitions of the host have to move."""

    def pick(self, cluster: Cluster, rng: random.Random) -> Host:
        """The host that it strikes."""
        if self.target == LEADER:
            return cluster.leader
        return cluster.host(self.target) if self.target != ANY else rng.choice(cluster.hosts)


# Hosts ----------------------------------------------------------------------------------------------------------------


def crash_host(_: Cluster, host: Host) -> Heal:
    host.crash()
    return host.revive


def crash_two_hosts(cluster: Cluster, host: Host) -> Heal:
    lost = [host, cluster.others(host)[0]]
    for one in lost:
        one.crash()

    def revive() -> None:
        for one in lost:
            one.revive()

    return revive


def unplug_host(_: Cluster, host: Host) -> Heal:
    host.machine.unplug()
    return host.machine.plug


def kill(role: str) -> Strike:
    """Kill the processes of a role on a host. A host whose supervisor ends is started again by its operator."""

    def strike(_: Cluster, host: Host) -> Heal:
        _signal(host.processes().get(role, []), signal.SIGKILL)
        return host.revive if role == SUPERVISOR else lambda: None

    return strike


def stop(role: str) -> Strike:
    """Stop the processes of a role on a host until the fault is healed."""

    def strike(_: Cluster, host: Host) -> Heal:
        stopped = host.processes().get(role, [])
        _signal(stopped, signal.SIGSTOP)
        return lambda: _signal(stopped, signal.SIGCONT)

    return strike


def clone_host(cluster: Cluster, host: Host) -> Heal:
    """Start a copy of the machine of a host that runs. It is refused, and changes nothing."""
    check = _keep(cluster)
    log = cluster.run_clone(host)
    if "this machine or its state directory is a copy" not in log:
        raise OSError(f"a clone of {host.name} was not refused as such:\n{log[-3000:]}")
    return check


def _keep(cluster: Cluster) -> Heal:
    """Return a check that the same broker leads as now, and all partitions are where they are once none is moving."""
    until(lambda: cluster.count_moving() == 0, "no partition moves")
    leader, places = cluster.read_leader(), cluster.places

    def check() -> None:
        if (leader, places) != (now := (cluster.read_leader(), cluster.places)):
            raise OSError(f"something has moved: {leader} leads, {places}; now {now}")

    return check


# Links ----------------------------------------------------------------------------------------------------------------


def cut_to_hosts(cluster: Cluster, host: Host) -> Heal:
    return _cut([(host.machine, other.machine) for other in cluster.others(host)])


def cut_from_hosts(cluster: Cluster, host: Host) -> Heal:
    return _cut([(other.machine, host.machine) for other in cluster.others(host)])


def cut_to_database(cluster: Cluster, host: Host) -> Heal:
    return _cut([(host.machine, server) for server in cluster.servers])


def cut_from_database(cluster: Cluster, host: Host) -> Heal:
    return _cut([(server, host.machine) for server in cluster.servers])


def cut_database_both_ways(cluster: Cluster, host: Host) -> Heal:
    ways = [(host.machine, server) for server in cluster.servers]
    return _cut([*ways, *((target, source) for source, target in ways)])


def _cut(ways: Sequence[tuple[Machine, Machine]]) -> Heal:
    for source, target in ways:
        cut(source, target)

    def mend() -> None:
        for source, target in ways:
            heal(source, target)

    return mend


# Database -------------------------------------------------------------------------------------------------------------


def crash_primary(cluster: Cluster, _: Host) -> Heal:
    """The new primary commits nothing before there is a new standby, which is therefore part of the failover."""
    cluster.database.crash_primary()
    cluster.database.mend()
    return lambda: None


def crash_primary_and_workers(cluster: Cluster, host: Host) -> Heal:
    """No worker remembers what the new primary does not have."""
    cluster.database.crash_primary()
    for one in cluster.hosts:
        kill("partition_worker")(cluster, one)
    cluster.database.mend()
    return lambda: None


def cut_off_primary(cluster: Cluster, _: Host) -> Heal:
    """The former primary goes on without the others, and takes no part from then on."""
    cluster.database.cut_off_primary()
    cluster.database.mend()
    return lambda: None


def crash_standby(cluster: Cluster, _: Host) -> Heal:
    cluster.database.crash_standby()
    return cluster.database.mend


def hang_primary(cluster: Cluster, _: Host) -> Heal:
    """All processes of the server are stopped, but its connections stay."""
    stopped = [number for number, _ in cluster.database.primary_machine.processes()]
    _signal(stopped, signal.SIGSTOP)

    def go_on() -> None:
        _signal(stopped, signal.SIGCONT)
        cluster.database.wait()

    return go_on


def jump_clock(cluster: Cluster, _: Host) -> Heal:
    """The clock of the database jumps by an hour: what it has stored is from another time. Nothing moves."""
    check = _keep(cluster)
    for sign in random.sample((1, -1), 2):
        with cluster.connect() as connection:
            shift = f"{sign} * interval '1 hour'"
            connection.execute(f"UPDATE leases SET expires_at = expires_at + {shift} WHERE expires_at > 'epoch'")
            connection.execute(f"UPDATE hosts SET heartbeat = heartbeat + {shift}")
    return check


def set_hostile(number: int) -> Strike:
    """Set parameters of the database or of the role on which statements could depend, and end all sessions and all
    workers: each claims its journal again with them.
    """

    def strike(cluster: Cluster, _: Host) -> Heal:
        scope = f"ROLE {USER} IN DATABASE {NAME}" if number % 2 else f"DATABASE {NAME}"
        with cluster.connect() as connection:
            for name, value in REPLACED[number].items():
                if name == "temp_file_limit":  # without index scans, a journal is sorted in a file
                    continue
                connection.execute(f"ALTER {scope} SET {name} = {value if name == 'search_path' else repr(value)}")
            others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            connection.execute(f"SELECT pg_terminate_backend(pid) {others}")
        for one in cluster.hosts:
            kill("partition_worker")(cluster, one)

        def reset() -> None:
            with cluster.connect() as connection:
                connection.execute(f"ALTER {scope} RESET ALL")

        return reset

    return strike


def _signal(processes: Sequence[int], what: signal.Signals) -> None:
    for number in processes:
        with suppress(ProcessLookupError):
            os.kill(number, what)


# The list -------------------------------------------------------------------------------------------------------------

_EACH: Final = ("a", "b", "c")

FAULTS: Final[Sequence[Fault]] = (
    *(Fault(sort="crash host", strike=crash_host, target=one, loses_host=True) for one in _EACH),
    *(Fault(sort="crash the leader's host", strike=crash_host, target=LEADER, loses_host=True),) * 2,
    *(Fault(sort="crash two hosts", strike=crash_two_hosts, target=one, loses_host=True) for one in (LEADER, ANY)),
    *(Fault(sort="unplug host", strike=unplug_host, target=one, loses_host=True) for one in (*_EACH, LEADER)),
    *(Fault(sort="kill leader", strike=kill("broker"), target=LEADER),) * 2,
    Fault(sort="kill broker", strike=kill("broker")),
    *(Fault(sort="kill supervisor", strike=kill(SUPERVISOR), target=one, loses_host=True) for one in (LEADER, ANY)),
    Fault(sort="kill rmproxy", strike=kill("rmproxy")),
    Fault(sort="kill webservice", strike=kill("webservice")),
    Fault(sort="kill workers", strike=kill("partition_worker")),
    *(Fault(sort="stop leader", strike=stop("broker"), target=LEADER),) * 2,
    *(Fault(sort="stop workers", strike=stop("partition_worker")),) * 2,
    Fault(sort="stop rmproxy", strike=stop("rmproxy")),
    *(Fault(sort="cut host to hosts", strike=cut_to_hosts, target=one) for one in (LEADER, ANY)),
    *(Fault(sort="cut hosts to host", strike=cut_from_hosts, target=one) for one in (LEADER, ANY)),
    *(
        Fault(sort="cut host to database", strike=cut_to_database, target=one, is_survived=False)
        for one in (LEADER, ANY)
    ),
    *(
        Fault(sort="cut database to host", strike=cut_from_database, target=one, is_survived=False)
        for one in (LEADER, ANY)
    ),
    Fault(sort="cut host and database", strike=cut_database_both_ways, is_survived=False),
    *(Fault(sort="crash primary", strike=crash_primary),) * 2,
    Fault(sort="crash primary and workers", strike=crash_primary_and_workers),
    Fault(sort="cut off primary", strike=cut_off_primary),
    *(Fault(sort="crash standby", strike=crash_standby, is_survived=False),) * 2,
    Fault(sort="hang primary", strike=hang_primary, is_survived=False),
    *(Fault(sort="clone host", strike=clone_host, target=one) for one in (LEADER, ANY)),
    *(Fault(sort="clock of the database jumps", strike=jump_clock),) * 2,
    *(Fault(sort="hostile settings", strike=set_hostile(number)) for number in range(len(REPLACED))),
)
"""The faults of a whole run."""


def plan(faults: Sequence[Fault], count: int, rng: random.Random) -> Sequence[Fault]:
    """So many of these in an order by chance, each before any comes a second time."""
    found: list[Fault] = []
    while faults and len(found) < count:
        found += rng.sample(faults, len(faults))
    return found[:count]
