"""Whole numbers in questions of people, as texts: what they mean, and how those that mean nothing are refused.

The refusals are in the words that the reference has for a wrong `count` or `start` of events, as `tests/captures` has
recorded them. Not here: settings (`extra_config.py`), which are never refused.
"""

import re
from typing import Final

from common.quoting import quoted

UINT_MAX: Final = 2**64 - 1

_DIGITS: Final = re.compile(r"[0-9]+")


class UnsignedError(ValueError):
    """A text that is no number from 0 to UINT_MAX; its own text says why."""


def unsigned(text: str) -> int | None:
    """The number; None if there is no text.

    Raises:
        UnsignedError: it is no number, or too large.
    """
    if not text:
        return None
    if not _DIGITS.fullmatch(text):
        raise UnsignedError(f"strconv.ParseUint: parsing {quoted(text)}: invalid syntax")
    digits = text.lstrip("0")
    if len(digits) > len(str(UINT_MAX)) or int(digits or "0") > UINT_MAX:
        raise UnsignedError(f"strconv.ParseUint: parsing {quoted(text)}: value out of range")
    return int(digits or "0")
