"""Small text formats: durations, unsigned integers, quoted text, counts with a noun, and errors of files."""

import re
from typing import Final

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
