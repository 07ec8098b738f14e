"""A resource manager that asks and counts what it is told, whatever becomes of the core meanwhile."""

import json
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from yunishard.common.messages.rm_messages import AllocationResponse
from yunishard.sdk.client import ResourceManager
from yunishard.sdk.items import application, ask, node

QUEUES: Final = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: batch}]}]}]"
ASKS: Final = 20
"""At once."""


class Asker:
    """Counts how often each of its asks is placed."""

    def __init__(self, rm: ResourceManager) -> None:
        self.placed: Counter[str] = Counter()
        self.rm = rm
        self._asked = 0

    async def asks(self) -> None:
        """Ask for some more, without waiting for them."""
        keys = [f"ask-{self._asked + number}" for number in range(ASKS)]
        self._asked += ASKS
        await self.rm.update_allocations(allocations=[ask(key, "app", {"vcore": 1}) for key in keys])

    async def has(self, count: int) -> None:
        """Read until so many different asks are placed."""
        async for _, news in self.rm.results():
            if isinstance(news, AllocationResponse):
                self.placed.update(one.allocation_key for one in news.new)
            if len(self.placed) >= count:
                return


@asynccontextmanager
async def placing(native: str, rm_id: str = "rm-1") -> AsyncIterator[Asker]:
    """One that is registered, with a node and an application `app`."""
    async with await ResourceManager.connect(native, rm_id=rm_id, config=QUEUES) as rm:
        await rm.update_nodes([node("n1", {"vcore": 1000})])
        await rm.update_applications(new=[application("app", "root.batch", user="alice")])
        yield Asker(rm)


def allocations(rest: str, partition: str = "default") -> int:
    """How many the core says there are."""
    with urllib.request.urlopen(f"{rest}/ws/v1/partition/{partition}/application/app", timeout=10) as answer:
        return len(json.load(answer)["allocations"])
