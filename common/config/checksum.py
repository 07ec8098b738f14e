"""The checksum of a configuration text, by which an update that changes nothing is recognised."""

import hashlib
from typing import Final

_MARK: Final = b"checksum: "
_HEX_DIGITS: Final = 64


def checksum_of(text: str) -> str:
    """Return the SHA-256 of the text without the checksum it carries, as 64 upper case hexadecimal digits.

    Only the first checksum is recognised, and at most 64 characters of it; every repetition of it is left out as well.
    The line break behind it counts, so a text does not have the checksum of the same text with a checksum line.
    """
    data = text.encode()
    parts = data.split(_MARK, 2)
    if len(parts) > 1:
        carried = (_MARK + parts[1]).rstrip(b"\n")[: len(_MARK) + _HEX_DIGITS]
        data = data.replace(carried, b"")
    return hashlib.sha256(data).hexdigest().upper()
