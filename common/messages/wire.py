"""Encoding of messages, and the interface of the machines that exchange them.

A message is three frames, `[protocol] [header] [body]`. The first frame names protocol and major version in every
message, because a socket reconnects without notice. Header and body are MessagePack. Decoding validates: a malformed
message raises `WireError` with the place, and no part of it takes effect.

A process is a machine and a driver. The machine decides and never waits: it receives a message and the time, and
returns the messages to send. It has no socket, clock, randomness, logger or environment, so a test, a simulation and a
replay run it exactly as production does. The driver (`common/transport/event_loop.py`) waits and decides nothing.

Not here: sockets and routing frames (`common/transport/event_loop.py`), the messages (`kinds.py` lists the files).
"""

import math
from typing import Final, Protocol, TypeVar

import msgspec
from msgspec import Struct

from yunishard.common.messages import control_messages, journal_messages, query_messages, rm_messages
from yunishard.common.messages.kinds import Header, Message, Part

PROTOCOL: Final = b"YSH1"
"""Name and major version. Minor changes add fields, which older decoders ignore."""

HEADER_BYTES_MAX: Final = 4096
BODY_BYTES_MAX: Final = 64 << 20

MALFORMED: Final = "Malformed"
"""The kind of an incoming message that cannot be decoded; the body is the error as text."""

FORBIDDEN: Final = "Forbidden"
"""The kind of an incoming message whose sender may not act for the RM in its header; the body is the reason as text."""

LINK_LOST: Final = "LinkLost"
"""The kind of a message that a process's own connection delivers when it has been made again, maybe to another broker:
messages in either direction may be lost. It comes before all messages of the new connection, and has no body.
"""

MESSAGE_MODULES: Final = (rm_messages, control_messages, query_messages, journal_messages)
"""Importing them completes `Message.kinds`."""

_M = TypeVar("_M", bound=Message)
_encoder = msgspec.msgpack.Encoder()
_header_decoder = msgspec.msgpack.Decoder(Header)
_decoders: Final[dict[type[Message], msgspec.msgpack.Decoder[Message]]] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in Message.kinds.values()
}
"""Built at import, so that the first message of a kind does not wait for its decoder."""


class WireError(ValueError):
    """A message that cannot be decoded; the text names the place and what is expected there."""


class BrokerAddress(Struct, frozen=True):
    """Where the processes of a system reach the broker."""

    address: str
    """`ipc://PATH` on this machine, `tcp://HOST:PORT` on another."""
    key: str = ""
    """The broker's public CURVE key; empty over `ipc://`."""


class Outgoing(Struct, frozen=True, gc=False):
    """A message to send to the peer `to`, with an encoded body."""

    to: str
    header: Header
    body: bytes


class Incoming(Struct, frozen=True, gc=False):
    """A message that arrived from the peer `source`, with an encoded body."""

    source: str
    header: Header
    body: bytes


def make_outgoing(to: str, message: Message, header: Header | None = None) -> Outgoing:
    """Encode a message for a peer. Without a header it has one with the message's kind only."""
    return Outgoing(to, header or Header(kind=type(message).__name__), encode_body(message))


def encode_body(message: Message | Part) -> bytes:
    """Encode a message, or a part of one that is stored by itself."""
    return _encoder.encode(message)


def encode_frames(header: Header, body: bytes) -> list[bytes]:
    """Return the three frames of a message."""
    return [PROTOCOL, _encoder.encode(header), body]


def decode_incoming(source: str, frames: list[bytes]) -> Incoming:
    """Decode the header of a message; the kind is MALFORMED if that is not possible."""
    try:
        header = decode_header(frames)
    except WireError as error:
        return Incoming(source, Header(kind=MALFORMED), str(error).encode(errors="replace"))
    return Incoming(source, header, frames[2])


def decode_header(frames: list[bytes]) -> Header:
    """Decode the header of a message, after checking the number, version and size of its frames.

    Raises:
        WireError: not three frames, another protocol, over a limit, or a malformed header.
    """
    if len(frames) != 3:
        raise WireError(f"expected 3 frames (protocol, header, body), got {len(frames)}")
    if frames[0] != PROTOCOL:
        raise WireError(f"expected protocol {PROTOCOL.decode()}, got {frames[0][:16]!r}")
    if len(frames[1]) > HEADER_BYTES_MAX:
        raise WireError(f"header of {len(frames[1])} bytes, at most {HEADER_BYTES_MAX} are allowed")
    if (size := len(frames[2])) > BODY_BYTES_MAX:
        raise WireError(f"body of {size} bytes, at most {BODY_BYTES_MAX} are allowed: send fewer items at once")
    try:
        return _header_decoder.decode(frames[1])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"header: {error}") from None


def decode_body(kind: type[_M], body: bytes) -> _M:
    """Decode the message of this class in a body.

    Raises:
        WireError: with the place, as in `$.allocations[3].priority: expected int`.
    """
    try:
        message = _decoders[kind].decode(body)
    except RecursionError:
        raise WireError(f"{kind.__name__}: nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WireError(f"{kind.__name__}: {error}") from None
    assert isinstance(message, kind)
    return message


NEVER: Final = math.inf
"""The deadline of a machine that only waits for messages."""


class Machine(Protocol):
    """Decides what a process does, and never waits. Times are Unix seconds."""

    @property
    def deadline(self) -> float:
        """When to call `tick`, or NEVER."""

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """Process one message, and return the messages to send."""

    def tick(self, now: float) -> list[Outgoing]:
        """Do what is due after `deadline`, and return the messages to send."""
