"""Identify what listens at a wrong port, by the first bytes that it sends.

The ports of yunishard are easily confused, and the peer at the wrong one is silent or sends binary data.
Not here: what follows from a finding (`client.py`, `commands/rest.py`).
"""

import os
import socket
from contextlib import suppress
from typing import Final, NamedTuple
from urllib.parse import urlsplit

PROBE_MAX_S: Final = 1.0
"""Timeout of each step of a probe: to connect, and twice to answer."""

FIRST_BYTES: Final = 16
"""Bytes of an answer that identify a protocol."""

_SIGNATURE: Final = b"\xff\0\0\0\0\0\0\0\1\x7f"
"""First bytes of a ZeroMQ peer."""

TLS_ALERT: Final = b"\x15\x03"
_HTTP2_SETTINGS: Final = 4
"""Type of the first frame of an HTTP/2 peer, in its fourth byte."""


class Finding(NamedTuple):
    """Result of a probe."""

    text: str
    is_foreign: bool = False
    """Whether the port has another protocol, so that waiting is of no use."""


def describe_peer(start: bytes) -> str:
    """Describe a peer of another protocol by its first bytes; names the port of yunishard that has this protocol.

    >>> describe_peer(b"HTTP/1.1 400")
    "the protocol is HTTP, as at yunishard's port for REST (9080 unless configured otherwise)"
    """
    if start.startswith(b"HTTP/"):
        return "the protocol is HTTP, as at yunishard's port for REST (9080 unless configured otherwise)"
    if len(start) > 3 and start[0] == 0 and start[3] == _HTTP2_SETTINGS:
        return "the protocol is HTTP/2, as at yunishard's port for gRPC (3333 unless configured otherwise)"
    if start[:1] == _SIGNATURE[:1]:
        return "the protocol is ZeroMQ, as at yunishard's native port (9090 unless configured otherwise)"
    if start.startswith(TLS_ALERT):
        return "the protocol is TLS, as at yunishard's ports for REST and gRPC with certificates"
    return f"it answers with {start!r}"


async def probe(address: str) -> Finding | None:
    """Find out what listens at a valid address such as tcp://127.0.0.1:9090; None if it is not for TCP."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    if parts.scheme != "tcp":
        return None
    import asyncio  # imported here, as the commands describe a peer without a probe

    try:
        async with asyncio.timeout(PROBE_MAX_S):
            reader, writer = await asyncio.open_connection(host, parts.port)
    except ValueError as error:  # names with empty or long labels, or with a NUL
        return Finding(f"{host!r} is no host name: {error}")
    except socket.gaierror as error:
        return Finding(f"the host {host!r} is not found: {(error.strerror or str(error)).lower()}")
    except (OSError, TimeoutError) as error:
        reason = os.strerror(error.errno).lower() if error.errno else str(error) or "no connection in time"
        return Finding(f"nothing listens there ({reason})")
    start = b""
    try:
        for request in (_SIGNATURE, b"GET / HTTP/1.0\r\n\r\n"):
            writer.write(request)
            with suppress(TimeoutError):
                async with asyncio.timeout(PROBE_MAX_S):
                    start = await reader.read(FIRST_BYTES)
                    break
    except OSError:
        pass  # the peer closed the connection
    finally:
        writer.close()
    if not start:
        return Finding("something listens there, but sends nothing that yunishard's native port would send")
    if start[:1] == _SIGNATURE[:1]:
        return Finding("ZeroMQ answers there, but the handshake fails: do the keys fit?")
    text = f"something listens there that is not yunishard's native port: {describe_peer(start)}"
    return Finding(text, is_foreign=True)
