"""Bytes to messages and back: three frames, `[protocol] [header] [body]`, and the limits on what comes from outside.

The first frame names protocol and major version in every message, because a socket reconnects without telling. Header
and body are MessagePack. Decoding validates: what is malformed raises `WireError` with the place, and nothing of it
takes effect.

Not here: sockets and routing frames (`sockets.py`), the messages themselves (`messages.py` lists the files).
"""

import math
from typing import Final, Protocol, TypeVar

import msgspec
from msgspec import Struct

from common import control_messages, journal_messages, query_messages, rm_messages
from common.messages import Header, Message, Part

PROTOCOL: Final = b"YSH1"
"""Name and major version. Minor changes add fields, which decoders ignore when they do not know them."""

HEADER_BYTES_MAX: Final = 4096
BODY_BYTES_MAX: Final = 64 << 20

_M = TypeVar("_M", bound=Message)
_encoder = msgspec.msgpack.Encoder()
_header_decoder = msgspec.msgpack.Decoder(Header)

MESSAGE_MODULES: Final = (rm_messages, control_messages, query_messages, journal_messages)
"""Importing them completes `Message.kinds`."""

_decoders: Final[dict[type[Message], msgspec.msgpack.Decoder[Message]]] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in Message.kinds.values()
}
"""Built at import, so that the first message of a kind does not wait for its decoder."""


class WireError(ValueError):
    """A message that cannot be read; the text names the place and what would be right."""


def encode_body(message: Message | Part) -> bytes:
    """The encoded body of a message, or a piece of one that is kept by itself."""
    return _encoder.encode(message)


def encode_header(header: Header) -> bytes:
    """The second frame of a message."""
    return _encoder.encode(header)


def encode_frames(header: Header, body: bytes) -> list[bytes]:
    """The three frames of a message."""
    return [PROTOCOL, encode_header(header), body]


def decode_header(frames: list[bytes]) -> Header:
    """The header of a message, after a look at the number, the version and the size of its frames.

    Raises:
        WireError: not three frames, another protocol, over a limit, or a malformed header.
    """
    if len(frames) != 3:
        raise WireError(f"expected 3 frames (protocol, header, body), got {len(frames)}")
    if frames[0] != PROTOCOL:
        raise WireError(f"expected protocol {PROTOCOL.decode()}, got {frames[0][:16]!r}")
    if len(frames[1]) > HEADER_BYTES_MAX:
        raise WireError(f"header of {len(frames[1])} bytes, at most {HEADER_BYTES_MAX} are allowed")
    try:
        return _header_decoder.decode(frames[1])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"header: {error}") from None


def check_size(body: bytes) -> None:
    """Refuse a body that is too large.

    Raises:
        WireError: with the size and the limit.
    """
    if len(body) > BODY_BYTES_MAX:
        raise WireError(f"body of {len(body)} bytes, at most {BODY_BYTES_MAX} are allowed: send fewer items at once")


def decode_body(kind: type[_M], body: bytes) -> _M:
    """The message of this class in a body.

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


# Machines -------------------------------------------------------------------------------------------------------------

NEVER: Final = math.inf
"""The deadline of a machine that waits for nothing but messages."""

MALFORMED: Final = "Malformed"
"""The kind of an incoming message that cannot be read; its header's `ref` says why."""

FORBIDDEN: Final = "Forbidden"
"""The kind of an incoming message whose sender may not act for the RM in its header; the body says why."""


class Outgoing(Struct, frozen=True, gc=False):
    """A message on its way out: to whom (a peer's name), and the encoded body that no one on the way needs to open."""

    to: str
    header: Header
    body: bytes


class Incoming(Struct, frozen=True, gc=False):
    """A message that arrived: from whom, and still encoded."""

    source: str
    header: Header
    body: bytes


def make_outgoing(to: str, message: Message, header: Header | None = None) -> Outgoing:
    """A `Outgoing` of a message; the kind in the header is the message's class unless a header says otherwise."""
    return Outgoing(to, header or Header(kind=type(message).__name__), encode_body(message))


class Machine(Protocol):
    """Everything a process decides, with nothing it waits for. Times are Unix seconds."""

    @property
    def deadline(self) -> float:
        """When it wants `tick`, or NEVER."""

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """Take one message; what to send because of it."""

    def tick(self, now: float) -> list[Outgoing]:
        """Do what is due; called once `deadline` has passed."""
