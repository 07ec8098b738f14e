"""Whom somebody has said and shown to be, however they did.

Not here: how (`tokens.py`, `certificates.py`, `proxies.py`), what they may do (`entrance.py`).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Person:
    """A user with their groups; `read_only` if they have come only to look, whatever they may do otherwise."""

    user: str
    groups: tuple[str, ...] = ()
    read_only: bool = False
