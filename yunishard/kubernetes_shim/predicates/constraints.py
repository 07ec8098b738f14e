"""Constraints of a pod, read from its specification: only what predicates evaluate, once for all pods that are equal.

A cluster has thousands of pods, but few different specifications. `encode_constraints` and `encode_labels` return keys
by which equal ones are found without reading them again.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Struct, msgpack

from yunishard.kubernetes_shim.objects import (
    Affinity,
    Container,
    NodeAffinity,
    Pod,
    PodAffinityTerm,
    Taint,
    Toleration,
    TopologySpreadConstraint,
)
from yunishard.kubernetes_shim.predicates.selectors import Labels, NodeRequirement, compile_node_requirement

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - compared with, not bound to
REPELLING_EFFECTS: Final = ("NoSchedule", "NoExecute")


class HostPort(NamedTuple):
    """A port of the node that a pod occupies."""

    protocol: str
    port: int
    address: str


class PodClaim(NamedTuple):
    """A claim whose volume the pod uses."""

    name: str
    is_ephemeral: bool
    """Whether the claim is made for the pod, which must own it then."""


class Constraints:
    """Requirements of all pods with an equal specification."""

    __slots__ = ("affinity", "anti_affinity", "key", "node", "pods", "ports", "spread", "tolerations")

    def __init__(self, key: bytes, pod: Pod) -> None:
        spec = pod.spec
        affinity = spec.affinity or Affinity()
        nodes = affinity.node_affinity or NodeAffinity()
        self.key = key
        self.pods = 0
        """Shapes with these constraints; without any, they are dropped."""
        self.node: NodeRequirement = compile_node_requirement(
            spec.node_selector, nodes.required_during_scheduling_ignored_during_execution
        )
        self.tolerations: Sequence[Toleration] = tuple(spec.tolerations)
        self.ports = tuple(dict.fromkeys(list_host_ports(pod)))
        self.affinity: Sequence[PodAffinityTerm] = _list_terms(affinity, anti=False)
        self.anti_affinity: Sequence[PodAffinityTerm] = _list_terms(affinity, anti=True)
        self.spread: Sequence[TopologySpreadConstraint] = tuple(
            one for one in spec.topology_spread_constraints if one.when_unsatisfiable == "DoNotSchedule"
        )

    def find_untolerated(self, taints: Sequence[Taint]) -> Taint | None:
        """Return the first taint that the pods do not tolerate."""
        for taint in taints:
            if not any(tolerates(one, taint) for one in self.tolerations):
                return taint
        return None


class _ConstrainedSpec(Struct, array_like=True):
    """The part of a specification on which constraints depend."""

    selector: dict[str, str]
    affinity: Affinity | None
    tolerations: list[Toleration]
    spread: list[TopologySpreadConstraint]
    ports: list[HostPort]


_ENCODER: Final = msgpack.Encoder(order="deterministic")


def encode_constraints(pod: Pod) -> bytes:
    """Return a key that is equal for pods with equal constraints."""
    spec = pod.spec
    return _ENCODER.encode(
        _ConstrainedSpec(
            spec.node_selector, spec.affinity, spec.tolerations, spec.topology_spread_constraints, list_host_ports(pod)
        )
    )


def encode_labels(labels: Labels) -> bytes:
    """Return a key that is equal for equal labels."""
    return _ENCODER.encode(labels)


def list_host_ports(pod: Pod) -> list[HostPort]:
    """Return the ports of the node that a pod occupies; init containers count if they run beside the others."""
    containers: list[Container] = [one for one in pod.spec.init_containers if one.restart_policy == "Always"]
    return [
        HostPort(port.protocol or "TCP", port.host_port, port.host_ip or ANY_ADDRESS)
        for container in (*pod.spec.containers, *containers)
        for port in container.ports
        if port.host_port > 0
    ]


def list_claims(pod: Pod) -> tuple[PodClaim, ...]:
    """Return the claims of a pod."""
    claims = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            claims.append(PodClaim(volume.persistent_volume_claim.claim_name, is_ephemeral=False))
        elif volume.ephemeral is not None:
            claims.append(PodClaim(f"{pod.metadata.name}-{volume.name}", is_ephemeral=True))
    return tuple(dict.fromkeys(claims))


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration covers a taint: an absent key or effect covers any, `Exists` any value."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def _list_terms(affinity: Affinity, *, anti: bool) -> Sequence[PodAffinityTerm]:
    chosen = affinity.pod_anti_affinity if anti else affinity.pod_affinity
    return () if chosen is None else tuple(chosen.required_during_scheduling_ignored_during_execution)
