"""What a resource manager has heard, whichever way it came, and waiting until that is enough.

Threads that read call `take`; the one that measures waits in `until`.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from common.rm_messages import AddApplicationRequest, Allocation, AllocationRelease, NodeInfo

PATIENCE_S: Final = 300.0
"""How long what was asked for may take, whatever it is."""


class TooSlow(Exception):
    """It did not happen in time; with what did."""


class Heard:
    """What the scheduler has told so far."""

    def __init__(self) -> None:
        self.nodes = 0
        """Those that were accepted; as `applications`."""
        self.applications = 0
        self.running: dict[str, str] = {}
        """Keys of all and only the allocations that run, with their applications, in the order in which they began."""
        self.refused: list[str] = []
        """Whatever the scheduler did not want, with its reason: nothing in a benchmark that is in order."""
        self._enough: Callable[[], bool] = bool
        self._reached = threading.Event()

    def take(self, *, nodes: int = 0, applications: int = 0, refused: Sequence[str] = ()) -> None:
        self.nodes += nodes
        self.applications += applications
        self.refused += refused
        self._look()

    def take_allocations(
        self, new: Iterable[tuple[str, str]], released: Iterable[str], refused: Sequence[str] = ()
    ) -> None:
        self.running.update(new)
        for key in released:
            self.running.pop(key, None)
        self.refused += refused
        self._look()

    def until(self, enough: Callable[[], bool], *, patience_s: float = PATIENCE_S) -> None:
        """Wait until it is enough.

        Raises:
            TooSlow: it took too long, or something was refused, so that it may never be.
        """
        self._reached.clear()
        self._enough = enough
        self._look()
        if not self._reached.wait(patience_s) or self.refused:
            told = f"{self.nodes} nodes, {self.applications} applications and {len(self.running)} allocations"
            raise TooSlow(f"there are {told}, and {len(self.refused)} refusals: {self.refused[:3]}")

    def _look(self) -> None:
        if self._enough() or self.refused:
            self._reached.set()


class Rm(Protocol):
    """A registered resource manager, as a benchmark sees it."""

    heard: Heard

    def nodes(self, nodes: Sequence[NodeInfo]) -> None: ...

    def applications(self, applications: Sequence[AddApplicationRequest]) -> None: ...

    def asks(self, asks: Sequence[Allocation]) -> None: ...

    def releases(self, releases: Sequence[AllocationRelease]) -> None: ...

    def close(self) -> None: ...
