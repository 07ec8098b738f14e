"""The proxy's machine: RM sessions, partition names, and who gets which answer.

A peer (a native connection, or an RM of the gRPC port) registers an RM and thereby speaks for its session. What it
sends for one of its partitions goes on to the broker with the body unopened; an update that names no partition in its
header is split here, once. Not here: registration itself (the broker's), sockets, gRPC.
"""

from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from common.machine import MALFORMED, NEVER, Delivery, Send, send
from common.messages import (
    UNNUMBERED,
    UPDATES,
    ConfigurationUpdated,
    Header,
    Received,
    Refused,
    Registered,
)
from common.names import BROKER, normalised
from common.split import split
from common.wire import WireError, body_of, decoded
from rmproxy.strangers import refusal, says_something

CALLS_MAX: Final = 4096
"""Calls that may wait for the broker; beyond it the oldest is forgotten and its caller hears nothing but may ask
again.
"""

NAME_MAX: Final = 128
"""Characters of an RM id or session in a header, so that a header never outgrows its limit on the way."""

_CALLS: Final = frozenset({"RegisterResourceManager", "Resume", "UpdateConfiguration"})


@dataclass(slots=True)
class Seat:
    """Who speaks for an RM."""

    peer: str
    session: str
    partitions: frozenset[str]
    """Normalised names; only asked for membership."""
    lives: dict[str, int] = field(default_factory=dict)
    """Of partitions that came later: what was numbered in an earlier life was meant for one that did not exist."""


class Front:
    """Everything the proxy decides."""

    def __init__(self, instance: str = "") -> None:
        """`instance` is another one in each process, so that nobody gets an answer to a call of one that died."""
        self._instance = instance
        self._seats: dict[str, Seat] = {}
        self._calls: dict[str, tuple[str, str]] = {}
        """Calls that the broker has not answered: our number to the peer and its own reference."""
        self._numbers = 0

    @property
    def deadline(self) -> float:
        return NEVER

    def tick(self, now: float) -> list[Send]:
        """Nothing here waits for time to pass."""
        return []

    def handle(self, delivery: Delivery, now: float) -> list[Send]:
        if delivery.source == BROKER:
            return self._from_core(delivery)
        return self._from_manager(delivery)

    # From RMs -------------------------------------------------------------------------------------------------------

    def _from_manager(self, delivery: Delivery) -> list[Send]:
        header = delivery.header
        if header.kind == MALFORMED:
            return [self._refused(delivery, "malformed", header.ref)]
        if header.kind in _CALLS:
            return self._call(delivery)
        if header.kind not in UPDATES and header.kind not in UNNUMBERED:
            return [self._refused(delivery, "unknown-kind", f"an RM does not send {header.kind!r}")]
        seat = self._seats.get(header.rm)
        if seat is None or seat.session != header.session or seat.peer != delivery.source:
            reason = f'received {header.kind}, but RmID="{header.rm}" not registered'
            return [self._refused(delivery, "unknown-session", reason)]
        if not header.partition:
            return self._split(delivery, seat)
        partition = normalised(header.rm, header.partition)
        if partition not in seat.partitions and header.kind in UPDATES:  # one that is taken down waits for the others
            return self._stranger(delivery, partition)
        life = seat.lives.get(partition, 0)
        if header.seq and header.life < life:
            anew = Delivery(delivery.source, replace(header, seq=0, life=life), delivery.body)
            return self._stranger(anew, partition)
        return [Send(BROKER, _to(header, partition, header.seq), delivery.body)]

    def _call(self, delivery: Delivery) -> list[Send]:
        """Pass a call on under a number of our own, by which its answer finds back."""
        header = delivery.header
        if len(header.rm) > NAME_MAX or len(header.session) > NAME_MAX:
            reason = f"RM id and session have at most {NAME_MAX} characters"
            return [self._refused(delivery, "malformed", reason)]
        self._numbers += 1
        number = f"{self._instance}{self._numbers}"
        self._calls[number] = (delivery.source, header.ref)
        if len(self._calls) > CALLS_MAX:
            del self._calls[next(iter(self._calls))]
        return [Send(BROKER, _with_ref(header, number), delivery.body)]

    def _split(self, delivery: Delivery, seat: Seat) -> list[Send]:
        header = delivery.header
        if header.seq:
            reason = "a numbered update belongs to one partition: name it in the header, or send the number 0"
            return [self._refused(delivery, "no-partition", reason)]
        if header.kind not in UPDATES:
            return [self._refused(delivery, "no-partition", f"{header.kind} belongs to one partition: name it")]
        try:
            command = decoded(UPDATES[header.kind], delivery.body)
        except WireError as error:
            return [self._refused(delivery, "malformed", str(error))]
        sends: list[Send] = []
        for partition, part in split(header.rm, command).items():
            own = Delivery(delivery.source, _to(header, partition, 0), body_of(part))
            if partition in seat.partitions:
                sends.append(Send(BROKER, own.header, own.body))
            else:
                sends += self._stranger(own, partition)
        return sends

    def _stranger(self, delivery: Delivery, partition: str) -> list[Send]:
        """An update for a partition that does not exist: refused item by item, and acknowledged."""
        header = delivery.header
        try:
            answer = refusal(decoded(UPDATES[header.kind], delivery.body), partition)
        except WireError as error:
            return [self._refused(delivery, "malformed", str(error))]
        if not says_something(answer):
            answer = Received()
        back = Header(
            kind=type(answer).__name__,
            rm=header.rm,
            partition=header.partition,
            session=header.session,
            ack=header.seq,
            life=header.life,
        )
        return [send(delivery.source, answer, back)]

    # From the core --------------------------------------------------------------------------------------------------

    def _from_core(self, delivery: Delivery) -> list[Send]:
        header = delivery.header
        if header.kind == "Echo":
            return [Send(BROKER, header, delivery.body)]
        call = self._calls.pop(header.ref, None) if header.ref else None
        if header.kind == "Registered":
            return self._registered(delivery, call) if call else []
        if header.kind == "Refused" and call:
            peer, ref = call
            return [Send(peer, _with_ref(header, ref), delivery.body)]
        seat = self._seats.get(header.rm)
        if seat is None or seat.session != header.session:
            return []
        if header.kind == "ConfigurationUpdated":
            return [self._reconfigured(delivery, seat, call)]
        if header.kind in UPDATES:  # it comes back: the partition went while it was on its way
            return self._stranger(Delivery(seat.peer, header, delivery.body), header.partition)
        if header.kind == "Refused" and not header.partition and not decoded(Refused, delivery.body).seq:
            if header.ref:
                return []  # for a call of a proxy that died, or one that was forgotten
            del self._seats[header.rm]  # the broker's last word to a session: another took its place
        return [Send(seat.peer, header, delivery.body)]

    def _registered(self, delivery: Delivery, call: tuple[str, str]) -> list[Send]:
        header = delivery.header
        peer, ref = call
        partitions = frozenset(decoded(Registered, delivery.body).partitions)
        before = self._seats.get(header.rm)
        self._seats[header.rm] = Seat(peer, header.session, partitions)
        sends = [Send(peer, _with_ref(header, ref), delivery.body)]
        if before is not None and before.session != header.session:
            told = Refused(code="superseded", reason=f"RM {header.rm!r} registered again")
            sends.append(send(before.peer, told, Header(kind="Refused", rm=header.rm, session=before.session)))
        return sends

    def _reconfigured(self, delivery: Delivery, seat: Seat, call: tuple[str, str] | None) -> Send:
        """The RM has other partitions now. Who asked for it may have another connection by now, and is told there."""
        message = decoded(ConfigurationUpdated, delivery.body)
        before = seat.partitions
        seat.partitions = frozenset(message.partitions)
        seat.lives.update((name, life) for name, life in message.lives.items() if name not in before)
        return Send(seat.peer, _with_ref(delivery.header, call[1] if call else ""), delivery.body)

    def _refused(self, delivery: Delivery, code: str, reason: str) -> Send:
        header = delivery.header
        answer = Header(kind="Refused", rm=header.rm, session=header.session, ref=header.ref)
        if header.kind == MALFORMED:
            answer = Header(kind="Refused")
        return send(delivery.source, Refused(code=code, reason=reason, seq=header.seq), answer)


def _with_ref(header: Header, ref: str) -> Header:
    """The header of a call or of its answer; calls are about no partition."""
    return Header(kind=header.kind, rm=header.rm, session=header.session, ref=ref)


def _to(header: Header, partition: str, seq: int) -> Header:
    return Header(
        kind=header.kind,
        rm=header.rm,
        partition=partition,
        session=header.session,
        seq=seq,
        ack=header.ack,
        life=header.life,
    )
