"""One run of the chaos, from the first process to the verdict."""

import asyncio
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.chaos import verdict
from tests.chaos.conductor import Chaos, ChaosError
from tests.chaos.rm import ChaosRm
from tests.chaos.system import System
from tests.chaos.workload import Workload

RMS: Final = {"alpha": ("default", "gpu"), "beta": ("default",), "gamma": ("default",)}
"""Partitions by resource manager; several have the same name on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a run is to be."""

    seed: int
    blows: int
    asks: int
    spares: int = 1


async def play(run: Run, say: Callable[[int, str], None]) -> Chaos:
    """Play it; `say` hears after each round how many blows there have been, and what happened.

    Raises:
        ChaosError: something was lost, doubled, or did not recover.
    """
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder, System(Path(folder), spares=run.spares) as system:
        system.revive()
        rms = [await ChaosRm.joined(system.native, rm_id, names) for rm_id, names in RMS.items()]
        chaos = Chaos(system, rms, Workload(), random.Random(run.seed))
        blows, per_blow = 0, max(run.asks // run.blows, 1)
        while blows < run.blows or chaos.workload.total < run.asks:
            left = run.asks - chaos.workload.total
            share = left if blows >= run.blows else min(per_blow, left)
            done, took = await chaos.round(share)
            blows += len(done)
            say(blows, f"{', '.join(blow.sort for blow in done) or 'nothing'}: well after {took:.1f} s")
        await _judge(system, rms)
        for rm in rms:
            await rm.close()
    return chaos


async def _judge(system: System, rms: list[ChaosRm]) -> None:
    try:
        await verdict.quiet(rms)
    except TimeoutError:
        left = {rm.rm_id: (rm.books.waiting, len(rm.books.leaving)) for rm in rms}
        raise ChaosError(f"never quiet, waiting and leaving: {left}\n{system.last_words}") from None
    partitions = [name for rm in rms for name in rm.partitions]
    rest = await asyncio.to_thread(verdict.vcores_over_rest, system.rest, partitions)
    journals = await asyncio.to_thread(verdict.allocations_in_journals, system.state, partitions)
    wrong = [
        *verdict.differences("REST", verdict.vcores(rms), rest),
        *verdict.differences("the journal", verdict.allocations(rms), journals),
    ]
    if wrong:
        raise ChaosError("\n".join(wrong[:20]))
