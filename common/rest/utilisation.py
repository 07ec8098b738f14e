"""How full nodes are, as the REST API shows it: for each resource type ten buckets, and which nodes are in each.

Not here: counting (`partition_worker/answers/utilisation.py`).
"""

from msgspec import field

from common.rest.partition import View


class BucketView(View, frozen=True, kw_only=True):
    """The nodes that are about as full as the bucket's name says."""

    bucket_name: str
    num_of_nodes: int = 0
    node_names: list[str] = field(default_factory=list)


class TypeUtilisationView(View, frozen=True, kw_only=True):
    """How full the nodes that have a resource type are of it; always all buckets, in ascending order."""

    type: str
    utilization: list[BucketView]


class UtilisationView(View, frozen=True, kw_only=True):
    """One entry of `/scheduler/node-utilizations`: a partition, with every resource type that some node has."""

    cluster_id: str
    """RM id."""
    partition: str
    utilizations: list[TypeUtilisationView] = field(default_factory=list)


class SilentUtilisationView(UtilisationView, frozen=True, kw_only=True, omit_defaults=False):
    """The entry of a partition that does not answer: its list is there, and empty."""
