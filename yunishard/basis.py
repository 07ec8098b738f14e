"""What a change of the configuration starts from: the checksum that must be in force for it to be made.

It is named by the option `--if-match`, or by the key `checksum` in the text, or is whatever is in force now. Here it is
compared for the first time, so that a mistake is told with what to do about it; the system compares again at the moment
of the change.

Not here: how it is sent (`rest.py`), how a checksum comes about (`common/config/checksum.py`).
"""

import re
from typing import Final

from common.config.nodes import Mapping, Scalar, compose
from common.config.problems import ConfigError
from common.config.scalars import is_null
from yunishard.rest import UNREACHABLE, Failed

ANYTHING: Final = "*"
CHECKSUM_DIGITS: Final = 64
PREFIX_DIGITS_MIN: Final = 8
"""Hexadecimal digits of a checksum that are taken for it: so many that nobody meets another one by chance."""

SHOWN_LENGTH_MAX: Final = 80
"""Characters of what was written that a message repeats."""

_PREFIX: Final = re.compile(rf"[0-9A-Fa-f]{{{PREFIX_DIGITS_MIN},{CHECKSUM_DIGITS}}}")
_KEY: Final = "checksum"


def required(*, option: str, text: str, in_force: str) -> str:
    """The checksum to send along, or ANYTHING; `in_force` is what was just read. The option counts before the text.

    Raises:
        Failed: what was named is not in force, or is no checksum.
    """
    if option == ANYTHING:
        return option
    if option:
        if not _PREFIX.fullmatch(option):
            wanted = f"a checksum, its first {PREFIX_DIGITS_MIN} hexadecimal digits or more, or {ANYTHING}"
            raise Failed(f"--if-match: expected {wanted}, got {_shown(option)}", status=UNREACHABLE)
        if not in_force.startswith(option.upper()):
            raise Failed(
                f"--if-match is {_shown(option)}, but in force is {in_force}: somebody has changed it meanwhile;"
                " look at it (`yunishard config get`), then try again"
            )
        return in_force
    own = key_of(text)
    if own and own.upper() != in_force:
        raise Failed(
            f"the key `{_KEY}` of the file is {_shown(own)}, but in force is {in_force}: look at what has changed"
            " (`yunishard config diff current FILE`), then put this checksum there or leave the key out"
        )
    return in_force


def key_of(text: str) -> str:
    """The checksum that a configuration carries as its own key; empty if none, or if the text cannot be read."""
    if _KEY not in text:
        return ""  # most texts, and large ones take seconds to read
    try:
        document = compose(text.removeprefix("\ufeff"))
    except ConfigError:
        return ""  # the system tells everything that is wrong with it
    for key, value in document.entries if isinstance(document, Mapping) else ():
        if isinstance(key, Scalar) and key.text == _KEY and isinstance(value, Scalar) and not is_null(value):
            return value.text.strip()
    return ""


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN_LENGTH_MAX else f"{text[:SHOWN_LENGTH_MAX]}...")
