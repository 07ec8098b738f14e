"""A resource manager that speaks gRPC, as the proxy sees it: a native RM whose SDK (`common/session.py`) sits here.

gRPC has neither numbers nor acknowledgements, so this side of the proxy keeps the RM's session with the core,
acknowledges for it, and holds what the core says until a stream takes it. Memory stays bounded without dropping
anything: commands wait while their partition has too much unacknowledged, and results are no longer acknowledged while
too many wait here, upon which the partitions of this RM stop allocating.

Not here: the gRPC server, who is registered and which stream may be bound to whom (`grpc_port.py`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import grpc

from common.machine import Delivery
from common.messages import (
    AllocationRequest,
    AllocationResponse,
    ApplicationRequest,
    ApplicationResponse,
    ConfigurationUpdated,
    EventResponse,
    Header,
    NodeRequest,
    NodeResponse,
    PartitionRestarted,
    Refused,
    Registered,
    RegisterResourceManager,
    SchedulingStateResponse,
)
from common.session import Outgoing, Session
from common.wire import WireError

PEER: Final = "grpc:"
"""A gRPC RM is the peer `grpc:<rm-id>` of the proxy's machine."""

RESPONSES_QUEUED_MAX: Final = 1024
"""Responses that may wait for an RM's streams before the core is no longer told that they arrived, and the RM's updates
are no longer read. What the core may still send then is a window for each partition (`outbox.WINDOW_MESSAGES`)."""

RESPONSE_ENTRIES_MAX: Final = 10_000
"""Allocations, releases or refusals in one response, about 2 MiB: a gRPC client refuses more than 4 MiB unless it was
told otherwise, and that would end the stream."""

Ending = tuple[grpc.StatusCode, str]
Update = NodeRequest | ApplicationRequest | AllocationRequest
Response = NodeResponse | ApplicationResponse | AllocationResponse


class SessionLostError(Exception):
    """The core and this RM no longer agree on what was said: the RM has to register again."""


class RmStream:
    """One open stream of an RM: what is to be written next, and how it ends.

    open --bind--> bound --end(code, text)--> ended, with that status
      |              |------half_close------> flushing, then ended with OK
      +---- end or half_close, as above
    """

    def __init__(self, response: type[Response]) -> None:
        self.response: Final = response
        """What the core says on it."""
        self.rm: GrpcRm | None = None
        """Set once, when the stream is bound."""
        self.ending: Ending | None = None
        self._half_closed = False
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Something was queued."""
        self._changed.set()

    def half_close(self) -> None:
        """The RM sends no more: the stream ends once nothing is queued."""
        self._half_closed = True
        self._changed.set()

    def end(self, code: grpc.StatusCode, text: str) -> None:
        """End at once; what is queued waits for the next stream. The first ending holds."""
        self.ending = self.ending or (code, text)
        self._changed.set()

    async def next(self) -> Response | None:
        """The response to write now, which stays queued until `written`; None when the stream is over."""
        while self.ending is None:
            if self.rm is not None and (queue := self.rm.queued(self.response)):
                return queue[0]
            if self._half_closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        return None

    def written(self) -> None:
        """gRPC took the response. If the stream ended meanwhile it is not certain where to, and it stays queued."""
        if self.rm is not None and self.ending is None:
            self.rm.written(self.response)


class GrpcRm:
    """One registration of one RM: its session with the core, its streams, and the responses that wait for them."""

    def __init__(self, *, rm_id: str, session: str, deliver: Callable[[Delivery], None]) -> None:
        self.session: Final = Session(rm_id=rm_id, session=session)
        self.ending: Ending | None = None
        """How it ended, if it has; for a registration in progress that is its answer."""
        self.answered: Final = asyncio.Event()
        """Set when the registration has come to something."""
        self._source = PEER + rm_id
        self._deliver = deliver
        self._queues: dict[type[Response], deque[Response]] = {
            NodeResponse: deque(),
            ApplicationResponse: deque(),
            AllocationResponse: deque(),
        }
        self._streams: dict[type[Response], RmStream] = {}
        """At most one for each sort of response, and none that has ended."""
        self._room = asyncio.Event()
        """Set when commands may have been acknowledged, or responses written."""
        self._acknowledging = False
        """Whether `_acknowledge` is about to run."""

    # To the core ----------------------------------------------------------------------------------------------------

    def register(self, request: RegisterResourceManager) -> None:
        """Say it to the core; `answered` tells when its word on it has come."""
        self._say(self.session.register(request))

    async def update(self, command: Update) -> None:
        """Say it to the partitions concerned, once all have room for it and the RM has read what it was told."""
        while self._congested or self.session.full(command):
            self._room.clear()
            await self._room.wait()
        for outgoing in self.session.update(command):
            self._say(outgoing)

    def _say(self, outgoing: Outgoing) -> None:
        self._deliver(Delivery(source=self._source, header=outgoing.header, body=outgoing.body))

    # From the core --------------------------------------------------------------------------------------------------

    def receive(self, header: Header, body: bytes) -> None:
        """Take what the core says to this session.

        Raises:
            SessionLostError: nothing can be made of it, or the core lost what this RM told it.
        """
        try:
            message = self.session.receive(header, body)
        except WireError as error:
            raise SessionLostError(str(error)) from None
        self._room.set()
        self._acknowledge_soon()
        match message:
            case NodeResponse() | ApplicationResponse() | AllocationResponse():
                self._queue(type(message), _pieces(message))
            case Registered():
                self.answered.set()
            case EventResponse() | SchedulingStateResponse() | ConfigurationUpdated():
                return  # the scheduler interface has no word for these
            case Refused() if self.session.state == "refused":
                busy = message.code == "busy"  # worth trying again, as it is
                self.end(grpc.StatusCode.ABORTED if busy else grpc.StatusCode.INVALID_ARGUMENT, message.reason)
            case Refused():
                raise SessionLostError(f"the core refused an update: {message.reason}")
            case PartitionRestarted():
                raise SessionLostError(f"partition {header.partition} was restarted and lost what it knew")
            case _:
                assert message is None, message

    @property
    def _congested(self) -> bool:
        """Whether so many responses wait for a stream that nothing more is acknowledged or taken."""
        return sum(map(len, self._queues.values())) >= RESPONSES_QUEUED_MAX

    def _queue(self, kind: type[Response], responses: Iterable[Response]) -> None:
        self._queues[kind].extend(responses)
        if (stream := self._streams.get(kind)) is not None:
            stream.wake()

    def _acknowledge_soon(self) -> None:
        """Once for all messages that arrive in one turn of the loop."""
        if not self._acknowledging:
            self._acknowledging = True
            asyncio.get_running_loop().call_soon(self._acknowledge)

    def _acknowledge(self) -> None:
        self._acknowledging = False
        if not self._congested:
            for outgoing in self.session.acknowledgements():
                self._say(outgoing)

    # Streams --------------------------------------------------------------------------------------------------------

    def bind(self, stream: RmStream) -> None:
        """Let responses of its sort go out on this stream; the one that had them ends."""
        if (old := self._streams.get(stream.response)) is not None:
            old.end(grpc.StatusCode.ABORTED, f"another stream of RM {self.session.rm_id} took over")
        self._streams[stream.response] = stream
        stream.rm = self
        stream.wake()

    def unbind(self, stream: RmStream) -> None:
        """The stream is over: what is queued waits for the next one."""
        if self._streams.get(stream.response) is stream:
            del self._streams[stream.response]

    def queued(self, kind: type[Response]) -> deque[Response]:
        """Responses of a sort that are not written yet, oldest first."""
        return self._queues[kind]

    def written(self, kind: type[Response]) -> None:
        """The oldest response of this sort is on its way."""
        self._queues[kind].popleft()
        self._room.set()
        self._acknowledge_soon()

    def end(self, code: grpc.StatusCode, text: str) -> None:
        """This registration is over: its streams end, and what was queued is forgotten. The first ending holds."""
        self.ending = self.ending or (code, text)
        self.answered.set()
        for stream in self._streams.values():
            stream.end(code, text)
        self._streams.clear()
        for queue in self._queues.values():
            queue.clear()


def _pieces(response: Response) -> Iterator[Response]:
    """The response, in several if it is too large for one."""
    if not isinstance(response, AllocationResponse):
        yield response
        return
    entries = max(len(response.new), len(response.released), len(response.rejected_allocations))
    if entries <= RESPONSE_ENTRIES_MAX:
        yield response
        return
    for start in range(0, entries, RESPONSE_ENTRIES_MAX):
        piece = slice(start, start + RESPONSE_ENTRIES_MAX)
        yield AllocationResponse(
            new=response.new[piece],
            released=response.released[piece],
            rejected_allocations=response.rejected_allocations[piece],
            cause=response.cause,
        )
