"""A moment as people write it: RFC 3339, seconds since the epoch, or so long ago.

Not here: what is asked about it.
"""

import re
from datetime import datetime
from typing import Final

from common.durations import seconds
from common.messages import INT64_MAX

_EPOCH: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+ -][0-9]{2}:[0-9]{2})"
)
_NS: Final = 10**9


def moment_ns(text: str, now_ns: int) -> int | None:
    """In Unix nanoseconds; None if the text is none.

    >>> [moment_ns(text, 90 * 10**9) for text in ("-1m", "7.5", "1970-01-01T00:00:01Z", "1970-01-01T01:00:01+01:00")]
    [30000000000, 7500000000, 1000000000, 1000000000]
    """
    if text.startswith("-"):
        ago_s = seconds(text)
        return None if ago_s is None else _bounded(now_ns + round(ago_s * _NS))
    if _EPOCH.fullmatch(text):
        whole, _, fraction = text.partition(".")
        return _bounded(int(whole) * _NS + int(fraction.ljust(9, "0")))
    return _rfc3339_ns(text) if _RFC3339.fullmatch(text) else None


def _rfc3339_ns(text: str) -> int | None:
    """A plus that nobody escaped in a query has become a blank."""
    given = text[:-6] + text[-6:].replace(" ", "+")
    try:
        return _bounded(round(datetime.fromisoformat(given.upper()).timestamp() * 10**6) * 1000)
    except (ValueError, OverflowError):
        return None


def _bounded(at_ns: int) -> int:
    return max(0, min(at_ns, INT64_MAX))
