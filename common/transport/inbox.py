"""Endpoints for messages that arise inside a process: requests of the gRPC port, results of work in a thread.

Not here: the event loop that reads them (`event_loop.py`).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from yunishard.common.messages import wire

Wake = Callable[[], None]
"""Ends the wait for messages, as an endpoint may have some."""


class Inbox:
    """An endpoint for messages that arise inside the process, such as the requests of the gRPC port."""

    def __init__(self, *, wake: Wake) -> None:
        self.deliver: Callable[[wire.Outgoing], None] | None = None
        """Called with each message that is sent to this endpoint."""
        self._waiting: deque[wire.Incoming] = deque()
        self._wake = wake

    def put(self, incoming: wire.Incoming) -> None:
        self._waiting.append(incoming)
        self._wake()

    def receive(self) -> wire.Incoming | None:
        return self._waiting.popleft() if self._waiting else None

    def send(self, message: wire.Outgoing) -> None:
        assert self.deliver is not None, message
        self.deliver(message)


class ThreadEndpoint(Inbox):
    """An endpoint whose work blocks, such as that on a disk. One thread does it, in order; each result is a message."""

    def __init__(self, name: str, *, wake: Wake) -> None:
        super().__init__(wake=wake)
        self.queued = 0
        """Sum of the sizes of the work that is not done."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._done: deque[asyncio.Future[wire.Incoming | None]] = deque()

    def run(self, work: Callable[[], wire.Incoming | None], size: int = 1) -> None:
        """Queue work of this size; needs a running loop."""
        self.queued += size
        future = asyncio.get_running_loop().run_in_executor(self._thread, work)
        future.add_done_callback(partial(self._finish, size))

    def _finish(self, size: int, future: "asyncio.Future[wire.Incoming | None]") -> None:
        self.queued -= size
        self._done.append(future)
        self._wake()

    def receive(self) -> wire.Incoming | None:
        while self._done:
            if (incoming := self._done.popleft().result()) is not None:  # an exception is a defect
                return incoming
        return super().receive()

    def close(self) -> None:
        """Wait until all work is done."""
        self._thread.shutdown()
