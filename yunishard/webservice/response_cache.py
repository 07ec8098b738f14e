"""The HTTP response cache: stores workers' answers, so that equal requests cost a worker little, and gzip bodies.

Concurrent equal requests share one query to the worker, sent after the last of them arrived, so a caller who changed
something sees the change. A cached answer is revalidated by its version: the worker replies that it still holds, and
makes no document. An answer that took its worker long is served again, without asking, for a multiple of that time, so
that all such answers together cost a worker at most SHARE of its time; while the next one is made, it is served a
little longer, so that no one waits. Only then an answer may be older than its request; a caller may limit its age.

Queries with arguments are unbounded in number. A partition answers one of those at a time, with a pause as long as the
answer took, so its worker keeps half of its time. Queries without arguments do not queue behind those: monitoring must
not be delayed. A list that is too long for one message is queried page by page; it is not a snapshot of one moment.
"""

import asyncio
import gzip
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from msgspec.structs import replace
from prometheus_client.core import CounterMetricFamily, Metric

from yunishard.common.messages.query_messages import NOT_MODIFIED, TOO_LONG, Answer, Query
from yunishard.webservice.views import RequestError

GZIP_BYTES_MIN: Final = 1400
"""A smaller body is never compressed."""

THREAD_BYTES_MIN: Final = 256 << 10
"""From this size on a body is compressed in a thread, so that other requests continue."""

_GZIP_FASTEST: Final = 1


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether a client accepts gzip: the first mention decides, and only a literal `q=0` refuses."""
    for offer in accept_encoding.split(","):
        coding, _, parameter = offer.partition(";")
        if coding.strip().lower() == "gzip":
            return parameter.strip() != "q=0"
    return False


GZIPPED_MAX: Final = 100
GZIPPED_BYTES_MAX: Final = 64 << 20
"""Bodies whose gzip form is kept, and their bytes; beyond it the least recently used ones are evicted."""


class GzipCache:
    """Compresses bodies, equal ones once: polled lists are often unchanged. Concurrent requests share a compression."""

    def __init__(self) -> None:
        self._forms: OrderedDict[bytes, asyncio.Task[bytes]] = OrderedDict()
        """By body; the most recently used one last."""
        self._bytes = 0
        """Of these bodies."""

    async def compress(self, body: bytes) -> bytes:
        """The gzip form of a body."""
        form = self._forms.get(body)
        if form is None:
            self._bytes += len(body)
        if form is None or (form.done() and form.exception() is not None):
            form = self._forms[body] = asyncio.create_task(_compress(body))
        self._forms.move_to_end(body)
        while len(self._forms) > GZIPPED_MAX or self._bytes > GZIPPED_BYTES_MAX:
            self._bytes -= len(self._forms.popitem(last=False)[0])
        return await asyncio.shield(form)


async def _compress(body: bytes) -> bytes:
    if len(body) < THREAD_BYTES_MIN:
        return gzip.compress(body, _GZIP_FASTEST, mtime=0)
    return await asyncio.to_thread(gzip.compress, body, _GZIP_FASTEST, mtime=0)


ENTRIES_MAX: Final = 1_000
"""Cached answers; the least recently used ones are evicted."""

BYTES_MAX: Final = 128 << 20
"""Bytes of all cached answers; beyond it the least recently used ones are evicted. Also the largest list that is joined
from pages; a longer one is refused, with the advice to ask for pages."""

EXPENSIVE_S: Final = 0.005
"""An answer that took its worker less is always revalidated."""

SHARE: Final = 1 / 40
"""Share of a worker's time for expensive answers: with one expensive query, its answer is served again for 40 times as
long as it took, with two for 80 times."""

REUSED_MAX_S: Final = 30.0
"""The oldest answer that is served without asking, even if that costs more than the share."""

MAKING_MAX_S: Final = 10.0
"""Seconds for which an expired answer is served while the next one is made; later requests wait."""

TURN_MAX_S: Final = 10.0
"""Seconds for which a query may wait for its turn; then the request fails with 503."""

PAGE_ENTRIES: Final = 1_000
"""Entries of one page of a list that is joined: some hundredths of a second of the worker's time."""

Ask = Callable[[str, Query], Awaitable[Answer]]


class CachedAnswer(NamedTuple):
    """An answer, and how long ago the worker gave or confirmed it."""

    answer: Answer
    age_s: float


@dataclass(slots=True)
class _Entry:
    """The latest outcome of a query. The task that holds the lock queries the worker."""

    partition: str
    key: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    outcome: Answer | RequestError | None = None
    queried_at: float = 0.0
    """When the query was sent that the outcome answers or confirms."""
    renewal: asyncio.Task[None] | None = None
    """Makes the next answer while the expired one is served."""

    @property
    def cost_s(self) -> float:
        """The worker's time for the outcome; 0 if it was cheap."""
        took_s = self.outcome.took_micro_seconds / 1e6 if isinstance(self.outcome, Answer) else 0.0
        return took_s if took_s >= EXPENSIVE_S else 0.0

    @property
    def size(self) -> int:
        return len(self.outcome.body) if isinstance(self.outcome, Answer) else 0


class ResponseCache:
    """The latest answer to each query; `clock` is monotonic, in seconds."""

    def __init__(self, ask: Ask, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        """By partition and query; the most recently used one last."""
        self._bytes = 0
        """Of the bodies of these."""
        self._expensive: OrderedDict[str, tuple[str, float]] = OrderedDict()
        """Expensive answers of the last REUSED_MAX_S by key, with the partition and the time, oldest first."""
        self._expensive_counts: Counter[str] = Counter()
        """Their number by partition."""
        self._spent_s: defaultdict[str, float] = defaultdict(float)
        """The time of all workers, by kind of query."""
        self._turns: defaultdict[tuple[str, str], asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(1))
        """By partition and kind of query, while one is answered; all queries with arguments share one."""

    def collect(self) -> Iterator[Metric]:
        """The metric of the workers' time."""
        metric = CounterMetricFamily(
            "yunishard_answering_seconds_total",
            "Seconds that workers spent on answering REST queries. Investigate growth above 0.05 per second and "
            "partition: read lists page by page (limit).",
            labels=("question",),
        )
        for what, spent_s in sorted(self._spent_s.items()):
            metric.add_metric((what,), spent_s)
        yield metric

    async def answer(
        self, partition: str, query: Query, generation: str = "", *, age_max_s: float = inf
    ) -> CachedAnswer:
        """The answer of a partition, possibly cached. Answers of another `generation` are not reused, nor are answers
        that are older than the caller accepts.

        Raises:
            RequestError: 503, with what went wrong.
        """
        arrived_at = self._clock()
        key = _make_key(partition, query, generation)
        entry = self._entries.setdefault(key, _Entry(partition, key))
        self._entries.move_to_end(key)
        self._make_room()
        if not self._is_servable(entry, MAKING_MAX_S) or arrived_at - entry.queried_at > age_max_s:
            await self._refresh(query, entry, arrived_at, age_max_s)
        elif not self._is_servable(entry) and (entry.renewal is None or entry.renewal.done()):
            entry.renewal = asyncio.create_task(self._refresh(query, entry, arrived_at))
        if isinstance(entry.outcome, RequestError):
            raise RequestError(entry.outcome.status, entry.outcome.text)
        assert entry.outcome is not None
        return CachedAnswer(entry.outcome, self._clock() - entry.queried_at)

    def _is_servable(self, entry: _Entry, longer_s: float = 0.0) -> bool:
        """Whether the outcome is served without asking the worker, or would be with a longer lifetime."""
        if not entry.cost_s:
            return False
        now = self._clock()
        while self._expensive and next(iter(self._expensive.values()))[1] <= now - REUSED_MAX_S:
            self._forget_expensive(next(iter(self._expensive)))
        equal_cost = self._expensive_counts[entry.partition] + (entry.key not in self._expensive)
        return now < entry.queried_at + min(REUSED_MAX_S, entry.cost_s * equal_cost / SHARE) + longer_s

    def _forget_expensive(self, key: str) -> None:
        partition, _ = self._expensive.pop(key, ("", 0.0))
        self._expensive_counts[partition] -= 1
        if self._expensive_counts[partition] <= 0:
            del self._expensive_counts[partition]

    async def _refresh(self, query: Query, entry: _Entry, arrived_at: float, age_max_s: float = inf) -> None:
        """Query the worker for a request that arrived at this time, unless a later query was answered meanwhile."""
        async with entry.lock:
            is_young = arrived_at - entry.queried_at <= age_max_s
            if entry.queried_at >= arrived_at or (is_young and self._is_servable(entry)):
                return
            known = entry.outcome.version if isinstance(entry.outcome, Answer) else ""
            queried_at = self._clock()
            try:
                ask = self._ask_worker if _is_one_of_few(query) else self.answer_now
                answer = await ask(entry.partition, replace(query, known=known))
                if answer.status == TOO_LONG and "limit" not in query.args:
                    answer = await self._join_pages(entry.partition, query, answer)
            except RequestError as error:
                self._store(entry, error, self._clock())  # for all waiting requests: the result would be the same
                return
            self._store(entry, entry.outcome if answer.status == NOT_MODIFIED else answer, queried_at)

    def _store(self, entry: _Entry, outcome: Answer | RequestError | None, queried_at: float) -> None:
        """Set the outcome of a query; the entry may have been evicted meanwhile."""
        size = entry.size
        entry.outcome, entry.queried_at = outcome, queried_at
        if self._entries.get(entry.key) is entry:
            self._bytes += entry.size - size
        self._forget_expensive(entry.key)
        if entry.cost_s:
            self._expensive[entry.key] = entry.partition, self._clock()
            self._expensive_counts[entry.partition] += 1
        self._make_room()

    async def answer_now(self, partition: str, query: Query) -> Answer:
        """The answer of a partition now, when it is the query's turn; it is not cached.

        Raises:
            RequestError: 503, with what went wrong.
        """
        key, took_s = (partition, query.what if _is_one_of_few(query) else ""), 0.0
        try:
            async with asyncio.timeout(TURN_MAX_S):
                await self._turns[key].acquire()
        except TimeoutError:
            raise RequestError(503, f"Too many queries wait for partition {partition}, try again later") from None
        try:
            answer = await self._ask_worker(partition, query)
            took_s = answer.took_micro_seconds / 1e6
        finally:
            asyncio.get_running_loop().call_later(took_s, self._end_turn, key)
        return answer

    def _end_turn(self, key: tuple[str, str]) -> None:
        self._turns[key].release()
        if not self._turns[key].locked():
            del self._turns[key]

    async def _ask_worker(self, partition: str, query: Query) -> Answer:
        answer = await self._ask(partition, query)
        self._spent_s[query.what] += answer.took_micro_seconds / 1e6
        return answer

    async def _join_pages(self, partition: str, query: Query, whole: Answer) -> Answer:
        """All pages of a list, joined, with the version of the first answer."""
        pieces: list[bytes] = []
        size, took, after = 0, whole.took_micro_seconds, ""
        while True:
            args = {**query.args, "limit": str(PAGE_ENTRIES), "after": after}
            page = await self.answer_now(partition, replace(query, args=args))
            if page.status != 200:
                return page
            inner = page.body.strip()[1:-1]
            pieces += [inner] if inner else []
            size, took, after = size + len(inner), took + page.took_micro_seconds, page.next
            if size > BYTES_MAX:
                text = f"the list has more than {BYTES_MAX} bytes: ask for pages of it with limit"
                return Answer(status=503, body=text.encode(), took_micro_seconds=took)
            if not after:
                body = b"[" + b",".join(pieces) + b"]\n"
                return Answer(status=200, body=body, version=whole.version, took_micro_seconds=took)

    def _make_room(self) -> None:
        while len(self._entries) > ENTRIES_MAX or self._bytes > BYTES_MAX:
            self._bytes -= self._entries.popitem(last=False)[1].size


def _is_one_of_few(query: Query) -> bool:
    return query.viewer is None and not query.args


def _make_key(partition: str, query: Query, generation: str) -> str:
    viewer = query.viewer and (query.viewer.user, query.viewer.groups, query.viewer.scheduler_admin)
    return repr((partition, generation, query.what, query.name, sorted(query.args.items()), viewer))
