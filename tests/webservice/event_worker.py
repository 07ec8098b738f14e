"""A fake partition with events, and a clock that the test sets."""

import asyncio

from msgspec.json import encode

from yunishard.common.messages.query_messages import COUNT_MAX, Answer, EventLines, Query
from yunishard.webservice.event_streams import Pace
from yunishard.webservice.views import RequestError

EAGER = Pace(interval_min_s=0, interval_max_s=0, past_pause_s=0)
"""Asks all the time."""


class FakeClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class FakeWorker:
    """Answers for a history whose n-th event is the object `{"n": n}`."""

    def __init__(self, events: int = 0, **limits: int) -> None:
        self.instance = "history-1"
        self.tracking = True
        self.silent = False
        self.lowest = 0
        self.end = events
        self.asked: list[dict[str, str]] = []
        self.anew: set[int] = set()
        """Numbers of events that are others than they were."""
        self._heard = asyncio.Event()
        self.padding: dict[str, str] = {}
        """What each event holds besides its number."""
        self.limits = {"streams_max": 100, "streams_per_host_max": 15, **limits}

    async def ask(self, partition: str, query: Query) -> Answer:
        await asyncio.sleep(0)
        self.asked.append(dict(query.args))
        self._heard.set()
        if self.silent:
            raise RequestError(503, f"Partition {partition} did not answer within 10 s")
        return self.answer(query)

    async def asked_again(self) -> None:
        """Until it has been asked once more, and that has had its effect."""
        for _ in range(2):
            self._heard.clear()
            await self._heard.wait()

    def answer(self, query: Query) -> Answer:
        start, count = query.args.get("start", ""), query.args.get("count", "")
        first = max(int(start), self.lowest) if start else self.end
        last = min(first + min(int(count or "0"), COUNT_MAX), self.end)
        lines = EventLines(
            instance=self.instance,
            tracking=self.tracking,
            streams_max=self.limits["streams_max"],
            streams_per_host_max=self.limits["streams_per_host_max"],
            lowest=self.lowest,
            end=self.end,
            first=first,
            records=[
                {"n": -number if number in self.anew else number, **self.padding} for number in range(first, last)
            ],
        )
        return Answer(status=200, body=encode(lines))
