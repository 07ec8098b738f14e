"""The cluster as predicates see it: nodes, the pods on them, namespaces, and objects of volumes.

The cache keeps only what predicates read, and equal parts of pods once; the objects themselves are dropped. A pod that
has been allocated counts on its node from `assume` on, before the API server has bound it: otherwise two pods of a gang
would get the same host port.
"""

from kubernetes_shim.objects import Object


class Cluster:
    """Everything that decides where a pod may run. Objects of other kinds are ignored."""

    def set_object(self, obj: Object) -> None:
        """Add an object, or replace the earlier one. A pod that has ended counts as removed."""

    def remove_object(self, obj: Object) -> None:
        """Remove an object. An unknown one is ignored."""

    def assume(self, uid: str, node: str) -> None:
        """Count a pod on the node to which it is allocated. A pod that is gone is ignored."""

    def forget(self, uid: str) -> None:
        """Undo `assume` of a pod and of its volumes. A pod that is bound stays on its node."""
