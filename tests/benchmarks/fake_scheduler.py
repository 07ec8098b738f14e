"""A scheduler that takes no time, for tests of the measuring tools. It counts the cores of all nodes together, and
gives them to the asks in order, as far as they fit.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.resource_managers import Heard
from benchmarks.systems import Up
from yunishard.common.messages.rm_messages import AddApplicationRequest, Allocation, AllocationRelease, NodeInfo

CONNECTED: list["FakeRm"] = []
"""Every RM of this process, in the order of connection."""


class FakeRm:
    """An RM that receives every result at once."""

    def __init__(self, _config: str) -> None:
        self.heard = Heard()
        self.closed = False
        self._free = 0
        self._waiting: list[Allocation] = []
        self._needs: dict[str, int] = {}
        CONNECTED.append(self)

    def nodes(self, nodes: Sequence[NodeInfo]) -> None:
        self._free += sum((node.schedulable_resource or {})["vcore"] for node in nodes)
        self.heard.take(nodes=len(nodes))

    def applications(self, applications: Sequence[AddApplicationRequest]) -> None:
        self.heard.take(applications=len(applications))

    def asks(self, asks: Sequence[Allocation]) -> None:
        self._waiting += asks
        self._place()

    def releases(self, releases: Sequence[AllocationRelease]) -> None:
        self._free += sum(self._needs.pop(one.allocation_key) for one in releases)
        self.heard.take(released=[one.allocation_key for one in releases])
        self._place()

    def close(self) -> None:
        self.closed = True

    def _place(self) -> None:
        placed, waiting = [], []
        for ask in self._waiting:
            need = ask.resource_per_alloc["vcore"]
            (placed if need <= self._free else waiting).append(ask)
            if need <= self._free:
                self._free -= need
                self._needs[ask.allocation_key] = need
        self._waiting = waiting
        self.heard.take(new=[(one.allocation_key, one.application_id) for one in placed])


@contextmanager
def fake() -> Iterator[Up]:
    """A system that consists of the fake scheduler."""
    yield Up(FakeRm, dict)
