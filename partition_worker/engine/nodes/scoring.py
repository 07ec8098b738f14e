"""How used a node is, as a number: the key by which nodes are ordered."""

import math
from collections.abc import Mapping
from typing import Literal

from partition_worker.engine.nodes.node import Node

NodeSort = Literal["fair", "binpacking"]


def usage(node: Node, weights: Mapping[str, float]) -> float:
    """The weighted mean of the used fractions, over the types that have a weight and that the node has; 0.0 if none."""
    total_weight = weighted = 0.0
    available, capacity = node.available, node.capacity
    for kind, weight in weights.items():
        size = capacity.get(kind)
        if weight == 0 or size is None:
            continue
        if math.isnan(weight):
            continue
        weighted += weight * (1.0 - available.get(kind, 0) / size)
        total_weight += weight
    mean = weighted / total_weight if total_weight else 0.0
    return mean if math.isfinite(mean) else 0.0  # weights may be infinite, or so large that their sum is


def score(node: Node, policy: NodeSort, weights: Mapping[str, float]) -> float:
    """Smaller is tried first: the least used node under `fair`, the most used under `binpacking`."""
    used = usage(node, weights)
    return 1.0 - used if policy == "binpacking" else used
