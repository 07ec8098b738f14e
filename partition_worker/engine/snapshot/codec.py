"""Encode a partition as a snapshot and restore it: the entry point of the snapshot codec.

    data = codec.encode_partition(partition)
    partition = codec.restore_partition(data, name=..., plugins=..., tuning=...)

A restored partition behaves exactly as the encoded one would have: the same inputs at the same times have the same
effects, in the same order and with the same causes. Encoding is deterministic.

The snapshot holds what cannot be computed again, and what could only be computed with side effects. Indexes, shares,
queue priorities, parsed policies and limits, and parsed constraints are derived again. Not in the snapshot:

    * caches that only shorten a search: predicate results, candidate nodes for reservations, filtered node orders;
    * the progress of the auditor, which starts a new round;
    * events and effects: between two steps there are none.

`schema.py` defines the format. The rest of the worker's state is in `partition_worker/snapshot.py`.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import astuple

from common import gc_tuning
from common.rm_messages import AllocationRelease, SyncEnd
from partition_worker.engine.partition import Partition
from partition_worker.engine.predicates.predicate import Predicate
from partition_worker.engine.preemption_log import Preemption, Preemptions, Win
from partition_worker.engine.records import Rejection
from partition_worker.engine.snapshot import applications, queues_and_nodes, scheduling_state, schema
from partition_worker.engine.state import Counters, Report, Tuning
from partition_worker.engine.user_limits import Trackers, Usage, UsageAccount
from partition_worker.engine.user_resolution import PendingSubmissions, User, Users


class SnapshotDamaged(ValueError):
    """The data is not an encoded partition, or has another format."""


class _Envelope(msgspec.Struct, array_like=True):
    """The outermost array of every format."""

    format: int
    partition: msgspec.Raw


_encoder: Final = msgspec.msgpack.Encoder()
_envelopes: Final = msgspec.msgpack.Decoder(_Envelope)
_partitions: Final = msgspec.msgpack.Decoder(schema.PartitionSnapshot)


def encode_partition(partition: Partition) -> bytes:
    """Encode a partition between two steps."""
    with gc_tuning.pause_collector():
        return _encoder.encode((schema.FORMAT, _encode(partition)))


def restore_partition(data: bytes, *, name: str, plugins: Sequence[Predicate], tuning: Tuning) -> Partition:
    """Decode a partition.

    Raises:
        SnapshotDamaged: the data is not valid, or has another format.
    """
    try:
        envelope = _envelopes.decode(data)
        if envelope.format == schema.FORMAT:
            with gc_tuning.pause_collector():
                found = _partitions.decode(envelope.partition)
                partition = Partition(found.config, name=name, now=found.now, plugins=plugins, tuning=tuning)
                _restore(partition, found)
                return partition
    except (msgspec.MsgspecError, LookupError, ValueError, AssertionError, RecursionError) as error:
        raise SnapshotDamaged(f"the snapshot cannot be decoded: {type(error).__name__}: {error}") from error
    raise SnapshotDamaged(f"the snapshot has format {envelope.format}, this release reads format {schema.FORMAT}")


def _encode(partition: Partition) -> schema.PartitionSnapshot:
    numbering = schema.ReferenceEncoder({node.node_id: node.rank for node in partition.nodes})
    # Applications come first, as allocations get their positions there.
    alive = applications.encode_applications(partition.applications.values(), numbering)
    ended = applications.encode_applications(partition.ended.values(), numbering)
    tree = queues_and_nodes.encode_queues(partition)
    fleet = queues_and_nodes.encode_nodes(partition.nodes, numbering)
    return schema.PartitionSnapshot(
        config=partition.config,
        resolver=partition.users.resolver,
        created_ns=partition.created_ns,
        step=partition.step_number,
        now=partition.now,
        idle=partition.idle,
        tracking=partition.tracking,
        retired=partition.retired,
        clean_at=partition.cleanup_at,
        quota_look_at=partition.quota_check_at,
        outstanding=(partition.outstanding.deadline, partition.outstanding.seen),
        latest_stamp_ns=partition.latest_stamp_ns,
        application_ranks=partition.application_ranks,
        alarm_numbers=partition.timers.last,
        counters=encode_counters(partition.counters),
        amounts=[dict(amounts) for amounts in numbering.amounts],
        submitters=[(user.name, list(user.groups)) for user in numbering.submitters],
        tree=tree,
        fleet=fleet,
        applications=alive,
        ended=ended,
        rejections=[
            (one.application_id, one.queue_name, one.user, list(one.groups), one.at_ns, one.reason)
            for one in partition.rejections.values()
        ],
        reserved=scheduling_state.encode_reservations(partition),
        usage=encode_usage(partition.usage),
        readiness=scheduling_state.encode_readiness(partition, numbering),
        swappable=scheduling_state.encode_swappable(partition.swap_candidates),
        preemptions=encode_preemptions(partition.preemptions),
        predicates=queues_and_nodes.encode_predicates(partition.nodes, numbering),
        learned=[
            (name, None if user is None else list(user.groups), at)
            for name, (user, at) in partition.users.learned.items()
        ],
        waiting=encode_waiting(partition.pending_submissions),
        report=encode_report(partition.report),
    )


def _restore(partition: Partition, found: schema.PartitionSnapshot) -> None:
    """Fill a partition that was created from its configuration; each object is restored after those it refers to."""
    lookup = schema.ReferenceDecoder()
    lookup.amounts = found.amounts
    lookup.submitters = [User(user, tuple(groups)) for user, groups in found.submitters]
    queues_and_nodes.restore_queues(partition, found.tree, lookup)
    queues_and_nodes.restore_nodes(partition.nodes, found.fleet, lookup)
    applications.restore_applications(partition, found, lookup)
    queues_and_nodes.restore_node_contents(partition, found.fleet, lookup)
    scheduling_state.restore_reservations(partition, found.reserved, lookup)
    applications.restore_ask_orders(partition, found.applications, lookup)
    applications.restore_alarms(partition.timers, found.applications, lookup, found.alarm_numbers)
    queues_and_nodes.restore_queue_contents(found.tree, lookup)
    restore_usage(partition.usage, found.usage, lookup)
    scheduling_state.restore_readiness(partition, found.readiness, lookup)
    scheduling_state.restore_swappable(partition.swap_candidates, found.swappable, lookup)
    queues_and_nodes.restore_predicates(partition.nodes.predicates, found.predicates, lookup)
    _restore_rest(partition, found)


def _restore_rest(partition: Partition, found: schema.PartitionSnapshot) -> None:
    partition.users = Users(found.resolver)
    for name, names, at in found.learned:
        partition.users.learned[name] = None if names is None else User(name, tuple(names)), at
    restore_waiting(partition.pending_submissions, found.waiting)
    for application_id, queue_name, user, groups, at_ns, reason in found.rejections:
        partition.rejections[application_id] = Rejection(
            application_id=application_id,
            queue_name=queue_name,
            user=user,
            groups=tuple(groups),
            at_ns=at_ns,
            reason=reason,
        )
    restore_preemptions(partition.preemptions, found.preemptions)
    partition.counters = Counters(*astuple(found.counters)[:-1])
    partition.counters.reached = Counter({(path, state): count for path, state, count in found.counters.reached})
    partition.report = decode_report(found.report)
    partition.outstanding.deadline, partition.outstanding.seen = found.outstanding
    partition.created_ns, partition.step_number, partition.now = found.created_ns, found.step, found.now
    partition.tracking, partition.retired = found.tracking, found.retired
    partition.cleanup_at, partition.quota_check_at = found.clean_at, found.quota_look_at
    partition.latest_stamp_ns, partition.application_ranks = found.latest_stamp_ns, found.application_ranks
    partition.idle = found.idle
    partition.drain_events()  # drop the events of the configuration: they were recorded before


# Counters, preemptions, pending submissions, users, rejections, state sync --------------------------------------------


def encode_counters(counters: Counters) -> schema.CountersSnapshot:
    """Encode the partition's counters."""
    return schema.CountersSnapshot(
        allocated=counters.allocated,
        released=counters.released,
        rejected=counters.rejected,
        errors=counters.errors,
        submitted=counters.submitted,
        refused=counters.refused,
        decommissioned=counters.decommissioned,
        reached=[(path, state, count) for (path, state), count in counters.reached.items()],
    )


def encode_preemptions(preemptions: Preemptions) -> schema.PreemptionsSnapshot:
    """Encode recorded preemptions, oldest first, and preemption cooldowns."""
    return schema.PreemptionsSnapshot(
        entries=[
            schema.PreemptionSnapshot(
                *one[:8], resources=schema.encode_amounts(one.resources), lost=schema.encode_amounts(one.lost)
            )
            for one in reversed(preemptions.entries)
        ],
        pause_until=preemptions.pause_until,
        paused_for=preemptions.paused_for,
        turned_away=list(preemptions.turned_away),
        wins=[(*pair, *win) for pair, win in preemptions.cooldowns.wins.items()],
    )


def restore_preemptions(preemptions: Preemptions, found: schema.PreemptionsSnapshot) -> None:
    """Restore recorded preemptions and preemption cooldowns."""
    preemptions.entries.extendleft(
        Preemption(*astuple(one))._replace(
            resources=schema.decode_amounts(one.resources), lost=schema.decode_amounts(one.lost)
        )
        for one in found.entries
    )
    preemptions.pause_until, preemptions.paused_for = found.pause_until, found.paused_for
    preemptions.turned_away = dict.fromkeys(found.turned_away)
    for winner, loser, at, for_s in found.wins:
        preemptions.cooldowns.store_win(winner, loser, Win(at, for_s))


def encode_waiting(waiting: PendingSubmissions) -> schema.WaitingSnapshot:
    """Encode submissions that wait for a group lookup, and updates to their applications, in order of arrival."""
    return schema.WaitingSnapshot(
        users=list(waiting.by_user),
        submissions=[waiting.by_user[user][application_id] for application_id, user in waiting.users.items()],
        held=[
            (
                application_id,
                [(None, one) if isinstance(one, AllocationRelease) else (one, None) for one in said],
            )
            for application_id, said in waiting.held.items()
        ],
    )


def restore_waiting(waiting: PendingSubmissions, found: schema.WaitingSnapshot) -> None:
    """Restore submissions that wait for a group lookup."""
    waiting.by_user = {user: {} for user in found.users}
    for submission in found.submissions:
        waiting.insert(submission)
    for application_id, said in found.held:
        for allocation, release in said:
            one = allocation or release
            assert one is not None, application_id
            waiting.hold_update(application_id, one)


def encode_report(report: Report | None) -> schema.ReportSnapshot | None:
    """Encode a state sync in progress: what the RM has reported so far."""
    if report is None:
        return None
    count = (report.count.nodes, report.count.applications, report.count.allocations)
    return count, list(report.nodes), list(report.applications), list(report.allocations)


def decode_report(memory: schema.ReportSnapshot | None) -> Report | None:
    """Decode a state sync in progress."""
    if memory is None:
        return None
    (nodes, applications, allocations), *ids = memory
    count = SyncEnd(nodes=nodes, applications=applications, allocations=allocations)
    return Report(count, dict.fromkeys(ids[0]), dict.fromkeys(ids[1]), dict.fromkeys(ids[2]))


# Usage of users and groups ------------------------------------------------------------------------------------------


def encode_usage(usage: Usage) -> schema.UsageSnapshot:
    """Encode usage by user, group and queue, and the accounts that applications are charged to."""
    return schema.UsageSnapshot(
        users=_encode_trackers(usage.users),
        groups=_encode_trackers(usage.groups),
        accounts=[(one.application.rank, one.group_name, one.counted) for one in usage.accounts.values()],
        idle=list(usage.idle),
        ranks=usage.ranks.last,
    )


def _encode_trackers(trackers: Trackers) -> list[tuple[str, list[schema.LevelSnapshot]]]:
    return [
        (
            tracker.name,
            [
                schema.LevelSnapshot(
                    level.path, level.rank, schema.encode_amounts(level.used), list(level.applications)
                )
                for level in tracker.levels.values()
            ],
        )
        for tracker in trackers.by_name.values()
    ]


def restore_usage(usage: Usage, found: schema.UsageSnapshot, lookup: schema.ReferenceDecoder) -> None:
    """Restore the usage of users and groups. Limits come from the configuration."""
    _restore_trackers(usage.users, found.users, lookup)
    _restore_trackers(usage.groups, found.groups, lookup)
    for rank, group, counted in found.accounts:
        application = lookup.applications[rank]
        account, path = UsageAccount(application, group_name=group, counted=counted), application.queue.path
        account.user = usage.users.link_account(application.user.name, path, account)
        if group is not None:
            account.group = usage.groups.link_account(group, path, account)
        account.update_limits()
        usage.accounts[rank] = account
    usage.idle, usage.ranks.last = dict.fromkeys(found.idle), found.ranks


def _restore_trackers(
    trackers: Trackers, found: list[tuple[str, list[schema.LevelSnapshot]]], lookup: schema.ReferenceDecoder
) -> None:
    trackers.by_name.clear()
    for name, levels in found:
        for memory in levels:
            level = trackers.create(name, memory.path, memory.rank)
            level.used = schema.decode_amounts(memory.used)
            level.applications = dict.fromkeys(memory.applications)
            lookup.levels[level.rank] = level
