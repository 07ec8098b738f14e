"""Host a partition: its engine, its message channel to the RM, its settings, and roll-outs of its configuration.

    empty --PrepareConfig--> prepared --CommitConfig--> running --RetirePartition--> retiring
      or running                |-----AbortConfig-----> as before

A prepared configuration starts an empty partition (a registration), or changes the running one (a configuration
change).

The state changes only through messages (`apply`) and time (`elapse`). The same messages and times, in the same order,
lead to the same state and the same outgoing messages, so a journal of them is sufficient for recovery.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from common import extra_config
from common.config.validation import find_build_problems
from common.control_messages import (
    CommitConfig,
    ConfigVote,
    GroupsFound,
    GroupsWanted,
    PrepareConfig,
    Retired,
    Settings,
)
from common.journal_messages import SetAside
from common.messages import Command, Header, News
from common.names import BROKER, usual_name
from common.query_messages import KillApplication, MoveApplication, Schedule
from common.rm_messages import (
    NUMBERED,
    PREDICATES,
    UPDATE_ITEMS_MAX,
    AllocationRequest,
    ApplicationRequest,
    NodeRequest,
    PredicatesAnswered,
    PredicatesAsked,
    Received,
    Refused,
    RejectedApplication,
    RejectedNode,
    ReleasesIgnored,
    StateDumpAsked,
    SyncDone,
    SyncEnd,
)
from common.session import BACKLOG_MAX_MESSAGES, Arrival, Inbox, Outbox
from common.wire import NEVER, Incoming, Outgoing, WireError, decode_body, encode_body, make_outgoing
from partition_worker import admin_actions, outgoing_messages
from partition_worker.engine.bounds import DEFAULT, Tuning
from partition_worker.engine.effects import Effect, Part
from partition_worker.engine.partition import Partition
from partition_worker.engine.predicates.predicate import Predicate
from partition_worker.events import EventRingBuffer

SentMessage = tuple[int, str, bytes]
"""Number, kind and body of news."""


class RMChannel:
    """The conversation. An empty `session` is that of a partition that runs nothing yet: nobody is spoken to."""

    def __init__(self, *, partition: str, epoch: int, rm: str = "", session: str = "", life: int = 0) -> None:
        self.partition: Final = partition
        self.epoch: Final = epoch
        self.rm: Final = rm
        self.session: Final = session
        self.life: Final = life
        self.inbox = Inbox()
        self.outbox = Outbox()
        self._told: list[SentMessage] = []
        self._held_after: int | None = None

    @property
    def suspended(self) -> bool:
        """Whether all this comes from a journal and the RM has not resumed since: the journal may have lost its end, or
        be an older one.
        """
        return self._held_after is not None

    def suspend(self) -> None:
        """Send no news until the RM has resumed: the RM may have received others under the same numbers."""
        self._held_after = self.outbox.last

    def resume(self) -> None:
        """The RM has resumed, and it knows nothing of this partition that is not here."""
        self._held_after = None

    @property
    def backlog_full(self) -> bool:
        """Whether so much waits for its acknowledgement that the RM is not answered any more."""
        return len(self.outbox) >= BACKLOG_MAX_MESSAGES

    # What comes -----------------------------------------------------------------------------------------------------

    def accept(self, header: Header) -> bool:
        """Whether a message is part of this conversation; if so its acknowledgement has been taken.

        A number of an earlier life was given before the RM heard that the partition began anew: it will say all that
        again.
        """
        if not self.session or header.session != self.session or (header.seq and header.life != self.life):
            return False
        if header.life == self.life:
            self.outbox.acknowledge(header.ack)
        return True

    def find_loss(self, header: Header, acknowledged: int = 0) -> str:
        """What the RM has received from this partition, or had acknowledged by it, that is not here; empty for nothing.
        `acknowledged` is the number of its last command of which it knows that it was taken.
        """
        if header.session != self.session or header.life != self.life:
            return ""
        told = self.outbox.last if self._held_after is None else self._held_after
        if header.ack > told:
            return f"the resource manager has received {header.ack} messages, the journal has {told}"
        if acknowledged > self.inbox.last:
            return (
                f"{acknowledged} commands of the resource manager were acknowledged, the journal has {self.inbox.last}"
            )
        return ""

    def check_order(self, header: Header) -> list[Outgoing] | None:
        """What is said to a command that is not to be taken now; None for one that is."""
        if self.backlog_full:
            reason = f"{len(self.outbox)} messages wait to be acknowledged: acknowledge them before you send more"
            return [self.refuse(header, "window", reason)]
        if not header.seq:
            return None
        match self.inbox.arrival(header.seq):
            case Arrival.SEEN:
                return [self.acknowledge()]
            case Arrival.GAP:
                reason = f"message {header.seq} came after {self.inbox.last}: resume to send what is missing"
                return [self.refuse(header, "gap", reason)]
            case Arrival.NEXT:
                return None

    # What is said ---------------------------------------------------------------------------------------------------

    def send_numbered(self, messages: Iterable[News]) -> list[Outgoing]:
        """Numbered news, kept until they are acknowledged. What is held goes out when the RM resumes."""
        sends: list[Outgoing] = []
        for message in messages:
            kind, body = type(message).__name__, encode_body(message)
            seq = self.outbox.add(kind, body)
            self._told.append((seq, kind, body))
            if not self.suspended:
                sends.append(Outgoing(BROKER, self.make_header(kind, seq), body))
        return sends

    def send_unnumbered(self, message: PredicatesAsked | StateDumpAsked | ReleasesIgnored) -> Outgoing:
        """A message without a number: the RM does not acknowledge it, and it is not retransmitted if it is lost."""
        return make_outgoing(BROKER, message, self.make_header(type(message).__name__))

    def acknowledge(self, ref: str = "") -> Outgoing:
        return make_outgoing(BROKER, Received(), self.make_header("Received", ref=ref))

    def refuse(self, header: Header, code: str, reason: str) -> Outgoing:
        mark = "" if header.seq else header.ref
        return make_outgoing(
            BROKER, Refused(code=code, reason=reason, seq=header.seq), self.make_header("Refused", ref=mark)
        )

    def retransmit(self) -> list[Outgoing]:
        """Everything that the RM has not acknowledged, after an acknowledgement of what it has said."""
        waiting = self.outbox.unacknowledged()
        return [
            self.acknowledge(),
            *(Outgoing(BROKER, self.make_header(kind, seq), body) for seq, kind, body in waiting),
        ]

    def drain_sent(self) -> list[SentMessage]:
        """What has been told since this was asked last, once."""
        told, self._told = self._told, []
        return told

    def make_header(self, kind: str, seq: int = 0, ref: str = "") -> Header:
        return Header(
            kind=kind,
            rm=self.rm,
            partition=self.partition,
            session=self.session,
            seq=seq,
            ack=self.inbox.last,
            epoch=self.epoch,
            ref=ref,
            life=self.life,
        )


# Partition host -------------------------------------------------------------------------------------------------------

IGNORED_WARNING_S: Final = 60.0
"""Seconds between two warnings about releases that had no effect; those in between are only counted."""

POISON_SHOWN_S: Final = 3600.0
"""Seconds for which the health check fails because of a message that was set aside."""

GROUPS: Final = "groups"
"""The peer that looks up the groups of users, in the worker's process."""


class PartitionHost:
    """Everything that a step of the journal can change.

    For the log: `notes` for those who look closer, `announcements` for whoever runs the system, `warnings`.
    """

    def __init__(
        self,
        *,
        partition: str,
        epoch: int,
        manual: bool = False,
        plugins: Sequence[Predicate] = (),
        tuning: Tuning = DEFAULT,
    ) -> None:
        self.name = partition
        self.epoch = epoch
        self.manual = manual
        """Whether it decides only when it is asked to; timers go off all the same."""
        self.plugins = plugins
        self.tuning = tuning
        self.partition: Partition | None = None
        self.changes = 0
        """How often something may have changed in this process, by what was taken or passed by."""
        self.changed_at = 0.0
        """When that was the last time, in Unix seconds."""
        self.channel = RMChannel(partition=partition, epoch=epoch)
        self.rollout = 0
        """The last one that was carried out."""
        self.prepared: tuple[Header, PrepareConfig] | None = None
        self.began_from: tuple[Header, PrepareConfig] | None = None
        """What the partition has begun from, until somebody takes note of it."""
        self.retiring = False
        """Whether the partition is no longer configured, and only the RM's acknowledgements are waited for."""
        self.settings: dict[str, str] = {}
        """The RM's settings (`extraConfig`), as they came."""
        self.capabilities: list[str] = []
        """Of the RM, as it said."""
        self.extra = extra_config.DEFAULTS
        """The settings, as they are understood."""
        self.events = EventRingBuffer("")
        self.releases_ignored = 0
        """Releases without an effect since the process began."""
        self._warn_ignored_at = -NEVER
        """Unix seconds from which the next release without an effect is worth a warning."""
        self.poisons = 0
        """Messages that were set aside (`poison.py`), as far as this process knows."""
        self.poison = ("", 0.0)
        """Why the latest one was, and when, in Unix seconds."""
        self.notes: list[str] = []
        self.announcements: list[str] = []
        self.warnings: list[str] = []

    def apply(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """Let a message have its effect; what is said because of it.

        Raises:
            TypeError: for a kind that changes nothing.
        """
        self._changing(now)
        match incoming.header.kind:
            case kind if kind in NUMBERED:
                return self._command(incoming, now)
            case "SetAside":
                return self._refuse_set_aside(incoming, now)
            case "PredicatesAnswered":
                return self._heard(incoming, now)
            case "KillApplication" | "MoveApplication" | "Schedule":
                return self._act(incoming, now)
            case "GroupsFound":
                return self._looked_up(decode_body(GroupsFound, incoming.body), now)
            case "PrepareConfig":
                return [self._prepare(incoming)]
            case "CommitConfig":
                return self._commit(decode_body(CommitConfig, incoming.body).rollout, now)
            case "AbortConfig":
                self.prepared = None
                return []
            case "RetirePartition":
                return self._retire(now)
            case "Settings":
                return self._set(decode_body(Settings, incoming.body))
        raise TypeError(incoming.header.kind)

    def advance(self, now: float, budget: int) -> list[Outgoing]:
        """Let timers go off, then make up to so many decisions."""
        partition = self.partition
        assert partition is not None, "time changes nothing where nothing runs"
        self._changing(now)
        sends: list[Outgoing] = []
        effects = self.record_effects(partition.step(now, budget))
        for _, group in groupby(effects, key=lambda effect: effect.cause):  # the timers' messages come first
            step = list(group)
            sends += self.channel.send_numbered(outgoing_messages.build_messages(step))
            sends += [self.channel.send_unnumbered(question) for question in outgoing_messages.select_questions(step)]
        return sends

    def _changing(self, now: float) -> None:
        self.changes += 1
        self.changed_at = now

    def report_retired(self) -> list[Outgoing]:
        """Once the RM has acknowledged everything, this partition may go."""
        if not self.retiring or len(self.channel.outbox):
            return []
        return [make_outgoing(BROKER, Retired(), Header(kind="Retired", partition=self.name, epoch=self.epoch))]

    def record_effects(self, effects: list[Effect]) -> list[Effect]:
        """The same effects, after what is for the log and for the history has gone there."""
        if effects:
            self.notes += outgoing_messages.select_notes(effects, for_operators=False)
            self.announcements += outgoing_messages.select_notes(effects, for_operators=True)
        if self.partition is not None:
            self.warnings += self.partition.nodes.predicates.taken_complaints()
            if happenings := self.partition.drain_events():
                self.events.add(happenings, self.partition.now)
        return effects

    def request_lookups(self) -> list[Outgoing]:
        """Whose groups have to be looked up again: whoever was asked is gone."""
        users = [] if self.partition is None else self.partition.pending_submissions.users()
        return [make_outgoing(GROUPS, GroupsWanted(user=user)) for user in users]

    # Commands of the RM ---------------------------------------------------------------------------------------------

    def _command(self, incoming: Incoming, now: float) -> list[Outgoing]:
        header = incoming.header
        assert self.partition is not None, header
        if header.seq:
            self.channel.inbox.took(header.seq)
        try:
            command = decode_body(NUMBERED[header.kind], incoming.body)
            check_length(command)
        except WireError as error:
            return [self.channel.refuse(header, "malformed", str(error)), self.channel.acknowledge()]
        effects = self.record_effects(self.partition.apply(command, now))
        sends = self.channel.send_numbered(outgoing_messages.build_messages(effects)) if effects else []
        if not sends or header.ref:  # who counts what is under way without a number waits for its mark
            sends.append(self.channel.acknowledge(header.ref))
        sends += self._ignored_releases(effects, now)
        sends += [make_outgoing(GROUPS, wanted) for wanted in outgoing_messages.select_lookups(effects)]
        return sends

    def _refuse_set_aside(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """A command of the RM counts as received and has no effect. What it would have added, and what is not known
        already, is rejected, each item by itself. A `SyncEnd` is answered, as the RM waits for that.
        """
        header, partition = incoming.header, self.partition
        assert partition is not None, header
        if header.seq:
            self.channel.inbox.took(header.seq)
        message = decode_body(SetAside, incoming.body)
        self.note_poison(message.reason, now)
        why = message.reason
        nodes = [one for one in message.nodes if partition.nodes.get(one) is None]
        new = [one for one in message.applications if one not in partition.applications]
        rejected: list[Part] = [
            *(RejectedNode(node_id=one, reason=why) for one in nodes),
            *(RejectedApplication(application_id=one, reason=why) for one in new),
            *(one for one in message.allocations if partition.allocations.get(one.allocation_key) is None),
        ]
        if message.kind == SyncEnd.__name__:
            rejected.append(SyncDone(problem=why))
        rejections = outgoing_messages.build_messages([Effect(0, one) for one in rejected])
        refusal = self.channel.refuse(header, "poison", message.reason)
        return [refusal, *self.channel.send_numbered(rejections), self.channel.acknowledge(header.ref)]

    def recent_poison(self, now: float) -> str:
        """Why a message was set aside lately; empty if none was."""
        reason, at = self.poison
        return reason if now < at + POISON_SHOWN_S else ""

    def note_poison(self, reason: str, now: float) -> None:
        """A message was set aside."""
        self.poisons += 1
        self.poison = (reason, now)

    def _heard(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """The RM says which asks may run where."""
        assert self.partition is not None
        try:
            answered = decode_body(PredicatesAnswered, incoming.body)
        except WireError as error:
            return [self.channel.refuse(incoming.header, "malformed", str(error))]
        return self._tell(self.partition.take_verdicts(answered, now))

    def _looked_up(self, found: GroupsFound, now: float) -> list[Outgoing]:
        """What waited for the groups of a user goes on."""
        if self.partition is None:
            return []
        effects = self.partition.go_on(found, now)
        return [*self._tell(effects), *self._ignored_releases(effects, now)]

    def _ignored_releases(self, effects: list[Effect], now: float) -> list[Outgoing]:
        """Report releases that had no effect: to the RM, in the counter, and in the log with at most one warning every
        IGNORED_WARNING_S.
        """
        message = outgoing_messages.collect_ignored_releases(effects)
        if message is None:
            return []
        self.releases_ignored += len(message.ignored) + message.more
        if now >= self._warn_ignored_at:
            self._warn_ignored_at = now + IGNORED_WARNING_S
            first = message.ignored[0]
            key = repr(first.allocation_key) if first.allocation_key else "everything"
            self.warnings.append(
                f"{self.channel.rm} sent a release of {key} of application {first.application_id!r} that had no "
                f"effect: {first.message} (releases without effect since this process started: {self.releases_ignored})"
            )
        return [self.channel.send_unnumbered(message)]

    def _tell(self, effects: list[Effect]) -> list[Outgoing]:
        return self.channel.send_numbered(outgoing_messages.build_messages(self.record_effects(effects)))

    # Configuration --------------------------------------------------------------------------------------------------

    def _prepare(self, incoming: Incoming) -> Outgoing:
        """Vote: could this worker run the configuration?"""
        message = decode_body(PrepareConfig, incoming.body)
        if self.partition is None or not message.live:
            problems = [str(problem) for problem in find_build_problems(message.config)]
        else:
            problems = self.partition.objections(message.config)
        self.prepared = None if problems else (incoming.header, message)
        vote = ConfigVote(rollout=message.rollout, reason="; ".join(problems))
        header = Header(kind="ConfigVote", rm=incoming.header.rm, partition=self.name, epoch=self.epoch)
        return make_outgoing(BROKER, vote, header)

    def _commit(self, rollout: int, now: float) -> list[Outgoing]:
        """Run what was prepared. A worker that was started between vote and commit gets both again."""
        if self.prepared is None or self.prepared[1].rollout != rollout:
            self.warnings.append(f"commit of roll-out {rollout} ignored, as this worker has not prepared it")
            return []
        header, message = self.prepared
        self.prepared = None
        same = (header.session, header.life, rollout) == (self.channel.session, self.channel.life, self.rollout)
        if self.partition is not None and same:
            return []  # said again, as our Hello was heard twice: what runs already does not begin anew
        self.rollout = rollout
        if self.partition is not None and message.live:
            return self._tell(self.partition.reconfigure(message.config, now))
        self._begin(header, message, now)
        return []

    def _begin(self, header: Header, message: PrepareConfig, now: float) -> None:
        """From an empty partition."""
        self.channel = RMChannel(
            partition=self.name, epoch=self.epoch, rm=header.rm, session=header.session, life=header.life
        )
        self.began_from, self.retiring = (header, message), False
        self.events = EventRingBuffer(f"{self.name} {self.epoch} {header.session} {header.life} {int(now * 1e9)}")
        name = usual_name(self.name)  # the engine tells it to the RM
        self.partition = Partition(message.config, name=name, now=now, plugins=self.plugins, tuning=self.tuning)
        self._set(Settings(values={}))
        self.record_effects([])
        if self.partition.placement_problem:
            problem = self.partition.placement_problem
            self.warnings.append(f"no placement rule is active, so every application is rejected: {problem}")

    def _set(self, settings: Settings) -> list[Outgoing]:
        """The RM's settings are these from now on."""
        self.settings, self.capabilities = dict(settings.values), list(settings.capabilities)
        self.apply_settings()
        return []

    def apply_settings(self) -> None:
        """Let the settings have their effect."""
        self.extra = extra_config.read(self.settings)
        self.events.resize(self.extra.event_ring_buffer_capacity)
        if self.partition is not None:
            self.partition.tracking = self.extra.event_tracking_enabled
            self.partition.auditor.every_s = self.extra.health_check_interval_s
            self.partition.nodes.predicates.asks_manager = PREDICATES in self.capabilities

    def _retire(self, now: float) -> list[Outgoing]:
        """The partition is no longer configured: the RM hears what becomes of everything in it."""
        if self.partition is None or self.retiring:  # asked again, as the answer may not have counted
            self.retiring = True
            return self.report_retired()
        self.retiring = True
        return [*self._tell(self.partition.retire(now)), *self.report_retired()]

    # Administrators -------------------------------------------------------------------------------------------------

    def _act(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """Do what an administrator wants; the RM hears of it before they do."""
        assert self.partition is not None
        rm = self.channel.rm
        match incoming.header.kind:
            case "KillApplication":
                answer, effects = admin_actions.kill_application(
                    self.partition, rm, decode_body(KillApplication, incoming.body), now
                )
            case "MoveApplication":
                answer, effects = admin_actions.move_application(
                    self.partition, rm, decode_body(MoveApplication, incoming.body), now
                )
            case _:
                wanted = decode_body(Schedule, incoming.body)
                answer, effects = admin_actions.make_decisions(self.partition, rm, wanted, now, manual=self.manual)
        header = Header(kind="Answer", partition=self.name, ref=incoming.header.ref, epoch=self.epoch)
        return [*self._tell(effects), make_outgoing(BROKER, answer, header)]


def check_length(command: Command) -> None:
    """Raises WireError for an update with too many items."""
    match command:
        case NodeRequest(nodes=nodes):
            items = len(nodes)
        case ApplicationRequest(new=new, remove=remove):
            items = len(new) + len(remove)
        case AllocationRequest(allocations=allocations, releases=releases):
            items = len(allocations) + len(releases.allocations_to_release)
        case _:
            return
    if items > UPDATE_ITEMS_MAX:
        raise WireError(f"{items} items in one update, at most {UPDATE_ITEMS_MAX} are taken: send several")
