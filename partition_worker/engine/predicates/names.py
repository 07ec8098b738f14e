"""How names and lists are written in tags and attributes: in the plain words that Kubernetes has for them.

Not here: what they mean.
"""

import re
from typing import Final

TAG_LENGTH_MAX: Final = 65_536
"""Characters of one tag that are read."""

KEY: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?")
"""Of a label or a taint."""

VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._/:@-]*[A-Za-z0-9])?)?")


def check_length(tag: str, text: str) -> None:
    """Refuse what nobody writes by hand.

    Raises:
        ValueError: with the limit.
    """
    if len(text) > TAG_LENGTH_MAX:
        raise ValueError(f"tag {tag} has {len(text)} characters, at most {TAG_LENGTH_MAX} are read")


def shown(text: str) -> str:
    """A part of a tag, as a message repeats it."""
    return repr(text if len(text) <= 80 else f"{text[:80]}...")
