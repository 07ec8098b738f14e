"""Calls and streams of the gRPC port: the statuses with which they end, parsing of requests, and queues of responses.

`docs/grpc.md` has a table of the statuses.

    open --bind--> bound --end(status)--> ended, with that status
      |              |-----half_close-----> flushing, then ended with OK
      +---- end or half_close, as above

A response stays in its queue until gRPC has accepted it, so responses that a stream did not write go out on the next
stream of its kind, in order. A response that gRPC accepted and the network loses is lost: the scheduler interface has
no acknowledgements.

Not here: authorization of streams and the end of calls (`grpc_scheduler_service.py`, `grpc_admin_service.py`), contents
of the queues (`grpc_manager.py`), how many calls may be open (`rate_limit.py`).
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final, NoReturn, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from yunishard.rmproxy import rate_limit
from yunishard.rmproxy.rate_limit import OpenCalls, WaitingCalls, identify_peer

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


_REFUSALS: Final = {
    "busy": (grpc.StatusCode.ABORTED, RETRY_S),
    "flood": (grpc.StatusCode.RESOURCE_EXHAUSTED, RETRY_S),
    "unknown-session": (grpc.StatusCode.FAILED_PRECONDITION, 0.0),
    "window": (grpc.StatusCode.ABORTED, RETRY_S),
}
"""Native refusal code to status and pause; any other refusal is an invalid request."""


def make_refusal_status(code: str, reason: str) -> Status:
    """The status for a call that the core refused; `code` is the one of the native protocol."""
    status, retry_s = _REFUSALS.get(code, (grpc.StatusCode.INVALID_ARGUMENT, 0.0))
    return Status(status, reason, retry_s)


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
    UNREAD = (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "{waiting} messages wait to be read: open the stream again, and read faster",
    )
    NOT_CAPABLE = (
        grpc.StatusCode.FAILED_PRECONDITION,
        "RM {rm_id} registered without this capability: register with the metadata yk-capabilities: {capability}",
    )
    TAKEN_OVER = grpc.StatusCode.ABORTED, "another stream of RM {rm_id} took over"
    OTHER_RM = grpc.StatusCode.INVALID_ARGUMENT, 'this stream is of RM "{rm_id}", not of "{named}"'
    TOO_LARGE = (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "a message of {size} bytes, at most {most} are taken: send fewer items at once",
    )
    MALFORMED = grpc.StatusCode.INVALID_ARGUMENT, "not a {request}: {problem}"
    STALLED = grpc.StatusCode.RESOURCE_EXHAUSTED, "no responses were read for {unread_s:g} s"
    SILENT = grpc.StatusCode.DEADLINE_EXCEEDED, "no message arrived within {within_s:g} s: send one that names the RM"
    DISPLACED = (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "too many calls wait for their first message: send one, or name the RM in the metadata",
        RETRY_S,
    )
    TOO_MANY = (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "too many {calls}: at most {of_all} of all clients, and {of_one} of one",
        RETRY_S,
    )

    def make(self, **values: object) -> Status:
        """The status with these values in its text."""
        code, text, *pause = self.value
        return Status(code, text.format(**values), *pause)


class Feed:
    """Messages for one stream of a client, oldest first, until it ends."""

    def __init__(self, *, most: int) -> None:
        """`most` is the number of messages that may wait; one more ends the stream."""
        self._most = most
        self._waiting: deque[bytes] = deque()
        self._status: Status | None = None
        self._is_closed = False
        self._changed = asyncio.Event()

    def put(self, message: bytes) -> None:
        """Append a message."""
        if len(self._waiting) >= self._most:
            self.end(StatusKind.UNREAD.make(waiting=self._most))
        else:
            self._waiting.append(message)
            self._changed.set()

    def end(self, status: Status) -> None:
        """End the stream at once. The first status holds."""
        self._status = self._status or status
        self._changed.set()

    def close(self) -> None:
        """End the stream with OK once all messages are written."""
        self._is_closed = True
        self._changed.set()

    async def next(self) -> bytes | None:
        """Return the next message; None at the end.

        Raises:
            StatusError: the stream ends with this status.
        """
        while self._status is None:
            if self._waiting:
                return self._waiting.popleft()
            if self._is_closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        raise StatusError(self._status)


# Requests -------------------------------------------------------------------------------------------------------------

REQUEST_BYTES_MAX: Final = 32 << 20
"""A larger request is refused with our text, one of twice the size with gRPC's. It is half the limit of our own
messages, whose encoding has the names of the fields (`grpc_conversion.py`)."""

RM_METADATA: Final = "yk-rm-id"
"""Metadata that names the RM of a call or stream."""

_Protobuf = TypeVar("_Protobuf", bound=Message)


def parse_request(kind: type[_Protobuf], data: bytes) -> _Protobuf:
    """Decode a request.

    Raises:
        StatusError: it is too large, or not a message of this kind.
    """
    if len(data) > REQUEST_BYTES_MAX:
        raise StatusError(StatusKind.TOO_LARGE.make(size=len(data), most=REQUEST_BYTES_MAX))
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise StatusError(StatusKind.MALFORMED.make(request=kind.DESCRIPTOR.name, problem=error)) from None


CAPABILITIES_METADATA: Final = "yk-capabilities"
"""Metadata of a registration: the capabilities of the RM, as natively, with commas between."""


SESSION_METADATA: Final = "yk-session"
"""Metadata of a registration: `keep`, to get the key of the session in the answer. With the key, a stream or call
continues the session at another proxy.
"""

KEEP_SESSION: Final = "keep"


def read_metadata(context: Context, name: str) -> str:
    """Return the text with this name in a call's metadata; empty if there is none."""
    return str(dict(context.invocation_metadata() or ()).get(name) or "")


# Limits on open calls -------------------------------------------------------------------------------------------------

FIRST_MESSAGE_S: Final = 10.0
"""Seconds in which the first message of a call or stream has to arrive that does not name its RM in the metadata; then
the call ends."""


class CallLimits:
    """The open calls of the port that are counted."""

    def __init__(self) -> None:
        self.waiting = WaitingCalls()
        self.registrations = OpenCalls(rate_limit.REGISTRATIONS_MAX, rate_limit.REGISTRATIONS_OF_PEER_MAX)
        self.streams = OpenCalls(rate_limit.STREAMS_MAX, rate_limit.STREAMS_OF_PEER_MAX)

    async def read_first(self, requests: AsyncIterator[bytes], context: Context) -> bytes | None:
        """Return the first message of a call; None if the client sends none.

        Raises:
            StatusError: none arrived in time, or before too many other calls waited for theirs.
        """
        is_displaced = False
        try:
            async with asyncio.timeout(FIRST_MESSAGE_S) as limit:

                def end() -> None:
                    nonlocal is_displaced
                    is_displaced = True
                    limit.reschedule(asyncio.get_running_loop().time())

                with self.waiting.hold(read_peer(context), end):
                    return await anext(requests, None)
        except TimeoutError:
            status = StatusKind.DISPLACED.make() if is_displaced else StatusKind.SILENT.make(within_s=FIRST_MESSAGE_S)
            raise StatusError(status) from None

    async def read_request(self, kind: type[_Protobuf], requests: AsyncIterator[bytes], context: Context) -> _Protobuf:
        """Return the only message of a call; it is empty if the client sends none.

        gRPC's own calls with one message are not used: they wait for it without a limit.

        Raises:
            StatusError: as `read_first` and `parse_request`.
        """
        return parse_request(kind, await self.read_first(requests, context) or b"")

    @contextmanager
    def hold_stream(self, context: Context) -> Iterator[None]:
        """Count a call until its end.

        Raises:
            StatusError: there are too many.
        """
        peer = read_peer(context)
        enter(self.streams, peer, "calls of yunishard.v1.Admin")
        try:
            yield
        finally:
            self.streams.leave(peer)


def enter(calls: OpenCalls, peer: str, name: str) -> None:
    """Count a call of a peer until it leaves; `name` is the kind of calls for the error message.

    Raises:
        StatusError: there are too many.
    """
    if not calls.enter(peer):
        raise StatusError(StatusKind.TOO_MANY.make(of_all=calls.most, of_one=calls.most_of_peer, calls=name))


def read_rm_ids(auth_context: Mapping[str, Iterable[bytes]]) -> tuple[str, ...] | None:
    """Return the RM ids in the certificate of a caller, from gRPC's authentication context; None without one."""
    if not auth_context.get("x509_pem_cert"):
        return None
    names = [name for kind in ("peer_dns", "peer_uri") for name in auth_context.get(kind, ())]
    names = names or list(auth_context.get("x509_common_name", ()))
    return tuple(dict.fromkeys(name.decode(errors="replace") for name in names))


def read_peer(context: Context) -> str:
    """Return the peer whose calls are counted together."""
    return identify_peer(context.peer(), read_rm_ids(context.auth_context()))


# Streams --------------------------------------------------------------------------------------------------------------

STALLED_MAX_S: Final = 30.0
"""Seconds that a client may take to accept a response of a stream that ends; then the stream is cut off. The response
stays queued."""

HANDOVER_S: Final = 1.0
"""Seconds that a new stream waits for the old one to finish the response that it is writing. After that the old client
counts as one that does not read: the response goes out on the new stream, and possibly on the old one, too.
"""


class RmStream:
    """One open stream: returns the response to write next, and ends."""

    def __init__(self, permitted: tuple[str, ...] | None = None) -> None:
        self.permitted: Final = permitted
        """The RM ids that the client's certificate is for; None if it needed none."""
        self.rm_id = ""
        """The RM whose stream this is; empty until it is bound."""
        self.status: Status | None = None
        self._queue: ResponseQueue | None = None
        """Set once, when the stream is bound."""
        self._half_closed = False
        self._writing: asyncio.Timeout | None = None
        """Set while a response is written."""
        self._changed = asyncio.Event()

    def bind(self, queue: "ResponseQueue") -> None:
        """Write the responses of this queue from now on."""
        self._queue = queue
        self._changed.set()

    def wake(self) -> None:
        """Check again whether a response can be written."""
        self._changed.set()

    def half_close(self) -> None:
        """Note that the RM sends no more: the stream ends once the queue is empty."""
        self._half_closed = True
        self._limit_write()
        self._changed.set()

    def end(self, status: Status) -> None:
        """End once the current response is written; queued ones wait for the next stream. The first status holds."""
        self.status = self.status or status
        self._limit_write()
        self._changed.set()

    async def write(self, accepted: Awaitable[None]) -> None:
        """Wait until gRPC has accepted the response; if the stream ends, at most STALLED_MAX_S.

        Raises:
            TimeoutError: gRPC has not accepted it by then.
        """
        try:
            async with asyncio.timeout(None) as limit:
                self._writing = limit
                if self.status is not None or self._half_closed:
                    self._limit_write()
                await accepted
        finally:
            self._writing = None
        self.confirm_written()

    def confirm_written(self) -> None:
        """Remove the response, as gRPC has accepted it."""
        assert self._queue is not None
        self._queue.confirm_written(self)

    def _limit_write(self) -> None:
        if self._writing is not None and self._writing.when() is None:
            self._writing.reschedule(asyncio.get_running_loop().time() + STALLED_MAX_S)

    async def next_response(self) -> bytes | None:
        """Return the response to write now, queued until `confirm_written`; None at the end of the stream."""
        while self.status is None:
            if self._queue is not None and (response := self._queue.next_response_for(self)) is not None:
                return response
            if self._half_closed and (self._queue is None or not len(self._queue)):
                return None
            self._changed.clear()
            await self._changed.wait()
        return None

    def release(self) -> None:
        """Release the queue at the end of the stream."""
        if self._queue is not None:
            self._queue.unbind(self)


class ResponseQueue:
    """Encoded responses of one kind that no stream has written, oldest first, and the stream that writes them."""

    def __init__(self, *, on_written: Callable[[], None], on_stream_end: Callable[[], None]) -> None:
        """`on_written` is called when a response is written, `on_stream_end` when the queue's stream ends."""
        self.stream: RmStream | None = None
        """The stream that writes responses; never one that has ended."""
        self.size = 0
        """Bytes."""
        self._responses: deque[bytes] = deque()
        self._writer: RmStream | None = None
        """The stream that passed the oldest response to gRPC, until gRPC has accepted it."""
        self._on_written = on_written
        self._on_stream_end = on_stream_end

    def __len__(self) -> int:
        return len(self._responses)

    def extend(self, responses: Iterable[bytes]) -> None:
        """Append responses."""
        for response in responses:
            self._responses.append(response)
            self.size += len(response)
        if self.stream is not None:
            self.stream.wake()

    def clear(self) -> None:
        """Discard all responses."""
        self._responses.clear()
        self.size, self._writer = 0, None

    def bind(self, stream: RmStream) -> None:
        """Write responses on this stream, in place of the previous one, which is ending."""
        self.stream = stream
        if self._writer is not None:
            asyncio.get_running_loop().call_later(HANDOVER_S, self._end_write, self._writer)
        stream.bind(self)

    def next_response_for(self, stream: RmStream) -> bytes | None:
        """Return the oldest response for this stream to write; None if there is none, or another stream writes it."""
        if not self._responses or self._writer is not None:
            return None
        self._writer = stream
        return self._responses[0]

    def confirm_written(self, stream: RmStream) -> None:
        """Remove the response that the stream has written."""
        if self._writer is stream:
            self.size -= len(self._responses.popleft())
            self._end_write(stream)
            self._on_written()

    def unbind(self, stream: RmStream) -> None:
        """Unbind a stream that has ended; responses that it has not written stay queued."""
        self._end_write(stream)
        if self.stream is stream:
            self.stream = None
            self._on_stream_end()

    def _end_write(self, writer: RmStream) -> None:
        """Let the present stream write, as this one writes nothing any more."""
        if self._writer is writer:
            self._writer = None
            if self.stream is not None and self.stream is not writer:
                self.stream.wake()
