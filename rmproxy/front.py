"""The proxy's machine: RM sessions, partition names, who gets which answer, and who has gone silent.

A peer (a native connection, or an RM of the gRPC port) registers an RM and thereby speaks for its session. What it
sends for one of its partitions goes on to the broker with the body unopened; an update that names no partition in its
header is split here, once.

    heard --silence_s without a word--> away (ManagerAway, once) --any word--> told to resume --Registered--> heard

A broker that began anew (another `Heartbeat.incarnation`) does not know what was on its way: every RM is told to
resume. Not here: registration itself (the broker's), how much an RM may send (`credit.py`), how much nonsense
(`patience.py`), sockets, gRPC.
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from common.control_messages import Hello, ManagerAway, NodesAstray
from common.machine import FORBIDDEN, MALFORMED, NEVER, Delivery, Send, send
from common.messages import Header
from common.names import BROKER, RMPROXY, normalised
from common.outbox import WINDOW_BYTES, WINDOW_MESSAGES
from common.query_messages import Answer
from common.rm_messages import (
    NUMBERED,
    UNNUMBERED,
    UPDATES,
    ConfigurationUpdated,
    Goodbye,
    Heartbeat,
    NodeResponse,
    Received,
    Refused,
    Registered,
    ResumeWanted,
)
from common.split import split
from common.wire import WireError, body_of, decoded
from rmproxy import patience
from rmproxy.credit import mark
from rmproxy.patience import Patience
from rmproxy.seats import GRPC, Seat, seated
from rmproxy.strangers import ignored_releases, refusal, says_something

CALLS_MAX: Final = 4096
"""Calls that may wait for the broker; beyond it the oldest is forgotten and its caller hears nothing but may ask
again.
"""

NAME_MAX: Final = 128
"""Characters of an RM id or session in a header, so that a header never outgrows its limit on the way."""

REASON_BYTES_MAX: Final = 500
"""Of a reason that came as bytes, which somebody outside may have made up for himself."""

SILENCE_S: Final = 3.0
"""An RM of which nothing was heard for so long is away, if nothing else is said."""

RETRY_AFTER_MS: Final = 1000
"""How long RMs should wait when the proxy stops in order, before they look whether there is another."""

_CALLS: Final = frozenset({"RegisterResourceManager", "Resume", "UpdateConfiguration", "Leave"})
_SPOKEN: Final = frozenset({*NUMBERED, *UNNUMBERED, "Heartbeat"})
"""What the peer of a session says beside calls."""
_GRPC_ONLY: Final = frozenset({"ManagerAway", "Query"})
"""What only the gRPC port says, about an RM of its own."""


class Front:
    """Everything the proxy decides."""

    def __init__(self, instance: str = "", *, heartbeat_s: float = NEVER, silence_s: float = SILENCE_S) -> None:
        """`instance` is another one in each process, so that nobody gets an answer to a call of one that died.

        Heartbeats are as often as `heartbeat_s`; if that is NEVER nobody counts as silent either.
        """
        self.patience = Patience()
        self._instance = instance
        self._heartbeat_s = heartbeat_s
        self._silence_s = silence_s
        self._beat_at = NEVER if heartbeat_s == NEVER else 0.0
        """When the next heartbeat is due."""
        self._incarnation = ""
        """Of the broker; empty until it has said so."""
        self._seats: dict[str, Seat] = {}
        self._calls: dict[str, tuple[str, Header]] = {}
        """Calls that the broker has not answered: our number to the peer and the header as it came."""
        self._numbers = 0

    @property
    def seats(self) -> Mapping[str, Seat]:
        """By RM id."""
        return self._seats

    @property
    def deadline(self) -> float:
        return self._beat_at

    def hello(self) -> Send:
        """The first message to the broker."""
        return send(BROKER, Hello(role=RMPROXY))

    def goodbye(self) -> list[Send]:
        """The last messages to everybody, when the process stops in order."""
        told = Goodbye(reason="the core is stopping", retry_after_milli_seconds=RETRY_AFTER_MS)
        return [send(seat.peer, told, _about(seat, rm, "Goodbye")) for rm, seat in self._seats.items()]

    def tick(self, now: float) -> list[Send]:
        """Tell the broker that we are here, and who is not.

        A process that was stopped for a while finds nothing new from anybody. That does not make them silent, so the
        time by which this is late is given to them.
        """
        if now < self._beat_at:
            return []
        late = now - self._beat_at if self._beat_at else 0.0
        self._beat_at = now + self._heartbeat_s
        sends = [send(BROKER, Heartbeat())]
        for rm, seat in self._seats.items():
            seat.heard = min(now, seat.heard + late)
            if seat.watched and not seat.away and now - seat.heard >= self._silence_s:
                seat.away, seat.wanted = True, False
                sends.append(send(BROKER, ManagerAway(), _about(seat, rm, "ManagerAway")))
        return sends

    def handle(self, delivery: Delivery, now: float) -> list[Send]:
        if delivery.source == BROKER:
            return self._from_core(delivery, now)
        return self._from_manager(delivery, now)

    # From RMs -------------------------------------------------------------------------------------------------------

    def _from_manager(self, delivery: Delivery, now: float) -> list[Send]:
        header = delivery.header
        if header.kind not in _SPOKEN:
            return self._call_or_wrong(delivery, now)
        seat = self._seat_of(delivery)
        if seat is None:
            if header.kind == "Heartbeat":
                return []  # its registration is under way, or it will miss the answer and ask
            reason = f'received {header.kind}, but RmID="{header.rm}" not registered'
            return self._wrong(delivery, "unknown-session", reason, now)
        seat.heard = now
        sends = self._spoken(delivery, seat, now)
        if sends and sends[-1].to == BROKER:
            self.patience.right(delivery.source)
        if seat.away and not seat.wanted:
            seat.wanted = True
            told = ResumeWanted(reason="nothing was heard of this resource manager for a while")
            sends.insert(0, send(seat.peer, told, _about(seat, header.rm, "ResumeWanted")))
        return sends

    def _seat_of(self, delivery: Delivery) -> Seat | None:
        """The seat from which this may be said."""
        seat = self._seats.get(delivery.header.rm)
        if seat is None or seat.session != delivery.header.session or seat.peer != delivery.source:
            return None
        return seat

    def _call_or_wrong(self, delivery: Delivery, now: float) -> list[Send]:
        header = delivery.header
        if header.kind in _CALLS:
            return self._call(delivery, now)
        if header.kind == MALFORMED:
            return self._wrong(delivery, "malformed", header.ref, now)
        if header.kind == FORBIDDEN:
            reason = delivery.body[:REASON_BYTES_MAX].decode(errors="replace")
            return self._wrong(delivery, "forbidden", reason, now)
        seat = self._seat_of(delivery)
        if header.kind in _GRPC_ONLY and delivery.source.startswith(GRPC) and seat is not None:
            if header.kind == "Query":
                return self._numbered_call(delivery)
            return [Send(BROKER, _about(seat, header.rm, "ManagerAway"), delivery.body)]
        return self._wrong(delivery, "unknown-kind", f"an RM does not send {header.kind!r}", now)

    def _call(self, delivery: Delivery, now: float) -> list[Send]:
        header = delivery.header
        if len(header.rm) > NAME_MAX or len(header.session) > NAME_MAX:
            return self._wrong(delivery, "malformed", f"RM id and session have at most {NAME_MAX} characters", now)
        if not self.patience.may_call(delivery.source, now):
            return self._wrong(delivery, "flood", patience.CALL_LIMIT, now)
        return self._numbered_call(delivery)

    def _numbered_call(self, delivery: Delivery) -> list[Send]:
        """Pass a call on under a number of our own, by which its answer finds back."""
        header = delivery.header
        self._numbers += 1
        number = f"{self._instance}{self._numbers}"
        self._calls[number] = (delivery.source, header)
        if len(self._calls) > CALLS_MAX:
            del self._calls[next(iter(self._calls))]
        return [Send(BROKER, replace(_back(header.kind, header), ref=number), delivery.body)]

    def _spoken(self, delivery: Delivery, seat: Seat, now: float) -> list[Send]:
        header = delivery.header
        if header.kind == "Heartbeat":
            return self._answered(seat, header.rm, now)
        if not header.partition:
            return self._split(delivery, seat, now)
        partition = header.partition
        lane = seat.lanes.get(partition)
        if lane is None:
            partition = normalised(header.rm, partition)
            lane = seat.lanes.get(partition) or seat.leaving.get(partition)
        if header.kind in UNNUMBERED:
            if lane is None or header.life != lane.life:
                return []  # nobody waits for it
            due = lane.acknowledges(header.ack) if header.kind == "Ack" else lane.answers()
            return [Send(BROKER, _to(header, partition), delivery.body)] if due else []
        if lane is None or partition not in seat.lanes:
            return self._stranger(delivery, partition, now)
        if header.seq and header.life != lane.life:
            if header.life >= lane.born:
                return []  # said before the RM heard that the partition began anew: it will report everything again
            anew = Delivery(delivery.source, replace(header, seq=0, life=lane.life), delivery.body)
            return self._stranger(anew, partition, now)
        if not lane.admits(header, len(delivery.body)):
            reason = "too much is under way that is not acknowledged: wait for acknowledgements"
            return self._wrong(delivery, "window", reason, now)
        return [Send(BROKER, _to(header, partition, mark(header, len(delivery.body))), delivery.body)]

    def _answered(self, seat: Seat, rm: str, now: float) -> list[Send]:
        """A heartbeat for a heartbeat, but not for each of a thousand."""
        if self._heartbeat_s != NEVER and now - seat.answered < self._heartbeat_s / 4:
            return []
        seat.answered = now
        return [send(seat.peer, Heartbeat(), _about(seat, rm, "Heartbeat"))]

    def _split(self, delivery: Delivery, seat: Seat, now: float) -> list[Send]:
        header = delivery.header
        if header.kind not in UPDATES or header.seq:
            reason = f"{header.kind} belongs to one partition: name it"
            if header.seq:
                reason = "a numbered update belongs to one partition: name it in the header, or send the number 0"
            return self._wrong(delivery, "no-partition", reason, now)
        try:
            command = decoded(UPDATES[header.kind], delivery.body)
        except WireError as error:
            return self._wrong(delivery, "malformed", str(error), now)
        sends: list[Send] = []
        for partition, part in split(header.rm, command).items():
            own = Delivery(delivery.source, _to(header, partition), body_of(part))
            sends += self._spoken(own, seat, now)
        return sends

    def _stranger(self, delivery: Delivery, partition: str, now: float) -> list[Send]:
        """A command for a partition that does not exist: refused item by item, and acknowledged. The broker counts the
        nodes among them.
        """
        header = delivery.header
        wrong: list[Send] = []
        try:
            command = decoded(NUMBERED[header.kind], delivery.body)
            answer = refusal(command, partition)
            if (ignored := ignored_releases(command, partition)) is not None:
                wrong = [send(delivery.source, ignored, _from_nobody(header, "ReleasesIgnored"))]
        except WireError as error:
            answer, wrong = Received(), self._wrong(delivery, "malformed", str(error), now)
            if not header.seq:
                return wrong
        if isinstance(answer, NodeResponse) and answer.rejected:
            told = NodesAstray(count=len(answer.rejected))
            wrong = [send(BROKER, told, Header(kind="NodesAstray", rm=header.rm, session=header.session))]
        if not says_something(answer):
            answer = Received()
        return [*wrong, send(delivery.source, answer, _from_nobody(header, type(answer).__name__, ack=header.seq))]

    # From the core --------------------------------------------------------------------------------------------------

    def _from_core(self, delivery: Delivery, now: float) -> list[Send]:
        header = delivery.header
        if header.kind == "Echo":
            return [Send(BROKER, header, delivery.body)]
        if header.kind == "Heartbeat":
            return self._beaten(decoded(Heartbeat, delivery.body).incarnation)
        call = self._calls.pop(header.ref, None) if header.ref else None
        if header.kind == "Registered":
            return self._registered(delivery, call, now) if call else []
        if call and header.kind in ("Refused", "Answer", "Left"):
            if header.kind == "Left":
                self._leave(call[1])
            return [Send(call[0], _back(header.kind, call[1]), delivery.body)]
        seat = self._seats.get(header.rm)
        if seat is None or seat.session != header.session:
            return []
        if header.kind == "ConfigurationUpdated":
            return [self._reconfigured(delivery, seat, call)]
        if header.kind in NUMBERED:  # it comes back: the partition went while it was on its way
            return self._stranger(Delivery(seat.peer, header, delivery.body), header.partition, now)
        if header.partition:
            return [self._heard(delivery, seat)]
        if header.kind == "Left" or (header.kind == "Refused" and not decoded(Refused, delivery.body).seq):
            if header.ref:
                return []  # for a call of a proxy that died, or one that was forgotten
            del self._seats[header.rm]  # the broker's last word to a session: another took its place, or its time is up
        return [Send(seat.peer, header, delivery.body)]

    def _beaten(self, incarnation: str) -> list[Send]:
        """The broker lives. If it is another one, nothing that was under way is certain: it is told who is here, who
        waits for an answer is told to ask again, and all others to resume.

        A change of the configuration is not answered: what became of it shows when its RM resumes.
        """
        before, self._incarnation = self._incarnation, incarnation
        if before == incarnation or not (before or self._seats):
            return []  # the first one; but who registered before it was heard may have done so with an earlier one
        reason = "the core began anew"
        sends = [self.hello()]
        for peer, header in self._calls.values():
            if header.kind == "Query":
                sends.append(send(peer, Answer(status=503, body=reason.encode()), _back("Answer", header)))
            elif header.kind != "UpdateConfiguration":
                sends.append(send(peer, Refused(code="busy", reason=f"{reason}: try again"), _back("Refused", header)))
        self._calls.clear()
        for rm, seat in self._seats.items():
            sends.append(send(seat.peer, ResumeWanted(reason=reason), _about(seat, rm, "ResumeWanted")))
        return sends

    def _registered(self, delivery: Delivery, call: tuple[str, Header], now: float) -> list[Send]:
        header = delivery.header
        peer, asked = call
        registered = decoded(Registered, delivery.body)
        before = self._seats.get(header.rm)
        self._seats[header.rm] = seated(peer, header.session, registered, before, now)
        watched = self._heartbeat_s != NEVER
        told = replace(
            registered,
            heartbeat_milli_seconds=int(self._heartbeat_s * 1000) if watched else 0,
            silence_milli_seconds=int(self._silence_s * 1000) if watched else 0,
            window_messages=WINDOW_MESSAGES,
            window_bytes=WINDOW_BYTES,
        )
        sends = [send(peer, told, _back("Registered", asked))]
        if before is not None and before.session != header.session:
            superseded = Refused(code="superseded", reason=f"RM {header.rm!r} registered again")
            sends.append(send(before.peer, superseded, _about(before, header.rm, "Refused")))
        return sends

    def _leave(self, asked: Header) -> None:
        """Nothing is left of this session."""
        seat = self._seats.get(asked.rm)
        if seat is not None and seat.session == asked.session:
            del self._seats[asked.rm]

    def _reconfigured(self, delivery: Delivery, seat: Seat, call: tuple[str, Header] | None) -> Send:
        """The RM has other partitions now. Who asked for it may have another connection by now, and is told there."""
        seat.rearrange(decoded(ConfigurationUpdated, delivery.body))
        told = replace(_about(seat, delivery.header.rm, "ConfigurationUpdated"), ref=call[1].ref if call else "")
        return Send(seat.peer, told, delivery.body)

    def _heard(self, delivery: Delivery, seat: Seat) -> Send:
        """A partition says something."""
        header = delivery.header
        if header.kind == "PartitionRestarted":
            seat.restarted(header)
        else:
            seat.lane(header.partition).heard(header)
        return Send(seat.peer, replace(header, ref="") if header.ref else header, delivery.body)

    def _wrong(self, delivery: Delivery, code: str, reason: str, now: float) -> list[Send]:
        """Say what is wrong, as long as that is of use."""
        header = delivery.header
        if not delivery.source.startswith(GRPC):  # each gRPC caller waits for its answer, and gRPC limits their number
            match self.patience.wrong(delivery.source, f"{code}: {reason}", now):
                case patience.Answer.NONE:
                    return []
                case patience.Answer.FLOOD:
                    code, reason = "flood", patience.REFUSALS_LIMIT + reason
        answer = Header(kind="Refused", rm=header.rm, session=header.session, ref=header.ref)
        if header.kind == MALFORMED:
            answer = Header(kind="Refused")
        return [send(delivery.source, Refused(code=code, reason=reason, seq=header.seq), answer)]


def _about(seat: Seat, rm: str, kind: str) -> Header:
    """The header of a message about a session as a whole."""
    return Header(kind=kind, rm=rm, session=seat.session)


def _back(kind: str, asked: Header) -> Header:
    """The header of the answer to a call, or to a question, which alone is about a partition."""
    partition = asked.partition if asked.kind == "Query" else ""
    return Header(kind=kind, rm=asked.rm, partition=partition, session=asked.session, ref=asked.ref)


def _from_nobody(header: Header, kind: str, *, ack: int = 0) -> Header:
    """The header of what the proxy itself says about a command for a partition that does not exist."""
    return Header(
        kind=kind, rm=header.rm, partition=header.partition, session=header.session, ack=ack, life=header.life
    )


def _to(header: Header, partition: str, ref: str = "") -> Header:
    """The header under which something travels on: without a lease, and without a reference of the sender."""
    if header.partition == partition and not (header.epoch or header.ref or ref):
        return header
    return replace(header, partition=partition, epoch=0, ref=ref)
