"""Constraints as tags and attributes, which the core evaluates by itself, without a question to the shim.

Most pods require nothing but labels and tolerations. `describe_in_tags` returns the tags that say the same; pods that
require more (host ports, other pods, topology spread, volumes) need the predicate. `docs/predicates.md` has the syntax.

A pod that requires nothing of other pods can still be repelled by the anti-affinity of a placed pod. The tags do not
express that: `is_repelled` tells whether such a pod is there now, and the shim examines each allocation with `refuse`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kubernetes_shim.cluster import Cluster
from kubernetes_shim.objects import Node, Pod, Taint, Toleration
from kubernetes_shim.predicates.constraints import REPELLING_EFFECTS, list_claims, list_host_ports
from kubernetes_shim.predicates.selectors import NODE_NAME_FIELD, NodeAlternative, Term, compile_node_requirement

SELECTOR_TAG: Final = "yunishard/nodeSelector"
TOLERATIONS_TAG: Final = "yunishard/tolerations"
TAINTS_ATTRIBUTE: Final = "yunishard/taints"
NODE_NAME_ATTRIBUTE: Final = "yunishard/nodeName"
"""An attribute with the name of the node, so that a selector can name nodes."""

TAG_LENGTH_MAX: Final = 65_536
"""Characters of a tag that the core reads. A pod whose constraints are longer needs the predicate."""

ALTERNATIVES_MAX: Final = 64
"""Alternatives of a selector that the core reads. A pod with more needs the predicate."""

EFFECTS: Final = (*REPELLING_EFFECTS, "PreferNoSchedule")
_IMPOSSIBLE: Final = f"{NODE_NAME_ATTRIBUTE},!{NODE_NAME_ATTRIBUTE}"
"""A selector that no node matches."""


def describe_in_tags(pod: Pod) -> Mapping[str, str] | None:
    """Return the tags of an ask that say all that the pod requires of a node; None if tags cannot say it."""
    spec = pod.spec
    affinity = spec.affinity
    others = (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ()
    if any(one is not None and one.required_during_scheduling_ignored_during_execution for one in others):
        return None
    if any(one.when_unsatisfiable == "DoNotSchedule" for one in spec.topology_spread_constraints):
        return None
    if list_host_ports(pod) or list_claims(pod):
        return None
    selector, tolerations = _describe_selector(pod), _describe_tolerations(spec.tolerations)
    if selector is None or max(len(selector), len(tolerations)) > TAG_LENGTH_MAX:
        return None
    tags = {SELECTOR_TAG: selector, TOLERATIONS_TAG: tolerations}
    return {name: text for name, text in tags.items() if text}


def describe_node(node: Node) -> Mapping[str, str]:
    """Return the attributes of a node: its labels, its taints and its name."""
    attributes = {**node.metadata.labels, NODE_NAME_ATTRIBUTE: node.metadata.name}
    if taints := _describe_taints(node.spec.taints):
        attributes[TAINTS_ATTRIBUTE] = taints
    return attributes


def is_repelled(cluster: Cluster, uid: str) -> bool:
    """Whether a placed pod has an anti-affinity against the pod, so that its tags do not say all."""
    pod = cluster.pods.get(uid)
    return pod is not None and any(one.owners for one in pod.shape.labels.anti_affinities)


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
