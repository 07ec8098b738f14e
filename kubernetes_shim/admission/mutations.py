"""The decisions about pods and workloads that are created or changed.

A new pod is given to the scheduler if its namespace is the scheduler's, and gets what the shim reads from it: the user
who submits it, an application id, whether it may be preempted. A workload such as a job gets the user in the template
of its pods, because a controller creates those.

The user decides about queues and limits, so only the submitters that the settings name may set it to another one.

Not here: the configuration in config maps (`validation.py`), the meaning of the annotations (`pods.py` of the shim).
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeVar

import msgspec
from msgspec import Struct, field

from common.config.placement_rules import NAME_LENGTH_MAX, Expression
from kubernetes_shim.admission.reviews import (
    ADMITTED,
    AdmissionRequest,
    PatchOperation,
    RequestUser,
    ReviewError,
    Verdict,
)
from kubernetes_shim.annotations import decode_annotation
from kubernetes_shim.objects import Namespace, ObjectMeta, Part, PriorityClass, decode_object
from kubernetes_shim.pods import (
    ALLOW_PREEMPTION,
    APPLICATION_ID,
    DOMAIN,
    QUEUE,
    SCHEDULER,
    UNIQUE_MARK,
    USER_INFO,
    UserInfo,
    generate_application_id,
)
from kubernetes_shim.settings import AdmissionSettings

IGNORE_APPLICATION: Final = f"{DOMAIN}ignore-application"
ENABLE_YUNIKORN: Final = f"{DOMAIN}namespace.enableYuniKorn"
GENERATE_APP_ID: Final = f"{DOMAIN}namespace.generateAppId"
OLD_APP_ID: Final = "applicationId"
OLD_QUEUE: Final = "queue"
SPARK_APP_ID: Final = "spark-app-selector"

_FLAGS: Final = ("true", "false")


class Surroundings(Struct, frozen=True):
    """The facts that decide beside the request itself; objects by name."""

    settings: AdmissionSettings
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
    elif kind in _TEMPLATES:
        if request.operation == "CREATE":
            return _review_new_workload(request, around)
        if request.operation == "UPDATE":
            return _review_changed_workload(request, around.settings)
    return ADMITTED


# Pods -----------------------------------------------------------------------------------------------------------------


class _PodSpec(Part, frozen=True):
    priority_class_name: str = ""


class _Pod(Part, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: _PodSpec = _PodSpec()


def _review_new_pod(request: AdmissionRequest, around: Surroundings) -> Verdict:
    pod = _decode(request.object, _Pod)
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    settings = around.settings
    if refusal := _refuse_user_info(annotations, request.user_info, settings):
        return Verdict(refusal=refusal)
    if labels.get("app") == SCHEDULER or not _is_ours(request.namespace, around):
        return ADMITTED
    new_annotations = _find_user_info(annotations, request.user_info, settings)
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
    chosen = _read_flag(around.namespaces.get(namespace), ENABLE_YUNIKORN)
    if chosen is not None:
        return chosen
    settings = around.settings
    return _is_listed(namespace, settings.process_namespaces, if_empty=True) and not _is_listed(
        namespace, settings.bypass_namespaces
    )


def _gets_application_id(namespace: str, around: Surroundings) -> bool:
    chosen = _read_flag(around.namespaces.get(namespace), GENERATE_APP_ID)
    if chosen is not None:
        return chosen
    settings = around.settings
    return _is_listed(namespace, settings.label_namespaces, if_empty=True) and not _is_listed(
        namespace, settings.no_label_namespaces
    )


def _read_flag(namespace: Namespace | None, key: str) -> bool | None:
    """Return the value of a flag of a namespace; None if it has none. Every text but `true` means false."""
    value = None if namespace is None else namespace.metadata.annotations.get(key)
    return None if value is None else value == _FLAGS[0]


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


class _Template(Part, frozen=True):
    metadata: ObjectMeta | None = None


class _WorkloadSpec(Part, frozen=True):
    template: _Template = _Template()


class _Workload(Part, frozen=True):
    spec: _WorkloadSpec = _WorkloadSpec()


class _CronSpec(Part, frozen=True):
    job_template: _Workload = _Workload()


class _CronWorkload(Part, frozen=True):
    spec: _CronSpec = _CronSpec()


def _find_template(raw: msgspec.Raw, kind: str) -> _Template:
    if kind == "CronJob":
        return _decode(raw, _CronWorkload).spec.job_template.spec.template
    return _decode(raw, _Workload).spec.template


_TEMPLATES: Final = {
    "CronJob": "/spec/jobTemplate/spec/template/metadata",
    "DaemonSet": "/spec/template/metadata",
    "Deployment": "/spec/template/metadata",
    "Job": "/spec/template/metadata",
    "ReplicaSet": "/spec/template/metadata",
    "StatefulSet": "/spec/template/metadata",
}
"""Where a kind of workload has the metadata of its pods."""


def _review_new_workload(request: AdmissionRequest, around: Surroundings) -> Verdict:
    user, kind, settings = request.user_info, request.kind.kind, around.settings
    if kind == "ReplicaSet" and _is_listed(user.username, settings.system_users):
        return ADMITTED  # of a deployment, whose template has the user already
    metadata = _find_template(request.object, kind).metadata
    annotations = {} if metadata is None else metadata.annotations
    if refusal := _refuse_user_info(annotations, user, settings):
        return Verdict(refusal=refusal)
    new = _find_user_info(annotations, user, settings)
    if not new or not _is_ours(request.namespace, around):
        return ADMITTED
    path, value = _TEMPLATES[kind], annotations | new
    if metadata is None:
        return Verdict(patch=(PatchOperation("add", path, {"annotations": value}),))
    return Verdict(patch=(PatchOperation("add", f"{path}/annotations", value),))


def _review_changed_workload(request: AdmissionRequest, settings: AdmissionSettings) -> Verdict:
    """Refuse another user in the template, as for a new workload: a controller creates the pods, and is trusted."""
    new, old = (_find_template(raw, request.kind.kind).metadata for raw in (request.object, request.old_object))
    annotations = {} if new is None else new.annotations
    if annotations.get(USER_INFO) == (None if old is None else old.annotations.get(USER_INFO)):
        return ADMITTED
    return Verdict(refusal=_refuse_user_info(annotations, request.user_info, settings))


# Users ----------------------------------------------------------------------------------------------------------------


def _find_user_info(
    annotations: Mapping[str, str], submitter: RequestUser, settings: AdmissionSettings
) -> dict[str, str]:
    """Return the annotation to set, if there is none yet."""
    if USER_INFO in annotations or settings.bypass_auth:
        return {}
    info = UserInfo(submitter.username, submitter.groups)
    return {USER_INFO: msgspec.json.encode(info).decode()}


def _refuse_user_info(annotations: Mapping[str, str], submitter: RequestUser, settings: AdmissionSettings) -> str:
    """Return why the submitter may not create pods with the user in these annotations; empty if it may."""
    if USER_INFO not in annotations or settings.bypass_auth:
        return ""
    is_permitted = (
        (settings.trust_controllers and _is_listed(submitter.username, settings.system_users))
        or _is_listed(submitter.username, settings.external_users)
        or any(_is_listed(group, settings.external_groups) for group in submitter.groups)
    )
    if not is_permitted:
        return (
            f"the user {submitter.username!r} may not set the annotation {USER_INFO}: leave it out, or list the user "
            "in admissionController.accessControl.externalUsers, or a group of the user in externalGroups"
        )
    try:
        decode_annotation(annotations[USER_INFO], UserInfo)
    except msgspec.DecodeError as error:
        return f'the annotation {USER_INFO}: expected JSON as in {{"user": "a", "groups": ["b"]}}: {error}'
    return ""


def _is_listed(name: str, expressions: tuple[str, ...], *, if_empty: bool = False) -> bool:
    """Whether an expression of the list is found in the name. Names that are too long to be matched are not listed."""
    if not expressions:
        return if_empty
    return len(name) <= NAME_LENGTH_MAX and any(one.found_in(name) for one in _compile(expressions))


@lru_cache(maxsize=32)
def _compile(expressions: tuple[str, ...]) -> tuple[Expression, ...]:
    return tuple(map(Expression, expressions))


_T = TypeVar("_T")


def _decode(raw: msgspec.Raw, kind: type[_T]) -> _T:
    try:
        return decode_object(raw, kind)
    except msgspec.DecodeError as error:
        raise ReviewError(f"the object cannot be read: {error}") from None
