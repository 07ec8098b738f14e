"""Orders, and what waits in them, as plain values: a part of the format (`model.py`).

Not here: how they are written and read (`readiness.py`, `reserved.py`).
"""

from common.messages import Resources
from partition_worker.engine.memory.values import Memory, NeedMemory, Placed

WantMemory = tuple[NeedMemory, bool, bool, bool]


class ShelfMemory(Memory):
    """A shelf of what a leaf has set aside, with those for further limits."""

    want: WantMemory
    rank: int
    of: int
    closed_by: int
    vain_at: int
    applications: Placed
    inner: "list[ShelfMemory]"


class AsideMemory(Memory):
    """All that one leaf has set aside."""

    leaf: int
    searched_at: int
    brought_back: tuple[int, WantMemory] | None
    shelves: list[ShelfMemory]


class LineMemory(Memory):
    """Who begins to run in a leaf that is aware of states."""

    leaf: int
    starting: list[int]
    accepted: Placed
    turn: int


class ReadinessMemory(Memory):
    """Who is next, and who waits for what."""

    reliefs: int
    touched: list[int]
    touched_applications: list[int]
    ready_children: list[tuple[int, Placed]]
    ready_applications: list[tuple[int, Placed]]
    lines: list[LineMemory]
    asides: list[AsideMemory]
    shelf_ranks: int
    resting: list[tuple[int, Placed]]
    waits: list[tuple[int, list[tuple[NeedMemory, bool, int]]]]
    searched: list[tuple[int, int]]


class SwappableMemory(Memory):
    """Who may have something to swap."""

    offered: Placed
    stuck: list[int]
    seen: int


class ReservationMemory(Memory):
    """A node that is kept for an ask."""

    application: int
    ask: str
    node: int
    created: float
    rank: int
    keeps: Resources


class ReservedMemory(Memory):
    """All of them, oldest first."""

    reservations: list[ReservationMemory]
    by_need: list[int]
    """Ranks of those for which any node would do, in the order of their needs."""
    nudged: list[int]
    ranks: int
    stale: bool
    seen: int
