"""Answers to the core's questions: may a pod run on a node, also without some pods that would be preempted.

These are the filters of kube-scheduler, except for resources, which the core counts. A reason is a text for users, and
the same for all nodes that are refused for the same reason, so that the core can group nodes by them.
"""

from collections.abc import Collection, Sequence

from kubernetes_shim.cluster import Cluster
from kubernetes_shim.objects import Taint
from kubernetes_shim.predicates.pod_counts import SpreadRule
from kubernetes_shim.predicates.records import ANY_ADDRESS, UNSCHEDULABLE_TAINT, NodeRecord, PodRecord
from kubernetes_shim.predicates.volume_filters import refuse_by_volumes


def refuse(
    cluster: Cluster, uid: str, node: str, *, allocate: bool = True, without: Collection[str] = ()
) -> str | None:
    """Return why the pod may not run on the node, or None if it may.

    The pods in `without` count as absent. With `allocate` False (a reservation, the replacement of a placeholder),
    volumes are not examined. Resources never are: the core does.
    """
    pod, record = cluster.pods.get(uid), cluster.nodes.get(node)
    if pod is None:
        return "pod is gone"
    if record is None or not record.is_known:
        return "node is unknown"
    absent = [found for one in without if (found := cluster.pods.get(one)) is not None and found is not pod]
    if pod.node is not None:
        absent.append(pod)
    if not absent:
        return _refuse(cluster, pod, record, allocate=allocate)
    with cluster.index.without(absent):
        return _refuse(cluster, pod, record, allocate=allocate)


def count_victims(cluster: Cluster, uid: str, node: str, victims: Sequence[str], start: int = 0) -> int | None:
    """Return how many of the victims, in this order and at least `start`, must go before the pod fits on the node.

    None if it does not fit without all of them.
    """
    if refuse(cluster, uid, node, without=victims) is not None:
        return None
    for count in range(start, len(victims)):
        if refuse(cluster, uid, node, without=victims[:count]) is None:
            return count
    return len(victims)


def _refuse(cluster: Cluster, pod: PodRecord, node: NodeRecord, *, allocate: bool) -> str | None:
    reason = _refuse_by_node(pod, node) or _refuse_by_pods(cluster, pod, node)
    if reason is None and allocate:
        reason = refuse_by_volumes(cluster.volumes, cluster.index.claim_users, pod, node)
    return reason


# The node -------------------------------------------------------------------------------------------------------------


def _refuse_by_node(pod: PodRecord, node: NodeRecord) -> str | None:
    constraints = pod.shape.constraints
    if node.is_unschedulable and constraints.find_untolerated((Taint(UNSCHEDULABLE_TAINT, effect="NoSchedule"),)):
        return "node is unschedulable"
    if node.taints and (taint := constraints.find_untolerated(node.taints)) is not None:
        value = f"={taint.value}" if taint.value else ""
        return f"pod does not tolerate the taint {taint.key}{value}:{taint.effect}"
    if not constraints.node.matches(node.name, node.labels):
        return "node does not match the node selector or node affinity of the pod"
    for port in constraints.ports:
        addresses = node.ports.get((port.protocol, port.port))
        if addresses and (port.address == ANY_ADDRESS or ANY_ADDRESS in addresses or port.address in addresses):
            return f"host port {port.port}/{port.protocol} is occupied"
    return None


# Other pods -----------------------------------------------------------------------------------------------------------


def _refuse_by_pods(cluster: Cluster, pod: PodRecord, node: NodeRecord) -> str | None:
    labels = pod.shape.labels
    for anti_affinity in labels.anti_affinities:
        value = node.labels.get(anti_affinity.term.topology_key)
        if value is not None and value in anti_affinity.owners:
            return f"the anti-affinity of a pod in the same {anti_affinity.term.topology_key} repels the pod"
    constraints = pod.shape.constraints
    if not (constraints.affinity or constraints.anti_affinity or constraints.spread):
        return None
    terms = cluster.index.find_terms(pod.shape)
    for rule in terms.spread:
        if (reason := _refuse_by_spread(rule, node)) is not None:
            return reason
    for counts in terms.anti_affinity:
        for key in counts.keys:
            value = node.labels.get(key)
            if value is not None and (key, value) in counts.by_topology:
                return f"pods in the same {key} match the anti-affinity of the pod"
    if terms.affinity is None:
        return None
    found = True
    for key in terms.affinity.keys:
        value = node.labels.get(key)
        if value is None:
            return f"node has no label {key}, which the pod affinity requires"
        found = found and (key, value) in terms.affinity.by_topology
    if found or (not terms.affinity.by_topology and terms.affinity.selects(labels, cluster.index.namespaces)):
        return None  # the first of pods that want to be together may start anywhere
    return "no pods in the topology of the node match the pod affinity"


def _refuse_by_spread(rule: SpreadRule, node: NodeRecord) -> str | None:
    counts = rule.counts
    value = node.labels.get(counts.topology_key)
    if value is None:
        return f"node has no label {counts.topology_key}, which the topology spread requires"
    skew = counts.by_value.get(value, 0) + rule.counts_itself - counts.find_minimum(rule.min_domains)
    if skew > rule.max_skew:
        return f"the pod would exceed the skew of {rule.max_skew} of its topology spread over {counts.topology_key}"
    return None
