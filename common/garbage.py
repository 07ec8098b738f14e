"""When the collector looks for garbage: seldom, and never amid the making of something large.

What a process keeps lives long, and what passes through it makes no cycles, so that the collector hardly ever finds
anything; but it looks at each object once or twice, and at times at all there are.

Not here: garbage without cycles, which goes by itself.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

YOUNG_OBJECTS: Final = 10_000
"""Objects between two collections, which take half a millisecond: so few at a time make nobody wait for long, and each
object is looked at once however many there are.
"""

MIDDLE_AFTER: Final = 0
"""More than so many collections of new objects, and the next one looks at what they have left, too, which is old from
then on. So every second one does, and takes 4 ms at most; with 10, as is usual, it would be every twelfth, and 20 ms.
"""

OLD_AFTER: Final = 50
"""More than so many of those, and everything is looked at; but only if it has grown by a quarter, too."""


def seldom() -> None:
    """From now on as a server does. What is there already stays, and is never looked at."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, MIDDLE_AFTER, OLD_AFTER)


@contextmanager
def none_expected() -> Iterator[None]:
    """Look for none meanwhile: thousands of objects come, and hardly one goes before all of it is done."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
