"""Configuration updates of registered RMs: by the RM's own call, over REST, or from the watched file.

Partitions that stay keep their state; new ones get a worker before the vote; removed ones fail their applications,
report that to the RM, and end when it has acknowledged the report or after RETIRE_MAX_S. The requester of a change
decides how its result is reported. `DefaultConfig` offers the text of the watched file to the RMs that use it.
Not here: the vote (`config_rollout.py`), watching the file (`files.py`).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from yunishard.broker.config_rollout import ROLLOUT_MAX_S, ConfigChange, ConfigChanges
from yunishard.broker.config_versions import FROM_FILE, OWNER_ORIGINS
from yunishard.broker.registry import RmSession, build_answer, build_refusal
from yunishard.broker.state import REFUSAL_CHARS_MAX, BrokerState, ChangeRefused
from yunishard.common.config.model import compute_checksum
from yunishard.common.config.problems import Problem
from yunishard.common.messages.control_messages import CommitConfig, RebaseVersion, WriteFile
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.query_messages import ChangeConfig
from yunishard.common.messages.rm_messages import ConfigurationUpdated
from yunishard.common.messages.wire import Outgoing, make_outgoing
from yunishard.common.names import FILE, RECORD, usual_name
from yunishard.common.rest.records import ChangedView

RETIRE_MAX_S: Final = 30.0
"""How long an RM may take to acknowledge the report of a removed partition; then the partition's worker ends anyway."""


# Requests -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRequest:
    """A request to change an RM's configuration: by a call of the RM, by a caller of a front end, or by an edit of the
    watched file, whose editor reads the result in the log.
    """

    source: Literal["rm", "front-end", "file"]
    change: ChangeConfig
    """Its author is for users: shown in the history and, if the RM did not request the change itself, to the RM."""
    peer: str = ""
    """The RM's proxy, or the front end."""
    call: Header
    """Of the message with the request, for the answer; has the RM."""
    follows_core: bool | None = None
    """Whether the RM uses the default configuration from then on; None keeps that as it is."""

    @property
    def is_owner(self) -> bool:
        """Whether the requester owns the configuration, instead of changing the owner's text."""
        return self.change.origin in OWNER_ORIGINS

    def list_warnings(self, state: BrokerState) -> list[Problem]:
        """The warnings about the configuration, for a caller of a front end."""
        return state.list_warnings(self.change.config) if self.source == "front-end" else []

    def confirm(
        self, state: BrokerState, session: RmSession, warnings: list[Problem], *, written_back: bool = False
    ) -> list[Outgoing]:
        """Answer that the configuration is in force, and whether it is written to the watched file."""
        if self.source == "rm":
            return [session.build_message(_describe(session), to=self.peer, ref=self.call.ref)]
        if self.source == "file":
            return []
        latest = state.versions.history(session.rm).latest
        others = (one for one in state.registry.sessions.values() if one.rm != session.rm)
        view = ChangedView(
            checksum=session.checksum,
            version=latest.number if latest else 0,
            partitions=list(session.configs),
            file=written_back,
            followers=sorted(one.rm for one in others if one.follows_core) if written_back else [],
            warnings=warnings,
        )
        return [build_answer(self.peer, self.call.ref, 200, msgspec.json.encode(view))]

    def notify_rm(self, session: RmSession) -> list[Outgoing]:
        """Notify the RM of its new configuration; if it called itself, only if it has reconnected through another proxy
        since, where the answer does not reach it.
        """
        if self.source == "rm":
            return [] if session.proxy == self.peer else [session.build_message(_describe(session))]
        return [session.build_message(_describe(session, self.change.author))]

    def report_refusal(self, state: BrokerState, refusal: ChangeRefused) -> list[Outgoing]:
        """Answer that nothing has changed, and why."""
        change = self.change
        state.refused.add(self.call.rm, refusal, origin=change.origin, author=change.author, now=state.now)
        if self.source == "file":
            state.warnings.append(
                f"RM {self.call.rm} keeps its configuration, {state.watched} was refused: {refusal.in_one_line}; "
                "correct the file, or send it once more with `yunishard config put`"
            )
            return []
        state.notes.append(f"configuration change of RM {self.call.rm} refused: {refusal}")
        if self.source == "rm":
            return [build_refusal(self.peer, self.call, refusal.code, f"update of configuration failed: {refusal}")]
        body = str(refusal).encode()
        if refusal.status == HTTPStatus.BAD_REQUEST:
            body = msgspec.json.encode({"problems": refusal.problems})
        return [build_answer(self.peer, self.call.ref, refusal.status, body)]


def _describe(session: RmSession, author: str = "") -> ConfigurationUpdated:
    """The configuration that is in force, for the RM."""
    return ConfigurationUpdated(
        checksum=session.checksum,
        partitions=list(map(usual_name, session.configs)),
        lives=session.list_generations(session.configs),
        author=author,
        configuration_number=session.rollout,
    )


# Updates ------------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class ConfigUpdate(ConfigChange):
    """An update in progress."""

    label = "another configuration"

    request: UpdateRequest
    file_checksum: str
    """Checksum of the watched file when the update started: only that text may be overwritten."""
    warnings: list[Problem]
    """About the configuration, for the answer."""

    def plan_session(self, state: BrokerState) -> RmSession:
        before, target = state.registry.sessions[self.target.rm], self.target
        removed = [name for name in before.configs if name not in target.configs]
        added = {name: target.generation(name) for name in target.configs if name not in before.configs}
        after = replace(
            target,
            proxy=before.proxy,
            extra=before.extra,
            generations={**before.generations, **added},
            last_generation=max(before.last_generation, *added.values(), 0),
            leaving=[*before.leaving, *removed],
        )
        return after.ordered(before, self.order)

    def apply(self, state: BrokerState, now: float) -> list[Outgoing]:
        registry, request = state.registry, self.request
        before, session = registry.sessions[self.target.rm], self.plan_session(state)
        removed = [name for name in before.configs if name not in session.configs]
        added = [name for name in session.configs if name not in before.configs]
        registry.set_session(session, leave_by=now + RETIRE_MAX_S)
        state.refused.settle(session.rm)
        commits = self.build_outcome(registry, CommitConfig)
        sends = [*commits, *registry.build_first_settings(session, added)]
        held = [registry.build_retirement(session, partition) for partition in removed]
        change = request.change
        requester = f"the file {state.watched}" if request.source == "file" else f"{change.author} ({change.origin})"
        state.notes.append(f"configuration of RM {session.rm} changed by {requester}")
        state.notes += [f"partition {partition} is no longer configured and is taken down" for partition in removed]
        written_back = _is_written_back(state, session, request)
        if written_back:
            sends.append(make_outgoing(FILE, WriteFile(text=change.config, replaces=self.file_checksum)))
        sends += request.notify_rm(session)
        confirmation = request.confirm(state, session, self.warnings, written_back=written_back)
        if added and request.source == "front-end":
            held += confirmation
        else:
            sends += confirmation
        return [*sends, *(state.echo_barrier.hold(session.proxy, session.rm, held, now) if held else [])]

    def report_refusal(self, state: BrokerState, refusal: ChangeRefused) -> list[Outgoing]:
        return self.request.report_refusal(state, refusal)


def start_update(state: BrokerState, changes: ConfigChanges, request: UpdateRequest, now: float) -> list[Outgoing]:
    """Start an update, or answer at once that it is refused or already in force."""
    try:
        return _start(state, changes, request, now)
    except ChangeRefused as refusal:
        return request.report_refusal(state, refusal)


def _start(state: BrokerState, changes: ConfigChanges, request: UpdateRequest, now: float) -> list[Outgoing]:
    rm, change = request.call.rm, request.change
    checksum = state.analyses.compute_checksum(change.config)
    session = state.registry.sessions.get(rm)
    if session is None:
        raise ChangeRefused(HTTPStatus.NOT_FOUND, f"RM {rm} has no active partitions, make sure it is registered")
    in_progress = changes.find(rm)
    if in_progress is not None:
        reason = f"{in_progress.label} of RM {rm!r} is under way, try again when it is done"
        raise ChangeRefused(HTTPStatus.CONFLICT, reason, code="busy")
    if change.expected not in ("", session.checksum):
        reason = f"the configuration in force has the checksum {session.checksum}, not {change.expected}"
        raise ChangeRefused(HTTPStatus.PRECONDITION_FAILED, reason)
    if checksum == session.checksum:
        if request.follows_core is not None:
            state.registry.set_session(replace(session, follows_core=request.follows_core))
        rebased = rebase_latest(state, rm, checksum) if request.is_owner else []
        return [*rebased, *request.confirm(state, session, request.list_warnings(state))]
    latest = state.versions.history(rm).latest
    _check_file(state, request, {checksum, session.checksum, latest.base if latest else ""}, session)
    parsed = state.registry.by_full_name(rm, state.validate(rm, change.config, session.configs))
    configs = dict.fromkeys(parsed)
    for partition in configs:
        if partition in state.registry.leaving:
            name = usual_name(partition)
            reason = f"partition {name} of an earlier configuration is being taken down, try again when it is gone"
            raise ChangeRefused(HTTPStatus.CONFLICT, reason, code="busy")
    base = checksum if request.is_owner or latest is None else latest.base
    version = state.versions.build_next(
        rm,
        change.config,
        checksum=checksum,
        at_ns=int(now * 1e9),
        author=change.author,
        origin=change.origin,
        base=base,
    )
    # a new partition gets a new generation, as its RM may have sent numbered commands to it that were refused
    added = dict.fromkeys((name for name in configs if name not in session.configs), session.last_generation + 1)
    target = replace(
        session,
        configs=configs,
        checksum=checksum,
        follows_core=session.follows_core if request.follows_core is None else request.follows_core,
        rollout=state.next_number(),
        generations={**session.generations, **added},
    )
    update = ConfigUpdate(
        target=target,
        parsed=parsed,
        version=version,
        request=request,
        warnings=request.list_warnings(state),
        file_checksum=state.file_checksum,
        started_at=now,
        deadline=now + ROLLOUT_MAX_S,
        live=frozenset(name for name in configs if name in session.configs),
    )
    return changes.start(update)


def _is_written_back(state: BrokerState, session: RmSession, request: UpdateRequest) -> bool:
    """Whether this change is written to the watched file."""
    return bool(state.watched) and session.follows_core and not request.is_owner


def _check_file(state: BrokerState, request: UpdateRequest, known: Collection[str], session: RmSession) -> None:
    """Refuse a change that would overwrite an edit of the watched file. `known` holds the checksums of texts that may
    be overwritten: the configuration in force, its base (if writing the file failed), and the new text itself.

    Raises:
        ChangeRefused: with what to do about it.
    """
    if request.change.overwrite or state.file_empty or not _is_written_back(state, session, request):
        return
    if state.file_checksum in known:
        return
    raise ChangeRefused(
        HTTPStatus.CONFLICT,
        f"the watched file {state.watched} has been edited, and RM {session.rm} does not run that text (see the log): "
        "the change would overwrite the edit. Compare the two (`yunishard config diff current FILE`), then correct the "
        "file, or overwrite it (`--force`, over REST `force=true`): its text is then kept in FILE.previous",
    )


def rebase_latest(state: BrokerState, rm: str, checksum: str) -> list[Outgoing]:
    """Record that the owner's text is the one in force."""
    if not state.versions.rebase(rm, checksum):
        return []
    return [make_outgoing(RECORD, RebaseVersion(base=checksum), Header(kind="RebaseVersion", rm=rm))]


# Default configuration ----------------------------------------------------------------------------------------------


class DefaultConfig:
    """The default configuration from the watched file, and which RMs it has been offered to. An RM with a change in
    progress or with a partition that is being taken down is offered it afterwards.
    """

    def __init__(self, state: BrokerState, changes: ConfigChanges) -> None:
        self._state = state
        self._changes = changes
        self._checksum = compute_checksum(state.default_text)
        self._offer_to_all = False
        self._offered: dict[str, str] = {}
        """RM id to checksum of the last text that it was offered, accepted or not."""

    def set_text(self, text: str) -> None:
        """Take the new text of the file. An invalid one is logged, reported by the health check, and ignored."""
        state = self._state
        state.file_checksum = checksum = state.analyses.compute_checksum(text)
        if not text.strip():
            state.refused.file = f"{state.watched} is empty"
            state.warnings.append(f"the file of queues {state.watched} is empty: the configuration in force stays")
            return
        problems = state.analyses.get(text).problems
        if problems:
            lines = "; ".join(str(problem) for problem in problems)
            name = f"the file of queues {state.watched}"
            state.refused.file = f"{state.watched}: {lines}"[:REFUSAL_CHARS_MAX]
            state.warnings.append(f"{name} is refused, the configuration in force stays: {lines}")
            return
        state.refused.accept_file()
        state.default_text, state.file_empty = text, False
        self._checksum = checksum
        self.offer_analysed()

    def offer_analysed(self) -> None:
        """Offer the text to all RMs, now that it has been analysed."""
        self._state.analyses.pin(self._state.default_text)
        self._offer_to_all = True

    def offer(self, changed_rms: Iterable[str], now: float) -> list[Outgoing]:
        """Offer the text to the RMs that may take it now; `changed_rms` are those whose state has changed."""
        if not self._state.watched or not self._state.analyses.has_pinned:
            return []
        rms = tuple(self._state.registry.sessions if self._offer_to_all else changed_rms)
        self._offer_to_all = False
        return [one for rm in rms for one in self._offer_to_rm(rm, now)]

    def _offer_to_rm(self, rm: str, now: float) -> list[Outgoing]:
        state, checksum = self._state, self._checksum
        session = state.registry.sessions.get(rm)
        if session is None:
            self._offered.pop(rm, None)
            return []
        if not session.follows_core or self._offered.get(rm) == checksum:
            return []
        if self._changes.find(rm) or session.leaving:
            return []
        self._offered[rm] = checksum
        if session.passed_over:
            state.registry.set_session(replace(session, passed_over=""))
        if session.passed_over == checksum:
            return []
        latest = state.versions.history(rm).latest
        if session.checksum == checksum:
            return rebase_latest(state, rm, checksum)
        if latest is not None and latest.base == checksum:
            return []
        request = UpdateRequest(
            source="file",
            change=ChangeConfig(config=state.default_text, author="the file", origin=FROM_FILE),
            call=Header(kind="ChangedFile", rm=rm),
        )
        return start_update(state, self._changes, request, now)
