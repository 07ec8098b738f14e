"""Encode the steps and snapshots of a worker, and recover a worker from them. Nothing is decided or sent again.

A snapshot is a stream: a head, then the records of the partition in pieces. Each is a MessagePack value with its length
before it. Events are not in it: after a recovery the event ring buffer starts empty, under another instance.
"""

import zlib
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from yunishard.common.messages.journal_messages import SentMessage, SessionRecord, Step
from yunishard.common.messages.session import Outbox
from yunishard.common.names import usual_name
from yunishard.partition_worker.engine.durable_records import Image, PartitionRecord, Record, decode_records
from yunishard.partition_worker.engine.recording import list_everything
from yunishard.partition_worker.engine.restoring import RecordsInvalid, restore_partition
from yunishard.partition_worker.event_ring_buffer import EventRingBuffer
from yunishard.partition_worker.partition_host import PartitionHost

PIECE_RECORDS: Final = 4096
"""Records in a piece of a snapshot."""

_LENGTH_BYTES: Final = 4
"""Size of the length before a piece."""


class JournalDamaged(Exception):
    """A journal has lost data, or cannot be used; the text is the reason."""


class SnapshotHead(Struct, frozen=True, omit_defaults=True):
    """The head of a snapshot."""

    step: int
    """The number of the latest step in it."""
    at: float
    session: SessionRecord
    cause: int = 0
    received: int = 0
    told: int = 0
    """The number of the last message to the RM."""
    unacknowledged: list[SentMessage] = []


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_head: Final = msgspec.msgpack.Decoder(SnapshotHead).decode


def encode_snapshot(host: PartitionHost, last: int) -> Iterator[bytes]:
    """Encode the host as it is after the step of this number, as a stream of bytes."""
    channel, partition = host.channel, host.partition
    head = SnapshotHead(
        step=last,
        at=0.0 if partition is None else partition.now,
        session=host.session,
        cause=0 if partition is None else partition.step_number,
        received=channel.received,
        told=channel.outbox.last,
        unacknowledged=[SentMessage(*one) for one in channel.outbox.unacknowledged()],
    )
    return encode_stream(head, iter(()) if partition is None else list_everything(partition))


def encode_stream(head: SnapshotHead, records: Iterator[Record]) -> Iterator[bytes]:
    """Encode the parts of a snapshot as a stream of bytes."""
    for piece in _encode_pieces(head, records):
        yield len(piece).to_bytes(_LENGTH_BYTES) + piece


def _encode_pieces(head: SnapshotHead, records: Iterator[Record]) -> Iterator[bytes]:
    yield _encode(head)
    while piece := list(islice(records, PIECE_RECORDS)):
        yield _encode(piece)


def decode_stream(content: Iterable[bytes]) -> tuple[SnapshotHead, Iterator[Record]]:
    """Decode a stream, which may be cut at any places, into the parts of a snapshot.

    Raises:
        msgspec.MsgspecError, ValueError, RecursionError: it cannot be decoded; also while the records are read.
    """
    pieces = _split(content)
    head = _decode_head(next(pieces, b""))
    return head, chain.from_iterable(map(decode_records, pieces))


def read_records(step: Step) -> list[Record]:
    """Decode the records of a step.

    Raises:
        JournalDamaged: they cannot be decoded.
    """
    try:
        return list(decode_records(step.records))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise JournalDamaged(f"step {step.number} cannot be decoded: {error}") from None


class Recovery:
    """The state of a worker, put together from its snapshot and the steps after it."""

    def __init__(self) -> None:
        self.last = 0
        """The number of the latest step."""
        self.session: SessionRecord | None = None
        self.image = Image()
        self.step_bytes = 0
        """Bytes of the steps after the snapshot, without the numbers and times in them."""
        self.at = 0.0
        """The time of that step, in Unix seconds."""
        self.received = self._cause = 0
        """The numbers of the RM's last command, and of the engine's last input or scheduling cycle."""
        self.outbox = Outbox()
        """The messages to the RM."""

    def read_snapshot(self, content: Iterable[bytes]) -> None:
        """Start with a snapshot, which may be cut at any places.

        Raises:
            JournalDamaged: it cannot be decoded.
        """
        try:
            head, records = decode_stream(content)
            self.image.apply(records)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise JournalDamaged(f"the snapshot cannot be decoded: {error}") from None
        self.last, self.at, self.session = head.step, head.at, head.session
        self.received, self._cause = head.received, head.cause
        self.outbox = Outbox(head.told, map(astuple, head.unacknowledged))

    def apply_step(self, step: Step) -> None:
        """Apply the next step.

        Raises:
            JournalDamaged: it is not the next one, or cannot be decoded.
        """
        if self.last and step.number != self.last + 1:
            raise JournalDamaged(f"step {step.number} comes after step {self.last}")
        self.image.apply(read_records(step))
        self.step_bytes += len(step.records) + sum(len(message.body) for message in step.told)
        self.last, self.at, self.session = step.number, step.at, step.session or self.session
        self.received, self._cause = step.received, step.cause
        self.outbox.acknowledge(step.acknowledged)
        for sent in step.told:
            if (number := self.outbox.add(sent.kind, sent.body)) != sent.number:
                raise JournalDamaged(f"step {step.number} has message {sent.number} to the RM after {number - 1}")

    def restore(self, host: PartitionHost) -> None:
        """Restore an empty host.

        Raises:
            JournalDamaged: the records do not fit together.
        """
        if self.session is None:
            raise JournalDamaged("no snapshot or step of it begins a partition")
        session = self.session
        if self.image.find(PartitionRecord) is not None:
            try:
                host.partition = restore_partition(
                    self.image,
                    name=usual_name(host.name),
                    now=self.at,
                    step_number=self._cause,
                    plugins=host.plugins,
                    tuning=host.tuning,
                )
            except RecordsInvalid as error:
                raise JournalDamaged(str(error)) from error
            # Questions to the RM are no steps. Each worker numbers them from another start, below 2^53 for RMs in
            # languages without larger integers, so that an answer to an earlier worker does not count.
            host.partition.nodes.predicates.verdicts.numbers = zlib.crc32(str(host.epoch).encode()) << 20
        host.begin_session(session)
        host.channel.received, host.channel.outbox = self.received, self.outbox
        host.events = EventRingBuffer(f"{host.name} {host.epoch} {session.session} {session.life} after {self.last}")
        host.apply_settings()


def recover(host: PartitionHost, snapshot: Iterable[bytes] | None, steps: Iterable[Step]) -> Recovery:
    """Restore an empty host from a snapshot and the steps after it. `last` of the result is 0 if there was nothing.

    Raises:
        JournalDamaged: something is missing, or cannot be decoded.
    """
    recovery = Recovery()
    if snapshot is not None:
        recovery.read_snapshot(snapshot)
    for step in steps:
        recovery.apply_step(step)
    if recovery.last:
        recovery.restore(host)
    return recovery


def _split(content: Iterable[bytes]) -> Iterator[bytes]:
    """Restore the pieces of a stream."""
    rest = b""
    for more in content:
        rest, at = rest + more, 0
        while (end := at + _LENGTH_BYTES + int.from_bytes(rest[at : at + _LENGTH_BYTES])) <= len(rest):
            yield rest[at + _LENGTH_BYTES : end]
            at = end
        rest = rest[at:]
    if rest:
        raise ValueError("it is cut off")
