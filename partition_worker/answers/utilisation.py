"""How full the nodes of a partition are: by resource type, how many and which are in each tenth.

The names of the nodes are told to whoever may ask: where a node is full says nothing about who fills it.
Not here: the same as a metric, without names (`figures.py`).
"""

from collections.abc import Iterable
from typing import Final

from common.rest_views import BucketView, TypeUtilisationView, UtilisationView, percentages
from partition_worker.engine.nodes.node import Node

BUCKETS: Final = 10
_BUCKET_PERCENT: Final = 100 // BUCKETS


def utilisation(nodes: Iterable[Node], *, rm: str, partition: str) -> UtilisationView:
    """All nodes by how full they are; `partition` is the name to show."""
    found: dict[str, list[list[str]]] = {}
    for node in nodes:
        used = percentages(node.allocated, node.capacity)
        for kind in node.capacity:
            if kind not in found:
                found[kind] = [[] for _ in range(BUCKETS)]
            found[kind][bucket(used.get(kind, 0))].append(node.node_id)
    return UtilisationView(
        cluster_id=rm,
        partition=partition,
        utilizations=[TypeUtilisationView(type=kind, utilization=_shown(found[kind])) for kind in sorted(found)],
    )


def bucket(percent: int) -> int:
    """The bucket of a node of which so much is used. A bucket includes its upper bound, the first its lower one too,
    and a node that has more on it than it can hold is in the last.

    >>> [bucket(percent) for percent in (0, 10, 11, 100, 250)]
    [0, 0, 1, 9, 9]
    """
    return min(max(-(-percent // _BUCKET_PERCENT) - 1, 0), BUCKETS - 1)


def _shown(buckets: list[list[str]]) -> list[BucketView]:
    return [
        BucketView(bucket_name=_name(number), num_of_nodes=len(names), node_names=sorted(names))
        for number, names in enumerate(buckets)
    ]


def _name(number: int) -> str:
    return f"{number * _BUCKET_PERCENT}-{(number + 1) * _BUCKET_PERCENT}%"
