"""A batch of any size becomes as many messages as the wire asks for, in the same order.

Not here: the split by partition (`common/split.py`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from common.messages import Command
from common.wire import BODY_BYTES_MAX, WireError, body_of

ITEMS_MAX: Final = 10_000
"""Items in one message: a partition takes them at once, and is busy with them for a second at most."""

_A = TypeVar("_A")
_B = TypeVar("_B")


def pieces(
    make: Callable[[list[_A], list[_B]], Command],
    first: Sequence[_A],
    second: Sequence[_B] = (),
    *,
    bytes_max: int = BODY_BYTES_MAX,
    items_max: int = ITEMS_MAX,
) -> Iterator[Command]:
    """The command with these items, or several that together carry them: all of `first` before all of `second`.

    Raises:
        WireError: a single item is larger than a message may be.
    """
    command = make(list(first), list(second))
    body = body_of(command)
    items = len(first) + len(second)
    if len(body) <= bytes_max and items <= items_max:
        yield command
        return
    half = items // 2
    if not half:
        raise WireError(f"an item takes {len(body)} bytes, at most {bytes_max} are allowed in a message")
    cut = max(0, half - len(first))
    yield from pieces(make, first[:half], second[:cut], bytes_max=bytes_max, items_max=items_max)
    yield from pieces(make, first[half:], second[cut:], bytes_max=bytes_max, items_max=items_max)
