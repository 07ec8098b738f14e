"""How used a node is, and how much of it an ask would leave over, as numbers: by them nodes are ordered."""

import math
from collections.abc import Mapping
from typing import Literal

from common.messages import Resources
from partition_worker.engine.nodes.node import Node

NodeSort = Literal["fair", "binpacking"]


def usage(node: Node, weights: Mapping[str, float]) -> float:
    """The weighted mean of the used fractions, over the types that have a weight and that the node has; 0.0 if none."""
    total_weight = weighted = 0.0
    available, capacity = node.available, node.capacity
    for kind, weight in weights.items():
        if kind in capacity and (weight > 0 or weight < 0):  # neither is NaN
            weighted += weight * (1.0 - available.get(kind, 0) / capacity[kind])
            total_weight += weight
    mean = weighted / total_weight if total_weight else 0.0
    return mean if math.isfinite(mean) else 0.0  # weights may be infinite, or so large that their sum is


def score(node: Node, policy: NodeSort, weights: Mapping[str, float]) -> float:
    """Smaller is tried first: the least used node under `fair`, the most used under `binpacking`."""
    used = usage(node, weights)
    return 1.0 - used if policy == "binpacking" else used


def waste(node: Node, wanted: Resources) -> float:
    """How much of what is available an ask for this would leave over: the sum, over the types of which there is any, of
    the fraction that it does not take. The node with the least is kept for an ask that has no room yet.
    """
    total = 0.0
    for kind, value in node.available.items():
        if value > 0:
            amount = wanted.get(kind, 0)
            if amount < value:
                total += (value - amount) / value if amount > 0 else 1.0
    return total
