"""A resource manager on the native protocol: the SDK, in an event loop and a thread of its own.

The way is the one of a real program: SDK, proxy, broker, worker, journal, and back.
"""

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import TypeVar

from benchmarks.paths.heard import Heard
from common.rm_messages import (
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    AllocationResponse,
    ApplicationResponse,
    NodeInfo,
    NodeResponse,
)
from yunishard.client import ResourceManager

T = TypeVar("T")


class NativeRm:
    """Registered, until it is closed."""

    def __init__(self, address: str, config: str, *, rm_id: str = "bench", extra: Mapping[str, str] | None = None):
        self.heard = Heard()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._rm = self._await(
            ResourceManager.connect(address, rm_id=rm_id, config=config, extra_config=extra, timeout_s=60)
        )
        self._reading = asyncio.run_coroutine_threadsafe(self._read(), self._loop)

    def nodes(self, nodes: Sequence[NodeInfo]) -> None:
        self._await(self._rm.update_nodes(nodes))

    def applications(self, applications: Sequence[AddApplicationRequest]) -> None:
        self._await(self._rm.update_applications(new=applications))

    def asks(self, asks: Sequence[Allocation]) -> None:
        self._await(self._rm.update_allocations(allocations=asks))

    def releases(self, releases: Sequence[AllocationRelease]) -> None:
        self._await(self._rm.update_allocations(releases=releases))

    def configuration(self, text: str) -> None:
        """Run with another one; returns when all partitions do."""
        self._await(self._rm.update_configuration(text))

    def close(self) -> None:
        """Leave for good."""
        try:
            self._await(self._end())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _await(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _end(self) -> None:
        """Nothing but this goes on in the loop afterwards."""
        await self._rm.leave()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _read(self) -> None:
        heard = self.heard
        async for _, news in self._rm.results():
            match news:
                case NodeResponse():
                    refused = [f"{one.node_id}: {one.reason}" for one in news.rejected]
                    heard.take(nodes=len(news.accepted), refused=refused)
                case ApplicationResponse():
                    refused = [f"{one.application_id}: {one.reason}" for one in news.rejected]
                    heard.take(applications=len(news.accepted), refused=refused)
                case AllocationResponse():
                    heard.take_allocations(
                        ((one.allocation_key, one.application_id) for one in news.new),
                        (one.allocation_key for one in news.released),
                        [f"{one.allocation_key}: {one.reason}" for one in news.rejected_allocations],
                    )
