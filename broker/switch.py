"""The broker's machine: it routes by header, keeps the roster, and carries configurations to all workers of an RM or
to none.

    RM -> core     Command, Ack       to the worker of the partition, if the session is the RM's current one
                   Call               answered here: registration, resumption, another configuration
    worker -> RM   News, Refused      to the proxy of the RM, if the worker's lease holds
    front end      Query, Kill, ...   to the worker; its Answer finds back by the `ref` of the header
                   Query "metrics"    without a partition: answered here, with what processes tell of themselves
                   ChangeConfig       another configuration for an RM; ReadConfig is answered here
    anybody        Heartbeat          answered with the incarnation of this broker

Bodies of what is only routed are never opened, and what is routed costs the same however many RMs there are. What is
decided about an RM is told once it is durable. Not here: sockets, starting workers (the supervisor does, told which),
and what a change of configuration is (`changes.py`).
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from msgspec import structs

from broker.askers import FrontEnd, Manager
from broker.books import Books, Policy
from broker.changes import Changes
from broker.facts import Facts, registration_of
from broker.figures import AllFigures
from broker.keeping import Keeping
from broker.listing import listing
from broker.offer import Offer
from broker.presence import leaves, proxy_began, resumed, went_away
from broker.questions import Questions
from broker.reading import read
from broker.registration import hash_of, register
from broker.revival import Found, found, missed, revived
from broker.roster import Registration, Seat
from broker.said import refusal_of, retirement, settings_for
from broker.update import RETIRE_MAX_S, Wish, update
from broker.versions import FROM_FILE, Versions
from broker.watch import Watch
from common.config.problems import ConfigError
from common.control_messages import (
    ChangedFile,
    ConfigVote,
    Hello,
    Recorded,
    RetirePartition,
    WorkerEnded,
    WorkersWanted,
)
from common.machine import MALFORMED, Delivery, Send, send
from common.messages import Command, Header, Message, News
from common.names import DISTINCT, FILE, RECORD, RMPROXY, SUPERVISOR, usual_name
from common.query_messages import ChangeConfig, ReadConfig
from common.rm_messages import UNNUMBERED, Heartbeat, Refused, RegisterResourceManager, Resume, UpdateConfiguration
from common.wire import WireError, body_of, decoded
from common.wording import counted

_COMMANDS: Final = frozenset(name for name, kind in Message.kinds.items() if issubclass(kind, Command))
_NEWS: Final = frozenset(name for name, kind in Message.kinds.items() if issubclass(kind, News | Refused))
_QUESTIONS: Final = frozenset({"Query", "KillApplication", "MoveApplication", "Schedule"})
"""What a front end says to a worker, which answers."""
_HEARTBEAT: Final = Header(kind="Heartbeat")


class Switch:
    """Everything the broker decides."""

    def __init__(
        self,
        *,
        now: float,
        default_config: str = "",
        watched: str = "",
        versions: Versions | None = None,
        policy: Policy | None = None,
        incarnation: int = 0,
        facts: Iterable[Facts] = (),
        record_problem: str = "",
    ) -> None:
        """`incarnation` is above that of every broker before; `facts` are what the last one had recorded of each RM;
        `record_problem` says why the record could not be written just now, if it could not.
        """
        self.books = Books(
            core_text=default_config,
            watched=watched,
            versions=versions,
            policy=policy or Policy(),
            incarnation=incarnation,
        )
        self.roster = self.books.roster
        durable = {one.rm: one for one in facts}
        self._keeping = Keeping(self.books, durable, problem=record_problem, now=now)
        self._changes = Changes(self.books, self._keeping)
        self._questions = Questions()
        self.figures = AllFigures(self.books, self._questions)
        self._offer = Offer(self.books, self._changes)
        self._watch = Watch(self.books, self._changes)
        self._started_ns = int(now * 1e9)
        self._beat = body_of(Heartbeat(incarnation=str(incarnation)))
        for one in tuple(durable.values()):
            self._restore(one, now)
        if self.roster.away:
            self.books.notes.append(f"waiting for {counted(len(self.roster.away), 'RM')} registered before this start")
        self._watch.arm(now)
        self._wanted: dict[str, int] | None = self.roster.leases()
        """What the supervisor was told last; None for one that has just said hello and knows nothing."""

    def _restore(self, facts: Facts, now: float) -> None:
        """An RM has what it had before. It counts as away until it speaks, so that nothing is placed that nobody is
        there to hear of.
        """
        try:
            registration = registration_of(facts)
        except ConfigError as error:
            self.roster.changed[facts.rm] = None
            reason = "; ".join(str(error).splitlines())
            self.books.warnings.append(f"RM {facts.rm} has to register again, its record is not valid: {reason}")
            return
        self.roster.restore(registration, facts.leases, leave_by=now + RETIRE_MAX_S)
        self.roster.away[facts.rm] = now

    @property
    def deadline(self) -> float:
        return min(
            self._changes.deadline,
            self.books.announcements.deadline,
            self._keeping.deadline,
            self._watch.deadline,
            *(at for name, at in self.roster.leaving.items() if self._changes.concerning(name) is None),
        )

    def handle(self, delivery: Delivery, now: float) -> list[Send]:
        header = delivery.header
        try:
            if header.kind in _COMMANDS:
                return self._to_worker(delivery)
            if header.kind in _NEWS:
                return self._to_proxy(delivery, now)
            if header.kind == "Heartbeat":
                return self._heartbeat(delivery, now)
            return self._followed_up(self._control(delivery, now), now)
        except WireError as error:
            return [refusal_of(delivery.source, header, "malformed", str(error))]

    def tick(self, now: float) -> list[Send]:
        """See who is silent, give up on roll-outs, echoes, and partitions that are being taken down, whose time is up,
        and try again what the disk could not take.
        """
        sends = self._watch.look(now) if self._watch.deadline <= now else []
        sends += [*self._changes.expire(now), *self._still_due(self.books.announcements.overdue(now))]
        for partition in [name for name, at in self.roster.leaving.items() if at <= now]:
            if self._changes.concerning(partition) is None:
                self.books.warnings.append(f"partition {partition} ends with results that its RM has not acknowledged")
                self._let_go(partition)
        return self._followed_up([*sends, *self._keeping.try_again(now)], now)

    def _still_due(self, sends: list[Send]) -> list[Send]:
        """What waited for an echo, without the end of partitions that are gone, or that somebody wants again."""
        return [one for one in sends if one.header.kind != RetirePartition.__name__ or self._ends(one.header.partition)]

    def _ends(self, partition: str) -> bool:
        return partition in self.roster.leaving and self._changes.concerning(partition) is None

    def _let_go(self, partition: str) -> None:
        """Nothing is left of a partition that was taken down."""
        registration = self.roster.registrations[self.roster.seats[partition].rm]
        leaving = [name for name in registration.leaving if name != partition]
        lives = {name: life for name, life in registration.lives.items() if name != partition}
        self.roster.put(replace(registration, leaving=leaving, lives=lives))

    # What follows ---------------------------------------------------------------------------------------------------

    def _followed_up(self, sends: list[Send], now: float) -> list[Send]:
        """What always follows: the offer of the watched file to whom it concerns, the record of what has changed, and
        news for the supervisor. What is not durable yet is not said yet.
        """
        changed = self.roster.changed
        sends = [*sends, *self._offer.made(tuple(changed), now)]
        self.roster.changed = {}
        free = [one for rm in changed for one in self._keeping.settled(rm)]
        free += self._keeping.passed([one for one in sends if one.to])
        self._watch.arm(now)
        return [*free, *self._rearranged()]

    def _recorded(self, rm: str, recorded: Recorded, now: float) -> list[Send]:
        if not self._keeping.heard(rm, recorded, now):
            return []
        change = self._changes.of(rm)
        if change is not None and change.recording == recorded.number:
            return self._changes.recorded(change, recorded, now)
        if recorded.problem:
            self._keeping.failed(rm, recorded.problem, now)
        return []

    def _rearranged(self) -> list[Send]:
        """What the supervisor has to know, if it does not, and whoever asked a partition that has ended."""
        if not self.roster.rearranged and self._wanted is not None:
            return []
        self.roster.rearranged = False
        lost, leases = self._questions.ended(self.roster.seats), self._keeping.leases()
        if leases == self._wanted:
            return lost
        self._wanted = leases
        managers = {partition: self.roster.seats[partition].rm for partition in leases}
        return [*lost, send(SUPERVISOR, WorkersWanted(partitions=leases, managers=managers))]

    # Routing --------------------------------------------------------------------------------------------------------

    def _to_worker(self, delivery: Delivery) -> list[Send]:
        header = delivery.header
        registration = self.roster.registration(header.rm, header.session)
        if registration is None:
            reason = f'received {header.kind}, but RmID="{header.rm}" not registered'
            return [refusal_of(delivery.source, header, "unknown-session", reason)]
        partition = registration.full_name(header.partition)
        if registration.has(partition):
            to = header if partition == header.partition else _under(partition, header)
            return [Send(self.roster.seats[partition].worker, to, delivery.body)]
        # For a partition that has just gone. The proxy knows how to refuse what it carries, item by item.
        return [] if header.kind in UNNUMBERED else [Send(delivery.source, header, delivery.body)]

    def _to_proxy(self, delivery: Delivery, now: float) -> list[Send]:
        header = delivery.header
        registration = self.roster.registration(header.rm, header.session)
        seat = self._leased(delivery)
        if registration is None or seat is None:
            return []
        seat.heard = now
        seat.begun = seat.begun or header.life == registration.life(header.partition)
        told = _under(usual_name(header.partition), header) if DISTINCT in header.partition else header
        return [Send(registration.proxy, told, delivery.body)] if registration.proxy else []

    def _leased(self, delivery: Delivery) -> Seat | None:
        """The seat of the worker that sent this, if it is the one that counts: its lease is in its name."""
        seat = self.roster.seats.get(delivery.header.partition)
        return seat if seat is not None and seat.worker == delivery.source else None

    def _heartbeat(self, delivery: Delivery, now: float) -> list[Send]:
        """Whoever it is, it is there, and hears which broker this is. A worker that has not said Hello to it does not
        hear that, and says it then.
        """
        seat = self._leased(delivery)
        sends: list[Send] = []
        if seat is not None:
            seat.heard = now
            if not seat.present:
                return [send(delivery.source, Heartbeat(), _HEARTBEAT)]
        elif not delivery.header.partition:
            sends = self._followed_up(self._watch.peer_heard(delivery.source, now), now)
        return [Send(delivery.source, _HEARTBEAT, self._beat), *sends]

    def _answer(self, delivery: Delivery) -> list[Send]:
        if delivery.source != RECORD and self._leased(delivery) is None:
            return []
        asker, _, ref = delivery.header.ref.partition(" ")
        if asker in (RECORD, FILE):
            return []  # they never ask: the worker made this up
        self._questions.answered(delivery.header.partition, asker, ref)
        return [Send(asker, Header(kind="Answer", partition=delivery.header.partition, ref=ref), delivery.body)]

    # Control --------------------------------------------------------------------------------------------------------

    def _control(self, delivery: Delivery, now: float) -> list[Send]:
        header = delivery.header
        match header.kind:
            case "Figures" | "NodesAstray" | "Query" if not header.partition:
                return self.figures.heard(delivery, now)
            case kind if kind in _QUESTIONS:
                return self._questions.put(self.roster, delivery)
            case "Answer":
                return self._answer(delivery)
            case "Hello":
                return self._hello(delivery, decoded(Hello, delivery.body), now)
            case "ManagerAway":
                return self._away(delivery, now)
            case "Retired":
                return self._retired(delivery)
            case "Echo":
                return self._still_due(self.books.announcements.heard(header.ref))
            case "ConfigVote":
                if self._leased(delivery) is None:
                    return []
                return self._changes.vote(header.partition, decoded(ConfigVote, delivery.body), now)
            case "Recorded" if delivery.source == RECORD:
                return self._recorded(header.rm, decoded(Recorded, delivery.body), now)
            case "WorkerEnded" if delivery.source == SUPERVISOR:
                return self._worker_ended(header, decoded(WorkerEnded, delivery.body))
            case "ChangedFile" if delivery.source == FILE:
                self._offer.changed(decoded(ChangedFile, delivery.body).text)
                return []
            case kind if kind == MALFORMED:
                return [refusal_of(delivery.source, header, "malformed", header.ref)]
        return self._call(delivery, now)

    def _call(self, delivery: Delivery, now: float) -> list[Send]:
        """From an RM or a front end, about an RM as a whole."""
        header = delivery.header
        match header.kind:
            case "RegisterResourceManager":
                return self._register(delivery, now)
            case "Resume":
                return resumed(self.books, delivery, decoded(Resume, delivery.body))
            case "Leave":
                return leaves(self.books, self._changes, delivery)
            case "UpdateConfiguration":
                return self._update(delivery, now)
            case "ChangeConfig":
                request = decoded(ChangeConfig, delivery.body)
                asker = FrontEnd(request.author, request.origin, delivery.source, header.ref)
                wish = Wish(
                    rm=header.rm,
                    text=request.config,
                    asker=asker,
                    expected=request.expected,
                    overwrite=request.overwrite,
                )
                return update(self.books, self._changes, wish, now)
            case "ReadConfig":
                return [read(self.books, delivery, decoded(ReadConfig, delivery.body))]
            case "ListPartitions":
                told = Header(kind="PartitionList", ref=header.ref)
                return [send(delivery.source, listing(self.books, self._started_ns, self._keeping.problem), told)]
        return [refusal_of(delivery.source, header, "unknown-kind", f"unknown message {header.kind!r}")]

    # Workers --------------------------------------------------------------------------------------------------------

    def _hello(self, delivery: Delivery, hello: Hello, now: float) -> list[Send]:
        self.figures.began(delivery.source)
        if hello.role == SUPERVISOR:
            self._wanted = None
        if hello.role == RMPROXY:
            return proxy_began(self.books, delivery.source, now)
        seat = self._leased(delivery)
        if hello.role != "worker" or seat is None:
            return []
        partition = delivery.header.partition
        seat.present, seat.heard, seat.problem = True, now, ""
        registration = self.roster.registrations.get(seat.rm)
        change = self._changes.concerning(partition)
        sends = self._questions.lost(partition)
        if registration is not None and partition in registration.configs:
            sends += revived(self.books, registration, delivery.header, hello)
        elif registration is not None and partition in registration.leaving and change is None:
            sends += self._leaving(registration, delivery.header, hello)
        if change is None:
            return sends
        change.rollout.restarted(partition)
        owner = self.roster.owner(partition)
        if owner is not None and owner.session == change.rollout.session:
            change.rollout.lives[partition] = owner.life(partition)
        return [*sends, change.rollout.ask(self.roster, partition)]

    def _worker_ended(self, header: Header, ended: WorkerEnded) -> list[Send]:
        """A worker ended before it was ready."""
        seat = self.roster.seats.get(header.partition)
        if seat is None or seat.epoch != header.epoch:
            return []
        if ended.cannot_start:
            seat.problem = ended.reason
            if self.roster.renew_restored(header.partition):
                self.books.warnings.append(
                    f"worker {seat.worker} cannot start ({ended.reason}): its lease is from before this broker started "
                    "and may be older than the journal, so the partition gets a new one"
                )
                ended = structs.replace(ended, cannot_start=False)  # the next attempt may succeed
        return self._changes.worker_ended(header.partition, ended)

    def _leaving(self, registration: Registration, header: Header, hello: Hello) -> list[Send]:
        """A worker comes back to a partition that is no longer configured: it tells the RM what becomes of everything,
        unless it has lost what that is.
        """
        partition = header.partition
        if found(registration, self.roster.seats[partition], header, hello) is Found.LOST:
            reason = hello.problem or "its worker does not have it any more"
            self.books.warnings.append(f"partition {partition} ends without telling its RM what was in it: {reason}")
            self._let_go(partition)
            return []
        return [retirement(self.books, registration, partition), *missed(registration, partition)]

    def _retired(self, delivery: Delivery) -> list[Send]:
        """Nothing is left of a partition, and nobody wants it again meanwhile."""
        partition = delivery.header.partition
        if self._leased(delivery) is not None and self._ends(partition):
            self.books.notes.append(f"partition {partition} has been removed")
            self._let_go(partition)
        return []

    # RMs ------------------------------------------------------------------------------------------------------------

    def _register(self, delivery: Delivery, now: float) -> list[Send]:
        header = delivery.header
        request = decoded(RegisterResourceManager, delivery.body)
        known = self.roster.registration(header.rm, header.session)
        if known is None:
            return register(self.books, self._changes, delivery, request, now)
        if known.call == hash_of(delivery.body):  # the answer to its first call was lost
            return resumed(self.books, delivery, Resume())
        reason = "registration of RM failed: this session has registered, begin a new one"
        return [refusal_of(delivery.source, header, "registration", reason)]

    def _away(self, delivery: Delivery, now: float) -> list[Send]:
        """A proxy has lost an RM, unless that is back by another way already."""
        registration = self.roster.registration(delivery.header.rm, delivery.header.session)
        if registration is None or registration.proxy != delivery.source:
            return []
        return went_away(self.books, registration, "it is silent or has hung up", now)

    def _update(self, delivery: Delivery, now: float) -> list[Send]:
        """The RM's own call. Its settings count even if the configuration is refused."""
        header = delivery.header
        request = decoded(UpdateConfiguration, delivery.body)
        registration = self.roster.registration(header.rm, header.session)
        if registration is None or request.rm_id not in ("", header.rm):
            reason = (
                f"update of configuration failed: RM {request.rm_id or header.rm} has no active partitions, "
                "make sure it is registered"
            )
            return [refusal_of(delivery.source, header, "unknown-session", reason)]
        settings: list[Send] = []
        if registration.extra != request.extra_config:
            registration = replace(registration, extra=dict(request.extra_config))
            self.roster.put(registration)
            settings = settings_for(self.books, registration, registration.configs)
        origin = FROM_FILE if self.books.watched and not request.config else "update"
        asker = Manager(f"RM {header.rm}", origin, delivery.source, header)
        text = request.config or self.books.core_text
        wish = Wish(rm=header.rm, text=text, asker=asker, follows_core=not request.config)
        return [*settings, *update(self.books, self._changes, wish, now)]


def _under(partition: str, header: Header) -> Header:
    """The header with another name for its partition: RMs and workers may know it by different ones."""
    return structs.replace(header, partition=partition)
