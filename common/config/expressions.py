r"""Regular expressions of placement filters, in the syntax that YuniKorn's users write: RE2's.

Python's engine runs them, so each is translated first. What RE2 lacks (look-around, back references, possessive
repeats) is refused; what reads alike but means something else (`$` before a last line break, `\d` beyond ASCII, flags
in the middle) is spelled out. Only whether something matches is of interest, so greediness is dropped.

Not here: Unicode classes (`\pL`), which are refused, and RE2's linear time. An expression comes from who writes the
configuration, and the names it meets are short.
"""

import re
from typing import Final

LENGTH_MAX: Final = 1000  # characters
REPEAT_MAX: Final = 1000  # as in RE2

_SPECIAL: Final = frozenset("^$*+?()[{}|")  # not `.`, which is part of many names

Ranges = list[tuple[int, int]]
"""Code points from the first to the second of each pair, both included."""

_LAST: Final = 0x10FFFF
_DIGIT: Final[Ranges] = [(0x30, 0x39)]
_UPPER: Final[Ranges] = [(0x41, 0x5A)]
_LOWER: Final[Ranges] = [(0x61, 0x7A)]
_ALNUM: Final = _DIGIT + _UPPER + _LOWER
_WORD: Final = [*_ALNUM, (0x5F, 0x5F)]
_ESCAPED_CLASSES: Final = {"d": _DIGIT, "w": _WORD, "s": [(0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20)]}
_ESCAPED_LETTERS: Final = frozenset("dDwWsS")
_NAMED_CLASSES: Final = {
    "alnum": _ALNUM,
    "alpha": _UPPER + _LOWER,
    "ascii": [(0x00, 0x7F)],
    "blank": [(0x09, 0x09), (0x20, 0x20)],
    "cntrl": [(0x00, 0x1F), (0x7F, 0x7F)],
    "digit": _DIGIT,
    "graph": [(0x21, 0x7E)],
    "lower": _LOWER,
    "print": [(0x20, 0x7E)],
    "punct": [(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)],
    "space": [(0x09, 0x0D), (0x20, 0x20)],
    "upper": _UPPER,
    "word": _WORD,
    "xdigit": [*_DIGIT, (0x41, 0x46), (0x61, 0x66)],
}
_CONTROLS: Final = {"a": 0x07, "f": 0x0C, "n": 0x0A, "r": 0x0D, "t": 0x09, "v": 0x0B}
_POSITIONS: Final = {"A": r"\A", "z": r"\Z", "b": r"(?a:\b)", "B": r"(?a:\B)|\A\Z"}  # nothing has no edge

_REPEAT: Final = re.compile(r"(?:[*+?]|\{([0-9]+)(?:,([0-9]*))?\})")
_GROUP: Final = re.compile(r"\((?:\?(?:P?<(?P<name>\w+)>|(?P<flags>[imsU]*(?:-[imsU]+)?)(?P<end>[:)])))?", re.ASCII)
_CODE: Final = re.compile(r"x\{([0-9a-fA-F]{1,8})\}|x([0-9a-fA-F]{2})|(0[0-7]{0,2}|[1-7][0-7]{1,2})")
_NAMED: Final = re.compile(r"\[:(\^?)([a-z]+):\]")


class ExpressionError(ValueError):
    """The text is no regular expression; says why."""


def looks_like_expression(entry: str) -> bool:
    """Whether an only entry of a filter list is meant as an expression: it has a character that no name has."""
    return not _SPECIAL.isdisjoint(entry)


def compile_expression(entry: str) -> re.Pattern[str]:
    """Return a pattern whose `search` finds what RE2 would find; raises ExpressionError."""
    if len(entry) > LENGTH_MAX:
        raise ExpressionError(f"an expression may have at most {LENGTH_MAX} characters")
    try:
        return re.compile(_Translation(entry).pattern())
    except (re.error, OverflowError, RecursionError) as error:
        raise ExpressionError(f"this expression cannot be used: {error}") from error


class _Translation:
    """Reads an expression once, left to right; every piece is written out so that it stands by itself."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._flags: frozenset[str] = frozenset()  # of i, m and s, in force at this point
        self._around: list[frozenset[str]] = []  # flags in force outside each open group
        self._names: set[str] = set()
        self._repeatable = False  # the piece before is one that a repeat can apply to

    def pattern(self) -> str:
        """Return the same expression for Python's engine."""
        pieces = []
        while self._at < len(self._text):
            pieces.append(self._piece())
        if self._around:
            raise ExpressionError("a parenthesis is not closed")
        return "".join(pieces)

    def _piece(self) -> str:
        character = self._text[self._at]
        if repeat := _REPEAT.match(self._text, self._at):
            return self._repeat(repeat)
        if character == "(":
            return self._open()
        if character == ")":
            return self._close()
        if character == "[":
            return self._class()
        if character == "\\":
            return self._escape()
        self._at += 1
        self._repeatable = character != "|"
        match character:
            case "|":
                return "|"
            case "^":
                return "(?m:^)" if "m" in self._flags else r"(?:\A)"
            case "$":
                return "(?m:$)" if "m" in self._flags else r"(?:\Z)"
            case ".":
                return "(?s:.)" if "s" in self._flags else r"[^\n]"
        return self._literal(character)

    def _repeat(self, repeat: re.Match[str]) -> str:
        counts = [int(count) for count in repeat.groups() if count]
        if not self._repeatable:
            raise ExpressionError(f"there is nothing that {repeat.group()} could repeat")
        if any(count > REPEAT_MAX for count in counts) or counts != sorted(counts):
            raise ExpressionError(f"the repeat count of {repeat.group()} is invalid")
        self._at = repeat.end()
        if self._text.startswith("?", self._at):
            self._at += 1
        self._repeatable = False
        return repeat.group()

    def _open(self) -> str:
        group = _GROUP.match(self._text, self._at)
        if group is None or (group.group() == "(" and self._text.startswith("(?", self._at)):
            raise ExpressionError("the group at (? is of an unknown kind")
        name, flags = group.group("name"), group.group("flags") or ""
        if name is not None and name in self._names:
            raise ExpressionError(f"there are two groups called {name}")
        self._names.update({name} if name is not None else ())
        self._at = group.end()
        added, _, removed = flags.partition("-")
        if group.group("end") == ")":
            self._flags = (self._flags | {*added}) - {*removed}
            return ""
        self._around.append(self._flags)
        self._flags = (self._flags | {*added}) - {*removed}
        self._repeatable = False
        return "(?:"

    def _close(self) -> str:
        if not self._around:
            raise ExpressionError("a parenthesis is closed that was not opened")
        self._at += 1
        self._flags = self._around.pop()
        self._repeatable = True
        return ")"

    def _escape(self) -> str:
        letter = self._letter()
        self._repeatable = True
        if letter in _POSITIONS:
            self._at += 2
            return f"(?:{_POSITIONS[letter]})"
        if letter == "Q":
            quoted, _, _ = self._text[self._at + 2 :].partition(r"\E")
            self._at = min(self._at + 2 + len(quoted) + 2, len(self._text))
            return "".join(self._literal(character) for character in quoted)
        if letter in _ESCAPED_LETTERS:
            return _written(self._escaped_class())
        return self._literal(chr(self._code()))

    def _class(self) -> str:
        """Read `[...]`; a bracket right at its start is a character of the class."""
        self._at += 1
        self._repeatable = True
        negated = self._text.startswith("^", self._at)
        self._at += negated
        ranges: Ranges = []
        first = True
        while first or not self._text.startswith("]", self._at):
            if self._at >= len(self._text):
                raise ExpressionError("a bracket is not closed")
            first = False
            ranges += self._class_item()
        self._at += 1
        return self._folded(_written(ranges, negated=negated))

    def _class_item(self) -> Ranges:
        if named := _NAMED.match(self._text, self._at):
            if named.group(2) not in _NAMED_CLASSES:
                raise ExpressionError(f"there is no class {named.group()}")
            self._at = named.end()
            ranges = _NAMED_CLASSES[named.group(2)]
            return _complement(ranges) if named.group(1) else ranges
        if self._text.startswith("\\", self._at) and self._letter() in _ESCAPED_LETTERS:
            return self._escaped_class()
        low = high = self._class_code()
        if self._text.startswith("-", self._at) and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
            self._at += 1
            high = self._class_code()
        if high < low:
            raise ExpressionError("a range in brackets runs backwards")
        return [(low, high)]

    def _class_code(self) -> int:
        if self._text.startswith("\\", self._at):
            return self._code()
        if self._at >= len(self._text):
            raise ExpressionError("a bracket is not closed")
        self._at += 1
        return ord(self._text[self._at - 1])

    def _escaped_class(self) -> Ranges:
        letter = self._letter()
        self._at += 2
        ranges = _ESCAPED_CLASSES[letter.lower()]
        return ranges if letter.islower() else _complement(ranges)

    def _code(self) -> int:
        """Read a backslash and the one character it stands for."""
        letter = self._letter()
        if code := _CODE.match(self._text, self._at + 1):
            self._at = code.end()
            value = int(code.group(3), 8) if code.group(3) else int(code.group(1) or code.group(2), 16)
            if value > _LAST:
                raise ExpressionError(f"there is no character {value:#x}")
            return value
        if letter in _CONTROLS:
            self._at += 2
            return _CONTROLS[letter]
        if not letter or letter.isalnum() or not letter.isascii():
            raise ExpressionError(f"\\{letter} has no meaning in an expression")
        self._at += 2
        return ord(letter)

    def _letter(self) -> str:
        """Return what follows the backslash here, nothing at the end."""
        return self._text[self._at + 1 : self._at + 2]

    def _literal(self, character: str) -> str:
        return self._folded(re.escape(character))

    def _folded(self, piece: str) -> str:
        """Return a piece so that it ignores case where it should."""
        return f"(?i:{piece})" if "i" in self._flags else piece


def _written(ranges: Ranges, *, negated: bool = False) -> str:
    """Return a class for Python's engine."""
    if not ranges:
        return "(?s:.)" if negated else "(?!)"
    inside = "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)
    return f"[{'^' if negated else ''}{inside}]"


def _complement(ranges: Ranges) -> Ranges:
    """Return everything else."""
    outside: Ranges = []
    start = 0
    for low, high in sorted(ranges):
        if low > start:
            outside.append((start, low - 1))
        start = high + 1
    return [*outside, (start, _LAST)] if start <= _LAST else outside
