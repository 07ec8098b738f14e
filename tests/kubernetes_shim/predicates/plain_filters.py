"""The filters, evaluated from the objects as they are: slow, without any state, and easy to compare with the rules.

Each question walks all pods and nodes. `test_evaluation_properties.py` compares this with the incremental counts.
"""

from dataclasses import dataclass, field

from yunishard.kubernetes_shim.objects import (
    LabelSelector,
    Node,
    Pod,
    PodAffinityTerm,
    Requirement,
    Taint,
    Toleration,
    TopologySpreadConstraint,
)

Labels = dict[str, str]


@dataclass
class PlainCluster:
    """Objects, and where pods are."""

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    assumed: dict[str, str] = field(default_factory=dict)
    namespaces: dict[str, Labels] = field(default_factory=dict)

    def place_of(self, pod: Pod) -> str:
        return pod.spec.node_name or self.assumed.get(pod.metadata.uid, "")

    def placed(self, without: set[str]) -> list[tuple[Pod, Node]]:
        """Pods on known nodes."""
        found = [(pod, self.place_of(pod)) for uid, pod in self.pods.items() if uid not in without]
        return [(pod, self.nodes[place]) for pod, place in found if place in self.nodes]


def may_run(cluster: PlainCluster, uid: str, name: str, without: set[str] | None = None) -> bool:
    pod, node = cluster.pods[uid], cluster.nodes[name]
    if pod.spec.node_name and pod.spec.node_name != name:
        return False
    others = cluster.placed((without or set()) | {uid})
    unschedulable = [Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")] if node.spec.unschedulable else []
    return (
        tolerates_all(pod.spec.tolerations, [*unschedulable, *node.spec.taints])
        and matches_node(pod, node)
        and has_free_ports(pod, [other for other, place in others if place is node])
        and is_not_repelled(cluster, pod, node, others)
        and has_affinity(cluster, pod, node, others)
        and is_spread(cluster, pod, node, others)
    )


def matches(labels: Labels, selector: LabelSelector | None) -> bool:
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        holds(labels.get(one.key), one) for one in selector.match_expressions
    )


def holds(value: str | None, one: Requirement) -> bool:
    match one.operator:
        case "In":
            return value in one.values
        case "NotIn":
            return value not in one.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and value.isdigit() and int(value) > int(one.values[0])
        case "Lt":
            return value is not None and value.isdigit() and int(value) < int(one.values[0])
    raise AssertionError(one.operator)


def tolerates_all(tolerations: list[Toleration], taints: list[Taint]) -> bool:
    for taint in taints:
        if taint.effect not in ("NoSchedule", "NoExecute"):
            continue
        if not any(
            one.effect in ("", taint.effect)
            and (one.key == taint.key or not one.key)
            and (one.operator == "Exists" or one.value == taint.value)
            for one in tolerations
        ):
            return False
    return True


def matches_node(pod: Pod, node: Node) -> bool:
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    if not required:
        return True
    return any(
        (term.match_expressions or term.match_fields)
        and all(holds(labels.get(one.key), one) for one in term.match_expressions)
        and all(holds(node.metadata.name, one) for one in term.match_fields)
        for term in required.node_selector_terms
    )


def has_free_ports(pod: Pod, others: list[Pod]) -> bool:
    def ports(one: Pod) -> list[tuple[str, int, str]]:
        return [
            (port.protocol, port.host_port, port.host_ip or "0.0.0.0")
            for container in one.spec.containers
            for port in container.ports
            if port.host_port
        ]

    return not any(
        mine[:2] == taken[:2] and (mine[2] == taken[2] or "0.0.0.0" in (mine[2], taken[2]))
        for mine in ports(pod)
        for other in others
        for taken in ports(other)
    )


def list_terms(pod: Pod, *, anti: bool) -> list[PodAffinityTerm]:
    affinity = pod.spec.affinity
    chosen = affinity and (affinity.pod_anti_affinity if anti else affinity.pod_affinity)
    return chosen.required_during_scheduling_ignored_during_execution if chosen else []


def selects(cluster: PlainCluster, owner: Pod, term: PodAffinityTerm, pod: Pod) -> bool:
    namespace = pod.metadata.namespace
    if not term.namespaces and term.namespace_selector is None:
        is_there = namespace == owner.metadata.namespace
    else:
        labels = cluster.namespaces.get(namespace, {})
        is_there = namespace in term.namespaces or matches(labels, term.namespace_selector)
    return is_there and matches(pod.metadata.labels, term.label_selector)


def is_not_repelled(cluster: PlainCluster, pod: Pod, node: Node, others: list[tuple[Pod, Node]]) -> bool:
    for other, place in others:
        for term in list_terms(other, anti=True):
            if selects(cluster, other, term, pod) and in_same(term.topology_key, node, place):
                return False
        for term in list_terms(pod, anti=True):
            if selects(cluster, pod, term, other) and in_same(term.topology_key, node, place):
                return False
    return True


def has_affinity(cluster: PlainCluster, pod: Pod, node: Node, others: list[tuple[Pod, Node]]) -> bool:
    terms = list_terms(pod, anti=False)
    if any(term.topology_key not in node.metadata.labels for term in terms):
        return False
    fitting = [place for other, place in others if all(selects(cluster, pod, term, other) for term in terms)]
    if all(any(in_same(term.topology_key, node, place) for place in fitting) for term in terms):
        return True
    somewhere = any(term.topology_key in place.metadata.labels for term in terms for place in fitting)
    return not somewhere and all(selects(cluster, pod, term, pod) for term in terms)


def in_same(key: str, one: Node, other: Node) -> bool:
    return key in one.metadata.labels and one.metadata.labels[key] == other.metadata.labels.get(key)


def is_spread(cluster: PlainCluster, pod: Pod, node: Node, others: list[tuple[Pod, Node]]) -> bool:
    rules = [one for one in pod.spec.topology_spread_constraints if one.when_unsatisfiable == "DoNotSchedule"]
    return all(is_spread_by(cluster, pod, node, others, rule, rules) for rule in rules)


def is_spread_by(
    cluster: PlainCluster,
    pod: Pod,
    node: Node,
    others: list[tuple[Pod, Node]],
    rule: TopologySpreadConstraint,
    rules: list[TopologySpreadConstraint],
) -> bool:
    def is_eligible(one: Node) -> bool:
        return (
            all(other.topology_key in one.metadata.labels for other in rules)
            and (rule.node_affinity_policy == "Ignore" or matches_node(pod, one))
            and (rule.node_taints_policy == "Ignore" or tolerates_all(pod.spec.tolerations, one.spec.taints))
        )

    def is_counted(one: Pod) -> bool:
        """Whether the pod is one of those that are spread. An empty selector counts only the pod itself."""
        selector = rule.label_selector
        is_empty = selector is not None and not (selector.match_labels or selector.match_expressions)
        same = {key: pod.metadata.labels[key] for key in rule.match_label_keys if key in pod.metadata.labels}
        return (
            (one is pod or not is_empty or bool(same))
            and one.metadata.namespace == pod.metadata.namespace
            and matches(one.metadata.labels, rule.label_selector)
            and all(one.metadata.labels.get(key) == value for key, value in same.items())
        )

    if rule.topology_key not in node.metadata.labels:
        return False
    counts = {one.metadata.labels[rule.topology_key]: 0 for one in cluster.nodes.values() if is_eligible(one)}
    for other, place in others:
        if is_eligible(place) and is_counted(other) and other.metadata.deletion_timestamp is None:
            counts[place.metadata.labels[rule.topology_key]] += 1
    minimum = min(counts.values(), default=0) if len(counts) >= (rule.min_domains or 1) else 0
    mine = counts.get(node.metadata.labels[rule.topology_key], 0) + is_counted(pod)
    return mine - minimum <= rule.max_skew
