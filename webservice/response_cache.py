"""Gzip compression of response bodies: whether a client accepts it, and a cached body that is compressed once however
many clients read it.

Not here: which answers are cached, and the bound on their bytes (`shelf.py`).
"""

import asyncio
import gzip
import time
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec.structs import replace

from common.families import Family, counter
from common.query_messages import NOT_MODIFIED, TOO_LONG, Answer, Query
from webservice.views import RequestError

GZIP_BYTES_MIN: Final = 1400
"""A smaller body is never compressed."""

THREAD_BYTES_MIN: Final = 256 << 10
"""From this size on a body is compressed in a thread, so that other requests go on."""

_GZIP_FASTEST: Final = 1


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether a client takes gzip: the first mention decides, and only `q=0`, written so, refuses."""
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


class CachedBody:
    """A body in the response cache, with its gzip form once a client has asked for that.

    Args:
        plain: The body as it is.
        on_growth: Called when the gzip form is added, so that the cache can keep its bound on bytes.
    """

    __slots__ = ("_gzipped", "_lock", "_on_growth", "plain")

    def __init__(self, plain: bytes, on_growth: Callable[[], None]) -> None:
        self.plain = plain
        self._on_growth = on_growth
        self._gzipped = b""
        self._lock = asyncio.Lock()

    @property
    def size(self) -> int:
        """Bytes of both forms."""
        return len(self.plain) + len(self._gzipped)

    async def gzipped(self) -> bytes:
        """The gzip form. Concurrent callers share one compression."""
        async with self._lock:
            if not self._gzipped:
                self._gzipped = await compress(self.plain)
                self._on_growth()
        return self._gzipped


ENTRIES_MAX: Final = 1_000
"""Questions whose answers are kept; those that were not asked for longest make way, and are asked again."""

BYTES_MAX: Final = 128 << 20
"""Of all answers that are kept, each with its compressed form if it has one; beyond it those that were not asked for
longest make way. Also of the largest list that is put together; a longer one is refused, with the advice to ask for
pages."""

EXPENSIVE_S: Final = 0.005
"""An answer that took its worker less is never given again without asking."""

SHARE: Final = 1 / 40
"""Of a worker's time that is spent on expensive answers, the same for each question that is asked again and again: with
one such question an answer is given again for 40 times as long as it took, with two for 80 times."""

REUSED_MAX_S: Final = 30.0
"""The oldest answer that is given again without asking, even if more than the share is spent then."""

MAKING_MAX_S: Final = 10.0
"""For so much longer it is given while the next one is made. Who comes later waits for that."""

TURN_MAX_S: Final = 10.0
"""How long a question may wait for those before it; then whoever asked is told to try again."""

PAGE_ENTRIES: Final = 1_000
"""Of a list that is put together: a worker is busy for some hundredths of a second with each page."""

OK: Final = 200

Ask = Callable[[str, Query], Awaitable[Answer]]


class Shelved(NamedTuple):
    """An answer, and how long ago it was true for certain."""

    answer: Answer
    age_s: float
    body: CachedBody
    """The body of the answer, which is compressed once for all who get it."""


@dataclass(slots=True)
class _Place:
    """One question. Whoever holds the lock asks it."""

    partition: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    outcome: Answer | RequestError | None = None
    body: CachedBody | None = None
    """That of the outcome, if it is an answer; or one that was put together from several."""
    asked_at: float = 0.0
    """When the question was put to which the outcome is an answer, or that it still holds."""
    waiting: int = 0
    renewal: asyncio.Task[None] | None = None
    """Makes the next answer, for nobody who waits."""

    @property
    def cost_s(self) -> float:
        """What the outcome cost, if that was much."""
        took_s = self.outcome.took_micro_seconds / 1e6 if isinstance(self.outcome, Answer) else 0.0
        return took_s if took_s >= EXPENSIVE_S else 0.0

    @property
    def size(self) -> int:
        return self.body.size if self.body is not None else 0


class Shelf:
    """The latest answer to each question; `clock` gives seconds since whenever."""

    def __init__(self, ask: Ask, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._places: OrderedDict[str, _Place] = OrderedDict()
        """By partition and question, the one asked last at the end."""
        self._spent_s: defaultdict[str, float] = defaultdict(float)
        """By all workers, for each kind of question."""
        self._turns: defaultdict[tuple[str, str], asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(1))
        """By partition and question, without one for all that can be of any number."""

    def families(self) -> Iterator[Family]:
        """What answers have cost."""
        yield counter(
            "yunishard_answering_seconds_total",
            "Seconds that workers did nothing but answer questions asked here. Worry if it grows by more than 0.05 for "
            "each partition and second: ask for parts of lists (limit).",
            ("question",),
            [((what,), spent_s) for what, spent_s in sorted(self._spent_s.items())],
        )

    async def answer(self, partition: str, query: Query, generation: str = "") -> Shelved:
        """What the partition answers. What one of another `generation` answered is not given again.

        Raises:
            RequestError: 503, with what went wrong.
        """
        came = self._clock()
        key = _key(partition, query, generation)
        place = self._places.setdefault(key, _Place(partition))
        self._places.move_to_end(key)
        if not self._given_again(place, MAKING_MAX_S):
            await self._settle(partition, query, place, came)
        elif not self._given_again(place) and (place.renewal is None or place.renewal.done()):
            place.renewal = asyncio.create_task(self._settle(partition, query, place, came))
        outcome, age_s = place.outcome, self._clock() - place.asked_at
        if isinstance(outcome, RequestError):
            raise RequestError(outcome.status, outcome.text)
        assert outcome is not None
        assert place.body is not None, "an answer is kept with its body"
        return Shelved(outcome, age_s, place.body)

    def shared(self, key: str, body: bytes) -> CachedBody:
        """A body that was put together from several answers: the one that was kept under the key, with its compressed
        form, while it stays the same.
        """
        place = self._places.setdefault(key, _Place(""))
        self._places.move_to_end(key)
        if place.body is None or place.body.plain != body:
            place.body = CachedBody(body, self._make_room)
        found = place.body
        self._make_room()
        return found

    async def _settle(self, partition: str, query: Query, place: _Place, came: float) -> None:
        """Have an outcome that serves somebody who came then."""
        place.waiting += 1
        try:
            async with place.lock:
                if place.asked_at < came and not self._given_again(place):
                    await self._refresh(partition, query, place)
        finally:
            place.waiting -= 1
            self._make_room()

    def _given_again(self, place: _Place, longer_s: float = 0.0) -> bool:
        """Whether the outcome is given without asking, or would be if that were done for so much longer."""
        if not place.cost_s:
            return False
        begun = self._clock() - REUSED_MAX_S
        like_it = sum(
            1
            for one in self._places.values()
            if one is place or (one.cost_s and one.partition == place.partition and one.asked_at > begun)
        )
        lasts_s = min(REUSED_MAX_S, place.cost_s * like_it / SHARE)
        return self._clock() < place.asked_at + lasts_s + longer_s

    async def _refresh(self, partition: str, query: Query, place: _Place) -> None:
        kept = place.outcome if isinstance(place.outcome, Answer) else None
        asked_at = self._clock()
        try:
            ask = self._put if _is_one_of_few(query) else self.fresh  # which is on its way only once, and then kept
            answer = await ask(partition, replace(query, known=kept.version if kept else ""))
            if answer.status == TOO_LONG and "limit" not in query.args:
                answer = await self._together(partition, query, answer)
        except RequestError as error:
            place.outcome, place.body = error, None
            place.asked_at = self._clock()  # for all who wait: it would be the same again
            return
        if answer.status != NOT_MODIFIED:
            place.outcome, place.body = answer, CachedBody(answer.body, self._make_room)
        place.asked_at = asked_at

    async def fresh(self, partition: str, query: Query) -> Answer:
        """What the partition answers now, not kept, when it is the question's turn.

        Raises:
            RequestError: 503, with what went wrong.
        """
        turn, took_s = self._turns[partition, query.what if _is_one_of_few(query) else ""], 0.0
        try:
            async with asyncio.timeout(TURN_MAX_S):
                await turn.acquire()
        except TimeoutError:
            raise RequestError(503, f"Too much is being asked of partition {partition}, try again later") from None
        try:
            answer = await self._put(partition, query)
            took_s = answer.took_micro_seconds / 1e6
        finally:
            asyncio.get_running_loop().call_later(took_s, turn.release)
        return answer

    async def _put(self, partition: str, query: Query) -> Answer:
        answer = await self._ask(partition, query)
        self._spent_s[query.what] += answer.took_micro_seconds / 1e6
        return answer

    async def _together(self, partition: str, query: Query, whole: Answer) -> Answer:
        """All pages of a list as one, of the version that it had at its beginning."""
        pieces: list[bytes] = []
        size, took, after = 0, whole.took_micro_seconds, ""
        while True:
            args = {**query.args, "limit": str(PAGE_ENTRIES), "after": after}
            page = await self.fresh(partition, replace(query, args=args))
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
        size = sum(place.size for place in self._places.values())
        for key, place in list(self._places.items()):
            if len(self._places) <= ENTRIES_MAX and size <= BYTES_MAX:
                break
            if not place.waiting:
                del self._places[key]
                size -= place.size


def _is_one_of_few(query: Query) -> bool:
    return query.viewer is None and not query.args


def _key(partition: str, query: Query, generation: str) -> str:
    who = query.viewer
    viewer = who and (who.user, who.groups, who.scheduler_admin)
    return repr((partition, generation, query.what, query.name, sorted(query.args.items()), viewer))
