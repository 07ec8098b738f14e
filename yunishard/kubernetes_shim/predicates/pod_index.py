"""The index of pods: equal parts of them once, and the counts that change as pods are placed and withdrawn.

Which labels a count includes is decided once: when the labels appear for the first time, when the count is first
needed, and when the labels of a namespace change. Placing a pod then only adds one to each count of its labels. Counts
that no pod needs any more are dropped.

A change of a node or a pod withdraws the pods concerned, and places them again after it, so no count depends on what
changed. The same way a question is answered without some pods.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from yunishard.kubernetes_shim.objects import Pod, Toleration
from yunishard.kubernetes_shim.predicates.constraints import Constraints, encode_constraints, encode_labels
from yunishard.kubernetes_shim.predicates.label_index import LabelIndex, LabelSets
from yunishard.kubernetes_shim.predicates.records import (
    AntiAffinity,
    ClaimKey,
    EligibleNodes,
    LabelSet,
    NodeRecord,
    PodCounts,
    PodRecord,
    PodShape,
    PodTerm,
    PodTerms,
    SpreadCounts,
    SpreadRule,
    TermCounts,
    compile_term,
)
from yunishard.kubernetes_shim.predicates.selectors import Labels, NodeRequirement, Selector, compile_labels

_EligibleKey = tuple[tuple[str, ...], NodeRequirement, tuple[Toleration, ...] | None]
_SpreadKey = tuple[str, Selector, str, _EligibleKey]


class PodIndex:
    """Shapes of pods, where pods are placed, and all counts of them."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeRecord] = {}
        self.namespaces: dict[str, Labels] = {}
        self.claim_users: dict[ClaimKey, int] = {}
        """Placed pods that use a claim."""
        self.shapes: dict[tuple[str, bytes, bytes], PodShape] = {}
        self.constraints: dict[bytes, Constraints] = {}
        self.labels = LabelSets()
        self.term_counts: dict[tuple[PodTerm, ...], TermCounts] = {}
        self.spread_counts: dict[_SpreadKey, SpreadCounts] = {}
        self.eligible: dict[_EligibleKey, EligibleNodes] = {}
        self.anti_affinities: dict[PodTerm, AntiAffinity] = {}
        self.newly_repelled: dict[LabelSet, None] = {}
        """Labels of pods that something may repel that did not before; the caller takes them out."""
        self._counts = LabelIndex[PodCounts]()
        self._anti_affinities = LabelIndex[AntiAffinity]()

    # Shapes -----------------------------------------------------------------------------------------------------------

    def acquire_shape(self, pod: Pod) -> PodShape:
        """Return the shape of a pod, and count one more pod of it."""
        namespace = pod.metadata.namespace
        labels_key, constraints_key = encode_labels(pod.metadata.labels), encode_constraints(pod)
        shape = self.shapes.get((namespace, labels_key, constraints_key))
        if shape is None:
            constraints = self.constraints.get(constraints_key)
            if constraints is None:
                constraints = self.constraints[constraints_key] = Constraints(constraints_key, pod)
            shape = PodShape(constraints, self._acquire_labels(namespace, labels_key, pod.metadata.labels))
            constraints.pods += 1
            if constraints.anti_affinity:
                shape.anti_affinities = self._acquire_anti_affinities(shape)
            self.shapes[namespace, labels_key, constraints_key] = shape
        shape.pods += 1
        return shape

    def release_shape(self, shape: PodShape) -> None:
        """Count one pod less of a shape; drop what only it needed."""
        shape.pods -= 1
        if shape.pods:
            return
        labels, constraints = shape.labels, shape.constraints
        del self.shapes[labels.namespace, labels.key, constraints.key]
        self._release_terms(shape)
        constraints.pods -= 1
        if not constraints.pods:
            del self.constraints[constraints.key]
        labels.shapes -= 1
        if not labels.shapes:
            self.labels.remove(labels)

    def _acquire_labels(self, namespace: str, key: bytes, labels: Labels) -> LabelSet:
        found = self.labels.get(namespace, key)
        if found is None:
            found = LabelSet(namespace, key, labels)
            self.labels.add(found)
            self._match(found)
        found.shapes += 1
        return found

    def _match(self, labels: LabelSet) -> None:
        """Decide which counts include the pods with these labels, and which pods repel them."""
        names = self.namespaces
        labels.counts = tuple(one for one in self._counts.find(labels.labels) if one.selects(labels, names))
        labels.anti_affinities = tuple(
            one for one in self._anti_affinities.find(labels.labels) if one.term.selects(labels, names)
        )

    # Placement --------------------------------------------------------------------------------------------------------

    def find_node(self, name: str) -> NodeRecord:
        """Return the record of a node; a new one if the node is not known yet."""
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = NodeRecord(name)
        return node

    def place(self, pod: PodRecord, node: NodeRecord) -> None:
        """Count a pod on a node."""
        assert pod.node is None, f"pod {pod.uid} is placed already"
        pod.node = node
        node.pods[pod.uid] = pod
        pod.shape.labels.placed[pod.uid] = pod
        self._count(pod, node, 1)

    def withdraw(self, pod: PodRecord) -> NodeRecord | None:
        """Count a pod on its node no longer; return the node."""
        node = pod.node
        if node is None:
            return None
        self._count(pod, node, -1)
        pod.node = None
        del node.pods[pod.uid]
        del pod.shape.labels.placed[pod.uid]
        if not node.is_known and not node.pods:
            self.nodes.pop(node.name, None)
        return node

    def _count(self, pod: PodRecord, node: NodeRecord, change: int) -> None:
        shape = pod.shape
        for counts in shape.labels.counts:
            counts.add(pod, node, change)
        for anti_affinity in shape.anti_affinities:
            anti_affinity.add_owner(node, change)
        for port in shape.constraints.ports:
            addresses = node.ports.setdefault((port.protocol, port.port), {})
            addresses[port.address] = addresses.get(port.address, 0) + change
            if not addresses[port.address]:
                del addresses[port.address]
            if not addresses:
                del node.ports[port.protocol, port.port]
        for claim in pod.claim_keys:
            for users in (node.claims, self.claim_users):
                users[claim] = users.get(claim, 0) + change
                if not users[claim]:
                    del users[claim]

    @contextmanager
    def without(self, pods: Iterable[PodRecord]) -> Iterator[None]:
        """Suppose that some pods are not placed."""
        absent = [(pod, node) for pod in pods if (node := self.withdraw(pod)) is not None]
        try:
            yield
        finally:
            for pod, node in absent:
                self.place(pod, self.nodes.setdefault(node.name, node))

    # Nodes and namespaces ---------------------------------------------------------------------------------------------

    @contextmanager
    def changing_node(self, node: NodeRecord) -> Iterator[None]:
        """Change labels or taints of a node, or whether it is known."""
        with self.without(tuple(node.pods.values())):
            self.nodes[node.name] = node  # it was dropped if it is not known and had pods
            for eligible in self.eligible.values():
                eligible.add(node, -1)
            yield
            for eligible in self.eligible.values():
                eligible.add(node, 1)
        if not node.is_known and not node.pods:
            del self.nodes[node.name]

    def set_namespace(self, name: str, labels: Labels | None) -> None:
        """Set the labels of a namespace, or remove it."""
        if self.namespaces.get(name) == labels:
            return
        label_sets = self.labels.list_namespace(name)
        with self.without([pod for one in label_sets for pod in one.placed.values()]):
            if labels is None:
                self.namespaces.pop(name, None)
            else:
                self.namespaces[name] = labels
            for label_set in label_sets:
                self._match(label_set)
                if label_set.anti_affinities:
                    self.newly_repelled[label_set] = None

    # What pods require of other pods ----------------------------------------------------------------------------------

    def find_terms(self, shape: PodShape) -> PodTerms:
        """Return what pods of a shape require of other pods, with the counts for it."""
        if shape.terms is None:
            shape.terms = self._acquire_terms(shape)
        return shape.terms

    def _acquire_terms(self, shape: PodShape) -> PodTerms:
        constraints, labels = shape.constraints, shape.labels
        affinity = tuple(compile_term(one, labels.namespace) for one in constraints.affinity)
        anti_affinity = [compile_term(one, labels.namespace) for one in constraints.anti_affinity]
        return PodTerms(
            self._acquire_term_counts(affinity) if affinity else None,
            tuple(self._acquire_term_counts((term,)) for term in dict.fromkeys(anti_affinity)),
            self._acquire_spread(shape),
        )

    def _acquire_anti_affinities(self, shape: PodShape) -> tuple[AntiAffinity, ...]:
        terms = dict.fromkeys(compile_term(one, shape.labels.namespace) for one in shape.constraints.anti_affinity)
        acquired = []
        for term in terms:
            found = self.anti_affinities.get(term)
            if found is None:
                found = self.anti_affinities[term] = AntiAffinity(term)
                self._anti_affinities.add(found, term.selector.pairs)
                for labels in self.labels.find(term.listed_namespaces, term.selector.pairs):
                    if term.selects(labels, self.namespaces):
                        labels.anti_affinities += (found,)
                        self.newly_repelled[labels] = None
            found.uses += 1
            acquired.append(found)
        return tuple(acquired)

    def _acquire_term_counts(self, terms: tuple[PodTerm, ...]) -> TermCounts:
        counts = self.term_counts.get(terms)
        if counts is None:
            counts = self.term_counts[terms] = TermCounts(terms)
            self._start_counting(counts)
        counts.uses += 1
        return counts

    def _acquire_spread(self, shape: PodShape) -> tuple[SpreadRule, ...]:
        constraints, labels = shape.constraints, shape.labels
        keys = tuple(sorted({one.topology_key for one in constraints.spread}))
        rules = []
        for one in constraints.spread:
            required = {key: labels.labels[key] for key in one.match_label_keys if key in labels.labels}
            selector = compile_labels(one.label_selector).with_labels(required)
            tolerations = tuple(constraints.tolerations) if one.node_taints_policy == "Honor" else None
            requirement = NodeRequirement() if one.node_affinity_policy == "Ignore" else constraints.node
            counts = self._acquire_spread_counts(
                (one.topology_key, selector, labels.namespace, (keys, requirement, tolerations))
            )
            itself = selector.matches(labels.labels)
            rules.append(SpreadRule(counts, one.max_skew, 1 if one.min_domains is None else one.min_domains, itself))
        return tuple(rules)

    def _acquire_spread_counts(self, key: _SpreadKey) -> SpreadCounts:
        counts = self.spread_counts.get(key)
        if counts is None:
            topology_key, selector, namespace, eligible_key = key
            eligible = self.eligible.get(eligible_key)
            if eligible is None:
                eligible = self.eligible[eligible_key] = EligibleNodes(*eligible_key)
                for node in self.nodes.values():
                    eligible.add(node, 1)
            eligible.uses += 1
            counts = self.spread_counts[key] = SpreadCounts(topology_key, selector, namespace, eligible)
            self._start_counting(counts)
        counts.uses += 1
        return counts

    def _start_counting(self, counts: PodCounts) -> None:
        self._counts.add(counts, counts.pairs)
        for labels in self.labels.find(counts.namespaces, counts.pairs):
            if counts.selects(labels, self.namespaces):
                labels.counts += (counts,)
                for pod in labels.placed.values():
                    assert pod.node is not None
                    counts.add(pod, pod.node, 1)

    def _release_terms(self, shape: PodShape) -> None:
        """Drop the counts that no other shape needs. No pod of this shape is placed."""
        terms = shape.terms or PodTerms()
        for counts in (*terms.anti_affinity, *((terms.affinity,) if terms.affinity is not None else ())):
            counts.uses -= 1
            if not counts.uses:
                del self.term_counts[counts.terms]
                self._stop_counting(counts)
        for rule in terms.spread:
            self._release_spread(rule.counts)
        for anti_affinity in shape.anti_affinities:
            anti_affinity.uses -= 1
            if not anti_affinity.uses:
                term = anti_affinity.term
                del self.anti_affinities[term]
                self._anti_affinities.remove(anti_affinity, term.selector.pairs)
                for labels in self.labels.find(term.listed_namespaces, term.selector.pairs):
                    if anti_affinity in labels.anti_affinities:
                        labels.anti_affinities = tuple(
                            one for one in labels.anti_affinities if one is not anti_affinity
                        )

    def _release_spread(self, counts: SpreadCounts) -> None:
        counts.uses -= 1
        if counts.uses:
            return
        eligible = counts.eligible
        eligible_key = (eligible.keys, eligible.requirement, eligible.tolerations)
        del self.spread_counts[counts.topology_key, counts.selector, counts.namespace, eligible_key]
        self._stop_counting(counts)
        eligible.uses -= 1
        if not eligible.uses:
            del self.eligible[eligible_key]

    def _stop_counting(self, counts: PodCounts) -> None:
        self._counts.remove(counts, counts.pairs)
        for labels in self.labels.find(counts.namespaces, counts.pairs):
            if counts in labels.counts:
                labels.counts = tuple(one for one in labels.counts if one is not counts)
