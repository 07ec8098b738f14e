"""What an ask demands of a node, as a value: part of its need, so asks that demand the same are tried once for all.

Not here: what the demands mean (`predicates.py`).
"""

from collections.abc import Hashable
from typing import NamedTuple

Demands = tuple[Hashable | None, ...]
"""What each predicate in use read from the tags, in their order."""


class Constraint(NamedTuple):
    """An ask without demands, of a resource manager that is not asked, has none at all."""

    demands: Demands
    asked: str = ""
    """The key of the ask under which the resource manager says where it may run; empty if it has no say."""
