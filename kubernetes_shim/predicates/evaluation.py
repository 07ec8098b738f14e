"""Answers to the core's questions: may a pod run on a node, also without some pods that would be preempted."""

from collections.abc import Collection, Sequence

from kubernetes_shim.cluster import Cluster


def refuse(
    cluster: Cluster, uid: str, node: str, *, allocate: bool = True, without: Collection[str] = ()
) -> str | None:
    """Return why the pod may not run on the node, or None if it may.

    The pods in `without` count as absent. With `allocate` False (a reservation, the replacement of a placeholder),
    volumes are not examined. Resources never are: the core does.
    """
    return None


def count_victims(cluster: Cluster, uid: str, node: str, victims: Sequence[str], start: int = 0) -> int | None:
    """Return how many of the victims, in this order and at least `start`, must go before the pod fits on the node.

    None if it does not fit without all of them.
    """
    return None
