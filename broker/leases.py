"""Liveness of workers, proxies and RMs: which are silent for too long; recovery of workers that rejoin; and the leases
that idle workers get.

A silent worker loses its lease, the RMs of a silent proxy are away, and an RM that stays away loses its session. All
are checked once in CHECK_INTERVAL_S. A check that is late by more than LATE_CHECK_S means that the broker itself did
not run: all timeouts are extended by that time.

The broker compares a worker that sends Hello with what its RM has registered, and brings it to that state:

    current    its journal has this session, this generation and the latest roll-out: it continues
    behind     the same, except that a committed roll-out has not reached it: it receives that, and continues
    unbegun    it has another session or generation, or none, and this broker has forwarded nothing of the present one
               since it started; or it ran during a broker restart between its vote and the commit. It starts empty, and
               the RM repeats its commands
    lost       the RM may have received something that the worker does not have: the worker detected that itself, or it
               has another session or generation and something of the present one was, or before a broker restart may
               have been, forwarded. The partition starts empty in a new generation, and the RM reports everything again

The content of a journal does not prove that a partition has sent nothing: an operator may have restored an older one.
The worker compares its state with the RM's when the RM resumes. Not here: the choice of hosts (`placement.py`),
starting and stopping processes (the supervisors).
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final

from msgspec import Raw
from msgspec.structs import replace

from yunishard.broker.config_rollout import ConfigChanges
from yunishard.broker.registry import RmSession, WorkerSlot, build_refusal
from yunishard.broker.rm_sessions import end_absent_rm, mark_proxy_away
from yunishard.broker.state import BrokerState
from yunishard.common.config.problems import ConfigError, Problem
from yunishard.common.messages.control_messages import AbortConfig, CommitConfig, Grant, Hello, Pause, WorkerEnded
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.wire import NEVER, Outgoing, make_outgoing
from yunishard.common.names import lease_name, usual_name

CHECK_INTERVAL_S: Final = 1.0
"""Seconds between two checks: silence is detected up to this much late."""

LATE_CHECK_S: Final = 1.0
"""A check may be late by this much under load."""

FRONT_ENDS_MAX: Final = 64
"""Proxies and web services at one broker, together; further ones are refused."""


class Liveness:
    """Checks when each peer was last seen."""

    def __init__(self, state: BrokerState, changes: ConfigChanges) -> None:
        self._state = state
        self._changes = changes
        self.deadline = NEVER
        """When the next check is due."""

    def schedule(self, now: float) -> None:
        """Schedule the next check, if there is anything to check."""
        registry, settings = self._state.registry, self._state.settings
        leased = registry.slots or len(self._state.hosts.all()) > 1
        if not (registry.away or registry.last_seen or (leased and settings.lease_timeout_s < NEVER)):
            self.deadline = NEVER
        elif self.deadline == NEVER:
            self.deadline = now + CHECK_INTERVAL_S

    def mark_seen(self, peer: str, now: float) -> list[Outgoing]:
        """Note a heartbeat of a proxy or front end. RMs that were away because their proxy was silent are asked to
        resume, as they did not notice.
        """
        registry = self._state.registry
        was_silent = peer not in registry.last_seen
        if was_silent and len(registry.last_seen) >= FRONT_ENDS_MAX:
            reason = f"{FRONT_ENDS_MAX} proxies and web services are connected already: stop one of them first"
            return [build_refusal(peer, Header(kind="Heartbeat"), "busy", reason)]
        registry.last_seen[peer] = now
        if not was_silent:
            return []
        back = (one for one in registry.sessions.values() if one.proxy == peer and one.rm in registry.away)
        return [send for one in back for send in one.request_resume("its proxy was silent")]

    def check(self, now: float) -> list[Outgoing]:
        """Check all peers; the messages that follow from silence."""
        late = now - self.deadline
        self.deadline = now + CHECK_INTERVAL_S
        if late > LATE_CHECK_S:
            self._state.warnings.append(f"the broker did not run for {late:.1f} s: all deadlines are extended by that")
            self._state.registry.extend_deadlines(late, now)
            self._state.hosts.extend_deadlines(late, now)
            self._changes.extend_deadlines(late)
        state, registry, settings = self._state, self._state.registry, self._state.settings
        for host in state.hosts.find_silent(settings.lease_timeout_s, now):
            state.warnings.append(f"host {host.name} was silent for {now - host.last_seen:.0f} s: it counts as lost")
        for partition, slot in tuple(registry.slots.items()):
            silent_s = now - slot.last_seen
            if (slot.worker or slot.is_awaited) and silent_s >= settings.lease_timeout_s:
                name = lease_name(partition, slot.epoch)
                state.warnings.append(f"worker {name} was silent for {silent_s:.0f} s: another one takes over")
                registry.renew_lease(partition)
                state.counters.leases_renewed += 1
        sends: list[Outgoing] = []
        for peer in [name for name, last_seen in registry.last_seen.items() if now - last_seen >= settings.silence_s]:
            del registry.last_seen[peer]
            sends += mark_proxy_away(state, peer, f"its proxy {peer} is silent", now)
        pause_s = settings.pause_timeout_s
        for rm in [rm for rm, since in registry.away.items() if now - since >= pause_s]:
            state.warnings.append(f"RM {rm} has been away for {pause_s:.0f} s: its partitions end")
            sends += end_absent_rm(state, self._changes, rm)
        return sends


# Worker recovery ----------------------------------------------------------------------------------------------------


class RecoveryState(Enum):
    """The state of a worker that sends Hello, compared with its RM's; the values are labels of a metric."""

    CURRENT = "goes_on"
    BEHIND = "behind"
    UNBEGUN = "unbegun"
    LOST = "lost"


def classify_worker(owner: RmSession, slot: WorkerSlot, header: Header, hello: Hello) -> RecoveryState:
    """Compare the worker of a partition with the session of the RM that owns it."""
    if (header.rm, header.session, header.life) == (owner.rm, owner.session, owner.generation(header.partition)):
        if hello.problem:
            return RecoveryState.LOST
        return RecoveryState.CURRENT if hello.rollout == owner.rollout else RecoveryState.BEHIND
    if slot.has_sent or (hello.problem and slot.is_inherited):
        return RecoveryState.LOST
    in_doubt = hello.prepared == owner.rollout and not hello.recovered
    return RecoveryState.LOST if slot.is_inherited and not in_doubt else RecoveryState.UNBEGUN


def read_missing_config(state: BrokerState, owner: RmSession, header: Header, hello: Hello) -> Raw | None:
    """The configuration in force, for a worker that does not have it; None for one that has it.

    Raises:
        TextWanted, AnalysisWanted: its text has to be read, or analysed, first.
        ConfigError: it cannot be read, or this release cannot load it.
    """
    partition = header.partition
    if classify_worker(owner, state.registry.slots[partition], header, hello) is RecoveryState.CURRENT:
        return None
    found = state.read_configs(owner).get(partition)
    if found is None:
        raise ConfigError([Problem(message=f"the recorded text has no partition {partition}", kind="record")])
    return found


def recover_worker(
    state: BrokerState, owner: RmSession, header: Header, hello: Hello, config: Raw | None
) -> list[Outgoing]:
    """Bring a worker to the configuration and settings that its RM has registered. `config` is that of
    `read_missing_config`.
    """
    registry, partition = state.registry, header.partition
    slot = registry.slots[partition]
    recovery = classify_worker(owner, slot, header, hello)
    state.counters.recoveries[recovery.value] += 1
    slot.is_inherited, slot.has_sent = False, recovery in (RecoveryState.CURRENT, RecoveryState.BEHIND)
    mismatch = "what its worker kept is gone"
    if header.session:
        mismatch = "what its worker has is from another time than the record of this resource manager's session"
    reason = hello.problem or mismatch
    if recovery is RecoveryState.LOST:
        # above all generations that the record or the worker has seen in this session
        seen = header.life if header.session == owner.session else 0
        generation = max(owner.last_generation, seen) + 1
        generations = {**owner.generations, partition: generation}
        owner = replace(owner, generations=generations, last_generation=generation)
        registry.set_session(owner)
        state.warnings.append(
            f"partition {partition} starts empty, and its RM has to report everything again: {reason}"
        )
    if config is None:
        sends = registry.build_settings(owner, [partition])
        if hello.prepared:  # for a change that has ended; one in progress is prepared again
            sends.insert(0, registry.build_worker_message(owner, partition, AbortConfig(rollout=hello.prepared)))
    else:
        live = recovery is RecoveryState.BEHIND
        commit = registry.build_worker_message(owner, partition, CommitConfig(rollout=owner.rollout))
        sends = [registry.build_prepare(owner, partition, config, live=live), commit]
        sends += (registry.build_settings if live else registry.build_first_settings)(owner, [partition])
    if owner.rm in registry.away:
        sends.append(registry.build_worker_message(owner, partition, Pause()))
    if recovery is RecoveryState.LOST:
        return [*sends, owner.build_partition_restarted(partition, reason)]
    return [*sends, *request_resume_after_restart(state, owner, partition)]


def request_resume_after_restart(state: BrokerState, owner: RmSession, partition: str) -> list[Outgoing]:
    """Ask the RM to resume this partition, as messages to and from the previous worker may be lost. An RM that is away
    has to resume all of its partitions.
    """
    name = usual_name(partition)
    reason = f"the worker of partition {name} was started again"
    return owner.request_resume(reason, partition="" if owner.rm in state.registry.away else name)


# Granting partitions to workers, which register themselves ------------------------------------------------------------
#
#   idle --Grant--> recovering --Hello with the partition--> present --silent, ended, or not wanted--> dismissed
#
# A worker process sends Hello without a partition, and is idle. The broker grants it a partition that has no worker,
# under an epoch later than all before. Idle workers beyond the number of partitions are spare. After a broker restart,
# each worker that has a partition *claims* it with its Hello. The broker awaits that, and grants the partition to
# another worker only once the supervisor reports that none has it, or once the lease has timed out. Of two claims the
# later epoch wins.
#
# After a worker ended early, the next one gets the partition after a `RestartDelay`: a partition whose workers keep
# ending must not wear out the others' spare workers. RMs take turns, so that one with hundreds of partitions does not
# delay the others. A worker gets partitions of its own host only. If the partition moves there, the lease is taken from
# the worker on the other host in the same step.


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
