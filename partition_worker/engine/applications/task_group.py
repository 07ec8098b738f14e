"""A task group of a gang: how many placeholders there were, and what became of them.

Not here: what follows when that changes (`engine/placeholders.py`).
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from common.messages import Resources

if TYPE_CHECKING:
    from partition_worker.engine.applications.allocation import Allocation


@dataclass(slots=True)
class TaskGroup:
    """The placeholders of one name, and the real asks that wait for them."""

    name: str
    minimum: Resources = field(default_factory=dict)
    """What one placeholder of it asks for, as the first one did."""
    count: int = 0
    """Placeholders, asked for or recovered; like the next two it only grows."""
    replaced: int = 0
    """Placeholders whose place was taken by a real allocation."""
    timed_out: int = 0
    """Placeholders that went in any other way."""
    free: "dict[str, Allocation]" = field(default_factory=dict)
    """Placeholders that have a node and that nobody was asked to let go, by key, the oldest first."""
    waiting: int = 0
    """Real asks that wait for one of them."""

    @property
    def outstanding(self) -> int:
        """How many placeholders may still come to be replaced; while there are any, real asks of this group wait."""
        return self.count - self.replaced - self.timed_out
