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
from tests.cluster.hosts import SUPERVISOR, Host
from tests.cluster.network import Machine, cut, heal

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
)
"""The faults of a whole run."""


def plan(faults: Sequence[Fault], count: int, rng: random.Random) -> Sequence[Fault]:
    """So many of these in an order by chance, each before any comes a second time."""
    found: list[Fault] = []
    while faults and len(found) < count:
        found += rng.sample(faults, len(faults))
    return found[:count]
