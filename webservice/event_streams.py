"""The newest events of a history as lines, numbered like the events, for those who read on at places of their own.

Not here: where the lines come from (`follower.py`), who reads them (`stream.py`).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

import msgspec

from common.event_lines import COUNT_MAX, EVENT_LINES, EventLines
from common.families import Family, counter, gauge
from common.query_messages import Answer, Query
from common.unsigned import UnsignedError, unsigned
from webservice.views import ErrorView, RequestError, encoded

PIECE_BYTES: Final = 64 << 10
"""After so many bytes no further line is put into a piece."""


class EventBuffer:
    """Lines from the number `first` on, up to `end`, which is the number of the next one."""

    def __init__(self, first: int, *, bytes_max: int) -> None:
        self.first = first
        self._bytes_max = bytes_max
        self._lines: list[bytes] = []
        self._bytes = 0
        """Of all lines."""

    @property
    def end(self) -> int:
        return self.first + len(self._lines)

    def add(self, lines: Sequence[bytes]) -> None:
        """Append lines. The oldest go when there is no room, a single one has room whatever its size."""
        self._lines.extend(lines)
        self._bytes += sum(map(len, lines))
        surplus, gone = self._bytes - self._bytes_max, 0
        while surplus > 0 and gone < len(self._lines) - 1:
            surplus -= len(self._lines[gone])
            gone += 1
        self.forget(self.first + gone)

    def forget(self, before: int) -> None:
        """UnknownUser needs what comes before this number."""
        gone = self._lines[: max(0, before - self.first)]
        del self._lines[: len(gone)]
        self._bytes -= sum(map(len, gone))
        self.first += len(gone)

    def since(self, place: int) -> tuple[bytes, int]:
        """The lines from this number on, as many as are a piece, and the number to go on with."""
        assert place >= self.first, (place, self.first)
        found: list[bytes] = []
        size = 0
        for index in range(place - self.first, len(self._lines)):
            if size >= PIECE_BYTES:
                break
            found.append(self._lines[index])
            size += len(self._lines[index])
        return b"".join(found), place + len(found)


CLOSED: Final = "Event stream was closed by the producer"
CLOSED_LINE: Final = encoded(ErrorView(status_code=200, message=CLOSED, description=CLOSED))

Clock = Callable[[], float]
"""Seconds that never go back."""


class History(Protocol):
    """Whoever has the lines (`follower.py`)."""

    def piece(self, stream: "EventStream") -> Awaitable[bytes]:
        """Lines from the place of the stream on, which goes on to what follows them; none if there are none yet."""

    def leave(self, stream: "EventStream") -> None:
        """The reader is gone, or told nothing more."""


class EventStream:
    """A reader, and its place: the number of the event that it has not been given yet."""

    def __init__(self, history: History, *, first_line: bytes, place: int, host: str, began: datetime, clock: Clock):
        self.place = place
        self.host = host
        """The header of that name of the request."""
        self.began = began.astimezone(UTC)
        self.begun = False
        """Whether it was given an event."""
        self.writing_since: float | None = None
        """Since when the connection has been given a piece; None while it waits for one."""
        self._history = history
        self._first_line = first_line
        self._clock = clock
        self._over = False
        self._news = asyncio.Event()

    def __aiter__(self) -> "EventStream":
        return self

    async def __anext__(self) -> bytes:
        self.writing_since = None
        piece, self._first_line = self._first_line or await self._piece(), b""
        if not piece:
            raise StopAsyncIteration
        self.writing_since = self._clock()
        return piece

    async def _piece(self) -> bytes:
        """What comes next; at last why nothing more comes, and then nothing."""
        while not self._over:
            self._news.clear()
            piece = await self._history.piece(self)
            if piece and not self._over:
                self.begun = True
                return piece
            if not self._over:
                await self._news.wait()
        return CLOSED_LINE if self._last() else b""

    def _last(self) -> bool:
        """Whether the last line is still to be said, which it is once."""
        unsaid, self._unsaid = self._unsaid, False
        return unsaid

    _unsaid = True

    def wake(self) -> None:
        """There is something new."""
        self._news.set()

    def cut(self) -> None:
        """Give it nothing more but the last line."""
        self._over = True
        self._news.set()
        self._history.leave(self)

    async def aclose(self) -> None:
        """The connection is gone, or everything was sent."""
        self._history.leave(self)


BEHIND_MAX: Final = 2000
"""Events by which a reader may be behind while its connection takes nothing for a moment."""

SILENT_MAX_S: Final = 60.0
"""How long a partition may be gone before its readers are cut off; a worker is replaced much sooner."""

PAST_EVENTS: Final = 250
"""Events that are asked for at once for one reader who is behind the tape: less than 100 KiB as a rule."""

Ask = Callable[[str, Query], Awaitable[Answer]]
"""A question to a partition, and its answer (`broker_link.py`)."""

Lines = EventLines[msgspec.Raw]
_decoder: Final = msgspec.json.Decoder(Lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often is asked, and how long is waited."""

    look_soon_s: float = 0.1
    """From an answer with something new to the next question."""
    look_late_s: float = 0.5
    """The longest time between two questions."""
    past_pause_s: float = 0.02
    """Between two questions for readers who are behind the tape, all together."""
    stalled_max_s: float = 5.0
    behind_stalled_max_s: float = 2.0
    tape_bytes_max: int = 8 << 20
    """Some 25,000 events."""


class EventFollower:
    """The readers of one history, and what they read. `run` must be running for them to get anything new."""

    def __init__(self, ask: Ask, partition: str, rm: str, *, begin: Lines, pace: Pace, clock: Clock) -> None:
        self.partition = partition
        self.rm = rm
        self.instance = begin.instance
        self.streams: list[EventStream] = []
        """In the order in which they began."""
        self.cut_off = 0
        """Readers whose connection took nothing for too long."""
        self._tape = EventBuffer(begin.end, bytes_max=pace.tape_bytes_max)
        self._ask = ask
        self._pace = pace
        self._clock = clock
        self._past = asyncio.Semaphore(1)
        self._last: list[msgspec.Raw] = []
        """The latest event, if any was read: it is asked for once more, to see that it is still the same."""

    def join(self, now: Lines, *, host: str, count: int) -> EventStream:
        """A new reader, from so many past events on, or all that there are."""
        stream = EventStream(
            self,
            first_line=msgspec.json.encode({"InstanceUUID": self.instance}) + b"\n",
            place=max(now.lowest, now.end - count),
            host=host,
            began=datetime.now(UTC),
            clock=self._clock,
        )
        self.streams.append(stream)
        return stream

    def leave(self, stream: EventStream) -> None:
        """A reader is gone; nothing if it was already."""
        if stream in self.streams:
            self.streams.remove(stream)

    def close(self) -> None:
        """Cut all readers off."""
        for stream in tuple(self.streams):
            stream.cut()

    async def run(self) -> None:
        """Follow the history until nobody reads it any more, or it cannot be followed."""
        try:
            await self._follow()
        finally:
            self.close()

    async def _follow(self) -> None:
        pause_s, heard = self._pace.look_soon_s, self._clock()
        while self.streams:
            seen = len(self._last)
            found = await asked(self._ask, self.partition, start=self._tape.end - seen, count=COUNT_MAX)
            news: list[msgspec.Raw] = []
            if found is not None:
                if self._is_other(found) or found.first > self._tape.end:
                    return
                overlap = self._tape.end - found.first
                if found.records[:overlap] != self._last[:overlap]:
                    return
                heard = self._clock()
                news = found.records[overlap:]
                self._add(news)
            elif self._clock() - heard > SILENT_MAX_S:
                return
            self._cut_stalled(self._clock())
            if found is not None and news:
                pause_s = self._pace.look_soon_s
                if self._tape.end < found.end:
                    continue
            else:
                pause_s = min(2 * pause_s, self._pace.look_late_s)
            await asyncio.sleep(pause_s)

    def _is_other(self, found: Lines) -> bool:
        """Whether this is not what was read so far: another history, or one that has lost its end."""
        return found.instance != self.instance or found.end < self._tape.end

    def _add(self, records: list[msgspec.Raw]) -> None:
        self._tape.forget(min((one.place for one in self.streams), default=self._tape.end))
        if records:
            self._tape.add([bytes(one) + b"\n" for one in records])
            self._last = records[-1:]
            for stream in self.streams:
                stream.wake()

    def _cut_stalled(self, now: float) -> None:
        for stream in tuple(self.streams):
            behind = self._tape.end - stream.place > BEHIND_MAX
            most_s = self._pace.behind_stalled_max_s if behind else self._pace.stalled_max_s
            if stream.writing_since is not None and now - stream.writing_since > most_s:
                self.cut_off += 1
                stream.cut()

    async def piece(self, stream: EventStream) -> bytes:
        """Lines from the place of a stream on, which goes on to what follows them; none if there are none yet."""
        if stream.place < self._tape.first:
            past = await self._past_piece(stream)
            if past or stream.place < self._tape.first:
                return past
        piece, stream.place = self._tape.since(stream.place)
        return piece

    async def _past_piece(self, stream: EventStream) -> bytes:
        """The same for one that is behind the tape; it is cut off if that is not there any more."""
        await self._past.acquire()
        asyncio.get_running_loop().call_later(self._pace.past_pause_s, self._past.release)
        found = await asked(self._ask, self.partition, start=stream.place, count=PAST_EVENTS)
        if found is None or self._is_other(found) or (stream.begun and found.first > stream.place):
            stream.cut()
            return b""
        lines = found.records[: max(0, self._tape.first - found.first)]
        stream.place = found.first + len(lines)
        return b"".join(bytes(one) + b"\n" for one in lines)


async def asked(ask: Ask, partition: str, *, start: int, count: int) -> Lines | None:
    """Events from this number on; None if the partition cannot answer now."""
    query = Query(what=EVENT_LINES, args={"start": str(start), "count": str(count)})
    try:
        answer = await ask(partition, query)
        return None if answer.status != 200 else decoded(answer)
    except RequestError:
        return None


def decoded(answer: Answer) -> Lines:
    """What a partition says of its history.

    Raises:
        RequestError: 503, it says something else.
    """
    if answer.status != 200:
        raise RequestError(answer.status, answer.body.decode(errors="replace"))
    try:
        return _decoder.decode(answer.body)
    except msgspec.MsgspecError as error:
        raise RequestError(503, f"the partition's answer about its events cannot be read: {error}") from None


STREAMS_MAX: Final = 500
"""Of all resource managers together, whatever they allow, so that connections are left for everything else."""

_TOO_MANY: Final = "Too many streaming connections"


class EventStreams:
    """All streams that are open, by the partitions that they are about."""

    def __init__(self, ask: Ask, *, pace: Pace | None = None, clock: Clock = time.monotonic) -> None:
        self._ask = ask
        self._pace = pace or Pace()
        self._clock = clock
        self._closed = False
        self._followers: dict[str, EventFollower] = {}
        """By full name of the partition: all and only those that run."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._cut_off = 0
        """Readers that were too slow for their followers, of followers that have ended."""

    async def open_stream(self, partition: str, rm: str, *, host: str, count: str) -> EventStream:
        """A new stream of a partition, from the latest `count` events on.

        Raises:
            RequestError: there can be none now.
        """
        now = decoded(await self._ask(partition, Query(what=EVENT_LINES)))
        if not now.tracking:
            raise RequestError(500, "Event tracking is disabled")
        mine = [one for follower in self._followers.values() if follower.rm == rm for one in follower.streams]
        of_host = sum(one.host == host for one in mine)
        if self._closed or len(self.open) >= STREAMS_MAX:
            raise RequestError(503, _TOO_MANY)
        if len(mine) >= now.streams_max or of_host >= now.streams_per_host_max:
            raise RequestError(503, _TOO_MANY)
        try:
            past = unsigned(count) or 0
        except UnsignedError as error:
            raise RequestError(400, str(error)) from None
        return self._follower(partition, rm, now).join(now, host=host, count=past)

    @property
    def open(self) -> list[EventStream]:
        """All that are open, in the order in which they began."""
        found = [one for follower in self._followers.values() for one in follower.streams]
        return sorted(found, key=lambda one: one.began)

    def families(self) -> Iterator[Family]:
        """Figures of the streams."""
        what = "EventStreams of events that are open."
        yield gauge("yunishard_event_streams", what, (), [((), len(self.open))])
        what = (
            "Readers of events that were cut off as their connection took nothing for too long. Worry if it grows: "
            "somebody reads too slowly, and misses what happened until they read the history."
        )
        running = sum(follower.cut_off for follower in self._followers.values())
        yield counter("yunishard_event_readers_cut_off_total", what, (), [((), self._cut_off + running)])

    def close(self) -> None:
        """SocketEnd all, and begin no other one."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        for follower in self._followers.values():
            follower.close()

    def _follower(self, partition: str, rm: str, now: Lines) -> EventFollower:
        found = self._followers.get(partition)
        if found is not None and found.instance == now.instance:
            return found
        if found is not None:
            found.close()  # it has not noticed yet that its history is over
        follower = EventFollower(self._ask, partition, rm, begin=now, pace=self._pace, clock=self._clock)
        self._followers[partition] = follower
        task = asyncio.create_task(self._run(follower), name=f"events of {partition}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return follower

    async def _run(self, follower: EventFollower) -> None:
        try:
            await follower.run()
        finally:
            self._cut_off += follower.cut_off
            if self._followers.get(follower.partition) is follower:
                del self._followers[follower.partition]
