"""Granting partitions to workers, which register themselves.

    idle --Grant--> recovering --Hello with the partition--> present --silent, ended, or not wanted--> dismissed

A worker process sends Hello without a partition, and is idle. The broker grants it a partition that has no worker,
under an epoch later than all before. Idle workers beyond the number of partitions are spare. After a broker restart,
each worker that has a partition *claims* it with its Hello. The broker awaits that, and grants the partition to another
worker only once the supervisor reports that none has it, or once the lease has timed out. Of two claims the later epoch
wins.

After a worker ended early, the next one gets the partition after a `RestartDelay`: a partition whose workers keep
ending must not wear out the others' spare workers. RMs take turns, so that one with hundreds of partitions does not
delay the others.

A worker gets partitions of its own host only. If the partition moves there, the lease is taken from the worker on the
other host in the same step. Not here: the choice of hosts (`placement.py`), starting and stopping processes (the
supervisors), timeouts (`leases.py`).
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from yunishard.broker.registry import WorkerSlot
from yunishard.broker.state import BrokerState
from yunishard.common.messages.control_messages import Grant, Hello, WorkerEnded
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.wire import NEVER, Outgoing, make_outgoing
from yunishard.common.names import lease_name


@dataclass(slots=True)
class IdleWorker:
    """A worker without a partition."""

    host: str
    last_seen: float


class WorkerGrants:
    """Idle workers, and the partitions that they get."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._registry = state.registry
        self._idle: dict[str, IdleWorker] = {}
        """By peer name."""

    @property
    def deadline(self) -> float:
        """When an idle worker can get a partition."""
        return min((slot.due for slot in self._served_by_idle().values()), default=NEVER)

    def _served_by_idle(self) -> dict[str, WorkerSlot]:
        """The slots that an idle worker can have: those without a worker, and those that move to its host."""
        if not self._idle:
            return {}
        hosts, slots = {one.host for one in self._idle.values()}, self._registry.slots.items()
        missing = {name: slot for name, slot in slots if slot.is_moving or not (slot.worker or slot.is_awaited)}
        return {name: slot for name, slot in missing.items() if any(self._may_serve(host, slot) for host in hosts)}

    def _may_serve(self, host: str, slot: WorkerSlot) -> bool:
        """Whether workers of this host may have the partition: without a host, those without a supervisor may."""
        return slot.host == host if slot.host else self._state.hosts.find(host) is None

    def add_idle(self, worker: str, hello: Hello, now: float) -> list[Outgoing]:
        """Register a worker without a partition."""
        engine = "compiled" if hello.compiled else "interpreted"
        self._state.notes.append(f"{worker} is here (process {hello.pid}, release {hello.release}, {engine} engine)")
        self._idle[worker] = IdleWorker(hello.host, now)
        if (host := self._state.hosts.find(hello.host)) is not None:
            host.worker_at = now
        return self.mark_seen(worker, now) or []

    def mark_seen(self, worker: str, now: float) -> list[Outgoing] | None:
        """Note a heartbeat of a worker that serves no partition; None if it has not registered with this broker. The
        grant of one that has a partition is repeated, in case the first message is lost.
        """
        partition = self._registry.find_partition(worker)
        if partition:
            self._idle.pop(worker, None)
            self._registry.slots[partition].last_seen = now
            return [self._build_grant(partition)]
        if worker not in self._idle:
            return None
        self._idle[worker].last_seen = now
        return []

    def grant(self, now: float) -> list[Outgoing]:
        """Grant partitions to idle workers, the one that was seen last first, as long as there are both."""
        sends: list[Outgoing] = []
        while due := {name: slot for name, slot in self._served_by_idle().items() if slot.due <= now}:
            recovering = Counter(one.rm for one in self._registry.slots.values() if one.worker and not one.is_present)
            partition = min(due, key=lambda one: (due[one].is_moving, recovering[due[one].rm], not due[one].was_served))
            slot = due[partition]
            fitting = [name for name, one in self._idle.items() if self._may_serve(one.host, slot)]
            worker = max(fitting, key=lambda name: self._idle[name].last_seen)
            if slot.is_moving:
                self._registry.renew_lease(partition)
            slot.worker, slot.worker_host = worker, self._idle.pop(worker).host
            slot.last_seen = slot.granted_at = now
            self._state.notes.append(f"{worker} gets partition {lease_name(partition, slot.epoch)}")
            sends.append(self._build_grant(partition))
        return sends

    def _build_grant(self, partition: str) -> Outgoing:
        """The message names no RM, so it does not wait until the epoch is durable. If that is lost, the worker's claim
        has a later epoch than the record.
        """
        slot = self._registry.slots[partition]
        return make_outgoing(slot.worker, Grant(), Header(kind="Grant", partition=partition, epoch=slot.epoch))

    def accept_claim(self, worker: str, host: str, header: Header) -> WorkerSlot | None:
        """The slot of a worker that claims this lease; None if another one has it or will get it, and the
        worker is dismissed. The later of two epochs wins, also over that of the record, which may be a backup. The
        partition stays where the worker is, unless it has to leave that host.
        """
        partition = header.partition
        slot = self._registry.slots.get(partition)
        if (
            slot is None
            or header.epoch < slot.epoch
            or (header.epoch == slot.epoch and slot.worker not in ("", worker))
        ):
            self._registry.dismiss(worker, partition)
            return None
        if header.epoch > slot.epoch:
            self._registry.dismiss(slot.worker, partition)
            slot.epoch = header.epoch
            self._registry.changed_rms[slot.rm] = None
        if (slot.worker_host or slot.host) != host:
            self._registry.changed_rms[slot.rm] = None
        slot.worker, slot.worker_host, slot.is_awaited, slot.resumption = worker, host, False, ""
        if self._state.hosts.is_available(host) or not slot.host:
            slot.host = host
        return slot

    def renew_unclaimed(self, host: str, served: Collection[str]) -> None:
        """No longer await workers of partitions of a host that no process there serves."""
        for partition, slot in self._registry.slots.items():
            if slot.is_awaited and slot.host in ("", host) and partition not in served:
                self._registry.renew_lease(partition)

    def _list_vacant(self, host: str) -> list[str]:
        """The partitions without a worker that are to run on this host."""
        slots = self._registry.slots.items()
        return [name for name, slot in slots if slot.host in ("", host) and not (slot.worker or slot.is_awaited)]

    def handle_ended(self, host: str, header: Header, ended: WorkerEnded, now: float) -> list[str]:
        """The partitions that wait for another worker because this one of the host has ended; all there without a
        worker if it had not got any yet.
        """
        self._idle.pop(ended.worker, None)
        partition = self._registry.find_partition(ended.worker) or header.partition
        slot = self._registry.slots.get(partition)
        waiting = [] if partition else self._list_vacant(host)
        if slot is not None and (slot.worker == ended.worker or (slot.is_awaited and slot.epoch == header.epoch)):
            # one that ended before it received its grant did not end because of that partition
            delay_s = slot.delay.next_delay(now - slot.granted_at) if header.partition else 0.0
            self._state.notes.append(f"partition {partition} gets another worker in {delay_s:.1f} s")
            slot.worker, slot.worker_host, slot.due = "", "", now + delay_s
            self._registry.renew_lease(partition)
            waiting = [partition]
        elif slot is None and partition:
            self._registry.remove_journal(partition, header.epoch)
        for name in waiting if ended.reason else ():
            if ended.cannot_start:
                self._registry.slots[name].problem = ended.reason
            else:
                self._registry.slots[name].ending = ended.reason
        return waiting
