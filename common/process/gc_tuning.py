"""Settings of Python's garbage collector for servers: rare collections, and none while a large state is built.

The state of a process lives long, and messages make no reference cycles, so the collector hardly ever finds garbage;
but it visits each object once or twice, and sometimes all of them. With 769,000 allocations that takes a worker 276 ms,
so a worker freezes what survives two collections: no collection visits it again.
"""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

YOUNG_OBJECTS: Final = 10_000
"""New objects between two collections, each of which takes half a millisecond and visits each new object once."""

MIDDLE_AFTER: Final = 0
"""Collections of new objects before one that also visits their survivors. With 0, every second collection does, in at
most 4 ms; with Python's 10, every twelfth does, in 20 ms.
"""

OLD_AFTER: Final = 50
"""Such collections before one that visits all objects, if their number has grown by a quarter."""


def collect_rarely() -> None:
    """Configure the collector for a server. Present objects are never visited."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, MIDDLE_AFTER, OLD_AFTER)


def freeze_survivors() -> None:
    """From now on, visit no object again that has survived a collection of middle-aged objects, as present ones.

    A cycle that becomes garbage later is never freed. That is right for a worker, whose objects leave no cycles behind
    (`tests/partition_worker/engine/test_growth.py`), but not for processes with many short connections.
    """
    gc.freeze()
    gc.callbacks.append(freeze_after_collection)


def collect_new() -> None:
    """Collect what was not visited yet, in about 1 ms for 10,000 objects; what survives is frozen.

    Python counts an object that is freed, also an old one, against the new ones. Where each new object replaces an old
    one, it would wait until hundreds of thousands are new, and then take a tenth of a second for them.
    """
    gc.collect(1)


def freeze_after_collection(phase: str, info: Mapping[str, int]) -> None:
    """Freeze what is left after a collection of middle-aged objects, so that none of all objects is ever due."""
    if phase == "stop" and info["generation"] > 0:
        gc.freeze()


@contextmanager
def pause_collector() -> Iterator[None]:
    """Collect nothing meanwhile, as hardly one of the thousands of new objects becomes garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
