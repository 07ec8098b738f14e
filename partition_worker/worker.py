"""The worker's machine: messages to the engine, effects to news, and the lanes to the RM.

    empty --PrepareConfig--> prepared --CommitConfig--> running       (PrepareConfig and CommitConfig again: from empty)
                                |-----AbortConfig-----> as before

A running worker takes the commands of its RM's session in order, once each, and schedules whenever something may be
placed and the RM has acknowledged enough of what it was told. Not here: decisions (the engine), sockets.
"""

from typing import Final

from common.config.check import load_problems
from common.machine import NEVER, Delivery, Send, send
from common.messages import (
    UPDATES,
    Answer,
    CommitConfig,
    ConfigVote,
    Header,
    Hello,
    News,
    PrepareConfig,
    Query,
    Received,
    Refused,
)
from common.names import BROKER
from common.outbox import BACKLOG_MAX_MESSAGES, Arrival, Inbox, Outbox
from common.wire import BODY_BYTES_MAX, WireError, body_of, decoded
from partition_worker import news, queries
from partition_worker.engine.effects import Effect
from partition_worker.engine.partition import Partition
from partition_worker.histogram import Histogram

BUDGET_DECISIONS: Final = 256
"""Decisions made between two looks at the inbox: a few milliseconds, so that releases and questions need not wait."""

ANSWER_BYTES_MAX: Final = BODY_BYTES_MAX - 1024
"""The document in an answer, so that the message stays within its limit."""


class Worker:
    """Everything a worker decides. `notes` and `warnings` are for the log, from where the shell takes them; the shell,
    which has the clock, also says how long each tick `took`.
    """

    def __init__(self, *, partition: str, epoch: int) -> None:
        self.name = partition
        self.epoch = epoch
        self.partition: Partition | None = None
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self.cycles = Histogram()
        """Ticks in which something was to be decided."""
        self._scheduled = False
        self._rm = ""
        self._session = ""
        self._life = 0
        self._prepared: tuple[Header, PrepareConfig] | None = None
        self._inbox = Inbox()
        self._outbox = Outbox()

    @property
    def deadline(self) -> float:
        if self.partition is None:
            return NEVER
        if self._outbox.full and not self.partition.idle:
            return self.partition.next_timer
        return self.partition.deadline

    def hello(self) -> Send:
        """The first message to the broker."""
        return send(BROKER, Hello(role="worker"), Header(kind="Hello", partition=self.name, epoch=self.epoch))

    def handle(self, delivery: Delivery, now: float) -> list[Send]:
        header = delivery.header
        if header.kind in UPDATES:
            return self._command(delivery, now)
        match header.kind:
            case "Ack":
                if header.session == self._session and header.life == self._life:
                    self._outbox.acknowledge(header.ack)
                return []
            case "Query":
                return [self._answer(delivery, now)]
            case "PrepareConfig":
                return [self._prepare(delivery)]
            case "CommitConfig":
                self._commit(decoded(CommitConfig, delivery.body).rollout, now)
                return []
            case "AbortConfig":
                self._prepared = None
                return []
            case "Repeat":
                return self._repeat(header)
        self.notes.append(f"{header.kind} from {delivery.source} is not for a worker")
        return []

    def tick(self, now: float) -> list[Send]:
        """Let timers go off, then decide as much as the budget allows."""
        partition = self.partition
        self._scheduled = False
        if partition is None:
            return []
        sends = self._tell(list(news.messages(self._noted(partition.elapse(now)))))
        if not self._outbox.full and not partition.idle:
            effects = self._noted(partition.schedule(now, BUDGET_DECISIONS))
            sends += self._tell(list(news.messages(effects)))
            self._scheduled = True
        return sends

    def took(self, seconds: float) -> None:
        """So long the latest tick took."""
        if self._scheduled:
            self.cycles.observe(seconds)

    # Commands of the RM ---------------------------------------------------------------------------------------------

    def _command(self, delivery: Delivery, now: float) -> list[Send]:
        header = delivery.header
        if self.partition is None or header.session != self._session:
            return []
        if header.seq and header.life != self._life:
            return []  # sent before the RM heard that this partition began anew: it will report everything again
        self._outbox.acknowledge(header.ack if header.life == self._life else 0)
        if len(self._outbox) >= BACKLOG_MAX_MESSAGES:
            reason = f"{len(self._outbox)} messages wait to be acknowledged: acknowledge them before you send more"
            return [self._refusal(header, "window", reason)]
        if header.seq:
            match self._inbox.arrival(header.seq):
                case Arrival.SEEN:
                    return [self._received()]
                case Arrival.GAP:
                    reason = f"message {header.seq} came after {self._inbox.last}: resume to send what is missing"
                    return [self._refusal(header, "gap", reason)]
                case Arrival.NEXT:
                    self._inbox.took(header.seq)
        try:
            command = decoded(UPDATES[header.kind], delivery.body)
        except WireError as error:
            return [self._refusal(header, "malformed", str(error)), self._received()]
        effects = self._noted(self.partition.apply(command, now))
        return self._tell(list(news.messages(effects))) or [self._received()]

    def _tell(self, messages: list[News]) -> list[Send]:
        sends: list[Send] = []
        for message in messages:
            kind, body = type(message).__name__, body_of(message)
            sends.append(Send(BROKER, self._header(kind, self._outbox.add(kind, body)), body))
        return sends

    def _received(self) -> Send:
        return send(BROKER, Received(), self._header("Received", 0))

    def _refusal(self, header: Header, code: str, reason: str) -> Send:
        return send(BROKER, Refused(code=code, reason=reason, seq=header.seq), self._header("Refused", 0))

    def _repeat(self, header: Header) -> list[Send]:
        """The RM is back after a break: it says what it has, and gets the rest again."""
        if header.session != self._session:
            return []
        self._outbox.acknowledge(header.ack)
        again = [Send(BROKER, self._header(kind, seq), body) for seq, kind, body in self._outbox.unacknowledged()]
        return [self._received(), *again]

    def _header(self, kind: str, seq: int) -> Header:
        return Header(
            kind=kind,
            rm=self._rm,
            partition=self.name,
            session=self._session,
            seq=seq,
            ack=self._inbox.last,
            epoch=self.epoch,
            life=self._life,
        )

    def _noted(self, effects: list[Effect]) -> list[Effect]:
        self.notes += news.notes(effects)
        return effects

    # Configuration --------------------------------------------------------------------------------------------------

    def _prepare(self, delivery: Delivery) -> Send:
        """Vote: could this worker run the configuration?"""
        message = decoded(PrepareConfig, delivery.body)
        problems = load_problems(message.config)
        self._prepared = None if problems else (delivery.header, message)
        vote = ConfigVote(rollout=message.rollout, reason="; ".join(str(problem) for problem in problems))
        return send(
            BROKER, vote, Header(kind="ConfigVote", rm=delivery.header.rm, partition=self.name, epoch=self.epoch)
        )

    def _commit(self, rollout: int, now: float) -> None:
        """Begin anew with what was prepared. A worker that was started between vote and commit gets both again."""
        if self._prepared is None or self._prepared[1].rollout != rollout:
            self.notes.append(f"commit of roll-out {rollout}, which this worker has not prepared")
            return
        header, message = self._prepared
        self._prepared = None
        self._rm, self._session, self._life = header.rm, header.session, header.life
        self._inbox, self._outbox = Inbox(), Outbox()
        self.partition = Partition(message.config, name=self.name, now=now)
        if self.partition.placement_problem:
            problem = self.partition.placement_problem
            self.warnings.append(f"no placement rule is active, every application is rejected: {problem}")

    # Questions ------------------------------------------------------------------------------------------------------

    def _answer(self, delivery: Delivery, now: float) -> Send:
        header = Header(kind="Answer", partition=self.name, ref=delivery.header.ref, epoch=self.epoch)
        if self.partition is None:
            return send(BROKER, Answer(status=503, body=b"the partition is starting"), header)
        answer = queries.answer(self.partition, self._rm, decoded(Query, delivery.body), now, self.cycles)
        if len(answer.body) > ANSWER_BYTES_MAX:
            text = (
                f"the answer has {len(answer.body)} bytes, at most {ANSWER_BYTES_MAX} can be sent: ask for a part of it"
            )
            answer = Answer(status=503, body=text.encode())
        return send(BROKER, answer, header)
