"""The broker's machine: it routes messages by header and decides about RMs, leases and configurations.

    RM -> core     Command, Ack       to the worker of the partition, if this is the RM's current session
                   Call               handled here: registration, resumption, another configuration
    worker -> RM   News, Refused      to the proxy of the RM, if the worker's lease holds
    front end      Query, Kill, ...   to the worker; the `ref` of the header routes the Answer back
                   Query "metrics"    without a partition: answered here, with the metrics that processes report
                   ChangeConfig       another configuration for an RM; ReadConfig is answered here
                   ChangeHosts        drain a host, or spread partitions evenly; ReadHosts is answered here
    any process    Heartbeat          answered with the incarnation of this broker

Bodies of routed messages are not decoded, and routing needs only this module and the registry, so its cost does not
grow with the number of RMs. Decisions about an RM are sent once they are durable.

Not here: sockets (`service.py`), starting workers (the supervisor).
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from yunishard.broker import config_updates, leases, rm_sessions
from yunishard.broker.config_rollout import ConfigChanges
from yunishard.broker.config_validation import DEFAULT_TEXT, AnalysisWanted, ConfigPreloader
from yunishard.broker.config_versions import FROM_FILE, Removal, TextWanted
from yunishard.broker.hosts import HostRow
from yunishard.broker.leases import WorkerGrants
from yunishard.broker.metrics import BrokerMetrics
from yunishard.broker.placement import Placement
from yunishard.broker.queries import PendingQueries, list_partitions, read_config
from yunishard.broker.registry import RmRecord, RmSession, WorkerSlot, build_refusal
from yunishard.broker.rm_records import RmPersistence, find_excess, restore_session
from yunishard.broker.state import BrokerState
from yunishard.common.config.problems import ConfigError
from yunishard.common.messages import control_messages, rm_messages
from yunishard.common.messages.kinds import Command, Header, Message, News
from yunishard.common.messages.query_messages import (
    WORKER_CHANGES,
    ChangeConfig,
    ChangeHosts,
    EndSession,
    ProcessHealth,
    ReadConfig,
)
from yunishard.common.messages.wire import (
    MALFORMED,
    Incoming,
    Outgoing,
    WireError,
    decode_body,
    encode_body,
    make_outgoing,
)
from yunishard.common.names import (
    DISTINCT,
    FILE,
    RECORD,
    RMPROXY,
    SUPERVISOR,
    WORKER_PREFIX,
    instance_of,
    role_of,
    usual_name,
)
from yunishard.common.text_formats import format_count

_COMMANDS: Final = frozenset(name for name, kind in Message.kinds.items() if issubclass(kind, Command))
_NEWS: Final = frozenset(name for name, kind in Message.kinds.items() if issubclass(kind, News | rm_messages.Refused))
_QUERIES: Final = WORKER_CHANGES | {"Query"}
"""Messages of front ends that the worker of a partition answers."""
_HEARTBEAT: Final = Header(kind="Heartbeat")


class BrokerMachine:
    """The machine of the broker process."""

    def __init__(
        self,
        state: BrokerState,
        *,
        now: float,
        records: Iterable[RmRecord] = (),
        record_problem: str = "",
        hosts: Iterable[HostRow] = (),
    ) -> None:
        """`records` and `hosts` are those in the store; `record_problem` is the reason why it cannot be written at
        present, if it cannot.
        """
        self.state = state
        self.registry = state.registry
        durable = {one.rm: one for one in records}
        self._persistence = RmPersistence(self.state, durable, problem=record_problem, now=now)
        self._changes = ConfigChanges(self.state, self._persistence)
        self._queries = PendingQueries()
        self.metrics = BrokerMetrics(self.state)
        self.report_health: Callable[[], ProcessHealth] = ProcessHealth
        """Returns the problems of this process; set by the service."""
        self._default_config = config_updates.DefaultConfig(self.state, self._changes)
        self._liveness = leases.Liveness(self.state, self._changes)
        self._grants = WorkerGrants(self.state)
        self._placement = Placement(self.state)
        self._started_ns = int(now * 1e9)
        self._removals: deque[Removal] = deque()
        """Versions above the limits that are to be removed from the record."""
        self._is_removing = False
        """Whether the record has not answered the latest removal."""
        self._heartbeat_body = encode_body(rm_messages.Heartbeat(incarnation=str(state.incarnation)))
        for one in tuple(durable.values()):
            self._restore_rm(one, now)
        if away := len(self.registry.away):
            self.state.notes.append(f"waiting for {format_count(away, 'RM')} registered before this start")
        self._restore_hosts(hosts, now)
        self._liveness.schedule(now)
        self._preloader = ConfigPreloader(self._handle_other, state.analyses, lambda: state.default_text)
        self._preloader.analyze_default(now)
        self._next_tick = self._find_deadline()
        """When something else than the preloader is due."""

    @property
    def deadline(self) -> float:
        """When to call `tick`."""
        return min(self._next_tick, self._preloader.deadline)

    def _restore_rm(self, record: RmRecord, now: float) -> None:
        """Restore an RM after a restart. It counts as away until it resumes, so that it gets no new allocations."""
        latest = self.state.versions.history(record.rm).latest
        if latest is None:
            self.registry.changed_rms[record.rm] = None
            self.state.warnings.append(f"RM {record.rm} has to register again, the record has no configuration of it")
            return
        session = restore_session(record, latest.checksum)
        self.registry.restore(session, record, leave_by=now + config_updates.RETIRE_MAX_S, now=now)
        self.registry.away[record.rm] = now

    def _restore_hosts(self, rows: Iterable[HostRow], now: float) -> None:
        """Restore the hosts after a change of leader. The workers of a host have been silent for as long as the host,
        so that those of a lost one lose their leases without another lease timeout.
        """
        self.state.hosts.restore(rows, self.state.settings.lease_timeout_s, now)
        for slot in self.registry.slots.values():
            if (host := self.state.hosts.find(slot.host)) is not None:
                slot.last_seen = min(slot.last_seen, host.last_seen)

    def _find_deadline(self) -> float:
        return min(
            self._changes.deadline,
            self.state.echo_barrier.deadline,
            self._persistence.deadline,
            self.state.texts.deadline,
            self._liveness.deadline,
            self._grants.deadline,
            self._placement.deadline,
            *(at for name, at in self.registry.leaving.items() if self._changes.find_for_partition(name) is None),
        )

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        kind = incoming.header.kind
        if kind in _COMMANDS:
            return self._route_to_worker(incoming)
        if kind in _NEWS:
            return self._route_to_proxy(incoming, now)
        if kind == "Heartbeat":
            return self._handle_heartbeat(incoming, now)
        return self._preloader.handle(incoming, now)

    def _handle_other(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """Handle a message that is neither routed nor a heartbeat; the analysis of its text is in the cache."""
        self.state.now = now
        try:
            return self._finish(self._handle_control(incoming, now), now)
        except WireError as error:
            return [build_refusal(incoming.source, incoming.header, "malformed", str(error))]

    def tick(self, now: float) -> list[Outgoing]:
        """Check liveness, expire roll-outs, echoes and leaving partitions, and retry failed writes."""
        self.state.now = now
        analysed = self._preloader.tick(now) if self._preloader.deadline <= now else []
        sends = self._liveness.check(now) if self._liveness.deadline <= now else []
        sends += [*self._changes.expire(now), *self._drop_stale(self.state.echo_barrier.release_overdue(now))]
        for partition in [name for name, at in self.registry.leaving.items() if at <= now]:
            if self._changes.find_for_partition(partition) is None:
                self.state.warnings.append(f"partition {partition} ends with results that its RM has not acknowledged")
                self._remove_partition(partition)
        sends += [*self._persistence.retry_due(now), *self.state.texts.retry_due(now)]
        return [*analysed, *self._finish(sends, now)]

    def _drop_stale(self, sends: list[Outgoing]) -> list[Outgoing]:
        """Messages that waited for an echo, without retirements of partitions that are gone or configured again."""
        return [one for one in sends if one.header.kind != "RetirePartition" or self._is_ending(one.header.partition)]

    def _is_ending(self, partition: str) -> bool:
        return partition in self.registry.leaving and self._changes.find_for_partition(partition) is None

    def _remove_partition(self, partition: str) -> None:
        """Remove a partition that has been taken down."""
        session = self.registry.sessions[self.registry.slots[partition].rm]
        leaving = [name for name in session.leaving if name != partition]
        generations = {name: generation for name, generation in session.generations.items() if name != partition}
        self.registry.set_session(replace(session, leaving=leaving, generations=generations))

    # After each control message -------------------------------------------------------------------------------------

    def _finish(self, sends: list[Outgoing], now: float) -> list[Outgoing]:
        """Add the messages that follow from changes: offers of the default configuration, grants, records, and the
        workers that the supervisor has to run. Messages about an RM wait until its record is durable.
        """
        changed = self.registry.changed_rms
        sends = [*sends, *self._default_config.offer(tuple(changed), now)]
        self._placement.place(now)
        sends += self._grants.grant(now)
        self.registry.changed_rms = {}
        free = [one for rm in changed for one in self._persistence.persist(rm)]
        free += self._trim_versions()
        free += self._persistence.filter_outgoing([one for one in sends if one.to])
        self._liveness.schedule(now)
        self._next_tick = self._find_deadline()  # routed messages and heartbeats do not change it
        return [*free, *self._report_workers()]

    def _trim_versions(self) -> list[Outgoing]:
        """Remove the versions above the limits from the record, one message at a time, so that other writes pass."""
        versions = self.state.versions
        if versions.may_exceed:
            self._removals += versions.plan_removals(self._changes.list_rms(), self.state.settings.record_max_bytes)
        if self._is_removing or not self._removals:
            return []
        self._is_removing = True
        rm, up_to = self._removals.popleft()
        return [
            make_outgoing(RECORD, control_messages.RemoveVersions(up_to=up_to), Header(kind="RemoveVersions", rm=rm))
        ]

    def _handle_recorded(self, rm: str, recorded: control_messages.Recorded, now: float) -> list[Outgoing]:
        if not self._persistence.handle_recorded(rm, recorded, now):
            return []
        change = self._changes.find(rm)
        if change is not None and change.recording == recorded.number:
            return self._changes.complete(change, recorded, now)
        self._changes.settle_ended(rm, recorded)
        if recorded.problem:
            self._persistence.schedule_retry(rm)
        return []

    def _report_workers(self) -> list[Outgoing]:
        """Send the supervisors the workers that they have to run, if they have changed, and fail queries to partitions
        that have ended.
        """
        registry, persistence = self.registry, self._persistence
        registry.ending = {name: slot for name, slot in registry.ending.items() if not persistence.is_durable(slot.rm)}
        removals, registry.removals = persistence.filter_outgoing(registry.removals), []
        return [*self._queries.fail_others(registry.slots), *removals, *self._placement.report()]

    # Routing --------------------------------------------------------------------------------------------------------

    def _route_to_worker(self, incoming: Incoming) -> list[Outgoing]:
        header = incoming.header
        session = self.registry.sessions.get(header.rm)
        if session is None or session.session != header.session or session.proxy not in (incoming.source, ""):
            reason = f'received {header.kind}, but RmID="{header.rm}" not registered'
            return [build_refusal(incoming.source, header, "unknown-session", reason)]
        partition = header.partition
        if partition not in session.configs:
            partition = session.full_name(partition)
            if not session.has(partition):
                # The partition has just been removed. The proxy refuses the items of the message one by one.
                return (
                    [] if header.kind in rm_messages.UNNUMBERED else [Outgoing(incoming.source, header, incoming.body)]
                )
        to = header if partition == header.partition else replace(header, partition=partition)
        worker = self.registry.slots[partition].worker  # the RM resumes, and repeats it, once there is one
        return [Outgoing(worker, to, incoming.body)] if worker else []

    def _route_to_proxy(self, incoming: Incoming, now: float) -> list[Outgoing]:
        header = incoming.header
        session, slot = self.registry.sessions.get(header.rm), self._slot_of_sender(incoming)
        if session is None or session.session != header.session or slot is None:
            return []
        slot.last_seen = now
        if header.life == session.generation(header.partition):
            slot.has_sent = True
            if not slot.is_present:
                slot.is_present = self.state.texts.drop_outdated(header)
        if slot.resumption and header.seq:
            return []  # it is retransmitted
        to = replace(header, partition=usual_name(header.partition)) if DISTINCT in header.partition else header
        return [Outgoing(session.proxy, to, incoming.body)] if session.proxy else []

    def _slot_of_sender(self, incoming: Incoming) -> WorkerSlot | None:
        """The slot of the worker that sent this; None if it does not have the lease."""
        slot = self.registry.slots.get(incoming.header.partition)
        return slot if slot is not None and slot.worker == incoming.source else None

    def _handle_heartbeat(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """Answer with the incarnation of this broker. A worker that has not sent Hello to this broker, or not for its
        partition, receives none, and then sends Hello.
        """
        source, slot = incoming.source, self._slot_of_sender(incoming)
        sends: list[Outgoing] | None = []
        if slot is not None:
            slot.last_seen = now
            sends = [] if slot.is_present else None
        elif incoming.header.partition:
            sends = None
        elif source.startswith(WORKER_PREFIX):
            sends = self._grants.mark_seen(source, now)
        elif role_of(source) == SUPERVISOR:
            sends = None if self.state.hosts.mark_seen(source, now) is None else []
        else:
            sends = self._liveness.mark_seen(source, now)
        if sends is None:
            return [make_outgoing(source, rm_messages.Heartbeat(), _HEARTBEAT)]
        heartbeat = Outgoing(source, _HEARTBEAT, self._heartbeat_body)
        return [heartbeat] if slot is not None else [heartbeat, *self._finish(sends, now)]

    def _route_answer(self, incoming: Incoming) -> list[Outgoing]:
        if incoming.source != RECORD and self._slot_of_sender(incoming) is None:
            return []
        caller, _, ref = incoming.header.ref.partition(" ")
        if caller in (RECORD, FILE):
            return []  # these endpoints send no queries, so the reference is invalid
        self._queries.remove_query(incoming.header.partition, caller, ref)
        return [Outgoing(caller, Header(kind="Answer", partition=incoming.header.partition, ref=ref), incoming.body)]

    # Control --------------------------------------------------------------------------------------------------------

    def _handle_control(self, incoming: Incoming, now: float) -> list[Outgoing]:
        header = incoming.header
        match header.kind:
            case "Figures" | "NodesAstray" | "Query" if not header.partition:
                return self.metrics.handle(incoming, now)
            case kind if kind in _QUERIES:
                return self._queries.forward(self.registry, incoming)
            case "Answer":
                return self._route_answer(incoming)
            case "Hello":
                return self._wait_for_text(incoming, self._handle_hello, now)
            case "ManagerAway":
                session = self.registry.find_session(header.rm, header.session)
                if session is None or session.proxy != incoming.source:
                    return []  # it has reconnected through another proxy
                reason = "no messages, or its connection was closed"
                return rm_sessions.mark_away(self.state, session, reason, now)
            case "Retired":
                if self._slot_of_sender(incoming) is not None and self._is_ending(header.partition):
                    self.state.notes.append(f"partition {header.partition} has been removed")
                    self._remove_partition(header.partition)
                return []
            case "Repeated":
                slot = self._slot_of_sender(incoming)
                if slot is not None and slot.resumption == header.ref:
                    slot.resumption = ""
                return []
            case "Echo":
                return self._drop_stale(self.state.echo_barrier.release(header.ref))
            case "ConfigVote":
                if self._slot_of_sender(incoming) is None:
                    return []
                vote = decode_body(control_messages.ConfigVote, incoming.body)
                return self._changes.count_vote(header.partition, vote, now)
            case "Recorded" if incoming.source == RECORD:
                return self._handle_recorded(header.rm, decode_body(control_messages.Recorded, incoming.body), now)
            case "WorkerEnded" | "HostLeaves" if role_of(incoming.source) == SUPERVISOR:
                return self._handle_supervisor(incoming, now)
            case "VersionsRemoved" if incoming.source == RECORD:
                self._is_removing = False
                return []
            case "VersionRead" if incoming.source == RECORD:
                found = decode_body(control_messages.VersionRead, incoming.body)
                return self.state.texts.receive(header.rm, found, now, lambda one: self._handle_control(one, now))
            case "HostRecorded" if incoming.source == RECORD:
                recorded = decode_body(control_messages.HostRecorded, incoming.body)
                return [self._placement.handle_recorded(header.ref, recorded)]
            case DEFAULT_TEXT.header.kind if incoming.source == FILE:
                self._default_config.offer_analysed()
                return []
            case "ChangedFile" if incoming.source == FILE:
                self._default_config.set_text(decode_body(control_messages.ChangedFile, incoming.body).text)
                return []
            case kind if kind == MALFORMED:
                return [build_refusal(incoming.source, header, "malformed", incoming.body.decode(errors="replace"))]
        return self._handle_call(incoming, now)

    def _handle_call(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """Handle a call of an RM or front end about an RM as a whole."""
        header = incoming.header
        match header.kind:
            case "RegisterResourceManager":
                return self._wait_for_text(incoming, self._handle_register, now)
            case "Resume":
                return rm_sessions.resume_session(self.state, incoming, decode_body(rm_messages.Resume, incoming.body))
            case "Leave":
                return rm_sessions.handle_leave(self.state, self._changes, incoming)
            case "UpdateConfiguration":
                return self._handle_update(incoming, now)
            case "ChangeConfig":
                change = decode_body(ChangeConfig, incoming.body)
                request = config_updates.UpdateRequest(
                    source="front-end", change=change, peer=incoming.source, call=header
                )
                return config_updates.start_update(self.state, self._changes, request, now)
            case "ReadConfig":
                return [read_config(self.state, incoming, decode_body(ReadConfig, incoming.body))]
            case "EndSession":
                wanted = decode_body(EndSession, incoming.body)
                return rm_sessions.handle_end(self.state, self._changes, incoming, wanted)
            case "ReadHosts":
                return [self._placement.answer_view(incoming.source, header.ref)]
            case "ChangeHosts":
                return [self._placement.change(incoming, decode_body(ChangeHosts, incoming.body))]
            case "ListPartitions":
                listed = list_partitions(self.state, self._started_ns, self._persistence.problem, self.report_health())
                return [make_outgoing(incoming.source, listed, Header(kind="PartitionList", ref=header.ref))]
        return [build_refusal(incoming.source, header, "unknown-kind", f"unknown message {header.kind!r}")]

    def _wait_for_text(
        self, incoming: Incoming, handle: Callable[[Incoming, float], list[Outgoing]], now: float
    ) -> list[Outgoing]:
        """Handle a message, or have it wait if it needs the text of a configuration from the record."""
        try:
            return handle(incoming, now)
        except TextWanted as wanted:
            return self.state.texts.wait(incoming, wanted)
        except AnalysisWanted as wanted:
            return self._preloader.wait(incoming, wanted, now)

    # Workers --------------------------------------------------------------------------------------------------------

    def _handle_hello(self, incoming: Incoming, now: float) -> list[Outgoing]:
        hello = decode_body(control_messages.Hello, incoming.body)
        if hello.role == SUPERVISOR and role_of(incoming.source) == SUPERVISOR:
            self._greet_host(incoming.source, hello, now)
        if hello.role == RMPROXY:
            return rm_sessions.mark_proxy_away(self.state, incoming.source, "its proxy has restarted", now)
        if hello.role != "worker":
            return []
        partition = incoming.header.partition
        if not partition:
            return self._grants.add_idle(incoming.source, hello, now)
        slot = self._grants.accept_claim(incoming.source, hello.host, incoming.header)
        if slot is None:
            return []
        session, config = self.registry.sessions.get(slot.rm), None
        if session is not None and partition in session.configs:
            slot.is_present = False  # until it can get its configuration
            try:
                config = leases.read_missing_config(self.state, session, incoming.header, hello)
            except ConfigError as error:
                return rm_sessions.end_unreadable_rm(self.state, self._changes, session.rm, error)
        slot.is_present, slot.was_served, slot.last_seen = True, True, now
        slot.problem = slot.ending = ""
        change = self._changes.find_for_partition(partition)
        sends = self._queries.fail_partition(partition)
        if session is not None and partition in session.configs:
            sends += leases.recover_worker(self.state, session, incoming.header, hello, config)
        elif session is not None and partition in session.leaving and change is None:
            sends += self._recover_leaving(session, incoming.header, hello)
        if change is None:
            return sends
        change.accepted.discard(partition)  # the worker has lost what it prepared
        owner, header, target = self.registry.owner(partition), incoming.header, change.target
        generation = target.generation(partition)
        if owner is not None and owner.session == target.session:
            generation = owner.generation(partition)
        elif header.session == target.session:  # the record was restored from a copy without this partition
            generation = max(generation, header.life + 1)
        if generation != target.generation(partition):
            generations = {**target.generations, partition: generation}
            last = max(target.last_generation, generation)
            change.target = replace(target, generations=generations, last_generation=last)
        return [*sends, change.build_prepare(self.registry, partition)]

    def _greet_host(self, supervisor: str, hello: control_messages.Hello, now: float) -> None:
        """Handle the Hello of a supervisor, with the workers that still run on its host."""
        host = self.state.hosts.greet(supervisor, hello, now)
        self.state.notes.append(f"the supervisor of host {host.name} is connected")
        self._placement.greet(supervisor, host.name)
        self._grants.renew_unclaimed(host.name, hello.workers.values())

    def _handle_supervisor(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """Handle the end of a worker: another one gets its partition, and changes that wait for it may be refused. Or
        the end of its host: the partitions move.
        """
        if incoming.header.kind == "HostLeaves":
            if (left := self.state.hosts.mark_left(instance_of(incoming.source))) is not None:
                self.state.notes.append(f"host {left.name} stops")
            return []
        ended = decode_body(control_messages.WorkerEnded, incoming.body)
        waiting = self._grants.handle_ended(instance_of(incoming.source), incoming.header, ended, now)
        return [one for partition in waiting for one in self._changes.handle_worker_ended(partition, ended)]

    def _recover_leaving(self, session: RmSession, header: Header, hello: control_messages.Hello) -> list[Outgoing]:
        """Retire a restarted worker whose partition is no longer configured. If it has lost the partition's state, it
        cannot report the releases, and the partition ends.
        """
        partition = header.partition
        if leases.classify_worker(session, self.registry.slots[partition], header, hello) is leases.RecoveryState.LOST:
            reason = hello.problem or "its worker does not have it any more"
            self.state.warnings.append(f"partition {partition} ends without telling its RM what was in it: {reason}")
            self._remove_partition(partition)
            return []
        retirement = self.registry.build_retirement(session, partition)
        return [retirement, *leases.request_resume_after_restart(self.state, session, partition)]

    # RMs ------------------------------------------------------------------------------------------------------------

    def _handle_register(self, incoming: Incoming, now: float) -> list[Outgoing]:
        header = incoming.header
        request = decode_body(rm_messages.RegisterResourceManager, incoming.body)
        known = self.registry.find_session(header.rm, header.session)
        if known is None:
            if self.state.texts.is_registration_waiting(header.rm):
                reason = f"another registration of RM {header.rm!r} is under way, try again when it is done"
                return [build_refusal(incoming.source, header, "busy", reason)]
            return rm_sessions.start_registration(self.state, self._changes, incoming, request, now)
        if known.call == rm_sessions.hash_call(incoming.body):  # the answer to the first call was lost
            return rm_sessions.resume_session(self.state, incoming, rm_messages.Resume())
        reason = "registration of RM failed: this session has registered, begin a new one"
        return [build_refusal(incoming.source, header, "registration", reason)]

    def _handle_update(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """Handle the RM's own update. Its settings take effect even if the configuration is refused."""
        header = incoming.header
        message = decode_body(rm_messages.UpdateConfiguration, incoming.body)
        session = self.registry.find_session(header.rm, header.session)
        if session is None or message.rm_id not in ("", header.rm):
            reason = (
                f"update of configuration failed: RM {message.rm_id or header.rm} has no active partitions, "
                "make sure it is registered"
            )
            return [build_refusal(incoming.source, header, "unknown-session", reason)]
        settings: list[Outgoing] = []
        if excess := find_excess(message.extra_config):
            return [
                build_refusal(incoming.source, header, "configuration", f"update of configuration failed: {excess}")
            ]
        if session.extra != message.extra_config:
            session = replace(session, extra=dict(message.extra_config))
            self.registry.set_session(session)
            settings = self.registry.build_settings(session, session.configs)
        text, follows_core = message.config or self.state.default_text, not message.config
        origin = FROM_FILE if self.state.watched and follows_core else "update"
        change = ChangeConfig(config=text, author=f"RM {header.rm}", origin=origin)
        request = config_updates.UpdateRequest(
            source="rm", change=change, follows_core=follows_core, peer=incoming.source, call=header
        )
        return [*settings, *config_updates.start_update(self.state, self._changes, request, now)]
