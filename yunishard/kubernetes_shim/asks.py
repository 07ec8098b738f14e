"""Asks of waiting pods: their content, whether the core asks the shim about them, and when it is to ask again.

The core asks the shim where a pod may run (`predicates`), except for a pod that resources, tags and attributes describe
completely. Its ask has the scope `none`, and thousands of such asks are one for the core. They become asks that it asks
about as soon as another pod arrives that may repel them by its anti-affinity, placed or not: `widen`.

An answer is valid until a node changes or something is placed or released. Of volumes, claims, storage classes, labels
of namespaces and of running pods the core sees nothing. So when one of them changes, the asks that were refused and
that this may help are sent again, and the core asks about them again: `note_object`, `repeat`.

A pod that waits may get other labels and more tolerations, which are tags of its ask: `update_tags`.
"""

from collections.abc import Mapping
from typing import Final

from yunishard.common.messages.rm_messages import Allocation
from yunishard.kubernetes_shim.objects import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    Object,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
    VolumeAttachment,
)
from yunishard.kubernetes_shim.pods import build_tags, find_preemption_policy
from yunishard.kubernetes_shim.predicates.records import PodRecord
from yunishard.kubernetes_shim.predicates.volume_objects import name_class
from yunishard.kubernetes_shim.state import ShimState, Task, TaskState, Unseen
from yunishard.kubernetes_shim.tags import SCOPE_TAG, Scope, describe_in_tags, find_scope_of_keys

REPEAT_S: Final = 0.2
"""Seconds from a change until refused asks are sent again, so that several changes are one."""

REPEAT_S_PER_ASK: Final = 0.0005
"""Seconds from a change for each refused ask, if that is longer: with thousands, the core has other things to do."""


# Building -------------------------------------------------------------------------------------------------------------


def build_ask(state: ShimState, task: Task, *, scope_min: Scope = Scope.NONE) -> Allocation:
    """Return the ask of a task, which is about to be sent."""
    tags, scope = describe_in_tags(task.pod)
    task.scope = max(scope, scope_min, find_scope_of_keys(state.cluster.list_repelling_keys(task.uid)))
    task.is_in_core = state.applications[task.application_id].was_asked = True
    state.asked[task.uid] = task
    state.refused.pop(task.uid, None)
    return _build(state, task, {**tags, SCOPE_TAG: task.scope.name.lower()})


def build_allocation(state: ShimState, task: Task, node: str) -> Allocation:
    """Return the allocation of a task that has a node."""
    return _build(state, task, describe_in_tags(task.pod).tags, node)


def _build(state: ShimState, task: Task, constraints: Mapping[str, str], node: str = "") -> Allocation:
    pod = task.pod
    return Allocation(
        allocation_key=task.uid,
        application_id=task.application_id,
        resource_per_alloc=task.resources,
        node_id=node,
        priority=pod.spec.priority or 0,
        allocation_tags={**build_tags(pod), **constraints},
        task_group_name=task.task_group,
        placeholder=task.is_placeholder,
        originator=task.uid == state.applications[task.application_id].originator,
        preemption_policy=find_preemption_policy(pod, state.priority_classes.get(pod.spec.priority_class_name)),
    )


# Again ----------------------------------------------------------------------------------------------------------------


def widen(state: ShimState) -> None:
    """Send the asks again that another pod may repel by now, so that the core asks about them."""
    repelled, state.cluster.index.newly_repelled = state.cluster.index.newly_repelled, {}
    if not repelled:
        return
    for task in list(state.asked.values()):
        pod = state.cluster.pods.get(task.uid)
        if pod is not None and pod.shape.labels in repelled:
            widen_ask(state, task)


def widen_ask(state: ShimState, task: Task) -> None:
    """Send an ask again if another pod may repel it in a way that the core does not ask about."""
    if find_scope_of_keys(state.cluster.list_repelling_keys(task.uid)) > task.scope:
        _send_again(state, task)


def update_tags(state: ShimState, task: Task, before: Pod) -> None:
    """Send the ask of a waiting pod again if the pod has other labels or tolerations now, which are tags of the ask."""
    pod = task.pod
    if task.state is not TaskState.SCHEDULING:  # most changes are of pods that have a node
        return
    if pod.metadata.labels == before.metadata.labels and pod.spec == before.spec:
        return
    if (build_tags(pod), describe_in_tags(pod)) != (build_tags(before), describe_in_tags(before)):
        _send_again(state, task)


def note_refusal(state: ShimState, uid: str) -> None:
    """Note that a predicate has refused a pod on a node: the core will not ask about the pair for a while."""
    if uid in state.asked:
        state.refused[uid] = state.asked[uid]


def note_object(state: ShimState, obj: Object, *, is_gone: bool) -> None:
    """Note that an object has changed, been added or removed which the core does not see."""
    changes = state.unseen
    match obj:
        case PersistentVolumeClaim():
            changes.add((obj.metadata.namespace, obj.metadata.name))
        case PersistentVolume():
            reference = obj.spec.claim_ref
            if reference is not None:
                changes.add((reference.namespace, reference.name))
            elif not is_gone:
                changes.add(("", name_class(obj.metadata, obj.spec.storage_class_name)))
        case StorageClass():
            changes.add(("", obj.metadata.name))
        case CsiStorageCapacity():
            changes.add(("", obj.storage_class_name))
        case CsiNode() | CsiDriver():
            changes.add("drivers")
        case VolumeAttachment():
            if is_gone:
                changes.add("drivers")
        case _ if state.cluster.has_changed_unseen:
            changes.add("pods")
            state.cluster.has_changed_unseen = False
        case _:
            pass
    if not state.refused:
        changes.clear()
    elif changes and state.repeat_due == float("inf"):
        state.repeat_due = state.now + max(REPEAT_S, REPEAT_S_PER_ASK * len(state.refused))


def repeat(state: ShimState) -> None:
    """Send the refused asks again that the changes may help."""
    changes, state.unseen, state.repeat_due = state.unseen, set(), float("inf")
    for task in list(state.refused.values()):
        pod = state.cluster.pods.get(task.uid)
        if pod is not None and not changes.isdisjoint(_list_reasons(state, pod)):
            _send_again(state, task)


def _list_reasons(state: ShimState, pod: PodRecord) -> list[Unseen]:
    """Return the parts of the cluster that may be a reason that a pod was refused."""
    constraints, found = pod.shape.constraints, list[Unseen]()
    if constraints.affinity or constraints.anti_affinity or constraints.spread or pod.shape.labels.anti_affinities:
        found.append("pods")
    if pod.claims:
        found.append("drivers")
    for key in pod.claim_keys:
        found.append(key)
        if claim := state.cluster.volumes.claims.get(key):
            found.append(("", name_class(claim.metadata, claim.spec.storage_class_name)))
    return found


def _send_again(state: ShimState, task: Task) -> None:
    if task.state is TaskState.SCHEDULING and task.is_in_core and not (task.node or task.pod.spec.node_name):
        state.outbox.send_allocation(build_ask(state, task, scope_min=Scope.NODE))  # for NONE the core does nothing
