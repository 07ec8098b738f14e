"""ZeroMQ's protocol on a stream (ZMTP 3.0 with the mechanism NULL), without its library: bytes in, messages out.

    greeting (64 bytes) --> READY, with the name of who speaks --> messages of frames

ZeroMQ's library hands every message to a thread of its own at either end. Between processes on one machine these
hand-overs take longer than all the rest of the way, so ours do without it, and whoever has it can be the other end.

Not here: sockets (`links.py`), what a message says (`wire.py`).
"""

import struct
from typing import Final

from common.wire import BODY_BYTES_MAX, PROTOCOL

FRAMES_MAX: Final = 8
"""Frames of a message that are looked at. A message has three; of one with more the others only count."""

FRAME_BYTES_MAX: Final = 2 * BODY_BYTES_MAX
"""Who sends a larger one is disconnected; up to it a message over the limit is refused with a text."""

_MORE: Final = 1
_LONG: Final = 2
_COMMAND: Final = 4
"""Flags, the first byte of a frame; its length follows, in one byte or in eight."""

_SIGNATURE: Final = b"\xff" + bytes(8) + b"\x7f"
_GREETING: Final = _SIGNATURE + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_READY: Final = b"\x05READY"
_long = struct.Struct(">BQ")


class ZmtpError(ValueError):
    """What comes is not this protocol, and the connection of no use."""


def hello(socket_type: str, name: str) -> bytes:
    """What each side says first."""
    metadata = _entry(b"Socket-Type", socket_type.encode()) + _entry(b"Identity", name.encode())
    return _GREETING + _framed(_COMMAND, _READY + metadata)


def head_of(header: bytes, size: int) -> bytes:
    """Everything of a message of ours before its body, which has so many bytes."""
    return _framed(_MORE, PROTOCOL) + _framed(_MORE, header) + _start(0, size)


class Incoming:
    """What arrives on one connection, in pieces of any size."""

    def __init__(self) -> None:
        self.name: bytes | None = None
        """Of the other side, once it has said it; empty for one that has none."""
        self._buffer = bytearray()
        self._at = 0
        """Where in the buffer the next frame begins."""
        self._greeted = False
        self._frames: list[bytes] = []
        """Those of a message that is not complete."""

    def feed(self, data: "bytes | memoryview") -> None:
        """More has arrived."""
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += data

    def ready(self) -> bool:
        """Whether the other side has said who it is. Before that it does not listen to more than a greeting.

        Raises:
            ZmtpError: this is something else.
        """
        if self.name is None and self._greeting() and (start := self._frame()) is not None:
            flags, begin = start
            command = self._taken(begin)
            if not flags & _COMMAND or not command.startswith(_READY):
                raise ZmtpError("a greeting is followed by READY")
            self.name = _identity_in(command)
        return self.name is not None

    def next(self) -> list[bytes] | None:
        """The frames of the next message; None until more arrives.

        Raises:
            ZmtpError: this is something else.
        """
        if self.name is None and not self.ready():
            return None
        while (start := self._frame()) is not None:
            flags, begin = start
            if flags & _COMMAND:
                continue  # about what we never ask for
            frame = self._taken(begin)
            self._frames.append(frame if len(self._frames) < FRAMES_MAX else b"")
            if not flags & _MORE:
                frames, self._frames = self._frames, []
                return frames
        return None

    def _greeting(self) -> bool:
        """Whether it has come."""
        if self._greeted or len(self._buffer) < len(_GREETING):
            return self._greeted
        said = bytes(self._buffer[: len(_GREETING)])
        if said[0] != _GREETING[0] or said[9] != _GREETING[9] or said[10] < 3 or said[12:32] != _GREETING[12:32]:
            raise ZmtpError("this is no greeting of ZMTP 3 without keys")
        self._at, self._greeted = len(_GREETING), True
        return True

    def _frame(self) -> tuple[int, int] | None:
        """Flags of the next frame and where its content begins, once all of it is here; then `_at` is at its end."""
        buffer, at = self._buffer, self._at
        here = len(buffer) - at
        if here < 2:
            return None
        flags, size, begin = buffer[at], buffer[at + 1], at + 2
        if flags & _LONG:
            if here < _long.size:
                return None
            (flags, size), begin = _long.unpack_from(buffer, at), at + _long.size
        if size > FRAME_BYTES_MAX:
            raise ZmtpError(f"a frame of {size} bytes")
        if begin + size > len(buffer):
            return None
        self._at = begin + size
        return flags, begin

    def _taken(self, begin: int) -> bytes:
        return bytes(memoryview(self._buffer)[begin : self._at])


def _identity_in(command: bytes) -> bytes:
    """Empty if there is none."""
    at = len(_READY)
    while at < len(command):
        end = at + 1 + command[at]
        size = int.from_bytes(command[end : end + 4], "big")
        if command[at + 1 : end].lower() == b"identity":
            return command[end + 4 : end + 4 + size]
        at = end + 4 + size
    return b""


def _entry(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value


def _framed(flags: int, content: bytes) -> bytes:
    return _start(flags, len(content)) + content


def _start(flags: int, size: int) -> bytes:
    return bytes((flags, size)) if size < 256 else _long.pack(flags | _LONG, size)
