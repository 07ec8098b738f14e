"""Records of pods and nodes: only the parts that predicates read, and equal parts once.

A cluster has thousands of pods, but few different specifications. `Constraints` are those of all pods with an equal
specification, a `LabelSet` belongs to all pods of a namespace with equal labels, and a `PodShape` is a combination of
both. Everything that is compiled or counted hangs on these, so that one more pod costs a small record.
"""

from collections.abc import Sequence
from sys import intern
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from msgspec import Struct, msgpack

from kubernetes_shim.objects import (
    Affinity,
    Container,
    NodeAffinity,
    Pod,
    PodAffinityTerm,
    Taint,
    Toleration,
    TopologySpreadConstraint,
)
from kubernetes_shim.predicates.selectors import Labels, NodeRequirement, compile_node_requirement

if TYPE_CHECKING:
    from kubernetes_shim.predicates.pod_counts import AntiAffinity, PodCounts, PodTerms

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - compared with, not bound to
UNSCHEDULABLE_TAINT: Final = "node.kubernetes.io/unschedulable"
REPELLING_EFFECTS: Final = ("NoSchedule", "NoExecute")

ClaimKey: TypeAlias = tuple[str, str]
"""Namespace and name of a claim."""


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


class NodeRecord:
    """A node. One that pods name before it is known has no labels, and nothing may run there."""

    __slots__ = ("claims", "is_known", "is_unschedulable", "labels", "name", "pods", "ports", "taints")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_known = False
        self.is_unschedulable = False
        self.labels: Labels = {}
        self.taints: Sequence[Taint] = ()
        """Only those that repel pods."""
        self.pods: dict[str, PodRecord] = {}
        """All and only the pods that are placed on the node, by uid."""
        self.ports: dict[tuple[str, int], dict[str, int]] = {}
        """Pods that occupy a port, by protocol and port, then by address."""
        self.claims: dict[ClaimKey, int] = {}
        """Pods that use a claim."""


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


class LabelSet:
    """The namespace and the labels of some pods."""

    __slots__ = ("anti_affinities", "counts", "key", "labels", "namespace", "placed", "shapes")

    def __init__(self, namespace: str, key: bytes, labels: Labels) -> None:
        self.namespace = namespace
        self.key = key
        self.labels: Labels = {intern(name): value for name, value in labels.items()}
        self.shapes = 0
        """Shapes with these labels; without any, they are dropped."""
        self.placed: dict[str, PodRecord] = {}
        """All and only the placed pods with these labels, by uid."""
        self.counts: tuple[PodCounts, ...] = ()
        """All and only the counts that include these pods."""
        self.anti_affinities: tuple[AntiAffinity, ...] = ()
        """All and only the terms of placed pods that repel these pods."""


class PodShape:
    """Pods with equal constraints and labels."""

    __slots__ = ("anti_affinities", "constraints", "labels", "pods", "terms")

    def __init__(self, constraints: Constraints, labels: LabelSet) -> None:
        self.constraints = constraints
        self.labels = labels
        self.pods = 0
        """Known pods of this shape; without any, it is dropped."""
        self.terms: PodTerms | None = None
        """Requirements on other pods, with the counts for them; None until they are first needed."""
        self.anti_affinities: tuple[AntiAffinity, ...] | None = None
        """Which pods they repel; None until the first of them is placed."""


class PodRecord:
    """A pod. It is placed if it has a node: it is bound, or allocated and *assumed* to be bound."""

    __slots__ = ("claims", "is_assumed", "is_ending", "name", "node", "shape", "uid")

    def __init__(self, uid: str, name: str, shape: PodShape) -> None:
        self.uid = uid
        self.name = name
        self.shape = shape
        self.node: NodeRecord | None = None
        self.is_assumed = False
        self.is_ending = False
        """Whether it is being deleted; topology spread does not count such pods."""
        self.claims: tuple[PodClaim, ...] = ()

    @property
    def namespace(self) -> str:
        return self.shape.labels.namespace

    @property
    def claim_keys(self) -> list[ClaimKey]:
        """The claims that the pod uses."""
        return [(self.namespace, one.name) for one in self.claims]


# Reading of pods ------------------------------------------------------------------------------------------------------


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
