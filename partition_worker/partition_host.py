"""Host a partition: its engine, its message channel to the RM, its settings, and roll-outs of its configuration.

    empty --PrepareConfig--> prepared --CommitConfig--> running --RetirePartition--> retiring
      or running                |-----AbortConfig-----> as before

A prepared configuration starts an empty partition (a registration), or changes the running one (a configuration
change).

The state changes only through messages (`apply`) and time (`advance`). The same messages and times, in the same order,
lead to the same state and the same outgoing messages: simulations can be repeated. The journal records the changes.

A poison message is quarantined: a message that ended the worker twice is rejected instead of handled a third time.

    begin_attempt --> handled --> end_attempt
         |
         the process dies --> its successor counts a death for this identity; at ATTEMPTS_MAX it rejects the message

So is an ask of which an evaluation ended the worker twice: it is rejected. Evaluations of predicates are marked always;
other attempts to place an ask cost less than a mark, so they are marked once a turn has ended a worker (`TURN`).

The mark is in a mapped file that survives the process (`open_attempts` in `journal/quarantine.py`), so marking costs no
disk write. A quarantined command of the RM becomes a step of the journal, so the numbering continues; its items are
rejected one by one, in numbered messages. Every other quarantined message is answered with the reason.
"""

import struct
import zlib
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from yunishard.common.config import extra_config
from yunishard.common.config.validation import find_build_problems
from yunishard.common.messages import control_messages, query_messages, rm_messages
from yunishard.common.messages.journal_messages import NO_RECORDS, SessionRecord, Step
from yunishard.common.messages.kinds import Command, Header, Message
from yunishard.common.messages.wire import NEVER, Incoming, Outgoing, WireError, decode_body, make_outgoing
from yunishard.common.names import BROKER, usual_name
from yunishard.partition_worker import admin_actions
from yunishard.partition_worker.engine.allocation import Allocation, AskGroup
from yunishard.partition_worker.engine.effects import Effect, IgnoredRelease, LogLine, Part
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.predicates.predicate import Predicate
from yunishard.partition_worker.engine.recording import collect_changes
from yunishard.partition_worker.engine.state import DEFAULT, Changes, Tuning
from yunishard.partition_worker.event_ring_buffer import EventRingBuffer
from yunishard.partition_worker.rm_channel import RMChannel, build_messages, select_parts

if TYPE_CHECKING:
    from mmap import mmap

IGNORED_WARNING_S: Final = 60.0
"""Minimum seconds between two warnings of the same kind about commands without effect; releases in between are only
counted.
"""

POISON_SHOWN_S: Final = 3600.0
"""Seconds for which the health check fails because of a quarantined message."""

GROUPS: Final = "groups"
"""The peer that looks up the groups of users, in the worker's process."""

_encode: Final = msgspec.msgpack.Encoder().encode


class PartitionHost:
    """Everything that a step of the journal can change.

    For the log: `notes` at debug level, `announcements` at info level, and `warnings`. The service clears them, and
    `new_settings`.
    """

    def __init__(
        self,
        *,
        partition: str,
        epoch: int,
        manual: bool = False,
        plugins: Sequence[Predicate] = (),
        tuning: Tuning = DEFAULT,
        simulated_nodes: Sequence[rm_messages.NodeInfo] = (),
    ) -> None:
        self.name = partition
        self.epoch = epoch
        self.manual = manual
        """Whether it schedules only on request; timers run in any case."""
        self.plugins = plugins
        self.tuning = tuning
        self.simulated_nodes = simulated_nodes
        """The nodes with which each new partition begins, of the names in `tuning`."""
        self.partition: Partition | None = None
        self.changes = 0
        """Number of inputs in this process that may have changed something."""
        self.changed_at = 0.0
        """Unix seconds of the latest one."""
        self.channel = RMChannel(partition=partition, epoch=epoch)
        self.session = SessionRecord()
        """The RM's session and the configuration, as the journal records them; replaced, not changed in place."""
        self.is_fresh = False
        """Whether the partition has just started, and the journal does not have it yet."""
        self.new_settings: list[dict[str, str]] = []
        """Settings that have taken effect, and whose log levels the service has not set yet."""
        self.extra = extra_config.DEFAULTS
        """The RM's settings, parsed."""
        self.events = EventRingBuffer("")
        self.releases_ignored = 0
        """Releases without an effect since the process started."""
        self._warn_again_at = dict[str, float]()
        """By kind of the warning: Unix seconds from which the next one is logged."""
        self.poisons = 0
        """Messages that were quarantined since the process started."""
        self.poison, self._poisoned_at = "", -NEVER
        """The reason of the latest one, and its time in Unix seconds."""
        self.notes: list[str] = []
        self.announcements: list[str] = []
        self.warnings: list[str] = []

    def apply(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """Apply a message, and return the outgoing messages.

        Raises:
            TypeError: for a kind that changes nothing.
        """
        self.changes, self.changed_at = self.changes + 1, now
        match incoming.header.kind:
            case kind if kind in rm_messages.NUMBERED:
                return self._apply_command(incoming, now)
            case "PredicatesAnswered":
                return self._apply_verdicts(incoming, now)
            case kind if kind in query_messages.WORKER_CHANGES:
                return self._act(incoming, now)
            case "GroupsFound":
                found = decode_body(control_messages.GroupsFound, incoming.body)
                effects = [] if self.partition is None else self.partition.apply_groups(found, now)
                return [*self._send_effects(effects), *self._report_ignored_releases(effects, now)]
            case "PrepareConfig":
                return [self._prepare(incoming)]
            case "CommitConfig":
                return self._commit(decode_body(control_messages.CommitConfig, incoming.body).rollout, now)
            case "AbortConfig":
                self.session = replace(self.session, prepared=None)
                return []
            case "RetirePartition":
                return self._retire(now)
            case "Settings":
                settings = decode_body(control_messages.Settings, incoming.body)
                self.session = replace(self.session, settings=settings.values, capabilities=settings.capabilities)
                self.apply_settings()
                return []
        raise TypeError(incoming.header.kind)

    def advance(self, now: float, budget: int) -> list[Outgoing]:
        """Run the timers that are due, then make up to `budget` decisions; return the outgoing messages."""
        assert self.partition is not None, "time changes nothing while nothing runs"
        self.changes, self.changed_at = self.changes + 1, now
        sends: list[Outgoing] = []
        effects = self.record_effects(self.partition.step(now, budget))
        for _, group in groupby(effects, key=lambda effect: effect.cause):  # the timers' messages come first
            step = list(group)
            sends += self.channel.send_numbered(build_messages(step))
            sends += [self.channel.send_unnumbered(one) for one in select_parts(step, rm_messages.PredicatesAsked)]
        return sends

    def set_aside_asks(self, groups: Sequence[AskGroup], now: float) -> list[Outgoing]:
        """Reject asks of which an attempt has ended ATTEMPTS_MAX workers."""
        assert self.partition is not None, "there are no asks"
        why = (
            f"an attempt to place it ended the worker of partition {usual_name(self.name)} {ATTEMPTS_MAX} times: "
            "it was set aside"
        )
        for group in groups:
            self.note_poison(f"ask {group.head.key} of application {group.head.application_id}: {why}", now)
            self.warnings.append(self.poison)
        return self._send_effects(self.partition.set_aside_asks(groups, why, now))

    def report_retired(self) -> list[Outgoing]:
        """Report that this partition may end, once the RM has acknowledged everything."""
        if not self.session.retiring or len(self.channel.outbox):
            return []
        return [self.make_reply(control_messages.Retired())]

    def make_reply(self, message: Message, *, rm: str = "", ref: str = "") -> Outgoing:
        """Build a message to the broker that is not for the RM."""
        header = Header(kind=type(message).__name__, rm=rm, partition=self.name, ref=ref, epoch=self.epoch)
        return make_outgoing(BROKER, message, header)

    def record_effects(self, effects: list[Effect]) -> list[Effect]:
        """Add log lines and events to their buffers; returns the same effects."""
        for effect in effects:
            part = effect.part
            if isinstance(part, LogLine | IgnoredRelease):
                (self.announcements if part.for_operators else self.notes).append(part.text)
                if isinstance(part, LogLine) and part.is_warning and self.partition is not None:
                    self._warn_rarely("mistake", self.partition.now, f": {part.text}")
        if self.partition is not None:
            complaints = self.partition.nodes.predicates.complaints
            self.warnings += complaints
            complaints.clear()
            if events := self.partition.drain_events():
                self.events.append_events(events, self.partition.now)
        return effects

    def _warn_rarely(self, kind: str, now: float, text: str) -> None:
        """Log a warning about the RM, at most one of this kind every IGNORED_WARNING_S."""
        if now >= self._warn_again_at.get(kind, -NEVER):
            self._warn_again_at[kind] = now + IGNORED_WARNING_S
            self.warnings.append(f"{self.channel.rm}{text}")

    def request_lookups(self) -> list[Outgoing]:
        """Request again the group lookups that a former process has not finished."""
        users = [] if self.partition is None else list(self.partition.pending_submissions.by_user)
        return [make_outgoing(GROUPS, control_messages.GroupsWanted(user=user)) for user in users]

    # Commands and answers of the RM ---------------------------------------------------------------------------------

    def _apply_command(self, incoming: Incoming, now: float) -> list[Outgoing]:
        header = incoming.header
        assert self.partition is not None, header
        if header.seq:
            self.channel.received = header.seq
        try:
            command = decode_command(header.kind, incoming.body)
        except WireError as error:
            return [self.channel.refuse(header, "malformed", str(error)), self.channel.acknowledge()]
        effects = self.record_effects(self.partition.apply(command, now))
        sends = self.channel.send_numbered(build_messages(effects)) if effects else []
        if not sends or header.ref:  # a command without a number is acknowledged by its ref
            sends.append(self.channel.acknowledge(header.ref))
        sends += self._report_ignored_releases(effects, now)
        sends += [make_outgoing(GROUPS, wanted) for wanted in select_parts(effects, control_messages.GroupsWanted)]
        return sends

    def reject_quarantined(self, header: Header, command: Command | None, why: str, now: float) -> list[Outgoing]:
        """Reject the items of a quarantined command that would have been new, each by itself; none if it cannot be
        decoded.

        The command counts as received and has no effect. A `SyncEnd` is answered, as the RM waits for that.
        """
        partition, rejected = self.partition, list[Part]()
        assert partition is not None, header
        self.changes, self.changed_at = self.changes + 1, now
        if header.seq:
            self.channel.received = header.seq
        match command:
            case rm_messages.NodeRequest(nodes=nodes):
                creating = (rm_messages.NODE_CREATE, rm_messages.NODE_CREATE_DRAIN)
                new = [
                    one.node_id for one in nodes if one.action in creating and partition.nodes.get(one.node_id) is None
                ]
                rejected += [rm_messages.RejectedNode(node_id=one, reason=why) for one in new]
            case rm_messages.ApplicationRequest(new=applications):
                names = [one.application_id for one in applications if one.application_id not in partition.applications]
                rejected += [rm_messages.RejectedApplication(application_id=one, reason=why) for one in names]
            case rm_messages.AllocationRequest(allocations=asks):
                rejected += [
                    rm_messages.RejectedAllocation(
                        allocation_key=one.allocation_key, application_id=one.application_id, reason=why
                    )
                    for one in asks
                    if one.allocation_key not in partition.allocations
                ]
        if header.kind == rm_messages.SyncEnd.__name__:
            rejected.append(rm_messages.SyncDone(problem=why))
        rejections = build_messages([Effect(0, one) for one in rejected])
        refusal = self.channel.refuse(header, "poison", why)
        return [refusal, *self.channel.send_numbered(rejections), self.channel.acknowledge(header.ref)]

    def build_step(self, number: int, kind: str, now: float, *, with_session: bool, is_needed: bool) -> Step | None:
        """Build the step that records what an input of this kind changed; None if it changed nothing, unless the step
        `is_needed`.
        """
        channel, partition = self.channel, self.partition
        changes = [] if partition is None else collect_changes(partition)
        told = channel.drain_sent()
        if not (changes or told or with_session or is_needed):
            return None
        return Step(
            number=number,
            at=now,
            kind=kind,
            received=channel.received,
            acknowledged=channel.outbox.acknowledged,
            cause=0 if partition is None else partition.step_number,
            told=told,
            records=Raw(_encode(changes)) if changes else NO_RECORDS,
            session=self.session if with_session else None,
        )

    def discard_changes(self) -> None:
        """Discard the record of the latest changes and messages, which a journal would have kept."""
        self.channel.drain_sent()
        if self.partition is not None:
            self.partition.changes = Changes()

    def recent_poison(self, now: float) -> str:
        """The reason of a message that was quarantined within POISON_SHOWN_S; empty if none was."""
        return self.poison if now < self._poisoned_at + POISON_SHOWN_S else ""

    def note_poison(self, reason: str, now: float) -> None:
        """Count a quarantined message."""
        self.poisons, self.poison, self._poisoned_at = self.poisons + 1, reason, now

    def _apply_verdicts(self, incoming: Incoming, now: float) -> list[Outgoing]:
        assert self.partition is not None
        try:
            answered = decode_body(rm_messages.PredicatesAnswered, incoming.body)
        except WireError as error:
            return [self.channel.refuse(incoming.header, "malformed", str(error))]
        return self._send_effects(self.partition.apply_verdicts(answered, now))

    def _report_ignored_releases(self, effects: list[Effect], now: float) -> list[Outgoing]:
        """Report releases that had no effect to the RM, in the counter and in the log.

        The message is not numbered, and so not in the journal.
        """
        found = select_parts(effects, IgnoredRelease)
        if not found:
            return []
        self.releases_ignored += len(found)
        first = found[0].release
        key = repr(first.allocation_key) if first.allocation_key else "everything"
        text = (
            f" sent a release of {key} of application {first.application_id!r} that had no effect: {found[0].reason} "
            f"(releases without effect since this process started: {self.releases_ignored})"
        )
        self._warn_rarely("release", now, text)
        listed = [replace(one.release, message=one.reason) for one in found[: rm_messages.RELEASES_IGNORED_MAX]]
        message = rm_messages.ReleasesIgnored(ignored=listed, more=len(found) - len(listed))
        return [self.channel.send_unnumbered(message)]

    def _send_effects(self, effects: list[Effect]) -> list[Outgoing]:
        return self.channel.send_numbered(build_messages(self.record_effects(effects)))

    # Configuration --------------------------------------------------------------------------------------------------

    def _prepare(self, incoming: Incoming) -> Outgoing:
        """Vote whether this worker can run the configuration."""
        message = decode_body(control_messages.PrepareConfig, incoming.body)
        if self.partition is None or not message.live:
            problems = [str(problem) for problem in find_build_problems(message.config)]
        else:
            problems = self.partition.objections(message.config)
        self.session = replace(self.session, prepared=None if problems else (incoming.header, message))
        vote = control_messages.ConfigVote(rollout=message.rollout, reason="; ".join(problems))
        return self.make_reply(vote, rm=incoming.header.rm)

    def _commit(self, rollout: int, now: float) -> list[Outgoing]:
        """Run the prepared configuration. A worker that was started between vote and commit receives both again."""
        session = self.session
        if session.prepared is None or session.prepared[1].rollout != rollout:
            self.warnings.append(f"commit of roll-out {rollout} ignored, as this worker has not prepared it")
            return []
        header, message = session.prepared
        self.session = replace(session, rollout=rollout, prepared=None)
        same = (header.session, header.life, rollout) == (session.session, session.life, session.rollout)
        if self.partition is not None and same:
            return []  # repeated, as the broker received our Hello twice; the running partition continues
        if self.partition is not None and message.live:
            return self._send_effects(self.partition.reconfigure(message.config, now))
        self._start_partition(header, message, now)
        return []

    def _start_partition(self, header: Header, message: control_messages.PrepareConfig, now: float) -> None:
        """Start with an empty partition. The marks of operators outlast the sessions of the RM."""
        before = self.partition
        self.begin_session(
            SessionRecord(rm=header.rm, session=header.session, life=header.life, rollout=message.rollout)
        )
        self.is_fresh = True
        self.events = EventRingBuffer(f"{self.name} {self.epoch} {header.session} {header.life} {int(now * 1e9)}")
        name = usual_name(self.name)  # the name that the RM uses
        self.partition = Partition(message.config, name=name, now=now, plugins=self.plugins, tuning=self.tuning)
        if before is not None:
            self.partition.inherit_marks(before)
        self.apply_settings()
        simulated = rm_messages.NodeRequest(nodes=list(self.simulated_nodes))
        effects = self.partition.apply(simulated, now) if self.simulated_nodes else []
        self.record_effects(effects)  # and sends none: the RM has not reported these nodes
        if problem := self.partition.placement.problem:
            self.warnings.append(f"no placement rule is active, so every application is rejected: {problem}")

    def begin_session(self, session: SessionRecord) -> None:
        """Open the channel of a session; nothing is sent or received yet."""
        self.session = session
        self.channel = RMChannel(
            partition=self.name, epoch=self.epoch, rm=session.rm, session=session.session, life=session.life
        )

    def apply_settings(self) -> None:
        """Apply the RM's settings and capabilities."""
        self.new_settings.append(self.session.settings)
        self.extra = extra_config.read(self.session.settings)
        self.events.resize(self.extra.event_ring_buffer_capacity)
        if self.partition is not None:
            self.partition.tracking = self.extra.event_tracking_enabled
            self.partition.auditor.every_s = self.extra.health_check_interval_s
            capabilities, predicates = self.session.capabilities, self.partition.nodes.predicates
            predicates.asks_manager = rm_messages.PREDICATES in capabilities
            predicates.asks_about_victims = (
                predicates.asks_manager and rm_messages.PREEMPTION_PREDICATES in capabilities
            )

    def _retire(self, now: float) -> list[Outgoing]:
        """End a partition that is no longer configured: everything in it ends, and the RM is informed."""
        is_repeated = self.session.retiring  # as the broker may not have accepted the answer
        self.session = replace(self.session, retiring=True)
        if self.partition is None or is_repeated:
            return self.report_retired()
        return [*self._send_effects(self.partition.retire(now)), *self.report_retired()]

    # Administrators -------------------------------------------------------------------------------------------------

    def _act(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """Carry out an administrator's request; the RM is informed before the administrator is answered."""
        assert self.partition is not None
        answer, effects = admin_actions.act(self.partition, self.channel.rm, incoming, now, manual=self.manual)
        return [*self._send_effects(effects), self.make_reply(answer, ref=incoming.header.ref)]


def decode_command(kind: str, body: bytes) -> Command:
    """Decode a command of the RM.

    Raises:
        WireError: it is malformed, or has too many items.
    """
    command = decode_body(rm_messages.NUMBERED[kind], body)
    match command:
        case rm_messages.NodeRequest(nodes=nodes):
            items = len(nodes)
        case rm_messages.ApplicationRequest(new=new, remove=remove):
            items = len(new) + len(remove)
        case rm_messages.AllocationRequest(allocations=allocations, releases=releases):
            items = len(allocations) + len(releases.allocations_to_release)
        case _:
            return command
    if items > rm_messages.UPDATE_ITEMS_MAX:
        raise WireError(f"{items} items in one update, at most {rm_messages.UPDATE_ITEMS_MAX} are taken: send several")
    return command


# Poison messages ------------------------------------------------------------------------------------------------------

ATTEMPTS_MAX: Final = 2
"""Times that handling a message may end the worker. The next time the message is quarantined."""

_IDENTITY: Final = struct.Struct("<IIQ")
_IDENTITY_BYTES: Final = 16

MAGIC: Final = b"YSHATT01"
ENTRIES_MAX: Final = 16
"""Messages whose deaths are counted; the one that ended a worker longest ago is dropped first."""

PAGE_BYTES: Final = 4096
"""Size of the page of `Attempts`."""

_BUSY: Final = len(MAGIC)
_CURRENT: Final = slice(16, 16 + _IDENTITY_BYTES)
_SUPERVISOR: Final = slice(32, 48)
_ENTRIES_AT: Final = 64
_ENTRY: Final = struct.Struct(f"<{_IDENTITY_BYTES}sIId")
"""The identity and the fields of `Deaths`."""


class ReceivedMessage(Struct, array_like=True, frozen=True):
    """A message as the worker received it."""

    number: int
    """Always 0; the steps of earlier journals, which had the same fields, were numbered."""
    at: float
    """Unix seconds."""
    source: str
    header: Header
    body: bytes = b""


class QuarantinedMessage(Struct, array_like=True, frozen=True):
    """A quarantined message, to be stored for inspection."""

    reason: str
    message: ReceivedMessage


class Deaths(NamedTuple):
    """How often a message ended a worker."""

    alone: int = 0
    together: int = 0
    """Together with the supervisor."""
    at: float = 0.0
    """Unix seconds of the last time."""


class Attempts:
    """The message in progress, and how often messages ended a worker, in a page of memory.

    With a journal the page is a mapped file, which the next worker reads; else it ends with the process.
    """

    def __init__(self, deaths: Mapping[bytes, Deaths] | None = None, supervisor: bytes = b"") -> None:
        """`deaths` are those of earlier workers, by identity; the latest ENTRIES_MAX count."""
        self._supervisor = supervisor.ljust(_IDENTITY_BYTES, b"\0")
        self._deaths = dict(sorted((deaths or {}).items(), key=lambda item: -item[1].at)[:ENTRIES_MAX])
        self._current = b""
        self.page: bytearray | mmap = bytearray(self._content())

    def begin_attempt(self, identity: bytes) -> None:
        """Mark the message as being handled."""
        self.page[_CURRENT] = self._current = identity
        self.page[_BUSY] = 1

    def end_attempt(self) -> None:
        """Remove the mark."""
        self.page[_BUSY] = 0
        if self._deaths and self._deaths.pop(self._current, None) is not None:
            self.page[:] = self._content()  # this time the worker survived it

    def pause_attempt(self) -> None:
        """Remove the mark, and keep the deaths: a later turn may reach the evaluation that this one did not."""
        self.page[_BUSY] = 0

    def count_deaths(self, identity: bytes) -> int:
        """Return how many workers ended while they handled the message."""
        ended = self._deaths.get(identity)
        return 0 if ended is None else ended.alone + ended.together // 2

    def _content(self) -> bytes:
        header = MAGIC.ljust(_SUPERVISOR.start, b"\0") + self._supervisor
        entries = b"".join(_ENTRY.pack(identity, *ended) for identity, ended in self._deaths.items())
        return (header.ljust(_ENTRIES_AT, b"\0") + entries).ljust(PAGE_BYTES, b"\0")


def read_page(page: bytes, supervisor: bytes, now: float) -> tuple[dict[bytes, Deaths], bytes]:
    """Read the page of the former worker: return the messages that ended workers, and the one among them that was in
    progress (empty if none was), which is counted.

    Raises:
        ValueError: it is not such a page.
    """
    if len(page) != PAGE_BYTES or not page.startswith(MAGIC):
        raise ValueError("not a page of attempts")
    entries = _ENTRY.iter_unpack(page[_ENTRIES_AT : _ENTRIES_AT + ENTRIES_MAX * _ENTRY.size])
    found = {identity: Deaths(*entry) for identity, *entry in entries if any(entry)}
    if not page[_BUSY]:
        return found, b""
    identity = page[_CURRENT]
    ended = found.get(identity, Deaths())
    if page[_SUPERVISOR] == supervisor.ljust(_IDENTITY_BYTES, b"\0"):
        found[identity] = ended._replace(alone=ended.alone + 1, at=now)
    else:
        found[identity] = ended._replace(together=ended.together + 1, at=now)
    return found, identity


def identify_message(kind: str, body: bytes) -> bytes:
    """Identify a message by its content, and not by time or session, so that it is recognized in a new session, too."""
    return _IDENTITY.pack(zlib.crc32(kind.encode()), zlib.crc32(body), len(body))


TURN: Final = identify_message("turn", b"")
"""Identifies a scheduling turn, as far as it is not known which asks it tries."""

CAUTIOUS_TURNS: Final = 1_000
"""Turns of a worker in which each attempt is marked, if an earlier worker ended in a turn and it is not known why."""


def identify_ask(ask: Allocation) -> bytes:
    """Identify an ask, so that it is recognized by the next worker."""
    return identify_message("ask", f"{ask.application_id} {ask.key}".encode(errors="replace"))


def describe_reason(header: Header, body: bytes, partition: str) -> str:
    """Describe why a message is quarantined, with the RM's name of the partition."""
    name = usual_name(partition)
    return (
        f"{header.kind} of {len(body)} bytes ended the worker of partition {name} {ATTEMPTS_MAX} times "
        "while it was handled: it was quarantined and has no effect"
    )
