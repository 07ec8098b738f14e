"""Reconfiguration of a running partition: check a new configuration, plan the queue changes, apply them, drain queues.

    objections(state, config)    why the partition cannot take it; changes nothing
    plan(state, config)          the queue changes; changes nothing
    apply(state, config, plan)   cannot fail without objections

Allocations stay: a lower maximum only prevents new ones, unless quota preemption is enabled; a higher one takes effect
at once. Running applications keep their queue, and the group resolver stays that of the first configuration.

The plan is made when the worker votes, so that the commit is short even if thousands of queues change. It compares the
two configurations, and, where their text or what they inherit differs, the new settings with the queue itself. Queues
are found by lower-case path. A managed queue that is no longer configured drains; dynamic queues stay, with the
template of their parent. A draining queue accepts nothing new and is removed once it is empty; the RM, the log and the
administrators are informed.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from common import event_codes
from common.acl import Acl, parse_acl
from common.config.model import PartitionConfig, QueueConfig
from common.config.validation import find_build_problems
from common.names import ROOT
from common.rm_messages import EventRecord
from common.text_formats import format_count
from common.wire import NEVER
from partition_worker.engine import events, lifecycle
from partition_worker.engine.placement_chain import PlacementChain
from partition_worker.engine.placement_rules import RuleError
from partition_worker.engine.queues.configuration import Heritage, Settings, configure, heritage, settings, settings_of
from partition_worker.engine.queues.headroom import (
    NO_QUOTA_PREEMPTION,
    QuotaTerms,
    quota_preemption_time,
    quota_terms_of,
)
from partition_worker.engine.queues.policies import ApplicationSort
from partition_worker.engine.queues.queue import Queue, Template, priority_settings_changed
from partition_worker.engine.queues.tree import Tree
from partition_worker.engine.state import PartitionState


@dataclass(slots=True, eq=False)
class QueueChangePlan:
    """The differences of two configurations for the queues of a partition."""

    before: QueueConfig
    """The root of the configuration in force; `after` is that of the new one."""
    after: QueueConfig
    wanted: dict[str, Settings] = field(default_factory=dict)
    """The settings of new and changed queues, by path in the order of the file."""
    unwanted: set[str] = field(default_factory=set)
    """Paths that only the configuration in force has."""
    limits: bool = False
    """Whether user or group limits may differ, at any queue."""


class AddQueue(NamedTuple):
    """A new queue."""

    path: str
    settings: Settings


class SetQueue(NamedTuple):
    """A queue with other settings, that becomes managed, or that stops draining."""

    queue: Queue
    settings: Settings


class SetTemplate(NamedTuple):
    """A dynamic parent with another inherited template."""

    queue: Queue
    template: Template | None


class DrainQueue(NamedTuple):
    """A managed queue that is no longer configured."""

    queue: Queue


Change = AddQueue | SetQueue | SetTemplate | DrainQueue


def compare_configs(tree: Tree, before: QueueConfig, after: QueueConfig) -> QueueChangePlan:
    """Plan the changes of a tree that has the configuration `before`."""
    found = QueueChangePlan(before, after)
    _plan(tree, found, ROOT, before, after, None)
    return found


def list_changes(tree: Tree, wanted: QueueChangePlan) -> list[Change]:
    """The changes of a plan in the order to make them: parents first, removals last."""
    found: list[Change] = []
    for path, settings_ in wanted.wanted.items():
        queue = tree.find(path)
        found.append(AddQueue(path, settings_) if queue is None else SetQueue(queue, settings_))
    templates: dict[str, Template | None] = {}
    for queue in tree:
        if queue.managed:
            if queue.path in wanted.unwanted:
                found += [] if queue.draining else [DrainQueue(queue)]
            elif queue.state == "Stopped" and queue.path not in wanted.wanted:
                found.append(SetQueue(queue, settings_of(queue)))  # which restarts it
        elif not queue.leaf and queue.path not in wanted.wanted:
            template = templates[queue.path] = _template_above(queue, wanted, templates)
            if template != queue.template:
                found.append(SetTemplate(queue, template))
    return found


def _template_above(queue: Queue, wanted: QueueChangePlan, templates: dict[str, Template | None]) -> Template | None:
    """The new template of a dynamic parent."""
    parent = queue.parent
    assert parent is not None, queue.path
    settings_ = wanted.wanted.get(parent.path)
    return templates.get(parent.path, parent.template) if settings_ is None else settings_.template


# Private --------------------------------------------------------------------------------------------------------------


def _plan(
    tree: Tree,
    found: QueueChangePlan,
    path: str,
    before: QueueConfig | None,
    after: QueueConfig,
    above: Heritage | None,
) -> None:
    """Compare a queue and the queues below it."""
    queue = None if before is None else tree.find(path)
    known = None if queue is None else settings_of(queue)
    lists = None if before is None or known is None else _lists(before, after, known)
    wants = settings(after, above, lists=lists)
    if known != wants:
        found.wanted[path] = wants
    if after.limits != (() if before is None else before.limits):
        found.limits = True
    children = {} if before is None or not before.queues else {one.name.lower(): one for one in before.queues}
    if after.queues:
        left = heritage(wants)
        as_before = known is not None and (known.properties, known.template) == (wants.properties, wants.template)
        for child in after.queues:
            name = child.name.lower()
            said = children.pop(name, None)
            if not as_before or said != child:
                _plan(tree, found, f"{path}.{name}", said, child, left)
    for name, child in children.items():
        _gone(found, f"{path}.{name}", child)


def _gone(found: QueueChangePlan, path: str, config: QueueConfig) -> None:
    found.unwanted.add(path)
    found.limits = found.limits or bool(config.limits)
    for child in config.queues:
        _gone(found, f"{path}.{child.name.lower()}", child)


def _lists(before: QueueConfig, after: QueueConfig, known: Settings) -> tuple[Acl, Acl]:
    """Its submit and admin ACLs, parsed again only if their text differs."""
    return (
        known.submit_acl if before.submit_acl == after.submit_acl else parse_acl(after.submit_acl),
        known.admin_acl if before.admin_acl == after.admin_acl else parse_acl(after.admin_acl),
    )


# Reconfiguration ------------------------------------------------------------------------------------------------------


def objections(state: PartitionState, config: PartitionConfig) -> list[str]:
    """Why this partition cannot take a valid configuration; empty if it can."""
    if state.retired:
        return [f"partition {state.name} was removed"]
    problems = [str(problem) for problem in find_build_problems(config)]
    try:
        PlacementChain(config.placement_rules)
    except RuleError as error:
        problems.append(str(error))
    return problems


def plan(state: PartitionState, config: PartitionConfig) -> QueueChangePlan:
    """Plan the queue changes of a configuration without objections."""
    return compare_configs(state.tree, state.config.root, config.root)


def apply(state: PartitionState, config: PartitionConfig, found: QueueChangePlan) -> None:
    """Apply a configuration without objections, with its plan."""
    assert found.before is state.config.root, "a plan from another configuration"
    state.config = config
    state.placement = PlacementChain(config.placement_rules)
    state.placement_problem = ""
    state.nodes.reorder(state.node_sort(config), config.node_sort_policy.weights)
    for change in list_changes(state.tree, found):
        _make(state, change)
    if found.limits:
        state.usage.reconfigure(config)
    state.readiness.reconfigured()
    state.swap_candidates.reorder()
    if any(queue.quota_preemption_at for queue in state.tree):
        state.schedule_quota_check()
    if state.tree.has_temporary():
        state.schedule_cleanup()


def _make(state: PartitionState, change: Change) -> None:
    match change:
        case AddQueue(path, settings):
            events.record_queue(state, state.tree.add(path, settings), event_codes.ADD)
        case SetQueue(queue, settings):
            _set(state, queue, settings)
        case SetTemplate(queue, template):
            queue.template = template
        case DrainQueue(queue):
            drain_queue(state, queue)


def _set(state: PartitionState, queue: Queue, settings: Settings) -> None:
    leaf, maximum, guaranteed = queue.leaf, queue.maximum, queue.guaranteed
    terms = quota_terms_of(queue) if settings.policies.quota_preemption_delay_s else None
    alike = (leaf, queue.policies) == (settings.leaf, settings.policies)  # the usual case, with few consequences
    order = None if alike and guaranteed == settings.guaranteed else _application_order(queue)
    priority = None if alike else queue.priority
    configure(queue, settings)
    queue.quota_preemption_at = NO_QUOTA_PREEMPTION if terms is None else _brought_down_at(state, queue, terms)
    stop_draining(queue)
    events.record_quota(state, queue, maximum, guaranteed)
    if leaf != queue.leaf:
        message = f"leaf queue: {str(queue.leaf).lower()}"
        state.record_event(event_codes.QUEUE, queue.path, event_codes.SET, event_codes.QUEUE_TYPE, message=message)
    if priority is not None:
        priority_settings_changed(queue, priority)
    if order is not None and _application_order(queue) != order:
        state.readiness.reordered(queue)
        for application_id in tuple(queue.applications):
            lifecycle.settle(state, state.applications[application_id])


def _brought_down_at(state: PartitionState, queue: Queue, before: QuotaTerms) -> float:
    """When quota preemption of a queue that had these terms starts, if it does."""
    return quota_preemption_time(
        before,
        quota_terms_of(queue),
        allocated=queue.allocated,
        at=queue.quota_preemption_at,
        now=state.now,
    )


def _application_order(queue: Queue) -> tuple[bool, ApplicationSort, bool, dict[str, int] | None]:
    """The settings that the order of a queue's applications depends on."""
    policies = queue.policies
    return queue.leaf, policies.application_sort, policies.priority_sort, queue.guaranteed


# Draining queues ------------------------------------------------------------------------------------------------------

DRAINING_TOLD_EVERY_S: Final = 3600.0
"""Seconds between log lines about a queue that is still draining."""


def drain_queue(state: PartitionState, queue: Queue) -> None:
    """Start draining a queue."""
    assert queue.managed, queue.path
    if queue.draining:
        return
    queue.state = "Draining"
    queue.draining_since_ns = queue.draining_told_ns = state.stamp_ns()
    told = f"queue {queue.path} left the configuration and drains: {_left(queue)}"
    state.log_info(told)
    state.emit(_event(event_codes.QUEUE, queue.path, told, queue.draining_since_ns))
    for application_id in queue.applications:
        text = f"application {application_id} goes on, but its queue takes nothing new: {told}"
        state.emit(_event(event_codes.APP, application_id, text, queue.draining_since_ns, queue.path))


def stop_draining(queue: Queue) -> None:
    """Make a queue active again."""
    queue.state = "Active"
    queue.draining_since_ns = queue.draining_told_ns = 0


def remove_empty_queues(state: PartitionState) -> None:
    """Remove empty dynamic and draining queues; schedule the next run if there are others."""
    state.cleanup_at = NEVER
    for queue in state.tree.remove_empty():
        events.record_queue(state, queue, event_codes.REMOVE)
        state.readiness.forget_queue(queue)
        state.counters.fold(queue.path, queue.path.rpartition(".")[0])
    _remind(state)
    if state.tree.has_temporary():
        state.schedule_cleanup()


def _remind(state: PartitionState) -> None:
    now_ns = int(state.now * 1e9)
    for queue in state.tree:
        if queue.draining and now_ns - queue.draining_told_ns >= DRAINING_TOLD_EVERY_S * 1e9:
            queue.draining_told_ns = now_ns
            hours = (now_ns - queue.draining_since_ns) / 3.6e12
            state.log_info(f"queue {queue.path} has been draining for {hours:.1f} hours: {_left(queue)}")


def _left(queue: Queue) -> str:
    """The number of applications left, and the administrators as configured."""
    lists = [f"{level.admin_text.strip()!r} of {level.path}" for level in queue.ancestry() if level.admin_text.strip()]
    return f"{format_count(queue.population, 'application')} in it, administrators: {', '.join(lists) or 'none'}"


def _event(kind: int, object_id: str, message: str, at_ns: int, reference_id: str = "") -> EventRecord:
    return EventRecord(
        type=kind,
        object_id=object_id,
        message=message,
        timestamp_nano=at_ns,
        event_change_type=event_codes.SET,
        event_change_detail=event_codes.DETAILS_NONE,
        reference_id=reference_id,
    )
