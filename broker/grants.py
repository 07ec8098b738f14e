"""Granting partitions to workers, which register themselves.

    idle --Grant--> recovering --Hello with the partition--> present --silent, ended, or not wanted--> dismissed

A worker process sends Hello without a partition, and is idle. The broker grants it a partition that has no worker,
under an epoch later than all before. Idle workers beyond the number of partitions are spare. After a broker restart,
each worker that has a partition *claims* it with its Hello. The broker awaits that, and grants the partition to another
worker only once the supervisor reports that none has it, or once the lease has timed out. Of two claims the later epoch
wins.

After a worker ended early, the next one gets the partition after a `RestartDelay`: a partition whose workers keep
ending must not wear out the others' spare workers. RMs take turns, so that one with hundreds of partitions does not
delay the others. Not here: starting and stopping processes (the supervisor), timeouts (`leases.py`).
"""

from collections import Counter
from collections.abc import Collection

from broker.registry import WorkerSlot
from broker.state import BrokerState
from common.control_messages import Grant, Hello, WorkerEnded
from common.messages import Header
from common.names import lease_name
from common.wire import NEVER, Outgoing, make_outgoing


class WorkerGrants:
    """Idle workers, and the partitions that they get."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._registry = state.registry
        self._idle: dict[str, float] = {}
        """Worker to the time of its latest message."""

    @property
    def deadline(self) -> float:
        """When an idle worker can get a partition."""
        return min((slot.due for slot in self._vacant().values()), default=NEVER) if self._idle else NEVER

    def _vacant(self) -> dict[str, WorkerSlot]:
        """The slots for which a worker is missing."""
        slots = self._registry.slots.items()
        return {name: slot for name, slot in slots if not slot.worker and not slot.is_awaited}

    def add_idle(self, worker: str, hello: Hello, now: float) -> list[Outgoing]:
        """Register a worker without a partition."""
        engine = "compiled" if hello.compiled else "interpreted"
        self._state.notes.append(f"{worker} is here (process {hello.pid}, release {hello.release}, {engine} engine)")
        self._idle[worker] = now
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
        self._idle[worker] = now
        return []

    def grant(self, now: float) -> list[Outgoing]:
        """Grant partitions to idle workers, the one that was seen last first, as long as there are both."""
        sends: list[Outgoing] = []
        while self._idle:
            vacant = {name: slot for name, slot in self._vacant().items() if slot.due <= now}
            if not vacant:
                break
            recovering = Counter(one.rm for one in self._registry.slots.values() if one.worker and not one.is_present)
            partition = min(vacant, key=lambda one: (recovering[vacant[one].rm], not vacant[one].was_served))
            worker = max(self._idle, key=self._idle.__getitem__)
            del self._idle[worker]
            slot = vacant[partition]
            slot.worker, slot.last_seen, slot.granted_at = worker, now, now
            self._state.notes.append(f"{worker} gets partition {lease_name(partition, slot.epoch)}")
            sends.append(self._build_grant(partition))
        return sends

    def _build_grant(self, partition: str) -> Outgoing:
        """The message names no RM, so it does not wait until the epoch is durable. If that is lost, the worker's claim
        has a later epoch than the record.
        """
        slot = self._registry.slots[partition]
        return make_outgoing(slot.worker, Grant(), Header(kind="Grant", partition=partition, epoch=slot.epoch))

    def accept_claim(self, worker: str, header: Header) -> WorkerSlot | None:
        """The slot of a worker that claims this lease; None if another one has it or will get it, and the
        worker is dismissed. The later of two epochs wins, also over that of the record, which may be a backup.
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
        slot.worker, slot.is_awaited = worker, False
        return slot

    def renew_unclaimed(self, served: Collection[str]) -> None:
        """No longer await workers of partitions that no process serves."""
        for partition, slot in self._registry.slots.items():
            if slot.is_awaited and partition not in served:
                self._registry.renew_lease(partition)

    def handle_ended(self, header: Header, ended: WorkerEnded, now: float) -> list[str]:
        """The partitions that wait for another worker because this one has ended; all without a worker if it had not
        got any yet.
        """
        self._idle.pop(ended.worker, None)
        partition = self._registry.find_partition(ended.worker) or header.partition
        slot = self._registry.slots.get(partition)
        waiting = [] if partition else list(self._vacant())
        if slot is not None and (slot.worker == ended.worker or (slot.is_awaited and slot.epoch == header.epoch)):
            # one that ended before it received its grant did not end because of that partition
            delay_s = slot.delay.next_delay(now - slot.granted_at) if header.partition else 0.0
            self._state.notes.append(f"partition {partition} gets another worker in {delay_s:.1f} s")
            slot.worker, slot.due = "", now + delay_s
            self._registry.renew_lease(partition)
            waiting = [partition]
        for name in waiting if ended.cannot_start else ():
            self._registry.slots[name].problem = ended.reason
        return waiting
