"""Many attacks on machines and readers in this process, and what broke.

Not here: the arena, the readers, and what they are given.
"""

import random
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from tests.fuzz.arena import PLACES, attack
from tests.fuzz.examples import Frames
from tests.fuzz.found import kept
from tests.fuzz.readers import Target, spoiled, targets

ATTACK: Final = 1_500
"""Messages of one attack, in a world of its own."""

PROCESSES: Final = 2
SLOW: Final = frozenset({"journal", "record", "settings", "key", "snapshot file"})
"""Readers of files, which get a tenth of what others get."""


def attacked(place: str, seed: int, count: int = ATTACK) -> str:
    """What broke, and how to see it again; empty for nothing."""
    sent: list[tuple[str, Frames]] = []
    try:
        sent.extend(attack(place, random.Random(seed), count))
    except Exception as error:  # whatever it is, it is what we look for
        problem = f"{type(error).__name__}: {error}"
        return f"seed {seed}: {place}: {problem[:500]}\n{kept(sent, problem[:200])}"
    return ""


def read(seed: int, count: int) -> str:
    """The same of everything that reads."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        readers = targets(Path(folder))
        rng = random.Random(seed)
        each = max(count // len(readers), 1)
        for name, target in readers.items():
            for _ in range(each // 10 + 1 if name in SLOW else each):
                data = spoiled(rng, target)
                problem = complaint(target, data)
                if problem:
                    return f"seed {seed}: {name}: {problem[:500]}\n{kept([(name, [data])], problem[:200])}"
    return ""


def complaint(target: Target, data: bytes) -> str:
    """What it says about this, if it may not."""
    try:
        target.read(data)
    except target.raises:
        return ""
    except Exception as error:  # whatever it is, it is what we look for
        return f"{type(error).__name__}: {error}"
    return ""


def all_attacks(count: int, seed: int) -> Iterator[tuple[int, str]]:
    """So many messages, evenly to all places and readers: how many were sent together, and what broke."""
    size = min(ATTACK, max(count // (len(PLACES) + 1), 1))
    rounds = -(-count // (size * (len(PLACES) + 1)))
    with ProcessPoolExecutor(PROCESSES) as pool:
        jobs = [
            (
                size,
                pool.submit(attacked, place, seed + number, size) if place else pool.submit(read, seed + number, size),
            )
            for number in range(rounds)
            for place in (*PLACES, "")
        ]
        for sent, job in jobs:
            yield sent, job.result()
