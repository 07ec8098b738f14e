"""Constraints as tags and attributes, which the core evaluates by itself, without a question to the shim.

The tags say as much as they can of what a pod requires of a node: labels and tolerations. The predicate decides about
the nodes that they leave: host ports, other pods, topology spread and volumes. Where nothing is left to decide, the
scope is `none`, and the core does not ask. `docs/predicates.md` has the syntax.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from yunishard.kubernetes_shim.objects import Node, Pod, Taint, Toleration
from yunishard.kubernetes_shim.pods import find_required_node
from yunishard.kubernetes_shim.predicates.constraints import REPELLING_EFFECTS, list_claims, list_host_ports
from yunishard.kubernetes_shim.predicates.selectors import (
    NODE_NAME_FIELD,
    NodeAlternative,
    Term,
    compile_node_requirement,
)

SELECTOR_TAG: Final = "yunishard/nodeSelector"
TOLERATIONS_TAG: Final = "yunishard/tolerations"
SCOPE_TAG: Final = "yunishard/predicateScope"
TAINTS_ATTRIBUTE: Final = "yunishard/taints"
NODE_NAME_ATTRIBUTE: Final = "yunishard/nodeName"
"""An attribute with the name of the node, so that a selector can name nodes."""

TAG_LENGTH_MAX: Final = 65_536
"""Characters of a tag that the core reads. A pod whose constraints are longer needs the predicate."""

ALTERNATIVES_MAX: Final = 64
"""Alternatives of a selector that the core reads. A pod with more needs the predicate."""

HOST_NAME_LABEL: Final = "kubernetes.io/hostname"
"""The label whose values are single nodes."""

EFFECTS: Final = (*REPELLING_EFFECTS, "PreferNoSchedule")
_IMPOSSIBLE: Final = f"{NODE_NAME_ATTRIBUTE},!{NODE_NAME_ATTRIBUTE}"
"""A selector that no node matches."""


class Scope(IntEnum):
    """State that the decision whether a pod may run on a node depends on, besides resources, tags and attributes."""

    NONE = 0
    NODE = 1
    PARTITION = 2
    """Pods on other nodes count, too."""


class PodTags(NamedTuple):
    """The constraints of a pod in the form that the core reads, and the scope of the others."""

    tags: Mapping[str, str]
    scope: Scope


def describe_in_tags(pod: Pod) -> PodTags:
    """Return the tags of an ask, and the scope of the predicate. No node is good for the pod that the tags exclude.

    Tolerations that the core would not read become one for everything, because a pod without the tag tolerates nothing.
    """
    selector, tolerations = _describe_selector(pod), _describe_tolerations(pod.spec.tolerations)
    is_complete = selector is not None and max(len(selector), len(tolerations)) <= TAG_LENGTH_MAX
    tags = {
        SELECTOR_TAG: selector if selector is not None and len(selector) <= TAG_LENGTH_MAX else "",
        TOLERATIONS_TAG: tolerations if len(tolerations) <= TAG_LENGTH_MAX else "*",
    }
    return PodTags({name: text for name, text in tags.items() if text}, _find_scope(pod, is_complete=is_complete))


def find_scope_of_keys(topology_keys: Collection[str]) -> Scope:
    """Return the scope of anti-affinity with these topology keys."""
    if not topology_keys:
        return Scope.NONE
    return Scope.NODE if all(one == HOST_NAME_LABEL for one in topology_keys) else Scope.PARTITION


def _find_scope(pod: Pod, *, is_complete: bool) -> Scope:
    affinity = pod.spec.affinity
    near = affinity.pod_affinity if affinity else None
    apart = affinity.pod_anti_affinity if affinity else None
    if (
        any(one.when_unsatisfiable == "DoNotSchedule" for one in pod.spec.topology_spread_constraints)
        or (near and near.required_during_scheduling_ignored_during_execution)
        or list_claims(pod)
    ):
        return Scope.PARTITION
    terms = apart.required_during_scheduling_ignored_during_execution if apart else ()
    is_plain = is_complete and not list_host_ports(pod) and not find_required_node(pod)
    return max(find_scope_of_keys([one.topology_key for one in terms]), Scope.NONE if is_plain else Scope.NODE)


def describe_node(node: Node) -> Mapping[str, str]:
    """Return the attributes of a node: its labels, its taints and its name."""
    attributes = {**node.metadata.labels, NODE_NAME_ATTRIBUTE: node.metadata.name}
    if taints := _describe_taints(node.spec.taints):
        attributes[TAINTS_ATTRIBUTE] = taints
    return attributes


def _describe_selector(pod: Pod) -> str | None:
    """Return a node selector, empty if there is none; None if it has too many alternatives."""
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    requirement = compile_node_requirement(pod.spec.node_selector, required)
    own = [f"{key}={value}" for key, value in requirement.labels]
    if requirement.alternatives is None:
        return ",".join(own)
    if len(requirement.alternatives) > ALTERNATIVES_MAX:
        return None
    alternatives = [",".join([*own, *_describe_terms(one)]) for one in requirement.alternatives]
    return " || ".join(alternatives) or _IMPOSSIBLE


def _describe_terms(alternative: NodeAlternative) -> Iterable[str]:
    yield from map(_describe_term, alternative.labels.terms)
    for term in alternative.names:
        assert term.key == NODE_NAME_FIELD
        yield _describe_term(term._replace(key=NODE_NAME_ATTRIBUTE))


def _describe_term(term: Term) -> str:
    match term.operator:
        case "In" | "NotIn":
            word = "in" if term.operator == "In" else "notin"
            return f"{term.key} {word} ({','.join(sorted(term.values))})"
        case "Exists":
            return term.key
        case "DoesNotExist":
            return f"!{term.key}"
        case _:
            return f"{term.key}{'>' if term.operator == 'Gt' else '<'}{term.bound}"


def _describe_tolerations(tolerations: Sequence[Toleration]) -> str:
    """Return the tolerations. Those with an effect or operator that Kubernetes does not have tolerate nothing."""
    parts = []
    for one in tolerations:
        if (one.effect and one.effect not in EFFECTS) or one.operator not in ("", "Equal", "Exists"):
            continue
        value = "" if one.operator == "Exists" else f"={one.value}"
        parts.append(f"{one.key or '*'}{value}{':' if one.effect else ''}{one.effect}")
    return ",".join(dict.fromkeys(parts))


def _describe_taints(taints: Sequence[Taint]) -> str:
    return ",".join(
        f"{one.key}{'=' if one.value else ''}{one.value}:{one.effect}"
        for one in taints
        if one.effect in REPELLING_EFFECTS
    )
