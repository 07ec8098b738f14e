"""Conditions of a request on the version of a configuration: `If-Match` for changes, `If-None-Match` for reading.

The entity tag is the checksum of the text. It names the version, not the bytes: it is the same for a compressed body.
Not here: comparing with what is in force, which only the broker can do at the moment of a change.
"""

import re
from typing import Final

from webservice.errors import RequestError

_CHECKSUM: Final = re.compile(r"[0-9A-Fa-f]{64}")


def entity_tag(checksum: str) -> str:
    """The header value that stands for a checksum."""
    return f'"{checksum}"'


def expected_checksum(if_match: str | None) -> str:
    """The checksum that must be in force for a change; empty when any will do: no header, or `*`.

    Quotes may be left out. What is no checksum is refused and not compared, so that a mistake is told as one.

    Raises:
        RequestError: the header does not hold one checksum.
    """
    if if_match is None or if_match.strip() == "*":
        return ""
    text = if_match.strip()
    bare = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
    if not _CHECKSUM.fullmatch(bare):
        wanted = "one checksum of 64 hexadecimal digits, as the header ETag of GET /ws/v1/config?rm=ID has it, or *"
        raise RequestError(400, f"If-Match is {if_match!r}, but must be {wanted}")
    return bare.upper()


def is_known(if_none_match: str | None, checksum: str) -> bool:
    """Whether the asker already has this version: `*`, or a list of tags that holds it, weak ones too."""
    if if_none_match is None:
        return False
    tags = [tag.strip().removeprefix("W/").strip('"') for tag in if_none_match.split(",")]
    return "*" in tags or checksum in tags
