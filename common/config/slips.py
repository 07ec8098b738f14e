"""What was probably meant where a text is not YAML: the reader's own words name what it expected, not the slip.

Not here: finding the place (`nodes.py`).
"""

from typing import Final

_CALLED: Final = {"*": "an alias", "&": "an anchor", "!": "a tag", "%": "a directive"}
"""What a value is taken for that begins with this character; of other special ones YAML makes nothing."""

_SPECIAL: Final = "*&!%@`"
_TAB: Final = "a tab is used for indentation: YAML is indented with blanks only"
_INDENTED: Final = "wrong indentation? What belongs together begins in the same column"
_OPEN: Final = "a quote that was opened further up is not closed"


def likely(told: str, text: str, line: int, column: int) -> str:
    """What to look for at a place where the reader stopped, and what it told; empty if nothing comes to mind.

    `line` counts from 1 and `column` from 0, as the reader gives them; either may lie behind the end of the text.
    """
    lines = text.splitlines()
    here = lines[line - 1] if 0 < line <= len(lines) else ""
    if "\t" in here[: len(here) - len(here.lstrip())] and not _is_quoted(told):
        return _TAB
    if "cannot start any token" in told or "scanning an alias" in told or "scanning an anchor" in told:
        return special(_character(here, column))
    if "\t" in here and "tab" in told:
        return _TAB
    if "mapping values are not allowed" in told:
        return "wrong indentation, or a value with `: ` in it that must be quoted?"
    if "simple key" in told:
        return "a key without `:`, or wrong indentation, here or in the line before?"
    if "found unexpected end of stream" in told and _is_quoted(told):
        return _OPEN
    if "parsing a flow" in told:
        return "a `]`, `}` or `,` is missing, here or further up"
    if "block mapping" in told and here[:column].rstrip().endswith(("'", '"')):
        return "a value that begins with a quote ends with the next one: quote all of it"
    if "block mapping" in told or "block collection" in told:
        return _INDENTED
    return ""


def special(character: str) -> str:
    """What to say of a value that begins with this character; empty if it may begin one."""
    if not character or character not in _SPECIAL:
        return ""
    called = f": without quotes it is {_CALLED[character]}" if character in _CALLED else ""
    return f"a value that begins with {character} must be quoted{called}"


def _is_quoted(told: str) -> bool:
    return "quoted scalar" in told


def _character(here: str, column: int) -> str:
    """The special character at this place, or right before it, where an alias has begun."""
    near = here[max(column - 1, 0) : column + 1]
    return next((character for character in reversed(near) if character in _SPECIAL), "")
