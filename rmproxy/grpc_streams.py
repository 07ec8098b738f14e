"""Response streams of gRPC RMs, and the queues of responses that wait for them.

    open --bind--> bound --end(status)--> ended, with that status
      |              |-----half_close-----> flushing, then ended with OK
      +---- end or half_close, as above

A response stays in its queue until gRPC has accepted it, so responses that a stream did not write go out on the next
stream of its kind, in order. A response that gRPC accepted and the network loses is lost: the scheduler interface has
no acknowledgements.

Not here: authorization of streams (`grpc_scheduler_service.py`), contents of the queues (`grpc_manager.py`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from rmproxy.grpc_status import Status

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
        self._changed.set()

    def end(self, status: Status) -> None:
        """End once the current response is written; queued ones wait for the next stream. The first status holds."""
        self.status = self.status or status
        self._changed.set()

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

    def confirm_written(self) -> None:
        """Remove the response, as gRPC has accepted it."""
        assert self._queue is not None
        self._queue.confirm_written(self)

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
