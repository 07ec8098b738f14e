"""The worker's machine: messages to the engine, effects to news, and the lanes to the RM.

    empty --PrepareConfig--> prepared --CommitConfig--> running --RetirePartition--> retiring --acknowledged--> gone
      or running                |-----AbortConfig-----> as before

What is prepared begins from an empty partition (a registration), or changes the one that runs (another configuration).

A running worker takes the commands of its RM's session in order, once each, and schedules whenever something may be
placed and the RM has acknowledged enough of what it was told. Not here: decisions (the engine), sockets.
"""

from collections.abc import Sequence
from typing import Final

from common import extra_config
from common.config.check import load_problems
from common.machine import NEVER, Delivery, Send, send
from common.messages import (
    PREDICATES,
    UPDATES,
    Answer,
    CommitConfig,
    ConfigVote,
    GroupsFound,
    Header,
    Hello,
    KillApplication,
    MoveApplication,
    News,
    PredicatesAnswered,
    PrepareConfig,
    Query,
    Received,
    Refused,
    Retired,
    Schedule,
    Settings,
)
from common.names import BROKER
from common.outbox import BACKLOG_MAX_MESSAGES, Arrival, Inbox, Outbox
from common.wire import BODY_BYTES_MAX, WireError, body_of, decoded
from partition_worker import actions, events, news, queries, steps
from partition_worker.engine.effects import Effect
from partition_worker.engine.partition import Partition
from partition_worker.engine.predicates.predicate import Predicate
from partition_worker.engine.tuning import DEFAULT, Tuning
from partition_worker.event_ring import EventRing
from partition_worker.histogram import Histogram

BUDGET_DECISIONS: Final = 256
"""Decisions made between two looks at the inbox: a few milliseconds, so that releases and questions need not wait."""

ANSWER_BYTES_MAX: Final = BODY_BYTES_MAX - 1024
"""The document in an answer, so that the message stays within its limit."""


GROUPS: Final = "groups"
"""The peer that looks up the groups of users, in this process."""


class Worker:
    """Everything a worker decides.

    For the log, from where the shell takes them: `notes` for those who look closer, `announcements` for whoever runs
    the system, `warnings`. The shell, which has the clock, also says how long each tick `took`.
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
        self._manual = manual
        """Whether it decides only when it is asked to; timers go off all the same."""
        self._plugins = plugins
        self._tuning = tuning
        self.partition: Partition | None = None
        self.notes: list[str] = []
        self.announcements: list[str] = []
        self.warnings: list[str] = []
        self.cycles = Histogram()
        """Ticks in which something was to be decided."""
        self._scheduled = False
        self._rm = ""
        self._session = ""
        self._life = 0
        self.settings: dict[str, str] = {}
        """The RM's settings (`extraConfig`), as they came."""
        self._extra = extra_config.DEFAULTS
        """The same, as they are understood."""
        self._events = EventRing("")
        self._prepared: tuple[Header, PrepareConfig] | None = None
        self._retiring = False
        """Whether the partition is no longer configured, and only the RM's acknowledgements are waited for."""
        self._inbox = Inbox()
        self._outbox = Outbox()

    @property
    def deadline(self) -> float:
        if self.partition is None:
            return NEVER
        if not self._decides:
            return self.partition.next_timer
        return self.partition.deadline

    @property
    def _decides(self) -> bool:
        """Whether it is time for the next decisions."""
        return self.partition is not None and not (self._manual or self._outbox.full or self.partition.idle)

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
                return self._retired()
            case "PredicatesAnswered":
                return self._heard(delivery, now)
            case "Query":
                return [self._answer(delivery, now)]
            case "KillApplication" | "MoveApplication" | "Schedule":
                return self._act(delivery, now)
            case "GroupsFound" if delivery.source == GROUPS:
                return self._looked_up(decoded(GroupsFound, delivery.body), now)
            case "PrepareConfig":
                return [self._prepare(delivery)]
            case "CommitConfig":
                return self._commit(decoded(CommitConfig, delivery.body).rollout, now)
            case "RetirePartition":
                return self._retire(now)
            case "Settings":
                settings = decoded(Settings, delivery.body)
                self._set(dict(settings.values))
                if self.partition is not None:
                    self.partition.fleet.predicates.asks_manager = PREDICATES in settings.capabilities
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
        elapsed = self._noted(partition.elapse(now))
        sends = self._tell(list(news.messages(elapsed)))
        sends += [send(BROKER, asked, self._header("PredicatesAsked", 0)) for asked in news.questions(elapsed)]
        if self._decides:
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
        sends = self._tell(list(news.messages(effects))) or [self._received()]
        return [*sends, *(send(GROUPS, wanted) for wanted in news.wanted(effects))]

    def _heard(self, delivery: Delivery, now: float) -> list[Send]:
        """The RM says which asks may run where."""
        header = delivery.header
        if self.partition is None or header.session != self._session or header.life != self._life:
            return []
        self._outbox.acknowledge(header.ack)
        try:
            answered = decoded(PredicatesAnswered, delivery.body)
        except WireError as error:
            return [self._refusal(header, "malformed", str(error))]
        return self._tell(list(news.messages(self._noted(self.partition.take_verdicts(answered, now)))))

    def _looked_up(self, found: GroupsFound, now: float) -> list[Send]:
        """What waited for the groups of a user goes on."""
        if self.partition is None:
            return []
        return self._tell(list(news.messages(self._noted(self.partition.go_on(found, now)))))

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
        return [self._received(), *again, *self._retired()]

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
        self.notes += news.notes(effects, for_people=False)
        self.announcements += news.notes(effects, for_people=True)
        if self.partition is not None:
            self.warnings += self.partition.fleet.predicates.taken_complaints()
        self._record()
        return effects

    def _record(self) -> None:
        """Add to the history what the latest step was."""
        if self.partition is not None and (happenings := self.partition.happenings()):
            self._events.add(happenings, self.partition.now)

    # Configuration --------------------------------------------------------------------------------------------------

    def _prepare(self, delivery: Delivery) -> Send:
        """Vote: could this worker run the configuration?"""
        message = decoded(PrepareConfig, delivery.body)
        if self.partition is None or not message.live:
            problems = [str(problem) for problem in load_problems(message.config)]
        else:
            problems = self.partition.objections(message.config)
        self._prepared = None if problems else (delivery.header, message)
        vote = ConfigVote(rollout=message.rollout, reason="; ".join(problems))
        return send(
            BROKER, vote, Header(kind="ConfigVote", rm=delivery.header.rm, partition=self.name, epoch=self.epoch)
        )

    def _commit(self, rollout: int, now: float) -> list[Send]:
        """Run what was prepared. A worker that was started between vote and commit gets both again."""
        if self._prepared is None or self._prepared[1].rollout != rollout:
            self.warnings.append(f"commit of roll-out {rollout}, which this worker has not prepared")
            return []
        header, message = self._prepared
        self._prepared = None
        if self.partition is not None and message.live:
            effects = self._noted(self.partition.reconfigure(message.config, now))
            return self._tell(list(news.messages(effects)))
        self._begin(header, message, now)
        return []

    def _begin(self, header: Header, message: PrepareConfig, now: float) -> None:
        """From an empty partition."""
        self._rm, self._session, self._life = header.rm, header.session, header.life
        self._inbox, self._outbox, self._retiring = Inbox(), Outbox(), False
        self._events = EventRing(f"{self.name} {self.epoch} {header.session} {header.life} {int(now * 1e9)}")
        self.partition = Partition(message.config, name=self.name, now=now, plugins=self._plugins, tuning=self._tuning)
        self._set({})
        self._record()
        if self.partition.placement_problem:
            problem = self.partition.placement_problem
            self.warnings.append(f"no placement rule is active, every application is rejected: {problem}")

    def _set(self, settings: dict[str, str]) -> None:
        """The RM's settings are these from now on."""
        self.settings = settings
        self._extra = extra_config.read(settings)
        self._events.resize(self._extra.event_ring_buffer_capacity)
        if self.partition is not None:
            self.partition.tracking = self._extra.event_tracking_enabled
            self.partition.auditor.every_s = self._extra.health_check_interval_s

    def _retire(self, now: float) -> list[Send]:
        """The partition is no longer configured: the RM hears what becomes of everything in it."""
        if self.partition is None or self._retiring:  # asked again, as the answer may not have counted
            self._retiring = True
            return self._retired()
        self._retiring = True
        effects = self._noted(self.partition.retire(now))
        return [*self._tell(list(news.messages(effects))), *self._retired()]

    def _retired(self) -> list[Send]:
        """Once the RM has acknowledged everything, this worker may stop."""
        if not self._retiring or len(self._outbox):
            return []
        return [send(BROKER, Retired(), Header(kind="Retired", partition=self.name, epoch=self.epoch))]

    # Administrators -------------------------------------------------------------------------------------------------

    def _act(self, delivery: Delivery, now: float) -> list[Send]:
        """Do what an administrator wants; the RM hears of it before they do."""
        header = Header(kind="Answer", partition=self.name, ref=delivery.header.ref, epoch=self.epoch)
        if self.partition is None:
            return [send(BROKER, Answer(status=503, body=b"the partition is starting"), header)]
        if len(self._outbox) >= BACKLOG_MAX_MESSAGES or (delivery.header.kind == "Schedule" and self._outbox.full):
            reason = f"the resource manager has {len(self._outbox)} messages to acknowledge before it is told more"
            return [send(BROKER, Answer(status=503, body=reason.encode()), header)]
        match delivery.header.kind:
            case "KillApplication":
                answer, effects = actions.kill(self.partition, self._rm, decoded(KillApplication, delivery.body), now)
            case "MoveApplication":
                answer, effects = actions.move(self.partition, self._rm, decoded(MoveApplication, delivery.body), now)
            case _:
                wanted = decoded(Schedule, delivery.body)
                answer, effects = steps.make(self.partition, self._rm, wanted, now, manual=self._manual)
        return [*self._tell(list(news.messages(self._noted(effects)))), send(BROKER, answer, header)]

    # Questions ------------------------------------------------------------------------------------------------------

    def _answer(self, delivery: Delivery, now: float) -> Send:
        header = Header(kind="Answer", partition=self.name, ref=delivery.header.ref, epoch=self.epoch)
        if self.partition is None:
            return send(BROKER, Answer(status=503, body=b"the partition is starting"), header)
        query = decoded(Query, delivery.body)
        if query.what == "events":
            answer = events.answer(self._events, self._extra, query.args, bytes_max=ANSWER_BYTES_MAX)
            return send(BROKER, answer, header)
        answer = queries.answer(self.partition, self._rm, query, now, self.cycles)
        if len(answer.body) > ANSWER_BYTES_MAX:
            text = (
                f"the answer has {len(answer.body)} bytes, at most {ANSWER_BYTES_MAX} can be sent: ask for a part of it"
            )
            answer = Answer(status=503, body=text.encode())
        return send(BROKER, answer, header)
