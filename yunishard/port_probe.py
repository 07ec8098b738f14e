"""What listens at a port that is not the one that was meant, by the first bytes that it sends.

The ports of yunishard are next to each other in every configuration, so the wrong one is easily named. Its peer would
otherwise be silent until a timeout, or print raw bytes. Not here: what is done about it (`rest.py`, `manager.py`).
"""

import asyncio
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

PROBE_MAX_S: Final = 1.0
"""How long each step of a probe may take: to connect, and twice to answer."""

FIRST_BYTES: Final = 16
"""Bytes of an answer that are enough to tell a protocol."""

_SIGNATURE: Final = b"\xff\0\0\0\0\0\0\0\1\x7f"
"""What a ZeroMQ peer sends first."""

_REQUEST: Final = b"GET / HTTP/1.0\r\n\r\n"
TLS_ALERT: Final = b"\x15\x03"
_HTTP2_SETTINGS: Final = 4
"""The type of the first frame that an HTTP/2 peer sends, in its fourth byte."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a probe has found."""

    text: str
    foreign: bool = False
    """Whether another protocol is spoken there, so that waiting is of no use."""


def protocol_of(start: bytes) -> str:
    """Which protocol a peer speaks that begins so, with the port of yunishard that speaks it; empty if unknown.

    >>> protocol_of(b"HTTP/1.1 400")
    "HTTP, as at yunishard's port for REST (9080 unless configured otherwise)"
    """
    if start.startswith(b"HTTP/"):
        return "HTTP, as at yunishard's port for REST (9080 unless configured otherwise)"
    if len(start) > 3 and start[0] == 0 and start[3] == _HTTP2_SETTINGS:
        return "HTTP/2, as at yunishard's port for gRPC (3333 unless configured otherwise)"
    if start[:1] == _SIGNATURE[:1]:
        return "ZeroMQ, as at yunishard's native port (9090 unless configured otherwise)"
    if start.startswith(TLS_ALERT):
        return "TLS, as at yunishard's ports for REST and gRPC with certificates"
    return ""


async def probe(address: str) -> Finding | None:
    """What listens at an address such as tcp://127.0.0.1:9090; None if that cannot be said."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme != "tcp" or not host or not port:
        return None
    try:
        async with asyncio.timeout(PROBE_MAX_S):
            reader, writer = await asyncio.open_connection(host, port)
    except ValueError as error:  # names with empty or long labels, or with a NUL
        return Finding(f"{host!r} is no host name: {error}")
    except socket.gaierror as error:
        return Finding(f"the host {host!r} is not found: {(error.strerror or str(error)).lower()}")
    except (OSError, TimeoutError) as error:
        reason = os.strerror(error.errno).lower() if error.errno else str(error) or "no connection in time"
        return Finding(f"nothing listens there ({reason})")
    try:
        start = b""
        for sent in (_SIGNATURE, _REQUEST):
            writer.write(sent)
            with suppress(TimeoutError):
                async with asyncio.timeout(PROBE_MAX_S):
                    start = await reader.read(FIRST_BYTES)
                    break
    except OSError:
        pass  # it hangs up, which says nothing
    finally:
        writer.close()
    return _finding(start)


def _finding(start: bytes) -> Finding:
    if not start:
        return Finding("something listens there, but says nothing that yunishard's native port would")
    if start[:1] == _SIGNATURE[:1]:
        return Finding("ZeroMQ answers there, but the connection does not come about: do the keys fit?")
    protocol = protocol_of(start)
    what = f"it speaks {protocol}" if protocol else f"it begins with {start!r}"
    return Finding(f"something listens there that is not yunishard's native port: {what}", foreign=True)
