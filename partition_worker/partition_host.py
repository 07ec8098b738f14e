"""Host a partition: its engine, its message channel to the RM, its settings, and roll-outs of its configuration.

    empty --PrepareConfig--> prepared --CommitConfig--> running --RetirePartition--> retiring
      or running                |-----AbortConfig-----> as before

A prepared configuration starts an empty partition (a registration), or changes the running one (a configuration
change).

The state changes only through messages (`apply`) and time (`advance`). The same messages and times, in the same order,
lead to the same state and the same outgoing messages, so a journal of them is sufficient for recovery.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from common import control_messages, extra_config, rm_messages
from common.config.validation import find_build_problems
from common.journal_messages import SetAside
from common.messages import Command, Header
from common.names import BROKER, usual_name
from common.query_messages import Answer, KillApplication, MoveApplication, Schedule
from common.wire import NEVER, Incoming, Outgoing, WireError, decode_body, make_outgoing
from partition_worker import admin_actions
from partition_worker.engine.administration import NotDone
from partition_worker.engine.partition import Partition
from partition_worker.engine.predicates.predicate import Predicate
from partition_worker.engine.state import DEFAULT, Effect, IgnoredRelease, LogLine, Part, Tuning
from partition_worker.event_ring_buffer import EventRingBuffer
from partition_worker.rm_channel import RMChannel, build_messages, collect_ignored_releases, select_parts

IGNORED_WARNING_S: Final = 60.0
"""Minimum seconds between two warnings of the same kind about commands without effect; releases in between are only
counted.
"""

POISON_SHOWN_S: Final = 3600.0
"""Seconds for which the health check fails because of a quarantined message."""

GROUPS: Final = "groups"
"""The peer that looks up the groups of users, in the worker's process."""


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
    ) -> None:
        self.name = partition
        self.epoch = epoch
        self.manual = manual
        """Whether it schedules only on request; timers run in any case."""
        self.plugins = plugins
        self.tuning = tuning
        self.partition: Partition | None = None
        self.changes = 0
        """Number of inputs in this process that may have changed something."""
        self.changed_at = 0.0
        """Unix seconds of the latest one."""
        self.channel = RMChannel(partition=partition, epoch=epoch)
        self.rollout = 0
        """The last one that was committed."""
        self.prepared: tuple[Header, control_messages.PrepareConfig] | None = None
        self.began_from: tuple[Header, control_messages.PrepareConfig] | None = None
        """The configuration that the partition has just started with, until the journal has it."""
        self.retiring = False
        """Whether the partition is no longer configured, and only waits for the RM's acknowledgements."""
        self.settings: dict[str, str] = {}
        """The RM's settings (`extraConfig`), as received."""
        self.new_settings: list[dict[str, str]] = []
        """Settings that have taken effect, and whose log levels the service has not set yet."""
        self.capabilities: list[str] = []
        """The RM's capabilities."""
        self.extra = extra_config.DEFAULTS
        """The settings, parsed."""
        self.events = EventRingBuffer("")
        self.releases_ignored = 0
        """Releases without an effect since the process started."""
        self._warn_ignored_at = -NEVER
        self._warn_mistake_at = -NEVER
        """Unix seconds from which the next release without an effect is logged."""
        self.poisons = 0
        """Messages that were quarantined (`poison_messages.py`) since the process started."""
        self.poison = ("", 0.0)
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
            case "SetAside":
                return self._refuse_set_aside(incoming, now)
            case "PredicatesAnswered":
                return self._apply_verdicts(incoming, now)
            case "KillApplication" | "MoveApplication" | "Schedule":
                return self._act(incoming, now)
            case "GroupsFound":
                return self._apply_groups(decode_body(control_messages.GroupsFound, incoming.body), now)
            case "PrepareConfig":
                return [self._prepare(incoming)]
            case "CommitConfig":
                return self._commit(decode_body(control_messages.CommitConfig, incoming.body).rollout, now)
            case "AbortConfig":
                self.prepared = None
                return []
            case "RetirePartition":
                return self._retire(now)
            case "Settings":
                settings = decode_body(control_messages.Settings, incoming.body)
                self.settings, self.capabilities = dict(settings.values), list(settings.capabilities)
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

    def report_retired(self) -> list[Outgoing]:
        """Report that this partition may end, once the RM has acknowledged everything."""
        if not self.retiring or len(self.channel.outbox):
            return []
        header = Header(kind="Retired", partition=self.name, epoch=self.epoch)
        return [make_outgoing(BROKER, control_messages.Retired(), header)]

    def record_effects(self, effects: list[Effect]) -> list[Effect]:
        """Add log lines and events to their buffers; returns the same effects."""
        for effect in effects:
            if isinstance(effect.part, LogLine | IgnoredRelease):
                (self.announcements if effect.part.for_operators else self.notes).append(effect.part.text)
                if isinstance(effect.part, LogLine) and effect.part.is_warning:
                    self._warn_of_mistake(effect.part.text)
        if self.partition is not None:
            complaints = self.partition.nodes.predicates.complaints
            self.warnings += complaints
            complaints.clear()
            if happenings := self.partition.drain_events():
                self.events.append_events(happenings, self.partition.now)
        return effects

    def _warn_of_mistake(self, text: str) -> None:
        """Log a mistake of the RM, with at most one warning every IGNORED_WARNING_S."""
        assert self.partition is not None
        if self.partition.now >= self._warn_mistake_at:
            self._warn_mistake_at = self.partition.now + IGNORED_WARNING_S
            self.warnings.append(f"{self.channel.rm}: {text}")

    def request_lookups(self) -> list[Outgoing]:
        """Request again the group lookups that a former process has not finished."""
        users = [] if self.partition is None else list(self.partition.pending_submissions.by_user)
        return [make_outgoing(GROUPS, control_messages.GroupsWanted(user=user)) for user in users]

    # Commands and answers of the RM ---------------------------------------------------------------------------------

    def _apply_command(self, incoming: Incoming, now: float) -> list[Outgoing]:
        header = incoming.header
        assert self.partition is not None, header
        if header.seq:
            self.channel.inbox.record(header.seq)
        try:
            command = decode_body(rm_messages.NUMBERED[header.kind], incoming.body)
            check_length(command)
        except WireError as error:
            return [self.channel.refuse(header, "malformed", str(error)), self.channel.acknowledge()]
        effects = self.record_effects(self.partition.apply(command, now))
        sends = self.channel.send_numbered(build_messages(effects)) if effects else []
        if not sends or header.ref:  # a command without a number is acknowledged by its ref
            sends.append(self.channel.acknowledge(header.ref))
        sends += self._report_ignored_releases(effects, now)
        sends += [make_outgoing(GROUPS, wanted) for wanted in select_parts(effects, control_messages.GroupsWanted)]
        return sends

    def _refuse_set_aside(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """Reject the items of a quarantined command that would have been new, each by itself.

        The command counts as received and has no effect. A `SyncEnd` is answered, as the RM waits for that.
        """
        header, partition = incoming.header, self.partition
        assert partition is not None, header
        if header.seq:
            self.channel.inbox.record(header.seq)
        message = decode_body(SetAside, incoming.body)
        self.note_poison(message.reason, now)
        why = message.reason
        nodes = [one for one in message.nodes if partition.nodes.get(one) is None]
        new = [one for one in message.applications if one not in partition.applications]
        rejected: list[Part] = [
            *(rm_messages.RejectedNode(node_id=one, reason=why) for one in nodes),
            *(rm_messages.RejectedApplication(application_id=one, reason=why) for one in new),
            *(one for one in message.allocations if partition.allocations.get(one.allocation_key) is None),
        ]
        if message.kind == rm_messages.SyncEnd.__name__:
            rejected.append(rm_messages.SyncDone(problem=why))
        rejections = build_messages([Effect(0, one) for one in rejected])
        refusal = self.channel.refuse(header, "poison", message.reason)
        return [refusal, *self.channel.send_numbered(rejections), self.channel.acknowledge(header.ref)]

    def recent_poison(self, now: float) -> str:
        """The reason of a message that was quarantined within POISON_SHOWN_S; empty if none was."""
        reason, at = self.poison
        return reason if now < at + POISON_SHOWN_S else ""

    def note_poison(self, reason: str, now: float) -> None:
        """Count a quarantined message."""
        self.poisons += 1
        self.poison = (reason, now)

    def _apply_verdicts(self, incoming: Incoming, now: float) -> list[Outgoing]:
        assert self.partition is not None
        try:
            answered = decode_body(rm_messages.PredicatesAnswered, incoming.body)
        except WireError as error:
            return [self.channel.refuse(incoming.header, "malformed", str(error))]
        return self._send_effects(self.partition.apply_verdicts(answered, now))

    def _apply_groups(self, found: control_messages.GroupsFound, now: float) -> list[Outgoing]:
        if self.partition is None:
            return []
        effects = self.partition.apply_groups(found, now)
        return [*self._send_effects(effects), *self._report_ignored_releases(effects, now)]

    def _report_ignored_releases(self, effects: list[Effect], now: float) -> list[Outgoing]:
        """Report releases that had no effect: to the RM, in the counter, and in the log with at most one warning every
        IGNORED_WARNING_S.
        """
        message = collect_ignored_releases(effects)
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
        self.prepared = None if problems else (incoming.header, message)
        vote = control_messages.ConfigVote(rollout=message.rollout, reason="; ".join(problems))
        header = Header(kind="ConfigVote", rm=incoming.header.rm, partition=self.name, epoch=self.epoch)
        return make_outgoing(BROKER, vote, header)

    def _commit(self, rollout: int, now: float) -> list[Outgoing]:
        """Run the prepared configuration. A worker that was started between vote and commit receives both again."""
        if self.prepared is None or self.prepared[1].rollout != rollout:
            self.warnings.append(f"commit of roll-out {rollout} ignored, as this worker has not prepared it")
            return []
        header, message = self.prepared
        self.prepared = None
        same = (header.session, header.life, rollout) == (self.channel.session, self.channel.life, self.rollout)
        if self.partition is not None and same:
            return []  # repeated, as the broker received our Hello twice; the running partition continues
        self.rollout = rollout
        if self.partition is not None and message.live:
            return self._send_effects(self.partition.reconfigure(message.config, now))
        self._start_partition(header, message, now)
        return []

    def _start_partition(self, header: Header, message: control_messages.PrepareConfig, now: float) -> None:
        """Start with an empty partition."""
        self.channel = RMChannel(
            partition=self.name, epoch=self.epoch, rm=header.rm, session=header.session, life=header.life
        )
        self.began_from, self.retiring = (header, message), False
        self.events = EventRingBuffer(f"{self.name} {self.epoch} {header.session} {header.life} {int(now * 1e9)}")
        name = usual_name(self.name)  # the name that the RM uses
        self.partition = Partition(message.config, name=name, now=now, plugins=self.plugins, tuning=self.tuning)
        self.settings, self.capabilities = {}, []
        self.apply_settings()
        self.record_effects([])
        if self.partition.placement_problem:
            problem = self.partition.placement_problem
            self.warnings.append(f"no placement rule is active, so every application is rejected: {problem}")

    def apply_settings(self) -> None:
        """Apply the RM's settings and capabilities."""
        self.new_settings.append(self.settings)
        self.extra = extra_config.read(self.settings)
        self.events.resize(self.extra.event_ring_buffer_capacity)
        if self.partition is not None:
            self.partition.tracking = self.extra.event_tracking_enabled
            self.partition.auditor.every_s = self.extra.health_check_interval_s
            self.partition.nodes.predicates.asks_manager = rm_messages.PREDICATES in self.capabilities

    def _retire(self, now: float) -> list[Outgoing]:
        """End a partition that is no longer configured: everything in it ends, and the RM is informed."""
        if self.partition is None or self.retiring:  # repeated, as the broker may not have accepted the answer
            self.retiring = True
            return self.report_retired()
        self.retiring = True
        return [*self._send_effects(self.partition.retire(now)), *self.report_retired()]

    # Administrators -------------------------------------------------------------------------------------------------

    def _act(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """Carry out an administrator's request; the RM is informed before the administrator is answered."""
        partition, rm, body = self.partition, self.channel.rm, incoming.body
        assert partition is not None
        try:
            match incoming.header.kind:
                case "KillApplication":
                    kill = decode_body(KillApplication, body)
                    answer, effects = admin_actions.kill_application(partition, rm, kill, now)
                case "MoveApplication":
                    move = decode_body(MoveApplication, body)
                    answer, effects = admin_actions.move_application(partition, rm, move, now)
                case _:
                    wanted = decode_body(Schedule, body)
                    answer, effects = admin_actions.make_decisions(partition, rm, wanted, now, manual=self.manual)
        except NotDone as refusal:
            answer, effects = Answer(status=refusal.status, body=refusal.reason.encode()), []
        header = Header(kind="Answer", partition=self.name, ref=incoming.header.ref, epoch=self.epoch)
        return [*self._send_effects(effects), make_outgoing(BROKER, answer, header)]


def check_length(command: Command) -> None:
    """Raise WireError for an update with too many items."""
    match command:
        case rm_messages.NodeRequest(nodes=nodes):
            items = len(nodes)
        case rm_messages.ApplicationRequest(new=new, remove=remove):
            items = len(new) + len(remove)
        case rm_messages.AllocationRequest(allocations=allocations, releases=releases):
            items = len(allocations) + len(releases.allocations_to_release)
        case _:
            return
    if items > rm_messages.UPDATE_ITEMS_MAX:
        raise WireError(f"{items} items in one update, at most {rm_messages.UPDATE_ITEMS_MAX} are taken: send several")
