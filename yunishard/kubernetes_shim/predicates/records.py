"""Records of nodes and pods, and counts of placed pods by topology.

    PodRecord ── PodShape ─┬─ Constraints      equal specifications
                           └─ LabelSet ─┬─ counts             all counts that include pods with these labels
                                        └─ anti_affinities    all terms of pods that repel them

Everything that is compiled or counted hangs on what pods have in common, so that one more pod costs a small record.

The counts are the state behind affinity between pods and topology spread. Each belongs to a selector, not to a pod, and
changes by one when a pod is placed or withdrawn. So a question is answered by a few look-ups, however many pods and
nodes there are. `pod_index.py` decides which counts a pod is in. Only topology values with pods are kept.
"""

from collections.abc import Hashable, Mapping, Sequence
from sys import intern
from typing import NamedTuple, TypeAlias, TypeVar

from yunishard.kubernetes_shim.objects import PodAffinityTerm, Taint, Toleration
from yunishard.kubernetes_shim.predicates.constraints import Constraints, PodClaim, tolerates
from yunishard.kubernetes_shim.predicates.selectors import (
    EVERYTHING,
    Labels,
    NodeRequirement,
    Pair,
    Selector,
    compile_labels,
)

ClaimKey: TypeAlias = tuple[str, str]
"""Namespace and name of a claim."""

NamespaceLabels: TypeAlias = Mapping[str, Labels]


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
        """All and only the terms of known pods that repel these pods as soon as a pod with the term is placed."""


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
        self.anti_affinities: tuple[AntiAffinity, ...] = ()
        """Which pods they repel once they are placed."""


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


# Counts ---------------------------------------------------------------------------------------------------------------


class PodTerm(NamedTuple):
    """A term of an affinity or anti-affinity: some pods, in a topology."""

    topology_key: str
    selector: Selector
    namespaces: frozenset[str]
    namespace_selector: Selector

    def selects(self, labels: LabelSet, namespaces: NamespaceLabels) -> bool:
        if labels.namespace in self.namespaces:
            return self.selector.matches(labels.labels)
        own = namespaces.get(labels.namespace, {})
        return self.namespace_selector.matches(own) and self.selector.matches(labels.labels)

    @property
    def listed_namespaces(self) -> Sequence[str] | None:
        """The only namespaces of pods that the term may select; None if a selector decides."""
        return sorted(self.namespaces) if self.namespace_selector.selects_nothing else None


def compile_term(term: PodAffinityTerm, namespace: str) -> PodTerm:
    """Compile a term of a pod of the namespace. The API server has merged `matchLabelKeys` into its selector."""
    is_own_namespace = not term.namespaces and term.namespace_selector is None
    return PodTerm(
        term.topology_key,
        compile_labels(term.label_selector),
        frozenset((namespace,) if is_own_namespace else term.namespaces),
        compile_labels(term.namespace_selector),
    )


class TermCounts:
    """Pods that *all* of some terms select, by topology key and value: kube-scheduler counts no others for affinity."""

    __slots__ = ("by_topology", "keys", "terms", "uses")

    def __init__(self, terms: tuple[PodTerm, ...]) -> None:
        self.terms = terms
        self.keys = tuple(dict.fromkeys(term.topology_key for term in terms))
        self.by_topology: dict[Pair, int] = {}
        self.uses = 0

    @property
    def pairs(self) -> Sequence[Pair]:
        return next((term.selector.pairs for term in self.terms if term.selector.pairs), ())

    @property
    def namespaces(self) -> Sequence[str] | None:
        return self.terms[0].listed_namespaces

    def selects(self, labels: LabelSet, namespaces: NamespaceLabels) -> bool:
        return all(term.selects(labels, namespaces) for term in self.terms)

    def add(self, pod: PodRecord, node: NodeRecord, change: int) -> None:
        for key in self.keys:
            value = node.labels.get(key)
            if value is not None:
                _change(self.by_topology, (key, value), change)


class AntiAffinity:
    """A term by which pods repel others once they are placed, and where those are that are placed."""

    __slots__ = ("owners", "term", "uses")

    def __init__(self, term: PodTerm) -> None:
        self.term = term
        self.owners: dict[str, int] = {}
        """Placed pods with this term, by the value of its topology key."""
        self.uses = 0

    def add_owner(self, node: NodeRecord, change: int) -> None:
        value = node.labels.get(self.term.topology_key)
        if value is not None:
            _change(self.owners, value, change)


class EligibleNodes:
    """Nodes that count for topology spread: they have all topology keys, and pass the constraint's policies."""

    __slots__ = ("domains", "keys", "requirement", "tolerations", "uses")

    def __init__(
        self, keys: tuple[str, ...], requirement: NodeRequirement, tolerations: tuple[Toleration, ...] | None
    ) -> None:
        self.keys = keys
        self.requirement = requirement
        self.tolerations = tolerations
        """None: taints do not matter."""
        self.domains: dict[str, dict[str, int]] = {key: {} for key in keys}
        """Eligible nodes by topology key, then by its value."""
        self.uses = 0

    def includes(self, node: NodeRecord) -> bool:
        for key in self.keys:
            if key not in node.labels:
                return False
        if not self.requirement.matches(node.name, node.labels):
            return False
        if self.tolerations is None:
            return True
        return all(any(tolerates(one, taint) for one in self.tolerations) for taint in node.taints)

    def add(self, node: NodeRecord, change: int) -> None:
        if node.is_known and self.includes(node):
            for key, values in self.domains.items():
                _change(values, node.labels[key], change)


class SpreadCounts:
    """Pods that a selector selects in a namespace, by topology value, on eligible nodes. Ending pods do not count."""

    __slots__ = ("by_value", "eligible", "levels", "namespace", "selector", "topology_key", "uses")

    def __init__(self, topology_key: str, selector: Selector, namespace: str, eligible: EligibleNodes) -> None:
        self.topology_key = topology_key
        self.selector = selector
        self.namespace = namespace
        self.eligible = eligible
        self.by_value: dict[str, int] = {}
        self.levels: dict[int, int] = {}
        """How many topology values have a number of pods: the minimum without a walk over all values."""
        self.uses = 0

    @property
    def pairs(self) -> Sequence[Pair]:
        return self.selector.pairs

    @property
    def namespaces(self) -> Sequence[str]:
        return (self.namespace,)

    def selects(self, labels: LabelSet, namespaces: NamespaceLabels) -> bool:
        if self.selector == EVERYTHING:
            return False  # kube-scheduler counts no pods for an empty selector, except the pod that is asked about
        return labels.namespace == self.namespace and self.selector.matches(labels.labels)

    def add(self, pod: PodRecord, node: NodeRecord, change: int) -> None:
        if pod.is_ending or not node.is_known or not self.eligible.includes(node):
            return
        value = node.labels[self.topology_key]
        before = self.by_value.get(value, 0)
        _change(self.by_value, value, change)
        if before:
            _change(self.levels, before, -1)
        if before + change:
            _change(self.levels, before + change, 1)

    def find_minimum(self, min_domains: int) -> int:
        """Return the smallest count of an eligible topology value; 0 if there are fewer values than `min_domains`."""
        domains = len(self.eligible.domains[self.topology_key])
        if domains < min_domains or len(self.by_value) < domains:
            return 0
        return min(self.levels, default=0)


PodCounts: TypeAlias = TermCounts | SpreadCounts
"""A count of the pods that a selector selects; `uses` is the number of shapes that need it."""


class SpreadRule(NamedTuple):
    """A topology spread constraint of a pod."""

    counts: SpreadCounts
    max_skew: int
    min_domains: int
    counts_itself: bool
    """Whether the pod is one of those that are spread."""


class PodTerms(NamedTuple):
    """Requirements of a pod on other pods."""

    affinity: TermCounts | None = None
    anti_affinity: tuple[TermCounts, ...] = ()
    spread: tuple[SpreadRule, ...] = ()


_Key = TypeVar("_Key", bound=Hashable)


def _change(counts: dict[_Key, int], key: _Key, change: int) -> None:
    """Change a count; one of 0 is dropped."""
    count = counts.get(key, 0) + change
    assert count >= 0, f"count of {key} below 0"
    if count:
        counts[key] = count
    else:
        del counts[key]
