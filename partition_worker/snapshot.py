"""Encode and restore a worker's snapshot, and replay the journal steps that follow it.

`engine/snapshot/` encodes the partition itself; this module adds the state around it. Events are not in the snapshot:
after a recovery the event ring buffer starts empty, under another instance.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from common.control_messages import PrepareConfig
from common.journal_messages import TICK, Step
from common.messages import Header
from common.names import usual_name
from common.session import Outbox
from common.wire import Incoming
from partition_worker.engine.snapshot import codec
from partition_worker.event_ring_buffer import EventRingBuffer
from partition_worker.partition_host import PartitionHost
from partition_worker.rm_channel import RMChannel, SentMessage

FORMAT: Final = 1


class JournalDamaged(Exception):
    """A journal has lost data, or cannot be used; the text is the reason."""


class SnapshotInvalid(JournalDamaged):
    """Data that is not a snapshot of this release."""


class ReplayDiverged(JournalDamaged):
    """The replay of steps did not lead to the messages that were sent the first time."""


class _WorkerSnapshot(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The whole state, in this order."""

    format: int
    last: int
    """The number of the latest step in it."""
    rm: str
    session: str
    life: int
    rollout: int
    prepared: tuple[Header, PrepareConfig] | None
    retiring: bool
    settings: dict[str, str]
    capabilities: list[str]
    received: int
    """The number of the last command of the RM."""
    told: int
    """The number of the last message to the RM."""
    unacknowledged: list[SentMessage]
    partition: bytes
    """Encoded by `engine/snapshot`; empty while nothing runs."""


def encode_snapshot(host: PartitionHost, last: int) -> bytes:
    """Encode the host as it is after the step of this number."""
    channel, partition = host.channel, host.partition
    return msgspec.msgpack.encode(
        _WorkerSnapshot(
            format=FORMAT,
            last=last,
            rm=channel.rm,
            session=channel.session,
            life=channel.life,
            rollout=host.rollout,
            prepared=host.prepared,
            retiring=host.retiring,
            settings=host.settings,
            capabilities=host.capabilities,
            received=channel.received,
            told=channel.outbox.last,
            unacknowledged=list(channel.outbox.unacknowledged()),
            partition=b"" if partition is None else codec.encode_partition(partition),
        )
    )


def restore_snapshot(host: PartitionHost, data: bytes) -> int:
    """Restore an empty host; returns the number of the latest step in the snapshot.

    Raises:
        SnapshotInvalid: the data is damaged, or of another release.
    """
    try:
        found = msgspec.msgpack.decode(data, type=_WorkerSnapshot)
        if found.format != FORMAT:
            raise SnapshotInvalid(f"the snapshot has format {found.format}, this release reads {FORMAT}")
        if found.partition:
            host.partition = codec.restore_partition(
                found.partition, name=usual_name(host.name), plugins=host.plugins, tuning=host.tuning
            )
    except (msgspec.MsgspecError, codec.SnapshotDamaged, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotInvalid(f"the snapshot cannot be read: {error}") from None
    channel = RMChannel(partition=host.name, epoch=host.epoch, rm=found.rm, session=found.session, life=found.life)
    channel.received, channel.outbox = found.received, Outbox(found.told, found.unacknowledged)
    host.channel, host.rollout = channel, found.rollout
    host.prepared, host.retiring = found.prepared, found.retiring
    host.settings, host.capabilities = found.settings, found.capabilities
    host.events = EventRingBuffer(f"{host.name} {host.epoch} {found.session} {found.life} after {found.last}")
    host.apply_settings()
    return found.last


# Replay ---------------------------------------------------------------------------------------------------------------


def recover(host: PartitionHost, snapshot: bytes | None, steps: Iterable[Step]) -> int:
    """Restore an empty host from a snapshot and steps; returns the number of the last step, 0 if there is none.

    Raises:
        ReplayDiverged: the steps are not consecutive, or lead to other messages than they did.
        SnapshotInvalid: the snapshot cannot be read.
    """
    last = 0 if snapshot is None else restore_snapshot(host, snapshot)
    for step in steps:
        if last and step.number != last + 1:
            raise ReplayDiverged(f"step {step.number} comes after step {last}")
        _replay_step(host, step)
        last = step.number
    host.began_from = None
    return last


def _replay_step(host: PartitionHost, step: Step) -> None:
    host.channel.outbox.acknowledge(step.acknowledged)
    if step.header.kind != TICK:
        host.apply(Incoming(step.source, step.header, step.body), step.at)
    elif host.partition is None:
        raise ReplayDiverged(f"step {step.number} is a tick of a partition that has not started")
    else:
        host.advance(step.at, step.budget)
    if host.channel.drain_sent() != step.told:
        raise ReplayDiverged(
            f"step {step.number} ({step.header.kind}) leads to other messages than it did: "
            "another release or other settings wrote it, or it is damaged"
        )
