"""Bytes from a gRPC client to messages of ours, or to the status that says what is wrong with them.

Not here: what the fields mean (`convert.py`).
"""

from collections.abc import Callable
from typing import Final, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from rmproxy import grpc_endings as endings
from rmproxy.grpc_endings import EndedError

REQUEST_BYTES_MAX: Final = 32 << 20
"""A larger request is refused with a text of ours, one of twice the size with one of gRPC's. It is half of what a
message inside may have, as the names of its fields take room there (`grpc_pieces.py`)."""

RM_METADATA: Final = "yk-rm-id"
"""Metadata by which a call or stream says at once whose it is."""

_Protobuf = TypeVar("_Protobuf", bound=Message)
_Ours = TypeVar("_Ours")


def request_of(kind: type[_Protobuf], convert_from: Callable[[_Protobuf], _Ours], data: bytes) -> _Ours:
    """The request in these bytes.

    Raises:
        EndedError: it is too large, or none of this kind.
    """
    if len(data) > REQUEST_BYTES_MAX:
        raise EndedError(endings.too_large(len(data), REQUEST_BYTES_MAX))
    try:
        return convert_from(kind.FromString(data))
    except DecodeError as error:
        raise EndedError(endings.malformed(kind.DESCRIPTOR.name, str(error))) from None


def rm_named(context: grpc.aio.ServicerContext[bytes, bytes]) -> str:
    """The RM id in a call's metadata; empty if there is none."""
    return str(dict(context.invocation_metadata() or ()).get(RM_METADATA) or "")
