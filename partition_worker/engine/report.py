"""What an RM has mentioned since it began to report everything anew.

Not here: what becomes of the rest (`resync.py`).
"""

from dataclasses import dataclass, field

from common.rm_messages import SyncEnd


@dataclass(slots=True)
class Report:
    """Ids in the order in which they were first mentioned, whether or not they could be taken; and how many items that
    were, the same ones counted again.
    """

    count: SyncEnd = field(default_factory=SyncEnd)

    nodes: dict[str, None] = field(default_factory=dict)
    applications: dict[str, None] = field(default_factory=dict)
    allocations: dict[str, None] = field(default_factory=dict)
    """Asks, allocations and foreign allocations."""
