"""Three resource managers that ask and release without pause, while builds are started one after the other on the same
state directory and stopped or killed in the midst of it.

In the end each ask must have been allocated exactly once, to the resource manager, over REST and in the journal, and no
resource manager may have had to report its state again.
"""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Self

from tests.chaos import verdict
from tests.chaos.books import Ask
from tests.chaos.rm import ChaosRm
from tests.chaos.system import System
from tests.conformance.rest import quoted
from tests.upgrade.builds import Build
from yunishard.common.names import external_name
from yunishard.sdk.exceptions import ConfigurationRefused, OutcomeUnknown

RMS: Final = {"alpha": ("default", "gpu"), "beta": ("default",), "gamma": ("default",)}
"""Partitions by resource manager."""

BATCH_ASKS: Final = 4
GANG_ASKS: Final = 3
"""Placeholders of a gang. Once all have nodes, asks that replace them are submitted with the next gang."""

BATCH_EVERY_S: Final = 0.03
WAITING_MAX: Final = 200
"""A resource manager with so many asks that are not allocated asks for nothing more."""

STAYS: Final = 20
"""One ask in so many runs until the end; so does the first of each application, which would complete otherwise."""

APPLICATIONS: Final = 10
RUN_MAX_S: Final = 0.5
ROUND_MAX_S: Final = 90.0

ALLOCATED_MIN: Final = 60
"""A round lasts until each resource manager has as many new allocations, and so many asks have ended."""

QUEUES: Final = "queues: [{name: root, submitacl: '*', queues: [{name: batch, %s}]}]"
CONFIGURATIONS: Final = (
    (
        "nodesortpolicy: {type: fair}",
        QUEUES % "properties: {application.sort.priority: disabled, priority.offset: '7'}",
        {"event.ringBufferCapacity": "1000"},
    ),
    (
        "nodesortpolicy: {type: binpacking}",
        QUEUES % "resources: {max: {vcore: 500000}}, limits: [{limit: a, users: ['*'], maxapplications: 99}]",
        {"event.ringBufferCapacity": "5", "event.requestCapacity": "1", "health.checkInterval": "1s"},
    ),
)
"""Settings of a partition, its queues, and service settings; each start is followed by a change to the next ones."""


class Load:
    """The resource managers under load, and the system that they use."""

    def __init__(self, system: System, seed: int) -> None:
        self.system = system
        self.rms: Sequence[ChaosRm] = ()
        self.counts = Counter[str]()
        """Asks, changes of the configuration by outcome, and snapshots that were found when a system was killed."""
        self._rng = random.Random(seed)
        self._logs: list[str] = []
        self._submitting: list[asyncio.Task[None]] = []
        self._changing: list[asyncio.Task[None]] = []
        self._asked = Counter[str]()
        self._finishing = False
        self._snapshots: set[str] = set()
        """The files that were known at the last start."""

    # Builds -----------------------------------------------------------------------------------------------------------

    async def run(self, build: Build, how: signal.Signals) -> None:
        """Start a build, wait until it works for each resource manager, then stop or kill it under load."""
        await self.start(build)
        await asyncio.sleep(self._rng.uniform(0, 0.1))
        await self.end(how)

    async def start(self, build: Build) -> None:
        """Start a build, and wait until it works for each resource manager."""
        self._snapshots = self._list_snapshots()
        folder = self.system.folder / f"plugins-{self.system.starts}"
        arguments, variables = build.install(folder)
        await asyncio.to_thread(partial(self.system.revive, *arguments, variables=variables))
        if not self.rms:
            self.rms = [await ChaosRm.joined(self.system.native, rm_id, names) for rm_id, names in RMS.items()]
            self._submitting = [asyncio.create_task(self._submit(rm)) for rm in self.rms]
        async with asyncio.timeout(ROUND_MAX_S):
            await asyncio.gather(*self._changing)  # those that the end of the last build interrupted
        self._changing = [asyncio.create_task(self._change_configuration(rm)) for rm in self.rms]
        before = [(rm, rm.books.waiting, len(rm.books.asked), len(rm.books.ended)) for rm in self.rms]
        try:
            async with asyncio.timeout(ROUND_MAX_S):
                for rm, waiting, asked, ended in before:
                    enough = asked - waiting + ALLOCATED_MIN
                    await rm.until(
                        lambda rm=rm, enough=enough, ended=ended: (
                            len(rm.books.asked) - rm.books.waiting >= enough
                            and len(rm.books.ended) >= ended + ALLOCATED_MIN
                        )
                    )
        except TimeoutError:
            self.check()
            for task in self._submitting:
                assert not task.done(), task.exception()
            counts = {rm.rm_id: list(rm.books.counts()) for rm in self.rms}
            raise AssertionError(f"{build.name} is stuck: {counts}\n{self.system.last_words}") from None
        self.check()

    async def end(self, how: signal.Signals) -> None:
        """Stop the system in order, or kill all of its processes."""
        if how is signal.SIGKILL:
            before = self._snapshots
            self._snapshots = self._list_snapshots()
            self.counts["snapshots"] += len(self._snapshots - before)
            await asyncio.to_thread(self.system.kill)
        else:
            status = await asyncio.to_thread(self.system.up.stop, how)
            assert status == 0, self.system.last_words
        self._logs.append(self.system.up.errors)
        self.check()

    def _list_snapshots(self) -> set[str]:
        return {path.name for path in (self.system.state / "journals").glob("*.snapshot-*")}

    def check(self) -> None:
        """Check what must not happen in any round."""
        complaints = [f"{rm.rm_id}: {text}" for rm in self.rms for text in rm.books.complaints]
        assert not complaints, "\n".join(complaints[:20]) + f"\n{self.system.last_words}"

    # Resource managers ------------------------------------------------------------------------------------------------

    async def _submit(self, rm: ChaosRm) -> None:
        gang: list[Ask] = []
        while not self._finishing:
            await asyncio.sleep(BATCH_EVERY_S)
            await rm.until(lambda: rm.books.waiting < WAITING_MAX)
            await rm.ask([self._make_ask(rm) for _ in range(BATCH_ASKS)])
            if all(one.key in rm.books.running for one in gang):
                replacing = [replace(one, key=f"{one.key}-real", placeholder=False, run_s=RUN_MAX_S) for one in gang]
                gang = self._make_gang(rm)
                self.counts["gangs"] += 1
                await rm.ask([*replacing, *gang])

    def _make_gang(self, rm: ChaosRm) -> list[Ask]:
        """The placeholders of a gang, an application of its own."""
        first = replace(self._make_ask(rm), run_s=0.0, placeholder=True, task_group="workers")
        name = f"gang-{first.key}"
        return [replace(first, key=f"{name}-{number}", application=name) for number in range(GANG_ASKS)]

    def _make_ask(self, rm: ChaosRm) -> Ask:
        self._asked[rm.rm_id] += 1
        self.counts["asks"] += 1
        number = self._asked[rm.rm_id]
        first = number <= len(rm.partitions) * APPLICATIONS
        return Ask(
            key=f"{rm.rm_id}-{number}",
            application=f"app-{number // len(rm.partitions) % APPLICATIONS}",
            partition=rm.partitions[number % len(rm.partitions)],
            vcore=self._rng.randrange(1, 50) * 100,
            run_s=0.0 if first or number % STAYS == 0 else self._rng.uniform(0.01, RUN_MAX_S),
        )

    async def _change_configuration(self, rm: ChaosRm) -> None:
        """Change the configuration while the system may end; then the outcome may be unknown."""
        settings, queues, extra = CONFIGURATIONS[self.system.starts % len(CONFIGURATIONS)]
        names = [external_name(rm.rm_id, partition) for partition in rm.partitions]
        text = f"partitions: [{', '.join(f'{{name: {name}, {settings}, {queues}}}' for name in names)}]"
        try:
            await rm.change_configuration(text, extra)
            self.counts["made"] += 1
        except OutcomeUnknown:
            self.counts["unknown"] += 1
        except ConfigurationRefused as refused:
            if refused.code != "busy":
                raise
            self.counts["busy"] += 1

    # Audit ------------------------------------------------------------------------------------------------------------

    async def finish(self, build: Build) -> None:
        """Start a build, let all work end, and compare what everybody knows."""
        await self.start(build)
        self._finishing = True
        await asyncio.gather(*self._submitting, *self._changing)
        await verdict.quiet(self.rms)
        self.check()
        partitions = [name for rm in self.rms for name in rm.partitions]
        running = {
            (rm.books.asked[key].partition, key): node for rm in self.rms for key, node in rm.books.running.items()
        }
        assert await asyncio.to_thread(self._allocations_over_rest, partitions) == running
        for node in running.values():
            self.counts["odd nodes" if int(node.rpartition("-n")[2]) % 2 else "even nodes"] += 1
        journals = await asyncio.to_thread(verdict.allocations_in_journals, self.system.state, partitions)
        assert not verdict.differences("the journal", verdict.allocations(self.rms), journals)
        assert not list((self.system.state / "journals").glob("*.damaged*"))
        await self.end(signal.SIGTERM)
        for words in ("starts empty", "report everything", "was moved to", "Traceback"):
            lines = [line for log in self._logs for line in log.splitlines() if words in line]
            assert not lines, lines[:5]

    def _allocations_over_rest(self, partitions: Sequence[str]) -> dict[tuple[str, str], str]:
        """The node of each allocation."""
        found: dict[tuple[str, str], str] = {}
        for partition in partitions:
            for node in self.system.rest.read(f"/ws/v1/partition/{quoted(partition)}/nodes"):
                for one in node.get("allocations", ()):
                    assert (partition, one["allocationKey"]) not in found, one
                    found[partition, one["allocationKey"]] = node["nodeID"]
        return found

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in (*self._submitting, *self._changing):
            task.cancel()
        await asyncio.gather(*self._submitting, *self._changing, return_exceptions=True)
        for rm in self.rms:
            await rm.abandon()


async def play(
    folder: Path, builds: Sequence[Build], rounds: int, *, seed: int, first: Build | None = None
) -> Counter[str]:
    """Run these builds in turn, the `first` one before them, each until it has worked for all resource managers; two
    are killed, then two stopped in order. Return how often what happened.
    """
    with System(folder, spares=0) as system:
        async with Load(system, seed) as load:
            if first is not None:
                await load.run(first, signal.SIGKILL)
            for number in range(rounds):
                how = signal.SIGTERM if number // len(builds) % 2 else signal.SIGKILL
                await load.run(builds[number % len(builds)], how)
            await load.finish(builds[rounds % len(builds)])
            return load.counts
