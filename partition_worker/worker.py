"""The worker's machine: what may be taken when, what is written down first, and when it is told.

A message that changes the partition goes to the host (`host.py`) if it is the RM's next one, and so does time, as
soon as something may be placed and the RM has acknowledged enough. Each becomes a step for the journal (`barrier.py`),
and what is said because of it is held until that is durable.

Not here: decisions (the engine), what a message does (`host.py`), what the RM is asked for the state dump
(`rm_state.py`), steps that are played again (`recovery.py`), numbering (`channel.py`), sockets and files.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from common import garbage
from common.control_messages import ConfigVote, Hello, PrepareConfig, Repeat
from common.journal_messages import Kept, NotKept, SetAside, SnapshotTaken, Step
from common.messages import Header
from common.metrics import Family, Histogram
from common.names import BROKER, JOURNAL
from common.query_messages import Answer, Query
from common.rm_messages import EVENTS, NUMBERED, Heartbeat
from common.wire import NEVER, Incoming, Outgoing, WireError, decode_body, encode_body, make_outgoing
from partition_worker import poison_messages, queries
from partition_worker.engine.bounds import DEFAULT, Tuning
from partition_worker.engine.partition import Partition
from partition_worker.engine.predicates.predicate import Predicate
from partition_worker.events import EventPush
from partition_worker.metrics import SampleCache
from partition_worker.outbox_barrier import OutboxBarrier
from partition_worker.partition_host import GROUPS, PartitionHost
from partition_worker.snapshot import encode_snapshot, recover
from partition_worker.state_dump import StateDumpRequests

BUDGET_DECISIONS: Final = 512
"""Decisions made between two looks at the inbox: a few milliseconds, so that releases and questions need not wait."""

RESUMED_IN_VAIN_MAX: Final = 8
"""How often in a row an RM may resume without sending the command that is missing here. Then that command is lost for
good (an RM that does not fill in `Resume.acknowledged` forgot it once it was acknowledged), and the partition begins
anew."""

_ACTIONS: Final = frozenset({"KillApplication", "MoveApplication", "Schedule"})
_QUESTIONS: Final = _ACTIONS | {"Query"}
"""What a front end says, who waits for an `Answer`."""

_WAIT: Final = NUMBERED.keys() | {"PredicatesAnswered", "GroupsFound"}
"""What a recovered worker drops until the RM has resumed: then the RM sends its commands again, and the worker
asks again for the rest."""

_ORDERS: Final = frozenset({"PrepareConfig", "CommitConfig", "AbortConfig", "RetirePartition", "Settings"})
"""What the broker says that changes the host."""


class Worker:
    """Everything a worker decides.

    The shell, which has the clock, says how long each tick `took`. Once `over` says why, the process has to end:
    nothing that this worker says counts any more.
    """

    def __init__(
        self,
        *,
        partition: str,
        epoch: int,
        manual: bool = False,
        plugins: Sequence[Predicate] = (),
        tuning: Tuning = DEFAULT,
        journalled: bool = False,
        heartbeat_s: float = NEVER,
        attempts: poison_messages.Attempts = poison_messages.UNTRACKED,
    ) -> None:
        self.name = partition
        self.epoch = epoch
        self.host = PartitionHost(partition=partition, epoch=epoch, manual=manual, plugins=plugins, tuning=tuning)
        self.barrier = OutboxBarrier() if journalled else None
        self.attempts = attempts
        self.poisons: list[poison_messages.Poison] = []
        """Messages that were set aside, for the shell to keep."""
        self._set_aside: dict[bytes, None] = {}
        """Their identities; no more than there are attempts that are remembered."""
        self.problem = ""
        """Why it could not go on from its journal; set by the shell before `hello`."""
        self.fatal_error = ""
        self.cycles = Histogram()
        """Ticks in which something was to be decided."""
        self.around: Callable[[], list[Family]] = list
        """The figures of what is around this machine: its process, its journal. The shell knows them."""
        self._memo = SampleCache()
        self.stopwatch: Callable[[], float] = float
        """Seconds since whenever, to tell how long an answer took. The shell has one."""
        self._scheduled = False
        self._push = EventPush()
        self._state_questions = StateDumpRequests()
        self._paused = False
        """Whether the RM is away, or has not resumed yet."""
        self._heartbeat_s = heartbeat_s
        self._beat_at = NEVER if heartbeat_s == NEVER else 0.0
        self._missing = False
        """Whether a command was refused since the RM resumed last, as one before it was missing."""
        self._resumed_in_vain = 0
        """How often in a row the RM has resumed, and a command was missing all the same."""

    @property
    def partition(self) -> Partition | None:
        return self.host.partition

    @property
    def deadline(self) -> float:
        if self.fatal_error:
            return NEVER
        if self.barrier is not None and self.barrier.urgent:
            return 0.0
        partition = self.host.partition
        due = min(self._beat_at, self._state_questions.deadline)
        if partition is None or self.host.channel.suspended:
            return due
        return min(due, self._push.deadline, partition.deadline if self._decides else partition.next_timer)

    @property
    def _decides(self) -> bool:
        """Whether it is time for the next decisions."""
        host, barrier = self.host, self.barrier
        return (
            host.partition is not None
            and not (host.manual or self._paused or host.channel.outbox.full or host.partition.idle)
            and not (barrier is not None and barrier.disk_behind)
        )

    def make_hello(self) -> Outgoing:
        """The first message to a broker: what runs here."""
        prepared = self.host.prepared[1].rollout if self.host.prepared is not None else 0
        message = Hello(
            role="worker",
            rollout=self.host.rollout,
            prepared=prepared,
            problem=self.problem,
            recovered=self.host.channel.suspended,
        )
        return make_outgoing(BROKER, message, self.host.channel.make_header("Hello"))

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        if self.fatal_error:
            return []
        if incoming.source == JOURNAL:
            return self._from_journal(incoming, now)
        try:
            sends = self._taken(incoming, now)
        except WireError as error:
            sends = self._unreadable(incoming, str(error))
        self.attempts.end()  # whatever else is raised ends the process, and counts
        return sends

    def _taken(self, incoming: Incoming, now: float) -> list[Outgoing]:
        if incoming.header.kind == "Query":
            why = self._begin_attempt(incoming, now)
            return [self._turned_away(incoming, why)] if why else self._queried(incoming, now)
        sends = self._answered(incoming)
        if sends is None:
            why = self._begin_attempt(incoming, now)
            if why and incoming.header.kind not in NUMBERED:
                return [self._turned_away(incoming, why)]
            incoming = self._set_aside_command(incoming, why) if why else incoming
            began_s = self.stopwatch()
            sends = self.host.apply(incoming, now)
            if incoming.header.kind == "Schedule":
                self.cycles.observe(self.stopwatch() - began_s)
            self._write(incoming, now)
        if self.barrier is None:
            return sends
        return self.barrier.hold_or_send(
            sends, now, more=self.deadline <= now
        )  # a tick follows, with decisions perhaps

    def tick(self, now: float) -> list[Outgoing]:
        """Let timers go off, then decide as much as the budget allows."""
        self._scheduled = False
        if self.fatal_error:
            return []
        free = self._state_questions.expired(now) if self._state_questions.deadline <= now else []
        if self._beat_at <= now:
            self._beat_at = now + self._heartbeat_s
            free.append(make_outgoing(BROKER, Heartbeat(), self.host.channel.make_header("Heartbeat")))
        partition = self.host.partition
        if partition is None or self.host.channel.suspended:
            return [*free, *self._passed([], now)]
        sends: list[Outgoing] = []
        budget = BUDGET_DECISIONS if self._decides else 0
        if budget or partition.next_change <= now:
            sends += self.host.advance(now, budget)
            self._scheduled = budget > 0
            self._write_time(now, budget)
        elif partition.auditor.deadline <= now:
            self.host.record_effects(partition.audit(now))
        sends += self._pushed(now)
        return [*free, *self._passed(sends, now)]

    def _pushed(self, now: float) -> list[Outgoing]:
        """Events for an RM that wants them and is there, if it is time."""
        host = self.host
        if EVENTS not in host.capabilities or self._paused:
            self._push.deadline = NEVER
            return []
        most, outbox = host.extra.event_request_capacity, host.channel.outbox
        batch = self._push.collect_due(host.events, most, outbox, now)
        return [] if batch is None else [make_outgoing(BROKER, batch, host.channel.make_header("EventResponse"))]

    def took(self, seconds: float) -> None:
        """So long the latest tick took. What is decided when somebody asks for it is timed at once."""
        if self._scheduled:
            self.cycles.observe(seconds)

    def _begin_attempt(self, incoming: Incoming, now: float) -> str:
        """Mark what is handled from now on; why it is set aside instead, empty if it is not."""
        header, body = incoming.header, incoming.body
        if header.kind not in poison_messages.REFUSABLE:
            return ""
        identity = poison_messages.identity(header.kind, body)
        if self.attempts.deaths(identity) < poison_messages.ATTEMPTS_MAX:
            self.attempts.begin(identity)
            return ""
        why = poison_messages.reason(header, body, self.name)
        if identity not in self._set_aside:
            self._set_aside[identity] = None
            self.poisons.append(poison_messages.Poison(now, identity, incoming, why))
        if header.kind not in NUMBERED:
            self.host.note_poison(why, now)
        return why

    def _set_aside_command(self, incoming: Incoming, why: str) -> Incoming:
        """What takes the place of a command. To decode the command may be what ended the workers: that is an attempt of
        its own, and left out once it has ended as many.
        """
        identity = poison_messages.identity(SetAside.__name__, incoming.body)
        itemized = self.attempts.deaths(identity) < poison_messages.ATTEMPTS_MAX
        self.attempts.begin(identity)
        return poison_messages.set_aside(incoming, why, itemized=itemized)

    def _turned_away(self, incoming: Incoming, why: str) -> Outgoing:
        """The answer to what is set aside and is no command with a number of its own."""
        header = incoming.header
        match header.kind:
            case "PredicatesAnswered":
                return self.host.channel.refuse(header, "poison", why)
            case "PrepareConfig":
                vote = ConfigVote(rollout=decode_body(PrepareConfig, incoming.body).rollout, reason=why)
                return make_outgoing(
                    BROKER, vote, Header(kind="ConfigVote", rm=header.rm, partition=self.name, epoch=self.epoch)
                )
        return make_outgoing(BROKER, Answer(status=500, body=why.encode()), self._reply(header))

    # What changes nothing -------------------------------------------------------------------------------------------

    def _unreadable(self, incoming: Incoming, problem: str) -> list[Outgoing]:
        """Nobody has opened it on its way. Whoever asked is told, and nothing has happened."""
        header = incoming.header
        if header.kind in _QUESTIONS:
            return [
                make_outgoing(BROKER, Answer(status=400, body=problem.encode(errors="replace")), self._reply(header))
            ]
        self.host.warnings.append(f"a message from {incoming.source} cannot be read: {problem}")
        return []

    def _answered(self, incoming: Incoming) -> list[Outgoing] | None:
        """What is said to a message that changes nothing here or may not; None for one that has to be taken."""
        header = incoming.header
        kind = header.kind
        if self.host.channel.suspended and (kind in _WAIT or kind == "Ack"):
            problem = self.host.channel.find_loss(header)
            if problem or kind in _WAIT:
                return self._begins_anew(problem) if problem else []
        if kind in NUMBERED:
            return self._untimely(header) if self.host.channel.accept(header) else []
        if kind == "PredicatesAnswered":
            same = header.life == self.host.channel.life
            return None if same and self.host.channel.accept(header) else []
        if kind in _ORDERS or (kind == "GroupsFound" and incoming.source == GROUPS):
            return None
        if kind in _ACTIONS:
            return self._not_now(header)
        return self._aside(incoming)

    def _aside(self, incoming: Incoming) -> list[Outgoing]:
        """What the host does not hear of."""
        header, host = incoming.header, self.host
        match header.kind:
            case "Ack":
                return host.report_retired() if host.channel.accept(header) else []
            case "StateDumpAnswered":
                return self._state_questions.heard(host.channel, incoming)
            case "Repeat":
                return self._repeat(header, decode_body(Repeat, incoming.body))
            case "Pause":
                self._paused = True
                return []
            case "Heartbeat":
                return self._beaten(decode_body(Heartbeat, incoming.body))
        host.notes.append(f"{header.kind} from {incoming.source} is not for a worker")
        return []

    def _beaten(self, beat: Heartbeat) -> list[Outgoing]:
        """The broker lives. One that does not say which it is has not heard our Hello: it began anew since."""
        waits = self.barrier is not None and self.barrier.is_holding("Hello")
        return [] if beat.incarnation or waits else [self.make_hello()]

    def _untimely(self, header: Header) -> list[Outgoing] | None:
        """What a command is answered that is not to be taken now; None for one that is."""
        answer = self.host.channel.check_order(header)
        if answer is None:
            self._missing, self._resumed_in_vain = False, 0
        elif header.seq > self.host.channel.inbox.last + 1 and not self.host.channel.backlog_full:
            self._missing = True
        return answer

    def _repeat(self, header: Header, repeat: Repeat) -> list[Outgoing]:
        """The RM is back after a break: it says what it has, and gets the rest again."""
        channel = self.host.channel
        if header.session != channel.session:
            return []
        self._resumed_in_vain += self._missing
        self._missing = False
        problem = channel.find_loss(header, repeat.acknowledged)
        if not problem and self._resumed_in_vain >= RESUMED_IN_VAIN_MAX:
            problem = f"the resource manager does not send the commands after {channel.inbox.last} again"
        if problem:
            return self._begins_anew(problem)
        lookups = self.host.request_lookups() if channel.suspended else []
        channel.resume()
        self._paused = False
        if header.life == channel.life:
            channel.outbox.acknowledge(header.ack)
        if self.barrier is not None:
            self.barrier.drop_superseded()
        return [*channel.retransmit(), *self.host.report_retired(), *lookups]

    def _begins_anew(self, problem: str) -> list[Outgoing]:
        """Tell the broker that this is not what the RM knows: the journal has lost its end, or was replaced.

        Logged once, as the RM may say it as often as it likes until the partition has begun anew.
        """
        if not self.problem:
            self.problem = problem
            self.host.warnings.append(problem)
        self._paused = True
        return [self.make_hello()]

    def _not_now(self, header: Header) -> list[Outgoing] | None:
        """Why nothing is done for an administrator, or None if it can be."""
        channel = self.host.channel
        if self.host.partition is None:
            reason = "the partition is starting"
        elif channel.suspended:
            reason = "the partition was started again, and waits for the resource manager to resume its session"
        elif channel.backlog_full or (header.kind == "Schedule" and channel.outbox.full):
            reason = f"the resource manager has {len(channel.outbox)} messages to acknowledge before it is told more"
        else:
            return None
        return [make_outgoing(BROKER, Answer(status=503, body=reason.encode()), self._reply(header))]

    def _queried(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """The answer at once, as somebody may want to know why nothing becomes durable; or a question to the RM."""
        query, reply, host = decode_body(Query, incoming.body), self._reply(incoming.header), self.host
        problem = self.barrier.problem if self.barrier is not None else ""
        if query.what == "rm-state" and host.partition is not None:
            obstacle = f"the resource manager is not asked while nothing becomes durable: {problem}" if problem else ""
            if self._paused:
                obstacle = "the resource manager is away"
            asked = self._state_questions.ask(host.channel, host.capabilities, reply, now, obstacle=obstacle)
            return [asked] if asked.header is reply else self._passed([asked], now)
        began_s = self.stopwatch()
        with garbage.none_expected():
            answer = queries.answer_query(
                host,
                query,
                now,
                cycles=self.cycles,
                barrier=self.barrier,
                around=self.around,
                memo=self._memo,
            )
        answer = replace(answer, took_micro_seconds=round((self.stopwatch() - began_s) * 1e6))
        return [make_outgoing(BROKER, answer, reply)]

    def _reply(self, header: Header) -> Header:
        return Header(kind="Answer", partition=self.name, ref=header.ref, epoch=self.epoch)

    # The journal ----------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """Everything that is needed to go on from here."""
        assert self.barrier is not None
        return encode_snapshot(self.host, self.barrier.last)

    def recover(self, snapshot: bytes | None, steps: Iterable[Step]) -> None:
        """Be as the worker was that wrote this. Until the RM has resumed nothing is decided and time does not pass: if
        the journal is older than what the RM has received, other news would get the same numbers.

        Raises:
            barrier.Diverged, remembered.SnapshotInvalid: as in `recovery.py`.
        """
        assert self.barrier is not None
        assert not self.barrier.last, "a worker recovers before anything else"
        host = self.host
        last = recover(host, snapshot, steps)
        self.barrier = OutboxBarrier(last)
        self._paused = last > 0
        if last:
            host.channel.suspend()
        for lines in (host.notes, host.announcements, host.warnings):
            lines.clear()

    def stop(self, now: float) -> list[Outgoing]:
        """The process is asked to end: a snapshot, so that whoever comes next, of another release perhaps, has nothing
        to play again; unless nobody comes, as all has been said of a partition that has ended.
        """
        host = self.host
        if self.barrier is None or host.partition is None or self.fatal_error or host.report_retired():
            return []
        return [*self.barrier.flush(), *self.barrier.request_snapshot(now)]

    def _passed(self, sends: list[Outgoing], now: float) -> list[Outgoing]:
        return sends if self.barrier is None else self.barrier.hold_or_send(sends, now)

    def _write(self, incoming: Incoming, now: float) -> None:
        """Note what was taken. What begins a partition is noted with what it was prepared from, and needs nothing
        before it.
        """
        host = self.host
        told, began_from, host.began_from = host.channel.drain_sent(), host.began_from, None
        if began_from is not None:
            self.problem, self._missing, self._resumed_in_vain = "", False, 0
            self._paused = False  # who registers is there; the broker says so if not
        if self.barrier is None:
            return
        if began_from is not None:
            header, config = began_from
            self.barrier.record_step(at=now, source=BROKER, header=header, body=encode_body(config), fresh=True)
        self.barrier.record_step(
            at=now,
            source=incoming.source,
            header=incoming.header,
            body=incoming.body,
            told=told,
            acknowledged=host.channel.outbox.acknowledged,
        )

    def _write_time(self, now: float, budget: int) -> None:
        channel = self.host.channel
        told = channel.drain_sent()
        if self.barrier is not None:
            self.barrier.record_step(at=now, budget=budget, told=told, acknowledged=channel.outbox.acknowledged)

    def _from_journal(self, incoming: Incoming, now: float) -> list[Outgoing]:
        barrier, host = self.barrier, self.host
        assert barrier is not None
        match incoming.header.kind:
            case "Kept":
                if barrier.problem:
                    host.announcements.append("the journal can be written again, and results are sent")
                return barrier.handle_kept(decode_body(Kept, incoming.body))
            case "NotKept":
                message = decode_body(NotKept, incoming.body)
                sends = barrier.handle_not_kept(message, now)
                hope = "" if message.fenced else "; this is tried again each second"
                host.warnings.append(f"no results are sent, as the journal cannot be written: {message.problem}{hope}")
                if message.fenced:
                    self.fatal_error = f"{self.name}: {message.problem}"
                return sends
            case "SnapshotTaken":
                taken = decode_body(SnapshotTaken, incoming.body)
                barrier.handle_snapshot_taken(now)
                if taken.problem:
                    host.warnings.append(f"no snapshot after step {taken.number}: {taken.problem}")
        return []
