"""Answers to the core's questions: may a pod run on a node, also without some pods that would be preempted.

These are the filters of kube-scheduler, except for resources, which the core counts. A reason is a text for users, and
the same for all nodes that are refused for the same reason, so that the core can group nodes by them.
"""

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from typing import Final

from yunishard.kubernetes_shim.cluster import Cluster
from yunishard.kubernetes_shim.objects import Taint
from yunishard.kubernetes_shim.predicates.constraints import ANY_ADDRESS
from yunishard.kubernetes_shim.predicates.records import NodeRecord, PodRecord, PodTerms
from yunishard.kubernetes_shim.volumes import refuse_by_volumes

UNSCHEDULABLE: Final = (Taint("node.kubernetes.io/unschedulable", effect="NoSchedule"),)
"""The taint that an unschedulable node counts as having."""


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
        if pod.node is not record and not pod.is_assumed:
            return "pod is bound to another node"
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
    with ExitStack() as absent:  # one more at a time: to start over for each number would take too long for hundreds
        for count, victim in enumerate(victims):
            if count >= start and refuse(cluster, uid, node) is None:
                return count
            pod = cluster.pods.get(victim)
            if pod is not None and victim != uid:
                absent.enter_context(cluster.index.without((pod,)))
    return len(victims)


def _refuse(cluster: Cluster, pod: PodRecord, node: NodeRecord, *, allocate: bool) -> str | None:
    constraints = pod.shape.constraints
    reason = refuse_by_node(pod, node) or _refuse_by_repulsion(pod, node)
    if reason is None and (constraints.affinity or constraints.anti_affinity or constraints.spread):
        terms = cluster.index.find_terms(pod.shape)
        reason = refuse_by_spread(terms, node) or _refuse_by_affinity(cluster, terms, pod, node)
    if reason is None and allocate:
        reason = refuse_by_volumes(cluster.volumes, cluster.index.claim_users, pod, node)
    return reason


# The node -------------------------------------------------------------------------------------------------------------


def refuse_by_node(pod: PodRecord, node: NodeRecord) -> str | None:
    """Return why the properties of the node, or ports that are occupied there, keep the pod from it."""
    constraints = pod.shape.constraints
    if node.is_unschedulable and constraints.find_untolerated(UNSCHEDULABLE) is not None:
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


def _refuse_by_repulsion(pod: PodRecord, node: NodeRecord) -> str | None:
    """Return whether placed pods repel the pod by their anti-affinity."""
    for anti_affinity in pod.shape.labels.anti_affinities:
        key = anti_affinity.term.topology_key
        value = node.labels.get(key)
        if value is not None and value in anti_affinity.owners:
            return f"the anti-affinity of a pod in the same {key} repels the pod"
    return None


def refuse_by_spread(terms: PodTerms, node: NodeRecord) -> str | None:
    """Return why the pod would be spread unevenly."""
    for counts, max_skew, min_domains, counts_itself in terms.spread:
        key = counts.topology_key
        value = node.labels.get(key)
        if value is None:
            return f"node has no label {key}, which the topology spread requires"
        if counts.by_value.get(value, 0) + counts_itself - counts.find_minimum(min_domains) > max_skew:
            return f"the pod would exceed the skew of {max_skew} of its topology spread over {key}"
    return None


def _refuse_by_affinity(cluster: Cluster, terms: PodTerms, pod: PodRecord, node: NodeRecord) -> str | None:
    """Return why other pods keep the pod from the node, by its own affinity and anti-affinity."""
    for counts in terms.anti_affinity:
        for key in counts.keys:
            value = node.labels.get(key)
            if value is not None and (key, value) in counts.by_topology:
                return f"pods in the same {key} match the anti-affinity of the pod"
    wanted = terms.affinity
    if wanted is None:
        return None
    for key in wanted.keys:
        if key not in node.labels:
            return f"node has no label {key}, which the pod affinity requires"
    if all((key, node.labels[key]) in wanted.by_topology for key in wanted.keys):
        return None
    if not wanted.by_topology and wanted.selects(pod.shape.labels, cluster.index.namespaces):
        return None  # the first of pods that want to be together may start anywhere
    return "no pods in the topology of the node match the pod affinity"
