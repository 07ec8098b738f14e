"""Gangs: placeholder pods are created, asked for and bound before the real pods, whose places they keep.

Not here: what task groups say (`task_groups.py`), the replacement of placeholders by real pods, which the core decides:
it releases a placeholder, the shim deletes the pod, and the core gives its place to the real one.
"""

from collections import Counter
from typing import Final

from yunishard.common.messages import rm_messages
from yunishard.kubernetes_shim import tasks
from yunishard.kubernetes_shim.actions import CONFLICT, CreatePod, Failure
from yunishard.kubernetes_shim.state import Application, ApplicationState, ShimState
from yunishard.kubernetes_shim.task_groups import build_placeholder, list_missing

CREATIONS_MAX: Final = 3
"""How often the placeholders of a gang are created. If they are deleted again and again, the application runs without
its gang."""


def is_reserving(application: Application) -> bool:
    """Whether an accepted application reserves places first: not if real pods of it run already."""
    is_untouched = len(application.new) + application.failed == len(application.tasks) - len(application.placeholders)
    return bool(application.task_groups) and is_untouched


def advance(state: ShimState, application: Application) -> None:
    """Ask for placeholders, and let the real pods follow once all are bound, or once all have ended."""
    if application.state is ApplicationState.RESUMING:
        if not application.placeholders:
            application.enter(ApplicationState.RUNNING)
        return
    if not is_reserving(application):  # a real pod was bound by another scheduler
        application.enter(ApplicationState.RUNNING)
        return
    if application.originator not in application.tasks and not _find_originator(application):
        delete_placeholders(state, application)  # no pod will use them
        return
    _create_missing(state, application)
    if application.state is not ApplicationState.RESERVING:
        return
    for task in list(application.new_placeholders.values()):
        tasks.send_ask(state, task)
    if all(application.bound[group.name] >= group.min_member for group in application.task_groups):
        state.emit_gang_event(application, "GangReservationComplete", "all placeholders of the gang have nodes")
        application.enter(ApplicationState.RUNNING)


def _find_originator(application: Application) -> bool:
    """Choose another originator after the first one has ended; False if there is no real pod."""
    first = min(application.real_tasks, key=lambda one: one.rank, default=None)
    application.originator = first.uid if first is not None else ""
    return first is not None


def _create_missing(state: ShimState, application: Application) -> None:
    """Create the placeholders that the task groups lack: all of them at first, later those that were deleted."""
    wanted = sum(one.min_member for one in application.task_groups)
    if len(application.placeholders) + len(application.creating) >= wanted:
        return
    if application.created >= CREATIONS_MAX * wanted:
        _fall_back(state, application, f"placeholders were deleted {CREATIONS_MAX} times")
        return
    originator = application.tasks[application.originator].pod
    present = Counter(one.task_group for one in application.placeholders.values())
    names = {one.pod.metadata.name for one in application.placeholders.values()}
    names.update(application.creating)
    name_of_application, created_before = application.application_id, application.created
    for group in application.task_groups:
        creating = [name for name, group_name in application.creating.items() if group_name == group.name]
        here = present[group.name] + len(creating)
        missing = list_missing(
            name_of_application,
            group,
            application.originator,
            present=here,
            names=names,
            first=application.created,
        )
        names.update(missing)
        application.creating.update(dict.fromkeys(missing, group.name))
        application.created += len(missing)
        for name in missing:
            body = build_placeholder(
                name,
                application.name,
                application.request,
                group,
                originator,
                state.settings.placeholder_image,
            )
            namespace = originator.metadata.namespace  # its owner has to be there, too
            create = CreatePod(namespace=namespace, name=name, body=body, application_id=name_of_application)
            state.outbox.write(create)
    if application.created > created_before:
        state.emit_gang_event(application, "CreatingPlaceholders", "placeholders of the gang are being created")


def find_placeholder(state: ShimState, key: str, node: str) -> tuple[str, ...]:
    """Return a placeholder on the node that the task with this key would replace, if there is one."""
    task, record = state.tasks.get(key), state.cluster.nodes.get(node)
    if task is None or record is None or task.is_placeholder or not task.task_group:
        return ()
    for uid in record.pods:
        other = state.tasks.get(uid)
        if (
            other is not None
            and other.is_placeholder
            and other.task_group == task.task_group
            and other.application_id == task.application_id
        ):
            return (uid,)
    return ()


def handle_create_outcome(state: ShimState, action: CreatePod, failure: Failure | None) -> None:
    """Handle the outcome of creating a placeholder. If one cannot be created, the application runs without a gang."""
    application = state.applications.get(action.application_id)
    if failure is None or application is None or application.state is not ApplicationState.RESERVING:
        return
    if failure.status == CONFLICT:  # another pod has the name
        application.creating.pop(action.name, None)
        state.changed[action.application_id] = None
    else:
        _fall_back(state, application, failure.message)


def _fall_back(state: ShimState, application: Application, reason: str) -> None:
    """Run as an ordinary application, as the placeholders cannot be created."""
    state.emit_gang_event(application, "PlaceholderCreateFailed", reason, kind="Warning")
    give_up(state, application)
    application.enter(ApplicationState.RUNNING)
    state.changed[application.application_id] = None


def delete_placeholders(state: ShimState, application: Application) -> None:
    """Delete all placeholders of an application."""
    for task in application.placeholders.values():
        tasks.delete_pod(state, task)


def give_up(state: ShimState, application: Application) -> None:
    """Continue without a gang: no placeholder is of use any more, also not those that are only being created."""
    application.task_groups = []
    application.creating.clear()
    delete_placeholders(state, application)


def handle_released(state: ShimState, released: rm_messages.AllocationRelease) -> None:
    """Stop reserving when the core takes placeholders away."""
    application = state.applications.get(released.application_id)
    if application is None or released.termination_type in (
        rm_messages.UNKNOWN_TERMINATION,
        rm_messages.STOPPED_BY_RM,
    ):
        return
    if released.termination_type == rm_messages.TIMEOUT:  # one text for all placeholders makes one series of events
        state.emit_gang_event(application, "PlaceholderTimeOut", "a placeholder of the gang timed out", kind="Warning")
    if application.state is ApplicationState.RESERVING:
        application.enter(ApplicationState.RUNNING)
        state.changed[application.application_id] = None
