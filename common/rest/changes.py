"""What the REST API answers to those who change something in a partition: what came of it.

Not here: changing it (`partition_worker/actions.py`, `partition_worker/steps.py`).
"""

from msgspec import Struct, field

from common.messages import Part


class KilledView(Struct, frozen=True, kw_only=True):
    """An application that was ended, and its state now."""

    application_id: str = field(name="applicationID")
    partition: str
    state: str


class MovedView(Struct, frozen=True, kw_only=True):
    """An application that goes on in another queue."""

    application_id: str = field(name="applicationID")
    partition: str
    queue: str
    """Its full path."""


class DecisionView(Part, frozen=True):
    """A decision as people read it."""

    kind: str
    """`allocate`, `reserve`, `replace`, `release` (placeholders that are too small) or `preempt`."""
    application_id: str
    allocation_key: str
    """Of the ask that gets something by it."""
    node_id: str
    """Empty if no node is chosen by it."""
    releases: list[str] = field(default_factory=list)
    """Keys that the RM is asked to let go."""


class StepsView(Struct, frozen=True, kw_only=True):
    """The decisions that were made, and whether nothing is left to decide."""

    partition: str
    made: int
    idle: bool
    decisions: list[DecisionView]
