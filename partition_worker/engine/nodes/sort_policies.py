"""How used a node is, and how much of it an ask would leave over, as numbers: by them nodes are ordered."""

import math
from collections.abc import Mapping
from struct import Struct
from typing import Final, Literal

from common.messages import Resources
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.queues.policies import NODE_SORT, NodeChoice, node_choice
from partition_worker.engine.queues.queue import Queue

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


Place = bytes
"""The score in eight bytes, then the id."""

BEFORE_ALL: Final[Place] = b""
BEHIND_ALL: Final[Place] = b"\xff" * 8
"""That of a finite score begins with less."""

_FLOAT: Final = Struct(">d")
_SIZE: Final = _FLOAT.size
_MIRRORED: Final = bytes(range(255, -1, -1))


def place_of(score: float, node_id: str) -> Place:
    """The place of a node with this score, which is finite."""
    if score >= 0:
        return _FLOAT.pack(-(score + 0.0)) + node_id.encode()  # with the sign bit; -0.0 is 0.0
    return _FLOAT.pack(score).translate(_MIRRORED) + node_id.encode()


def score_of(place: Place) -> float:
    """The score by which a node stands there."""
    written = place[:_SIZE]
    score: float
    if written[0] & 0x80:
        (score,) = _FLOAT.unpack(written)
        return -score
    (score,) = _FLOAT.unpack(written.translate(_MIRRORED))
    return score


def node_choice_of(tags: Mapping[str, str], queue: Queue) -> NodeChoice | None:
    """The node sort policy that the tags of an application or its queue set; None for that of the partition."""
    tag = tags.get(NODE_SORT)
    wanted = None if tag is None else node_choice(tag)
    return wanted or queue.policies.node_sort
