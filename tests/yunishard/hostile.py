"""A text that attacks a terminal, and a check for what is left of it."""

import re
from typing import Final

HOSTILE: Final = "x\x1b]0;title\x07\x1b[2J\x9b31m\r\nFORGED\u202e\u200b\x7f[bold]"
"""Escape sequences with 7 and 8 bits, line ends, a change of direction, no width, and markup of rich."""

_EFFECTS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]|\nFORGED")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


def find_effects(output: str) -> list[str]:
    """Return what would act on a terminal, besides colours: characters that are not visible, and forged lines."""
    return _EFFECTS.findall(_COLOUR.sub("", output))


def find_invisible(output: str) -> list[str]:
    """Return the characters that are not visible; several lines are fine."""
    return [one for one in find_effects(output) if not one.endswith("FORGED")]
