"""The streams that an RM has open, and the responses that wait for them.

    open --bind--> bound --end(ending)--> ended, with that status
      |              |------half_close------> flushing, then ended with OK
      +---- end or half_close, as above

A response stays in its queue until gRPC has taken it, so what a stream did not get rid of goes out on the next one of
its sort, in order. What gRPC has taken and the network loses is lost: the scheduler interface has no acknowledgements.

Not here: whose a stream may be (`grpc_port.py`), what is queued (`grpc_rm.py`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from rmproxy.grpc_endings import Ending

HANDOVER_S: Final = 1.0
"""How long a new stream waits until it is known whether the old one got rid of what it was writing. After that its
client counts as one that does not read: the response goes out on the new stream, and should the old client read on
after all, there too.
"""


class RmStream:
    """One open stream: what is to be written next, and how it ends."""

    def __init__(self, permitted: tuple[str, ...] | None = None) -> None:
        self.permitted: Final = permitted
        """The RM ids that the client's certificate is for; None if it needed none."""
        self.rm_id = ""
        """The RM whose stream this is; empty until it is bound."""
        self.ending: Ending | None = None
        self._queue: ResponseQueue | None = None
        """Set once, when the stream is bound."""
        self._half_closed = False
        self._changed = asyncio.Event()

    def bind(self, queue: "ResponseQueue") -> None:
        """Take the responses of this queue from now on."""
        self._queue = queue
        self._changed.set()

    def wake(self) -> None:
        """Something was queued, or may be written now."""
        self._changed.set()

    def half_close(self) -> None:
        """The RM sends no more: the stream ends once nothing is queued."""
        self._half_closed = True
        self._changed.set()

    def end(self, ending: Ending) -> None:
        """End as soon as nothing is being written; what is queued waits for the next stream. The first ending holds."""
        self.ending = self.ending or ending
        self._changed.set()

    async def next(self) -> bytes | None:
        """The response to write now, which stays queued until `written`; None when the stream is over."""
        while self.ending is None:
            if self._queue is not None and (response := self._queue.handed_to(self)) is not None:
                return response
            if self._half_closed and (self._queue is None or not len(self._queue)):
                return None
            self._changed.clear()
            await self._changed.wait()
        return None

    def written(self) -> None:
        """GRPC took the response."""
        assert self._queue is not None
        self._queue.written(self)

    def over(self) -> None:
        """The stream has ended, however it did."""
        if self._queue is not None:
            self._queue.leave(self)


class ResponseQueue:
    """The encoded responses of one sort that no stream has got rid of, oldest first, and the stream that takes them."""

    def __init__(self, *, drained: Callable[[], None], left: Callable[[], None]) -> None:
        """`drained` is called when a response is on its way, `left` when the queue's stream is over."""
        self.stream: RmStream | None = None
        """The one that takes responses; never one that has ended."""
        self.size = 0
        """Bytes."""
        self._responses: deque[bytes] = deque()
        self._writer: RmStream | None = None
        """The stream that has handed the oldest response to gRPC and does not know yet whether it is on its way."""
        self._drained = drained
        self._left = left

    def __len__(self) -> int:
        return len(self._responses)

    def extend(self, responses: Iterable[bytes]) -> None:
        """Queue them."""
        for response in responses:
            self._responses.append(response)
            self.size += len(response)
        if self.stream is not None:
            self.stream.wake()

    def clear(self) -> None:
        """Forget everything."""
        self._responses.clear()
        self.size, self._writer = 0, None

    def bind(self, stream: RmStream) -> None:
        """Let responses go out on this stream, in place of another one, which has been told to end."""
        self.stream = stream
        if self._writer is not None:
            asyncio.get_running_loop().call_later(HANDOVER_S, self._settle, self._writer)
        stream.bind(self)

    def handed_to(self, stream: RmStream) -> bytes | None:
        """The oldest response, for this stream to write; None while there is none, or another one is writing it."""
        if not self._responses or self._writer is not None:
            return None
        self._writer = stream
        return self._responses[0]

    def written(self, stream: RmStream) -> None:
        """The response that the stream was handed is on its way."""
        if self._writer is stream:
            self.size -= len(self._responses.popleft())
            self._settle(stream)
            self._drained()

    def leave(self, stream: RmStream) -> None:
        """The stream is over: what it has not written is queued still."""
        self._settle(stream)
        if self.stream is stream:
            self.stream = None
            self._left()

    def _settle(self, writer: RmStream) -> None:
        """This stream writes nothing any more."""
        if self._writer is writer:
            self._writer = None
            if self.stream is not None and self.stream is not writer:
                self.stream.wake()
