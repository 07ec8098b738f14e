"""What everything that is written is made of.

Not here: what is written of which thing (`model.py`).
"""

from collections.abc import Mapping
from typing import Final

import msgspec

Sums = Mapping[str, int | str]
"""Amounts by type that were added up, which may take more than 64 bits; those are written as text."""

KeyMemory = tuple[bool | int | float | str | tuple[int | float, ...], ...]
"""A place in an order, with the same exception."""

Placed = list[tuple[int, KeyMemory]]
"""The ranks of things in an order, with their places in it."""

NeedMemory = tuple[tuple[tuple[str, int], ...], str, int]
"""Shape, required node, and an allocation that has the same constraint; -1 if there is none."""

NOBODY: Final = -1
"""Instead of a rank or place, where there is no such thing."""


class Memory(msgspec.Struct, array_like=True, gc=False):
    """What all have in common."""
