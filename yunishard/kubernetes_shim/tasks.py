"""Tasks: the way of a pod from its ask to its node, and back.

    New ──> Scheduling ──> Allocated ──> Bound         ends from each state when its pod is gone or has ended
             ^    │             │
             └────┼─────────────┘ cannot be bound: the core looks for another node
                  └──> Failed: refused

The core has an ask or allocation while `is_in_core`; each is released exactly once. Changes outside of the shim
(pods bound by others, nodes that go, an allocation that crosses a deletion) is corrected from whatever was seen last:
the pod's node, as the API server reports it, is the truth.

Not here: when tasks may be sent (`applications.py`).
"""

from typing import Final

from yunishard.common.messages import rm_messages
from yunishard.common.messages.rm_messages import Allocation, AllocationRelease
from yunishard.kubernetes_shim.actions import (
    NOT_FOUND,
    BindPod,
    DeletePod,
    Failure,
    PatchPodStatus,
    PatchVolume,
)
from yunishard.kubernetes_shim.asks import build_allocation, build_ask, update_tags, widen_ask
from yunishard.kubernetes_shim.objects import Pod
from yunishard.kubernetes_shim.pods import TASK_GROUP, compute_resources, is_placeholder, name_of
from yunishard.kubernetes_shim.predicates.constraints import list_claims
from yunishard.kubernetes_shim.predicates.evaluation import refuse
from yunishard.kubernetes_shim.state import GANG_SCHEDULING, ApplicationState, ShimState, Task, TaskState
from yunishard.kubernetes_shim.volumes import Progress, check_binding, list_patches, plan_binding

DELETE_RETRY_S: Final = 5.0
"""Seconds after which deleting a pod is tried again, until it is gone: its resources are in use before."""

SKIPPED: Final = 1
"""The scheduling state of an ask whose queue has no room, in an `UpdateContainerSchedulingState`."""

IN_CORE: Final = frozenset(
    {
        ApplicationState.SUBMITTED,
        ApplicationState.ACCEPTED,
        ApplicationState.RESERVING,
        ApplicationState.RESUMING,
        ApplicationState.RUNNING,
    }
)
"""States of an application in which the core takes its allocations."""


def make_task(state: ShimState, pod: Pod, application_id: str) -> Task:
    """Return the task of a pod. Raises QuantityError."""
    group = pod.metadata.annotations.get(TASK_GROUP, "")
    is_for_gang = is_placeholder(pod) and bool(group)
    if state.settings.disable_gang_scheduling and not is_for_gang:
        group = ""
    return Task(
        pod=pod,
        application_id=application_id,
        rank=state.rank(pod),
        resources=compute_resources(pod),
        is_placeholder=is_for_gang,
        task_group=group,
    )


# Sending --------------------------------------------------------------------------------------------------------------


def _enter(state: ShimState, task: Task, entered: TaskState) -> None:
    """Change the state of a task, and let its application follow."""
    application = state.applications[task.application_id]
    application.discount(task)
    task.enter(entered)
    application.count(task)
    state.changed[task.application_id] = None
    if entered is not TaskState.SCHEDULING:
        _forget_ask(state, task)


def _forget_ask(state: ShimState, task: Task) -> None:
    """Note that no ask of the task waits in the core."""
    state.asked.pop(task.uid, None)
    state.refused.pop(task.uid, None)


def send_ask(state: ShimState, task: Task) -> None:
    """Send the ask of a new task, unless its claims are missing or it is being deleted."""
    if task.pod.spec.node_name:
        report_bound(state, task, task.pod.spec.node_name)
        return
    if task.pod.metadata.deletion_timestamp is not None or _is_blocked(state, task):
        return
    _enter(state, task, TaskState.SCHEDULING)
    state.outbox.send_allocation(build_ask(state, task))
    state.emit_pod_event(task.pod, "Scheduling", f"{name_of(task.pod)} is queued and waiting for allocation")
    if task.task_group and not task.is_placeholder:
        note = f"{name_of(task.pod)} is a member of task group {task.task_group}"
        state.emit_pod_event(task.pod, "TaskGroupMatch", note, reason=GANG_SCHEDULING)


def report_bound(state: ShimState, task: Task, node: str) -> None:
    """Send the allocation of a pod that has a node, once the core has its application and node."""
    if not state.has_node(node):
        state.release(task, rm_messages.STOPPED_BY_RM)
        task.node = node
    elif state.applications[task.application_id].state in IN_CORE:
        place(state, task, node)
        task.is_unconfirmed = True
        state.outbox.send_allocation(build_allocation(state, task, node))


def place(state: ShimState, task: Task, node: str) -> None:
    """Note that the core has the allocation of a task, or receives it; an allocated or bound one keeps its state."""
    task.node = node
    task.is_in_core = state.applications[task.application_id].was_asked = True
    if task.state in (TaskState.NEW, TaskState.FAILED):
        _enter(state, task, TaskState.SCHEDULING)


def _is_blocked(state: ShimState, task: Task) -> bool:
    """Whether a claim of the pod is missing or being deleted; an event is recorded when this begins."""
    pod, problem = task.pod, ""
    for name, _ in list_claims(pod):
        claim = state.cluster.volumes.claims.get((pod.metadata.namespace, name))
        if claim is None:
            problem = f'persistentvolumeclaim "{name}" not found'
        elif claim.metadata.deletion_timestamp is not None:
            problem = f'persistentvolumeclaim "{name}" is being deleted'
    if not problem:
        state.blocked.pop(task.uid, None)
        return False
    if task.uid not in state.blocked:
        state.blocked[task.uid] = task
        state.emit_pod_event(pod, "FailedScheduling", problem, kind="Warning")
    return True


# The pod changes ------------------------------------------------------------------------------------------------------


def update_pod(state: ShimState, task: Task, pod: Pod) -> None:
    """Handle a pod that has changed: it may have got a node, other resources, or other labels."""
    before, task.pod = task.pod, pod
    if pod.metadata.deletion_timestamp is not None and not pod.spec.node_name and task.state is TaskState.SCHEDULING:
        state.release(task, rm_messages.STOPPED_BY_RM)  # a finalizer keeps it, and the API server binds it no more
        reset_task(state, task)
        return
    resources = compute_resources(pod)
    if resources != task.resources:
        task.resources = resources
        if task.is_in_core:
            node = task.node
            state.outbox.send_allocation(build_allocation(state, task, node) if node else build_ask(state, task))
    update_tags(state, task, before)
    node = pod.spec.node_name
    if not node or (task.state is TaskState.BOUND and task.node == node):
        return
    if task.state is TaskState.ALLOCATED and task.node == node:
        _confirm_bound(state, task)
    elif task.state is TaskState.ALLOCATED or task.state is TaskState.BOUND:
        _correct_node(state, task)
    elif task.node != node:
        report_bound(state, task, node)  # the core takes an ask that it has as placed


def _correct_node(state: ShimState, task: Task) -> None:
    """Report to the core where a pod really runs, after it was bound to another node than the core chose."""
    state.cluster.forget(task.uid)
    _drop_plan(state, task)
    state.release(task, rm_messages.STOPPED_BY_RM)
    task.node = task.pod.spec.node_name
    _enter(state, task, TaskState.BOUND)
    report_bound(state, task, task.node)


def end_task(state: ShimState, task: Task) -> None:
    """Discard a task whose pod is gone or has ended, and release what the core has of it."""
    if task.state is TaskState.BOUND:
        state.emit_pod_event(task.pod, "TaskCompleted", f"Task {name_of(task.pod)} is completed")
    termination = task.termination
    if termination == rm_messages.TIMEOUT and not task.used_node:
        termination = 0  # the core removed the ask when it timed out; it keeps one that was sent again at that moment
    state.release(task, termination or rm_messages.STOPPED_BY_RM)
    state.cluster.forget(task.uid)
    _drop_plan(state, task)
    _forget_ask(state, task)
    state.blocked.pop(task.uid, None)
    del state.tasks[task.uid]
    state.applications[task.application_id].remove(task)
    state.changed[task.application_id] = None


# The core decides -----------------------------------------------------------------------------------------------------


def handle_new(state: ShimState, new: Allocation) -> None:
    """Handle an allocation of the core: bind the pod, or confirm what was reported."""
    task = state.tasks.get(new.allocation_key)
    is_expected = task is not None and task.state not in (TaskState.NEW, TaskState.FAILED)
    if task is None or not (is_expected or task.used_node == new.node_id):
        if new.allocation_key not in state.foreign:
            state.send_release(new.application_id, new.allocation_key, rm_messages.STOPPED_BY_RM)
        return
    actual = task.pod.spec.node_name
    was_unconfirmed, task.is_unconfirmed = task.is_unconfirmed, False
    if not state.has_node(new.node_id):  # it has gone, and with it the core released the allocation
        task.is_in_core = False
        task.releases_due += 1
        if task.used_node:
            report_bound(state, task, task.used_node)
        else:
            reset_task(state, task)
        return
    if was_unconfirmed and task.state is TaskState.SCHEDULING and not actual:
        return  # the answer to an allocation that was reported, and has been given back since
    task.is_in_core = True
    if task.state is TaskState.SCHEDULING and not actual:
        task.node = new.node_id
        _enter(state, task, TaskState.ALLOCATED)
        note = f"Successfully assigned {name_of(task.pod)} to node {task.node}"
        state.emit_pod_event(task.pod, "Scheduled", note)
        state.cluster.assume(task.uid, task.node)
        _bind_volumes(state, task)
    elif actual == new.node_id and task.state is not TaskState.BOUND:
        place(state, task, actual)
        _enter(state, task, TaskState.BOUND)
    elif (actual or task.node) != new.node_id:
        state.release(task, rm_messages.STOPPED_BY_RM)
        report_bound(state, task, actual or task.node)


def handle_released(state: ShimState, released: AllocationRelease) -> None:
    """Handle a release: the core wants the pod to end, or it has nothing of it any more."""
    task, kind = state.tasks.get(released.allocation_key), released.termination_type
    if kind not in (rm_messages.UNKNOWN_TERMINATION, rm_messages.STOPPED_BY_RM):
        if task is None:
            state.send_release(released.application_id, released.allocation_key, kind)
            return
        task.termination = kind
        delete_pod(state, task)
        state.changed[task.application_id] = None
    elif task is not None and task.releases_due:
        task.releases_due -= 1
    elif task is not None:
        was_in_core, task.is_in_core = task.is_in_core, False
        if was_in_core and state.applications[task.application_id].state not in IN_CORE:  # an operator ended it
            state.emit_pod_event(task.pod, "ApplicationFailed", released.message, kind="Warning")
            delete_pod(state, task)
        elif task.pod.spec.node_name or task.state is TaskState.BOUND:  # its node went and came back
            report_bound(state, task, task.used_node)
        else:
            reset_task(state, task)


def reset_task(state: ShimState, task: Task) -> None:
    """Make a task new that the core has discarded, unless its pod has a node."""
    task.is_in_core = False
    if task.state not in (TaskState.SCHEDULING, TaskState.ALLOCATED) or task.is_binding:
        return
    state.cluster.forget(task.uid)
    _drop_plan(state, task)
    task.node = ""
    _enter(state, task, TaskState.NEW)


def handle_rejected(state: ShimState, rejected: rm_messages.RejectedAllocation) -> None:
    """Handle the rejection of an ask or allocation: the task fails. A rejected resize changes nothing."""
    task = state.tasks.get(rejected.allocation_key)
    if task is not None:
        task.is_unconfirmed = False
    if task is None or task.state is not TaskState.SCHEDULING:
        return
    note = f"Task {name_of(task.pod)} is rejected by the scheduler: {rejected.reason}"
    state.emit_pod_event(task.pod, "TaskRejected", note, kind="Warning")
    task.is_in_core = False
    _fail(state, task, "the scheduler rejected it")


def _fail(state: ShimState, task: Task, reason: str) -> None:
    note = f"Task {name_of(task.pod)} has failed: {reason}"
    state.emit_pod_event(task.pod, "TaskFailed", note, kind="Warning")
    _enter(state, task, TaskState.FAILED)


def fail_task(state: ShimState, task: Task, note: str) -> None:
    """Let a task without a node fail with its application."""
    state.emit_pod_event(task.pod, "ApplicationFailed", note, kind="Warning")
    state.release(task, rm_messages.STOPPED_BY_RM)
    state.cluster.forget(task.uid)
    _drop_plan(state, task)
    _fail(state, task, "its application failed")


def handle_unschedulable(state: ShimState, update: rm_messages.UpdateContainerSchedulingState) -> None:
    """Write the condition that cluster autoscalers and users look for."""
    task = state.tasks.get(update.allocation_key)
    if task is None or task.state is not TaskState.SCHEDULING or task.pod.spec.node_name:
        return
    pod = task.pod
    if update.state == SKIPPED:
        reason = "SchedulingSkipped"
        note = f"Task {name_of(pod)} is skipped from scheduling because the queue quota has been exceed"
    else:
        reason = "Unschedulable"
        note = f"Task {name_of(pod)} is pending for the requested resources become available"
    if task.reason == reason:
        return
    task.reason = reason
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": update.reason or note}
    patch_status(state, task, condition=condition)
    state.emit_pod_event(pod, "PodUnschedulable", note)


def patch_status(
    state: ShimState, task: Task, *, status: dict[str, str] | None = None, condition: dict[str, str] | None = None
) -> None:
    """Change fields of the pod's status, or one of its conditions."""
    meta, condition = task.pod.metadata, condition or {}
    known = [(one.type, one.status) for one in task.pod.status.conditions]
    task.writes += 1
    patch = PatchPodStatus(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        status=status or {},
        condition=condition,
        is_transition=bool(condition) and (condition["type"], condition["status"]) not in known,
    )
    state.outbox.write(patch)


def delete_pod(state: ShimState, task: Task) -> None:
    """Delete the pod of a task, unless that is in progress."""
    meta = task.pod.metadata
    if meta.deletion_timestamp is None and not task.is_deleting:
        task.is_deleting = True
        state.outbox.write(DeletePod(namespace=meta.namespace, name=meta.name, uid=meta.uid))


# Binding --------------------------------------------------------------------------------------------------------------


def _bind_volumes(state: ShimState, task: Task) -> None:
    """Bind the claims of an allocated pod, then the pod.

    The predicates are evaluated once more, because the answer that the core has may be out of date: a pod may have been
    placed elsewhere in the zone that does not want this one there.
    """
    refusal = refuse(state.cluster, task.uid, task.node)
    if refusal is not None:
        _fail_binding(state, task, "AssumePodError", refusal)
        return
    plan = plan_binding(state.cluster, task.uid, task.node)
    if plan.is_bound:
        _bind(state, task)
        return
    state.cluster.assume_volumes(task.uid, plan)
    task.plan, task.deadline = plan, state.now + state.settings.volume_bind_timeout_s
    state.binding_volumes[task.uid] = task
    for patch in list_patches(state.cluster, task.uid, plan):
        state.outbox.write(patch)


def check_volumes(state: ShimState) -> None:
    """Bind the pods whose volumes are bound by now; give up those whose time is over."""
    for task in list(state.binding_volumes.values()):
        assert task.plan is not None
        progress, reason = check_binding(state.cluster, task.plan)
        if progress is Progress.BOUND:
            _drop_plan(state, task)
            _bind(state, task)
        elif progress is Progress.FAILED:
            _fail_binding(state, task, "PodVolumesBindFailure", reason)
        elif state.now >= task.deadline:
            limit = state.settings.volume_bind_timeout_s
            _fail_binding(state, task, "PodVolumesBindFailure", f"volumes were not bound within {limit:g} s")


def _drop_plan(state: ShimState, task: Task) -> None:
    task.plan = None
    state.binding_volumes.pop(task.uid, None)


def _bind(state: ShimState, task: Task) -> None:
    """Bind an allocated pod, once its status is no longer being written."""
    if task.writes or task.is_binding:
        return
    task.is_binding = True
    meta = task.pod.metadata
    state.outbox.write(BindPod(namespace=meta.namespace, name=meta.name, uid=meta.uid, node=task.node))


def _confirm_bound(state: ShimState, task: Task) -> None:
    """The pod has the node that the core chose."""
    _drop_plan(state, task)
    _enter(state, task, TaskState.BOUND)
    note = f"Pod {name_of(task.pod)} is successfully bound to node {task.node}"
    state.emit_pod_event(task.pod, "PodBindSuccessful", note)
    if task.is_placeholder:
        application = state.applications[task.application_id]
        state.emit_gang_event(application, "PlaceholderAllocated", "a placeholder of the gang has its node")
    if task.was_returned or not task.is_in_core:  # the core may not have it on this node any more
        report_bound(state, task, task.node)


def _fail_binding(state: ShimState, task: Task, action: str, reason: str) -> None:
    """Give an allocation back: the core looks for another node, and keeps the ask from this one for a while."""
    state.emit_pod_event(task.pod, action, f"{name_of(task.pod)} on node {task.node}: {reason}", kind="Warning")
    if not task.is_in_core:
        reset_task(state, task)
        return
    state.cluster.forget(task.uid)
    _drop_plan(state, task)
    task.node, task.was_returned = "", True
    state.send_release(task.application_id, task.uid, rm_messages.SCHEDULING_FAILED_ON_RM)
    _enter(state, task, TaskState.SCHEDULING)
    state.asked[task.uid] = task
    widen_ask(state, task)


# Outcomes -------------------------------------------------------------------------------------------------------------


def handle_bind_outcome(state: ShimState, action: BindPod, failure: Failure | None) -> None:
    """Handle the outcome of a binding. The API server may have reported the pod's node before."""
    task = state.tasks.get(action.uid)
    if task is None:
        return
    task.is_binding = False
    if task.state is not TaskState.ALLOCATED or task.node != action.node:
        return
    if failure is None:
        _confirm_bound(state, task)
    elif failure.status != NOT_FOUND:  # otherwise the pod is gone, and its deletion follows
        _fail_binding(state, task, "PodBindFailure", failure.message)


def handle_patch_outcome(state: ShimState, action: PatchPodStatus | PatchVolume, failure: Failure | None) -> None:
    """Handle the outcome of a patch: a volume that cannot be patched fails the binding of its pod."""
    task = state.tasks.get(action.uid)
    if task is None:
        return
    if isinstance(action, PatchPodStatus):
        task.writes -= 1
        if failure is not None:
            task.reason = ""
        if task.state is TaskState.ALLOCATED and task.plan is None:
            _bind(state, task)
    elif failure is not None and task.plan is not None:
        _fail_binding(state, task, "PodVolumesBindFailure", failure.message)


def handle_delete_outcome(state: ShimState, action: DeletePod, failure: Failure | None) -> None:
    """Handle the outcome of a deletion: it ends with the pod's own deletion, which the API server reports."""
    if failure is not None and action.uid in state.tasks:
        state.deletions.append((state.now + DELETE_RETRY_S, action))
