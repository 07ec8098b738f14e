"""A run: resource managers ask without pause while hosts, links and servers of a cluster fail one after the other."""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.chaos import verdict
from tests.cluster.cluster import Cluster, yunishard
from tests.cluster.faults import Fault
from tests.cluster.hosts import LEASE_S, Host, until
from tests.cluster.load import RMS, Load

DECIDED_MAX_S: Final = 60.0
"""Time limit for all partitions to decide again after a fault that they survive, and after any that is healed."""

LOST_HOST_MAX_S: Final = LEASE_S + 5.0
"""Time limit for the partitions of a lost host to decide again."""

MOVE_MAX_S: Final = 1.0
"""Time limit for the pause of a partition that moves because its host is drained."""

HOLD_S: Final = 5.0
"""A fault lasts at least so long."""

LAST_S: Final = 0.5
"""Time for a decision of a partition that a fault does not concern."""

HEALED_S: Final = 1.0
"""Time between two faults."""

FINISH_MAX_S: Final = 180.0

Say = Callable[[str], None]


class ClusterError(Exception):
    """What must never happen, and did."""


@dataclass(slots=True)
class Measured:
    """Times in seconds."""

    faults: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By kind of fault: the longest wait of an ask; if partitions cannot decide before the fault ends, from then on."""
    lost: list[float] = field(default_factory=list)
    """The same for each partition of a lost host."""
    moves: list[float] = field(default_factory=list)
    """The longest wait of an ask while its partition moved because of a drain."""
    asks: int = 0


async def play(
    cluster: Cluster,
    faults: Sequence[Fault],
    restarts: int,
    asks: int,
    rng: random.Random,
    say: Say,
    *,
    slack: float = 1.0,
) -> Measured:
    """Let these faults happen, then drain and restart so many hosts, and compare what everybody knows in the end.

    Raises:
        ClusterError: something was lost, doubled, or did not recover.
    """
    run = _Run(cluster, rng, say, slack)
    addresses = list(cluster.addresses)
    turned = {name: ",".join(addresses[at:] + addresses[:at]) for at, name in enumerate(RMS)}
    run.load = await Load.joined(turned)
    try:
        for number, fault in enumerate(faults, 1):
            await run.play(number, fault)
        for host in cluster.hosts[:restarts]:
            await run.restart(host)
        await run.load.finish(asks, FINISH_MAX_S)
        await run.compare_rest()
    except (AssertionError, OSError, TimeoutError) as error:
        raise ClusterError(f"{error!r}; waiting: {run.load.waiting}\n{cluster.last_words}") from error
    finally:
        await run.load.close()
    await asyncio.to_thread(run.compare_journals)
    run.measured.asks = run.load.workload.total
    return run.measured


class _Run:
    """What happens in one run."""

    load: Load

    def __init__(self, cluster: Cluster, rng: random.Random, say: Say, slack: float) -> None:
        self.measured = Measured()
        self._cluster = cluster
        self._rng = rng
        self._say = say
        self._lost_max_s, self._move_max_s = LOST_HOST_MAX_S * slack, MOVE_MAX_S * slack

    async def play(self, number: int, fault: Fault) -> None:
        """Let a fault happen, and wait until all is well again."""
        host = await asyncio.to_thread(fault.pick, self._cluster, self._rng)
        if not host.partitions():
            await self._rebalance(host)
        lost = host.partitions() if fault.loses_host else []
        struck = time.monotonic()
        heal = await asyncio.to_thread(fault.strike, self._cluster, host)
        await asyncio.sleep(max(struck + HOLD_S - time.monotonic(), 0.0))
        held = time.monotonic()
        found = await self.load.decided(held, DECIDED_MAX_S if fault.is_survived else LAST_S)
        if fault.is_survived and len(found) < len(self.load.partitions):
            raise TimeoutError(f"{fault.sort} {host.name}: only {sorted(found)} decide {DECIDED_MAX_S:g} s later")
        pauses = {name: self.load.pause(name, struck) for name in found}
        healed = time.monotonic()
        await asyncio.to_thread(heal)
        after = await self._recovered(healed)
        self.measured.faults[fault.sort].append(max(pauses.values()) if fault.is_survived else after)
        times = [pauses[name] for name in lost]
        self.measured.lost += times
        of_host = f", those of the host for {max(times):.1f} s" if times else ""
        self._say(
            f"{number:3d} {fault.sort} {host.name}: {len(found)} of {len(self.load.partitions)} partitions go on, and "
            f"paused for {max(pauses.values(), default=0):.1f} s{of_host}; healed, {after:.1f} s later all is well"
        )
        if times and max(times) > self._lost_max_s:
            raise TimeoutError(f"the partitions of {host.name} paused for {times} s, at most {self._lost_max_s:g} s")
        await asyncio.sleep(HEALED_S)

    async def _recovered(self, since: float) -> float:
        """Wait until all partitions have decided something new and all hosts answer; how long that took."""
        for host in self._cluster.hosts:
            await asyncio.to_thread(host.wait)
        found = await self.load.decided(since, DECIDED_MAX_S)
        if len(found) < len(self.load.partitions):
            raise TimeoutError(f"only {sorted(found)} decide {DECIDED_MAX_S:g} s after the fault was healed")
        for host in self._cluster.hosts:
            await asyncio.to_thread(until, lambda host=host: self._answers(host), f"{host.name} answers over REST")
        self.load.check()
        return time.monotonic() - since

    def _answers(self, host: Host) -> bool:
        """Whether REST of this host knows all partitions."""
        try:
            return len(host.rest.read("/ws/v1/partitions")) == len(self.load.partitions)
        except (OSError, LookupError):
            return False

    async def restart(self, host: Host) -> None:
        """Upgrade a host: drain it, stop it, start the present sources, and let partitions come back."""
        other, before = self._cluster.others(host)[0], self._cluster.places
        moved = [partition for partition, place in before.items() if place == host.name]
        begun = time.monotonic()
        await asyncio.to_thread(other.run, "hosts", "drain", host.name, "--wait")
        drained = time.monotonic()
        await asyncio.to_thread(until, lambda: not host.partitions(), f"{host.name} has no partitions")
        await self.load.decided(drained, DECIDED_MAX_S)
        pauses = [self.load.pause(partition, begun) for partition in moved]
        self.measured.moves += pauses
        await asyncio.to_thread(host.stop)
        host.sources = None
        await asyncio.to_thread(host.revive)
        restarted = time.monotonic()
        await self._recovered(restarted)
        await asyncio.to_thread(other.run, "hosts", "undrain", host.name)
        await self._rebalance(host)
        after = await self._recovered(time.monotonic())
        self._say(
            f"restart {host.name}: {len(moved)} partitions moved in {drained - begun:.1f} s, the longest pause was "
            f"{max(pauses, default=0):.2f} s; {after:.1f} s after the rebalance all is well"
        )
        if pauses and max(pauses) > self._move_max_s:
            raise TimeoutError(f"partitions paused for {pauses} s while {host.name} was drained")

    async def _rebalance(self, host: Host) -> None:
        """Let partitions come to a host that has none."""

        def request() -> bool:
            # A host that was cut off from the store gets none before the leader has seen it renew its lease.
            if not host.partitions():
                host.run("hosts", "rebalance")
            return bool(host.partitions())

        await asyncio.to_thread(until, request, f"{host.name} has partitions")

    async def compare_rest(self) -> None:
        """Wait until everything that was to end has ended, and compare what each host shows.

        Raises:
            TimeoutError: there is no end.
            AssertionError: a host shows something else than the resource managers know.
        """
        await verdict.quiet(self.load.rms)
        self.load.check()
        expected = verdict.vcores(self.load.rms)
        wrong: list[str] = []
        for host in self._cluster.hosts:
            rest = await asyncio.to_thread(verdict.vcores_over_rest, host.rest, self.load.partitions)
            wrong += verdict.differences(f"REST of {host.name}", expected, rest)
        assert not wrong, "\n".join(wrong[:20])

    def compare_journals(self) -> None:
        """Stop all hosts, and compare what is in the database.

        Raises:
            ClusterError: it is something else than the resource managers know.
        """
        for host in self._cluster.hosts:
            host.stop()
        state = self._cluster.folder / "copy"
        state.mkdir(mode=0o700)
        yunishard("store", "copy", self._cluster.database.dsn, f"sqlite:{state}")
        journals = verdict.allocations_in_journals(state, self.load.partitions)
        wrong = verdict.differences("the journal", verdict.allocations(self.load.rms), journals)
        if wrong:
            raise ClusterError("\n".join(wrong[:20]))
