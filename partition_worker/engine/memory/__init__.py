"""A partition as plain data, and from that data again, so that a worker can go on after a crash as if nothing had been.

    data = memory.written(partition)
    partition = memory.restored(data, name=..., plugins=..., tuning=...)

A partition and what is restored of it do the same from then on: the same inputs at the same times have the same
effects, in the same order and with the same causes. The same partition is always written in the same way. `model.py` is
the format, and each area has a file that writes and reads it.

Written is what cannot be found again, and whatever an attempt to find it again would leave traces of: orders with their
places, and what is set aside (`readiness.py`). Derived again are indexes, shares, the priorities that queues show, what
their properties and limits mean, where a packed application runs, and what asks demand of nodes. Deliberately forgotten
are

    * what only makes a search short: answers of predicates, nodes that might be kept, orders of admitting nodes;
    * the auditor, who begins a new round: he changes nothing;
    * happenings that nobody has taken yet, and effects: between two steps there are none.

Not here: where the data lies (`partition_worker/journal/`), and what the worker knows besides
(`partition_worker/remembered.py`).
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from common import garbage
from partition_worker.engine.memory import applications, nodes, predicates, queues, readiness, reserved, rest, usage
from partition_worker.engine.memory.model import FORMAT, PartitionMemory
from partition_worker.engine.memory.references import Lookup, Numbering
from partition_worker.engine.partition import Partition
from partition_worker.engine.predicates.predicate import Predicate
from partition_worker.engine.tuning import Tuning
from partition_worker.engine.users import User, Users, resolver_of


class MemoryDamaged(ValueError):
    """Data that is no partition, or one in another format."""


class _Envelope(msgspec.Struct, array_like=True):
    """What every format begins with."""

    format: int
    partition: msgspec.Raw


_encoder: Final = msgspec.msgpack.Encoder()
_envelopes: Final = msgspec.msgpack.Decoder(_Envelope)
_partitions: Final = msgspec.msgpack.Decoder(PartitionMemory)


def written(partition: Partition) -> bytes:
    """The partition as it is between two steps."""
    with garbage.none_expected():
        return _encoder.encode((FORMAT, _written(partition)))


def restored(data: bytes, *, name: str, plugins: Sequence[Predicate], tuning: Tuning) -> Partition:
    """The partition that was written.

    Raises:
        MemoryDamaged: the data is not what `written` writes.
    """
    try:
        envelope = _envelopes.decode(data)
        if envelope.format == FORMAT:
            with garbage.none_expected():
                found = _partitions.decode(envelope.partition)
                partition = Partition(found.config, name=name, now=found.now, plugins=plugins, tuning=tuning)
                _restore(partition, found)
                return partition
    except (msgspec.MsgspecError, LookupError, ValueError, AssertionError, RecursionError) as error:
        raise MemoryDamaged(f"the partition cannot be read: {type(error).__name__}: {error}") from error
    raise MemoryDamaged(f"the partition is written in format {envelope.format}, this release reads {FORMAT}")


def _written(partition: Partition) -> PartitionMemory:
    numbering = Numbering({node.node_id: node.rank for node in partition.fleet})
    alive = applications.written(partition, numbering)  # first: from then on allocations have their places
    ended = applications.written_ended(partition, numbering)
    tree = queues.written(partition)
    fleet = nodes.written(partition.fleet, numbering)
    return PartitionMemory(
        config=partition.config,
        resolver=partition.resolver,
        created_ns=partition.created_ns,
        step=partition.step,
        now=partition.now,
        idle=partition.idle,
        tracking=partition.tracking,
        retired=partition.retired,
        clean_at=partition.clean_at,
        quota_look_at=partition.quota_look_at,
        outstanding=(partition.outstanding.deadline, partition.outstanding.seen),
        latest_stamp_ns=partition.latest_stamp_ns,
        application_ranks=partition.application_ranks,
        alarm_numbers=partition.timers.last,
        counters=rest.written_counters(partition.counters),
        amounts=[dict(amounts) for amounts in numbering.amounts],
        submitters=[(user.name, list(user.groups)) for user in numbering.submitters],
        tree=tree,
        fleet=fleet,
        applications=alive,
        ended=ended,
        rejections=rest.written_rejections(partition),
        reserved=reserved.written(partition.reserved),
        usage=usage.written(partition.usage),
        readiness=readiness.written(partition, numbering),
        swappable=reserved.written_swappable(partition.swappable),
        preemptions=rest.written_preemptions(partition.preemptions),
        predicates=predicates.written(partition.fleet, numbering),
        learned=rest.written_users(partition.users),
        waiting=rest.written_waiting(partition.waiting),
        report=rest.written_report(partition.report),
    )


def _restore(partition: Partition, found: PartitionMemory) -> None:
    """Fill a partition that is as its configuration makes it, each thing after those that it refers to."""
    lookup = Lookup()
    lookup.amounts = found.amounts
    lookup.submitters = [User(user, tuple(groups)) for user, groups in found.submitters]
    queues.restore(partition, found.tree, lookup)
    nodes.restore(partition.fleet, found.fleet, lookup)
    applications.restore(partition, found.applications, lookup)
    applications.restore_ended(partition, found.ended, lookup)
    nodes.restore_contents(partition, found.fleet, lookup)
    reserved.restore(partition, found.reserved, lookup)
    applications.restore_orders(partition, found.applications, lookup)
    applications.restore_alarms(partition.timers, found.applications, lookup, found.alarm_numbers)
    queues.restore_contents(found.tree, lookup)
    usage.restore(partition.usage, found.usage, lookup)
    readiness.restore(partition, found.readiness, lookup)
    reserved.restore_swappable(partition.swappable, found.swappable, lookup)
    predicates.restore(partition.fleet.predicates, found.predicates, lookup)
    _restore_rest(partition, found)


def _restore_rest(partition: Partition, found: PartitionMemory) -> None:
    partition.resolver, partition.users = found.resolver, Users(resolver_of(found.resolver))
    rest.restore_users(partition.users, found.learned)
    rest.restore_waiting(partition.waiting, found.waiting)
    rest.restore_rejections(partition, found.rejections)
    rest.restore_preemptions(partition.preemptions, found.preemptions)
    partition.counters = rest.counters_of(found.counters)
    partition.report = rest.report_of(found.report)
    partition.outstanding.deadline, partition.outstanding.seen = found.outstanding
    partition.created_ns, partition.step, partition.now = found.created_ns, found.step, found.now
    partition.tracking, partition.retired = found.tracking, found.retired
    partition.clean_at, partition.quota_look_at = found.clean_at, found.quota_look_at
    partition.latest_stamp_ns, partition.application_ranks = found.latest_stamp_ns, found.application_ranks
    partition.idle = found.idle
    partition.happenings()  # those of the configuration were told when it came
