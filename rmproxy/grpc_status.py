"""gRPC statuses with which calls and streams end, and parsing of requests; `docs/grpc.md` has a table of the statuses.

Not here: when a call ends (`grpc_scheduler_service.py`, `grpc_manager.py`, `grpc_admin_service.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

STATUS_TEXT_BYTES_MAX: Final = 2000
"""Size of the text in a status. It is sent percent-encoded, at most three times as long, in metadata, of which clients
accept 8 KiB; beyond that they would see neither code nor text."""

RETRY_METADATA: Final = "grpc-retry-pushback-ms"
"""Trailing metadata with the pause before a retry; the name is gRPC's own."""

RETRY_S: Final = 1.0
"""The pause where an early retry makes sense."""

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


@dataclass(frozen=True, slots=True)
class Status:
    """A status other than OK, and the pause before a retry; 0 where a retry alone does not help."""

    code: grpc.StatusCode
    text: str
    retry_s: float = 0


class StatusError(Exception):
    """A call or stream ends with this status."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.text)
        self.status = status


async def abort(context: grpc.aio.ServicerContext[_Request, _Response], status: Status) -> NoReturn:
    """End a call with a status; the text is cut to what clients accept."""
    text = status.text.encode()[:STATUS_TEXT_BYTES_MAX].decode(errors="ignore")
    trailing = ((RETRY_METADATA, str(int(status.retry_s * 1000))),) if status.retry_s else ()
    await context.abort(status.code, text, trailing)


_STATUSES: Final = {
    "busy": grpc.StatusCode.ABORTED,
    "flood": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "unknown-session": grpc.StatusCode.FAILED_PRECONDITION,
    "window": grpc.StatusCode.ABORTED,
}
"""Native refusal code to status; any other refusal is an invalid request."""

_RETRIABLE: Final = frozenset({grpc.StatusCode.ABORTED, grpc.StatusCode.RESOURCE_EXHAUSTED})


# In the order in which an RM may meet them ----------------------------------------------------------------------------


def stopping(retry_s: float = RETRY_S) -> Status:
    """The proxy stops in order."""
    return Status(grpc.StatusCode.UNAVAILABLE, "the scheduler is stopping", retry_s)


def not_permitted(rm_id: str, permitted: tuple[str, ...]) -> Status:
    """The client's certificate is for other RMs."""
    named = ", ".join(f'"{name}"' for name in permitted) or "nobody"
    return Status(grpc.StatusCode.PERMISSION_DENIED, f'this certificate is for RM {named}, not for "{rm_id}"')


def key_required(rm_id: str) -> Status:
    """The RM has a native key, and the client has no certificate."""
    text = (
        f'RM "{rm_id}" has a native key: connect to the native port with that key, or over gRPC with a client '
        "certificate for this RM id (the core needs --grpc-tls-client-ca)"
    )
    return Status(grpc.StatusCode.UNAUTHENTICATED, text)


def refused(code: str, reason: str) -> Status:
    """The core refused a call; `code` is the one of the native protocol."""
    status = _STATUSES.get(code, grpc.StatusCode.INVALID_ARGUMENT)
    return Status(status, reason, RETRY_S if status in _RETRIABLE else 0)


def in_progress(rm_id: str) -> Status:
    """Another registration of this RM is in progress."""
    return Status(grpc.StatusCode.ABORTED, f"a registration of RM {rm_id} is in progress", RETRY_S)


def unanswered(waited_s: float) -> Status:
    """The core did not answer a registration."""
    return Status(grpc.StatusCode.DEADLINE_EXCEEDED, f"the core did not answer within {waited_s:g} s", RETRY_S)


def unregistered(request: str, rm_id: str) -> Status:
    """The RM is not registered. The text is the reference's."""
    return Status(grpc.StatusCode.FAILED_PRECONDITION, f'received {request}, but RmID="{rm_id}" not registered')


def registered_again(rm_id: str) -> Status:
    """A later registration replaced this one."""
    return Status(grpc.StatusCode.ABORTED, f"RM {rm_id} registered again")


def lost(reason: str) -> Status:
    """The states of the core and the RM differ."""
    return Status(grpc.StatusCode.ABORTED, f"{reason}: register again")


def left(rm_id: str) -> Status:
    """The RM left."""
    return Status(grpc.StatusCode.ABORTED, f"RM {rm_id} left")


def taken_over(rm_id: str) -> Status:
    """Another stream of the same kind receives the responses."""
    return Status(grpc.StatusCode.ABORTED, f"another stream of RM {rm_id} took over")


def foreign(rm_id: str, named: str) -> Status:
    """A request on this RM's stream names another RM."""
    return Status(grpc.StatusCode.INVALID_ARGUMENT, f'this stream is of RM "{rm_id}", not of "{named}"')


def too_large(size: int, most: int) -> Status:
    """A request is over the size limit."""
    text = f"a message of {size} bytes, at most {most} are taken: send fewer items at once"
    return Status(grpc.StatusCode.RESOURCE_EXHAUSTED, text)


def malformed(request: str, problem: str) -> Status:
    """A request cannot be decoded."""
    return Status(grpc.StatusCode.INVALID_ARGUMENT, f"not a {request}: {problem}")


# Requests -------------------------------------------------------------------------------------------------------------

REQUEST_BYTES_MAX: Final = 32 << 20
"""A larger request is refused with our text, one of twice the size with gRPC's. It is half the limit of our own
messages, whose encoding has the names of the fields (`grpc_conversion.py`)."""

RM_METADATA: Final = "yk-rm-id"
"""Metadata that names the RM of a call or stream."""

_Protobuf = TypeVar("_Protobuf", bound=Message)
_Ours = TypeVar("_Ours")


def parse_request(kind: type[_Protobuf], convert_from: Callable[[_Protobuf], _Ours], data: bytes) -> _Ours:
    """Decode a request.

    Raises:
        StatusError: it is too large, or not a message of this kind.
    """
    if len(data) > REQUEST_BYTES_MAX:
        raise StatusError(too_large(len(data), REQUEST_BYTES_MAX))
    try:
        return convert_from(kind.FromString(data))
    except DecodeError as error:
        raise StatusError(malformed(kind.DESCRIPTOR.name, str(error))) from None


def rm_in_metadata(context: grpc.aio.ServicerContext[bytes, bytes]) -> str:
    """Return the RM id in a call's metadata; empty if there is none."""
    return str(dict(context.invocation_metadata() or ()).get(RM_METADATA) or "")
