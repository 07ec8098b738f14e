"""Task groups of a gang as a pod declares them, and the placeholder pods that reserve their places.

Not here: when placeholders are created and deleted (`gangs.py`).
"""

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Final, NamedTuple, TypedDict

from msgspec import DecodeError, Meta, Struct, field

from yunishard.common.messages.kinds import INT64_MAX, Resources
from yunishard.common.messages.rm_messages import AddApplicationRequest
from yunishard.common.resources import QuantityError, plus, saturate
from yunishard.kubernetes_shim.annotations import decode_annotation, describe_unknown_key, list_unknown_keys
from yunishard.kubernetes_shim.objects import Pod, Quantities
from yunishard.kubernetes_shim.pods import (
    APPLICATION_ID,
    PLACEHOLDER,
    QUEUE,
    SCHEDULER,
    SCHEDULING_PARAMETERS,
    TASK_GROUP,
    TASK_GROUPS,
    USER_INFO,
    UserInfo,
    encode_user,
)
from yunishard.kubernetes_shim.quantities import convert_quantities

SOFT: Final = "Soft"
"""The gang scheduling style in which the application runs without its gang when the reservation times out."""

HARD: Final = "Hard"
"""The style in which the application fails when the reservation times out."""

MEMBERS_MAX: Final = 10_000
"""Placeholders of one application. More in its task groups are an error of the pod, and no gang is scheduled."""

TIMEOUT_S_MAX: Final = INT64_MAX // 1000
"""The longest time for which placeholders are kept, as the core counts it in milliseconds. A longer one is cut."""

_TIMEOUT: Final = re.compile(r"\+?[0-9]{1,19}")
_APPLICATION_LENGTH: Final = 28
_GROUP_LENGTH: Final = 20
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_SUFFIX_LENGTH: Final = 10


# The parts of a pod's specification that a group may have, complete, as they become those of its placeholders. The
# structs of `objects.py` have only what the shim reads.

_Int32 = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
_Int64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _Requirement(TypedDict, total=False):
    key: str
    operator: str
    values: list[str]


class _LabelSelector(TypedDict, total=False):
    matchLabels: dict[str, str]
    matchExpressions: list[_Requirement]


class _NodeTerm(TypedDict, total=False):
    matchExpressions: list[_Requirement]
    matchFields: list[_Requirement]


class _NodeSelector(TypedDict, total=False):
    nodeSelectorTerms: list[_NodeTerm]


class _PreferredNodeTerm(TypedDict, total=False):
    weight: _Int32
    preference: _NodeTerm


class _NodeAffinity(TypedDict, total=False):
    requiredDuringSchedulingIgnoredDuringExecution: _NodeSelector | None
    preferredDuringSchedulingIgnoredDuringExecution: list[_PreferredNodeTerm]


class _PodTerm(TypedDict, total=False):
    labelSelector: _LabelSelector | None
    namespaces: list[str]
    topologyKey: str
    namespaceSelector: _LabelSelector | None
    matchLabelKeys: list[str]
    mismatchLabelKeys: list[str]


class _PreferredPodTerm(TypedDict, total=False):
    weight: _Int32
    podAffinityTerm: _PodTerm


class _PodAffinity(TypedDict, total=False):
    requiredDuringSchedulingIgnoredDuringExecution: list[_PodTerm]
    preferredDuringSchedulingIgnoredDuringExecution: list[_PreferredPodTerm]


class _Affinity(TypedDict, total=False):
    nodeAffinity: _NodeAffinity | None
    podAffinity: _PodAffinity | None
    podAntiAffinity: _PodAffinity | None


class _Toleration(TypedDict, total=False):
    key: str
    operator: str
    value: str
    effect: str
    tolerationSeconds: _Int64 | None


class _TopologySpreadConstraint(TypedDict, total=False):
    maxSkew: _Int32
    topologyKey: str
    whenUnsatisfiable: str
    labelSelector: _LabelSelector | None
    minDomains: _Int32 | None
    nodeAffinityPolicy: str | None
    nodeTaintsPolicy: str | None
    matchLabelKeys: list[str]


class TaskGroup(Struct, frozen=True, rename="camel"):
    """Equal pods that are to run at the same time."""

    name: str = ""
    min_member: _Int32 = 0
    min_resource: Quantities | None = None
    """None if the group does not have the key; a group whose pods request nothing has an empty map."""
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[_Toleration] = field(default_factory=list)
    affinity: _Affinity | None = None
    topology_spread_constraints: list[_TopologySpreadConstraint] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)

    @property
    def resources(self) -> Resources:
        """The amounts that one placeholder takes."""
        return plus(convert_quantities(self.min_resource or {}), {"pods": 1})


class TaskGroupsError(ValueError):
    """The task groups of a pod cannot be used; the text names the group and what would be right."""


def read_task_groups(pod: Pod) -> list[TaskGroup]:
    """Return the task groups that a pod declares, in order; none without the annotation.

    Raises:
        TaskGroupsError: they cannot be read, or have a member without name, number or resources.
    """
    text = pod.metadata.annotations.get(TASK_GROUPS, "")
    if not text:
        return []
    try:
        groups = decode_annotation(text, list[TaskGroup])
    except DecodeError as error:
        raise TaskGroupsError(f"annotation {TASK_GROUPS}: expected a JSON list of task groups: {error}") from None
    for number, group in enumerate(groups):
        place = f"annotation {TASK_GROUPS}: task group {number} ({group.name or 'without a name'})"
        if not group.name:
            raise TaskGroupsError(f"{place}: expected a name")
        if group.min_member <= 0:
            raise TaskGroupsError(f"{place}: expected a minMember above 0, got {group.min_member}")
        if group.min_resource is None:
            raise TaskGroupsError(f"{place}: expected amounts in minResource")
        try:
            convert_quantities(group.min_resource)
        except QuantityError as error:
            raise TaskGroupsError(f"{place}: minResource: {error}") from None
    if sum(group.min_member for group in groups) > MEMBERS_MAX:
        raise TaskGroupsError(f"annotation {TASK_GROUPS}: expected at most {MEMBERS_MAX} members in all groups")
    return groups


def describe_unknown_keys(pod: Pod, *, with_gang: bool) -> str:
    """Return a warning that names the keys in annotations which mean nothing; those of gangs only if `with_gang`."""
    annotations, texts = pod.metadata.annotations, []
    for annotation, kind in _JSON_ANNOTATIONS.items() if with_gang else ((USER_INFO, UserInfo),):
        if text := annotations.get(annotation, ""):
            texts += [f"annotation {annotation}: {one}" for one in list_unknown_keys(text, kind)]
    for pair in annotations.get(SCHEDULING_PARAMETERS, "").split() if with_gang else ():
        if (key := pair.partition("=")[0]) not in _GANG_PARAMETERS:
            texts.append(f"annotation {SCHEDULING_PARAMETERS}: {describe_unknown_key(key, _GANG_PARAMETERS)}")
            break  # the rest is probably of the same kind
    return "; ".join(texts)


_JSON_ANNOTATIONS: Final[Mapping[str, type[object]]] = {USER_INFO: UserInfo, TASK_GROUPS: list[TaskGroup]}
"""The annotations of pods that are JSON. Those of namespaces are maps, which may have any keys."""

_TIMEOUT_KEY: Final = "placeholderTimeoutInSeconds"
_STYLE_KEY: Final = "gangSchedulingStyle"
_GANG_PARAMETERS: Final = (_TIMEOUT_KEY, _STYLE_KEY)


class GangParameters(NamedTuple):
    """How long placeholders are kept, and what happens then."""

    placeholder_timeout_s: int = 0
    """0: the time that the core has configured."""
    style: str = SOFT


def read_gang_parameters(pod: Pod) -> GangParameters:
    """Return the parameters of a gang; pairs that cannot be read are skipped."""
    timeout, style = 0, SOFT
    for pair in pod.metadata.annotations.get(SCHEDULING_PARAMETERS, "").split():
        key, _, value = pair.partition("=")
        if key == _TIMEOUT_KEY and _TIMEOUT.fullmatch(value):
            timeout = min(int(value), TIMEOUT_S_MAX)
        elif key == _STYLE_KEY:
            style = value if value in (SOFT, HARD) else SOFT
    return GangParameters(timeout, style)


def sum_placeholders(groups: Sequence[TaskGroup]) -> Resources:
    """Return what all placeholders take together."""
    total: Resources = {}
    for group in groups:
        total = plus(total, {kind: amount * group.min_member for kind, amount in group.resources.items()})
    return saturate(total)


def name_placeholder(application_id: str, group: str, originator: str, number: int) -> str:
    """Return the name of a placeholder: the same for each attempt, so that a lost answer never makes two of one."""
    digest = hashlib.sha256(f"{application_id}\n{group}\n{originator}\n{number}".encode()).digest()
    suffix = "".join(_DIGITS[byte % len(_DIGITS)] for byte in digest[:_SUFFIX_LENGTH])
    return f"tg-{application_id[:_APPLICATION_LENGTH]}-{group[:_GROUP_LENGTH]}-{suffix}"


def list_missing(
    application_id: str, group: TaskGroup, originator: str, *, present: int, names: Collection[str], first: int = 0
) -> list[str]:
    """Return names for the placeholders that a group lacks: `present` of it exist, and `names` are in use. Those with
    numbers below `first` were given before: they may belong to pods that have ended, and still exist.
    """
    wanted = max(0, group.min_member - present)
    found: list[str] = []
    number = first
    while len(found) < wanted:
        name = name_placeholder(application_id, group.name, originator, number)
        number += 1
        if name not in names:
            found.append(name)
    return found


def build_placeholder(
    name: str, application_id: str, request: AddApplicationRequest, group: TaskGroup, originator: Pod, image: str
) -> dict[str, object]:
    """Return the body of a placeholder pod, which the originator owns, so that Kubernetes deletes it with its owner.
    `application_id` is the one that pods name. The user is that of the application; the group cannot name another one.
    """
    own, meta, queue = originator.metadata.annotations, originator.metadata, request.queue_name
    labels = {**group.labels, APPLICATION_ID: application_id}
    if queue:
        labels[QUEUE] = queue
    kept = {key: own[key] for key in (TASK_GROUPS, SCHEDULING_PARAMETERS) if key in own}
    annotations = {**group.annotations, **kept, PLACEHOLDER: "true", TASK_GROUP: group.name}
    annotations[USER_INFO] = encode_user(request.ugi)
    amounts = group.min_resource or {}
    resources = {"requests": amounts, "limits": amounts}
    spec: dict[str, object] = {
        "schedulerName": SCHEDULER,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"runAsUser": 1000, "runAsGroup": 3000},
        "containers": [{"name": "pause", "image": image, "imagePullPolicy": "IfNotPresent", "resources": resources}],
        "nodeSelector": group.node_selector,
        "tolerations": group.tolerations,
        "topologySpreadConstraints": group.topology_spread_constraints,
        "imagePullSecrets": [{"name": one.name} for one in originator.spec.image_pull_secrets],
    }
    if group.affinity is not None:
        spec["affinity"] = group.affinity
    if originator.spec.priority_class_name:
        spec["priorityClassName"] = originator.spec.priority_class_name
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": meta.name,
        "uid": meta.uid,
        "controller": False,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner],
        },
        "spec": spec,
    }
