"""An indented JSON object, written piece by piece as its parts come; empty parts are left out.

Not here: what the parts are (`parts.py`).
"""

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

import msgspec

_LEVEL = b"  "


@dataclass(frozen=True, slots=True)
class Whole:
    """A part that is there at once."""

    key: str
    value: bytes
    """JSON."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A list whose entries come page by page."""

    key: str
    pages: AsyncIterator[bytes]
    """Each a JSON list."""


Part = Whole | Listed


async def written(parts: AsyncIterator[Part]) -> AsyncGenerator[bytes, None]:
    """The document, and a line break at its end."""
    before = b"{\n"
    async for part in parts:
        async for piece in _whole(part) if isinstance(part, Whole) else _listed(part):
            yield before + piece
            before = b""
        before = before or b",\n"
    yield b"{}\n" if before == b"{\n" else b"\n}\n"


async def _whole(part: Whole) -> AsyncGenerator[bytes, None]:
    text = _indented(part.value, _LEVEL)
    if text not in (b"[]", b"{}", b'""', b"null"):
        yield _key(part.key) + text


async def _listed(part: Listed) -> AsyncGenerator[bytes, None]:
    begun = False
    async for page in part.pages:
        text = _indented(page, _LEVEL).removeprefix(b"[\n").removesuffix(b"\n  ]")
        if text != b"[]":
            yield (b",\n" if begun else _key(part.key) + b"[\n") + text
            begun = True
    if begun:
        yield b"\n" + _LEVEL + b"]"


def _key(key: str) -> bytes:
    return _LEVEL + msgspec.json.encode(key) + b": "


def _indented(value: bytes, by: bytes) -> bytes:
    """In lines of which all but the first are indented by so much more: a line break is never inside of a text."""
    return msgspec.json.format(value, indent=len(_LEVEL)).replace(b"\n", b"\n" + by)
