"""The worker's machine: what may be taken when, what is written down first, and when it is told.

A message that changes the partition goes to the replica (`replica.py`) if it is the RM's next one, and so does time, as
soon as something may be placed and the RM has acknowledged enough. Each becomes a step for the journal (`recorder.py`),
and what is said because of it is held until that is durable.

Not here: decisions (the engine), what a message does (`replica.py`), what the RM is asked for the state dump
(`rm_state.py`), steps that are played again (`recovery.py`), numbering (`lane.py`), sockets and files.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from common import garbage
from common.control_messages import ConfigVote, Hello, PrepareConfig, Repeat
from common.families import Family
from common.histogram import Histogram
from common.journal_messages import Kept, NotKept, SetAside, SnapshotTaken, Step
from common.machine import NEVER, Incoming, Outgoing, make_outgoing
from common.messages import Header
from common.names import BROKER, JOURNAL
from common.query_messages import Answer, Query
from common.rm_messages import EVENTS, NUMBERED, Heartbeat
from common.wire import WireError, body_of, decoded
from partition_worker import poison_messages, queries
from partition_worker.engine.bounds import DEFAULT, Tuning
from partition_worker.engine.partition import Partition
from partition_worker.engine.predicates.predicate import Predicate
from partition_worker.event_ring_buffer import EventPush
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
"""What the broker says that changes the replica."""


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
        self.replica = PartitionHost(partition=partition, epoch=epoch, manual=manual, plugins=plugins, tuning=tuning)
        self.recorder = OutboxBarrier() if journalled else None
        self.attempts = attempts
        self.poisons: list[poison_messages.Poison] = []
        """Messages that were set aside, for the shell to keep."""
        self._set_aside: dict[bytes, None] = {}
        """Their identities; no more than there are attempts that are remembered."""
        self.problem = ""
        """Why it could not go on from its journal; set by the shell before `hello`."""
        self.over = ""
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
        return self.replica.partition

    @property
    def deadline(self) -> float:
        if self.over:
            return NEVER
        if self.recorder is not None and self.recorder.urgent:
            return 0.0
        partition = self.replica.partition
        due = min(self._beat_at, self._state_questions.deadline)
        if partition is None or self.replica.lane.unconfirmed:
            return due
        return min(due, self._push.deadline, partition.deadline if self._decides else partition.next_timer)

    @property
    def _decides(self) -> bool:
        """Whether it is time for the next decisions."""
        replica, recorder = self.replica, self.recorder
        return (
            replica.partition is not None
            and not (replica.manual or self._paused or replica.lane.outbox.full or replica.partition.idle)
            and not (recorder is not None and recorder.behind)
        )

    def hello(self) -> Outgoing:
        """The first message to a broker: what runs here."""
        prepared = self.replica.prepared[1].rollout if self.replica.prepared is not None else 0
        message = Hello(
            role="worker",
            rollout=self.replica.rollout,
            prepared=prepared,
            problem=self.problem,
            recovered=self.replica.lane.unconfirmed,
        )
        return make_outgoing(BROKER, message, self.replica.lane.header("Hello"))

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        if self.over:
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
            sends = self.replica.take(incoming, now)
            if incoming.header.kind == "Schedule":
                self.cycles.observe(self.stopwatch() - began_s)
            self._write(incoming, now)
        if self.recorder is None:
            return sends
        return self.recorder.passed(sends, now, more=self.deadline <= now)  # a tick follows, with decisions perhaps

    def tick(self, now: float) -> list[Outgoing]:
        """Let timers go off, then decide as much as the budget allows."""
        self._scheduled = False
        if self.over:
            return []
        free = self._state_questions.expired(now) if self._state_questions.deadline <= now else []
        if self._beat_at <= now:
            self._beat_at = now + self._heartbeat_s
            free.append(make_outgoing(BROKER, Heartbeat(), self.replica.lane.header("Heartbeat")))
        partition = self.replica.partition
        if partition is None or self.replica.lane.unconfirmed:
            return [*free, *self._passed([], now)]
        sends: list[Outgoing] = []
        budget = BUDGET_DECISIONS if self._decides else 0
        if budget or partition.next_change <= now:
            sends += self.replica.pass_by(now, budget)
            self._scheduled = budget > 0
            self._write_time(now, budget)
        elif partition.auditor.deadline <= now:
            self.replica.noted(partition.audit(now))
        sends += self._pushed(now)
        return [*free, *self._passed(sends, now)]

    def _pushed(self, now: float) -> list[Outgoing]:
        """Events for an RM that wants them and is there, if it is time."""
        replica = self.replica
        if EVENTS not in replica.capabilities or self._paused:
            self._push.deadline = NEVER
            return []
        self._push.look(replica.events, now)
        if not self._push.due(now):
            return []
        batch = self._push.batch(replica.events, replica.extra.event_request_capacity, replica.lane.outbox)
        return [] if batch is None else [make_outgoing(BROKER, batch, replica.lane.header("EventResponse"))]

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
            self.replica.note_poison(why, now)
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
                return self.replica.lane.refusal(header, "poison", why)
            case "PrepareConfig":
                vote = ConfigVote(rollout=decoded(PrepareConfig, incoming.body).rollout, reason=why)
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
        self.replica.warnings.append(f"a message from {incoming.source} cannot be read: {problem}")
        return []

    def _answered(self, incoming: Incoming) -> list[Outgoing] | None:
        """What is said to a message that changes nothing here or may not; None for one that has to be taken."""
        header = incoming.header
        kind = header.kind
        if self.replica.lane.unconfirmed and (kind in _WAIT or kind == "Ack"):
            problem = self.replica.lane.lost(header)
            if problem or kind in _WAIT:
                return self._begins_anew(problem) if problem else []
        if kind in NUMBERED:
            return self._untimely(header) if self.replica.lane.admits(header) else []
        if kind == "PredicatesAnswered":
            same = header.life == self.replica.lane.life
            return None if same and self.replica.lane.admits(header) else []
        if kind in _ORDERS or (kind == "GroupsFound" and incoming.source == GROUPS):
            return None
        if kind in _ACTIONS:
            return self._not_now(header)
        return self._aside(incoming)

    def _aside(self, incoming: Incoming) -> list[Outgoing]:
        """What the replica does not hear of."""
        header, replica = incoming.header, self.replica
        match header.kind:
            case "Ack":
                return replica.retired() if replica.lane.admits(header) else []
            case "StateDumpAnswered":
                return self._state_questions.heard(replica.lane, incoming)
            case "Repeat":
                return self._repeat(header, decoded(Repeat, incoming.body))
            case "Pause":
                self._paused = True
                return []
            case "Heartbeat":
                return self._beaten(decoded(Heartbeat, incoming.body))
        replica.notes.append(f"{header.kind} from {incoming.source} is not for a worker")
        return []

    def _beaten(self, beat: Heartbeat) -> list[Outgoing]:
        """The broker lives. One that does not say which it is has not heard our Hello: it began anew since."""
        waits = self.recorder is not None and self.recorder.holds("Hello")
        return [] if beat.incarnation or waits else [self.hello()]

    def _untimely(self, header: Header) -> list[Outgoing] | None:
        """What a command is answered that is not to be taken now; None for one that is."""
        answer = self.replica.lane.untimely(header)
        if answer is None:
            self._missing, self._resumed_in_vain = False, 0
        elif header.seq > self.replica.lane.inbox.last + 1 and not self.replica.lane.crowded:
            self._missing = True
        return answer

    def _repeat(self, header: Header, repeat: Repeat) -> list[Outgoing]:
        """The RM is back after a break: it says what it has, and gets the rest again."""
        lane = self.replica.lane
        if header.session != lane.session:
            return []
        self._resumed_in_vain += self._missing
        self._missing = False
        problem = lane.lost(header, repeat.acknowledged)
        if not problem and self._resumed_in_vain >= RESUMED_IN_VAIN_MAX:
            problem = f"the resource manager does not send the commands after {lane.inbox.last} again"
        if problem:
            return self._begins_anew(problem)
        lookups = self.replica.lookups() if lane.unconfirmed else []
        lane.confirm()
        self._paused = False
        if header.life == lane.life:
            lane.outbox.acknowledge(header.ack)
        if self.recorder is not None:
            self.recorder.superseded()
        return [*lane.again(), *self.replica.retired(), *lookups]

    def _begins_anew(self, problem: str) -> list[Outgoing]:
        """Tell the broker that this is not what the RM knows: the journal has lost its end, or was replaced.

        Logged once, as the RM may say it as often as it likes until the partition has begun anew.
        """
        if not self.problem:
            self.problem = problem
            self.replica.warnings.append(problem)
        self._paused = True
        return [self.hello()]

    def _not_now(self, header: Header) -> list[Outgoing] | None:
        """Why nothing is done for an administrator, or None if it can be."""
        lane = self.replica.lane
        if self.replica.partition is None:
            reason = "the partition is starting"
        elif lane.unconfirmed:
            reason = "the partition was started again, and waits for the resource manager to resume its session"
        elif lane.crowded or (header.kind == "Schedule" and lane.outbox.full):
            reason = f"the resource manager has {len(lane.outbox)} messages to acknowledge before it is told more"
        else:
            return None
        return [make_outgoing(BROKER, Answer(status=503, body=reason.encode()), self._reply(header))]

    def _queried(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """The answer at once, as somebody may want to know why nothing becomes durable; or a question to the RM."""
        query, reply, replica = decoded(Query, incoming.body), self._reply(incoming.header), self.replica
        problem = self.recorder.problem if self.recorder is not None else ""
        if query.what == "rm-state" and replica.partition is not None:
            obstacle = f"the resource manager is not asked while nothing becomes durable: {problem}" if problem else ""
            if self._paused:
                obstacle = "the resource manager is away"
            asked = self._state_questions.ask(replica.lane, replica.capabilities, reply, now, obstacle=obstacle)
            return [asked] if asked.header is reply else self._passed([asked], now)
        began_s = self.stopwatch()
        with garbage.none_expected():
            answer = queries.answer_query(
                replica,
                query,
                now,
                cycles=self.cycles,
                recorder=self.recorder,
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
        assert self.recorder is not None
        return encode_snapshot(self.replica, self.recorder.last)

    def recover(self, snapshot: bytes | None, steps: Iterable[Step]) -> None:
        """Be as the worker was that wrote this. Until the RM has resumed nothing is decided and time does not pass: if
        the journal is older than what the RM has received, other news would get the same numbers.

        Raises:
            recorder.Diverged, remembered.SnapshotInvalid: as in `recovery.py`.
        """
        assert self.recorder is not None
        assert not self.recorder.last, "a worker recovers before anything else"
        replica = self.replica
        last = recover(replica, snapshot, steps)
        self.recorder = OutboxBarrier(last)
        self._paused = last > 0
        if last:
            replica.lane.hold()
        for lines in (replica.notes, replica.announcements, replica.warnings):
            lines.clear()

    def leave(self, now: float) -> list[Outgoing]:
        """The process is asked to end: a snapshot, so that whoever comes next, of another release perhaps, has nothing
        to play again; unless nobody comes, as all has been said of a partition that has ended.
        """
        replica = self.replica
        if self.recorder is None or replica.partition is None or self.over or replica.retired():
            return []
        return [*self.recorder.flushed(), *self.recorder.snapshot(now)]

    def _passed(self, sends: list[Outgoing], now: float) -> list[Outgoing]:
        return sends if self.recorder is None else self.recorder.passed(sends, now)

    def _write(self, incoming: Incoming, now: float) -> None:
        """Note what was taken. What begins a partition is noted with what it was prepared from, and needs nothing
        before it.
        """
        replica = self.replica
        told, began_from, replica.began_from = replica.lane.taken(), replica.began_from, None
        if began_from is not None:
            self.problem, self._missing, self._resumed_in_vain = "", False, 0
            self._paused = False  # who registers is there; the broker says so if not
        if self.recorder is None:
            return
        if began_from is not None:
            header, config = began_from
            self.recorder.note(at=now, source=BROKER, header=header, body=body_of(config), fresh=True)
        self.recorder.note(
            at=now,
            source=incoming.source,
            header=incoming.header,
            body=incoming.body,
            told=told,
            acknowledged=replica.lane.outbox.acknowledged,
        )

    def _write_time(self, now: float, budget: int) -> None:
        lane = self.replica.lane
        told = lane.taken()
        if self.recorder is not None:
            self.recorder.note(at=now, budget=budget, told=told, acknowledged=lane.outbox.acknowledged)

    def _from_journal(self, incoming: Incoming, now: float) -> list[Outgoing]:
        recorder, replica = self.recorder, self.replica
        assert recorder is not None
        match incoming.header.kind:
            case "Kept":
                if recorder.problem:
                    replica.announcements.append("the journal can be written again, and results are sent")
                return recorder.heard_kept(decoded(Kept, incoming.body))
            case "NotKept":
                message = decoded(NotKept, incoming.body)
                sends = recorder.heard_not_kept(message, now)
                hope = "" if message.fenced else "; this is tried again each second"
                replica.warnings.append(
                    f"no results are sent, as the journal cannot be written: {message.problem}{hope}"
                )
                if message.fenced:
                    self.over = f"{self.name}: {message.problem}"
                return sends
            case "SnapshotTaken":
                taken = decoded(SnapshotTaken, incoming.body)
                recorder.heard_snapshot(now)
                if taken.problem:
                    replica.warnings.append(f"no snapshot after step {taken.number}: {taken.problem}")
        return []
