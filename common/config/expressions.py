r"""Regular expressions of placement filters: the syntax and the linear time of RE2, through `google-re2`.

YuniKorn matches with Go's `regexp`, which is RE2 in Go. A comparison over 200,000 generated expressions found two
differences in the C++ library, and this module removes both: the library accepts `\C` (any byte), and group names that
are not ASCII.

Not here: what a filter admits (the engine's placement).
"""

import re
from typing import Final, Protocol

import re2

NAME_LENGTH_MAX: Final = 1024
"""Characters of a name that is matched. A longer name raises NameTooLongError, which rejects the application: the
answer "no match" would open a filter of type `deny`."""

PROGRAM_SIZE_MAX: Final = 10_000
"""Instructions of a compiled expression; validation refuses one that needs more. `.{900}` has 7,200, `\\pL` 1,200."""

MEMORY_MAX: Final = 1 << 20
"""Bytes that RE2 may use for an expression: its program, and the states that it caches while it matches. An expression
whose program does not fit is refused; when the cache is full RE2 matches without it, at a cost of at most instructions
times bytes of the name."""

_SPECIAL: Final = frozenset("^$*+?()[{}|")  # not `.`, which is part of many names
_BACKSLASH: Final = re.compile(r"\\(?:Q.*?(?:\\E|\Z)|(?P<any_byte>C)|.)", re.DOTALL)


class ExpressionError(ValueError):
    """The text cannot be used as a regular expression; says why."""


class NameTooLongError(ValueError):
    """A name that is not matched because of its length."""


class _Pattern(Protocol):
    """What is used of a compiled expression; the library has no types of its own."""

    @property
    def programsize(self) -> int: ...

    @property
    def groupindex(self) -> dict[str, int]: ...

    def search(self, text: str) -> object | None: ...


def looks_like_expression(entry: str) -> bool:
    """Whether an only entry of a filter list is meant as an expression: it has a character that no name has."""
    return not _SPECIAL.isdisjoint(entry)


class Expression:
    """A compiled expression. It is compiled once, when the configuration is read, and never changes."""

    def __init__(self, text: str) -> None:
        """Compile the expression. Raises ExpressionError."""
        if any(escape["any_byte"] for escape in _BACKSLASH.finditer(text)):
            raise ExpressionError(r"this expression cannot be used: invalid escape sequence: \C")
        for name in _compile(text, captures=True).groupindex:
            if not name.isascii():
                raise ExpressionError(f"this expression cannot be used: invalid named capture group: {name}")
        self._pattern = _compile(text, captures=False)
        self.size = self._pattern.programsize
        """Instructions of its program: matching takes at most as many steps for each byte of a name."""
        re2.purge()  # the library would keep the memory of the last 128 expressions that nobody uses any more
        if self.size > PROGRAM_SIZE_MAX:
            raise ExpressionError(
                f"this expression is too large: it compiles to {self.size} instructions, at most {PROGRAM_SIZE_MAX} "
                "are allowed: use fewer or smaller repeat counts"
            )

    def found_in(self, name: str) -> bool:
        """Whether any part of the name matches the expression. Raises NameTooLongError."""
        if len(name) > NAME_LENGTH_MAX:
            raise NameTooLongError(f"a name of {len(name)} characters is not matched, the limit is {NAME_LENGTH_MAX}")
        return self._pattern.search(name) is not None


def _compile(text: str, *, captures: bool) -> _Pattern:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY_MAX
    options.never_capture = not captures
    try:
        pattern: _Pattern = re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        if "too large" in reason:
            reason = f"it needs more than {MEMORY_MAX} bytes: use fewer or smaller repeat counts"
        raise ExpressionError(f"this expression cannot be used: {reason}") from None
    except UnicodeEncodeError as error:
        raise ExpressionError(f"this expression cannot be used: it is not valid Unicode: {error.reason}") from None
    return pattern
