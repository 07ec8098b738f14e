"""The cluster as predicates see it: nodes, the pods on them, namespaces, and objects of volumes.

The cache keeps only what predicates read, and equal parts of pods once; the objects themselves are dropped. A pod that
has been allocated counts on its node from `assume` on, before the API server has bound it: otherwise two pods of a gang
would get the same host port.
"""

from collections.abc import Sequence

from yunishard.kubernetes_shim.objects import Namespace, Node, Object, Pod
from yunishard.kubernetes_shim.predicates.constraints import (
    REPELLING_EFFECTS,
    encode_constraints,
    encode_labels,
    list_claims,
)
from yunishard.kubernetes_shim.predicates.pod_index import PodIndex
from yunishard.kubernetes_shim.predicates.records import NodeRecord, PodRecord
from yunishard.kubernetes_shim.predicates.selectors import Labels
from yunishard.kubernetes_shim.predicates.volume_objects import VolumeObjects, VolumePlan


class Cluster:
    """Everything that decides where a pod may run. Objects of other kinds are ignored."""

    def __init__(self) -> None:
        self.pods: dict[str, PodRecord] = {}
        """All pods that have not ended, by uid."""
        self.index = PodIndex()
        self.volumes = VolumeObjects()
        self.has_changed_unseen = False
        """Whether pods or namespaces have changed in a way that the core does not see, until the caller resets it."""

    @property
    def nodes(self) -> dict[str, NodeRecord]:
        return self.index.nodes

    def set_object(self, obj: Object) -> None:
        """Add an object, or replace the earlier one."""
        match obj:
            case Pod():
                self._set_pod(obj)
            case Node():
                self._set_node(obj)
            case Namespace():
                self._set_namespace(obj.metadata.name, obj.metadata.labels)
            case _:
                self.volumes.set_object(obj)

    def remove_object(self, obj: Object) -> None:
        """Remove an object. An unknown one is ignored."""
        match obj:
            case Pod():
                self._remove_pod(obj.metadata.uid)
            case Node():
                node = self.nodes.get(obj.metadata.name)
                if node is not None:
                    with self.index.changing_node(node):
                        node.is_known, node.is_unschedulable, node.labels, node.taints = False, False, {}, ()
            case Namespace():
                self._set_namespace(obj.metadata.name, None)
            case _:
                self.volumes.remove_object(obj)

    def assume(self, uid: str, node: str) -> None:
        """Count a pod on the node to which it is allocated. A pod that is gone or bound is ignored."""
        pod = self.pods.get(uid)
        if pod is not None and (pod.node is None or pod.is_assumed):
            self.index.withdraw(pod)
            self.index.place(pod, self.index.find_node(node))
            pod.is_assumed = True

    def assume_volumes(self, uid: str, plan: VolumePlan) -> None:
        """Reserve the volumes of a plan until the pod is bound or gone, or `forget` is called."""
        if uid in self.pods:
            self.volumes.assume(uid, plan)

    def forget(self, uid: str) -> None:
        """Undo `assume` of a pod and of its volumes. A pod that is bound stays on its node."""
        self.volumes.forget(uid)
        pod = self.pods.get(uid)
        if pod is not None and pod.is_assumed:
            self.index.withdraw(pod)
            pod.is_assumed = False

    def list_repelling_keys(self, uid: str) -> Sequence[str]:
        """Return the topology keys of all terms by which other pods repel a pod, or will as soon as they are placed."""
        pod = self.pods.get(uid)
        return () if pod is None else [one.term.topology_key for one in pod.shape.labels.anti_affinities]

    # Pods and nodes ---------------------------------------------------------------------------------------------------

    def _set_pod(self, obj: Pod) -> None:
        pod = self.pods.get(obj.metadata.uid)
        is_ending = obj.metadata.deletion_timestamp is not None
        if pod is None:
            pod = PodRecord(obj.metadata.uid, obj.metadata.name, self.index.acquire_shape(obj))
            pod.claims, pod.is_ending = list_claims(obj), is_ending
            self.pods[pod.uid] = pod
        elif pod.is_ending != is_ending or not _has_shape(pod, obj):
            with self.index.without((pod,)):
                earlier, pod.shape = pod.shape, self.index.acquire_shape(obj)
                pod.is_ending = is_ending
            if pod.shape is not earlier and pod.shape.labels.anti_affinities:
                self.index.newly_repelled[pod.shape.labels] = None
            self.index.release_shape(earlier)
            self.has_changed_unseen |= pod.node is not None
        bound_to = obj.spec.node_name
        if bound_to:
            pod.is_assumed = False
            self.volumes.forget(pod.uid)  # a pod is bound after its volumes
            if pod.node is None or pod.node.name != bound_to:
                self.index.withdraw(pod)
                self.index.place(pod, self.index.find_node(bound_to))

    def _remove_pod(self, uid: str) -> None:
        self.volumes.forget(uid)
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self.index.withdraw(pod)
            self.index.release_shape(pod.shape)

    def _set_namespace(self, name: str, labels: Labels | None) -> None:
        self.has_changed_unseen |= self.index.namespaces.get(name) != labels
        self.index.set_namespace(name, labels)

    def _set_node(self, obj: Node) -> None:
        node = self.index.find_node(obj.metadata.name)
        node.is_unschedulable = obj.spec.unschedulable
        taints = tuple(one for one in obj.spec.taints if one.effect in REPELLING_EFFECTS)
        if not node.is_known or node.labels != obj.metadata.labels or node.taints != taints:
            with self.index.changing_node(node):
                node.is_known, node.labels, node.taints = True, obj.metadata.labels, taints


def _has_shape(pod: PodRecord, obj: Pod) -> bool:
    """Whether constraints and labels of a pod are still the same."""
    shape = pod.shape
    return shape.labels.key == encode_labels(obj.metadata.labels) and shape.constraints.key == encode_constraints(obj)
