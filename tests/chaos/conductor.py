"""The chaos: in each round a few asks are submitted and processes are killed or stopped; the next one comes when every
ask has been allocated and REST answers. How long that took is the recovery.

Not here: what a resource manager notes (`books.py`), and what is compared in the end (`verdict.py`).
"""

import asyncio
import random
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.rm import ChaosRm
from tests.chaos.system import STOPPED_MAX_S, SUPERVISOR, System
from tests.chaos.workload import Workload

RECOVERY_MAX_S: Final = 60.0
BEFORE_MAX_S: Final = 0.2
"""The blow comes at most so long after the asks."""

LOOK_EVERY_S: Final = 0.02


class ChaosError(Exception):
    """What must never happen, and did."""


@dataclass(frozen=True, slots=True)
class Blow:
    """To one process."""

    role: str
    process: int
    stopped_s: float
    """For how long it was stopped; 0 if it was killed."""

    @property
    def sort(self) -> str:
        return f"{'stop' if self.stopped_s else 'kill'} {self.role}"


@dataclass(slots=True)
class Chaos:
    """One run."""

    system: System
    rms: Sequence[ChaosRm]
    workload: Workload
    rng: random.Random
    recoveries: dict[str, list[float]] = field(default_factory=dict)
    """Seconds from a round's first blow to its end, by what it was."""

    async def round(self, asks: int) -> tuple[list[Blow], float]:
        """Submit so many asks, strike, and wait until all is well; what was done, and how long it took to recover."""
        begun = time.monotonic()
        submitting = asyncio.gather(*(rm.ask(self.workload.make(rm, share)) for rm, share in self._shares(asks)))
        await asyncio.sleep(self.rng.uniform(0, BEFORE_MAX_S))
        struck = time.monotonic()
        blows = [blow for blow in (self._strike() for _ in range(self.rng.choice((1, 1, 1, 2)))) if blow is not None]
        try:
            async with asyncio.timeout(RECOVERY_MAX_S):
                await self._recovered(submitting)
        except TimeoutError:
            waiting = {rm.rm_id: rm.books.waiting for rm in self.rms}
            raise ChaosError(
                f"{RECOVERY_MAX_S:g} s after {blows} asks still wait: {waiting}\n{self.system.last_words}"
            ) from None
        self._complain()
        took = time.monotonic() - (struck if blows else begun)
        for blow in blows:
            self.recoveries.setdefault(blow.sort, []).append(took)
        return blows, took

    def _shares(self, asks: int) -> Iterator[tuple[ChaosRm, int]]:
        for number, rm in enumerate(self.rms):
            yield rm, asks // len(self.rms) + (number < asks % len(self.rms))

    def _strike(self) -> Blow | None:
        """Kill or stop a process by chance."""
        running = self.system.processes()
        role = self.rng.choice(sorted(running))
        process = self.rng.choice(sorted(running[role]))
        if self.rng.random() < 0.6:
            return Blow(role, process, 0.0) if self.system.signal(process, signal.SIGKILL) else None
        stopped_s = self.rng.choice((0.1, 0.5, 1.0, STOPPED_MAX_S))
        if role == SUPERVISOR:
            stopped_s = min(stopped_s, 1.0)
        if not self.system.signal(process, signal.SIGSTOP):
            return None
        asyncio.get_running_loop().call_later(stopped_s, self.system.signal, process, signal.SIGCONT)
        return Blow(role, process, stopped_s)

    async def _recovered(self, submitting: "asyncio.Future[list[None]]") -> None:
        while True:
            if self.system.dead:
                await asyncio.to_thread(self.system.revive)
            if any(rm.failure for rm in self.rms):
                raise ChaosError(f"{[rm.failure for rm in self.rms]!r}\n{self.system.last_words}")
            if submitting.done() and not any(rm.books.waiting for rm in self.rms) and await self._answers():
                submitting.result()
                return
            await asyncio.sleep(LOOK_EVERY_S)

    async def _answers(self) -> bool:
        """Whether REST knows all partitions."""
        try:
            found = await asyncio.to_thread(self.system.rest.read, "/ws/v1/partitions")
        except (OSError, LookupError):
            return False
        return len(found) == sum(len(rm.partitions) for rm in self.rms)

    def _complain(self) -> None:
        complaints = [f"{rm.rm_id}: {text}" for rm in self.rms for text in rm.books.complaints]
        if complaints:
            raise ChaosError("\n".join(complaints[:20]) + f"\n{self.system.last_words}")
