"""The RM's side of the native protocol, as a machine without a socket; flow control; updates for several partitions.

    new --register--> registering --Registered--> open --leave--> leaving --Left--> left
                        ^     |                  |    ^
            register (again)  Refused    Goodbye |    | Registered
                        |     v                  v    |
                        refused <--Refused-- away, resuming        away --resume--> resuming

`resume` is allowed in any state but the first two and the last: after the connection was lost, after `ResumeWanted` or
`Goodbye`, or when a message is missing. The code of a refusal tells what it means for the session: `busy` and `flood`
mean that the same call may succeed after a pause.

The session numbers commands per partition, drops duplicate news, and determines what to acknowledge and to retransmit.
The SDK runs it over ZeroMQ, the proxy's gRPC port runs it in-process. Not here: waiting, reconnecting, callbacks.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, Literal, NamedTuple, TypeVar

from msgspec.structs import replace

from yunishard.common.messages import rm_messages
from yunishard.common.messages.kinds import Call, Command, Header, Message, News, Reply
from yunishard.common.messages.wire import WireError, decode_body, encode_body
from yunishard.common.names import NODE_PARTITION, normalise_partition_name

# Flow control ---------------------------------------------------------------------------------------------------------

# Messages in one lane (session, partition, direction) are numbered. The sender keeps each in an `Outbox` until it is
# acknowledged, and the receiver drops those up to the last number whose effect is in its state, so each message takes
# effect once. A sender with a full outbox waits: this bounds what is in flight, and no other queue needs a limit.

WINDOW_MESSAGES: Final = 1024
"""Messages that a sender may have unacknowledged in one lane. A partition with a full window allocates nothing, and an
RM's update call waits."""

WINDOW_BYTES: Final = 16 * 1024 * 1024
"""The same in bytes of bodies. A sender below it may send one more message of any size, so the largest message passes,
and this and one message bound what is in flight."""

BACKLOG_MAX_MESSAGES: Final = 8 * WINDOW_MESSAGES
"""News that may wait for an RM that acknowledges nothing but continues to send commands, which have their own replies.
Beyond it, its commands are refused. An RM that keeps to its window does not come near."""

ACK_EVERY_MESSAGES: Final = 64
"""A receiver acknowledges at least this often, so that a lane does not stall."""


@dataclass(frozen=True, slots=True)
class Window:
    """How much of a lane may be in flight without acknowledgement."""

    messages: int = WINDOW_MESSAGES
    size: int = WINDOW_BYTES
    """In bytes of bodies."""

    def is_reached(self, messages: int, size: int) -> bool:
        """Whether a sender with so much in flight has to wait."""
        return messages >= self.messages or size >= self.size


WINDOW: Final = Window()


class Outbox:
    """The sender's half of a lane: numbers messages from 1 and keeps each until it is acknowledged."""

    def __init__(self, last: int = 0, waiting: Iterable[tuple[int, str, bytes]] = ()) -> None:
        """Continue after the number `last`, with the messages that wait for acknowledgement."""
        self.last = last
        self.window = WINDOW
        """The receiver may set another one."""
        self._waiting: deque[tuple[int, str, bytes]] = deque(waiting)
        self.size = sum(len(body) for _, _, body in self._waiting)
        """Bytes of the bodies that wait."""

    @property
    def acknowledged(self) -> int:
        """The highest number that was acknowledged."""
        return self.last - len(self._waiting)

    @property
    def is_full(self) -> bool:
        return self.window.is_reached(len(self._waiting), self.size)

    def __len__(self) -> int:
        """Return the number of messages that wait for acknowledgement."""
        return len(self._waiting)

    def add(self, kind: str, body: bytes) -> int:
        """Keep a message, and return its number."""
        self.last += 1
        self._waiting.append((self.last, kind, body))
        self.size += len(body)
        return self.last

    def acknowledge(self, seq: int) -> bool:
        """Drop everything up to and including `seq`, and return whether that made room. Old numbers change nothing."""
        before = len(self._waiting)
        while self._waiting and self._waiting[0][0] <= seq:
            self.size -= len(self._waiting.popleft()[2])
        return len(self._waiting) < before

    def unacknowledged(self) -> tuple[tuple[int, str, bytes], ...]:
        """Return (number, kind, body) of the messages to retransmit after an interruption, oldest first."""
        return tuple(self._waiting)


# Updates for several partitions ---------------------------------------------------------------------------------------

_T = TypeVar("_T")


def split_by_partition(normalise: Callable[[str], str], command: Command) -> dict[str, Command]:
    """Return the parts of an update by normalised partition name, in order of first appearance; items keep their order.

    The SDK splits updates, or the proxy for RMs that do not. All processes behind the proxy receive updates for one
    partition.

    Raises:
        TypeError: the command carries no items.
    """
    parts: dict[str, Command]
    match command:
        case rm_messages.NodeRequest():
            nodes = _group(normalise, command.nodes, lambda node: node.attributes.get(NODE_PARTITION, ""))
            parts = {name: replace(command, nodes=part) for name, part in nodes.items()}
        case rm_messages.ApplicationRequest():
            new = _group(normalise, command.new, lambda item: item.partition_name)
            remove = _group(normalise, command.remove, lambda item: item.partition_name)
            parts = {
                name: replace(command, new=new.get(name, []), remove=remove.get(name, [])) for name in {**new, **remove}
            }
        case rm_messages.AllocationRequest():
            allocations = _group(normalise, command.allocations, lambda item: item.partition_name)
            releases = _group(normalise, command.releases.allocations_to_release, lambda item: item.partition_name)
            parts = {
                name: replace(
                    command,
                    allocations=allocations.get(name, []),
                    releases=rm_messages.AllocationReleasesRequest(allocations_to_release=releases.get(name, [])),
                )
                for name in {**allocations, **releases}
            }
        case _:
            raise TypeError(command)
    return dict.fromkeys(parts, command) if len(parts) == 1 else parts


def _group(normalise: Callable[[str], str], items: Iterable[_T], name_of: Callable[[_T], str]) -> dict[str, list[_T]]:
    """Group items by the normalised name of their partition; each spelling is normalised once."""
    groups: dict[str, list[_T]] = {}
    spellings: dict[str, list[_T]] = {}
    for item in items:
        name = name_of(item)
        group = spellings.get(name)
        if group is None:
            group = spellings[name] = groups.setdefault(normalise(name), [])
        group.append(item)
    return groups


# The session ----------------------------------------------------------------------------------------------------------

SessionState = Literal["new", "registering", "open", "away", "resuming", "leaving", "left", "refused"]

OTHER_PARTITIONS_MAX: Final = 256
"""Partitions without a place in the RM's configuration whose numbers are kept: a removed partition sends its last news,
and commands to it may not be refused yet. Beyond it the oldest is dropped."""

FAULTS_MAX: Final = 3
"""Resumptions because of missing or unreadable messages of one partition; at one more the session ends."""

RETRIABLE: Final = frozenset({"busy", "flood"})
"""Codes of refusals after which the same call can be repeated later."""

_TRANSITIONS: Final[dict[SessionState, dict[str, SessionState]]] = {
    "registering": {"Registered": "open", "Refused": "refused"},
    "open": {"Goodbye": "away"},
    "resuming": {"Registered": "open", "Refused": "refused", "Goodbye": "away"},
    "leaving": {"Left": "left", "Refused": "refused"},
}
"""State and reply of the core about the whole session to the next state. Other replies change nothing."""

_FROM_CORE: Final = {
    name: kind
    for name, kind in Message.kinds.items()
    if issubclass(kind, News | Reply) or kind is rm_messages.Heartbeat
}


class EncodedMessage(NamedTuple):
    """A message for the core."""

    header: Header
    body: bytes


@dataclass(slots=True)
class _Lanes:
    """Both lanes of one partition."""

    generation: int
    """Of the partition; the numbers belong to it."""
    announced: int
    """The last generation whose start was reported to the RM, so that each start is reported once."""
    outbox: Outbox
    received: int = 0
    """The last number from the partition that the RM has."""
    acknowledged: int = 0
    """The last of them that was acknowledged to the core."""
    is_last_unknown: bool = False
    """Whether the numbers continue those of another process, and that of the last command is not known yet."""
    is_received_unknown: bool = False
    """The same for the news."""


class Session:
    """The session of one start of an RM: `session` is random and new for each start, `rm_id` stays."""

    def __init__(self, *, rm_id: str, session: str) -> None:
        self.rm_id = rm_id
        self.session = session
        self.normalise = lru_cache(OTHER_PARTITIONS_MAX)(partial(normalise_partition_name, rm_id))
        """Returns the normalised name of a partition."""
        self.state: SessionState = "new"
        self.partitions: tuple[str, ...] = ()
        """Normalised names, once the state is open."""
        self.resuming = ""
        """The partition that resumes alone; empty if none does, or if all do."""
        self._window = WINDOW
        self._lanes: dict[str, _Lanes] = {}
        self._last_call = ""
        """Reference of the latest call that determines the state, or that resumes one partition."""
        self._configuration_number = 0
        """Of the latest configuration that the core has reported."""
        self._fault_counts: Counter[str] = Counter()
        """Missing or unreadable messages by partition since its last good one; "" for those about the session."""
        self.acknowledges_late = False
        """Whether commands acknowledge only what `acknowledgements` did before."""
        self._is_taken_over = False
        """Whether another process had the session until now, and the core has not answered yet."""
        self._changes: set[str] = set()
        """References of configuration changes without an answer; refusing one does not refuse the session."""

    # Sending --------------------------------------------------------------------------------------------------------

    def register(self, request: rm_messages.RegisterResourceManager, *, ref: str = "register") -> EncodedMessage:
        """Build the first call; `receive` returns its answer."""
        self.state = "registering"
        return self._call(request, ref)

    def resume(self, partition: str = "", *, ref: str = "resume") -> EncodedMessage:
        """Build the call for a new connection, or for `ResumeWanted`. After its answer send `retransmissions`.

        With a partition (its normalised name) only that one resumes, and the others are not interrupted. All partitions
        resume instead if the session is not open, or if another partition resumes already.
        """
        is_single = bool(partition) and self.state == "open" and self.resuming in ("", partition)
        if is_single:
            self.resuming = partition
            lanes = {partition: self._lanes_of(partition)}
        else:
            self.state, self.resuming = "resuming", ""
            lanes = self._lanes
        request = rm_messages.Resume(
            received={name: one.received for name, one in lanes.items()},
            lives={name: one.announced for name, one in lanes.items() if one.announced},
            acknowledged={name: one.outbox.acknowledged for name, one in lanes.items() if one.outbox.acknowledged},
            configuration_number=self._configuration_number,
        )
        return self._call(request, ref, partition=partition if is_single else "")

    def take_over(self, *, ref: str = "resume") -> EncodedMessage:
        """Build the call that continues a session of which another process had the numbers, and lost them. Both sides
        then continue with the numbers of the core, which retransmits what that process did not acknowledge.
        """
        self.state, self._is_taken_over = "resuming", True
        return self._call(rm_messages.Resume(), ref)

    def is_open(self, partition: str) -> bool:
        """Whether messages to this partition may be sent now."""
        return self.state == "open" and not (partition and partition == self.resuming)

    def leave(self, reason: str = "", *, ref: str = "leave") -> EncodedMessage:
        """Build the call that ends the session permanently. The answer is `Left`, even if the RM was removed before."""
        self.state = "leaving"
        return self._call(rm_messages.Leave(reason=reason), ref)

    def heartbeat(self) -> EncodedMessage:
        """Build the message that keeps an idle connection alive."""
        header = Header(kind="Heartbeat", rm=self.rm_id, session=self.session)
        return EncodedMessage(header, encode_body(rm_messages.Heartbeat()))

    def update_configuration(
        self, request: rm_messages.UpdateConfiguration, *, ref: str = "configuration"
    ) -> EncodedMessage:
        """Build the call for another configuration. Its answer has the same `ref`."""
        self._changes.add(ref)
        return self._call(request, ref)

    def update(self, command: Command, body: bytes = b"") -> list[EncodedMessage]:
        """Number a command, as one message for each of its partitions. `body` is the encoded command, if known."""
        parts = split_by_partition(self.normalise, command)
        return [self.number(partition, part, body if part is command else b"") for partition, part in parts.items()]

    def number(self, partition: str, command: Command, body: bytes = b"") -> EncodedMessage:
        """Number a command to a partition (its normalised name), and keep it until it is acknowledged."""
        kind, body = type(command).__name__, body or encode_body(command)
        lanes = self._lanes_of(partition)
        seq = lanes.outbox.add(kind, body)
        if not self.acknowledges_late:
            lanes.acknowledged = lanes.received  # the header acknowledges it
        return EncodedMessage(self._header(kind, partition, seq=seq), body)

    def encode_unnumbered(self, partition: str, command: Command) -> EncodedMessage:
        """Build a command without a number, which is not retransmitted."""
        return EncodedMessage(self._header(type(command).__name__, partition), encode_body(command))

    def has_room(self, command: Command) -> bool:
        """Whether no partition of this command has a full window."""
        return not any(map(self.is_full, split_by_partition(self.normalise, command)))

    def is_full(self, partition: str) -> bool:
        """Whether the window of a partition (its normalised name) is full, or the partition resumes."""
        lanes = self._lanes.get(partition)
        if lanes is None:
            return False
        return lanes.outbox.is_full or lanes.is_last_unknown or partition == self.resuming

    def find_unacknowledged(self, header: Header, seq: int) -> Command | None:
        """Return the unacknowledged command with this number to the partition of the header."""
        lanes = self._lanes.get(header.partition)
        for number, kind, body in lanes.outbox.unacknowledged() if lanes and header.life == lanes.generation else ():
            if number == seq:
                return decode_body(rm_messages.NUMBERED[kind], body)
        return None

    def retransmissions(self, only: str = "") -> list[EncodedMessage]:
        """Return all unacknowledged commands in order, or those to one partition."""
        return [
            EncodedMessage(self._header(kind, partition, seq=seq), body)
            for partition, lanes in self._lanes.items()
            if only in ("", partition)
            for seq, kind, body in lanes.outbox.unacknowledged()
        ]

    def acknowledgements(self) -> list[EncodedMessage]:
        """Acknowledge the messages received so far, once they have had their effect."""
        found = []
        for name, lanes in self._lanes.items():
            if lanes.acknowledged < lanes.received and name != self.resuming:
                lanes.acknowledged = lanes.received
                found.append(self.encode_unnumbered(name, rm_messages.Ack()))
        return found

    # Receiving ------------------------------------------------------------------------------------------------------

    def receive(self, header: Header, body: bytes) -> News | Reply | None:
        """Process a message from the core; return it, or None if it is a duplicate, only acknowledges, or is for
        another session.

        Raises:
            WireError: malformed, or a message before it is missing: then `resume`.
        """
        kind = _FROM_CORE.get(header.kind)
        if kind is None or header.session != self.session:
            return None  # of a newer core, or of an earlier session
        message = decode_body(kind, body)
        accepted: News | Reply | None = None
        if isinstance(message, Reply):
            accepted = self._receive_reply(header, message)
        elif isinstance(message, News):
            accepted = self._receive_news(header, message)
        if (accepted or isinstance(message, rm_messages.Heartbeat)) and not isinstance(message, rm_messages.Registered):
            self._fault_counts.pop(header.partition, None)
        return accepted

    def count_fault(self, partition: str) -> bool:
        """Count a missing or unreadable message of a partition, or about the session, unless a resumption is in
        progress; return whether there were too many, so that a further resumption would not help.
        """
        self._fault_counts[partition] += self.is_open(partition)
        return self._fault_counts[partition] > FAULTS_MAX

    def receive_acknowledgement(self, header: Header) -> bool:
        """Process only the acknowledgement of a message; return whether it made room for updates."""
        lanes = self._lanes_of(header.partition)
        is_current = header.session == self.session and header.life == lanes.generation
        return is_current and lanes.outbox.acknowledge(header.ack)

    def generation(self, partition: str) -> int:
        """Return the generation of a partition, as far as known."""
        lanes = self._lanes.get(partition)
        return 0 if lanes is None else lanes.generation

    def _receive_reply(self, header: Header, message: Reply) -> Reply | None:
        before = self.state
        if self.resuming and header.ref == self._last_call:
            partition, self.resuming = self.resuming, ""
            if isinstance(message, rm_messages.Registered):
                self._adopt(partition, message.lives.get(partition, 0), is_new=False)
            else:
                self.state = "away"  # the caller resumes all
            return message
        if isinstance(message, rm_messages.Registered) and header.partition:
            return None  # for a partition that resumed alone; meanwhile all resume
        if header.ref in self._changes:
            self._changes.discard(header.ref)
        elif not isinstance(message, rm_messages.Refused) or (
            not message.seq and not header.partition and header.ref in ("", self._last_call)
        ):
            self.state = _TRANSITIONS.get(before, {}).get(header.kind, before)
        if isinstance(message, rm_messages.Registered):
            if before not in ("registering", "resuming"):
                return None  # the second answer to a repeated call
            self._window = Window(
                message.window_messages or self._window.messages, message.window_bytes or self._window.size
            )
            for lanes in self._lanes.values():
                lanes.outbox.window = self._window
        if isinstance(message, rm_messages.Registered | rm_messages.ConfigurationUpdated):
            self._configuration_number = message.configuration_number
            known, self.partitions = self.partitions, tuple(message.partitions)
            may_be_new = isinstance(message, rm_messages.ConfigurationUpdated) or before == "registering"
            for partition in message.partitions:
                is_new = may_be_new and partition not in known
                self._adopt(partition, message.lives.get(partition, 0), is_new=is_new)
            if self._is_taken_over:
                self._is_taken_over = False
                for lanes in map(self._lanes_of, self.partitions):
                    lanes.is_last_unknown = lanes.is_received_unknown = True
            self._drop_other_partitions()
        return message

    def _adopt(self, partition: str, generation: int, *, is_new: bool) -> None:
        """Start the numbers of a partition again if its generation is higher than known. Unless the partition is new, a
        `PartitionRestarted` for it follows.
        """
        known = self._lanes.get(partition)
        if generation > (known.generation if known else 0):
            announced = generation if is_new or known is None else known.announced
            self._lanes[partition] = self._new_lanes(generation, announced)

    def _receive_news(self, header: Header, message: News) -> News | None:
        lanes = self._lanes_of(header.partition)
        if isinstance(message, rm_messages.PartitionRestarted):
            if header.life <= lanes.announced:
                return None  # it is repeated after an interruption
            if header.life > lanes.generation:
                lanes = self._lanes[header.partition] = self._new_lanes(header.life)
            lanes.announced = header.life
            return message
        if header.life != lanes.generation:
            return None
        if lanes.is_last_unknown:
            lanes.outbox.last, lanes.is_last_unknown = header.ack, False
        lanes.outbox.acknowledge(header.ack)
        if header.seq == 0:
            return message if header.kind != "Received" else None
        if header.seq == lanes.received + 1 or lanes.is_received_unknown:
            lanes.received, lanes.is_received_unknown = header.seq, False
            return message
        if header.seq <= lanes.received:
            lanes.acknowledged = min(lanes.acknowledged, lanes.received - 1)
            return None
        if header.partition not in self.partitions and not lanes.received:
            return None  # a removed partition whose numbers were dropped already
        raise WireError(f"{header.partition}: news {header.seq} came after {lanes.received}")

    # Private --------------------------------------------------------------------------------------------------------

    def _call(self, request: Call, ref: str, *, partition: str = "") -> EncodedMessage:
        if not isinstance(request, rm_messages.UpdateConfiguration):
            self._last_call = ref
        header = Header(kind=type(request).__name__, rm=self.rm_id, partition=partition, session=self.session, ref=ref)
        return EncodedMessage(header, encode_body(request))

    def _header(self, kind: str, partition: str, *, seq: int = 0) -> Header:
        lanes = self._lanes_of(partition)
        ack, life = lanes.acknowledged if self.acknowledges_late else lanes.received, lanes.generation
        return Header(kind=kind, rm=self.rm_id, partition=partition, session=self.session, seq=seq, ack=ack, life=life)

    def _lanes_of(self, partition: str) -> _Lanes:
        if partition not in self._lanes:
            self._drop_other_partitions()
            self._lanes[partition] = self._new_lanes()
        return self._lanes[partition]

    def _new_lanes(self, generation: int = 0, announced: int = 0) -> _Lanes:
        lanes = _Lanes(generation, announced, Outbox())
        lanes.outbox.window = self._window
        return lanes

    def _drop_other_partitions(self) -> None:
        """Make room for one more: drop partitions without unacknowledged commands, the oldest first."""
        excess = len(self._lanes) + 1 - len(self.partitions) - OTHER_PARTITIONS_MAX
        if excess > 0:
            others = [name for name, lanes in self._lanes.items() if name not in self.partitions and not lanes.outbox]
            for name in others[:excess]:
                del self._lanes[name]
