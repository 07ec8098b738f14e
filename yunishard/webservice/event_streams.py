"""Event streams: sends the events of partitions to REST clients as they happen, one JSON line each.

    EventFollower queries the worker ──lines──► its buffer ──pieces──► EventStream, EventStream, ...
                                                    ▲
                      older or missing events are queried piece by piece

A client is disconnected if its connection accepts nothing for `stalled_max_s`, or for `behind_stalled_max_s` while it
is more than BEHIND_MAX events behind. A client that reads, however slowly, continues as long as the worker has its next
event. All clients of a partition are disconnected when the worker's event sequence does not continue: its instance
changed, it lost its latest events in a crash, events were overwritten before they were read, or it has not answered for
SILENT_MAX_S.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Final

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from yunishard.common.messages.query_messages import COUNT_MAX, EVENT_LINES, Answer, EventLines, Query
from yunishard.common.text_formats import UnsignedError, parse_unsigned
from yunishard.webservice.broker_client import decode_answer
from yunishard.webservice.views import ErrorView, RequestError, encode

CLOSED: Final = "Event stream was closed by the producer"
CLOSED_LINE: Final = encode(ErrorView(status_code=200, message=CLOSED, description=CLOSED))

Clock = Callable[[], float]
"""Monotonic time in seconds."""


@dataclass(slots=True, eq=False, kw_only=True)
class EventStream:
    """One client of the event stream, as an asynchronous iterator of pieces: first the instance of the partition, then
    the events line by line. A client that does not read is disconnected: the rest is dropped, and its last line is an
    error.
    """

    follower: "EventFollower"
    first_line: bytes
    """Sent before the events; empty once it was sent."""
    position: int
    """The number of its next event."""
    host: str
    """The header `Host` of the request."""
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    begun: bool = False
    """Whether it received an event."""
    writing_since: float | None = None
    """When the connection received the piece that it is writing; None while it waits for one."""
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there are new events, or the stream ends."""
    _closing_line: bytes = CLOSED_LINE
    _over: bool = False

    def __aiter__(self) -> "EventStream":
        return self

    async def __anext__(self) -> bytes:
        self.writing_since = None
        piece, self.first_line = self.first_line or await self._piece(), b""
        if not piece:
            raise StopAsyncIteration
        self.writing_since = self.follower.owner.clock()
        return piece

    async def _piece(self) -> bytes:
        """The next piece; after the end the closing line once, then nothing."""
        while not self._over:
            self.wakeup.clear()
            piece = await self.follower.piece(self)
            if piece and not self._over:
                self.begun = True
                return piece
            if not self._over:
                await self.wakeup.wait()
        line, self._closing_line = self._closing_line, b""
        return line

    def cut(self) -> None:
        """Disconnect the client: it receives only the closing line."""
        self._over = True
        self.wakeup.set()
        self.follower.remove(self)

    async def aclose(self) -> None:
        """End the stream: the connection is closed, or everything was sent."""
        self.follower.remove(self)


BEHIND_MAX: Final = 2000
"""Events by which a client may lag before the shorter time limit for a stalled connection applies."""

SILENT_MAX_S: Final = 60.0
"""Seconds without an answer of the partition after which its clients are disconnected; a worker restarts much sooner.
"""

PIECE_EVENTS: Final = 200
"""The most events in a piece from the buffer: usually less than 64 KiB."""

PAST_EVENTS: Final = 250
"""Events per query for a client that is behind the buffer: usually less than 100 KiB."""

Ask = Callable[[str, Query], Awaitable[Answer]]
"""Sends a query to a partition and returns its answer (`broker_client.py`)."""

Lines = EventLines[msgspec.Raw]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Intervals of queries, and time limits."""

    interval_min_s: float = 0.1
    """Seconds from an answer with new events to the next query."""
    interval_max_s: float = 0.5
    """The longest interval between two queries."""
    past_pause_s: float = 0.02
    """Seconds between two queries for clients that are behind the buffer, all together."""
    stalled_max_s: float = 5.0
    behind_stalled_max_s: float = 2.0
    buffer_max: int = 10_000
    """Events in the buffer: a few MiB."""


class EventFollower:
    """Reads the new events of one partition, once for all its streams, while `run` runs.

    It queries the worker again at once while more events are available, soon after new events, and less often while
    nothing happens. So a worker gets a few queries a second, however many clients there are and however slow they are.
    """

    def __init__(self, owner: "EventStreams", partition: str, rm: str, begin: Lines) -> None:
        self.owner = owner
        self.partition = partition
        self.rm = rm
        self.instance = begin.instance
        self.streams: list[EventStream] = []
        """In the order in which they were opened."""
        self._lines: deque[bytes] = deque(maxlen=owner.pace.buffer_max)
        """The newest events, as lines. Those that every stream has read are dropped."""
        self._end = begin.end
        """The number of the next event."""
        self._past = asyncio.Semaphore(1)
        self._last: list[msgspec.Raw] = []
        """The latest event. It is queried once more each time, to detect that the worker lost its latest events."""

    def remove(self, stream: EventStream) -> None:
        """Remove a stream, if it is still there."""
        if stream in self.streams:
            self.streams.remove(stream)

    def close(self) -> None:
        """Disconnect all clients."""
        for stream in tuple(self.streams):
            stream.cut()

    @property
    def _first(self) -> int:
        """The number of the first event in the buffer."""
        return self._end - len(self._lines)

    async def run(self) -> None:
        """Read events until no stream is left, or the events do not continue."""
        clock, pace = self.owner.clock, self.owner.pace
        pause_s, answered_at = pace.interval_min_s, clock()
        try:
            while self.streams:
                found = await self._read(start=self._end - len(self._last), count=COUNT_MAX)
                fresh: list[msgspec.Raw] = []
                if found is not None:
                    overlap = self._end - found.first
                    if self._is_other(found) or overlap < 0 or found.records[:overlap] != self._last[:overlap]:
                        return
                    answered_at = clock()
                    fresh = found.records[overlap:]
                    self._add(fresh)
                elif clock() - answered_at > SILENT_MAX_S:
                    return
                self._cut_stalled()
                pause_s = pace.interval_min_s if fresh else min(2 * pause_s, pace.interval_max_s)
                if not (found and fresh and self._end < found.end):
                    await asyncio.sleep(pause_s)
        finally:
            self.close()
            if self.owner.followers.get(self.partition) is self:
                del self.owner.followers[self.partition]

    async def _read(self, *, start: int, count: int) -> Lines | None:
        """The events from this number on; None if the partition does not answer."""
        try:
            return await read_events(self.owner.ask, self.partition, start=start, count=count)
        except RequestError:
            return None

    def _is_other(self, found: Lines) -> bool:
        """Whether the answer is not a continuation: of another instance, or without the latest events."""
        return found.instance != self.instance or found.end < self._end

    def _add(self, records: list[msgspec.Raw]) -> None:
        read = min((one.position for one in self.streams), default=self._end)
        while self._lines and self._first < read:
            self._lines.popleft()
        if records:
            self._lines.extend(bytes(one) + b"\n" for one in records)
            self._end += len(records)
            self._last = records[-1:]
            for stream in self.streams:
                stream.wakeup.set()

    def _cut_stalled(self) -> None:
        """Disconnect the clients that do not read."""
        now, pace = self.owner.clock(), self.owner.pace
        for stream in tuple(self.streams):
            behind = self._end - stream.position > BEHIND_MAX
            most_s = pace.behind_stalled_max_s if behind else pace.stalled_max_s
            if stream.writing_since is not None and now - stream.writing_since > most_s:
                self.owner.cut_off += 1
                stream.cut()

    async def piece(self, stream: EventStream) -> bytes:
        """The next lines of a stream, whose position advances; empty if there are none yet."""
        if stream.position < self._first:
            past = await self._past_piece(stream)
            if past or stream.position < self._first:
                return past
        begin = stream.position - self._first
        lines = [*islice(self._lines, begin, begin + PIECE_EVENTS)]
        stream.position += len(lines)
        return b"".join(lines)

    async def _past_piece(self, stream: EventStream) -> bytes:
        """The next lines of a stream that is behind the buffer; it is disconnected if the worker no longer has them."""
        await self._past.acquire()
        asyncio.get_running_loop().call_later(self.owner.pace.past_pause_s, self._past.release)
        found = await self._read(start=stream.position, count=PAST_EVENTS)
        if found is None or self._is_other(found) or (stream.begun and found.first > stream.position):
            stream.cut()
            return b""
        lines = found.records[: max(0, self._first - found.first)]
        stream.position = found.first + len(lines)
        return b"".join(bytes(one) + b"\n" for one in lines)


async def read_events(ask: Ask, partition: str, **args: int) -> Lines:
    """Query a partition for the events from the number `start` on, at most `count`; without arguments for none.

    Raises:
        RequestError: it does not answer, with an error, or with a malformed answer.
    """
    query = Query(what=EVENT_LINES, args={name: str(number) for name, number in args.items()})
    return decode_answer(await ask(partition, query), Lines, f"Partition {partition}")


STREAMS_MAX: Final = 500
"""Streams of all resource managers together, so that connections remain for other requests."""


class EventStreams:
    """All open streams. The RM of a partition limits its own streams, in all and for one `Host` (`event.maxStreams`,
    `event.maxStreamsPerHost`); a lower limit ends no open stream.
    """

    def __init__(self, ask: Ask, *, pace: Pace | None = None, clock: Clock = time.monotonic) -> None:
        self.ask = ask
        self.pace = pace or Pace()
        self.clock = clock
        self.cut_off = 0
        """Clients that were disconnected because they did not read."""
        self._closed = False
        self.followers: dict[str, EventFollower] = {}
        """By full name of the partition: all and only running ones."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def open_stream(self, partition: str, rm: str, *, host: str, count: str, start: str = "") -> EventStream:
        """Open a stream of a partition that begins `count` events in the past, or at the oldest event. With `start` it
        begins at the event with this number, or at the nearest one there is, and its first line has that number.

        Raises:
            RequestError: it cannot be opened now.
        """
        now = await read_events(self.ask, partition)
        if not now.tracking:
            raise RequestError(500, "Event tracking is disabled")
        mine = [one for follower in self.followers.values() if follower.rm == rm for one in follower.streams]
        of_host = sum(one.host == host for one in mine)
        too_many = len(self.open) >= STREAMS_MAX or len(mine) >= now.streams_max or of_host >= now.streams_per_host_max
        if self._closed or too_many:
            raise RequestError(503, "Too many streaming connections")
        try:
            past, wanted = parse_unsigned(count) or 0, parse_unsigned(start)
        except UnsignedError as error:
            raise RequestError(400, str(error)) from None
        follower = self._follower(partition, rm, now)
        position = max(now.lowest, now.end - past if wanted is None else min(wanted, now.end))
        number = {} if wanted is None else {"FirstID": position}
        first_line = msgspec.json.encode({"InstanceUUID": follower.instance, **number}) + b"\n"
        stream = EventStream(follower=follower, first_line=first_line, position=position, host=host)
        follower.streams.append(stream)
        return stream

    @property
    def open(self) -> list[EventStream]:
        """All open streams, in the order in which they were opened."""
        found = [one for follower in self.followers.values() for one in follower.streams]
        return sorted(found, key=lambda one: one.began)

    def collect(self) -> Iterator[Metric]:
        """The metrics of the streams."""
        what = "Event streams that are open."
        yield GaugeMetricFamily("yunishard_event_streams", what, len(self.open))
        what = (
            "Clients of event streams that were disconnected because they did not read. Investigate growth: such a "
            "client misses events until it reads them with /ws/v1/events/batch."
        )
        yield CounterMetricFamily("yunishard_event_readers_cut_off_total", what, self.cut_off)

    def close(self) -> None:
        """End all streams, and open no more."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        for follower in self.followers.values():
            follower.close()

    def _follower(self, partition: str, rm: str, now: Lines) -> EventFollower:
        found = self.followers.get(partition)
        if found is not None and found.instance == now.instance:
            return found
        if found is not None:
            found.close()  # of a previous instance of the worker
        follower = self.followers[partition] = EventFollower(self, partition, rm, now)
        task = asyncio.create_task(follower.run(), name=f"events of {partition}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return follower
