"""Resource managers that ask without pause, and how long their partitions let them wait."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from tests.chaos.books import Ask, Books
from tests.chaos.rm import ChaosRm
from tests.chaos.workload import Workload
from yunishard.common.messages.rm_messages import Allocation
from yunishard.sdk.client import ResourceManager

RMS: Final = {"alpha": ("default", "gpu"), "beta": ("default",), "gamma": ("default",)}
"""Partitions by resource manager; several have the same name on purpose."""

ASK_EVERY_S: Final = 0.1
WAITING_MAX: Final = 2_000
"""A resource manager with so many asks that are not allocated asks for nothing more."""

BATCH: Final = 3
"""Asks at a time for each partition."""

LOOK_EVERY_S: Final = 0.02


@dataclass(slots=True)
class TimedBooks(Books):
    """Books that note when."""

    asked_at: dict[str, float] = field(default_factory=dict)
    """When each ask that is not allocated was first to be submitted."""
    granted_at: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    """For each partition, when each allocated ask was submitted, and when it was allocated, in this order."""

    def asks(self, ask: Ask) -> None:
        Books.asks(self, ask)
        self.asked_at.setdefault(ask.key, time.monotonic())

    def granted(self, partition: str, allocation: Allocation) -> Ask | None:
        ask = Books.granted(self, partition, allocation)
        if ask is not None:
            self.granted_at[partition].append((self.asked_at.pop(ask.key), time.monotonic()))
        return ask


class TimedRm(ChaosRm):
    """A resource manager with such books."""

    def __init__(self, rm: ResourceManager, partitions: Sequence[str]) -> None:
        super().__init__(rm, partitions)
        self.books: TimedBooks = TimedBooks()


class Load:
    """The resource managers. They ask as long as `is_open`."""

    def __init__(self, rms: Sequence[TimedRm]) -> None:
        self.rms = rms
        self.workload = Workload()
        self.is_open = True
        self._books = {name: rm.books for rm in rms for name in rm.partitions}
        self._tasks = [asyncio.create_task(self._submit(rm, name)) for rm in rms for name in rm.partitions]

    @classmethod
    async def joined(cls, addresses: Mapping[str, str]) -> Self:
        """All registered, each at its addresses."""
        return cls([await TimedRm.joined(addresses[name], name, partitions) for name, partitions in RMS.items()])

    @property
    def partitions(self) -> list[str]:
        return list(self._books)

    @property
    def waiting(self) -> Mapping[str, int]:
        """How many asks each resource manager has that are not allocated."""
        return {rm.rm_id: rm.books.waiting for rm in self.rms}

    def check(self) -> None:
        """Check what must never happen.

        Raises:
            AssertionError: it has.
        """
        for rm in self.rms:
            if rm.failure is not None:
                raise AssertionError(f"{rm.rm_id}: {rm.failure!r}") from rm.failure
        for task in self._tasks:
            if task.done() and (error := task.exception()) is not None:
                raise error
        complaints = [f"{rm.rm_id}: {text}" for rm in self.rms for text in rm.books.complaints]
        assert not complaints, "\n".join(complaints[:20])

    async def decided(self, since: float, within_s: float) -> Mapping[str, float]:
        """Wait until each partition has allocated an ask that was submitted after `since`; for each that has done so
        in time, when that was, in seconds from `since`.
        """
        while True:
            found = {name: at for name in self._books if (at := self._find_decision(name, since)) is not None}
            if len(found) == len(self._books) or time.monotonic() > since + within_s:
                return found
            self.check()
            await asyncio.sleep(LOOK_EVERY_S)

    def _find_decision(self, partition: str, since: float) -> float | None:
        found = None
        for asked, granted in reversed(self._books[partition].granted_at[partition]):
            if granted < since:
                break
            if asked >= since:
                found = granted - since
        return found

    def pause(self, partition: str, since: float) -> float:
        """The longest time that an ask has waited which was submitted after `since`."""
        times = [granted - asked for asked, granted in self._books[partition].granted_at[partition] if asked >= since]
        return max(times, default=0.0)

    async def finish(self, asks: int, within_s: float) -> None:
        """Submit what is left of so many asks, and wait until all are allocated.

        Raises:
            TimeoutError: they are not in time.
        """
        self.is_open = False
        async with asyncio.timeout(within_s):
            await asyncio.gather(*self._tasks)
            while (left := asks - self.workload.total) > 0:
                self.check()
                for rm in self.rms:
                    await self._ask(rm, "", min(max(left // len(self.rms), 1), WAITING_MAX))
            for rm in self.rms:
                await rm.until(lambda rm=rm: rm.books.waiting == 0)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for rm in self.rms:
            await rm.abandon()

    async def _submit(self, rm: TimedRm, partition: str) -> None:
        while self.is_open:
            await asyncio.sleep(ASK_EVERY_S)
            await self._ask(rm, partition, BATCH)

    async def _ask(self, rm: TimedRm, partition: str, count: int) -> None:
        await rm.until(lambda: rm.books.waiting < WAITING_MAX)
        asks = self.workload.make(rm, count, partition)
        rm.books.asked_at.update(dict.fromkeys([one.key for one in asks], time.monotonic()))
        await rm.ask(asks)  # which may wait for the partition to accept a new application
