"""The queue properties: their names, and the values that they accept.

A file may hold any property with any value; a value that is not accepted means the default. The engine reads values
with the parsers of this module, and `warnings.py` reports values that mean the default although they seem to say
something else. Not here: what the properties do, and which of them children inherit (the engine's queues).
"""

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Final, NamedTuple

from yunishard.common.node_sort_policies import NODE_SORT_POLICIES, PACK, parse_node_choice
from yunishard.common.text_formats import parse_duration

SIMILARITY_MIN: Final = 0.86
"""Ratio of `difflib` above which a key is reported as a misspelled property: one or two wrong letters."""


class Property(NamedTuple):
    """A property. `accepts` returns whether a value is accepted: neither None nor False."""

    values: str
    """Description of the accepted values."""
    default: str
    """The meaning of every other value."""
    accepts: Callable[[str], object]

    def misreads(self, value: str) -> bool:
        """Whether a value is not accepted, and seems to say something else than the default that it means."""
        found = self.accepts(value)
        if (found is not None and found is not False) or not value.strip() or value.lower() == self.default:
            return False
        duration = parse_duration(value)
        return duration is None or duration != parse_duration(self.default)


def _parse_integer(text: str, allowed: range, pattern: str = "[0-9]{1,20}") -> int | None:
    value = int(text) if re.fullmatch(pattern, text) else None
    return value if value is not None and value in allowed else None


def parse_priority_offset(text: str) -> int | None:
    """Parse a signed number of 32 bits."""
    return _parse_integer(text, range(-(2**31), 2**31), "[+-]?[0-9]{1,20}")


def parse_delay(text: str) -> float | None:
    """Parse a duration above zero, in seconds."""
    duration = parse_duration(text)
    return duration if duration is not None and duration > 0 else None


def parse_backoff_attempts(text: str) -> int | None:
    """Parse an unsigned number of 64 bits; 0 is off."""
    return _parse_integer(text, range(2**64))


def parse_allocation_batch(text: str) -> int | None:
    """Parse a number of asks above zero."""
    return _parse_integer(text, range(1, 2**31), "[0-9]{1,10}")


def _word(*words: str) -> Property:
    """One of some words in any case, of which the first is the default."""
    return Property(" or ".join((", ".join(words[:-1]), words[-1])), words[0], lambda value: value.lower() in words)


def _duration(default: str) -> Property:
    return Property("a duration above zero with its unit, such as 90s or 1h30m", default, parse_delay)


PROPERTIES: Final[Mapping[str, Property]] = {
    "application.sort.policy": Property(
        "fifo, fair or stateaware, in lower case", "fifo", lambda value: value in ("fifo", "fair", "stateaware")
    ),
    "application.sort.priority": _word("enabled", "disabled"),
    "application.unschedasks.backoff": Property("a whole number, 0 for off", "0", parse_backoff_attempts),
    "application.unschedasks.backoff.delay": _duration("30s"),
    "priority.policy": _word("default", "fence"),
    "priority.offset": Property("a whole number from -2147483648 to 2147483647", "0", parse_priority_offset),
    "preemption.policy": _word("default", "fence", "disabled"),
    "preemption.delay": _duration("30s"),
    "preemption.cooldown": _duration("5m"),
    "quota.preemption.delay": _duration("0"),
    "node.sort.policy": Property(
        f"{', '.join(NODE_SORT_POLICIES)} or {PACK}", "the order of the partition", parse_node_choice
    ),
    "allocation.batch": Property("a whole number above zero", "1", parse_allocation_batch),
}
"""Every property that has a meaning, by its exact name."""


def _parts(key: str) -> tuple[str, ...]:
    return tuple(sorted(re.split("[^a-z0-9]+", key.lower())))


_BY_PARTS: Final = {_parts(name): name for name in PROPERTIES}
_KEY_MAX: Final = 2 * max(map(len, PROPERTIES))  # a longer key is similar to none


@lru_cache(maxsize=1024)  # many queues have the same keys
def find_similar_property(key: str) -> str:
    """Return the property that a key resembles; empty if there is none, or the key is a property.

    A similar key has the same words in another order, case or with other separators, or differs by one or two letters.
    """
    if key in PROPERTIES or len(key) > _KEY_MAX:
        return ""
    return _BY_PARTS.get(_parts(key)) or next(iter(get_close_matches(key.lower(), PROPERTIES, 1, SIMILARITY_MIN)), "")
