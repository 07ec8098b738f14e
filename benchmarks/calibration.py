"""How fast this machine is just now: a fixed piece of plain Python that does the kind of work the engine does.

What a measurement costs is divided by what this costs right before and after it. That makes figures of
other machines and of busier moments comparable, as far as they can be: memory, caches and the version of Python matter
to both, but not in equal parts. The loop must never change, or no committed figure means anything.
"""

import gc
from bisect import bisect_left, insort
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from time import process_time
from typing import Final

from common import garbage

OBJECTS: Final = 20_000
"""As large in memory as a partition, so that both suffer alike from whoever else uses the caches."""

STRIDE: Final = 7_919
"""From one object to the next: a prime number, so that each has its turn."""

ORDER: Final = 256
STEPS: Final = 40_000
"""About 100 ms."""


class _Thing:
    """Something with a few fields, as nodes and asks are."""

    __slots__ = ("key", "name", "room", "used")

    def __init__(self, number: int) -> None:
        self.name = f"thing-{number}"
        self.room = {"memory": 1000 + number % 7, "vcore": 100_000}
        self.used = {"memory": 0, "vcore": 0}
        self.key = (0.0, number)

    def share(self) -> float:
        return max(self.used[kind] / size for kind, size in self.room.items())


@cache
def _made() -> dict[str, _Thing]:
    """What the loop works on."""
    return {thing.name: thing for thing in map(_Thing, range(OBJECTS))}


def _unused() -> dict[str, _Thing]:
    """The same, with nothing charged."""
    for number, thing in enumerate(_made().values()):
        thing.used["memory"] = thing.used["vcore"] = 0
        thing.key = (0.0, number)
    return _made()


def loop(steps: int = STEPS) -> int:
    """Charge one thing after the other, and keep the latest in order of their shares. A number that depends on all."""
    return _loop(_unused(), steps)


def _loop(things: dict[str, _Thing], steps: int) -> int:
    names, order = list(things), [((0.0, number), "") for number in range(ORDER)]
    need = {"memory": 1, "vcore": 10}
    total = 0
    for step in range(steps):
        thing = things[names[step * STRIDE % len(names)]]
        if all(thing.used[kind] + amount <= thing.room[kind] for kind, amount in need.items()):
            for kind, amount in need.items():
                thing.used[kind] += amount
        thing.key = (thing.share(), step)
        insort(order, (thing.key, thing.name))
        del order[bisect_left(order, order[step % ORDER])]
        total += thing.used["memory"] + len(order[step % ORDER][1])
    return total


def unit_s() -> float:
    """Seconds of processor time that one step takes now."""
    things = _unused()
    began = process_time()
    _loop(things, STEPS)
    return (process_time() - began) / STEPS


@contextmanager
def as_in_a_worker() -> Iterator[None]:
    """Let garbage be collected as seldom as a worker does, and nothing of what is there already."""
    before = gc.get_threshold()
    gc.collect()
    garbage.seldom()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
