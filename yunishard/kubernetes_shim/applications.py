"""Applications: the pods of one user with one application id, from the first to the last.

    New ──> Submitted ──> Accepted ──> Running ──> (discarded when the core completed it)
                             │            ^
                             └─> Reserving ──> Resuming ─┐   gangs only
                                          └──────────────┴─> Running
    the core refuses it, or lets it fail: Failing ──> Failed ──> (discarded with its last pod)

`advance` moves an application as far as it can go, after anything about it has changed.

An application has one user, who is charged for its pods. So pods of another user that name the same id are another
application, whose id in the core has a suffix. A pod belongs to the application of the pod that created it, such as an
executor of Spark to that of its driver, although its user is a service account.

Not here: placeholders (`gangs.py`), the states of single pods (`tasks.py`).
"""

import hashlib
from collections.abc import Mapping
from itertools import count
from typing import Final

from msgspec import DecodeError
from msgspec.json import encode
from msgspec.structs import replace

from yunishard.common.messages import rm_messages
from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.rm_messages import AddApplicationRequest, RemoveApplicationRequest
from yunishard.common.resources import QuantityError
from yunishard.kubernetes_shim import gangs, tasks
from yunishard.kubernetes_shim.actions import LogProblem
from yunishard.kubernetes_shim.annotations import decode_annotation
from yunishard.kubernetes_shim.objects import Namespace, Pod, Quantities
from yunishard.kubernetes_shim.pods import (
    DOMAIN,
    SCHEDULING_PARAMETERS,
    TASK_GROUPS,
    describe_conflicts,
    describe_owner,
    find_application_id,
    find_creator,
    find_queue,
    find_user,
    parse_time,
)
from yunishard.kubernetes_shim.quantities import convert_quantities
from yunishard.kubernetes_shim.state import GANG_SCHEDULING, Application, ApplicationState, ShimState, Task, TaskState
from yunishard.kubernetes_shim.task_groups import (
    TaskGroupsError,
    describe_unknown_keys,
    read_gang_parameters,
    read_task_groups,
    sum_placeholders,
)

FORCE: Final = "application.create.force"
"""The tag that lets an application with running pods into the recovery queue if no other queue takes it."""

RESERVATION_TIMEOUT: Final = "ResourceReservationTimeout"
"""Part of the core's message when a gang got no room in time."""

_SUFFIX_LENGTH: Final = 8
"""Characters of a digest of the owner, at the end of the id of an application whose name another owner has."""

_UNKNOWN: Final = "failed to find application"
_EXISTS: Final = "application already existed"


# Pods arrive ----------------------------------------------------------------------------------------------------------


def add_pod(state: ShimState, pod: Pod) -> None:
    """Handle a new pod of this scheduler; with scheduling gates it waits until they are gone."""
    uid = pod.metadata.uid
    if pod.spec.scheduling_gates and not pod.spec.node_name:
        if uid not in state.gated:
            state.gated[uid] = None
            gates = ",".join(one.name for one in pod.spec.scheduling_gates)
            state.emit_pod_event(pod, "Scheduling", f"waiting for scheduling gates: {gates}")
        return
    state.gated.pop(uid, None)
    if conflicts := describe_conflicts(pod):
        state.emit_pod_event(pod, "Scheduling", conflicts, kind="Warning")
    name = find_application_id(pod, is_unique=state.settings.admission.generate_unique_app_id)
    application_id = _choose_id(state, pod, name)
    if application_id != name:
        note = f"the application id {name} is in use by another user: this pod is in application {application_id}"
        state.emit_pod_event(pod, "Scheduling", note, kind="Warning")
    application = state.applications.get(application_id)
    if application is None:
        application = state.applications[application_id] = _create(state, pod, application_id, name)
    task = tasks.make_task(state, pod, application_id)
    state.tasks[uid] = task
    application.add(task)
    application.creating.pop(pod.metadata.name, None)
    state.changed[application_id] = None
    if not task.is_placeholder and not application.originator:
        application.originator = uid
    if pod.spec.node_name:
        tasks.report_bound(state, task, pod.spec.node_name)


def _choose_id(state: ShimState, pod: Pod, name: str) -> str:
    """Return the id in the core of the application of a pod that names an id: that one, unless another user has it."""
    if state.settings.admission.bypass_auth:  # nothing vouches for users
        return name
    creator = state.tasks.get(find_creator(pod))
    if creator is not None and creator.pod.metadata.namespace == pod.metadata.namespace:
        application = state.applications[creator.application_id]
        if application.name == name:
            return application.application_id
    owner = describe_owner(pod)
    applications = state.applications
    if name in applications and applications[name].owner == owner:
        return name
    for attempt in count():  # a pod may name any id, also one with the suffix of another owner
        digest = hashlib.sha256(f"{attempt} {owner}".encode()).hexdigest()
        candidate = f"{name}-{digest[:_SUFFIX_LENGTH]}"
        found = applications.get(candidate)
        if found is None:
            return candidate if name in applications else name
        if found.owner == owner:
            return candidate
    raise AssertionError


def _create(state: ShimState, pod: Pod, application_id: str, name: str) -> Application:
    """Return a new application, as its first pod declares it."""
    groups, annotations = [], pod.metadata.annotations
    parameters = read_gang_parameters(pod)
    if not state.settings.disable_gang_scheduling:
        try:
            groups = read_task_groups(pod)
        except TaskGroupsError as error:
            state.emit_pod_event(pod, "TaskGroupsError", str(error), reason=GANG_SCHEDULING, kind="Warning")
    if unknown := describe_unknown_keys(pod, with_gang=not state.settings.disable_gang_scheduling):
        state.emit_pod_event(pod, "UnknownKeys", unknown, kind="Warning")
    tags = {
        "namespace": pod.metadata.namespace,
        FORCE: "false",
        f"{DOMAIN}creationTime": str(parse_time(pod.metadata.creation_timestamp)),
        **_describe_namespace(state, state.namespaces.get(pod.metadata.namespace)),
    }
    if pod.spec.image_pull_secrets:
        tags["imagePullSecrets"] = ",".join(one.name for one in pod.spec.image_pull_secrets)
    for key in (TASK_GROUPS, SCHEDULING_PARAMETERS):
        if key in annotations:
            tags[key] = annotations[key]
    request = AddApplicationRequest(
        application_id=application_id,
        queue_name=find_queue(pod),
        ugi=find_user(pod, reads_label=state.settings.admission.bypass_auth),
        tags=tags,
        execution_timeout_milli_seconds=parameters.placeholder_timeout_s * 1000,
        placeholder_ask=sum_placeholders(groups),
        gang_scheduling_style=parameters.style,
    )
    return Application(application_id, name, describe_owner(pod), pod.metadata.namespace, request, groups)


def _describe_namespace(state: ShimState, namespace: Namespace | None) -> dict[str, str]:
    """Return the tags that the annotations of the namespace give its applications."""
    if namespace is None:
        return {}
    marks, tags = namespace.metadata.annotations, {}
    for tag, what, read in (
        ("namespace.resourcequota", "quota", _read_quota),
        ("namespace.resourceguaranteed", "guaranteed amount", _read_guaranteed),
    ):
        try:
            if found := read(marks):
                tags[tag] = found
        except (DecodeError, QuantityError) as error:
            place = f"namespace {namespace.metadata.name}"
            text = f"{place}: its {what} is ignored: {error}; write a JSON map of quantities"
            state.outbox.write(LogProblem(text))
    applications_max = marks.get(f"{DOMAIN}namespace.maxApps", "")
    if applications_max.isascii() and applications_max.isdigit():
        tags["namespace.resourcemaxapps"] = applications_max
    if parent := marks.get(f"{DOMAIN}parentqueue", ""):
        tags["namespace.parentqueue"] = parent
    return tags


def _read_quota(marks: Mapping[str, str]) -> str:
    if text := marks.get(f"{DOMAIN}namespace.quota", ""):
        return _format_resources(decode_annotation(text, Quantities))
    older = {kind: marks.get(f"{DOMAIN}namespace.max.{kind}", "") for kind in ("cpu", "memory")}
    found: Quantities = {kind: text for kind, text in older.items() if text}
    return _format_resources(found) if found else ""


def _read_guaranteed(marks: Mapping[str, str]) -> str:
    text = marks.get(f"{DOMAIN}namespace.guaranteed", "")
    return _format_resources(decode_annotation(text, Quantities)) if text else ""


def _format_resources(quantities: Quantities) -> str:
    """Return amounts as JSON of the scheduler interface's resource message."""
    amounts: Resources = convert_quantities(quantities, with_zeros=True)
    return encode({"resources": {kind: {"value": amount} for kind, amount in amounts.items()}}).decode()


# Forward --------------------------------------------------------------------------------------------------------------


def advance(state: ShimState, application: Application) -> None:
    """Move an application as far as it can go."""
    if not application.tasks:
        _discard_if_done(state, application)
        return
    match application.state:
        case ApplicationState.NEW:
            _submit(state, application)
        case ApplicationState.ACCEPTED:
            if gangs.is_reserving(application):
                application.enter(ApplicationState.RESERVING)
                gangs.advance(state, application)
            else:
                application.enter(ApplicationState.RUNNING)
        case ApplicationState.RESERVING | ApplicationState.RESUMING:
            gangs.advance(state, application)
        case ApplicationState.FAILED:
            is_over = all(one.state in (TaskState.NEW, TaskState.FAILED) for one in application.tasks.values())
            if application.new and is_over:
                restart(state, application)
        case _:
            pass
    if not application.task_groups:  # given up, or switched off since the placeholders were created
        gangs.delete_placeholders(state, application)
    if application.state is ApplicationState.RUNNING:
        if len(application.placeholders) == len(application.tasks):
            gangs.delete_placeholders(state, application)  # no pod will use them
            return
        found = [*application.new.values(), *(application.new_placeholders.values() if application.task_groups else ())]
        for task in sorted(found, key=lambda one: one.rank):
            tasks.send_ask(state, task)


def _discard_if_done(state: ShimState, application: Application) -> None:
    """Discard an application without pods, unless an answer of the core to it is awaited."""
    if application.state in (ApplicationState.NEW, ApplicationState.FAILED):
        del state.applications[application.application_id]
    elif application.state not in (ApplicationState.SUBMITTED, ApplicationState.FAILING) and not application.was_asked:
        state.outbox.remove_application(RemoveApplicationRequest(application_id=application.application_id))
        del state.applications[application.application_id]


def build_request(application: Application) -> AddApplicationRequest:
    """Return the submission, marked if pods of it run already."""
    is_forced = any(one.used_node for one in application.tasks.values())
    tags = {**application.request.tags, FORCE: "true" if is_forced else "false"}
    return replace(application.request, tags=tags)


def _submit(state: ShimState, application: Application) -> None:
    """Submit an application, and report its pods that have nodes."""
    application.enter(ApplicationState.SUBMITTED)
    state.outbox.add_application(build_request(application))
    for task in application.tasks.values():
        if task.used_node and not task.is_in_core:
            tasks.report_bound(state, task, task.used_node)


def restart(state: ShimState, application: Application) -> None:
    """Submit an application again that the core has ended while pods arrived. Failed tasks stay as they are."""
    first = min(
        application.tasks.values(), key=lambda one: (one.state is TaskState.FAILED, one.is_placeholder, one.rank)
    )
    fresh = _create(state, first.pod, application.application_id, application.name)
    application.request = replace(fresh.request, ugi=application.request.ugi)  # its first pod may be gone
    application.task_groups = fresh.task_groups
    application.originator = "" if first.is_placeholder else first.uid
    application.creating.clear()
    application.created = 0
    application.was_asked = False
    application.enter(ApplicationState.NEW)
    for task in application.tasks.values():
        tasks.reset_task(state, task)
    state.changed[application.application_id] = None


# The core decides -----------------------------------------------------------------------------------------------------


def handle_response(state: ShimState, news: rm_messages.ApplicationResponse) -> None:
    """Handle which applications the core accepted or rejected, and which states they entered."""
    for accepted in news.accepted:
        _accept(state, accepted.application_id)
    for rejected in news.rejected:
        if _EXISTS in rejected.reason:
            _accept(state, rejected.application_id)
        elif application := state.applications.get(rejected.application_id):
            _reject(state, application, rejected.reason)
    for update in news.updated:
        if application := state.applications.get(update.application_id):
            _follow(state, application, update)


def _accept(state: ShimState, application_id: str) -> None:
    application = state.applications.get(application_id)
    if application is not None and application.state is ApplicationState.SUBMITTED:
        application.enter(ApplicationState.ACCEPTED)
        state.changed[application_id] = None


def _reject(state: ShimState, application: Application, reason: str) -> None:
    if application.state in tasks.IN_CORE:
        fail(state, application, "ApplicationRejected", reason)
        application.enter(ApplicationState.FAILED)


def _follow(state: ShimState, application: Application, update: rm_messages.UpdatedApplication) -> None:
    """Follow the state of the application in the core."""
    is_live = application.state in tasks.IN_CORE
    match update.state:
        case "Resuming" if is_live:
            if application.state is ApplicationState.RESERVING:  # otherwise a real pod runs already
                application.enter(ApplicationState.RESUMING)
            gangs.give_up(state, application)
            note = f"the gang of application {application.application_id} got no room in time: it runs without a gang"
            state.emit_gang_event(application, "GangSchedulingFailed", note, kind="Warning")
        case "Failing" | "Failed" if is_live:
            if RESERVATION_TIMEOUT in update.message:
                text = "Scheduling has timed out due to insufficient resources"
                fail(state, application, RESERVATION_TIMEOUT, text)
            else:
                fail(state, application, "", update.message)
            application.enter(ApplicationState.FAILING if update.state == "Failing" else ApplicationState.FAILED)
        case "Failing" | "Failed" if application.state is ApplicationState.FAILING:
            application.enter(ApplicationState.FAILED)
        case "Completed" if application.tasks and is_live:
            if all(one.state is TaskState.FAILED for one in application.tasks.values()):
                application.enter(ApplicationState.FAILED)
            else:
                restart(state, application)
        case "Completed" if not application.tasks:
            del state.applications[application.application_id]
            return
        case _:
            return
    state.changed[application.application_id] = None


def fail(state: ShimState, application: Application, reason: str, text: str) -> None:
    """Let all pods without a node fail, and delete the placeholders. With a reason the phase of the pods changes."""
    gangs.give_up(state, application)
    for task in application.real_tasks:
        if not task.pod.spec.node_name and not task.is_binding and task.state is not TaskState.BOUND:
            tasks.fail_task(state, task, f"Application {application.application_id} failed: {reason or text}")
            if reason:
                tasks.patch_status(state, task, status={"phase": "Failed", "reason": reason, "message": text})


def handle_allocations(state: ShimState, news: rm_messages.AllocationResponse) -> None:
    """Handle new allocations, releases and rejections."""
    for new in news.new:
        tasks.handle_new(state, new)
    for released in news.released:
        tasks.handle_released(state, released)
        gangs.handle_released(state, released)
    for rejected in news.rejected_allocations:
        task = state.tasks.get(rejected.allocation_key)
        if _UNKNOWN in rejected.reason and task is not None and task.is_in_core:
            is_live = state.applications[task.application_id].state in tasks.IN_CORE
            if state.outbox.report is None or not is_live:  # otherwise the report that follows it has the ask again
                _submit_again(state, task)
        else:
            tasks.handle_rejected(state, rejected)


def _submit_again(state: ShimState, task: Task) -> None:
    """Handle that the core does not have the application of a task: it completed it when the ask was on its way."""
    application = state.applications[task.application_id]
    tasks.reset_task(state, task)
    if application.state in tasks.IN_CORE and application.state is not ApplicationState.SUBMITTED:
        restart(state, application)
    state.changed[task.application_id] = None
