"""Durations as people write them in queue properties and settings: `1h30m`, `1.5s`, `500ms`."""

import re
from typing import Final

_UNIT_S: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_TERM: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_DURATION: Final = re.compile(rf"([+-]?)((?:{_TERM.pattern})+|0)")


def parse_duration(text: str) -> float | None:
    """The duration in seconds, or None if the text is not one."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    total = sum(float(number) * _UNIT_S[unit] for number, unit in _TERM.findall(match[2]))
    return -total if match[1] == "-" else total


# Unsigned integers ----------------------------------------------------------------------------------------------------

UINT_MAX: Final = 2**64 - 1

_DIGITS: Final = re.compile(r"[0-9]+")


class UnsignedError(ValueError):
    """A text that is no number from 0 to UINT_MAX; its own text says why."""


def parse_unsigned(text: str) -> int | None:
    """The number; None if there is no text.

    Raises:
        UnsignedError: it is no number, or too large.
    """
    if not text:
        return None
    if not _DIGITS.fullmatch(text):
        raise UnsignedError(f"strconv.ParseUint: parsing {quote(text)}: invalid syntax")
    digits = text.lstrip("0")
    if len(digits) > len(str(UINT_MAX)) or int(digits or "0") > UINT_MAX:
        raise UnsignedError(f"strconv.ParseUint: parsing {quote(text)}: value out of range")
    return int(digits or "0")


# Quoting --------------------------------------------------------------------------------------------------------------

_NAMED: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}
_BYTE: Final = 0x7F
"""Up to here what cannot be seen is shown as a byte."""
_SHORT: Final = 0xFFFF


def quote(text: str | bytes) -> str:
    """The text in double quotes; bytes that are no UTF-8 are shown one by one."""
    if isinstance(text, bytes):
        text = text.decode(errors="surrogateescape")
    return '"' + "".join(map(_shown, text)) + '"'


def _shown(letter: str) -> str:
    number = ord(letter)
    if letter in _NAMED:
        return _NAMED[letter]
    if letter.isprintable():
        return letter
    if number <= _BYTE:
        return f"\\x{number:02x}"
    if 0xDC80 <= number <= 0xDCFF:  # a byte that is no UTF-8
        return f"\\x{number - 0xDC00:02x}"
    return f"\\u{number:04x}" if number <= _SHORT else f"\\U{number:08x}"


# Plurals --------------------------------------------------------------------------------------------------------------


def format_count(count: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "RM"), format_count(0, "journal step"), format_count(12_345, "byte")
    ('1 RM', '0 journal steps', '12345 bytes')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"
