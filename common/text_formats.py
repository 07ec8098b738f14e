"""Text formats: durations, unsigned integers, quoted text, errors of files, and amounts, times and counts as operators
read them: "40 vcore", "12.5 GiB", "3 min ago".
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from yunishard.common.resources import CORES

UINT_MAX: Final = 2**64 - 1

_UNIT_S: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_TERM: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_DURATION: Final = re.compile(rf"([+-]?)((?:{_TERM.pattern})+|0)")
_ESCAPES: Final = dict(zip('\a\b\f\n\r\t\v\\"', (f"\\{letter}" for letter in 'abfnrtv\\"'), strict=True))


def parse_duration(text: str) -> float | None:
    """Return the seconds of a duration such as `1h30m`, `1.5s` or `-500ms`; None if the text is none."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    total = sum(float(number) * _UNIT_S[unit] for number, unit in _TERM.findall(match[2]))
    return -total if match[1] == "-" else total


class UnsignedError(ValueError):
    """A text that is not a number from 0 to UINT_MAX; the message is the one of YuniKorn."""


def parse_unsigned(text: str) -> int | None:
    """Return the number of a query parameter; None if the text is empty.

    Raises:
        UnsignedError: the text is not a number, or too large.
    """
    if not text:
        return None
    if not re.fullmatch("[0-9]+", text):
        raise UnsignedError(f"strconv.ParseUint: parsing {quote(text)}: invalid syntax")
    digits = text.lstrip("0")
    if len(digits) > len(str(UINT_MAX)) or int(digits or "0") > UINT_MAX:
        raise UnsignedError(f"strconv.ParseUint: parsing {quote(text)}: value out of range")
    return int(digits or "0")


def quote(text: str | bytes) -> str:
    """Return a text from outside in double quotes, with the escapes of Go, also for bytes that are not UTF-8.

    All characters are visible, and none can be taken for a part of the surrounding message.
    """
    if isinstance(text, bytes):
        text = text.decode(errors="surrogateescape")
    return '"' + "".join(map(_escape, text)) + '"'


def _escape(character: str) -> str:
    number = ord(character)
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    if number <= 0x7F:
        return f"\\x{number:02x}"
    if 0xDC80 <= number <= 0xDCFF:  # a byte that is not UTF-8
        return f"\\x{number - 0xDC00:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def format_count(count: int, noun: str) -> str:
    """Return a number with its noun.

    >>> format_count(1, "RM"), format_count(0, "journal step"), format_count(12_345, "byte")
    ('1 RM', '0 journal steps', '12345 bytes')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


def describe_file_error(error: OSError | UnicodeDecodeError) -> str:
    """Describe why a file cannot be read or written, without its path."""
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 text (byte {error.start})"
    return (error.strerror or str(error)).lower()


# Amounts, times and counts as operators read them ---------------------------------------------------------------------
#
# The dashboard has the same formats in `yunishard/webservice/ui/units.js`. The time of now is an argument, because the
# engine's explanations use these formats, too. Quantities of configurations and the SDK are in `common/resources.py`.

MEMORY: Final = "memory"

FIRST: Final = (CORES, MEMORY)
"""Resource types that come before all others."""

NONE: Final = "none"
"""An empty amount."""

UNKNOWN: Final = "-"
"""A value that is not set, or that the viewer may not see."""

CACHED_MAX: Final = 4096
"""Cached figures: a list of thousands of rows has mostly the same ones."""

_BYTES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_IN_BYTES: Final = frozenset({MEMORY, "ephemeral-storage", "storage"})
_STEPS: Final = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
_MILLI: Final = 1000
_NS: Final = 10**9
_LARGE: Final = 100
"""A figure without decimals from here on, as 100 and its tenth part look alike."""


def is_bytes(kind: str) -> bool:
    """Whether amounts of this resource type are bytes."""
    return kind in _IN_BYTES or kind.startswith("hugepages-")


def list_kinds(*amounts: Mapping[str, object] | None) -> list[str]:
    """Return the resource types of all amounts: cores and memory first, then by name."""
    found = {kind for one in amounts if one for kind in one}
    return [*(kind for kind in FIRST if kind in found), *sorted(found.difference(FIRST))]


def format_decimal(value: float) -> str:
    """Return a number with at most three digits or as many as it has before the point.

    >>> format_decimal(12.5), format_decimal(0.25), format_decimal(1234.5), format_decimal(3.0)
    ('12.5', '0.25', '1234', '3')
    """
    size = abs(value)
    digits = 0 if size >= _LARGE else 1 if size >= _LARGE / 10 else 2 if size >= 1 / _LARGE else 3
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_bytes(value: float) -> str:
    """Return a number of bytes with a binary unit.

    >>> format_bytes(13_421_772_800), format_bytes(512)
    ('12.5 GiB', '512 B')
    """
    unit = 0
    while abs(value) >= 1024 and unit < len(_BYTES) - 1:
        value /= 1024
        unit += 1
    return f"{format_decimal(value)} {_BYTES[unit]}"


@lru_cache(maxsize=CACHED_MAX)
def format_figure(kind: str, value: int) -> str:
    """Return an amount without the name of its type, except for the unit of bytes.

    >>> format_figure("vcore", 40_000), format_figure("memory", 1 << 30), format_figure("gpu", 3)
    ('40', '1 GiB', '3')
    """
    if is_bytes(kind):
        return format_bytes(value)
    return format_decimal(value / _MILLI) if kind == CORES else f"{value:,}"


def format_amount(kind: str, value: int) -> str:
    """Return an amount of a resource type.

    >>> format_amount("vcore", 2_500), format_amount("memory", 1 << 30), format_amount("storage", 1 << 20)
    ('2.5 vcore', '1 GiB', '1 MiB storage')
    """
    figure = format_figure(kind, value)
    return figure if kind == MEMORY else f"{figure} {kind}"


def format_resources(resources: Mapping[str, int] | None, *, limit: bool = False) -> str:
    """Return all amounts but zeros; of a `limit` the zeros, too, because they permit nothing.

    >>> format_resources({"memory": 1 << 30, "vcore": 500, "gpu": 0})
    '0.5 vcore, 1 GiB'
    >>> format_resources({"gpu": 0}), format_resources({"gpu": 0}, limit=True), format_resources(None)
    ('none', '0 gpu', '-')
    """
    if resources is None:
        return UNKNOWN
    shown = [kind for kind in list_kinds(resources) if limit or resources[kind]]
    return ", ".join(format_amount(kind, resources[kind]) for kind in shown) or (UNKNOWN if limit else NONE)


def format_seconds(seconds: float) -> str:
    """Return a duration with its two largest units.

    >>> format_seconds(200), format_seconds(90_000), format_seconds(0.2)
    ('3 min 20 s', '1 d 1 h', '0 s')
    """
    rest, parts = max(0, round(seconds)), list[str]()
    for unit, size in _STEPS:
        if rest >= size and len(parts) < 2:
            parts.append(f"{rest // size} {unit}")
            rest %= size
        elif parts:
            break
    return " ".join(parts) or "0 s"


def format_ago(at_ns: int | None, now_ns: int) -> str:
    """Return a time relative to now, with one unit.

    >>> format_ago(10**18 - 200 * 10**9, 10**18), format_ago(10**18, 10**18), format_ago(0, 10**18)
    ('3 min ago', 'just now', '-')
    """
    if not at_ns:
        return UNKNOWN
    seconds = (now_ns - at_ns) // _NS
    return next((f"{seconds // size} {unit} ago" for unit, size in _STEPS if seconds >= size), "just now")


def format_time(at_ns: int | None) -> str:
    """Return a time as ISO 8601 in UTC with whole seconds: `2026-01-31T12:00:05Z`."""
    if not at_ns:
        return UNKNOWN
    return datetime.fromtimestamp(at_ns // _NS, UTC).isoformat().replace("+00:00", "Z")


def format_percent(used: float, total: float) -> str:
    """Return the percentage that is used, rounded down; `-` without a total.

    >>> format_percent(5, 8), format_percent(1, 0)
    ('62 %', '-')
    """
    return f"{int(used * 100 // total)} %" if total > 0 else UNKNOWN
