"""What everybody says runs in the end: the resource managers' own books, REST, and the journals.

Not here: the way there (`conductor.py`).
"""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tests.chaos.rm import ChaosRm
from tests.conformance.rest import Rest, quoted

QUIET_MAX_S: Final = 30.0
YUNISHARD: Final = Path(sys.executable).with_name("yunishard")

Sums = Counter[tuple[str, str]]
"""Vcores, or allocations, by partition and application."""


async def quiet(rms: Sequence[ChaosRm]) -> None:
    """Wait until everything that was to end has ended, so that there is one truth."""
    async with asyncio.timeout(QUIET_MAX_S):
        await asyncio.gather(*(rm.until(partial(_is_quiet, rm)) for rm in rms))


def _is_quiet(rm: ChaosRm) -> bool:
    return rm.books.quiet


def vcores(rms: Sequence[ChaosRm]) -> Sums:
    """As the resource managers know it."""
    return sum((rm.books.sums() for rm in rms), Counter())


def allocations(rms: Sequence[ChaosRm]) -> Sums:
    """How many run, as the resource managers know it."""
    asks = (rm.books.asked[key] for rm in rms for key in rm.books.running)
    return Counter((ask.partition, ask.application) for ask in asks)


def vcores_over_rest(rest: Rest, partitions: Sequence[str]) -> Sums:
    """As REST shows it."""
    found: Sums = Counter()
    for partition in partitions:
        path = f"/ws/v1/partition/{quoted(partition)}/applications/active"
        for application in rest.read(path):
            found[partition, application["applicationID"]] += application["usedResource"].get("vcore", 0)
    return +found


def allocations_in_journals(state: Path, partitions: Sequence[str]) -> Sums:
    """As the journals say."""
    found: Sums = Counter()
    for partition in partitions:
        answer = subprocess.run(
            [YUNISHARD, "journal", "sums", partition, "--state", str(state), "--json"],
            capture_output=True,
            check=True,
            text=True,
        )
        sums: dict[str, dict[str, int]] = json.loads(answer.stdout)["applications"]
        for application, of_it in sums.items():
            found[partition, application] += of_it["running"]
    return +found


def differences(name: str, expected: Sums, found: Sums) -> list[str]:
    """What somebody says otherwise than the resource managers."""
    keys = sorted({*expected, *found})
    return [
        f"{partition} {application}: {found[partition, application]} by {name}, {expected[partition, application]} "
        "by its resource manager"
        for partition, application in keys
        if found[partition, application] != expected[partition, application]
    ]
