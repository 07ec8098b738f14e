"""Calibration loop: measures the present speed of the machine with fixed Python code that resembles the engine's work.

A measurement is divided by the duration of this loop right before and after it. This makes figures of
other machines and of busy moments roughly comparable: memory, caches and the version of Python affect
both, though not equally. The loop must never change, because committed figures are multiples of it.
"""

import gc
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from time import process_time
from typing import Final, TypeVar

from yunishard.common.process import gc_tuning

OBJECTS: Final = 20_000
"""As large in memory as a partition, so that other users of the caches slow down both alike."""

STRIDE: Final = 7_919
"""Distance between visited objects: a prime number, so that every object is visited."""

ORDER: Final = 256
STEPS: Final = 40_000
"""About 100 ms."""

T = TypeVar("T")


class _Thing:
    """An object with a few fields, like a node or an ask."""

    __slots__ = ("key", "name", "room", "used")

    def __init__(self, number: int) -> None:
        self.name = f"thing-{number}"
        self.room = {"memory": 1000 + number % 7, "vcore": 100_000}
        self.used = {"memory": 0, "vcore": 0}
        self.key = (0.0, number)

    def share(self) -> float:
        return max(self.used[kind] / size for kind, size in self.room.items())


@cache
def _make_things() -> dict[str, _Thing]:
    """The objects of the loop."""
    return {thing.name: thing for thing in map(_Thing, range(OBJECTS))}


def _reset_things() -> dict[str, _Thing]:
    """The same objects with nothing charged."""
    for number, thing in enumerate(_make_things().values()):
        thing.used["memory"] = thing.used["vcore"] = 0
        thing.key = (0.0, number)
    return _make_things()


def loop(steps: int = STEPS) -> int:
    """Charge one object after the other, and keep the latest in order of their shares. Returns a checksum."""
    return _loop(_reset_things(), steps)


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
    """Measure the processor time of one step, in seconds."""
    things = _reset_things()
    began = process_time()
    _loop(things, STEPS)
    return (process_time() - began) / STEPS


def calibrated(work: Callable[[], T]) -> tuple[T, float]:
    """Call a function; returns its result, and the processor time of a step right before and after it, in seconds."""
    before = unit_s()
    result = work()
    return result, (before + unit_s()) / 2


@contextmanager
def as_in_a_worker() -> Iterator[None]:
    """Use the garbage collection settings of a worker, and exclude existing objects."""
    before = gc.get_threshold()
    gc.collect()
    gc_tuning.collect_rarely()
    gc_tuning.freeze_survivors()
    try:
        yield
    finally:
        gc.callbacks.remove(gc_tuning.freeze_after_collection)
        gc.set_threshold(*before)
        gc.unfreeze()
