"""The queue properties that mean something: what they are called, and which values they take.

A file may hold any property with any value; one that is not taken means the default. So there are two readers: what
runs the queues, and what tells people that a value does not do what it seems to say.

Not here: what the properties do and which of them children inherit (the engine's queues), warnings (`doubt_queues.py`).
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from common.node_sort_policies import NODE_SORT_POLICIES, PACK, parse_node_choice
from common.text_formats import parse_duration

EDITS_MAX: Final = 2
"""Letters added, left out or replaced in a key that is still taken for a slip of the pen."""

_INT32: Final = range(-(2**31), 2**31)
_UINT64: Final = range(2**64)


class Property(NamedTuple):
    """What is known of one property."""

    values: str
    """For people."""
    default: str
    """What any value that is not taken means."""
    takes: Callable[[str], object]
    """Whether a value is taken: true or not None."""

    def misreads(self, value: str) -> bool:
        """Whether a value is not taken, and seems to say something else than the default that it means."""
        if self._accepts(value) or not value.strip() or value.lower() == self.default:
            return False
        duration = parse_duration(value)
        return duration is None or duration != parse_duration(self.default)

    def _accepts(self, value: str) -> bool:
        taken = self.takes(value)
        return taken is not None and taken is not False


def priority_offset(text: str) -> int | None:
    """Read a signed number of 32 bits."""
    value = int(text) if re.fullmatch(r"[+-]?[0-9]{1,20}", text) else None
    return None if value is None or value not in _INT32 else value


def delay_s(text: str) -> float | None:
    """Read a duration above zero, in seconds."""
    duration = parse_duration(text)
    return duration if duration is not None and duration > 0 else None


def back_off_after(text: str) -> int | None:
    """Read an unsigned number of 64 bits; 0 is off."""
    value = int(text) if re.fullmatch(r"[0-9]{1,20}", text) else None
    return None if value is None or value not in _UINT64 else value


def allocation_batch(text: str) -> int | None:
    """Read a number of asks above zero."""
    value = int(text) if re.fullmatch(r"[0-9]{1,10}", text) else None
    return None if value is None or value not in _INT32 or value < 1 else value


def _word(*words: str) -> Property:
    """One of some words in any case, of which the first is the default."""
    return Property(" or ".join((", ".join(words[:-1]), words[-1])), words[0], lambda value: value.lower() in words)


def _duration(default: str) -> Property:
    return Property("a duration above zero with its unit, such as 90s or 1h30m", default, delay_s)


PROPERTIES: Final[Mapping[str, Property]] = {
    "application.sort.policy": Property(
        "fifo, fair or stateaware, in lower case", "fifo", lambda value: value in ("fifo", "fair", "stateaware")
    ),
    "application.sort.priority": _word("enabled", "disabled"),
    "application.unschedasks.backoff": Property("a whole number, 0 for off", "0", back_off_after),
    "application.unschedasks.backoff.delay": _duration("30s"),
    "priority.policy": _word("default", "fence"),
    "priority.offset": Property("a whole number from -2147483648 to 2147483647", "0", priority_offset),
    "preemption.policy": _word("default", "fence", "disabled"),
    "preemption.delay": _duration("30s"),
    "quota.preemption.delay": _duration("0"),
    "node.sort.policy": Property(
        f"{', '.join(NODE_SORT_POLICIES)} or {PACK}",
        "the order of the partition",
        parse_node_choice,
    ),
    "allocation.batch": Property("a whole number above zero", "1", allocation_batch),
}
"""Every property that means something, by its exact name."""


def _parts(key: str) -> tuple[str, ...]:
    return tuple(sorted(re.split("[^a-z0-9]+", key.lower())))


def _letters(key: str) -> str:
    return re.sub("[^a-z0-9]+", "", key.lower())


_BY_PARTS: Final = {_parts(name): name for name in PROPERTIES}
_BY_LETTERS: Final = {_letters(name): name for name in PROPERTIES}
_KEY_MAX: Final = 2 * max(map(len, PROPERTIES))  # a longer one is compared with nothing


@lru_cache(maxsize=1024)  # the same slip stands at many queues
def find_similar_property(key: str) -> str:
    """Return the property that a key looks like without being it; empty if it looks like none, or is one.

    It has the same words in another order, case or with other separators between them, or is a few letters off.
    """
    if key in PROPERTIES or len(key) > _KEY_MAX:
        return ""
    same = _BY_PARTS.get(_parts(key)) or _BY_LETTERS.get(_letters(key))
    return same or next((name for name in PROPERTIES if _is_near(key.lower(), name, EDITS_MAX)), "")


def _is_near(left: str, right: str, edits: int) -> bool:
    """Whether so many letters added, left out or replaced make one text of the other."""
    if abs(len(left) - len(right)) > edits:
        return False
    if left == right or not edits:
        return left == right
    at = next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    tails = ((at + 1, at), (at, at + 1), (at + 1, at + 1))
    return any(_is_near(left[from_left:], right[from_right:], edits - 1) for from_left, from_right in tails)
