"""RM sessions: an RM registers, resumes, is away, and leaves.

    call --every worker voted yes, recorded--> present --ManagerAway, or its proxy is silent or restarted--> away
                                                 ^  |                                                         |
                                                 |  +--Leave--> ended <--pause timeout------------------------+
                                                 +--Resume----------------------------------------------------+

A new session of an RM replaces the old one: its partitions start empty, and those that it no longer has end. An RM that
is away keeps its allocations, but gets no new ones. An operator may end the session of one that does not come back. Not
here: the vote (`config_rollout.py`), timeouts (`leases.py`).
"""

import hashlib
from dataclasses import dataclass
from http import HTTPStatus

import msgspec
from msgspec.structs import replace

from yunishard.broker.config_analysis import AnalysedPartition
from yunishard.broker.config_rollout import REGISTRATION_MAX_S, ROLLOUT_MAX_S, ConfigChange, ConfigChanges
from yunishard.broker.config_versions import FROM_FILE
from yunishard.broker.registry import RmSession, build_answer, build_refusal
from yunishard.broker.rm_records import find_excess
from yunishard.broker.state import BrokerState, ChangeRefused
from yunishard.common.config.problems import ConfigError
from yunishard.common.messages.control_messages import CommitConfig, Pause, Repeat, SessionMoved
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.query_messages import Answer, EndSession
from yunishard.common.messages.rm_messages import Left, RegisterResourceManager, Resume
from yunishard.common.messages.wire import Incoming, Outgoing, make_outgoing
from yunishard.common.names import usual_name
from yunishard.common.rest.records import EndedView

_Partitions = tuple[AnalysedPartition, ...]

# Registration -------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class RmRegistration(ConfigChange):
    """A registration in progress."""

    label = "a registration"
    duration_max_s = REGISTRATION_MAX_S

    call: Header
    """The header of the call to answer."""

    def plan_session(self, state: BrokerState) -> RmSession:
        return self.target.ordered(state.registry.sessions.get(self.target.rm), self.order)

    def apply(self, state: BrokerState, now: float) -> list[Outgoing]:
        registry, new = state.registry, self.plan_session(state)
        before = registry.sessions.get(new.rm)
        registry.set_session(new)
        registry.away.pop(new.rm, None)
        for partition in new.configs:
            registry.slots[partition].has_sent = registry.slots[partition].is_inherited = False
        state.notes.append(f"RM {new.rm} registered, with partitions {', '.join(new.configs) or 'none'}")
        if ":" in new.rm:
            state.warnings.append(
                f"the id of RM {new.rm} has a colon, at which YuniKorn's web UI splits names of partitions: it cannot "
                "show a partition under its full name, which it has if another RM registered the plain name first; "
                "choose an id without a colon, or name this RM with the setting default-rm"
            )
        superseded: list[Outgoing] = []
        if before is not None and before.session != new.session and before.proxy:
            header = Header(kind="Refused", rm=before.rm, session=before.session)
            reason = f"RM {before.rm!r} registered again elsewhere"
            superseded = [build_refusal(before.proxy, header, "superseded", reason)]
        commits = self.build_outcome(registry, CommitConfig)
        settings = registry.build_first_settings(new, new.configs)
        return [*superseded, *commits, *settings, new.build_registered(self.call.ref)]

    def report_refusal(self, state: BrokerState, refusal: ChangeRefused) -> list[Outgoing]:
        state.notes.append(f"registration of RM {self.target.rm} refused: {refusal}")
        _note_refusal(state, self.target.rm, refusal)
        return [_refuse_registration(self.target.proxy, self.call, refusal)]


def _note_refusal(state: BrokerState, rm: str, refusal: ChangeRefused) -> None:
    state.refused.add(rm, refusal, origin="registration", author=f"RM {rm}", now=state.now)


def _refuse_registration(proxy: str, call: Header, refusal: ChangeRefused) -> Outgoing:
    if refusal.code == "busy":
        return build_refusal(proxy, call, refusal.code, str(refusal))
    return build_refusal(proxy, call, "registration", f"registration of RM failed: {refusal}")


def start_registration(
    state: BrokerState, changes: ConfigChanges, incoming: Incoming, request: RegisterResourceManager, now: float
) -> list[Outgoing]:
    """Start the registration of a new session."""
    header = incoming.header
    in_progress = changes.find(header.rm)
    if isinstance(in_progress, RmRegistration):
        session = in_progress.target
        if (session.session, session.call) == (header.session, hash_call(incoming.body)):
            # the same call again, on a new connection
            in_progress.target, in_progress.call = replace(session, proxy=incoming.source), header
            return []
    if in_progress is not None:
        reason = f"{in_progress.label} of RM {header.rm!r} is under way, try again when it is done"
        return [build_refusal(incoming.source, header, "busy", reason)]
    try:
        return changes.start(_build_registration(state, incoming, request, now))
    except ChangeRefused as refusal:
        _note_refusal(state, header.rm, refusal)
        return [_refuse_registration(incoming.source, header, refusal)]


def _build_registration(
    state: BrokerState, incoming: Incoming, request: RegisterResourceManager, now: float
) -> RmRegistration:
    header, rm = incoming.header, incoming.header.rm
    if request.rm_id not in ("", rm):
        raise ChangeRefused(HTTPStatus.BAD_REQUEST, f"RM id {request.rm_id!r} in a message of {rm!r}")
    if not state.may_register(rm):
        reason = f"RM {rm!r} may not register here: the setting allowed-rms does not name it"
        raise ChangeRefused(HTTPStatus.FORBIDDEN, reason)
    if excess := find_excess(request.build_info, request.extra_config, request.capabilities):
        raise ChangeRefused(HTTPStatus.BAD_REQUEST, excess)
    own = request.config or state.default_text
    state.refused.settle(rm)
    text, partitions, base = _choose_config(state, rm, own, follows_core=not request.config)
    parsed = state.registry.by_full_name(rm, partitions)
    session = RmSession(
        rm=rm,
        session=header.session,
        proxy=incoming.source,
        configs=dict.fromkeys(parsed),
        build_info={**request.build_info, "rmId": rm},
        call=hash_call(incoming.body),
        registered_ns=int(now * 1e9),
        checksum=state.analyses.compute_checksum(text),
        extra=dict(request.extra_config),
        capabilities=list(request.capabilities),
        follows_core=not request.config,
        passed_over="" if base == state.analyses.compute_checksum(own) else state.analyses.compute_checksum(own),
        rollout=state.next_number(),
    )
    latest = state.versions.history(rm).latest
    version = None
    if latest is None or latest.checksum != session.checksum or latest.base != base:
        origin = FROM_FILE if session.follows_core and state.watched else "registration"
        version = state.versions.build_next(
            rm, text, checksum=session.checksum, at_ns=int(now * 1e9), author=f"RM {rm}", origin=origin, base=base
        )
    return RmRegistration(
        target=session, parsed=parsed, version=version, started_at=now, deadline=now + ROLLOUT_MAX_S, call=header
    )


def _choose_config(state: BrokerState, rm: str, own: str, *, follows_core: bool) -> tuple[str, _Partitions, str]:
    """Choose the configuration that an RM starts with: its text, the partitions in it, and the checksum of the
    owner's text that it is based on. If the watched file is invalid at the moment, an RM that has used it before starts
    with its latest version, which it would also keep while it is registered.
    """
    before = state.versions.history(rm)
    latest = before.latest if follows_core and state.watched and before.from_file else None
    try:
        if latest is not None and state.file_empty:
            raise ChangeRefused(HTTPStatus.BAD_REQUEST, "it is empty")
        return *_validate_changed(state, rm, own), state.analyses.compute_checksum(own)
    except ChangeRefused as refusal:
        if latest is None:
            raise
        try:
            text = state.texts.get(rm, latest.number)
            partitions = state.validate(rm, text)
        except (ChangeRefused, ConfigError):
            raise refusal from None
        state.refused.keep(rm, refusal.in_one_line)
        state.warnings.append(
            f"RM {rm} begins with version {latest.number} of its configuration, the latest one, as the file of "
            f"queues {state.watched} is refused: {refusal.in_one_line}"
        )
        return text, partitions, latest.base


def _validate_changed(state: BrokerState, rm: str, own: str) -> tuple[str, _Partitions]:
    """The owner's text with the changes made to it. A changed text that is no longer valid is dropped, as it would keep
    the RM from registering and so from correcting it.
    """
    changed = state.versions.find_changed(rm, state.analyses.compute_checksum(own))
    if changed is None:
        return own, state.validate(rm, own)
    try:
        text = state.texts.get(rm, changed.number)
        return text, state.validate(rm, text)
    except (ChangeRefused, ConfigError) as refusal:
        reason = "; ".join(str(refusal).splitlines())
        state.warnings.append(f"RM {rm} begins with its own configuration, as its changed one is not valid: {reason}")
        return own, state.validate(rm, own)


def hash_call(call: bytes) -> str:
    """Hash the body of a registration, to recognise a repeated call."""
    return hashlib.sha256(call).hexdigest()


# Away, resume, leave ------------------------------------------------------------------------------------------------


def mark_away(state: BrokerState, session: RmSession, reason: str, now: float) -> list[Outgoing]:
    """Pause the partitions of an RM that is away for this reason."""
    if session.rm in state.registry.away:
        return []
    state.registry.away[session.rm] = now
    state.notes.append(
        f"RM {session.rm} disconnected ({reason}): no new allocations until it reconnects; its partitions end in"
        f" {state.settings.pause_timeout_s:g} s"
    )
    registry = state.registry
    return [registry.build_worker_message(session, partition, Pause()) for partition in session.partitions]


def mark_proxy_away(state: BrokerState, proxy: str, reason: str, now: float) -> list[Outgoing]:
    """Mark all RMs of a proxy as away until they resume."""
    through = [one for one in state.registry.sessions.values() if one.proxy == proxy]
    return [send for one in through for send in mark_away(state, one, reason, now)]


def resume_session(state: BrokerState, incoming: Incoming, request: Resume) -> list[Outgoing]:
    """Resume an RM's session: its partitions retransmit what the RM has not received and allocate again. A request that
    names a partition in its header resumes that one only, for an RM that is not away.
    """
    header = incoming.header
    before = state.registry.find_session(header.rm, header.session)
    if before is None:
        reason = f"RM {header.rm!r} has no such session, register again"
        return [build_refusal(incoming.source, header, "unknown-session", reason)]
    newer = (seen > before.latest_generation(before.full_name(name)) for name, seen in request.lives.items())
    if request.configuration_number > before.rollout or any(newer):
        reason = f"the core's record of RM {header.rm!r} is older than this session's last state, register again"
        state.warnings.append(f"RM {header.rm} has to register again: its record has gone back to an earlier state")
        return [build_refusal(incoming.source, header, "unknown-session", reason)]
    if header.partition:
        partition = before.full_name(header.partition)
        if header.rm in state.registry.away or before.proxy != incoming.source or not before.has(partition):
            return [build_refusal(incoming.source, header, "busy", "resume all partitions")]
        confirmation = before.build_registered(header.ref, partition)
        return [confirmation, *_resume_partition(state, before, partition, request)]
    session = replace(before, proxy=incoming.source)
    state.registry.set_session(session)
    if state.registry.away.pop(header.rm, None) is not None:
        state.notes.append(f"RM {header.rm} reconnected")
    sends = [session.build_registered(header.ref)]
    if before.proxy not in ("", incoming.source):
        sends.append(before.build_message(SessionMoved()))
    for partition in session.partitions:
        sends += _resume_partition(state, session, partition, request)
    return sends


def _resume_partition(state: BrokerState, session: RmSession, partition: str, request: Resume) -> list[Outgoing]:
    name = usual_name(partition)
    received = request.received.get(name)
    is_configured = partition in session.configs
    repeat = state.registry.build_repeat
    if request.lives.get(name, 0) == session.generation(partition):
        # the proxy acknowledges commands for a partition that is being taken down; they never reach its worker
        acknowledged = request.acknowledged.get(name, 0) if is_configured else 0
        return [repeat(session, partition, Repeat(acknowledged=acknowledged), ack=received or 0)]
    resumption = repeat(session, partition, Repeat())
    if received is None or not is_configured:
        return [resumption]
    return [session.build_partition_restarted(partition, "it restarted meanwhile"), resumption]


def handle_leave(state: BrokerState, changes: ConfigChanges, incoming: Incoming) -> list[Outgoing]:
    """End the session of an RM that leaves. A session that has already ended is confirmed, too."""
    header = incoming.header
    sends: list[Outgoing] = []
    if state.registry.find_session(header.rm, header.session) is not None:
        sends = _end_session(state, changes, header.rm)
        state.notes.append(f"RM {header.rm} has left, its partitions end")
    left = Header(kind="Left", rm=header.rm, session=header.session, ref=header.ref)
    return [*sends, make_outgoing(incoming.source, Left(), left)]


def end_absent_rm(state: BrokerState, changes: ConfigChanges, rm: str) -> list[Outgoing]:
    """End the session of an RM that has been away too long. Its proxy drops the RM's state."""
    session = state.registry.sessions[rm]
    sends = _end_session(state, changes, rm)
    return [*sends, session.build_message(Left())] if session.proxy else sends


def end_unreadable_rm(state: BrokerState, changes: ConfigChanges, rm: str, problem: ConfigError) -> list[Outgoing]:
    """End the session of an RM whose configuration cannot be read, so that it registers again, with its own one."""
    reason = "; ".join(str(problem).splitlines())
    state.warnings.append(f"RM {rm} has to register again, its recorded configuration is not valid: {reason}")
    state.versions.mark_unreadable(rm)
    return end_absent_rm(state, changes, rm)


def handle_end(state: BrokerState, changes: ConfigChanges, incoming: Incoming, request: EndSession) -> list[Outgoing]:
    """End the session of an RM on behalf of an operator. The answer waits until that is recorded. A connected RM would
    register again at once, with empty partitions, so that needs `force`.
    """
    rm, ref = incoming.header.rm, incoming.header.ref
    session = state.registry.sessions.get(rm)
    if session is None:
        reason = f"RM {rm} is not registered"
        return [build_answer(incoming.source, ref, HTTPStatus.NOT_FOUND, reason.encode())]
    if rm not in state.registry.away and not request.force:
        reason = f"RM {rm} is connected: it would lose what runs, and register again; stop it first, or use force"
        return [build_answer(incoming.source, ref, HTTPStatus.CONFLICT, reason.encode())]
    sends = end_absent_rm(state, changes, rm)
    state.notes.append(f"{request.actor.user} ended the session of RM {rm}, its partitions end")
    body = msgspec.json.encode(EndedView(rm=rm, partitions=list(session.partitions)))
    answer = make_outgoing(incoming.source, Answer(status=200, body=body), Header(kind="Answer", rm=rm, ref=ref))
    return [*sends, answer]


def _end_session(state: BrokerState, changes: ConfigChanges, rm: str) -> list[Outgoing]:
    """Remove an RM. Its workers end at once, as no one acknowledges anything. A change in progress is aborted first; a
    registration belongs to another session and may be retried.
    """
    change, sends = changes.find(rm), []
    if change is not None:
        refusal = ChangeRefused(HTTPStatus.NOT_FOUND, f"RM {rm!r} has just ended, try again", code="busy")
        sends = changes.end(change, refusal)
    state.registry.remove_rm(rm)
    state.versions.may_exceed = True
    state.counters.failed_nodes.pop(rm, None)
    return sends
