"""The broker's machine: it routes by header, keeps the roster, and carries configurations to all workers of an RM or
to none.

    RM -> core     Command, Ack       to the worker of the partition, if the session is the RM's current one
                   Call               answered here: registration, resumption, another configuration
    worker -> RM   News, Refused      to the proxy of the RM, if the worker's lease holds
    front end      Query, Kill, ...   to the worker; its Answer finds back by the `ref` of the header
                   ChangeConfig       another configuration for an RM; ReadConfig is answered here

Bodies of what is only routed are never opened. Not here: sockets, starting workers (the supervisor does, told which),
and what a change of configuration is (`changes.py`).
"""

from typing import Final

from broker.askers import FrontEnd, Manager
from broker.books import Books, Policy
from broker.changes import Changes
from broker.offer import Offer
from broker.reading import current, history
from broker.registration import register
from broker.revival import recommit, restarted
from broker.roster import Leaving
from broker.said import answer, refusal_of, retirement, settings_for
from broker.update import Wish, update
from broker.versions import FROM_FILE, Versions
from common.machine import MALFORMED, Delivery, Send, send
from common.messages import (
    UNNUMBERED,
    ChangeConfig,
    ChangedFile,
    Command,
    ConfigVote,
    Header,
    Hello,
    Message,
    News,
    PartitionList,
    ReadConfig,
    Recorded,
    Refused,
    Registered,
    RegisterResourceManager,
    Repeat,
    Resume,
    RetirePartition,
    UpdateConfiguration,
    WorkersWanted,
)
from common.names import FILE, RECORD, SUPERVISOR
from common.wire import WireError, decoded

_COMMANDS: Final = frozenset(name for name, kind in Message.kinds.items() if issubclass(kind, Command))
_NEWS: Final = frozenset(name for name, kind in Message.kinds.items() if issubclass(kind, News | Refused))
_QUESTIONS: Final = frozenset({"Query", "KillApplication", "MoveApplication", "Schedule"})
"""What a front end says to a worker, which answers."""


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
    ) -> None:
        self.books = Books(core_text=default_config, watched=watched, versions=versions, policy=policy or Policy())
        self.roster = self.books.roster
        self._changes = Changes(self.books)
        self._offer = Offer(self.books, self._changes)
        self._started_ns = int(now * 1e9)
        self._wanted: dict[str, int] = {}

    @property
    def deadline(self) -> float:
        leaving = (one.deadline for one in self._ending().values())
        return min((self._changes.deadline, self.books.announcements.deadline, *leaving))

    def handle(self, delivery: Delivery, now: float) -> list[Send]:
        header = delivery.header
        try:
            if header.kind in _COMMANDS:
                return self._to_worker(delivery)
            if header.kind in _NEWS:
                return self._to_proxy(delivery)
            return self._followed_up(self._control(delivery, now), now)
        except WireError as error:
            return [refusal_of(delivery.source, header, "malformed", str(error))]

    def tick(self, now: float) -> list[Send]:
        """Give up on roll-outs, echoes, and partitions that are being taken down, whose time is up."""
        sends = [*self._changes.expire(now), *self._still_due(self.books.announcements.overdue(now))]
        for partition in [name for name, one in self._ending().items() if one.deadline <= now]:
            self.books.warnings.append(f"partition {partition} ends, its RM has not acknowledged everything")
            self.roster.vacate(partition)
        return self._followed_up(sends, now)

    def _still_due(self, sends: list[Send]) -> list[Send]:
        """What waited for an echo, without the end of partitions that somebody wants again meanwhile."""
        ending = self._ending()
        return [one for one in sends if one.header.kind != RetirePartition.__name__ or one.to in ending]

    def _ending(self) -> dict[str, Leaving]:
        """The partitions that are being taken down, without those that somebody wants again meanwhile."""
        leaving = self.roster.leaving
        return {name: one for name, one in leaving.items() if self._changes.concerning(name) is None}

    def _followed_up(self, sends: list[Send], now: float) -> list[Send]:
        """What always follows: the offer of the watched file to whom it concerns, and news for the supervisor."""
        sends = [*sends, *self._offer.made(now)]
        leases = self.roster.leases()
        if leases == self._wanted:
            return sends
        self._wanted = leases
        return [*sends, send(SUPERVISOR, WorkersWanted(partitions=leases))]

    # Routing --------------------------------------------------------------------------------------------------------

    def _to_worker(self, delivery: Delivery) -> list[Send]:
        header = delivery.header
        registration = self.roster.registration(header.rm, header.session)
        leaving = self.roster.leaving.get(header.partition)
        if registration is not None and (
            header.partition in registration.configs or (leaving is not None and leaving.rm == header.rm)
        ):
            return [Send(header.partition, header, delivery.body)]
        if registration is not None:
            # For a partition that has just gone. The proxy knows how to refuse what it carries, item by item.
            return [] if header.kind in UNNUMBERED else [Send(delivery.source, header, delivery.body)]
        reason = f'received {header.kind}, but RmID="{header.rm}" not registered'
        return [refusal_of(delivery.source, header, "unknown-session", reason)]

    def _to_proxy(self, delivery: Delivery) -> list[Send]:
        header = delivery.header
        registration = self.roster.registration(header.rm, header.session)
        if registration is None or not self._holds_lease(delivery):
            return []
        return [Send(registration.proxy, header, delivery.body)]

    def _holds_lease(self, delivery: Delivery) -> bool:
        """Whether the sender is the worker that counts; one that lost its lease still carries the old epoch."""
        seat = self.roster.seats.get(delivery.source)
        return seat is not None and seat.epoch == delivery.header.epoch

    def _question(self, delivery: Delivery) -> list[Send]:
        header = delivery.header
        seat = self.roster.seats.get(header.partition)
        if seat is None or not seat.committed:
            return [answer(delivery.source, header.ref, 404, b"Partition not found")]
        asked = Header(kind=header.kind, partition=header.partition, ref=f"{delivery.source} {header.ref}")
        return [Send(header.partition, asked, delivery.body)]

    def _answer(self, delivery: Delivery) -> list[Send]:
        if delivery.source != RECORD and not self._holds_lease(delivery):
            return []
        asker, _, ref = delivery.header.ref.partition(" ")
        return [Send(asker, Header(kind="Answer", partition=delivery.header.partition, ref=ref), delivery.body)]

    # Control --------------------------------------------------------------------------------------------------------

    def _control(self, delivery: Delivery, now: float) -> list[Send]:
        header = delivery.header
        match header.kind:
            case kind if kind in _QUESTIONS:
                return self._question(delivery)
            case "Answer":
                return self._answer(delivery)
            case "Hello":
                return self._hello(delivery)
            case "Retired":
                return self._retired(delivery)
            case "Echo":
                return self._still_due(self.books.announcements.heard(header.ref))
            case "ConfigVote":
                if not self._holds_lease(delivery):
                    return []
                return self._changes.vote(delivery.source, header.rm, decoded(ConfigVote, delivery.body), now)
            case "Recorded" if delivery.source == RECORD:
                return self._changes.recorded(header.rm, decoded(Recorded, delivery.body), now)
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
                return self._resumed(delivery, decoded(Resume, delivery.body))
            case "UpdateConfiguration":
                return self._update(delivery, now)
            case "ChangeConfig":
                request = decoded(ChangeConfig, delivery.body)
                asker = FrontEnd(request.author, request.origin, delivery.source, header.ref)
                wish = Wish(rm=header.rm, text=request.config, asker=asker, expected=request.expected)
                return update(self.books, self._changes, wish, now)
            case "ReadConfig":
                return self._read(delivery, decoded(ReadConfig, delivery.body))
            case "ListPartitions":
                listing = PartitionList(
                    partitions=list(self.roster.entries()),
                    build_information={one.rm: one.build_info for one in self.roster.registrations.values()},
                    started_ns=self._started_ns,
                )
                return [send(delivery.source, listing, Header(kind="PartitionList", ref=header.ref))]
        return [refusal_of(delivery.source, header, "unknown-kind", f"unknown message {header.kind!r}")]

    # Workers --------------------------------------------------------------------------------------------------------

    def _hello(self, delivery: Delivery) -> list[Send]:
        partition, role = delivery.source, decoded(Hello, delivery.body).role
        if role == SUPERVISOR:
            self._wanted = {}  # so that it is told
            return []
        seat = self.roster.seats.get(partition)
        if role != "worker" or seat is None or seat.epoch != delivery.header.epoch:
            return []
        seat.present, seat.committed = True, False
        leaving = self.roster.leaving.get(partition)
        change = self._changes.concerning(partition)
        if change is None:
            if leaving is not None:
                return [retirement(leaving.rm, leaving.session, partition)]
            return recommit(self.books, partition)
        change.rollout.restarted(partition)
        before = recommit(self.books, partition) if partition in change.rollout.live else []
        return [*before, *change.rollout.ask(partition)]

    def _retired(self, delivery: Delivery) -> list[Send]:
        """Nothing is left of a partition, and nobody wants it again meanwhile."""
        partition = delivery.source
        wanted_again = self._changes.concerning(partition) is not None
        if self._holds_lease(delivery) and partition in self.roster.leaving and not wanted_again:
            self.books.notes.append(f"partition {partition} is gone")
            self.roster.vacate(partition)
        return []

    # RMs ------------------------------------------------------------------------------------------------------------

    def _register(self, delivery: Delivery, now: float) -> list[Send]:
        header = delivery.header
        request = decoded(RegisterResourceManager, delivery.body)
        known = self.roster.registration(header.rm, header.session)
        if known is None:
            return register(self.books, self._changes, delivery, request, now)
        if known.call == delivery.body:  # the answer to its first call was lost
            return self._resumed(delivery, Resume())
        reason = "registration of RM failed: this session has registered, begin a new one"
        return [refusal_of(delivery.source, header, "registration", reason)]

    def _resumed(self, delivery: Delivery, request: Resume) -> list[Send]:
        """An RM goes on in its session; what it does not have is sent again."""
        header = delivery.header
        registration = self.roster.registration(header.rm, header.session)
        if registration is None:
            reason = f"RM {header.rm!r} has no such session, register again"
            return [refusal_of(delivery.source, header, "unknown-session", reason)]
        registration.proxy = delivery.source
        told = Header(kind="Registered", rm=header.rm, session=header.session, ref=header.ref)
        known_by = Registered(partitions=list(registration.configs), checksum=registration.checksum)
        sends = [send(delivery.source, known_by, told)]
        leaving = [name for name, one in self.roster.leaving.items() if one.rm == header.rm]
        for partition in (*registration.configs, *leaving):
            life = registration.lives.get(partition, 0)
            known = request.lives.get(partition, 0) == life
            if not known and partition in registration.configs:
                sends.append(restarted(registration, partition))
            again = Header(
                kind="Repeat",
                rm=header.rm,
                partition=partition,
                session=header.session,
                ack=request.received.get(partition, 0) if known else 0,
                life=life,
            )
            sends.append(send(partition, Repeat(), again))
        return sends

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
        before, registration.extra = registration.extra, dict(request.extra_config)
        settings = settings_for(registration, registration.configs) if before != registration.extra else []
        origin = FROM_FILE if self.books.watched and not request.config else "update"
        asker = Manager(f"RM {header.rm}", origin, delivery.source, header)
        text = request.config or self.books.core_text
        wish = Wish(rm=header.rm, text=text, asker=asker, follows_core=not request.config)
        return [*settings, *update(self.books, self._changes, wish, now)]

    def _read(self, delivery: Delivery, request: ReadConfig) -> list[Send]:
        header = delivery.header
        match request.what:
            case "current":
                return [current(self.books, header.rm, delivery.source, header.ref)]
            case "history":
                return [history(self.books, header.rm, delivery.source, header.ref)]
            case "version":
                asked = Header(kind="ReadConfig", rm=header.rm, ref=f"{delivery.source} {header.ref}")
                return [Send(RECORD, asked, delivery.body)]
        text = f"unknown question {request.what!r}, expected current, history or version"
        return [answer(delivery.source, header.ref, 400, text.encode())]
