"""A replica as plain data, and from that data again: what a snapshot is.

The partition itself is written by `engine/memory`; here is what a worker knows around it. The history of events is not
kept: after a recovery from a snapshot it begins anew, under another name. Not here: files (`journal/`).
"""

from typing import Final

import msgspec

from common.control_messages import PrepareConfig
from common.messages import Header
from common.names import usual_name
from common.outbox import Inbox, Outbox
from partition_worker.engine.snapshot import codec
from partition_worker.event_ring import EventRing
from partition_worker.lane import Lane, Told
from partition_worker.replica import Replica

FORMAT: Final = 1


class RememberedWronglyError(ValueError):
    """Data that is no snapshot of this release."""


class _Remembered(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """All of it, in this order."""

    format: int
    last: int
    """Number of the step after which this was so."""
    rm: str
    session: str
    life: int
    rollout: int
    prepared: tuple[Header, PrepareConfig] | None
    retiring: bool
    settings: dict[str, str]
    capabilities: list[str]
    received: int
    """Number of the last command that was taken."""
    told: int
    """Number of the last news."""
    unacknowledged: list[Told]
    partition: bytes
    """As `engine/memory` writes it; empty where nothing runs."""


_decoder = msgspec.msgpack.Decoder(_Remembered)


def written(replica: Replica, last: int) -> bytes:
    """The replica as it is after the step of this number."""
    lane, partition = replica.lane, replica.partition
    return msgspec.msgpack.encode(
        _Remembered(
            format=FORMAT,
            last=last,
            rm=lane.rm,
            session=lane.session,
            life=lane.life,
            rollout=replica.rollout,
            prepared=replica.prepared,
            retiring=replica.retiring,
            settings=replica.settings,
            capabilities=replica.capabilities,
            received=lane.inbox.last,
            told=lane.outbox.last,
            unacknowledged=list(lane.outbox.unacknowledged()),
            partition=b"" if partition is None else codec.encode_partition(partition),
        )
    )


def restore(replica: Replica, data: bytes) -> int:
    """Let a replica that knows nothing be as the one that was written; the number of the step after which that was.

    Raises:
        RememberedWronglyError: the data is damaged, or of another release.
    """
    try:
        found = _decoder.decode(data)
        if found.format != FORMAT:
            raise RememberedWronglyError(f"the snapshot has format {found.format}, this release reads {FORMAT}")
        if found.partition:
            replica.partition = codec.restore_partition(
                found.partition, name=usual_name(replica.name), plugins=replica.plugins, tuning=replica.tuning
            )
    except (msgspec.MsgspecError, codec.SnapshotDamaged, UnicodeDecodeError, RecursionError) as error:
        raise RememberedWronglyError(f"the snapshot cannot be read: {error}") from None
    lane = Lane(partition=replica.name, epoch=replica.epoch, rm=found.rm, session=found.session, life=found.life)
    lane.inbox, lane.outbox = Inbox(found.received), Outbox(found.told, found.unacknowledged)
    replica.lane, replica.rollout = lane, found.rollout
    replica.prepared, replica.retiring = found.prepared, found.retiring
    replica.settings, replica.capabilities = found.settings, found.capabilities
    replica.events = EventRing(f"{replica.name} {replica.epoch} {found.session} {found.life} after {found.last}")
    replica.understand()
    return found.last
