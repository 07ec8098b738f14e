"""Who is told of events as they happen, and how many may be.

How many may be open at a time, in all and for one `Host`, says the resource manager whose events they are
(`event.maxStreams`, `event.maxStreamsPerHost`); its streams only count for it. Lower limits end none that is open.

Not here: what a stream says (`stream.py`), the route (`webservice/event_routes.py`).
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Final

from common.event_lines import EVENT_LINES
from common.families import Family, counter, gauge
from common.query_messages import Query
from common.unsigned import UnsignedError, unsigned
from webservice.errors import RequestError
from webservice.streams.follower import Ask, Follower, Lines, Pace, decoded
from webservice.streams.stream import Clock, Stream

STREAMS_MAX: Final = 500
"""Of all resource managers together, whatever they allow, so that connections are left for everything else."""

_TOO_MANY: Final = "Too many streaming connections"


class Streams:
    """All streams that are open, by the partitions that they are about."""

    def __init__(self, ask: Ask, *, pace: Pace | None = None, clock: Clock = time.monotonic) -> None:
        self._ask = ask
        self._pace = pace or Pace()
        self._clock = clock
        self._closed = False
        self._followers: dict[str, Follower] = {}
        """By full name of the partition: all and only those that run."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._cut_off = 0
        """Readers that were too slow for their followers, of followers that have ended."""

    async def begin(self, partition: str, rm: str, *, host: str, count: str) -> Stream:
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
    def open(self) -> list[Stream]:
        """All that are open, in the order in which they began."""
        found = [one for follower in self._followers.values() for one in follower.streams]
        return sorted(found, key=lambda one: one.began)

    def families(self) -> Iterator[Family]:
        """Figures of the streams."""
        what = "Streams of events that are open."
        yield gauge("yunishard_event_streams", what, (), [((), len(self.open))])
        what = (
            "Readers of events that were cut off as their connection took nothing for too long. Worry if it grows: "
            "somebody reads too slowly, and misses what happened until they read the history."
        )
        running = sum(follower.cut_off for follower in self._followers.values())
        yield counter("yunishard_event_readers_cut_off_total", what, (), [((), self._cut_off + running)])

    def close(self) -> None:
        """End all, and begin no other one."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        for follower in self._followers.values():
            follower.close()

    def _follower(self, partition: str, rm: str, now: Lines) -> Follower:
        found = self._followers.get(partition)
        if found is not None and found.instance == now.instance:
            return found
        if found is not None:
            found.close()  # it has not noticed yet that its history is over
        follower = Follower(self._ask, partition, rm, begin=now, pace=self._pace, clock=self._clock)
        self._followers[partition] = follower
        task = asyncio.create_task(self._run(follower), name=f"events of {partition}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return follower

    async def _run(self, follower: Follower) -> None:
        try:
            await follower.run()
        finally:
            self._cut_off += follower.cut_off
            if self._followers.get(follower.partition) is follower:
                del self._followers[follower.partition]
