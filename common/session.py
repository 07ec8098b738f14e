"""The resource manager's half of the native protocol, as a machine without a socket.

    new --register--> registering --Registered--> open --leave--> leaving --Left--> left
                        ^     |                  |    ^
            register (again)  Refused    Goodbye |    | Registered
                        |     v                  v    |
                        refused <--Refused-- away, resuming        away --resume--> resuming

`resume` may be called in any state but the first two and the last: when the connection was lost, when the core asks for
it (`ResumeWanted`), after its `Goodbye`, when something is missing. What a refusal means for the session is in its
code: `busy` and `flood` are worth the same call again, after a pause.

It numbers commands per partition, drops news that it has seen, and says what to acknowledge and what to send again.
The SDK drives it over ZeroMQ, the proxy's gRPC port drives it in-process. Not here: waiting, reconnecting, callbacks.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, TypeVar

from msgspec.structs import replace

from common.messages import Call, Command, Header, Message, News, Reply
from common.names import NODE_PARTITION, normalise_partition_name
from common.rm_messages import (
    NUMBERED,
    Ack,
    AllocationReleasesRequest,
    AllocationRequest,
    ApplicationRequest,
    ConfigurationUpdated,
    Heartbeat,
    Leave,
    NodeRequest,
    PartitionRestarted,
    Refused,
    Registered,
    RegisterResourceManager,
    Resume,
    SyncBegin,
    SyncEnd,
    UpdateConfiguration,
)
from common.wire import WireError, decode_body, encode_body

# Flow control ---------------------------------------------------------------------------------------------------------

WINDOW_MESSAGES: Final = 1024
"""Messages that a sender may have unacknowledged in one lane. When it is reached the sender waits: a partition stops
allocating, an RM's update call waits."""

WINDOW_BYTES: Final = 16 * 1024 * 1024
"""The same in bytes of their bodies. Whoever has fewer under way may send one more message, of any size: so the largest
one that there may be goes too, and what is under way is bounded by this and one message."""

BACKLOG_MAX_MESSAGES: Final = 8 * WINDOW_MESSAGES
"""News that may wait for an RM that goes on sending commands, which have their own answers, and acknowledges nothing.
Beyond it its commands are refused; an RM that keeps to its window never comes near.
"""

ACK_EVERY_MESSAGES: Final = 64
"""A receiver acknowledges at least this often, so that a lane never stands still for want of an acknowledgement."""


@dataclass(frozen=True, slots=True)
class Window:
    """How much of a lane may be under way without its acknowledgement."""

    messages: int = WINDOW_MESSAGES
    size: int = WINDOW_BYTES
    """In bytes of bodies."""

    def reached(self, messages: int, size: int) -> bool:
        """Whether who has so much under way has to wait."""
        return messages >= self.messages or size >= self.size


WINDOW: Final = Window()


class Outbox:
    """The sender's half: numbers messages from 1 and keeps each until it is acknowledged."""

    def __init__(self, last: int = 0, waiting: Iterable[tuple[int, str, bytes]] = ()) -> None:
        """A new one, or one that goes on after the number `last` with what waits for its acknowledgement."""
        self.last = last
        self.window = WINDOW
        """Another one if the receiver says so."""
        self._waiting: deque[tuple[int, str, bytes]] = deque(waiting)
        self._size = sum(len(body) for _, _, body in self._waiting)

    @property
    def size(self) -> int:
        """Bytes of the bodies that wait."""
        return self._size

    @property
    def acknowledged(self) -> int:
        """The highest number that was acknowledged."""
        return self.last - len(self._waiting)

    @property
    def full(self) -> bool:
        return self.window.reached(len(self._waiting), self._size)

    def __len__(self) -> int:
        """How many messages wait for their acknowledgement."""
        return len(self._waiting)

    def add(self, kind: str, body: bytes) -> int:
        """Keep a message; its number."""
        self.last += 1
        self._waiting.append((self.last, kind, body))
        self._size += len(body)
        return self.last

    def acknowledge(self, seq: int) -> bool:
        """Forget everything up to and including `seq`; whether that made room. Old acknowledgements change nothing."""
        before = len(self._waiting)
        while self._waiting and self._waiting[0][0] <= seq:
            self._size -= len(self._waiting.popleft()[2])
        return len(self._waiting) < before

    def unacknowledged(self) -> Iterator[tuple[int, str, bytes]]:
        """(number, kind, body) of what must be sent again after a break, oldest first."""
        return iter(tuple(self._waiting))


class Arrival(Enum):
    """What the number of a message says about it."""

    NEXT = "next"
    SEEN = "seen"
    GAP = "gap"


class Inbox:
    """The receiver's half: knows the last number whose effect is in its state."""

    def __init__(self, last: int = 0) -> None:
        self.last = last

    def arrival(self, seq: int) -> Arrival:
        """NEXT: take it and call `took`. SEEN: drop it, acknowledge again. GAP: something before it is missing."""
        if seq <= self.last:
            return Arrival.SEEN
        return Arrival.NEXT if seq == self.last + 1 else Arrival.GAP

    def took(self, seq: int) -> None:
        """Record that the effect of `seq` is in the state."""
        assert seq == self.last + 1, (seq, self.last)
        self.last = seq


# Splitting updates by partition ---------------------------------------------------------------------------------------

_T = TypeVar("_T")


def split_by_partition(rm_id: str, command: Command) -> dict[str, Command]:
    """The command's parts by normalised partition name, in order of first appearance; items keep their order.

    Raises:
        TypeError: for a command that carries no items.
    """
    match command:
        case NodeRequest():
            return _split_nodes(rm_id, command)
        case ApplicationRequest():
            return _split_applications(rm_id, command)
        case AllocationRequest():
            return _split_allocations(rm_id, command)
    raise TypeError(command)


def _split_nodes(rm_id: str, command: NodeRequest) -> dict[str, Command]:
    nodes = _grouped(rm_id, command.nodes, lambda node: node.attributes.get(NODE_PARTITION, ""))
    if len(nodes) == 1:
        return dict.fromkeys(nodes, command)
    return {name: replace(command, nodes=part) for name, part in nodes.items()}


def _split_applications(rm_id: str, command: ApplicationRequest) -> dict[str, Command]:
    new = _grouped(rm_id, command.new, lambda item: item.partition_name)
    remove = _grouped(rm_id, command.remove, lambda item: item.partition_name)
    names = dict.fromkeys([*new, *remove])
    if len(names) == 1:
        return dict.fromkeys(names, command)
    return {name: replace(command, new=new.get(name, []), remove=remove.get(name, [])) for name in names}


def _split_allocations(rm_id: str, command: AllocationRequest) -> dict[str, Command]:
    allocations = _grouped(rm_id, command.allocations, lambda item: item.partition_name)
    releases = _grouped(rm_id, command.releases.allocations_to_release, lambda item: item.partition_name)
    names = dict.fromkeys([*allocations, *releases])
    if len(names) == 1:
        return dict.fromkeys(names, command)
    return {
        name: replace(
            command,
            allocations=allocations.get(name, []),
            releases=AllocationReleasesRequest(allocations_to_release=releases.get(name, [])),
        )
        for name in names
    }


def _grouped(rm_id: str, items: Iterable[_T], written: Callable[[_T], str]) -> dict[str, list[_T]]:
    """Items by the normalised name of the partition that they name, each spelling normalised once."""
    groups: dict[str, list[_T]] = {}
    spellings: dict[str, list[_T]] = {}
    for item in items:
        name = written(item)
        group = spellings.get(name)
        if group is None:
            group = spellings[name] = groups.setdefault(normalise_partition_name(rm_id, name), [])
        group.append(item)
    return groups


# The session ----------------------------------------------------------------------------------------------------------

SessionState = Literal["new", "registering", "open", "away", "resuming", "leaving", "left", "refused"]

STRANGERS_MAX: Final = 256
"""Partitions that the RM does not have (any more) and whose numbers are remembered all the same: those that are taken
down have last words, and what was said to others may not be refused yet. Beyond it the oldest is forgotten."""

_FOLLOWS: Final[dict[SessionState, dict[str, SessionState]]] = {
    "registering": {"Registered": "open", "Refused": "refused"},
    "open": {"Goodbye": "away"},
    "resuming": {"Registered": "open", "Refused": "refused", "Goodbye": "away"},
    "leaving": {"Left": "left", "Refused": "refused"},
}
"""What a state becomes when the core says this to the session as a whole; everything else leaves it as it is."""

_FROM_CORE: Final = {
    name: kind for name, kind in Message.kinds.items() if issubclass(kind, News | Reply) or kind is Heartbeat
}


@dataclass(frozen=True, slots=True)
class EncodedMessage:
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
    told: int = 0
    """The last life that the RM knows the partition to have begun, so that each beginning is told once."""


class Session:
    """One life of one RM process: `session` is new and random for each, `rm_id` is the cluster's name and stays."""

    def __init__(self, *, rm_id: str, session: str) -> None:
        self.rm_id = rm_id
        self.session = session
        self.state: SessionState = "new"
        self.partitions: tuple[str, ...] = ()
        """Normalised names, once the state is open."""
        self._window = WINDOW
        self._lanes: dict[str, _Lanes] = {}
        self.resuming = ""
        """The partition that resumes alone; empty if none does, or if all do."""
        self._called = ""
        """Reference of the latest call on which the state depends, or that resumes one partition."""
        self._changes: set[str] = set()
        """References of changes of the configuration without an answer; who refuses one does not refuse the session."""

    # Sending --------------------------------------------------------------------------------------------------------

    def register(self, request: RegisterResourceManager, *, ref: str = "register") -> EncodedMessage:
        """The call to send first; its answer arrives through `receive`."""
        self.state = "registering"
        return self._call(request, ref)

    def resume(self, partition: str = "", *, ref: str = "resume") -> EncodedMessage:
        """The call to send on a new connection, or when the core wants it; once it is answered, send what `repeated`
        gives.

        With a partition (its normalised name) only that one resumes, and the others are not interrupted. All partitions
        resume instead if the session is not open, or if another partition resumes already.
        """
        if not partition or self.state != "open" or self.resuming not in ("", partition):
            self.state, self.resuming = "resuming", ""
            return self._call(_build_resume(self._lanes), ref)
        self.resuming = partition
        return self._call(_build_resume({partition: self._lane(partition)}), ref, partition=partition)

    def is_open(self, partition: str) -> bool:
        """Whether messages to this partition may be sent now."""
        return self.state == "open" and not (partition and partition == self.resuming)

    def leave(self, reason: str = "", *, ref: str = "leave") -> EncodedMessage:
        """The call to send when the RM goes for good, on whichever connection; answered by `Left`, also if nothing is
        left of it already.
        """
        self.state = "leaving"
        return self._call(Leave(reason=reason), ref)

    def heartbeat(self) -> EncodedMessage:
        """What to say when there is nothing to say."""
        return EncodedMessage(Header(kind="Heartbeat", rm=self.rm_id, session=self.session), encode_body(Heartbeat()))

    def update_configuration(self, request: UpdateConfiguration, *, ref: str = "configuration") -> EncodedMessage:
        """The call for another configuration; answered by `ConfigurationUpdated` or `Refused` with the same `ref`."""
        self._changes.add(ref)
        return self._call(request, ref)

    def update(self, command: Command) -> list[EncodedMessage]:
        """The command as numbered messages, one for each partition that it mentions."""
        return self.numbered(split_by_partition(self.rm_id, command))

    def numbered(self, parts: Mapping[str, Command]) -> list[EncodedMessage]:
        """Commands as numbered messages, by the normalised name of the partition that each is for."""
        return [self._numbered(partition, part) for partition, part in parts.items()]

    def sync_begin(self, partition: str, reason: str = "") -> EncodedMessage:
        """From here on the RM reports everything that it has in this partition (its normalised name)."""
        return self._numbered(partition, SyncBegin(reason=reason))

    def sync_end(self, partition: str, counts: SyncEnd) -> EncodedMessage:
        """That was everything, and so much; answered by `SyncDone`."""
        return self._numbered(partition, counts)

    def say(self, partition: str, command: Command) -> EncodedMessage:
        """A command that is not numbered, and not sent again."""
        return EncodedMessage(self._header(type(command).__name__, partition), encode_body(command))

    def full(self, command: Command) -> bool:
        """Whether a partition that this command mentions has too much unacknowledged; then wait for
        acknowledgements.
        """
        return any(map(self.partition_full, split_by_partition(self.rm_id, command)))

    def partition_full(self, partition: str) -> bool:
        """The same for one partition, by its normalised name; also true while that partition resumes."""
        lanes = self._lanes.get(partition)
        return lanes is not None and (lanes.outbox.full or partition == self.resuming)

    def waiting(self, header: Header, seq: int) -> Command | None:
        """The command of this number to the partition of the header, while it waits for its acknowledgement."""
        lanes = self._lanes.get(header.partition)
        if lanes is None or header.life != lanes.life:
            return None
        found = (
            decode_body(NUMBERED[kind], body) for number, kind, body in lanes.outbox.unacknowledged() if number == seq
        )
        return next(found, None)

    def repeated(self, only: str = "") -> list[EncodedMessage]:
        """All commands that are not acknowledged, in order, or those to one partition."""
        return [
            EncodedMessage(self._header(kind, partition, seq=seq), body)
            for partition, lanes in self._lanes.items()
            if only in ("", partition)
            for seq, kind, body in lanes.outbox.unacknowledged()
        ]

    def acknowledgements(self) -> list[EncodedMessage]:
        """What to tell the core after the messages received so far have had their effect; empty if it knows."""
        due = [
            (name, lanes)
            for name, lanes in self._lanes.items()
            if lanes.acknowledged < lanes.inbox.last and name != self.resuming
        ]
        for _, lanes in due:
            lanes.acknowledged = lanes.inbox.last
        return [EncodedMessage(self._header("Ack", name), encode_body(Ack())) for name, _ in due]

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
        message = decode_body(kind, body)
        if isinstance(message, Reply):
            return self._replied(header, message)
        return self._heard(header, message) if isinstance(message, News) else None

    def acknowledged(self, header: Header) -> bool:
        """Take only the acknowledgement of a message that is not taken yet; whether an update may have room now."""
        lanes = self._lane(header.partition)
        return header.session == self.session and header.life == lanes.life and lanes.outbox.acknowledge(header.ack)

    def life(self, partition: str) -> int:
        """In which a partition is, as far as we have heard."""
        lanes = self._lanes.get(partition)
        return 0 if lanes is None else lanes.life

    def _replied(self, header: Header, message: Reply) -> Reply | None:
        before = self.state
        if self.resuming and header.ref == self._called:
            return self._replied_to_partition(message)
        if isinstance(message, Registered) and header.partition:
            return None  # for a partition that resumed alone; meanwhile all resume
        if header.ref in self._changes:
            self._changes.discard(header.ref)
        elif not isinstance(message, Refused) or self._is_refused(header, message):
            self.state = _FOLLOWS.get(before, {}).get(header.kind, before)
        if isinstance(message, Registered):
            if before not in ("registering", "resuming"):
                return None  # asked for twice, answered twice
            self._widen(message)
            self._adopt(message.partitions, message.lives, begun=before == "registering")
        elif isinstance(message, ConfigurationUpdated):
            self._adopt(message.partitions, message.lives, begun=True)
        return message

    def _replied_to_partition(self, message: Reply) -> Reply:
        """The answer to the resumption of one partition. If it is refused, all have to resume."""
        partition, self.resuming = self.resuming, ""
        if isinstance(message, Registered):
            self._adopt_life(partition, message.lives.get(partition, 0), new=False)
        else:
            self.state = "refused"
        return message

    def _is_refused(self, header: Header, refused: Refused) -> bool:
        """Whether this is about the session as a whole, and not about an update or some other question."""
        return not refused.seq and not header.partition and header.ref in ("", self._called)

    def _widen(self, registered: Registered) -> None:
        """The core says how much may be on its way; one that does not leaves it as it is."""
        self._window = Window(
            registered.window_messages or self._window.messages, registered.window_bytes or self._window.size
        )
        for lanes in self._lanes.values():
            lanes.outbox.window = self._window

    def _adopt(self, partitions: list[str], lives: dict[str, int], *, begun: bool) -> None:
        """These are the RM's partitions. Where one has begun since we last heard of it the numbers start again. Unless
        it is new, as are those that we have not mentioned or that have `begun`, `PartitionRestarted` is still to come
        for it.
        """
        before, self.partitions = self.partitions, tuple(partitions)
        for partition in partitions:
            self._adopt_life(partition, lives.get(partition, 0), new=begun and partition not in before)
        self._forget_strangers()

    def _adopt_life(self, partition: str, life: int, *, new: bool) -> None:
        known = self._lanes.get(partition)
        if life > (known.life if known else 0):
            told = life if new or known is None else known.told
            self._lanes[partition] = self._empty(life=life, told=told)

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
            case Arrival.GAP if header.partition not in self.partitions and not lanes.inbox.last:
                return None  # a partition that is taken down, and that was forgotten already
            case Arrival.GAP:
                raise WireError(f"{header.partition}: news {header.seq} came after {lanes.inbox.last}")

    def _restarted(self, header: Header, message: PartitionRestarted) -> PartitionRestarted | None:
        """Everything begins again, once; after a break it may be told again."""
        lanes = self._lane(header.partition)
        if header.life <= lanes.told:
            return None
        if header.life > lanes.life:
            lanes = self._lanes[header.partition] = self._empty(life=header.life)
        lanes.told = header.life
        return message

    # Private --------------------------------------------------------------------------------------------------------

    def _call(self, request: Call, ref: str, *, partition: str = "") -> EncodedMessage:
        if not isinstance(request, UpdateConfiguration):
            self._called = ref
        header = Header(kind=type(request).__name__, rm=self.rm_id, partition=partition, session=self.session, ref=ref)
        return EncodedMessage(header, encode_body(request))

    def _numbered(self, partition: str, command: Command) -> EncodedMessage:
        kind, body = type(command).__name__, encode_body(command)
        lanes = self._lane(partition)
        seq = lanes.outbox.add(kind, body)
        lanes.acknowledged = lanes.inbox.last  # the header says so
        return EncodedMessage(self._header(kind, partition, seq=seq), body)

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
            self._forget_strangers()
            lanes = self._lanes[partition] = self._empty()
        return lanes

    def _empty(self, *, life: int = 0, told: int = 0) -> _Lanes:
        lanes = _Lanes(life=life, told=told)
        lanes.outbox.window = self._window
        return lanes

    def _forget_strangers(self) -> None:
        """Make room for one more: those go of which nothing waits to be acknowledged, the oldest first."""
        excess = len(self._lanes) + 1 - len(self.partitions) - STRANGERS_MAX
        if excess <= 0:
            return
        strangers = [name for name, lanes in self._lanes.items() if name not in self.partitions and not lanes.outbox]
        for name in strangers[:excess]:
            del self._lanes[name]


def _build_resume(lanes: Mapping[str, _Lanes]) -> Resume:
    return Resume(
        received={name: one.inbox.last for name, one in lanes.items()},
        lives={name: one.told for name, one in lanes.items() if one.told},  # or it is told again
        acknowledged={name: one.outbox.acknowledged for name, one in lanes.items() if one.outbox.acknowledged},
    )
