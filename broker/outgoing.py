"""Outgoing messages of the broker: builders for workers, RMs and front ends, and two barriers that hold messages back.

`OutboxBarrier` holds messages about an RM until its record is durable; `EchoBarrier` holds messages until a proxy has
processed what the broker sent to it before.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from broker.registry import Registry, RmSession
from common.control_messages import Echo, Pause, Repeat, RetirePartition, Settings
from common.messages import Control, Header
from common.names import usual_name
from common.query_messages import Answer
from common.rm_messages import Left, PartitionRestarted, Refused, Registered, ResumeWanted
from common.wire import NEVER, Outgoing, make_outgoing

# To workers ---------------------------------------------------------------------------------------------------------


def build_worker_message(
    registry: Registry, session: RmSession, partition: str, message: Control, *, ack: int = 0
) -> Outgoing:
    """A message to the worker of one of an RM's partitions."""
    header = Header(
        kind=type(message).__name__,
        rm=session.rm,
        partition=partition,
        session=session.session,
        life=session.generation(partition),
        ack=ack,
    )
    return make_outgoing(registry.slots[partition].worker, message, header)


def build_settings(registry: Registry, session: RmSession, partitions: Iterable[str]) -> list[Outgoing]:
    """The RM's settings for the workers of these partitions; they replace the earlier ones."""
    message = Settings(values=session.extra, capabilities=session.capabilities)
    return [build_worker_message(registry, session, partition, message) for partition in partitions]


def build_first_settings(registry: Registry, session: RmSession, partitions: Iterable[str]) -> list[Outgoing]:
    """The RM's settings for new partitions; nothing if the RM has no settings."""
    return build_settings(registry, session, partitions) if session.extra or session.capabilities else []


def build_retirement(registry: Registry, session: RmSession, partition: str) -> Outgoing:
    """Tell a worker that its partition is no longer configured."""
    return build_worker_message(registry, session, partition, RetirePartition())


def build_pauses(registry: Registry, session: RmSession) -> list[Outgoing]:
    """Stop all partitions of an RM from making allocations while the RM is away."""
    return [build_worker_message(registry, session, partition, Pause()) for partition in session.partitions]


def build_repeat(
    registry: Registry, session: RmSession, partition: str, *, received: int = 0, acknowledged: int = 0
) -> Outgoing:
    """Tell a worker that its RM resumed, what the RM has received, and which commands were acknowledged to it."""
    return build_worker_message(registry, session, partition, Repeat(acknowledged=acknowledged), ack=received)


# To RMs -------------------------------------------------------------------------------------------------------------


def build_registered(session: RmSession, ref: str) -> Outgoing:
    """Confirm a registration or resumption. The proxy adds the heartbeat interval and the flow-control window."""
    message = Registered(
        partitions=list(map(usual_name, session.configs)),
        checksum=session.checksum,
        lives=list_generations(session),
    )
    header = Header(kind="Registered", rm=session.rm, session=session.session, ref=ref)
    return make_outgoing(session.proxy, message, header)


def build_partition_registered(session: RmSession, partition: str, ref: str) -> Outgoing:
    """Confirm the resumption of one partition; the header names it."""
    name, generation = usual_name(partition), session.generation(partition)
    message = Registered(partitions=[name], lives={name: generation} if generation else {})
    header = Header(kind="Registered", rm=session.rm, partition=name, session=session.session, ref=ref)
    return make_outgoing(session.proxy, message, header)


def list_generations(session: RmSession) -> dict[str, int]:
    """Generations of the partitions that are not in their first one."""
    generations = ((usual_name(name), session.generation(name)) for name in session.configs)
    return {name: generation for name, generation in generations if generation}


def request_resume(session: RmSession, reason: str, *, partition: str = "") -> list[Outgoing]:
    """Ask an RM to resume, or to resume one partition, because messages on the way to or from it may be lost; nothing
    if it is not connected.
    """
    if not session.proxy:
        return []
    header = Header(kind="ResumeWanted", rm=session.rm, partition=partition, session=session.session)
    return [make_outgoing(session.proxy, ResumeWanted(reason=reason), header)]


def build_partition_restarted(session: RmSession, partition: str, reason: str) -> Outgoing:
    """Tell an RM that a partition starts empty in a new generation."""
    header = Header(
        kind="PartitionRestarted",
        rm=session.rm,
        partition=usual_name(partition),
        session=session.session,
        life=session.generation(partition),
    )
    return make_outgoing(session.proxy, PartitionRestarted(reason=reason), header)


def build_left(to: str, call: Header) -> Outgoing:
    """Confirm that the RM's session has ended."""
    return make_outgoing(to, Left(), Header(kind="Left", rm=call.rm, session=call.session, ref=call.ref))


def refuse_registration(to: str, call: Header, reason: str) -> Outgoing:
    """Refuse a registration."""
    return build_refusal(to, call, "registration", f"registration of RM failed: {reason}")


def build_refusal(to: str, header: Header, code: str, reason: str) -> Outgoing:
    """Refuse the message with this header."""
    answer = Header(kind="Refused", rm=header.rm, session=header.session, ref=header.ref)
    return make_outgoing(to, Refused(code=code, reason=reason, seq=header.seq), answer)


# To front ends ------------------------------------------------------------------------------------------------------


def build_answer(to: str, ref: str, status: int, body: bytes) -> Outgoing:
    """Answer a front end."""
    return make_outgoing(to, Answer(status=status, body=body), Header(kind="Answer", ref=ref))


# Barriers -----------------------------------------------------------------------------------------------------------

ECHO_MAX_S: Final = 1.0
"""How long messages wait for the echo of a proxy, which normally takes a millisecond."""

HELD_MAX: Final = 1_000
"""Messages held for one RM. A write takes a millisecond, so only a blocked disk reaches this bound. Further messages
are dropped, as by a broken connection, and their senders repeat them."""


@dataclass(frozen=True, slots=True)
class _Held:
    deadline: float
    sends: list[Outgoing]


class EchoBarrier:
    """Holds messages until a proxy has processed the messages before them, by number of the echo.

    An RM may use a new partition as soon as the REST caller that added it has the answer. A gRPC proxy would refuse it
    if it did not know the partition yet, so the broker first updates the proxy, waits for its `Echo`, and then sends
    the answer. The retirement of a partition waits likewise, so that all commands before it reach the worker. A proxy
    that does not answer delays nothing for more than ECHO_MAX_S.
    """

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._numbers = 0

    @property
    def deadline(self) -> float:
        """When the first messages have waited long enough."""
        return min((one.deadline for one in self._held.values()), default=NEVER)

    def hold(self, proxy: str, rm: str, sends: list[Outgoing], now: float) -> list[Outgoing]:
        """Hold these messages; the result asks the proxy for an echo."""
        self._numbers += 1
        ref = str(self._numbers)
        self._held[ref] = _Held(now + ECHO_MAX_S, sends)
        return [make_outgoing(proxy, Echo(), Header(kind="Echo", rm=rm, ref=ref))]

    def release(self, ref: str) -> list[Outgoing]:
        """The messages that waited for this echo."""
        held = self._held.pop(ref, None)
        return held.sends if held else []

    def release_overdue(self, now: float) -> list[Outgoing]:
        """The messages that have waited long enough."""
        late = [ref for ref, one in self._held.items() if one.deadline <= now]
        return [one for ref in late for one in self.release(ref)]


class OutboxBarrier:
    """Holds messages by subject (an RM id) until what they report is durable, and keeps their order.

    open --close--> closed --open--> open, and the held messages are returned
    """

    def __init__(self, subject_of: Callable[[Outgoing], str]) -> None:
        """`subject_of` returns the subject of a message; empty for messages that never wait."""
        self._subject_of = subject_of
        self._held: dict[str, list[Outgoing]] = {}

    def close(self, subject: str) -> None:
        """Hold all messages about this subject from now on."""
        self._held.setdefault(subject, [])

    def is_closed(self, subject: str) -> bool:
        return subject in self._held

    def open(self, subject: str) -> list[Outgoing]:
        """Stop holding; the messages that waited."""
        return self._held.pop(subject, [])

    def filter_sends(self, sends: list[Outgoing]) -> list[Outgoing]:
        """The messages that may be sent now; the others are held."""
        if not self._held:
            return sends
        free: list[Outgoing] = []
        for one in sends:
            held = self._held.get(self._subject_of(one))
            if held is None:
                free.append(one)
            elif len(held) < HELD_MAX:
                held.append(one)
        return free
