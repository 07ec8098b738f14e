"""Messages that were set aside, kept beside the journal until an operator has looked at them.

    <name>.poison-<identity>    one message: a `Step` that was never taken, with the reason

Not here: when a message is set aside (`partition_worker/poison.py`), how it is shown (`listing.py`).
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from common.journal_messages import Step
from partition_worker.journal.files import PRIVATE, Files, JournalDamaged
from partition_worker.poison import Poison

KEPT_MAX: Final = 8
"""Messages of a partition that are kept; the oldest goes first. One has at most as many bytes as a frame (64 MiB)."""


class Kept(msgspec.Struct, array_like=True, frozen=True):
    """One of them."""

    reason: str
    step: Step
    """What it would have been; its number is 0."""


_decoder = msgspec.msgpack.Decoder(Kept)


def keep(files: Files, poison: Poison) -> Path:
    """Write a message down, and remove the oldest beyond KEPT_MAX; where it is now.

    Raises:
        OSError: it cannot be written.
    """
    delivery = poison.delivery
    step = Step(number=0, at=poison.at, source=delivery.source, header=delivery.header, body=delivery.body)
    path = files.poison(poison.identity)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    with open(descriptor, "wb") as file:
        file.write(msgspec.msgpack.encode(Kept(poison.reason, step)))
    paths = sorted(files.poisons(), key=lambda one: one.stat().st_mtime_ns)
    for old in paths[:-KEPT_MAX]:
        old.unlink(missing_ok=True)
    return path


def kept(files: Files) -> Iterator[tuple[Path, Kept]]:
    """All that are there, the oldest first.

    Raises:
        JournalDamaged: one cannot be understood.
    """
    for path in sorted(files.poisons(), key=lambda one: one.stat().st_mtime_ns):
        try:
            yield path, _decoder.decode(path.read_bytes())
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise JournalDamaged(f"{path.name} cannot be understood: {error}") from None
