"""Clients of the gRPC and the REST port that never finish what they begin: they are left in time, and slow nobody."""

import socket
from contextlib import ExitStack
from typing import Final

import pytest

from tests.processes.system import System
from tests.processes.test_flood import bounded
from tests.processes.test_hostile_grpc import everything_works

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

EACH: Final = 20
"""Connections of each kind."""

LEFT_MAX_S: Final = 60.0
"""By then the last one has been closed by the other side."""

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS: Final = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def _frame(kind: int, payload: bytes) -> bytes:
    """Of HTTP/2, on the first stream, with more to follow."""
    return len(payload).to_bytes(3, "big") + bytes([kind, 0, 0, 0, 0, 1]) + payload


GRPC: Final = {
    "nothing": b"",
    "garbage": b"\xff" * 1000,
    "half a preface": PREFACE[:10],
    "a preface": PREFACE,
    "settings": PREFACE + SETTINGS,
    "a frame without end": PREFACE + SETTINGS + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + b"x" * 1000,
    "headers without end": PREFACE
    + SETTINGS
    + _frame(1, b"\x40\x7f\xff\x7f" + b"a" * 16_000)
    + _frame(9, b"a" * 16_000) * 50,
}
POST: Final = b"POST /ws/v1/validate-conf HTTP/1.1\r\nHost: localhost\r\n"
REST: Final = {
    "nothing": b"",
    "garbage": b"\xff" * 1000,
    "half a head": b"GET /ws/v1/clusters HT",
    "a head without end": b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000,
    "many headers": b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 50_000,
    "half a body": POST + b"Content-Length: 100000000000\r\n\r\npartitions:",
    "an odd chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nfffffffff\r\nx",
}


def test_whoever_begins_and_does_not_go_on_is_left(system: System) -> None:
    with ExitStack() as stack, bounded(system):
        connections = [
            (what, stack.enter_context(_connected(address)), data)
            for address, kinds in ((system.grpc, GRPC), (system.rest, REST))
            for what, data in kinds.items()
            for _ in range(EACH)
        ]
        for what, connection, data in connections:
            _send(connection, data, what)
        everything_works(system)
        for what, connection, _ in connections:
            _ends(connection, what)
        everything_works(system)


def _connected(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=LEFT_MAX_S)


def _send(connection: socket.socket, data: bytes, what: str) -> None:
    try:
        connection.sendall(data)
    except ConnectionError:
        assert what not in ("nothing", "half a head", "a preface"), "there is nothing to object to yet"


def _ends(connection: socket.socket, what: str) -> None:
    """The other side ends the connection, in whatever way."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        raise AssertionError(f"{what} keeps its connection for ever") from None
