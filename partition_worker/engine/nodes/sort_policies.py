"""Node ordering: the sort key of a node under a sort policy, and how much of a node an ask would waste.

A sort key holds the score of a node and, for equal scores, its id, as bytes that compare in that order. Each step of a
search through the node index compares keys, mostly with one that is in no CPU cache. A tuple would be three objects and
two comparisons; bytes are one object, which the garbage collector does not track.

The score is written as an IEEE 754 number, most significant byte first, with the bits turned so that negative numbers
sort before positive ones, as in the keys of ordered stores (FoundationDB's tuple layer). UTF-8 sorts as text does.

The policies themselves are in `common/node_sort_policies.py`, because validation of a configuration needs their names.
"""

from struct import Struct
from typing import Final

from common.messages import Resources
from partition_worker.engine.nodes.node import Node

SortKey = bytes
"""The score in eight bytes, then the id of the node."""

BEFORE_ALL: Final[SortKey] = b""
BEHIND_ALL: Final[SortKey] = b"\xff" * 8
"""The key of a finite score is smaller."""

_FLOAT: Final = Struct(">d")
_SIZE: Final = _FLOAT.size
_MIRRORED: Final = bytes(range(255, -1, -1))


def sort_key_of(score: float, node_id: str) -> SortKey:
    """Return the sort key of a node with this score, which must be finite."""
    if score >= 0:
        return _FLOAT.pack(-(score + 0.0)) + node_id.encode()  # with the sign bit; -0.0 is 0.0
    return _FLOAT.pack(score).translate(_MIRRORED) + node_id.encode()


def score_of(key: SortKey) -> float:
    """Return the score in a sort key."""
    written = key[:_SIZE]
    score: float
    if written[0] & 0x80:
        (score,) = _FLOAT.unpack(written)
        return -score
    (score,) = _FLOAT.unpack(written.translate(_MIRRORED))
    return score


def waste(node: Node, wanted: Resources) -> float:
    """Return how much of a node an ask would leave over: over the types that are available, the sum of the fractions
    that the ask does not take. Reservations choose the node with the least.
    """
    total = 0.0
    for kind, value in node.available.items():
        if value > 0:
            amount = wanted.get(kind, 0)
            if amount < value:
                total += (value - amount) / value if amount > 0 else 1.0
    return total
