"""Numbers that may take more than 64 bits, of which MessagePack knows none: they are written as text.

An amount that somebody asks for has 64 bits, but sums of them, and places in orders that are made of sums, may have
more. Not here: which numbers these are (`model.py`).
"""

from collections.abc import Mapping

from common.messages import INT64_MAX, INT64_MIN, Resources
from partition_worker.engine.memory.values import KeyMemory, Sums
from partition_worker.engine.order import Key


def sums(amounts: Mapping[str, int]) -> Sums:
    """Added up amounts, as they are written."""
    for n in amounts.values():
        if not INT64_MIN <= n <= INT64_MAX:
            return {kind: n if INT64_MIN <= n <= INT64_MAX else str(n) for kind, n in amounts.items()}
    return amounts


def amounts_of(written: Sums) -> Resources:
    """The same, read."""
    return {kind: int(n) for kind, n in written.items()}


def key(place: Key) -> KeyMemory:
    """A place in an order, as it is written."""
    return tuple(str(part) if isinstance(part, int) and not INT64_MIN <= part <= INT64_MAX else part for part in place)


def key_of(written: KeyMemory) -> Key:
    """The same, read. No place in an order that is written has a text in it."""
    return tuple(int(part) if isinstance(part, str) else part for part in written)
