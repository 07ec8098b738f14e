"""Liveness of workers, proxies and RMs: which are silent for too long, and recovery of workers that rejoin.

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
The worker compares its state with the RM's when the RM resumes. Not here: starting processes (the supervisor).
"""

from enum import Enum
from typing import Final

from msgspec import Raw
from msgspec.structs import replace

from yunishard.broker.config_rollout import ConfigChanges
from yunishard.broker.registry import RmSession, WorkerSlot, build_refusal
from yunishard.broker.rm_sessions import end_absent_rm, mark_proxy_away
from yunishard.broker.state import BrokerState
from yunishard.common.config.problems import ConfigError, Problem
from yunishard.common.messages.control_messages import AbortConfig, CommitConfig, Hello, Pause
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.wire import NEVER, Outgoing
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
