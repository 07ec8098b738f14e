"""gRPC statuses with which calls and streams end, and parsing of requests; `docs/grpc.md` has a table of the statuses.

Not here: when a call ends (`grpc_scheduler_service.py`, `grpc_manager.py`, `grpc_admin_service.py`).
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
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

Context = grpc.aio.ServicerContext[bytes, bytes]


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


async def abort(context: Context, status: Status) -> NoReturn:
    """End a call with a status; the text is cut to what clients accept."""
    text = status.text.encode()[:STATUS_TEXT_BYTES_MAX].decode(errors="ignore")
    trailing = ((RETRY_METADATA, str(int(status.retry_s * 1000))),) if status.retry_s else ()
    await context.abort(status.code, text, trailing)


@asynccontextmanager
async def abort_on_error(context: Context) -> AsyncIterator[None]:
    """End a call with the status of a StatusError."""
    try:
        yield
    except StatusError as ended:
        await abort(context, ended.status)


_STATUSES: Final = {
    "busy": grpc.StatusCode.ABORTED,
    "flood": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "unknown-session": grpc.StatusCode.FAILED_PRECONDITION,
    "window": grpc.StatusCode.ABORTED,
}
"""Native refusal code to status; any other refusal is an invalid request."""

_RETRIABLE: Final = frozenset({grpc.StatusCode.ABORTED, grpc.StatusCode.RESOURCE_EXHAUSTED})


def make_refusal_status(code: str, reason: str) -> Status:
    """The status for a call that the core refused; `code` is the one of the native protocol."""
    status = _STATUSES.get(code, grpc.StatusCode.INVALID_ARGUMENT)
    return Status(status, reason, RETRY_S if status in _RETRIABLE else 0)


class StatusKind(Enum):
    """The other statuses, in the order in which an RM may meet them: code, text with its values, and pause."""

    STOPPING = grpc.StatusCode.UNAVAILABLE, "the scheduler is stopping", RETRY_S
    NOT_PERMITTED = grpc.StatusCode.PERMISSION_DENIED, 'this certificate is for RM {permitted}, not for "{rm_id}"'
    KEY_REQUIRED = (
        grpc.StatusCode.UNAUTHENTICATED,
        (
            'RM "{rm_id}" has a native key: connect to the native port with that key, or over gRPC with a client '
            "certificate for this RM id (the core needs --grpc-tls-client-ca)"
        ),
    )
    IN_PROGRESS = grpc.StatusCode.ABORTED, "a registration of RM {rm_id} is in progress", RETRY_S
    UNANSWERED = grpc.StatusCode.DEADLINE_EXCEEDED, "the core did not answer within {waited_s:g} s", RETRY_S
    UNREGISTERED = grpc.StatusCode.FAILED_PRECONDITION, 'received {request}, but RmID="{rm_id}" not registered'
    REGISTERED_AGAIN = grpc.StatusCode.ABORTED, "RM {rm_id} registered again"
    SESSION_LOST = grpc.StatusCode.ABORTED, "{reason}: register again"
    LEFT = grpc.StatusCode.ABORTED, "RM {rm_id} left"
    TAKEN_OVER = grpc.StatusCode.ABORTED, "another stream of RM {rm_id} took over"
    OTHER_RM = grpc.StatusCode.INVALID_ARGUMENT, 'this stream is of RM "{rm_id}", not of "{named}"'
    TOO_LARGE = (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "a message of {size} bytes, at most {most} are taken: send fewer items at once",
    )
    MALFORMED = grpc.StatusCode.INVALID_ARGUMENT, "not a {request}: {problem}"

    def __init__(self, code: grpc.StatusCode, text: str, retry_s: float = 0) -> None:
        self.code = code
        self.text = text
        self.retry_s = retry_s

    def make(self, **values: object) -> Status:
        """The status with these values in its text."""
        return Status(self.code, self.text.format(**values), self.retry_s)


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
        raise StatusError(StatusKind.TOO_LARGE.make(size=len(data), most=REQUEST_BYTES_MAX))
    try:
        return convert_from(kind.FromString(data))
    except DecodeError as error:
        raise StatusError(StatusKind.MALFORMED.make(request=kind.DESCRIPTOR.name, problem=error)) from None


def rm_in_metadata(context: Context) -> str:
    """Return the RM id in a call's metadata; empty if there is none."""
    return str(dict(context.invocation_metadata() or ()).get(RM_METADATA) or "")
