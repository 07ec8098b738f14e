"""The HTTP response cache: stores workers' answers, so that equal requests cost a worker little, and gzip bodies.

Concurrent equal requests share one query to the worker, sent after the last of them arrived, so a caller who changed
something sees the change. A cached answer is revalidated by its version: the worker replies that it still holds, and
makes no document. An answer that took its worker long is served again, without asking, for a multiple of that time, so
that all such answers together cost a worker at most SHARE of its time; while the next one is made, it is served a
little longer, so that no one waits. Only then an answer may be older than its request.

Queries with arguments are unbounded in number. A partition answers one of those at a time, with a pause as long as the
answer took, so its worker keeps half of its time. Queries without arguments do not queue behind those: monitoring must
not be delayed. A list that is too long for one message is queried page by page; it is not a snapshot of one moment.
"""

import asyncio
import gzip
import time
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec.structs import replace

from common.metrics import Family, counter
from common.query_messages import NOT_MODIFIED, TOO_LONG, Answer, Query
from webservice.views import RequestError

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


async def compress(body: bytes) -> bytes:
    """The gzip form of a body."""
    if len(body) < THREAD_BYTES_MIN:
        return gzip.compress(body, _GZIP_FASTEST, mtime=0)
    return await asyncio.to_thread(gzip.compress, body, _GZIP_FASTEST, mtime=0)


@dataclass(slots=True, eq=False)
class CachedBody:
    """A body in the response cache, with its gzip form once a client has requested it."""

    plain: bytes
    """The body as it is."""
    on_growth: Callable[[], None]
    """Called when the gzip form is added, so that the cache can keep its bound on bytes."""
    _gzipped: bytes = b""
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def size(self) -> int:
        """Bytes of both forms."""
        return len(self.plain) + len(self._gzipped)

    async def compress(self) -> bytes:
        """The gzip form. Concurrent callers share one compression."""
        async with self._lock:
            if not self._gzipped:
                self._gzipped = await compress(self.plain)
                self.on_growth()
        return self._gzipped


ENTRIES_MAX: Final = 1_000
"""Cached answers; the least recently used ones are evicted."""

BYTES_MAX: Final = 128 << 20
"""Bytes of all cached answers with their compressed forms; beyond it the least recently used ones are evicted. Also the
largest list that is joined from pages; a longer one is refused, with the advice to ask for pages."""

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

OK: Final = 200

Ask = Callable[[str, Query], Awaitable[Answer]]


class CachedAnswer(NamedTuple):
    """An answer, and how long ago the worker gave or confirmed it."""

    answer: Answer
    age_s: float
    body: CachedBody
    """The body of the answer, which is compressed once for all requests."""


@dataclass(slots=True)
class _Entry:
    """A query and its latest outcome. The task that holds the lock queries the worker."""

    partition: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    outcome: Answer | RequestError | None = None
    body: CachedBody | None = None
    """The body of the outcome, if it is an answer; or one that was joined from several."""
    queried_at: float = 0.0
    """When the query was sent that the outcome answers or confirms."""
    waiting: int = 0
    renewal: asyncio.Task[None] | None = None
    """Makes the next answer while the expired one is served."""

    @property
    def cost_s(self) -> float:
        """The worker's time for the outcome; 0 if it was cheap."""
        took_s = self.outcome.took_micro_seconds / 1e6 if isinstance(self.outcome, Answer) else 0.0
        return took_s if took_s >= EXPENSIVE_S else 0.0

    @property
    def size(self) -> int:
        return self.body.size if self.body is not None else 0


class ResponseCache:
    """The latest answer to each query; `clock` is monotonic, in seconds."""

    def __init__(self, ask: Ask, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        """By partition and query; the most recently used one last."""
        self._spent_s: defaultdict[str, float] = defaultdict(float)
        """The time of all workers, by kind of query."""
        self._turns: defaultdict[tuple[str, str], asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(1))
        """By partition and kind of query; all queries with arguments share one."""

    def families(self) -> Iterator[Family]:
        """The metric of the workers' time."""
        yield counter(
            "yunishard_answering_seconds_total",
            "Seconds that workers spent on answering REST queries. Investigate growth above 0.05 per second and "
            "partition: read lists page by page (limit).",
            ("question",),
            [((what,), spent_s) for what, spent_s in sorted(self._spent_s.items())],
        )

    async def answer(self, partition: str, query: Query, generation: str = "") -> CachedAnswer:
        """The answer of a partition, possibly cached. Answers of another `generation` are not reused.

        Raises:
            RequestError: 503, with what went wrong.
        """
        arrived_at = self._clock()
        key = _make_key(partition, query, generation)
        entry = self._entries.setdefault(key, _Entry(partition))
        self._entries.move_to_end(key)
        if not self._is_servable(entry, MAKING_MAX_S):
            await self._await_outcome(partition, query, entry, arrived_at)
        elif not self._is_servable(entry) and (entry.renewal is None or entry.renewal.done()):
            entry.renewal = asyncio.create_task(self._await_outcome(partition, query, entry, arrived_at))
        outcome, age_s = entry.outcome, self._clock() - entry.queried_at
        if isinstance(outcome, RequestError):
            raise RequestError(outcome.status, outcome.text)
        assert outcome is not None
        assert entry.body is not None, "an answer is stored with its body"
        return CachedAnswer(outcome, age_s, entry.body)

    def store_joined(self, key: str, body: bytes) -> CachedBody:
        """A body that was joined from several answers: while it is equal, the cached one, with its compressed form."""
        entry = self._entries.setdefault(key, _Entry(""))
        self._entries.move_to_end(key)
        if entry.body is None or entry.body.plain != body:
            entry.body = CachedBody(body, self._make_room)
        found = entry.body
        self._make_room()
        return found

    async def _await_outcome(self, partition: str, query: Query, entry: _Entry, arrived_at: float) -> None:
        """Get an outcome for a request that came at this time."""
        entry.waiting += 1
        try:
            async with entry.lock:
                if entry.queried_at < arrived_at and not self._is_servable(entry):
                    await self._refresh(partition, query, entry)
        finally:
            entry.waiting -= 1
            self._make_room()

    def _is_servable(self, entry: _Entry, longer_s: float = 0.0) -> bool:
        """Whether the outcome is served without asking the worker, or would be with a longer lifetime."""
        if not entry.cost_s:
            return False
        begun = self._clock() - REUSED_MAX_S
        equal_cost = sum(
            1
            for one in self._entries.values()
            if one is entry or (one.cost_s and one.partition == entry.partition and one.queried_at > begun)
        )
        lasts_s = min(REUSED_MAX_S, entry.cost_s * equal_cost / SHARE)
        return self._clock() < entry.queried_at + lasts_s + longer_s

    async def _refresh(self, partition: str, query: Query, entry: _Entry) -> None:
        cached = entry.outcome if isinstance(entry.outcome, Answer) else None
        queried_at = self._clock()
        try:
            ask = self._ask_worker if _is_one_of_few(query) else self.answer_now
            answer = await ask(partition, replace(query, known=cached.version if cached else ""))
            if answer.status == TOO_LONG and "limit" not in query.args:
                answer = await self._join_pages(partition, query, answer)
        except RequestError as error:
            entry.outcome, entry.body = error, None
            entry.queried_at = self._clock()  # for all waiting requests: the result would be the same
            return
        if answer.status != NOT_MODIFIED:
            entry.outcome, entry.body = answer, CachedBody(answer.body, self._make_room)
        entry.queried_at = queried_at

    async def answer_now(self, partition: str, query: Query) -> Answer:
        """The answer of a partition now, when it is the query's turn; it is not cached.

        Raises:
            RequestError: 503, with what went wrong.
        """
        turn, took_s = self._turns[partition, query.what if _is_one_of_few(query) else ""], 0.0
        try:
            async with asyncio.timeout(TURN_MAX_S):
                await turn.acquire()
        except TimeoutError:
            raise RequestError(503, f"Too many queries wait for partition {partition}, try again later") from None
        try:
            answer = await self._ask_worker(partition, query)
            took_s = answer.took_micro_seconds / 1e6
        finally:
            asyncio.get_running_loop().call_later(took_s, turn.release)
        return answer

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
            if page.status != OK:
                return page
            inner = page.body.strip()[1:-1]
            pieces += [inner] if inner else []
            size, took, after = size + len(inner), took + page.took_micro_seconds, page.next
            if size > BYTES_MAX:
                text = f"the list has more than {BYTES_MAX} bytes: ask for pages of it with limit"
                return Answer(status=503, body=text.encode(), took_micro_seconds=took)
            if not after:
                body = b"[" + b",".join(pieces) + b"]\n"
                return Answer(status=OK, body=body, version=whole.version, took_micro_seconds=took)

    def _make_room(self) -> None:
        size = sum(entry.size for entry in self._entries.values())
        for key, entry in list(self._entries.items()):
            if len(self._entries) <= ENTRIES_MAX and size <= BYTES_MAX:
                break
            if not entry.waiting:
                del self._entries[key]
                size -= entry.size


def _is_one_of_few(query: Query) -> bool:
    return query.viewer is None and not query.args


def _make_key(partition: str, query: Query, generation: str) -> str:
    viewer = query.viewer and (query.viewer.user, query.viewer.groups, query.viewer.scheduler_admin)
    return repr((partition, generation, query.what, query.name, sorted(query.args.items()), viewer))
