"""Node sort policies: the score by which a partition orders its nodes. The node with the smallest score is tried first.

To add a policy, write a function like `score_fair` and add one line to `NODE_SORT_POLICIES`. Validation of
`nodesortpolicy`, the property `node.sort.policy`, the node index of the engine and its snapshots take the names and
functions from that table. The scores of a policy must be finite, and depend on the arguments only.
"""

import math
from collections.abc import Callable
from typing import Final

ScoreNode = Callable[[list[int], list[int], list[tuple[int, float]]], float]
"""From what is available on a node, its capacity, both by the number of the resource type, and the weights of the types
to a score. A node lacks the types of which its capacity is 0 or that its list is too short for.
"""


def score_fair(available: list[int], capacity: list[int], weights: list[tuple[int, float]]) -> float:
    """Spread: the least used node is tried first. The score is the used fraction of the node: the weighted mean over
    the types that it has and that have a weight, or 0.0. If the mean is not finite, because weights are infinite or too
    large, it is 0.0.
    """
    total_weight = weighted = 0.0
    types = len(capacity)
    for number, weight in weights:
        if number < types and capacity[number]:
            weighted += weight * (1.0 - available[number] / capacity[number])
            total_weight += weight
    mean = weighted / total_weight if total_weight else 0.0
    return mean if -math.inf < mean < math.inf else 0.0


def score_bin_packing(available: list[int], capacity: list[int], weights: list[tuple[int, float]]) -> float:
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
