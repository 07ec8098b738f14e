"""The resource manager's half of the native protocol, as a machine without a socket.

    new --register--> registering --Registered--> open <--> resuming (connection lost, then Registered again)
                           |                        | +------Refused-----------+--> refused (the core forgot this
                           session, or another one took its place)

It numbers commands per partition, drops news that it has seen, and says what to acknowledge and what to send again.
The SDK drives it over ZeroMQ, the proxy's gRPC port drives it in-process. Not here: waiting, reconnecting, callbacks.
"""

from dataclasses import dataclass, field
from typing import Final, Literal

from common.messages import (
    Ack,
    Call,
    Command,
    ConfigurationUpdated,
    Header,
    Message,
    News,
    PartitionRestarted,
    Refused,
    Registered,
    RegisterResourceManager,
    Reply,
    Resume,
    UpdateConfiguration,
)
from common.outbox import Arrival, Inbox, Outbox
from common.split import split
from common.wire import WireError, body_of, decoded

SessionState = Literal["new", "registering", "open", "resuming", "refused"]

_FROM_CORE: Final = {name: kind for name, kind in Message.kinds.items() if issubclass(kind, News | Reply)}


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message for the core, ready for the wire."""

    header: Header
    body: bytes


@dataclass(slots=True)
class _Lanes:
    """Both directions with one partition."""

    outbox: Outbox = field(default_factory=Outbox)
    inbox: Inbox = field(default_factory=Inbox)
    acknowledged: int = 0
    """The last number of the inbox that the core was told."""
    life: int = 0
    """Of the partition; the numbers belong to it."""


class Session:
    """One life of one RM process: `session` is new and random for each, `rm_id` is the cluster's name and stays."""

    def __init__(self, *, rm_id: str, session: str) -> None:
        self.rm_id = rm_id
        self.session = session
        self.state: SessionState = "new"
        self.partitions: tuple[str, ...] = ()
        """Normalised names, once the state is open."""
        self._lanes: dict[str, _Lanes] = {}
        self._changes: set[str] = set()
        """References of changes of the configuration without an answer; who refuses one does not refuse the session."""

    # Sending --------------------------------------------------------------------------------------------------------

    def register(self, request: RegisterResourceManager, *, ref: str = "register") -> Outgoing:
        """The call to send first; its answer arrives through `receive`."""
        self.state = "registering"
        return self._call(request, ref)

    def resume(self, *, ref: str = "resume") -> Outgoing:
        """The call to send on a new connection; once it is answered, send what `repeated` gives."""
        self.state = "resuming"
        request = Resume(
            received={name: lanes.inbox.last for name, lanes in self._lanes.items()},
            lives={name: lanes.life for name, lanes in self._lanes.items() if lanes.life},
        )
        return self._call(request, ref)

    def update_configuration(self, request: UpdateConfiguration, *, ref: str = "configuration") -> Outgoing:
        """The call for another configuration; answered by `ConfigurationUpdated` or `Refused` with the same `ref`."""
        self._changes.add(ref)
        return self._call(request, ref)

    def update(self, command: Command) -> list[Outgoing]:
        """The command as numbered messages, one for each partition that it mentions."""
        return [self._numbered(partition, part) for partition, part in split(self.rm_id, command).items()]

    def say(self, partition: str, command: Command) -> Outgoing:
        """A command that is not numbered, and not sent again."""
        return Outgoing(self._header(type(command).__name__, partition), body_of(command))

    def full(self, command: Command) -> bool:
        """Whether a partition that this command mentions has too much unacknowledged; then wait for
        acknowledgements.
        """
        lanes = (self._lanes.get(partition) for partition in split(self.rm_id, command))
        return any(lane is not None and lane.outbox.full for lane in lanes)

    def repeated(self) -> list[Outgoing]:
        """All commands that are not acknowledged, in order."""
        return [
            Outgoing(self._header(kind, partition, seq=seq), body)
            for partition, lanes in self._lanes.items()
            for seq, kind, body in lanes.outbox.unacknowledged()
        ]

    def acknowledgements(self) -> list[Outgoing]:
        """What to tell the core after the messages received so far have had their effect; empty if it knows."""
        due = [(name, lanes) for name, lanes in self._lanes.items() if lanes.acknowledged < lanes.inbox.last]
        for _, lanes in due:
            lanes.acknowledged = lanes.inbox.last
        return [Outgoing(self._header("Ack", name), body_of(Ack())) for name, _ in due]

    # Receiving ------------------------------------------------------------------------------------------------------

    def receive(self, header: Header, body: bytes) -> News | Reply | None:
        """Take a message from the core: what it says, or None for what is not for this session, was seen or only
        acknowledges.

        Raises:
            WireError: malformed, or a gap in the numbering: then `resume` mends it.
        """
        kind = _FROM_CORE.get(header.kind)
        if kind is None or header.session != self.session:
            return None  # of a newer core, or of an earlier session
        message = decoded(kind, body)
        if isinstance(message, Reply):
            return self._replied(header, message)
        assert isinstance(message, News)
        return self._heard(header, message)

    def acknowledged(self, header: Header) -> bool:
        """Take only the acknowledgement of a message that is not taken yet; whether an update may have room now."""
        lanes = self._lane(header.partition)
        return header.session == self.session and header.life == lanes.life and lanes.outbox.acknowledge(header.ack)

    def _replied(self, header: Header, message: Reply) -> Reply:
        if header.ref in self._changes:
            self._changes.discard(header.ref)
            if isinstance(message, Refused):
                return message
        if isinstance(message, Registered):
            self.state = "open"
            self.partitions = tuple(message.partitions)
        elif isinstance(message, ConfigurationUpdated):
            self.partitions = tuple(message.partitions)
            for partition, life in message.lives.items():
                if life > self._lane(partition).life:
                    self._lanes[partition] = _Lanes(life=life)
        elif isinstance(message, Refused) and not message.seq and self.state in ("registering", "resuming"):
            self.state = "refused"
        return message

    def _heard(self, header: Header, message: News) -> News | None:
        if isinstance(message, PartitionRestarted):
            return self._restarted(header, message)
        lanes = self._lane(header.partition)
        if header.life != lanes.life:
            return None
        lanes.outbox.acknowledge(header.ack)
        if header.seq == 0:
            return message if header.kind != "Received" else None
        match lanes.inbox.arrival(header.seq):
            case Arrival.NEXT:
                lanes.inbox.took(header.seq)
                return message
            case Arrival.SEEN:
                lanes.acknowledged = min(lanes.acknowledged, lanes.inbox.last - 1)
                return None
            case Arrival.GAP:
                raise WireError(f"{header.partition}: news {header.seq} came after {lanes.inbox.last}")

    def _restarted(self, header: Header, message: PartitionRestarted) -> PartitionRestarted | None:
        """Everything begins again, once; after a break it may be told again."""
        if header.life <= self._lane(header.partition).life:
            return None
        self._lanes[header.partition] = _Lanes(life=header.life)
        return message

    # Private --------------------------------------------------------------------------------------------------------

    def _call(self, request: Call, ref: str) -> Outgoing:
        header = Header(kind=type(request).__name__, rm=self.rm_id, session=self.session, ref=ref)
        return Outgoing(header, body_of(request))

    def _numbered(self, partition: str, command: Command) -> Outgoing:
        kind, body = type(command).__name__, body_of(command)
        seq = self._lane(partition).outbox.add(kind, body)
        return Outgoing(self._header(kind, partition, seq=seq), body)

    def _header(self, kind: str, partition: str, *, seq: int = 0) -> Header:
        lanes = self._lane(partition)
        return Header(
            kind=kind,
            rm=self.rm_id,
            partition=partition,
            session=self.session,
            seq=seq,
            ack=lanes.inbox.last,
            life=lanes.life,
        )

    def _lane(self, partition: str) -> _Lanes:
        lanes = self._lanes.get(partition)
        if lanes is None:
            lanes = self._lanes[partition] = _Lanes()
        return lanes
