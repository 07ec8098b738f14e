"""Record what a step changed: the records of the objects that are marked in `PartitionState.changes`.

Whatever changes a durable field marks its object (`state.changes.allocations[ask.key] = ask`); at the end of the step
`collect_changes` builds the records; `list_everything` builds those of a snapshot, as if everything was marked. A
missing mark would lose the change in a crash: the tests compare the image of all steps with a snapshot after each step.
"""

from collections.abc import Iterator

from msgspec import convert

from yunishard.common.config.acl import Acl
from yunishard.common.messages.rm_messages import AllocationRelease
from yunishard.common.resources import encode_sum
from yunishard.partition_worker.engine import durable_records as records
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.amounts import name_types
from yunishard.partition_worker.engine.application import ENDED, Application
from yunishard.partition_worker.engine.durable_records import Record, Removed, kind_of
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.state import Changes, PartitionState
from yunishard.partition_worker.engine.user_resolution import HeldUpdate


def collect_changes(state: PartitionState) -> list[Record]:
    """Return the records of all marked objects, and remove the marks."""
    changes, state.changes = state.changes, Changes()
    return list(_build_records(state, changes))


def list_everything(state: PartitionState) -> Iterator[Record]:
    """Return the records of all objects, for a snapshot. The marks stay."""
    changes, pending = Changes(), state.pending_submissions
    changes.partition, changes.report = True, state.report is not None
    changes.queues = {queue.path: None for queue in state.tree}
    changes.nodes = {node.node_id: None for node in state.nodes}
    changes.applications = {one.rank: one for one in (*state.applications.values(), *state.ended.values())}
    changes.submitted = changes.entered = dict.fromkeys(changes.applications)
    changes.allocations, changes.foreign = dict(state.allocations), dict.fromkeys(state.foreign)
    changes.reservations = {reservation.ask.key: None for reservation in state.reservation_index.by_rank.values()}
    changes.rejections, changes.submissions = dict.fromkeys(state.rejections), dict.fromkeys(pending.submissions)
    changes.preemptions = list(reversed(state.preemptions.entries))  # the oldest first, in the order of their steps
    changes.cooldowns = dict.fromkeys(state.preemptions.cooldowns.wins)
    changes.held_updates = dict.fromkeys(pending.updates)
    return _build_records(state, changes)


def _build_records(state: PartitionState, changes: Changes) -> Iterator[Record]:
    # A mark names the object, and the record has what it is now: one is enough, however often a step changed it, and an
    # object that is gone and came back under its name is a change.
    for key, one in changes.allocations.items():
        yield _remove(records.AllocationRecord, key) if one is None else _allocation(one)
    yield from _applications(state, changes)
    if changes.has_others:
        yield from _others(state, changes)


def _others(state: PartitionState, changes: Changes) -> Iterator[Record]:
    pending = state.pending_submissions
    if changes.partition:
        yield records.PartitionRecord(
            config=state.config,
            resolver=state.users.resolver,
            created_ns=state.created_ns,
            retired=state.retired,
            stops=dict(state.tree.stops),
            cordons=dict(state.nodes.cordons),
        )
    if changes.report:
        yield _remove(records.ReportRecord, "") if state.report is None else records.ReportRecord()
    for path in changes.queues:
        queue = state.tree.find(path)
        yield _remove(records.QueueRecord, path) if queue is None else _queue(queue)
    for node_id in changes.nodes:
        node = state.nodes.get(node_id)
        yield _remove(records.NodeRecord, node_id) if node is None else _copy(node, records.NodeRecord)
    for key in changes.foreign:
        node = state.foreign.get(key)
        yield _remove(records.ForeignRecord, key) if node is None else _copy(node.foreign[key], records.ForeignRecord)
    for key in changes.reservations:
        yield _reservation(state, key)
    for name in changes.rejections:
        yield state.rejections.get(name) or _remove(records.RejectionRecord, name)
    for name in changes.submissions:
        new = pending.submissions.get(name)
        yield _remove(records.SubmissionRecord, name) if new is None else records.SubmissionRecord(submission=new)
    for number in changes.held_updates:
        yield _held_update(pending.updates.get(number), number)
    yield from changes.preemptions
    for winner, loser in changes.cooldowns:
        win = state.preemptions.cooldowns.wins.get((winner, loser))
        yield win or _remove(records.CooldownRecord, f"{winner} {loser}")


def _copy(one: object, kind: type[Record]) -> Record:
    """Return a record of this kind with the attributes of an object that have the names of its fields."""
    return convert(one, kind, from_attributes=True)


def _remove(kind: type[Record], key: str | int) -> Removed:
    return Removed(kind=kind_of(kind), key=key)


# Asks and allocations -------------------------------------------------------------------------------------------------


def _allocation(one: Allocation) -> Record:
    partner = one.partner
    return records.AllocationRecord(
        key=one.key,
        application_id=one.application_id,
        resources=one.resources,
        created_ns=one.created_ns,
        priority=one.priority,
        node_id=one.node_id,
        tags=one.tags,
        task_group=one.task_group,
        placeholder=one.placeholder,
        originator=one.originator,
        preemption_policy=one.preemption_policy,
        bound_ns=one.bound_ns,
        rank=one.rank,
        is_rm_asked=one.constraint is not None and bool(one.constraint.asked),
        recovered=one.recovered,
        released=one.released,
        preempted=one.preempted,
        preempted_at=one.preempted_at,
        is_overdue=one.is_overdue,
        replaces="" if partner is None or one.placeholder else partner.key,  # of a swap, the ask has the link
        placeholder_used=one.placeholder_used,
        placeholder_created_ns=one.placeholder_created_ns,
        preemption_triggered=one.preemption_triggered,
        scale_up_told=one.scale_up_told,
    )


def _reservation(state: PartitionState, key: str) -> Record:
    ask = state.allocations.get(key)
    if ask is None or not ask.reserved:
        return _remove(records.ReservationRecord, key)
    reservation = state.applications[ask.application_id].reservations[key]
    return records.ReservationRecord(
        ask_key=key,
        node_id=reservation.node.node_id,
        created=reservation.created,
        rank=reservation.rank,
        keeps_room=bool(reservation.keeps),
        keeps_since=reservation.keeps_since,
    )


# Applications ---------------------------------------------------------------------------------------------------------


def _applications(state: PartitionState, changes: Changes) -> Iterator[Record]:
    for rank, one in changes.applications.items():  # by rank, as the id of one that has ended may be in use again
        if not state.has(one):
            yield _remove(records.ApplicationRecord, rank)
            yield _remove(records.StatusRecord, rank)
            yield _remove(records.StateLogRecord, rank)
            continue
        if rank in changes.submitted:
            yield records.ApplicationRecord(
                application_id=one.application_id,
                rank=rank,
                user=one.user.name,
                groups=list(one.user.groups),
                tags=one.tags,
                placeholder_ask=one.placeholder_ask,
                gang_style=one.gang_style,
                placeholder_timeout_s=one.placeholder_timeout_s,
            )
        if rank in changes.entered and one.state_log:
            yield records.StateLogRecord(rank=rank, entered=list(one.state_log))
        yield _status(state, one)


def _status(state: PartitionState, one: Application) -> Record:
    account = state.usage.find(one)
    if account is not None and not account.counted and not one.allocations:
        account = None  # it uses nothing, and would get another account
    return records.StatusRecord(
        rank=one.rank,
        queue=one.queue.path,
        state=one.state,
        submitted_ns=one.submitted_ns,
        started_ns=one.started_ns,
        finished_ns=one.finished_ns,
        max_allocated=encode_sum(name_types(one.max_sum)),
        usage=[
            records.UsageRecord(use=use, instance_type=instance_type, amounts=encode_sum(amounts))
            for (use, instance_type), amounts in one.history.items()
        ],
        task_groups=[
            records.TaskGroupRecord(group.name, group.minimum, group.count, group.replaced, group.timed_out)
            for group in one.task_groups.values()
        ],
        state_timeout_at=one.alarms["state"].at if "state" in one.alarms else None,
        placeholder_timeout_at=one.alarms["placeholders"].at if "placeholders" in one.alarms else None,
        back_off_until=one.back_off_until,
        charged_group=None if account is None else account.group_name,
        is_counted=account is not None and account.counted,
        is_allocating=one.state not in ENDED and one.application_id in one.queue.allocating,
    )


def _held_update(one: HeldUpdate | None, number: int) -> Record:
    if one is None:
        return _remove(records.HeldUpdateRecord, number)
    if isinstance(one, AllocationRelease):
        return records.HeldUpdateRecord(application_id=one.application_id, number=number, release=one)
    return records.HeldUpdateRecord(application_id=one.application_id, number=number, ask=one)


# Queues ---------------------------------------------------------------------------------------------------------------


def _queue(queue: Queue) -> Record:
    is_configured = queue.managed and not queue.draining  # then the record of the partition has its settings
    return records.QueueRecord(
        path=queue.path,
        rank=queue.rank,
        state=queue.state,
        draining_since_ns=queue.draining_since_ns,
        quota_preemption_at=queue.quota_preemption_at,
        lacking=encode_sum(queue.lacking),
        settings=None if is_configured else _queue_settings(queue),
    )


def _queue_settings(queue: Queue) -> records.QueueSettings:
    return records.QueueSettings(
        leaf=queue.leaf,
        managed=queue.managed,
        max_applications=queue.max_applications,
        maximum=None if queue.maximum is None else encode_sum(queue.maximum),
        guaranteed=None if queue.guaranteed is None else encode_sum(queue.guaranteed),
        properties=queue.properties,
        template=queue.template,
        submit_acl=_acl(queue.submit_acl),
        admin_acl=_acl(queue.admin_acl),
        admin_text=queue.admin_text,
    )


def _acl(acl: Acl) -> records.AclRecord | None:
    if acl == Acl():
        return None
    return records.AclRecord(everybody=acl.everybody, users=sorted(acl.users), groups=sorted(acl.groups))
