"""A resource manager of the chaos: an ordinary program on the SDK, with books of its own.

It asks when the conductor tells it to, lets what runs end after a while, and notes what it hears. Not here: who is
killed when (`conductor.py`).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Self

from tests.chaos.books import Ask, Books
from yunishard.common.messages.rm_messages import (
    AllocationRelease,
    AllocationResponse,
    ApplicationResponse,
    NodeResponse,
    PartitionRestarted,
    Refused,
)
from yunishard.common.names import external_name, normalise_partition_name
from yunishard.sdk import items
from yunishard.sdk.client import ResourceManager
from yunishard.sdk.items import TerminationType

NODES: Final = 20
NODE: Final = {"vcore": "100000", "memory": "1000Ti"}
RELEASE_EVERY_S: Final = 0.05
QUEUES: Final = "queues: [{name: root, submitacl: '*', queues: [{name: batch}]}]"


def configuration(partitions: Sequence[str]) -> str:
    return f"partitions: [{', '.join(f'{{name: {name}, {QUEUES}}}' for name in partitions)}]"


def _sum_placeholders(asks: Iterable[Ask]) -> dict[str, int | str] | None:
    """What a gang asks for; None if it is none."""
    vcore = sum(one.vcore for one in asks if one.placeholder)
    return {"vcore": f"{vcore}m"} if vcore else None


class ChaosRm:
    """One of them; made by `joined`."""

    def __init__(self, rm: ResourceManager, partitions: Sequence[str]) -> None:
        self.rm_id = rm.rm_id
        self.books = Books()
        self.changed = asyncio.Event()
        """Set whenever something was heard."""
        self.failure: BaseException | None = None
        self._rm = rm
        self.partitions = tuple(normalise_partition_name(rm.rm_id, name) for name in partitions)
        self._applications: set[tuple[str, str]] = set()
        self._accepted: set[tuple[str, str]] = set()
        self._nodes = 0
        self._due: list[str] = []
        """What is to be released next."""
        self._replaced: list[str] = []
        """Placeholders whose end is to be confirmed next."""
        self._tasks = [asyncio.create_task(one) for one in (self._hear(), self._release())]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    @classmethod
    async def joined(cls, address: str, rm_id: str, partitions: Sequence[str]) -> Self:
        """Registered, with all its nodes."""
        rm = await ResourceManager.connect(address, rm_id=rm_id, config=configuration(partitions))
        one = cls(rm, partitions)
        for partition in partitions:
            nodes = [items.node(f"{partition}-n{number}", NODE, partition=partition) for number in range(NODES)]
            await rm.update_nodes(nodes)
        await one.until(lambda: one._nodes == NODES * len(partitions))
        return one

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            if self.failure is not None:
                raise self.failure
            self.changed.clear()
            await self.changed.wait()

    async def ask(self, asks: Sequence[Ask]) -> None:
        """Submit applications that are new, and the asks."""
        wanted = dict.fromkeys((one.partition, one.application) for one in asks)
        new = [pair for pair in wanted if pair not in self._applications]
        if new:
            self._applications.update(new)
            applications = [
                items.application(
                    name,
                    queue="root.batch",
                    user="chaos",
                    partition=external_name(self.rm_id, partition),
                    gang=_sum_placeholders(
                        one for one in asks if (one.partition, one.application) == (partition, name)
                    ),
                )
                for partition, name in new
            ]
            await self._rm.update_applications(new=applications)
            await self.until(lambda: self._accepted.issuperset(new))
        for one in asks:
            self.books.asks(one)
        await self._rm.update_allocations(
            allocations=[
                items.ask(
                    one.key,
                    one.application,
                    {"vcore": f"{one.vcore}m"},
                    partition=external_name(self.rm_id, one.partition),
                    task_group=one.task_group,
                    placeholder=one.placeholder,
                )
                for one in asks
            ]
        )

    async def change_configuration(self, text: str, extra: Mapping[str, str]) -> None:
        """Replace the queues and the service settings."""
        await self._rm.update_configuration(text, extra_config=extra)

    async def close(self) -> None:
        """Go, for good."""
        await self._stop()
        await self._rm.leave()

    async def abandon(self) -> None:
        """Close the connection; what the core has stays there."""
        await self._stop()
        await self._rm.close()

    # Private --------------------------------------------------------------------------------------------------------

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _hear(self) -> None:
        loop = asyncio.get_running_loop()
        async for partition, news in self._rm.results():
            match news:
                case NodeResponse():
                    self._nodes += len(news.accepted)
                    self.books.complaints += [f"{one.node_id} rejected: {one.reason}" for one in news.rejected]
                case ApplicationResponse():
                    self._accepted.update((partition, one.application_id) for one in news.accepted)
                    self.books.complaints += [f"{one.application_id} rejected: {one.reason}" for one in news.rejected]
                case AllocationResponse():
                    for allocation in news.new:
                        ask = self.books.granted(partition, allocation)
                        if ask is not None and ask.run_s:
                            loop.call_later(ask.run_s, self._let_end, ask.key)
                    for release in news.released:
                        if self.books.is_replaced(release):
                            self._replaced.append(release.allocation_key)
                        self.books.released(release)
                    for refused in news.rejected_allocations:
                        self.books.complaints.append(f"{refused.allocation_key} rejected: {refused.reason}")
                case PartitionRestarted():
                    self.books.complaints.append(f"{partition} has lost what it knew: {news.reason}")
                case Refused():
                    self.books.complaints.append(f"refused ({news.code}): {news.reason}")
            self.changed.set()

    def _let_end(self, key: str) -> None:
        self._due.append(key)

    async def _release(self) -> None:
        while True:
            await asyncio.sleep(RELEASE_EVERY_S)
            due, self._due, replaced, self._replaced = self._due, [], self._replaced, []
            if not due and not replaced:
                continue
            self.books.leaving.update(due)
            await self._rm.update_allocations(
                releases=[
                    *(self._make_release(key, TerminationType.STOPPED_BY_RM) for key in due),
                    *(self._make_release(key, TerminationType.PLACEHOLDER_REPLACED) for key in replaced),
                ]
            )

    def _make_release(self, key: str, kind: TerminationType) -> AllocationRelease:
        one = self.books.asked[key]
        partition = external_name(self.rm_id, one.partition)
        return items.release(one.application, one.key, partition=partition, termination_type=kind)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            self.failure = task.exception()
            self.changed.set()
