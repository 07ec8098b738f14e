"""Reconfiguration of a running partition: check a new configuration, plan the queue changes, apply them, drain queues.

    find_objections(state, config)         why the partition cannot take it; changes nothing
    compare_configs(tree, before, after)   the plan of the queue changes (`queues/tree.py`); changes nothing
    apply(state, config, plan)             cannot fail without objections

Allocations stay: a lower maximum only prevents new ones, unless quota preemption is enabled; a higher one takes effect
at once. Running applications keep their queue, and the group resolver stays that of the first configuration.

The plan is made when the worker votes, so that the commit is short even if thousands of queues change. It compares the
two configurations, and, where their text or what they inherit differs, the new settings with the queue itself. Queues
are found by lower-case path. A managed queue that is no longer configured drains; dynamic queues stay, with the
template of their parent. A draining queue accepts nothing new and is removed once it is empty; the RM, the log and the
administrators are informed.
"""

from typing import Final

from yunishard.common.config.model import PartitionConfig
from yunishard.common.config.validation import find_build_problems
from yunishard.common.messages import event_codes
from yunishard.common.messages.wire import NEVER
from yunishard.common.text_formats import format_count
from yunishard.partition_worker.engine import events, lifecycle
from yunishard.partition_worker.engine.placement import build_chain
from yunishard.partition_worker.engine.preemption.quota_enforcement import quota_preemption_time
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.queues.tree import QueueChangePlan, Settings, configure
from yunishard.partition_worker.engine.state import PartitionState

# Reconfiguration ------------------------------------------------------------------------------------------------------


def find_objections(state: PartitionState, config: PartitionConfig) -> list[str]:
    """Why this partition cannot take a valid configuration; empty if it can."""
    if state.retired:
        return [f"partition {state.name} was removed"]
    problems = [str(problem) for problem in find_build_problems(config)]
    problem = build_chain(config.placement_rules).problem
    return [*problems, problem] if problem else problems


def apply(state: PartitionState, config: PartitionConfig, plan: QueueChangePlan) -> None:
    """Apply a configuration without objections, with its plan."""
    assert plan.before is state.config.root, "a plan from another configuration"
    is_preemption_new, state.config = state.config.preemption != config.preemption, config
    state.changes.partition = True
    state.placement = build_chain(config.placement_rules)
    state.nodes.set_policy(state.node_sort(config), config.node_sort_policy.weights)
    reset = _change_queues(state, plan) | plan.limits
    if plan.limits:
        state.changes.applications.update((one.rank, one) for one in state.usage.reconfigure(config))
    for queue in state.tree:
        if queue.applications and (is_preemption_new or any(level.path in reset for level in queue.ancestry())):
            state.readiness.reset_leaf(queue)
    state.readiness.reopen_queues()
    state.reservation_index.has_new_limits = True
    state.nodes.reserved.forget_order()  # it depends on the priority offsets and fences of queues
    state.swap_candidates.reorder()  # by the new policies and shares
    if any(queue.quota_preemption_at for queue in state.tree):
        state.schedule_quota_check()
    if state.tree.has_temporary():
        state.schedule_cleanup()


def _change_queues(state: PartitionState, plan: QueueChangePlan) -> set[str]:
    """Add and set queues, parents first; then drain, restart and pass templates on. Return the paths of those below
    which asks may wait for something else than before.
    """
    reset: set[str] = set()
    state.changes.queues.update(dict.fromkeys(plan.wanted))
    for path, wants in plan.wanted.items():
        queue = state.tree.find(path)
        if queue is None:
            events.record_queue(state, state.tree.add(path, wants), event_codes.ADD)
        elif _set(state, queue, wants):
            reset.add(path)
    for queue in state.tree:
        if queue.managed:
            if queue.path in plan.unwanted:
                drain_queue(state, queue)
        elif not queue.leaf and queue.parent is not None and queue.template is not queue.parent.template:
            queue.template = queue.parent.template
            state.changes.queues[queue.path] = None
    return reset


def _set(state: PartitionState, queue: Queue, wants: Settings) -> bool:
    """Give a queue its settings; it becomes managed and active. Return whether anything but its maximum changed that
    decides what asks in it or below it wait for.
    """
    leaf, maximum, guaranteed, priority = queue.leaf, queue.maximum, queue.guaranteed, queue.priority
    before = _wait_settings(queue)
    was_aware, delay_s = queue.state_aware, queue.policies.quota_preemption_delay_s
    configure(queue, wants)
    queue.quota_preemption_at = quota_preemption_time(queue, maximum, delay_s, state.now)
    queue.state, queue.draining_since_ns, queue.draining_told_ns = "Active", 0, 0
    events.record_quota(state, queue, maximum, guaranteed)
    if leaf != queue.leaf:
        message = f"leaf queue: {str(queue.leaf).lower()}"
        state.record_event(event_codes.QUEUE, queue.path, event_codes.SET, event_codes.QUEUE_TYPE, message=message)
    queue.update_priority(priority)
    if was_aware and not queue.state_aware:
        for application in [state.applications[name] for name in queue.applications]:
            lifecycle.end_starting(state, application)
    return _wait_settings(queue) != before


def _wait_settings(queue: Queue) -> tuple[bool, int, dict[str, int] | None, dict[str, str]]:
    """The settings of a queue, but for its maximum, on which depends what asks wait for, in which order, and which
    victims there may be.
    """
    return queue.leaf, queue.max_applications, queue.guaranteed, queue.properties


# Draining queues ------------------------------------------------------------------------------------------------------

DRAINING_TOLD_EVERY_S: Final = 3600.0
"""Seconds between log lines about a queue that is still draining."""


def drain_queue(state: PartitionState, queue: Queue) -> None:
    """Start draining a queue."""
    assert queue.managed, queue.path
    if queue.draining:
        return
    queue.state = "Draining"
    state.changes.queues[queue.path] = None
    queue.draining_since_ns = queue.draining_told_ns = state.stamp_ns()
    text = f"queue {queue.path} left the configuration and drains: {_describe_rest(queue)}"
    state.log_info(text)
    events.emit_record(state, event_codes.QUEUE, queue.path, text, queue.draining_since_ns)
    for application_id in queue.applications:
        message = f"application {application_id} continues, but its queue takes nothing new: {text}"
        events.emit_record(state, event_codes.APP, application_id, message, queue.draining_since_ns, queue.path)


def remove_empty_queues(state: PartitionState) -> None:
    """Remove empty dynamic and draining queues; schedule the next run if there are others."""
    state.cleanup_at = NEVER
    for queue in state.tree.remove_empty():
        events.record_queue(state, queue, event_codes.REMOVE)
        state.readiness.forget_queue(queue)
        state.changes.queues[queue.path] = None
        state.counters.fold(queue.path, queue.path.rpartition(".")[0])
    now_ns = int(state.now * 1e9)
    for queue in state.tree:
        if queue.draining and now_ns - queue.draining_told_ns >= DRAINING_TOLD_EVERY_S * 1e9:
            queue.draining_told_ns = now_ns
            hours = (now_ns - queue.draining_since_ns) / 3.6e12
            state.log_info(f"queue {queue.path} has been draining for {hours:.1f} hours: {_describe_rest(queue)}")
    if state.tree.has_temporary():
        state.schedule_cleanup()


def _describe_rest(queue: Queue) -> str:
    """The number of applications left, and the administrators as configured."""
    lists = [f"{level.admin_text.strip()!r} of {level.path}" for level in queue.ancestry() if level.admin_text.strip()]
    return f"{format_count(queue.population, 'application')} in it, administrators: {', '.join(lists) or 'none'}"
