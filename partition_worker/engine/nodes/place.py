"""Where a node stands in an order: by its score and, of equals, by its id, as bytes that sort like that.

A place is compared for every step of a search through the order, mostly with one that no cache holds. A pair would be
three objects in memory and two comparisons each; bytes are one, and no concern of the garbage collector's.

The score is written as IEEE 754 has it, the largest digit first, and turned so that negative numbers come before the
others, as in the keys of ordered stores (FoundationDB's tuple layer). UTF-8 sorts as text does.

Not here: the score (`scoring.py`), and the order (`lineup.py`).
"""

from struct import Struct
from typing import Final

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
