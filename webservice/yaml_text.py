"""Plain documents as YAML text, laid out as people know it from YuniKorn.

Lists stand to the right of their key, maps inside maps at every fourth column, and a text has quotes only where it
would be read as something else without. Rejected: PyYAML's `dump`, which cannot lay out lists so and leaves without
quotes what the reader of our own files (`common/config/scalars.py`) takes for numbers, such as `1e3`.
Not here: what is shown (`config_view.py`).
"""

import math
import re
from collections.abc import Iterator
from typing import Final

Document = dict[str, "Document"] | list["Document"] | str | int | float | bool

_STEP: Final = 4
_PLAIN: Final = re.compile(r"[A-Za-z0-9_/.^$=+<;(-](?:[A-Za-z0-9_/.^$=+<>;()*@~!|%&,'\"?\[\]{}\\#-]| (?!#)|:(?! |$))*")
"""Texts that begin with what begins no other thing of YAML, and go on without `: ` and ` #`."""

_READ_AS_OTHER: Final = re.compile(
    r"(?:[yn]|yes|no|on|off|true|false|null|~|<<|=|"
    r"[-+]?[.]?(?:inf|nan)|"
    r"[-+]?[.0-9][0-9_,.:]*(?:e[-+]?[0-9]+)?|"
    r"[-+]?0(?:b[01_]*|o[0-7_]*|x[0-9a-f_]*)|"
    r"[0-9]{4}-[0-9].*)?",
    re.IGNORECASE,
)
"""Texts that some reader of YAML takes for a truth value, nothing, a number or a date; and the empty text."""

_NO_PLAIN_START: Final = re.compile(r"-(?:[ ]|-{2}|$)|[.]{3}")
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def yaml_text(document: dict[str, Document]) -> str:
    """The document, a line break at the end of each line."""
    return "".join(f"{line}\n" for line in _map(document, 0))


def scalar(text: str) -> str:
    """A text as a scalar on one line, with double quotes if it would be read as something else, or single ones if it
    could not be read at all.
    """
    if not text.isprintable() or _READ_AS_OTHER.fullmatch(text):
        return '"' + "".join(_escaped(character) for character in text) + '"'
    if _PLAIN.fullmatch(text) and not text.endswith(" ") and not _NO_PLAIN_START.match(text):
        return text
    return "'" + text.replace("'", "''") + "'"


def _map(entries: dict[str, Document], column: int) -> Iterator[str]:
    """The lines of a map, whose keys stand at the column."""
    for key, value in entries.items():
        lead = f"{' ' * column}{scalar(key)}:"
        inner = (column // _STEP + 1) * _STEP
        match value:
            case dict() if value:
                yield lead
                yield from _map(value, inner)
            case list() if value:
                yield lead
                yield from _list(value, inner)
            case _:
                yield f"{lead} {_value(value)}"


def _list(items: list[Document], column: int) -> Iterator[str]:
    """The lines of a list, whose dashes stand at the column; a map begins on the line of its dash."""
    for item in items:
        match item:
            case dict() if item:
                first, *rest = _map(item, column + 2)
                yield f"{' ' * column}- {first.lstrip(' ')}"
                yield from rest
            case _:
                yield f"{' ' * column}- {_value(item)}"


def _value(value: Document) -> str:
    match value:
        case str():
            return scalar(value)
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _number(value)
        case dict():
            return "{}"
        case list():
            return "[]"


def _number(number: float) -> str:
    if math.isnan(number):
        return ".nan"
    if math.isinf(number):
        return ".inf" if number > 0 else "-.inf"
    return str(int(number)) if number.is_integer() else repr(number)


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    number = ord(character)
    return f"\\U{number:08X}" if number > 0xFFFF else f"\\u{number:04X}"
