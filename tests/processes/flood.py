"""What nobody should send, and a great deal of it: `python -m tests.processes.flood ADDRESS COUNT SEED`.

A process of its own, so that it slows nobody but the core. It ends when all has been sent; whether anybody reads the
answers is not its business.
"""

import random
import sys
from collections.abc import Callable, Iterator
from typing import Final

import msgpack
import zmq

CONNECTIONS: Final = 8
UNANSWERED_MAX: Final = 2_000
"""Messages that wait in one connection, here."""

Frames = list[bytes]


def _header(**other: object) -> bytes:
    fields = {
        "kind": "NodeRequest",
        "rm": "flood",
        "partition": "",
        "session": "s",
        "seq": 0,
        "ack": 0,
        "life": 0,
        "ref": "",
    }
    return bytes(msgpack.packb([*(fields | other).values()]))


def _noise(rng: random.Random) -> Frames:
    return [rng.randbytes(rng.randrange(200)) for _ in range(rng.randrange(1, 7))]


def _another_protocol(rng: random.Random) -> Frames:
    return [rng.choice((b"YSH0", b"HTTP/1.1", b"", b"YSH1\0")), _header(), b"\x80"]


def _mutated(rng: random.Random) -> Frames:
    header = bytearray(_header())
    header[rng.randrange(len(header))] = rng.randrange(256)
    return [b"YSH1", bytes(header), b"\x80"]


def _huge_header(rng: random.Random) -> Frames:
    return [b"YSH1", b"x" * rng.randrange(4_097, 100_000), b"\x80"]


def _deep(rng: random.Random) -> Frames:
    nest = b"\x91" * rng.randrange(1_000, 4_000)
    return [b"YSH1", nest, b""] if rng.random() < 0.5 else [b"YSH1", _header(), nest * 10]


def _extensions(rng: random.Random) -> Frames:
    ext = bytes(msgpack.packb(msgpack.ExtType(rng.randrange(128), rng.randbytes(20))))
    return [b"YSH1", ext, ext] if rng.random() < 0.5 else [b"YSH1", _header(), ext]


def _stranger(rng: random.Random) -> Frames:
    kind = rng.choice(
        ("NodeRequest", "AllocationRequest", "Resume", "Registered", "Malformed", "Forbidden", "Hello", "?")
    )
    return [b"YSH1", _header(kind=kind, partition=rng.choice(("", "flood_x")), seq=rng.randrange(3)), rng.randbytes(9)]


def _many_frames(rng: random.Random) -> Frames:
    return [b"x"] * rng.randrange(100, 1_000)


KINDS: Final[tuple[Callable[[random.Random], Frames], ...]] = (
    _noise,
    _another_protocol,
    _mutated,
    _huge_header,
    _deep,
    _extensions,
    _stranger,
    _many_frames,
)


def messages(count: int, seed: int) -> Iterator[Frames]:
    """So many of all kinds; the same for the same seed."""
    rng = random.Random(seed)
    for _ in range(count):
        yield rng.choice(KINDS)(rng)


def main(address: str, count: int, seed: int) -> None:
    sockets = []
    for _ in range(CONNECTIONS):
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, -1)
        socket.setsockopt(zmq.SNDHWM, UNANSWERED_MAX)
        socket.setsockopt(zmq.RCVHWM, 1)
        socket.connect(address)
        sockets.append(socket)
    for number, frames in enumerate(messages(count, seed)):
        sockets[number % CONNECTIONS].send_multipart(frames)
    for socket in sockets:
        socket.close()
    zmq.Context.instance().term()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
