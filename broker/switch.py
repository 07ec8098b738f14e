"""The broker's machine: it routes by header, keeps the roster, and carries configurations to all workers of an RM or
to none.

    RM -> core     Command, Ack       to the worker of the partition, if the session is the RM's current one
                   Call               answered here: registration, resumption
    worker -> RM   News, Refused      to the proxy of the RM, if the worker's lease holds
    front end      Query              to the worker; its Answer finds back by the `ref` of the header

Bodies of what is only routed are never opened. Not here: sockets, starting workers (the supervisor does, told which).
"""

from typing import Final

from broker.rollout import ROLLOUT_MAX_S, Rollout
from broker.roster import Registration, Roster
from common.config.check import DEFAULT_TEXT, load
from common.config.problems import ConfigError
from common.machine import MALFORMED, NEVER, Delivery, Send, send
from common.messages import (
    Answer,
    Command,
    ConfigVote,
    Header,
    Hello,
    Message,
    News,
    PartitionList,
    PartitionRestarted,
    Refused,
    Registered,
    RegisterResourceManager,
    Repeat,
    Resume,
    WorkersWanted,
)
from common.names import SUPERVISOR, normalised
from common.wire import WireError, decoded

_COMMANDS: Final = frozenset(name for name, kind in Message.kinds.items() if issubclass(kind, Command))
_NEWS: Final = frozenset(name for name, kind in Message.kinds.items() if issubclass(kind, News | Refused))


class Switch:
    """Everything the broker decides. `notes` is for the log, from where the shell takes it."""

    def __init__(self, *, default_config: str, now: float) -> None:
        self.roster = Roster()
        self._default_config = default_config or DEFAULT_TEXT
        self._started_ns = int(now * 1e9)
        self._rollouts: dict[str, tuple[Rollout, Registration, Header]] = {}
        """By RM id: the vote under way, what it is to become, and the header of the call to answer."""
        self.notes: list[str] = []
        self._numbers = 0
        self._wanted: dict[str, int] = {}

    @property
    def deadline(self) -> float:
        return min((rollout.deadline for rollout, _, _ in self._rollouts.values()), default=NEVER)

    def handle(self, delivery: Delivery, now: float) -> list[Send]:
        header = delivery.header
        try:
            if header.kind in _COMMANDS:
                return self._to_worker(delivery)
            if header.kind in _NEWS:
                return self._to_proxy(delivery)
            return [*self._control(delivery, now), *self._workers_wanted()]
        except WireError as error:
            return [self._refusal(delivery.source, header, "malformed", str(error))]

    def tick(self, now: float) -> list[Send]:
        """Give up on roll-outs whose time is up."""
        late = [rollout for rollout, _, _ in self._rollouts.values() if rollout.deadline <= now]
        sends: list[Send] = []
        for rollout in late:
            missing = ", ".join(rollout.missing())
            sends += self._abort(rollout.rm, f"no answer from the workers of {missing} within {ROLLOUT_MAX_S:.0f} s")
        return [*sends, *self._workers_wanted()]

    # Routing --------------------------------------------------------------------------------------------------------

    def _to_worker(self, delivery: Delivery) -> list[Send]:
        header = delivery.header
        registration = self.roster.registration(header.rm, header.session)
        if registration is None or header.partition not in registration.configs:
            reason = f'received {header.kind}, but RmID="{header.rm}" not registered'
            return [self._refusal(delivery.source, header, "unknown-session", reason)]
        return [Send(header.partition, header, delivery.body)]

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

    def _query(self, delivery: Delivery) -> list[Send]:
        header = delivery.header
        seat = self.roster.seats.get(header.partition)
        if seat is None or not seat.committed:
            answer = Answer(status=404, body=b"Partition not found")
            return [send(delivery.source, answer, Header(kind="Answer", ref=header.ref))]
        asked = Header(kind="Query", partition=header.partition, ref=f"{delivery.source} {header.ref}")
        return [Send(header.partition, asked, delivery.body)]

    def _answer(self, delivery: Delivery) -> list[Send]:
        if not self._holds_lease(delivery):
            return []
        asker, _, ref = delivery.header.ref.partition(" ")
        return [Send(asker, Header(kind="Answer", partition=delivery.header.partition, ref=ref), delivery.body)]

    # Control --------------------------------------------------------------------------------------------------------

    def _control(self, delivery: Delivery, now: float) -> list[Send]:
        match delivery.header.kind:
            case "Query":
                return self._query(delivery)
            case "Answer":
                return self._answer(delivery)
            case "Hello":
                return self._hello(delivery)
            case "ListPartitions":
                listing = PartitionList(
                    partitions=list(self.roster.entries()),
                    build_information={one.rm: one.build_info for one in self.roster.registrations.values()},
                    started_ns=self._started_ns,
                )
                return [send(delivery.source, listing, Header(kind="PartitionList", ref=delivery.header.ref))]
            case "RegisterResourceManager":
                return self._register(delivery, now)
            case "Resume":
                return self._resumed(delivery, decoded(Resume, delivery.body))
            case "ConfigVote":
                return self._vote(delivery)
            case kind if kind == MALFORMED:
                return [self._refusal(delivery.source, delivery.header, "malformed", delivery.header.ref)]
            case unknown:
                return [self._refusal(delivery.source, delivery.header, "unknown-kind", f"unknown message {unknown!r}")]

    def _hello(self, delivery: Delivery) -> list[Send]:
        role = decoded(Hello, delivery.body).role
        if role == SUPERVISOR:
            self._wanted = {}  # so that it is told
            return []
        seat = self.roster.seats.get(delivery.source)
        if role != "worker" or seat is None or seat.epoch != delivery.header.epoch:
            return []
        seat.present, seat.committed = True, False
        for rollout, _, _ in self._rollouts.values():
            if delivery.source in rollout.configs:
                rollout.restarted(delivery.source)
                return rollout.ask(delivery.source)
        return self._recommit(delivery.source)

    def _recommit(self, partition: str) -> list[Send]:
        """A worker lost what it knew: it runs its configuration from the beginning, and its RM is told."""
        owner = self.roster.owner(partition)
        if owner is None:
            return []
        self.notes.append(f"partition {partition} begins anew, its RM is told to report everything again")
        self._numbers += 1
        owner.lives[partition] = owner.lives.get(partition, 0) + 1
        configs = {partition: owner.configs[partition]}
        again = Rollout(self._numbers, owner.rm, owner.session, configs, NEVER, owner.lives[partition])
        self.roster.seat(partition).committed = True
        return [*again.ask(partition), *again.commit(), self._restarted(owner, partition)]

    def _restarted(self, owner: Registration, partition: str) -> Send:
        header = Header(
            kind="PartitionRestarted",
            rm=owner.rm,
            partition=partition,
            session=owner.session,
            life=owner.lives[partition],
        )
        return send(owner.proxy, PartitionRestarted(), header)

    def _workers_wanted(self) -> list[Send]:
        leases = self.roster.leases()
        if leases == self._wanted:
            return []
        self._wanted = leases
        return [send(SUPERVISOR, WorkersWanted(partitions=leases))]

    # Registration ---------------------------------------------------------------------------------------------------

    def _register(self, delivery: Delivery, now: float) -> list[Send]:
        header = delivery.header
        request = decoded(RegisterResourceManager, delivery.body)
        known = self.roster.registration(header.rm, header.session)
        if known is not None:
            if known.call == delivery.body:  # the answer to its first call was lost
                return self._resumed(delivery, Resume())
            return [self._not_registered(delivery.source, header, "this session has registered, begin a new one")]
        if header.rm in self._rollouts:
            rollout, registration, _ = self._rollouts[header.rm]
            if (registration.session, registration.call) == (header.session, delivery.body):
                registration.proxy = delivery.source  # it asks again, on a new connection
                self._rollouts[header.rm] = (rollout, registration, header)
                return []
            reason = f"a registration of RM {header.rm!r} is under way, try again when it is done"
            return [self._refusal(delivery.source, header, "busy", reason)]
        problem = "" if request.rm_id in ("", header.rm) else f"RM id {request.rm_id!r} in a message of {header.rm!r}"
        try:
            configuration = load(request.config or self._default_config)
        except ConfigError as error:
            return [self._not_registered(delivery.source, header, str(error))]
        claims = [registration for _, registration, _ in self._rollouts.values()]
        names = [one.name for one in configuration.partitions]
        problem = problem or self.roster.name_problem(header.rm, names, claims)
        if problem:
            return [self._not_registered(delivery.source, header, problem)]
        configs = {normalised(header.rm, one.name): one for one in configuration.partitions}
        self._numbers += 1
        rollout = Rollout(self._numbers, header.rm, header.session, configs, now + ROLLOUT_MAX_S)
        build_info = {**request.build_info, "rmId": header.rm}
        registration = Registration(header.rm, header.session, delivery.source, configs, build_info, delivery.body)
        self._rollouts[header.rm] = (rollout, registration, header)
        if not configs:
            return self._commit(header.rm)
        sends: list[Send] = []
        for partition in configs:
            if self.roster.seat(partition).present:
                sends += rollout.ask(partition)
        return sends

    def _vote(self, delivery: Delivery) -> list[Send]:
        vote = decoded(ConfigVote, delivery.body)
        found = self._rollouts.get(delivery.header.rm)
        if found is None or found[0].number != vote.rollout:
            return []
        if not self._holds_lease(delivery) or delivery.source not in found[0].configs:
            return []
        if vote.reason:
            return self._abort(found[0].rm, f"partition {delivery.source}: {vote.reason}")
        return self._commit(found[0].rm) if found[0].accept(delivery.source) else []

    def _commit(self, rm: str) -> list[Send]:
        rollout, registration, call = self._rollouts.pop(rm)
        before = self.roster.registrations.pop(rm, None)
        self.roster.registrations[rm] = registration
        self.notes.append(f"RM {rm} registered, with partitions {', '.join(registration.configs) or 'none'}")
        sends: list[Send] = []
        if before is not None:
            sends += self._superseded(before, registration)
        for partition in registration.configs:
            self.roster.seat(partition).committed = True
        header = Header(kind="Registered", rm=rm, session=call.session, ref=call.ref)
        registered = Registered(partitions=list(registration.configs))
        return [*sends, *rollout.commit(), send(registration.proxy, registered, header)]

    def _superseded(self, before: Registration, after: Registration) -> list[Send]:
        """A new session takes the place of the old one, which is told; partitions that it no longer has end."""
        for partition in before.configs:
            if partition not in after.configs:
                del self.roster.seats[partition]
        if before.session == after.session:
            return []
        header = Header(kind="Refused", rm=before.rm, session=before.session)
        return [self._refusal(before.proxy, header, "superseded", f"RM {before.rm!r} registered again elsewhere")]

    def _abort(self, rm: str, reason: str) -> list[Send]:
        """Refuse; workers that were only wanted for this end, those that were restarted meanwhile run the old again."""
        rollout, registration, call = self._rollouts.pop(rm)
        sends = rollout.abort()
        self.notes.append(f"registration of RM {rm} refused: {reason}")
        for partition in rollout.configs:
            if self.roster.owner(partition) is None:
                del self.roster.seats[partition]
            elif not self.roster.seat(partition).committed:
                sends += self._recommit(partition)
        return [*sends, self._not_registered(registration.proxy, call, reason)]

    def _resumed(self, delivery: Delivery, request: Resume) -> list[Send]:
        """An RM goes on in its session; what it does not have is sent again."""
        header = delivery.header
        registration = self.roster.registration(header.rm, header.session)
        if registration is None:
            reason = f"RM {header.rm!r} has no such session, register again"
            return [self._refusal(delivery.source, header, "unknown-session", reason)]
        registration.proxy = delivery.source
        answer = Header(kind="Registered", rm=header.rm, session=header.session, ref=header.ref)
        sends = [send(delivery.source, Registered(partitions=list(registration.configs)), answer)]
        for partition in registration.configs:
            life = registration.lives.get(partition, 0)
            known = request.lives.get(partition, 0) == life
            if not known:
                sends.append(self._restarted(registration, partition))
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

    def _not_registered(self, to: str, call: Header, reason: str) -> Send:
        return self._refusal(to, call, "registration", f"registration of RM failed: {reason}")

    def _refusal(self, to: str, header: Header, code: str, reason: str) -> Send:
        answer = Header(kind="Refused", rm=header.rm, session=header.session, ref=header.ref)
        return send(to, Refused(code=code, reason=reason, seq=header.seq), answer)
