"""Build a partition from the image of its records. Nothing is decided, sent or recorded as an event.

Sums, orders and indexes are derived here, through the same methods that keep them up to date later. All waiting asks
count as not tried yet. The next decisions are valid, but not necessarily those of a partition that was not restored.
"""

from collections.abc import Sequence

from msgspec import convert
from msgspec.structs import replace

from yunishard.common.config.acl import Acl
from yunishard.common.process import gc_tuning
from yunishard.common.resources import decode_sum
from yunishard.partition_worker.engine import durable_records
from yunishard.partition_worker.engine.allocation import Allocation, Constraint, make_shape, may_share_time
from yunishard.partition_worker.engine.amounts import amounts_of, sum_of
from yunishard.partition_worker.engine.application import (
    ACTIVE,
    ENDED,
    Application,
    AppState,
    TaskGroup,
    Use,
)
from yunishard.partition_worker.engine.durable_records import Image
from yunishard.partition_worker.engine.ledger import may_swap
from yunishard.partition_worker.engine.nodes.node_index import Node, Reservation
from yunishard.partition_worker.engine.outstanding_asks import REPORT_EVERY_S
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.predicates.evaluation import PARTITION_SCOPE, SCOPE
from yunishard.partition_worker.engine.predicates.predicate import Predicate
from yunishard.partition_worker.engine.queues.queue import Queue, parse_policies, refresh_fair_maximum
from yunishard.partition_worker.engine.state import Changes, Report, Tuning
from yunishard.partition_worker.engine.user_resolution import User, Users


class RecordsInvalid(ValueError):
    """Records that do not fit together: the journal is damaged, or a defect wrote it."""


def restore_partition(
    image: Image, *, name: str, now: float, step_number: int = 0, plugins: Sequence[Predicate] = (), tuning: Tuning
) -> Partition:
    """Build the partition; `now` is the Unix time of the latest step, `step_number` its number in the engine.

    Raises:
        RecordsInvalid: it cannot be built.
    """
    head = image.find(durable_records.PartitionRecord)
    if head is None:
        raise RecordsInvalid("there is no record of the partition itself")
    with gc_tuning.pause_collector():
        try:
            bare = replace(head.config, queues=(replace(head.config.root, queues=()),))  # its queues may be gone
            config = bare if head.retired else head.config
            partition = Partition(config, name=name, now=now, plugins=plugins, tuning=tuning)
            partition.config = head.config
            partition.tracking = False
            partition.created_ns, partition.retired = head.created_ns, head.retired
            partition.users = Users(head.resolver)
            partition.tree.set_stops(head.stops)
            partition.nodes.set_cordons(head.cordons)
            if image.find(durable_records.ReportRecord) is not None:
                partition.report = Report(deadline=0.0, is_interrupted=True)
            _Restoration(partition, image).run()
        except MemoryError:
            raise
        except Exception as error:  # it would fail at each later start, too
            raise RecordsInvalid(f"its records do not fit together: {type(error).__name__}: {error}") from error
        partition.step_number = step_number
        partition.drain_events()
        partition.changes = Changes()
    return partition


class _Restoration:
    """One partition while it is built; each object after those that it refers to."""

    def __init__(self, partition: Partition, image: Image) -> None:
        self.partition = partition
        self.image = image
        self.ended: list[Application] = []

    def run(self) -> None:
        partition, image = self.partition, self.image
        self._restore_queues()
        self._restore_nodes()
        for status in image.of(durable_records.StatusRecord):
            assert image.find(durable_records.ApplicationRecord, status.rank), f"status of application {status.rank}"
        for record in image.of(durable_records.ApplicationRecord):
            self._restore_application(record)
        for application in sorted(self.ended, key=lambda one: one.finished_ns):
            partition.keep_ended(application)
        self._restore_allocations()
        self._restore_reservations()
        for application in partition.applications.values():
            self._restore_usage(application)
        self._restore_others()
        partition.readiness.update_cluster_size()
        for node in partition.nodes:
            partition.nodes.reopen(node)
        for application in partition.applications.values():
            partition.readiness.touch_application(application)
            if may_swap(application):
                partition.swap_candidates.offer(application)
        if any(queue.quota_preemption_at for queue in partition.tree):
            partition.schedule_quota_check()
        if partition.tree.has_temporary():
            partition.schedule_cleanup()
        partition.outstanding.deadline = partition.now + REPORT_EVERY_S
        partition.idle = False

    # Queues and nodes -------------------------------------------------------------------------------------------------

    def _restore_queues(self) -> None:
        tree = self.partition.tree
        # A queue is younger than the one above it, so that exists when a draining or dynamic one is added.
        for record in sorted(self.image.of(durable_records.QueueRecord), key=lambda one: one.rank):
            queue = tree.find(record.path)
            if queue is None:
                queue = tree.restore(record.path)
            if record.settings is not None:
                _apply_settings(queue, record.settings)
            queue.rank = record.rank
            queue.state = record.state
            queue.draining_since_ns = queue.draining_told_ns = record.draining_since_ns
            queue.quota_preemption_at, queue.lacking = record.quota_preemption_at, decode_sum(record.lacking)
            tree.next_rank = max(tree.next_rank, record.rank + 1)
        refresh_fair_maximum(tree.root)

    def _restore_nodes(self) -> None:
        nodes = self.partition.nodes
        for record in sorted(self.image.of(durable_records.NodeRecord), key=lambda one: one.rank):
            nodes.ranks = record.rank
            nodes.add(record.node_id, record.capacity, record.attributes, schedulable=record.schedulable)
        for one in self.image.of(durable_records.ForeignRecord):
            node, shape = self._node(one.node_id), make_shape(amounts_of(one.resources), {}, None)
            node.put_foreign(Allocation(one.key, "", shape, one.created_ns, one.priority, one.node_id, one.tags))
            self.partition.foreign[one.key] = node

    def _node(self, node_id: str) -> Node:
        node = self.partition.nodes.get(node_id)
        assert node is not None, f"node {node_id}"
        return node

    # Applications -----------------------------------------------------------------------------------------------------

    def _restore_application(self, record: durable_records.ApplicationRecord) -> None:
        partition = self.partition
        status = self._status_of(record.rank)
        states = self.image.find(durable_records.StateLogRecord, record.rank)
        entered = [] if states is None else states.entered
        state = AppState(status.state)
        application = Application(
            application_id=record.application_id,
            rank=record.rank,
            user=User(record.user, tuple(record.groups)),
            queue=self._queue_of(status.queue, must_exist=state not in ENDED),
            submitted_ns=status.submitted_ns,
            tags=record.tags,
            placeholder_ask=record.placeholder_ask,
            state=state,
            gang_style="Hard" if record.gang_style == "Hard" else "Soft",
            placeholder_timeout_s=record.placeholder_timeout_s,
        )
        application.state_log.extend((at, AppState(one)) for at, one in entered)
        application.max_sum = sum_of(decode_sum(status.max_allocated))
        application.task_groups = {
            one.name: TaskGroup(one.name, one.minimum, one.count, one.replaced, one.timed_out)
            for one in status.task_groups
        }
        application.history = {(Use(one.use), one.instance_type): decode_sum(one.amounts) for one in status.usage}
        application.started_ns, application.finished_ns = status.started_ns, status.finished_ns
        application.back_off_until = status.back_off_until
        partition.application_ranks = max(partition.application_ranks, record.rank)
        stamps = (status.submitted_ns, status.finished_ns, entered[-1][0] if entered else 0)
        partition.latest_stamp_ns = max(partition.latest_stamp_ns, *stamps)
        if state in ENDED:
            self.ended.append(application)
        else:
            partition.applications[record.application_id] = application
            application.queue.applications[record.application_id] = None

    def _status_of(self, rank: int) -> durable_records.StatusRecord:
        status = self.image.find(durable_records.StatusRecord, rank)
        assert status is not None, f"application {rank} without a status"
        return status

    def _queue_of(self, path: str, *, must_exist: bool) -> Queue:
        """The queue of an application; one that was removed is found again as a part of no tree."""
        queue = self.partition.tree.find(path)
        if queue is None:
            assert not must_exist, f"queue {path}"
            above = path.rpartition(".")[0]
            queue = Queue(path, self._queue_of(above, must_exist=False), rank=-1, leaf=True, managed=False)
        return queue

    def _restore_usage(self, application: Application) -> None:
        """Restore the fields and sums that depend on the allocations of an application, and its timers."""
        partition, status = self.partition, self._status_of(application.rank)
        queue = application.queue
        application.submitted_ns, application.max_sum = status.submitted_ns, sum_of(decode_sum(status.max_allocated))
        queue.add_pending(amounts_of(application.pending))
        queue.add_allocated(amounts_of(application.charged))
        queue.exchange_priority(None, application.asks.priority)
        if application.state in ACTIVE:
            queue.add_running(1)
        if status.is_allocating:
            queue.count_allocating(application.application_id)
        if status.is_counted or application.allocations:
            partition.usage.restore(application, group=status.charged_group, counted=status.is_counted)
        if status.state_timeout_at is not None:
            partition.timers.start(application, "state", status.state_timeout_at)
        if status.placeholder_timeout_at is not None:
            partition.timers.start(application, "placeholders", status.placeholder_timeout_at)

    # Asks and allocations -------------------------------------------------------------------------------------------

    def _restore_allocations(self) -> None:
        swaps: list[tuple[Allocation, str]] = []
        leaving: list[Allocation] = []
        for record in self.image.of(durable_records.AllocationRecord):
            one, application = self._build(record), self.partition.applications[record.application_id]
            self.partition.allocations[one.key] = one
            stamped_ns = 0 if may_share_time(one.created_ns) else one.created_ns
            self.partition.latest_stamp_ns = max(self.partition.latest_stamp_ns, one.bound_ns, stamped_ns)
            if record.replaces:
                swaps.append((one, record.replaces))
            elif one.node_id:
                self._node(one.node_id).add(one)
                self.partition.running_allocations += 1
                application.queue.last_bound_ns = max(application.queue.last_bound_ns, one.bound_ns)
                application.add_allocation(one)
                if one.released or one.preempted:
                    application.withdraw_placeholder(one)
                if one.is_leaving:
                    application.queue.add_preempting(one.shape.amounts)
                    leaving.append(one)
            else:
                one.reserved = self.image.find(durable_records.ReservationRecord, one.key) is not None
                one.held = application.must_hold(one)
                application.add_ask(one, is_restored=True)
        self.partition.leaving.update((one.key, one) for one in sorted(leaving, key=lambda one: one.preempted_at))
        for ask, key in swaps:  # when all are there, as the record of an ask may precede that of its placeholder
            application = self.partition.applications[ask.application_id]
            placeholder = application.allocations[key]
            application.begin_swap(ask, placeholder)
            if ask.node_id != placeholder.node_id:
                self._node(ask.node_id).add(ask)

    def _build(self, record: durable_records.AllocationRecord) -> Allocation:
        predicates, constraint = self.partition.nodes.predicates, None
        if record.tags or record.is_rm_asked:
            demands = predicates.restore_demands(record.tags, is_placed=bool(record.node_id))
            if record.is_rm_asked or demands != predicates.no_demands:
                is_wide = record.is_rm_asked and record.tags.get(SCOPE) == PARTITION_SCOPE
                constraint = Constraint(demands, record.key if record.is_rm_asked else "", is_wide)
        one = Allocation(
            record.key,
            record.application_id,
            make_shape(amounts_of(record.resources), record.tags, constraint),
            record.created_ns,
            record.priority,
            record.node_id,
            record.tags,
            record.task_group,
            record.placeholder,
            record.originator,
            record.preemption_policy,
        )
        one.bound_ns, one.rank = record.bound_ns, record.rank
        one.recovered, one.released = record.recovered, record.released
        one.preempted, one.preempted_at, one.is_overdue = record.preempted, record.preempted_at, record.is_overdue
        one.placeholder_used, one.placeholder_created_ns = record.placeholder_used, record.placeholder_created_ns
        one.preemption_triggered, one.scale_up_told = record.preemption_triggered, record.scale_up_told
        return one

    def _restore_reservations(self) -> None:
        index = self.partition.reservation_index
        for record in sorted(self.image.of(durable_records.ReservationRecord), key=lambda one: one.rank):
            ask, node = self.partition.allocations[record.ask_key], self._node(record.node_id)
            application = self.partition.applications[ask.application_id]
            reservation = Reservation(ask, node, application.queue, created=record.created, rank=record.rank)
            application.reservations[ask.key] = node.reservations[ask.key] = reservation
            if record.keeps_room:
                reservation.keeps = ask.resources
                reservation.keeps_since = record.keeps_since
                application.queue.add_kept(ask.resources)
            index.ranks = record.rank
            index.insert(reservation)

    # Others -----------------------------------------------------------------------------------------------------------

    def _restore_others(self) -> None:
        partition, image = self.partition, self.image
        for rejection in sorted(image.of(durable_records.RejectionRecord), key=lambda one: one.at_ns):
            partition.keep_rejection(rejection)
            partition.latest_stamp_ns = max(partition.latest_stamp_ns, rejection.at_ns)
        for submission in image.of(durable_records.SubmissionRecord):
            partition.pending_submissions.insert(submission.submission)
        for held in sorted(image.of(durable_records.HeldUpdateRecord), key=lambda held: held.number):
            update = held.ask or held.release
            assert update is not None, held.number
            partition.pending_submissions.hold_update(update, held.number)
        for one in sorted(image.of(durable_records.CooldownRecord), key=lambda one: one.at):
            partition.preemptions.cooldowns.store_win(one)
        partition.preemptions.cooldowns.drain_changed()
        partition.preemptions.entries.extendleft(image.of(durable_records.PreemptionRecord))


def _apply_settings(queue: Queue, found: durable_records.QueueSettings) -> None:
    queue.leaf, queue.managed, queue.max_applications = found.leaf, found.managed, found.max_applications
    queue.entitle(
        maximum=None if found.maximum is None else decode_sum(found.maximum),
        guaranteed=None if found.guaranteed is None else decode_sum(found.guaranteed),
    )
    queue.properties, queue.policies = found.properties, parse_policies(found.properties, leaf=found.leaf)
    queue.template = found.template
    queue.submit_acl, queue.admin_acl = _acl(found.submit_acl), _acl(found.admin_acl)
    queue.admin_text = found.admin_text


def _acl(found: durable_records.AclRecord | None) -> Acl:
    return Acl() if found is None else convert(found, Acl, from_attributes=True)
