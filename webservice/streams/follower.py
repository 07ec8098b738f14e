"""What is new in the history of one partition, asked for once however many read it.

    asks the worker ──lines──► tape ──piece──► stream, stream, ...     each at its own place
                                 ▲
                 what is no longer, or not yet, on the tape is asked for one piece at a time

It asks again at once as long as it does not get all there is, soon after it got something, and more seldom while
nothing happens. So a worker is asked a few times a second, and neither slow readers nor many cost it more.

A reader is cut off whose connection has taken nothing for `stalled_max_s`, or for `behind_stalled_max_s` while it is
more than BEHIND_MAX events behind. Who reads, however slowly, goes on as long as the partition has what comes next.
All are cut off when another history begins (they start over with that), or another end of it, as a worker may die
before what it has told is durable; when events went before they were asked for; and when the partition has not answered
for SILENT_MAX_S.

Not here: how many readers there may be (`streams.py`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from common.event_lines import COUNT_MAX, EVENT_LINES, EventLines
from common.query_messages import Answer, Query
from webservice.errors import RequestError
from webservice.streams.stream import Clock, Stream
from webservice.streams.tape import Tape

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


class Follower:
    """The readers of one history, and what they read. `run` must be running for them to get anything new."""

    def __init__(self, ask: Ask, partition: str, rm: str, *, begin: Lines, pace: Pace, clock: Clock) -> None:
        self.partition = partition
        self.rm = rm
        self.instance = begin.instance
        self.streams: list[Stream] = []
        """In the order in which they began."""
        self.cut_off = 0
        """Readers whose connection took nothing for too long."""
        self._tape = Tape(begin.end, bytes_max=pace.tape_bytes_max)
        self._ask = ask
        self._pace = pace
        self._clock = clock
        self._past = asyncio.Semaphore(1)
        self._last: list[msgspec.Raw] = []
        """The latest event, if any was read: it is asked for once more, to see that it is still the same."""

    def join(self, now: Lines, *, host: str, count: int) -> Stream:
        """A new reader, from so many past events on, or all that there are."""
        stream = Stream(
            self,
            first_line=msgspec.json.encode({"InstanceUUID": self.instance}) + b"\n",
            place=max(now.lowest, now.end - count),
            host=host,
            began=datetime.now(UTC),
            clock=self._clock,
        )
        self.streams.append(stream)
        return stream

    def leave(self, stream: Stream) -> None:
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

    async def piece(self, stream: Stream) -> bytes:
        """Lines from the place of a stream on, which goes on to what follows them; none if there are none yet."""
        if stream.place < self._tape.first:
            past = await self._past_piece(stream)
            if past or stream.place < self._tape.first:
                return past
        piece, stream.place = self._tape.since(stream.place)
        return piece

    async def _past_piece(self, stream: Stream) -> bytes:
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
