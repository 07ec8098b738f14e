"""Reads from a pod what the core needs: scheduler, application, queue, user, resources and tags.

The keys are YuniKorn's, so that the pods of its users work unchanged. Where several keys may hold a value, the first
one that is not empty counts.

Not here: gangs (`gangs.py`), requirements on nodes (`tags.py`, `predicates`), states (`tasks.py`).
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Final

from msgspec import DecodeError, Struct, field
from msgspec.json import encode

from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.rm_messages import PreemptionPolicy, UserGroupInformation
from yunishard.common.resources import CORES, plus, saturate
from yunishard.kubernetes_shim.annotations import decode_annotation
from yunishard.kubernetes_shim.objects import Container, ContainerStatus, Pod, PriorityClass
from yunishard.kubernetes_shim.quantities import convert_quantities

DOMAIN: Final = "yunikorn.apache.org/"
"""The prefix of all keys."""

SCHEDULER: Final = "yunikorn"
"""The scheduler name of the pods that the shim schedules."""

APPLICATION_ID: Final = f"{DOMAIN}app-id"
QUEUE: Final = f"{DOMAIN}queue"
USER_INFO: Final = f"{DOMAIN}user.info"
"""The annotation that names the user, as JSON. The admission controller sets it, and only trusted users may."""
USER_LABEL: Final = f"{DOMAIN}username"
"""The label that names the user without the annotation, where the settings let every user name every other one."""
PLACEHOLDER: Final = "internal.yunikorn.apache.org/placeholder"
TASK_GROUP: Final = f"{DOMAIN}task-group-name"
TASK_GROUPS: Final = f"{DOMAIN}task-groups"
SCHEDULING_PARAMETERS: Final = f"{DOMAIN}schedulingPolicyParameters"
ALLOW_PREEMPTION: Final = f"{DOMAIN}allow-preemption"
REQUIRED_NODE: Final = f"{DOMAIN}requiredNode"

NOBODY: Final = "nobody"
"""The user of a pod that names none."""

GENERATED_ID_LENGTH_MAX: Final = 63
"""Characters of a generated application id, as many as a label's value may have; the rest is cut off."""

UNIQUE_MARK: Final = "uniqueautogen"
"""The end of an application id in place of the pod's uid, which does not exist yet in the admission controller."""

_NAMESPACE_LENGTH_IN_ID: Final = 26  # and a dash, and 36 of the uid
_YES: Final = ("1", "t", "T", "TRUE", "true", "True")


def is_ours(pod: Pod) -> bool:
    """Whether the shim schedules the pod."""
    return pod.spec.scheduler_name == SCHEDULER


def name_of(pod: Pod) -> str:
    """Return namespace and name, as events name it."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


# Application, queue, user ---------------------------------------------------------------------------------------------


def _iterate_application_ids(pod: Pod) -> Iterator[tuple[str, str]]:
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    yield f"label {APPLICATION_ID}", labels.get(APPLICATION_ID, "")
    yield f"annotation {APPLICATION_ID}", annotations.get(APPLICATION_ID, "")
    yield "label applicationId", labels.get("applicationId", "")
    yield "label spark-app-selector", labels.get("spark-app-selector", "")


def _iterate_queues(pod: Pod) -> Iterator[tuple[str, str]]:
    yield f"label {QUEUE}", pod.metadata.labels.get(QUEUE, "")
    yield f"annotation {QUEUE}", pod.metadata.annotations.get(QUEUE, "")
    yield "label queue", pod.metadata.labels.get("queue", "")


def find_application_id(pod: Pod, *, is_unique: bool = False) -> str:
    """Return the id of the pod's application. A generated one is per namespace or, if `is_unique`, per pod."""
    meta = pod.metadata
    found = next((value for _, value in _iterate_application_ids(pod) if value), "")
    if found.endswith(f"-{UNIQUE_MARK}"):
        return found.removesuffix(UNIQUE_MARK) + meta.uid
    return found or generate_application_id(meta.namespace, unique=meta.uid if is_unique else "")


def generate_application_id(namespace: str, *, unique: str = "") -> str:
    """Return the id for all pods of a namespace that have none or, with the end of the id, for one of them."""
    found = f"{namespace[:_NAMESPACE_LENGTH_IN_ID]}-{unique}" if unique else f"yunikorn-{namespace}-autogen"
    return found[:GENERATED_ID_LENGTH_MAX]


def find_queue(pod: Pod) -> str:
    """Return the queue that the pod names; empty if placement rules decide."""
    return next((value for _, value in _iterate_queues(pod) if value), "")


def describe_conflicts(pod: Pod) -> str:
    """Return a warning if the pod names several applications or queues, which tells those that are ignored."""
    texts = []
    for what, read in (("application id", _iterate_application_ids), ("queue", _iterate_queues)):
        found = [(key, value) for key, value in read(pod) if value]
        ignored = [f"{value} ({key})" for key, value in found if value != found[0][1]]
        if ignored:
            texts.append(f"{what} {found[0][1]} ({found[0][0]}) is used, ignored: {', '.join(ignored)}")
    return "; ".join(texts)


class UserInfo(Struct, frozen=True, omit_defaults=True):
    """The content of the annotation with the user."""

    user: str = ""
    groups: list[str] = field(default_factory=list)
    pod: str = ""
    """The uid of the pod that sent the request; empty if it was none."""


def find_user(pod: Pod, *, reads_label: bool = False) -> UserGroupInformation:
    """Return the user of the pod, and the groups if an annotation has them. Every user may set the label."""
    text = pod.metadata.annotations.get(USER_INFO, "")
    if text:
        info = _read_user_info(text)
        return UserGroupInformation(user=info.user, groups=info.groups) if info.user else _NOBODY
    return UserGroupInformation(user=(pod.metadata.labels.get(USER_LABEL) if reads_label else "") or NOBODY)


def find_creator(pod: Pod) -> str:
    """Return the uid of the pod that created this one, for which the API server vouches; empty if it was none."""
    return _read_user_info(pod.metadata.annotations.get(USER_INFO, "")).pod


def describe_owner(pod: Pod) -> str:
    """Return a text that is equal for pods of one user; pods without a user belong to their namespace."""
    user = find_user(pod).user
    return user if user != NOBODY else f"{NOBODY} {pod.metadata.namespace}"


def encode_user(user: UserGroupInformation) -> str:
    """Return the annotation that names this user."""
    return encode(UserInfo(user.user, user.groups)).decode()


def _read_user_info(text: str) -> UserInfo:
    """Return the user in an annotation; an empty one if it cannot be read."""
    try:
        return decode_annotation(text, UserInfo) if text else UserInfo()
    except DecodeError:
        return UserInfo()


_NOBODY: Final = UserGroupInformation(user=NOBODY)


# Gangs, preemption ----------------------------------------------------------------------------------------------------


def is_placeholder(pod: Pod) -> bool:
    """Whether the pod reserves a place for another one of its task group."""
    annotations = pod.metadata.annotations
    found = annotations.get(PLACEHOLDER) or annotations.get(f"{DOMAIN}placeholder")
    return (found or pod.metadata.labels.get("placeholder", "")) in _YES


def find_preemption_policy(pod: Pod, priority_class: PriorityClass | None) -> PreemptionPolicy:
    """Return whether the pod may be a victim, and may have victims."""
    own = pod.metadata.annotations.get(ALLOW_PREEMPTION, "")
    protected = priority_class is not None and priority_class.metadata.annotations.get(ALLOW_PREEMPTION) == "false"
    return PreemptionPolicy(
        allow_preempt_self=own == "true" or (own != "false" and not protected),
        allow_preempt_other=pod.spec.preemption_policy != "Never",
    )


# Resources ------------------------------------------------------------------------------------------------------------


def compute_resources(pod: Pod) -> Resources:
    """Return what the pod takes of its node: its requests, never its limits, and one pod. A sum that is too large for
    the core becomes the largest that it can read: no node has either.

    Raises:
        QuantityError: the pod has text that is not a quantity.
    """
    spec, status = pod.spec, pod.status
    is_infeasible = status.resize == "Infeasible" or any(
        one.type == "PodResizePending" and one.reason == "Infeasible" for one in status.conditions
    )
    total: Resources = {}
    for one in spec.containers:
        total = plus(total, _compute_container(one, status.container_statuses, is_infeasible=is_infeasible))
    if spec.init_containers:
        total = _include_init_containers(total, pod, is_infeasible=is_infeasible)
    if spec.resources is not None:
        whole = convert_quantities(spec.resources.requests)
        total.update({kind: amount for kind, amount in whole.items() if _is_for_whole_pod(kind)})
    total = plus(total, convert_quantities(spec.overhead))
    total["pods"] = 1
    return saturate(total)


def _is_for_whole_pod(kind: str) -> bool:
    return kind in (CORES, "memory") or kind.startswith("hugepages-")


def _compute_container(container: Container, statuses: Sequence[ContainerStatus], *, is_infeasible: bool) -> Resources:
    """Return the larger one of what the container requests and what it has, for each type."""
    status = next((one for one in statuses if one.name == container.name), None)
    wanted = convert_quantities(container.resources.requests)
    if status is None:
        return wanted
    actual = convert_quantities(status.resources.requests) if status.resources is not None else {}
    allocated = convert_quantities(status.allocated_resources)
    if is_infeasible:
        return actual or allocated or wanted
    return _maximum(_maximum(wanted, allocated), actual)


def _include_init_containers(total: Resources, pod: Pod, *, is_infeasible: bool) -> Resources:
    """Add sidecars to the sum of the containers; every other init container needs itself and the sidecars before it."""
    sidecars: Resources = {}
    most: Resources = {}
    for one in pod.spec.init_containers:
        own = _compute_container(one, pod.status.init_container_statuses, is_infeasible=is_infeasible)
        if one.restart_policy == "Always":
            sidecars = plus(sidecars, own)
        else:
            most = _maximum(most, plus(sidecars, own))
    return _maximum(plus(total, sidecars), most)


def _maximum(left: Resources, right: Resources) -> Resources:
    return {kind: max(left.get(kind, 0), right.get(kind, 0)) for kind in dict.fromkeys(chain(left, right))}


# Tags -----------------------------------------------------------------------------------------------------------------


def parse_time(text: str) -> int:
    """Return a time of the API server as Unix seconds; 0 if there is none."""
    return int(datetime.fromisoformat(text).timestamp()) if text else 0


def build_tags(pod: Pod) -> dict[str, str]:
    """Return the tags of the pod's ask or allocation."""
    meta = pod.metadata
    tags = {
        "kubernetes.io/meta/namespace": meta.namespace,
        "kubernetes.io/meta/podName": meta.name,
        **{f"kubernetes.io/label/{key}": value for key, value in meta.labels.items()},
        "creationTime": str(parse_time(meta.creation_timestamp)),
    }
    if node := find_required_node(pod):
        tags[REQUIRED_NODE] = node
    return tags


def find_required_node(pod: Pod) -> str:
    """Return the only node where a pod of a DaemonSet may run; empty for other pods."""
    if not any(one.kind == "DaemonSet" for one in pod.metadata.owner_references):
        return ""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    selector = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    terms = selector.node_selector_terms if selector is not None else []
    fields = (one for term in terms for one in term.match_fields)
    return next((one.values[0] for one in fields if one.key == "metadata.name" and one.values), "")


def find_foreign_kind(pod: Pod) -> str:
    """Return the value of the tag `foreign`: `static` for a pod of the node itself, else `default`."""
    return "static" if any(one.kind == "Node" for one in pod.metadata.owner_references) else "default"
