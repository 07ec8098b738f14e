"""The newest events of a history as lines, numbered like the events, for those who read on at places of their own.

Not here: where the lines come from (`follower.py`), who reads them (`stream.py`).
"""

from collections.abc import Sequence
from typing import Final

PIECE_BYTES: Final = 64 << 10
"""After so many bytes no further line is put into a piece."""


class Tape:
    """Lines from the number `first` on, up to `end`, which is the number of the next one."""

    def __init__(self, first: int, *, bytes_max: int) -> None:
        self.first = first
        self._bytes_max = bytes_max
        self._lines: list[bytes] = []
        self._bytes = 0
        """Of all lines."""

    @property
    def end(self) -> int:
        return self.first + len(self._lines)

    def add(self, lines: Sequence[bytes]) -> None:
        """Append lines. The oldest go when there is no room, a single one has room whatever its size."""
        self._lines.extend(lines)
        self._bytes += sum(map(len, lines))
        surplus, gone = self._bytes - self._bytes_max, 0
        while surplus > 0 and gone < len(self._lines) - 1:
            surplus -= len(self._lines[gone])
            gone += 1
        self.forget(self.first + gone)

    def forget(self, before: int) -> None:
        """Nobody needs what comes before this number."""
        gone = self._lines[: max(0, before - self.first)]
        del self._lines[: len(gone)]
        self._bytes -= sum(map(len, gone))
        self.first += len(gone)

    def since(self, place: int) -> tuple[bytes, int]:
        """The lines from this number on, as many as are a piece, and the number to go on with."""
        assert place >= self.first, (place, self.first)
        found: list[bytes] = []
        size = 0
        for index in range(place - self.first, len(self._lines)):
            if size >= PIECE_BYTES:
                break
            found.append(self._lines[index])
            size += len(self._lines[index])
        return b"".join(found), place + len(found)
