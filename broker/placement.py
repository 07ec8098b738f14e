"""Placement of partitions on hosts, and planned moves between them.

    unplaced --there is a host--> placed --its host is lost--> placed elsewhere, at once
                                    |
                                    +--its host is draining, or it is rebalanced--> moving --its new worker is idle,
                                       and gets the lease (`leases.py`)--> placed

A partition gets the host with the fewest partitions per core, then the fewest of the same RM, then the most memory. It
stays there: only a host that is lost or draining or starts no workers, or a rebalancing that an operator has requested,
moves it. A planned move starts the worker on the new host while the old one continues, so that the partition pauses
only for its recovery. At most MOVES_MAX planned moves are in progress at once; one that takes too long is given up.

Operators list hosts, drain them, remove lost ones and request a rebalancing. Draining and removal are recorded before
they take effect.

Not here: leases (`leases.py`), starting processes (the supervisors).
"""

from collections import Counter
from http import HTTPStatus
from typing import Final

import msgspec

from yunishard.broker.hosts import Host
from yunishard.broker.registry import WorkerSlot, build_answer
from yunishard.broker.state import BrokerState
from yunishard.common.messages.control_messages import HostRecorded, RecordHost, WorkersWanted
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.query_messages import ChangeHosts
from yunishard.common.messages.wire import NEVER, Incoming, Outgoing, make_outgoing
from yunishard.common.names import OFF, RECORD
from yunishard.common.rest.records import HostsView, HostView

MOVES_MAX: Final = 4
"""Planned moves in progress at once: as many workers start at the same time on a small machine."""

WORKER_MAX_S: Final = 60.0
"""Seconds that a partition waits for a worker on its host, if none at all becomes idle there: then another host is
chosen, or the planned move is given up."""


class Placement:
    """Chooses `WorkerSlot.host` for all partitions, and reports to each supervisor which workers its host needs."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._registry = state.registry
        self._hosts = state.hosts
        self.is_rebalancing = False
        """Whether partitions move until no move makes the numbers more even."""
        self._given_up: dict[str, str] = {}
        """Partition to the latest host where no worker was ready for it in time."""
        self._reported: dict[str, set[str]] = {}
        """Supervisor to the partitions that it has received; without those that have just connected."""
        self.deadline = NEVER
        """When a partition has waited too long for a worker on its host."""

    # Choosing hosts -------------------------------------------------------------------------------------------------

    def place(self, now: float) -> None:
        """Choose hosts for the partitions that need another one."""
        draining: list[str] = []
        self.deadline, available = NEVER, {one.name for one in self._hosts.all() if one.is_available}
        for partition, slot in self._registry.slots.items():
            if slot.host in available and slot.worker and slot.worker_host == slot.host:
                slot.give_up_at = NEVER
                continue
            if slot.host in available and len(available) > 1:
                self._check_wait(partition, slot, now)
            if slot.host in available:
                continue
            host = self._hosts.find(slot.host)
            if host is None or host.is_lost or not (slot.worker or slot.is_awaited):
                self._place_elsewhere(partition, slot, now)
            elif slot.is_present:
                draining.append(partition)
        if not draining and not self.is_rebalancing:
            return
        room = MOVES_MAX - sum(slot.is_moving for slot in self._registry.slots.values())
        for partition in draining[: max(0, room)]:
            room -= self._place_elsewhere(partition, self._registry.slots[partition], now)
        while self.is_rebalancing and room > 0:
            room -= self._improve(now)

    def _check_wait(self, partition: str, slot: WorkerSlot, now: float) -> None:
        """Give its host up if a partition has waited for a worker there for too long."""
        host = self._hosts.find(slot.host)
        if host is None or slot.is_awaited or (slot.worker and not slot.is_moving):
            slot.give_up_at = NEVER
            return
        if slot.give_up_at == NEVER:
            slot.give_up_at = max(now, slot.due) + WORKER_MAX_S
        slot.give_up_at = max(slot.give_up_at, host.worker_at + WORKER_MAX_S)
        if slot.give_up_at <= now:
            self._give_up(partition, slot, now)
        self.deadline = min(self.deadline, slot.give_up_at)

    def _place_elsewhere(self, partition: str, slot: WorkerSlot, now: float) -> bool:
        """Place a partition whose host cannot run it; whether there is another one."""
        current = self._hosts.find(slot.worker_host) if slot.worker else None
        if current is not None and current.is_available:
            self._assign(partition, current, now)  # the host to which it moves has been lost
            return True
        chosen = self._choose(partition, slot)
        if chosen is None:
            return False
        before = self._hosts.find(slot.host)
        if before is not None:
            self._state.counters.moves["lost" if before.state == "lost" else "drain"] += 1
            self._state.notes.append(f"partition {partition} moves from host {slot.host} to {chosen.name}")
        self._assign(partition, chosen, now)
        return True

    def _assign(self, partition: str, host: Host, now: float) -> None:
        slot = self._registry.slots[partition]
        slot.host, slot.give_up_at = host.name, now + WORKER_MAX_S
        self.deadline = min(self.deadline, slot.give_up_at)
        self._registry.changed_rms[slot.rm] = None

    def _choose(self, partition: str, slot: WorkerSlot) -> Host | None:
        """The host for a partition; one where no worker was ready in time only if there is no other."""
        available = self._hosts.list_available()
        if not available:
            return None
        others = [one for one in available if one.name != self._given_up.get(partition)] or available
        everything, same_rm = self._count()
        return min(
            others,
            key=lambda one: (
                (everything[one.name] + 1) / one.cores,
                same_rm[one.name, slot.rm],
                -one.memory_bytes,
                one.name,
            ),
        )

    def _count(self) -> tuple[Counter[str], Counter[tuple[str, str]]]:
        """Partitions by host, and by host and RM."""
        slots = self._registry.slots.values()
        return Counter(one.host for one in slots), Counter((one.host, one.rm) for one in slots)

    # Planned moves --------------------------------------------------------------------------------------------------

    def _give_up(self, partition: str, slot: WorkerSlot, now: float) -> None:
        """Choose another host for a partition, as no worker is ready on its host. One that moves stays where it is."""
        self.is_rebalancing = False
        self._given_up = {name: host for name, host in self._given_up.items() if name in self._registry.slots}
        self._given_up[partition] = slot.host
        self._state.warnings.append(
            f"partition {partition} leaves host {slot.host} again: no worker was ready for it there in"
            f" {WORKER_MAX_S:.0f} s; the log of that host tells why"
        )
        if slot.is_moving:
            slot.host, slot.give_up_at = slot.worker_host, NEVER
            self._registry.changed_rms[slot.rm] = None
        elif (chosen := self._choose(partition, slot)) is not None:
            self._state.counters.moves["unserved"] += 1
            self._assign(partition, chosen, now)

    def _improve(self, now: float) -> int:
        """Plan the move that makes the numbers of partitions per core more even: the number of moves, or MOVES_MAX if
        there is none, as then the rebalancing is over or has to wait.
        """
        available, slots = self._hosts.list_available(), self._registry.slots
        everything, same_rm = self._count()
        target = min(available, key=lambda one: ((everything[one.name] + 1) / one.cores, one.name), default=None)
        movable = [
            (everything[host.name] / host.cores, same_rm[host.name, slot.rm], partition)
            for partition, slot in slots.items()
            if slot.is_present
            and not slot.is_moving
            and (host := self._hosts.find(slot.host)) is not None
            and target is not None
            and host is not target
            and self._given_up.get(partition) != target.name
        ]
        load, _, partition = max(movable, default=(0.0, 0, ""))
        if target is None or load <= (everything[target.name] + 1) / target.cores:
            if not any(slot.is_moving for slot in slots.values()):
                self.is_rebalancing = False
                self._state.notes.append("the partitions are balanced over the hosts")
            return MOVES_MAX
        self._state.notes.append(f"partition {partition} moves from host {slots[partition].host} to {target.name}")
        self._state.counters.moves["rebalance"] += 1
        self._assign(partition, target, now)
        return 1

    def greet(self, supervisor: str, host: str) -> None:
        """Report to this supervisor again, and discard the note that workers on its host were not ready in time, as it
        has just connected.
        """
        self._reported.pop(supervisor, None)
        self._given_up = {partition: name for partition, name in self._given_up.items() if name != host}

    # Requests of operators ------------------------------------------------------------------------------------------

    def build_view(self) -> HostsView:
        """All hosts, by name."""
        served: Counter[str] = Counter()
        leaving: Counter[str] = Counter()
        for slot in self._registry.slots.values():
            served[slot.worker_host if slot.worker else slot.host] += 1
            leaving[slot.worker_host] += slot.is_moving
        views = [
            HostView(
                name=host.name,
                state="drained" if host.state == "draining" and not served[host.name] else host.state,
                draining=host.is_draining,
                leader=host.name == self._state.settings.host_name,
                address=host.address,
                cores=host.cores,
                memory=host.memory_bytes,
                release=host.release,
                partitions=served[host.name],
                leaving=leaving[host.name],
                lastSeen=int(host.last_seen * 1e9),
                refused=host.refused,
            )
            for host in sorted(self._hosts.all(), key=lambda host: host.name)
        ]
        return HostsView(hosts=views, rebalancing=self.is_rebalancing)

    def answer_view(self, to: str, ref: str) -> Outgoing:
        """Answer a front end with all hosts."""
        return build_answer(to, ref, HTTPStatus.OK, msgspec.json.encode(self.build_view()))

    def change(self, incoming: Incoming, wanted: ChangeHosts) -> Outgoing:
        """Rebalance, or have the record write whether a host is draining; or refuse that."""
        source, ref = incoming.source, incoming.header.ref
        host = self._hosts.find(wanted.host)
        others = [one for one in self._hosts.list_available() if one is not host]
        if self._state.settings.cluster_address == OFF:
            text = "this system has one host only: partitions move between hosts with --store and --cluster-address"
            return build_answer(source, ref, HTTPStatus.CONFLICT, text.encode())
        if wanted.action == "rebalance":
            if len(others) < 2:
                return build_answer(source, ref, HTTPStatus.CONFLICT, b"fewer than two hosts can get partitions")
            self.is_rebalancing = True
            self._given_up.clear()
            self._state.notes.append("an operator has requested a rebalancing")
            return self.answer_view(source, ref)
        if host is None:
            names = ", ".join(sorted(one.name for one in self._hosts.all()))
            text = f"there is no host {wanted.host!r}; there are: {names}"
            return build_answer(source, ref, HTTPStatus.NOT_FOUND, text.encode())
        problem = ""
        if wanted.action == "drain" and not others:
            problem = f"no other host can take the partitions of host {host.name}: start one, or undrain one"
        elif wanted.action == "remove":
            problem = self._find_removal_problem(host)
        if problem:
            return build_answer(source, ref, HTTPStatus.CONFLICT, problem.encode())
        message = RecordHost(host=host.name, change=wanted.action)
        return make_outgoing(RECORD, message, Header(kind="RecordHost", ref=f"{source} {ref}"))

    def _find_removal_problem(self, host: Host) -> str:
        """Why a host cannot be removed now; empty if it can."""
        if not host.is_lost:
            if host.is_cut_off:  # and shown as lost: a host that was killed misses its renewal before its heartbeats
                return f"host {host.name} does not reach the store, but sent a heartbeat lately: stop it, or try again"
            return f"host {host.name} runs: drain it and stop it first"
        if any(host.name in (slot.host, slot.worker_host) for slot in self._registry.slots.values()):
            return f"no other host has taken the partitions of host {host.name} yet: start one, or undrain one"
        return ""

    def handle_recorded(self, ref: str, recorded: HostRecorded) -> Outgoing:
        """Drain, undrain or remove a host, as that is durable; and answer the front end."""
        source, _, ref = ref.partition(" ")
        if recorded.problem:
            text = f"the state of host {recorded.host} cannot be recorded: {recorded.problem}"
            return build_answer(source, ref, HTTPStatus.SERVICE_UNAVAILABLE, text.encode())
        host, is_draining = self._hosts.find(recorded.host), recorded.change == "drain"
        if host is not None and recorded.change == "remove":
            if host.is_lost:  # else it has returned meanwhile
                self._hosts.remove(host.name)
            self._state.notes.append(f"host {host.name} was removed")
        elif host is not None and host.is_draining != is_draining:
            host.is_draining = is_draining
            self._state.notes.append(
                f"host {host.name} is draining: its partitions move to other hosts"
                if host.is_draining
                else f"host {host.name} gets partitions again"
            )
        return self.answer_view(source, ref)

    # Reports to supervisors -----------------------------------------------------------------------------------------

    def report(self) -> list[Outgoing]:
        """Send each supervisor the partitions that its host needs workers for, if they have changed, and the workers
        that have lost their lease. A host keeps the worker of a partition that moves away until another one has it, and
        that of a partition that ends until the end is durable.
        """
        registry = self._registry
        needed: dict[str, list[str]] = {one.name: [] for one in self._hosts.all() if one.supervisor}
        if not needed:
            return []
        kept = {name: partition for name, partition in registry.dismissed.items() if partition in registry.ending}
        dismissed = {name: partition for name, partition in registry.dismissed.items() if name not in kept}
        registry.dismissed = kept
        for partition, slot in {**registry.slots, **registry.ending}.items():
            if slot.host in needed:
                needed[slot.host].append(partition)
            if slot.worker_host not in ("", slot.host) and slot.worker_host in needed:
                needed[slot.worker_host].append(partition)
        sends: list[Outgoing] = []
        for host in self._hosts.all():
            partitions = needed.get(host.name)
            if partitions is None:
                continue
            own = set(partitions)
            if not dismissed and self._reported.get(host.supervisor) == own:
                continue
            self._reported[host.supervisor] = own
            elsewhere = [name for name in {**registry.slots, **registry.ending} if name not in own]
            wanted = WorkersWanted(partitions=partitions, dismissed=dismissed, elsewhere=elsewhere)
            sends.append(make_outgoing(host.supervisor, wanted))
        return sends
