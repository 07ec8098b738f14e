"""Node sort policies: the score by which a partition orders its nodes. The node with the smallest score is tried first.

To add a policy, write a function like `score_fair` and add one line to `NODE_SORT_POLICIES`. Validation of
`nodesortpolicy`, the property `node.sort.policy`, the node index of the engine and its snapshots take the names and
functions from that table. The scores of a policy must be finite, and depend on the arguments only.
"""

import math
from collections.abc import Callable, Mapping
from typing import Final

from yunishard.common.messages.kinds import Resources

ScoreNode = Callable[[Resources, Resources, Mapping[str, float]], float]
"""From what is available on a node, its capacity and the weights of the resource types to a score."""


def score_fair(available: Resources, capacity: Resources, weights: Mapping[str, float]) -> float:
    """Spread: the least used node is tried first. The score is the used fraction of the node: the weighted mean over
    the types that it has and that have a weight, or 0.0.

    Weights that are NaN count as 0. If the mean is not finite, because weights are infinite or too large, it is 0.0.
    """
    total_weight = weighted = 0.0
    for kind, weight in weights.items():
        if kind in capacity and (weight > 0 or weight < 0):  # neither is true of NaN
            weighted += weight * (1.0 - available.get(kind, 0) / capacity[kind])
            total_weight += weight
    mean = weighted / total_weight if total_weight else 0.0
    return mean if math.isfinite(mean) else 0.0


def score_bin_packing(available: Resources, capacity: Resources, weights: Mapping[str, float]) -> float:
    """Fill up: the most used node is tried first."""
    return 1.0 - score_fair(available, capacity, weights)


NODE_SORT_POLICIES: Final[dict[str, ScoreNode]] = {
    "fair": score_fair,
    "binpacking": score_bin_packing,
}
"""The registry: name in the configuration, in lower case, to scoring function. The first one is the default."""

PACK: Final = "pack"
"""Accepted by queues and applications only: nodes on which the application runs come first, then the partition's order.
"""


def parse_node_choice(text: str) -> str | None:
    """Return the order of nodes that a queue property or an application tag names, in any case; None if unknown."""
    name = text.lower()
    return name if name == PACK or name in NODE_SORT_POLICIES else None
