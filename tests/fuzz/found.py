"""What once broke something, kept: `found/*.json`, each for one place of the arena or one reader.

Whatever breaks is written in the same form, so that a file becomes a regression test by being moved there.
"""

import contextlib
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.fuzz.arena import MAD, PLACES, furnished
from tests.fuzz.frames import Mad
from tests.fuzz.readers import Target

FOLDER: Final = Path(__file__).parent / "found"


class Found(msgspec.Struct):
    """Messages, as the place of the arena and frames in hexadecimal; or for a reader its name and one frame."""

    messages: list[tuple[str, list[str]]]
    note: str = ""
    """What it did."""


def read(file: Path) -> Found:
    return msgspec.json.decode(file.read_bytes(), type=Found)


def kept(messages: Sequence[tuple[str, Sequence[bytes]]], note: str) -> str:
    """Write them down; how to send them again."""
    found = Found([(where, [frame.hex() for frame in frames]) for where, frames in messages], note)
    with tempfile.NamedTemporaryFile(prefix="fuzz-", suffix=".json", delete=False) as file:
        file.write(msgspec.json.format(msgspec.json.encode(found)))
    return f"python -m tests.fuzz --replay {file.name}"


def play(found: Found, readers: dict[str, Target]) -> None:
    """Send it again; whatever it breaks is raised."""
    messages = [(where, [bytes.fromhex(frame) for frame in frames]) for where, frames in found.messages]
    arena = furnished(Mad(random.Random(0), MAD))
    for where, frames in messages:
        if where in PLACES:
            arena.hit(where, frames)
            continue
        with contextlib.suppress(*readers[where].raises):
            readers[where].read(frames[0])
    arena.look()
