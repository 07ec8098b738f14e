"""A batch of any size becomes as many messages as the wire asks for, in the same order.

Not here: the split by partition (`common/split.py`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from common.messages import Command
from common.wire import BODY_BYTES_MAX, WireError, body_of

_A = TypeVar("_A")
_B = TypeVar("_B")


def pieces(
    make: Callable[[list[_A], list[_B]], Command],
    first: Sequence[_A],
    second: Sequence[_B] = (),
    *,
    bytes_max: int = BODY_BYTES_MAX,
) -> Iterator[Command]:
    """The command with these items, or several that together carry them: all of `first` before all of `second`.

    Raises:
        WireError: a single item is larger than a message may be.
    """
    command = make(list(first), list(second))
    body = body_of(command)
    if len(body) <= bytes_max:
        yield command
        return
    half = (len(first) + len(second)) // 2
    if not half:
        raise WireError(f"an item takes {len(body)} bytes, at most {bytes_max} are allowed in a message")
    cut = max(0, half - len(first))
    yield from pieces(make, first[:half], second[:cut], bytes_max=bytes_max)
    yield from pieces(make, first[half:], second[cut:], bytes_max=bytes_max)
