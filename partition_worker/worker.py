"""The worker's machines: `IdleWorker` waits for a partition; `Worker` decides which messages are applied when, and what
is written to the journal and sent because of them.

A message that changes the partition is applied by the host (`partition_host.py`) if it is the RM's next one. So is
time, as soon as an ask may be placed and the RM has acknowledged enough. Each such input becomes a step of the journal,
and the messages that follow from it are held until the step is durable (`OutboxBarrier` in `rm_channel.py`).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from yunishard.common.messages import wire
from yunishard.common.messages.control_messages import ConfigVote, Hello, PrepareConfig, Repeat, Repeated
from yunishard.common.messages.journal_messages import TICK, Kept, NotKept, SnapshotTaken, Step
from yunishard.common.messages.kinds import Command, Header
from yunishard.common.messages.query_messages import WORKER_CHANGES, Answer, ProcessHealth, Query
from yunishard.common.messages.reasons import Reason
from yunishard.common.messages.rm_messages import EVENTS, NUMBERED, Heartbeat
from yunishard.common.messages.wire import NEVER, Incoming, Outgoing, WireError, decode_body, make_outgoing
from yunishard.common.names import BROKER, JOURNAL, LOCAL_HOST, PLANNER
from yunishard.common.process import gc_tuning
from yunishard.common.process.metrics import Family, Histogram, encode_families
from yunishard.partition_worker import metrics, partition_host, queries, rm_channel
from yunishard.partition_worker.engine.allocation import AskGroup
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.predicates.results import Results
from yunishard.partition_worker.event_ring_buffer import EventPush
from yunishard.partition_worker.partition_host import GROUPS, PartitionHost
from yunishard.partition_worker.plan_requests import PLAN, PlanRequests
from yunishard.partition_worker.recovery import encode_snapshot, recover
from yunishard.partition_worker.rm_channel import OutboxBarrier

BUDGET_DECISIONS: Final = 512
"""Decisions between two reads of the inbox: a few milliseconds, so that releases and queries need not wait."""

COLLECT_AFTER: Final = 1_024
"""Failed attempts, decisions, and units of 256 bytes received, each of which leaves up to twenty objects behind. After
so many the garbage collector visits these objects, in at most 5 ms.
"""

RESUMED_IN_VAIN_MAX: Final = 8
"""Number of times in a row that an RM may resume without sending the command that is missing here. Then that command is
lost (an RM that does not set `Resume.acknowledged` dropped it once it was acknowledged), and the partition restarts.
"""

_QUESTIONS: Final = WORKER_CHANGES | {"Query"}
"""Kinds that are answered with an `Answer`."""

_REFUSABLE: Final = NUMBERED.keys() | _QUESTIONS | {"PredicatesAnswered", "PrepareConfig"}
"""Kinds that can be quarantined. The worker cannot continue without the others, which restore what runs already."""

_WAIT: Final = NUMBERED.keys() | {"PredicatesAnswered", "GroupsFound"}
"""Kinds that a recovered worker drops until the RM has resumed: then the RM sends its commands again, and the worker
repeats its own requests.
"""

_ORDERS: Final = frozenset({"PrepareConfig", "CommitConfig", "AbortConfig", "RetirePartition", "Settings"})
"""Messages of the broker that the host applies."""


class IdleWorker:
    """The machine of a worker process until the broker grants it a partition. Messages after that are for the `Worker`;
    what is lost of them is repeated once that has sent Hello.
    """

    def __init__(self, hello: Hello, *, heartbeat_s: float) -> None:
        self._hello = hello
        self._heartbeat_s = heartbeat_s
        self.deadline = 0.0
        """When the next heartbeat is due; Hello is sent in place of the first one."""
        self.granted: list[Header] = []
        """The header of the grant: partition and epoch."""

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        header = incoming.header
        if header.kind == "Grant" and not self.granted:
            self.granted.append(header)
        # A broker without an incarnation has restarted and not received our Hello.
        unknown = header.kind == "Heartbeat" and not decode_body(Heartbeat, incoming.body).incarnation
        return [make_outgoing(BROKER, self._hello)] if unknown or header.kind == wire.LINK_LOST else []

    def tick(self, now: float) -> list[Outgoing]:
        message = Heartbeat() if self.deadline else self._hello
        self.deadline = now + self._heartbeat_s
        return [make_outgoing(BROKER, message)]


class Worker:
    """The machine of a worker process with a partition.

    Once `fatal_error` is set, the process has to end: the messages of this worker count no more.
    """

    def __init__(
        self,
        host: PartitionHost,
        *,
        host_name: str = LOCAL_HOST,
        journalled: bool = False,
        heartbeat_s: float = NEVER,
        attempts: partition_host.Attempts | None = None,
    ) -> None:
        """`host_name` is that of the machine that it runs on."""
        self.host, self.name = host, host.name
        self._host_name = host_name
        self.barrier = OutboxBarrier(journalled=journalled)
        self.attempts = attempts or partition_host.Attempts()
        self.poisons: list[partition_host.QuarantinedMessage] = []
        """Quarantined messages that the service has not written to files yet."""
        is_cautious = self.attempts.count_deaths(partition_host.TURN) > 0
        self._cautious_turns = partition_host.CAUTIOUS_TURNS if is_cautious else 0
        """Further turns in which each attempt is marked."""
        self._deadly: dict[bytes, AskGroup] = {}
        """Asks of which a turn made no attempt, as earlier ones have ended too many workers."""
        self._quarantined: dict[bytes, None] = {}
        """The identities of all of them; not more than the attempts file has."""
        self.problem = ""
        """Why the journal could not be used, or has lost data; reported in `Hello`."""
        self.fatal_error = ""
        self.is_removed = False
        """Whether the partition has ended, so that the journal is deleted when the process stops."""
        self.cycles = Histogram()
        """Durations of scheduling cycles."""
        self.report_health: Callable[[], ProcessHealth] = ProcessHealth
        """Returns the problems of the process; set by the service, as are the next ones."""
        self.process_families: Callable[[], list[Family]] = list
        """Returns the metrics of the process and its journal."""
        self.timer: Callable[[], float] = float
        """Returns seconds, for the durations of scheduling cycles."""
        self.cpu_timer: Callable[[], float] = float
        """Returns processor seconds, for the cost of answers: it does not grow with the load of the machine."""
        self._sample_cache = metrics.SampleCache()
        self._push = EventPush()
        self._state_dumps = queries.StateDumpRequests()
        self._plans = PlanRequests()
        self._large: deque[tuple[str, queries.LargeAnswer, Answer, float]] = deque()
        """Answers that take several turns, one after the other: the `ref` of the query, its status and version, and the
        processor seconds so far.
        """
        self._uncollected = 0.0
        """Work since the garbage collector ran, as in COLLECT_AFTER."""
        self._paused = False
        """Whether the RM is disconnected, or has not resumed yet."""
        self._heartbeat_s = heartbeat_s
        self._heartbeat_at = NEVER if heartbeat_s == NEVER else 0.0
        self._command_missing = False
        """Whether a command was refused since the RM's last resumption, as one before it was missing."""
        self._resumed_in_vain = 0
        """Number of times in a row that the RM has resumed and a command was still missing."""

    @property
    def partition(self) -> Partition | None:
        return self.host.partition

    @property
    def deadline(self) -> float:
        if self.fatal_error:
            return NEVER
        if self.barrier.urgent or self._large:
            return 0.0
        partition = self.host.partition
        due = min(self._heartbeat_at, self._state_dumps.deadline)
        if partition is None or self.host.channel.suspended:
            return due
        return min(due, self._push.deadline, partition.deadline if self._may_schedule else partition.next_timer)

    @property
    def _may_schedule(self) -> bool:
        host = self.host
        return (
            host.partition is not None
            and not (host.manual or self._paused or host.channel.outbox.is_full or host.partition.idle)
            and self.barrier.pending_bytes < rm_channel.UNKEPT_BYTES_MAX
        )

    def _find_stalls(self) -> list[Reason]:
        """Return why nothing is decided now, apart from the reasons of the partition itself."""
        found = []
        if self._paused or self.host.channel.suspended:
            found.append(Reason.RM_AWAY)
        if self.host.channel.outbox.is_full:
            found.append(Reason.RESULTS_UNACKNOWLEDGED)
        if self.barrier.pending_bytes >= rm_channel.UNKEPT_BYTES_MAX:
            found.append(Reason.JOURNAL_BEHIND)
        if self.host.manual:
            found.append(Reason.MANUAL_SCHEDULING)
        return found

    def make_hello(self) -> Outgoing:
        """Build the first message to a broker, which describes the worker's state."""
        session = self.host.session
        message = Hello(
            role="worker",
            host=self._host_name,
            rollout=session.rollout,
            prepared=session.prepared[1].rollout if session.prepared is not None else 0,
            problem=self.problem,
            recovered=self.host.channel.suspended,
        )
        return self.host.channel.send_unnumbered(message)

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        if self.fatal_error:
            return []
        self._count_new(len(incoming.body) / 256)
        if incoming.source == JOURNAL:
            return self._handle_journal(incoming, now)
        if incoming.source == PLANNER:
            return self._plans.finish(self.host, incoming)
        try:
            sends = self._handle_message(incoming, now)
        except WireError as error:
            sends = []
            if incoming.header.kind in _QUESTIONS:
                sends = [self._make_answer(incoming.header, 400, str(error))]
            else:
                self.host.warnings.append(f"a message from {incoming.source} cannot be read: {error}")
        self.attempts.end_attempt()  # any other exception ends the process, and counts as a failed attempt
        return sends

    def _handle_message(self, incoming: Incoming, now: float) -> list[Outgoing]:
        if incoming.header.kind == "Query":
            why = self._begin_attempt(incoming, now)
            return [self._reject_quarantined(incoming, why)] if why else self._answer_query(incoming, now)
        sends = self._handle_unchanging(incoming)
        if sends is None:
            why = self._begin_attempt(incoming, now)
            if why and incoming.header.kind not in NUMBERED:
                return self.barrier.hold_or_send([self._reject_quarantined(incoming, why)], now)
            began_s = self.timer()
            if why:
                command = self._decode_quarantined(incoming)
                sends = self.host.reject_quarantined(incoming.header, command, why, now)
            else:
                sends = self.host.apply(incoming, now)
            if incoming.header.kind == "Schedule":
                self.cycles.observe(self.timer() - began_s)
            self._record_step(incoming.header.kind, now, has_number=incoming.header.seq > 0)
        return self.barrier.hold_or_send(sends, now, more=self.deadline <= now)  # a tick follows, maybe with decisions

    def tick(self, now: float) -> list[Outgoing]:
        """Run the timers that are due, then decide as much as the budget allows."""
        if self.fatal_error:
            return []
        began_s = self.timer()
        free = self._state_dumps.expire(self.host, now) if self._state_dumps.deadline <= now else []
        if self._heartbeat_at <= now:
            self._heartbeat_at = now + self._heartbeat_s
            free.append(self.host.channel.send_unnumbered(Heartbeat()))
        if self._large:
            free += self._continue_large_answer()
        partition = self.host.partition
        if partition is None or self.host.channel.suspended:
            return [*free, *self.barrier.hold_or_send([], now)]
        sends: list[Outgoing] = []
        budget = BUDGET_DECISIONS if self._may_schedule else 0
        if budget or partition.next_change <= now:
            sends += self._run_turn(partition, now, budget)
            self._record_step(TICK, now)
        elif partition.auditor.deadline <= now:
            self.host.record_effects(partition.audit(now))
        sends += self._push_events(now)
        sends = [*free, *self.barrier.hold_or_send(sends, now)]
        if budget:
            self.cycles.observe(self.timer() - began_s)
        return sends

    def _count_new(self, work: float) -> None:
        """Let the garbage collector visit new objects after COLLECT_AFTER of such work."""
        self._uncollected += work
        if self._uncollected >= COLLECT_AFTER:
            self._uncollected = 0.0
            gc_tuning.collect_new()

    def _run_turn(self, partition: Partition, now: float, budget: int) -> list[Outgoing]:
        """Run timers and decide, marked as an attempt; reject the asks that have ended too many workers."""
        table = partition.nodes.predicates.table
        table.watch, table.is_cautious = self._watch_asks, self._cautious_turns > 0
        self.attempts.begin_attempt(partition_host.TURN)
        sends = self.host.advance(now, budget)
        self._count_new(partition.work_of_step)
        self.attempts.pause_attempt()
        table.watch, table.is_cautious = None, False
        self._cautious_turns = max(0, self._cautious_turns - (budget > 0))
        deadly = [group for group in self._deadly.values() if len(group)]
        self._deadly.clear()
        return [*sends, *self.host.set_aside_asks(deadly, now)] if deadly else sends

    def _watch_asks(self, group: AskGroup | None, results: Results | None) -> bool:
        """Mark the asks of which an attempt begins; None when it has ended. Returns whether they are deadly."""
        if group is None:
            self.attempts.begin_attempt(partition_host.TURN)
            return False
        identity = partition_host.identify_ask(group.head)
        is_deadly = results is not None and results.is_deadly
        if is_deadly or self.attempts.count_deaths(identity) >= partition_host.ATTEMPTS_MAX:
            self._deadly[identity] = group
            return True
        self.attempts.begin_attempt(identity)
        return False

    def _push_events(self, now: float) -> list[Outgoing]:
        """Send new events to an RM that is connected and has the capability, if a batch is due."""
        host = self.host
        if EVENTS not in host.session.capabilities or self._paused:
            self._push.deadline = NEVER
            return []
        batch = self._push.collect_due(host.events, host.extra.event_request_capacity, host.channel.outbox, now)
        return [] if batch is None else [host.channel.send_unnumbered(batch)]

    # Poison messages ------------------------------------------------------------------------------------------------

    def _begin_attempt(self, incoming: Incoming, now: float) -> str:
        """Mark the message as being handled; or return why it is quarantined instead."""
        header, body = incoming.header, incoming.body
        if header.kind not in _REFUSABLE:
            return ""
        identity = partition_host.identify_message(header.kind, body)
        if self.attempts.count_deaths(identity) < partition_host.ATTEMPTS_MAX:
            self.attempts.begin_attempt(identity)
            return ""
        why = partition_host.describe_reason(header, body, self.name)
        if identity not in self._quarantined:
            self._quarantined[identity] = None
            message = partition_host.ReceivedMessage(0, now, incoming.source, header, body)
            self.poisons.append(partition_host.QuarantinedMessage(why, message))
        self.host.note_poison(why, now)
        return why

    def _decode_quarantined(self, incoming: Incoming) -> Command | None:
        """Decode a quarantined command; None if it is malformed. Decoding it may be what ended the workers, so that is
        an attempt of its own, and is left out after as many deaths.
        """
        identity = partition_host.identify_message("quarantined", incoming.body)
        if self.attempts.count_deaths(identity) >= partition_host.ATTEMPTS_MAX:
            return None
        self.attempts.begin_attempt(identity)
        with suppress(WireError):
            return partition_host.decode_command(incoming.header.kind, incoming.body)
        return None

    def _reject_quarantined(self, incoming: Incoming, why: str) -> Outgoing:
        """Answer a quarantined message that is not a command."""
        header = incoming.header
        match header.kind:
            case "PredicatesAnswered":
                return self.host.channel.refuse(header, "poison", why)
            case "PrepareConfig":
                vote = ConfigVote(rollout=decode_body(PrepareConfig, incoming.body).rollout, reason=why)
                return self.host.make_reply(vote, rm=header.rm)
        return self._make_answer(header, 500, why)

    # Messages that change nothing -----------------------------------------------------------------------------------

    def _handle_unchanging(self, incoming: Incoming) -> list[Outgoing] | None:
        """Handle a message that does not change the partition, or must not now; None for one that is to be applied."""
        header, channel = incoming.header, self.host.channel
        kind = header.kind
        if channel.suspended and (kind in _WAIT or kind == "Ack"):
            problem = channel.find_loss(header)
            if problem or kind in _WAIT:
                return self._report_loss(problem) if problem else []
        if kind in NUMBERED:
            return self._check_order(header) if channel.accept(header) else []
        if kind == "PredicatesAnswered":
            return None if header.life == channel.life and channel.accept(header) else []
        if kind in _ORDERS or (kind == "GroupsFound" and incoming.source == GROUPS):
            return None
        if kind in WORKER_CHANGES:
            return self._defer_action(header)
        return self._handle_control(incoming)

    def _handle_control(self, incoming: Incoming) -> list[Outgoing]:
        header, host = incoming.header, self.host
        match header.kind:
            case "Ack":
                return host.report_retired() if host.channel.accept(header) else []
            case "StateDumpAnswered":
                return self._state_dumps.handle_answer(host, incoming)
            case "Repeat":
                return self._resume(header, decode_body(Repeat, incoming.body))
            case "Pause":
                self._paused = True
                return []
            case "PartitionRemoved" if header.partition == self.name:
                self.is_removed = True
                return []
            case "Heartbeat":
                # A broker without an incarnation has restarted and not received our Hello.
                return [] if decode_body(Heartbeat, incoming.body).incarnation else self._greet()
            case wire.LINK_LOST:
                return self._greet()
        if header.kind != "Grant":  # a repeated one
            host.notes.append(f"{header.kind} from {incoming.source} is not for a worker")
        return []

    def _greet(self) -> list[Outgoing]:
        """Send Hello, unless one waits until something is durable."""
        return [] if any(one.header.kind == "Hello" for _, one in self.barrier.held) else [self.make_hello()]

    def _check_order(self, header: Header) -> list[Outgoing] | None:
        """Answer a command that must not be applied now; None for one that is next."""
        channel = self.host.channel
        answer = channel.check_order(header)
        if answer is None:
            self._command_missing, self._resumed_in_vain = False, 0
        elif header.seq > channel.received + 1 and not channel.backlog_full:
            self._command_missing = True
        return answer

    def _resume(self, header: Header, repeat: Repeat) -> list[Outgoing]:
        """The RM has resumed: compare what both sides have received, and retransmit the rest."""
        channel = self.host.channel
        begin = [self.host.make_reply(Repeated(), rm=header.rm, ref=header.ref)] if header.ref else []
        if header.session != channel.session or header.life > channel.life:
            return begin  # the journal is from an earlier generation: the broker starts the present one
        self._resumed_in_vain += self._command_missing
        self._command_missing = False
        problem = channel.find_loss(header, repeat.acknowledged)
        if not problem and self._resumed_in_vain >= RESUMED_IN_VAIN_MAX:
            problem = f"the resource manager does not send the commands after {channel.received} again"
        if problem:
            return self._report_loss(problem)
        lookups = self.host.request_lookups() if channel.suspended else []
        channel.suspended_after = None
        self._paused = False
        if header.life == channel.life:
            channel.outbox.acknowledge(header.ack)
        self.barrier.drop_superseded()
        return [*begin, *channel.retransmit(), *self.host.report_retired(), *lookups]

    def _report_loss(self, problem: str) -> list[Outgoing]:
        """Report to the broker that the journal was replaced or has lost its end, so the partition must restart. Logged
        once, as the RM may repeat its message until then.
        """
        if not self.problem:
            self.problem = problem
            self.host.warnings.append(problem)
        self._paused = True
        channel = self.host.channel
        if not channel.suspended:  # further messages would get numbers that the RM has received with other contents
            channel.suspended_after = channel.outbox.last
        return [self.make_hello()]

    def _defer_action(self, header: Header) -> list[Outgoing] | None:
        """Answer an administrator's request that cannot be carried out now; None for one that can."""
        channel = self.host.channel
        if self.host.partition is None:
            reason = "the partition is starting"
        elif channel.suspended:
            reason = "the partition was started again, and waits for the resource manager to resume its session"
        elif channel.backlog_full or (header.kind == "Schedule" and channel.outbox.is_full):
            reason = f"the resource manager has {len(channel.outbox)} messages to acknowledge before more is sent"
        else:
            return None
        return [self._make_answer(header, 503, reason)]

    def _answer_query(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """Answer a query at once, also while nothing becomes durable; or request the RM's state dump, or a plan."""
        query, host, problem = decode_body(Query, incoming.body), self.host, self.barrier.problem
        ref = incoming.header.ref
        if query.what == "rm-state" and host.partition is not None:
            obstacle = f"the resource manager is not asked while nothing becomes durable: {problem}" if problem else ""
            if self._paused:
                obstacle = "the resource manager is away"
            found = self._state_dumps.request(host, ref, now, obstacle=obstacle)
            return [found] if found.header.kind == "Answer" else self.barrier.hold_or_send([found], now)

        if query.what == PLAN and host.partition is not None:
            return self._plans.request(host, host.partition, query, ref, now, self._find_stalls())

        def encode_metrics(partition: Partition) -> bytes:
            yunikorn = metrics.collect_yunikorn_families(partition, self.cycles, self._sample_cache)
            own = metrics.collect_worker_families(host, partition, self.cycles, self.barrier, now)
            return encode_families([*yunikorn, *own, *self.process_families()])

        began_s, large = self.cpu_timer(), list[queries.LargeAnswer]()
        with gc_tuning.pause_collector():
            answer = queries.answer_query(
                host,
                query,
                now,
                journal_problem=problem,
                stalls=self._find_stalls(),
                report_health=self.report_health,
                encode_metrics=encode_metrics,
                large=large,
            )
        took_s = self.cpu_timer() - began_s
        if large:
            self._large.append((ref, large[0], answer, took_s))
            return []
        return [host.make_reply(replace(answer, took_micro_seconds=round(took_s * 1e6)), ref=ref)]

    def _continue_large_answer(self) -> list[Outgoing]:
        """Encode a part of the oldest large answer; return the message once it is complete. Its version is that of the
        query: the answer may be newer, but no older answer has it.
        """
        ref, large, head, took_s = self._large.popleft()
        began_s = self.cpu_timer()
        is_complete = large.advance()
        took_s += self.cpu_timer() - began_s
        if not is_complete:
            self._large.appendleft((ref, large, head, took_s))
            return []
        return [large.finish(self.host, ref, replace(head, took_micro_seconds=round(took_s * 1e6)))]

    def _make_answer(self, header: Header, status: int, reason: str) -> Outgoing:
        return self.host.make_reply(Answer(status=status, body=reason.encode(errors="replace")), ref=header.ref)

    # The journal ----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Iterator[bytes]:
        """Encode everything that a recovery needs, as a stream of bytes."""
        return encode_snapshot(self.host, self.barrier.last)

    def recover(self, snapshot: Iterable[bytes] | None, steps: Iterable[Step]) -> int:
        """Restore the state of the worker that wrote this, and return the number of the latest step. Until the RM has
        resumed, time stands still: if the journal is older than what the RM has received, other messages would get the
        same numbers.

        Raises:
            JournalDamaged: as `recovery.recover`.
        """
        assert not self.barrier.last, "a worker recovers before anything else"
        recovery = recover(self.host, snapshot, steps)
        last = recovery.last
        self.barrier = OutboxBarrier(last, journalled=self.barrier.journalled, step_bytes=recovery.step_bytes)
        self._paused = last > 0
        if last:
            self.host.channel.suspended_after = self.host.channel.outbox.last
        for pending in (self.host.notes, self.host.announcements, self.host.warnings, self.host.new_settings):
            pending.clear()
        return last

    def stop(self, now: float) -> list[Outgoing]:
        """End the process with a snapshot, so that the next worker, maybe of another release, recovers fast. None is
        taken of a partition that has ended.
        """
        host = self.host
        is_over = bool(self.fatal_error) or self.is_removed or bool(host.report_retired())
        if not self.barrier.journalled or host.partition is None or is_over:
            return []
        return [*self.barrier.flush(), *self.barrier.request_snapshot(now)]

    def _record_step(self, kind: str, now: float, *, has_number: bool = False) -> None:
        """Record what an input of this kind changed, if anything. The start of a partition needs no earlier step."""
        host, barrier = self.host, self.barrier
        fresh, host.is_fresh = host.is_fresh, False
        if fresh:
            self.problem, self._command_missing, self._resumed_in_vain = "", False, 0
            self._paused = False  # an RM that registers is connected; if not, the broker reports it
        if not barrier.journalled:
            host.discard_changes()
            return
        step = host.build_step(barrier.last + 1, kind, now, with_session=kind in _ORDERS, is_needed=has_number)
        if step is not None:
            barrier.record_step(step, fresh=fresh)

    def _handle_journal(self, incoming: Incoming, now: float) -> list[Outgoing]:
        barrier, host = self.barrier, self.host
        match incoming.header.kind:
            case "Kept":
                if barrier.problem:
                    host.announcements.append("the journal can be written again, and results are sent")
                return barrier.handle_kept(decode_body(Kept, incoming.body))
            case "NotKept":
                message = decode_body(NotKept, incoming.body)
                sends = barrier.handle_not_kept(message, now)
                retry = "" if message.fenced else "; this is tried again each second"
                host.warnings.append(f"no results are sent, as the journal cannot be written: {message.problem}{retry}")
                if message.fenced:
                    self.fatal_error = f"{self.name}: {message.problem}"
                return sends
            case "SnapshotTaken":
                taken = decode_body(SnapshotTaken, incoming.body)
                barrier.handle_snapshot_taken(now)
                if taken.problem:
                    host.warnings.append(f"no snapshot after step {taken.number}: {taken.problem}")
        return []
