"""The decisions about pods and workloads that are created or changed.

A new pod is given to the scheduler if its namespace is the scheduler's, and gets what the shim reads from it: the user
who submits it, an application id, whether it may be preempted. A workload such as a job gets the user in the template
of its pods, because a controller creates those. A user who changes the template of another one becomes its user: what
a user has written never runs as another one.

Not here: who may name another user (`users.py`), the configuration in config maps (`validation.py`), the meaning of the
annotations (`pods.py` of the shim).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec import Struct, field

from yunishard.kubernetes_shim.admission.reviews import ADMITTED, AdmissionRequest, PatchOperation, ReviewError, Verdict
from yunishard.kubernetes_shim.admission.users import NOBODY_INFO, WORKLOADS, Access, Workload, is_listed
from yunishard.kubernetes_shim.objects import Namespace, Object, ObjectMeta, Part, PriorityClass, decode_object
from yunishard.kubernetes_shim.pods import (
    ALLOW_PREEMPTION,
    APPLICATION_ID,
    DOMAIN,
    QUEUE,
    SCHEDULER,
    UNIQUE_MARK,
    USER_INFO,
    generate_application_id,
)
from yunishard.kubernetes_shim.settings import AdmissionSettings

IGNORE_APPLICATION: Final = f"{DOMAIN}ignore-application"
ENABLE_YUNIKORN: Final = f"{DOMAIN}namespace.enableYuniKorn"
GENERATE_APP_ID: Final = f"{DOMAIN}namespace.generateAppId"
OLD_APP_ID: Final = "applicationId"
OLD_QUEUE: Final = "queue"
SPARK_APP_ID: Final = "spark-app-selector"

_FLAGS: Final = ("true", "false")


class Surroundings(Struct, frozen=True):
    """The facts that decide beside the request itself; objects by name."""

    access: Access
    """The rules of users, with the settings."""
    namespaces: Mapping[str, Namespace]
    priority_classes: Mapping[str, PriorityClass]


def review(request: AdmissionRequest, around: Surroundings) -> Verdict:
    """Return whether the object is admitted, and what changes in it. Raises ReviewError."""
    kind = request.kind.kind
    if kind == "Pod":
        if request.operation == "CREATE":
            return _review_new_pod(request, around)
        if request.operation == "UPDATE":
            return _review_changed_pod(request)
    elif (workload := _WORKLOADS.get(kind)) is not None:
        template = _read_template(request.object, workload)
        if request.operation == "CREATE":
            return _review_new_workload(request, workload, template, around)
        if request.operation == "UPDATE":
            return _review_changed_workload(request, workload, template, around)
    return ADMITTED


# Pods -----------------------------------------------------------------------------------------------------------------


class _PodSpec(Part, frozen=True):
    scheduler_name: str = ""
    priority_class_name: str = ""


class _Pod(Part, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: _PodSpec = _PodSpec()


def _review_new_pod(request: AdmissionRequest, around: Surroundings) -> Verdict:
    pod = _decode(request.object, _Pod)
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    access, settings = around.access, around.access.settings
    named = annotations.get(USER_INFO)
    if refusal := access.refuse(named, request.user_info):
        return Verdict(refusal=refusal)
    chosen = access.choose_user(named, request.user_info, is_owned=bool(pod.metadata.owner_references))
    new_annotations = {} if chosen is None or chosen == named else {USER_INFO: chosen}
    if labels.get("app") == SCHEDULER or not _is_ours(request.namespace, around):
        if new_annotations and (named is not None or pod.spec.scheduler_name == SCHEDULER):
            return Verdict(patch=(PatchOperation("add", "/metadata/annotations", annotations | new_annotations),))
        return ADMITTED
    new_labels: dict[str, str] = {}
    if _gets_application_id(request.namespace, around):
        new_labels = _find_new_labels(labels, annotations, request.namespace, settings)
        if annotations.get(ALLOW_PREEMPTION) not in _FLAGS:
            priority_class = around.priority_classes.get(pod.spec.priority_class_name)
            new_annotations[ALLOW_PREEMPTION] = _find_preemption(priority_class)
    else:
        new_annotations[IGNORE_APPLICATION] = "true"
    patch = [PatchOperation("add", "/spec/schedulerName", SCHEDULER)]
    if new_labels:
        patch.append(PatchOperation("add", "/metadata/labels", labels | new_labels))
    if new_annotations:
        patch.append(PatchOperation("add", "/metadata/annotations", annotations | new_annotations))
    return Verdict(patch=tuple(patch))


def _review_changed_pod(request: AdmissionRequest) -> Verdict:
    new = _decode(request.object, _Pod).metadata.annotations.get(USER_INFO)
    old = _decode(request.old_object, _Pod).metadata.annotations.get(USER_INFO)
    if new != old:
        return Verdict(refusal=f"the annotation {USER_INFO} of a pod cannot change")
    return ADMITTED


def _is_ours(namespace: str, around: Surroundings) -> bool:
    settings = around.access.settings
    return _is_chosen(namespace, around, ENABLE_YUNIKORN, settings.process_namespaces, settings.bypass_namespaces)


def _gets_application_id(namespace: str, around: Surroundings) -> bool:
    settings = around.access.settings
    return _is_chosen(namespace, around, GENERATE_APP_ID, settings.label_namespaces, settings.no_label_namespaces)


def _is_chosen(
    namespace: str, around: Surroundings, flag: str, included: tuple[str, ...], excluded: tuple[str, ...]
) -> bool:
    """Decide by the flag of the namespace, where every text but `true` means false; without it, by the lists."""
    found = around.namespaces.get(namespace)
    if found is not None and flag in found.metadata.annotations:
        return found.metadata.annotations[flag] == _FLAGS[0]
    return is_listed(namespace, included, if_empty=True) and not is_listed(namespace, excluded)


def _find_new_labels(
    labels: Mapping[str, str], annotations: Mapping[str, str], namespace: str, settings: AdmissionSettings
) -> dict[str, str]:
    """Return the labels to set: an application id if the pod has none, and the older names of both keys."""
    found = {}
    if labels.get(APPLICATION_ID):
        found[OLD_APP_ID] = labels[APPLICATION_ID]
    elif not any((annotations.get(APPLICATION_ID), labels.get(OLD_APP_ID), labels.get(SPARK_APP_ID))):
        unique = UNIQUE_MARK if settings.generate_unique_app_id else ""
        found[APPLICATION_ID] = found[OLD_APP_ID] = generate_application_id(namespace, unique=unique)
    if labels.get(QUEUE):
        found[OLD_QUEUE] = labels[QUEUE]
    return {key: value for key, value in found.items() if labels.get(key) != value}


def _find_preemption(priority_class: PriorityClass | None) -> str:
    """Return whether a pod of this class may be preempted. Only a class that forbids it makes a difference."""
    chosen = "" if priority_class is None else priority_class.metadata.annotations.get(ALLOW_PREEMPTION)
    return chosen if chosen == _FLAGS[1] else _FLAGS[0]


# Workloads ------------------------------------------------------------------------------------------------------------

_WORKLOADS: Final = {one.kind: one for one in WORKLOADS}

_Json = dict[str, object]


class _TemplateParts(Part, frozen=True):
    metadata: _Json | None = None
    spec: _Json | None = None


class _Template(NamedTuple):
    """The template of the pods of a workload."""

    metadata: _Json | None
    annotations: Mapping[str, str]
    names_scheduler: bool
    rest: _Json
    """The template without the annotation that names the user, to be compared."""

    @property
    def user(self) -> str | None:
        """The annotation that names the user."""
        return self.annotations.get(USER_INFO)


def _read_template(raw: msgspec.Raw, workload: Workload) -> _Template:
    """Return the template of a workload; an empty one where it has none, which the API server refuses later."""
    found: object = _decode(raw, _Json)
    for name in workload.path:
        found = found.get(name) if isinstance(found, dict) else None
    template = _decode(found, _TemplateParts) if isinstance(found, dict) else _TemplateParts()
    rest: _Json = found if isinstance(found, dict) else {}
    metadata = template.metadata or {}
    annotations = _decode(metadata.get("annotations") or {}, dict[str, str])
    others = {key: value for key, value in annotations.items() if key != USER_INFO}
    return _Template(
        template.metadata,
        annotations,
        (template.spec or {}).get("schedulerName") == SCHEDULER,
        {**rest, "metadata": {**metadata, "annotations": others}},
    )


def _review_new_workload(
    request: AdmissionRequest, workload: Workload, template: _Template, around: Surroundings
) -> Verdict:
    user, access = request.user_info, around.access
    if workload.kind == "ReplicaSet" and is_listed(user.username, around.access.settings.system_users):
        return ADMITTED  # of a deployment, whose template has the user already
    if refusal := access.refuse(template.user, user):
        return Verdict(refusal=refusal)
    is_owned = bool(_decode(request.object, Object).metadata.owner_references)
    chosen = access.choose_user(template.user, user, is_owned=is_owned)
    if template.user is None and (chosen == NOBODY_INFO or not _gets_user(request, template, around)):
        return ADMITTED  # the pods get it
    return _set_user(workload, template, chosen)


def _review_changed_workload(
    request: AdmissionRequest, workload: Workload, new: _Template, around: Surroundings
) -> Verdict:
    """Keep the user of a template that stays as it is; one that another user changes gets that one."""
    user, access = request.user_info, around.access
    old = _read_template(request.old_object, workload)
    if around.access.settings.bypass_auth:
        return ADMITTED
    if new.user is not None and new.user != old.user:
        if refusal := access.refuse(new.user, user):
            return Verdict(refusal=refusal)
        return _set_user(workload, new, access.choose_user(new.user, user))
    if access.may_name_others(user) or new.rest == old.rest:
        return _set_user(workload, new, old.user)
    if old.user is None and not _gets_user(request, new, around):
        return ADMITTED
    return _set_user(workload, new, access.choose_user(None, user))


def _gets_user(request: AdmissionRequest, template: _Template, around: Surroundings) -> bool:
    """Whether the scheduler gets the pods of a template."""
    return not around.access.settings.bypass_auth and (template.names_scheduler or _is_ours(request.namespace, around))


def _set_user(workload: Workload, template: _Template, user: str | None) -> Verdict:
    """Let a template have this annotation; None if it stays without one."""
    if user is None or user == template.user:
        return ADMITTED
    path = "".join(f"/{name}" for name in (*workload.path, "metadata"))
    value = {**template.annotations, USER_INFO: user}
    if template.metadata is None:
        return Verdict(patch=(PatchOperation("add", path, {"annotations": value}),))
    return Verdict(patch=(PatchOperation("add", f"{path}/annotations", value),))


_T = TypeVar("_T")


def _decode(data: object, kind: type[_T]) -> _T:
    """Return an object of the API server, or a part of one that was decoded already."""
    try:
        return decode_object(data, kind) if isinstance(data, msgspec.Raw) else msgspec.convert(data, kind)
    except msgspec.DecodeError as error:
        raise ReviewError(f"the object cannot be read: {error}") from None
