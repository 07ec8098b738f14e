"""Answers that are cached: when they are served again, and when the worker is queried."""

import asyncio
import itertools
import json
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from yunishard.common.messages.query_messages import NOT_MODIFIED, TOO_LONG, Actor, Answer, Query
from yunishard.webservice import response_cache
from yunishard.webservice.response_cache import GZIPPED_MAX, GzipCache, ResponseCache
from yunishard.webservice.views import RequestError

QUEUES = Query(what="queues", name="default")
CHEAP_US, DEAR_US = 100, 100_000


class Worker:
    """Answers with what it has, and counts who asks. `open` lets answers through."""

    def __init__(self, body: bytes = b"{}", took: int = CHEAP_US) -> None:
        self.body, self.took = body, took
        self.version = 1
        self.asked: list[Query] = []
        self.open = asyncio.Event()
        self.open.set()
        self.fails = ""

    async def ask(self, partition: str, query: Query) -> Answer:
        self.asked.append(query)
        body, version = self.body, f"v{self.version}"
        await self.open.wait()
        if self.fails:
            raise RequestError(503, self.fails)
        if query.known == version:
            return Answer(status=NOT_MODIFIED, body=b"", version=version)
        return Answer(status=200, body=body, version=version, took_micro_seconds=self.took)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 1e-6  # no two moments are the same
        return self.now


async def told(one: ResponseCache, query: Query = QUEUES) -> bytes:
    return (await one.answer("rm-1_default", query)).answer.body


def played(story: Callable[[Worker, ResponseCache, Clock], object]) -> None:
    async def run() -> None:
        worker, clock = Worker(), Clock()
        await story(worker, ResponseCache(worker.ask, clock), clock)  # type: ignore[misc]

    asyncio.run(run())


def test_a_small_answer_is_always_asked_for_and_made_only_if_something_changed() -> None:
    async def story(worker: Worker, one: ResponseCache, clock: Clock) -> None:
        assert [await told(one), await told(one)] == [b"{}", b"{}"]
        assert [query.known for query in worker.asked] == ["", "v1"]
        worker.body, worker.version = b"[]", 2
        assert await told(one) == b"[]"

    played(story)


def test_requests_during_a_query_share_the_next_answer() -> None:
    async def story(worker: Worker, one: ResponseCache, clock: Clock) -> None:
        worker.open.clear()
        first = asyncio.create_task(told(one))
        await asyncio.sleep(0)
        worker.body, worker.version = b"[1]", 2  # a change that those who come now have made
        rest = [asyncio.create_task(told(one)) for _ in range(5)]
        await asyncio.sleep(0)
        worker.open.set()
        assert await first == b"{}"
        assert await asyncio.gather(*rest) == [b"[1]"] * 5
        assert len(worker.asked) == 2

    played(story)


def test_however_many_questions_there_are_a_worker_has_half_of_its_time_for_its_work() -> None:
    async def story(worker: Worker, one: ResponseCache, clock: Clock) -> None:
        worker.took = 30_000
        loop, put_at = asyncio.get_running_loop(), list[float]()
        ask = worker.ask

        async def noted(partition: str, query: Query) -> Answer:
            put_at.append(loop.time())
            return await ask(partition, query)

        one = ResponseCache(noted, clock)
        pages = [Query(what="nodes", args={"limit": "1", "after": str(number)}) for number in range(3)]
        await asyncio.gather(*(told(one, page) for page in pages), told(one))
        assert not worker.asked[1].args, "the one without arguments waits for nobody"
        assert all(later - earlier >= 0.03 for earlier, later in itertools.pairwise((put_at[0], *put_at[2:])))

    played(story)


def test_what_is_not_kept_has_a_turn_of_its_own() -> None:
    async def story(worker: Worker, one: ResponseCache, clock: Clock) -> None:
        worker.open.clear()
        figures, page = Query(what="metrics"), Query(what="nodes", args={"limit": "1"})
        asked = [asyncio.create_task(one.answer_now("rm-1_default", query)) for query in (page, figures, figures)]
        await asyncio.sleep(0)
        assert worker.asked == [page, figures]
        worker.open.set()
        await asyncio.gather(*asked)
        assert worker.asked == [page, figures, figures]

    played(story)


def test_a_query_that_waits_too_long_for_its_turn_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(worker: Worker, one: ResponseCache, clock: Clock) -> None:
        worker.open.clear()
        first = asyncio.create_task(told(one, Query(what="nodes", args={"limit": "1"})))
        await asyncio.sleep(0)
        with pytest.raises(RequestError, match="Too many queries wait for partition rm-1_default, try again later"):
            await told(one, Query(what="nodes", args={"limit": "2"}))
        worker.open.set()
        assert await first == b"{}"
        assert await told(one, Query(what="nodes", args={"limit": "2"})) == b"{}"

    monkeypatch.setattr(response_cache, "TURN_MAX_S", 0.01)
    played(story)


def test_a_cancelled_request_does_not_cancel_the_others() -> None:
    async def story(worker: Worker, one: ResponseCache, clock: Clock) -> None:
        worker.open.clear()
        first, second = asyncio.create_task(told(one)), asyncio.create_task(told(one))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        worker.open.set()
        assert await second == b"{}"

    played(story)


def test_a_failure_reaches_all_waiting_requests_and_is_not_cached() -> None:
    async def story(worker: Worker, one: ResponseCache, clock: Clock) -> None:
        worker.fails = "it does not answer"
        worker.open.clear()
        waiting = [asyncio.create_task(told(one)) for _ in range(5)]
        await asyncio.sleep(0)
        worker.open.set()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert [str(each) for each in found] == ["it does not answer"] * 5
        assert len(worker.asked) == 1
        worker.fails = ""
        assert await told(one) == b"{}"

    played(story)


def test_an_expensive_answer_is_given_again_until_the_worker_has_done_something_else() -> None:
    async def story(worker: Worker, one: ResponseCache, clock: Clock) -> None:
        worker.took = DEAR_US
        await told(one)
        worker.body, worker.version = b"[]", 2
        clock.now += 1.5
        found = await one.answer("rm-1_default", QUEUES)
        assert (found.answer.body, round(found.age_s, 1)) == (b"{}", 1.5)
        clock.now = 100 + DEAR_US / 1e6 / response_cache.SHARE + response_cache.MAKING_MAX_S
        assert await told(one) == b"[]"

    played(story)


def test_requests_do_not_wait_while_an_answer_is_renewed() -> None:
    async def story(worker: Worker, one: ResponseCache, clock: Clock) -> None:
        worker.took = DEAR_US
        await told(one)
        worker.body, worker.version = b"[]", 2
        worker.open.clear()
        clock.now = 100 + DEAR_US / 1e6 / response_cache.SHARE
        for _ in range(3):
            found = await one.answer("rm-1_default", QUEUES)
            assert (found.answer.body, round(found.age_s, 1)) == (b"{}", 4.0)
            await asyncio.sleep(0)
        assert len(worker.asked) == 2
        worker.open.set()
        while found.age_s > 1.0:
            await asyncio.sleep(0)
            found = await one.answer("rm-1_default", QUEUES)
        assert found.answer.body == b"[]"
        assert len(worker.asked) == 2

    played(story)


def test_requests_wait_for_a_renewal_once_the_answer_is_too_old() -> None:
    async def story(worker: Worker, one: ResponseCache, clock: Clock) -> None:
        worker.took = DEAR_US
        await told(one)
        worker.body, worker.version = b"[]", 2
        worker.open.clear()
        clock.now = 100 + DEAR_US / 1e6 / response_cache.SHARE
        await told(one)
        await asyncio.sleep(0)
        clock.now += response_cache.MAKING_MAX_S
        waiting = asyncio.create_task(told(one))
        await asyncio.sleep(0)
        assert not waiting.done()
        worker.fails = "it does not answer"
        worker.open.set()
        with pytest.raises(RequestError, match="it does not answer"):
            await waiting

    played(story)


def test_no_answer_is_given_again_that_is_too_old() -> None:
    async def story(worker: Worker, one: ResponseCache, clock: Clock) -> None:
        worker.took = 1000 * DEAR_US
        await told(one)
        clock.now += response_cache.REUSED_MAX_S + response_cache.MAKING_MAX_S
        await told(one)
        assert len(worker.asked) == 2

    played(story)


def test_expensive_questions_share_what_they_may_cost() -> None:
    """Each of three is asked once a second for two minutes."""

    async def story(worker: Worker, one: ResponseCache, clock: Clock) -> None:
        worker.took = DEAR_US
        for _ in range(120):
            for what in ("queues", "nodes", "users"):
                worker.version += 1
                await told(one, Query(what=what))
                await asyncio.sleep(0)  # so that the next one is made
            clock.now += 1.0
        spent_s = len(worker.asked) * DEAR_US / 1e6
        assert 0.02 < spent_s / 120 < 0.05
        [metric] = one.collect()
        assert {sample.labels["question"]: round(sample.value, 6) for sample in metric.samples} == {
            what: round(spent_s / 3, 6) for what in ("nodes", "queues", "users")
        }

    played(story)


def test_what_one_sees_is_not_given_to_another() -> None:
    async def story(worker: Worker, one: ResponseCache, clock: Clock) -> None:
        worker.took = DEAR_US
        for viewer in (None, Actor(user="ann"), Actor(user="ann", groups=["dev"]), Actor(user="bob")):
            await told(one, Query(what="queues", viewer=viewer))
        assert len(worker.asked) == 4

    played(story)


def test_kept_answers_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_cache, "ENTRIES_MAX", 2)

    async def story(worker: Worker, one: ResponseCache, clock: Clock) -> None:
        for what in ("queues", "nodes", "users", "queues"):
            await told(one, Query(what=what))
        assert [query.known for query in worker.asked] == ["", "", "", ""], "the first had made way"
        monkeypatch.setattr(response_cache, "BYTES_MAX", 1)
        await told(one, Query(what="queues"))
        await told(one, Query(what="queues"))
        assert [query.known for query in worker.asked[4:]] == ["v1", ""]

    played(story)


class Unvisited(OrderedDict[Any, Any]):
    """Entries of which only the first may be visited."""

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain(itertools.islice(super().__iter__(), 1), (self.fail() for _ in range(1)))

    def values(self) -> Any:
        return (self[key] for key in self)

    def items(self) -> Any:
        return ((key, self[key]) for key in self)

    def fail(self) -> None:
        raise AssertionError("all entries were visited")


def test_a_request_costs_the_same_however_many_answers_are_cached() -> None:
    async def story(worker: Worker, one: ResponseCache, clock: Clock) -> None:
        worker.took = DEAR_US
        for number in range(response_cache.ENTRIES_MAX):
            await told(one, Query(what="nodes", name=str(number)))
        one._entries, one._expensive = Unvisited(one._entries), Unvisited(one._expensive)
        with pytest.raises(AssertionError, match="all entries were visited"):
            list(one._entries.items())
        for now in (clock.now, clock.now + response_cache.REUSED_MAX_S):
            clock.now = now
            await told(one, Query(what="nodes", name="0"))
            await told(one, Query(what="queues"))
        assert len(one._entries) == response_cache.ENTRIES_MAX

    played(story)


def test_bodies_are_compressed_at_the_same_cost_however_many_are_kept() -> None:
    async def run() -> None:
        one = GzipCache()
        for number in range(GZIPPED_MAX):
            await one.compress(b"%d" % number)
        one._forms = Unvisited(one._forms)
        await one.compress(b"another")
        assert len(one._forms) == GZIPPED_MAX

    asyncio.run(run())


def test_nothing_is_left_of_queries_and_partitions_that_were_answered() -> None:
    async def story(worker: Worker, one: ResponseCache, clock: Clock) -> None:
        for number in range(10):
            worker.took = DEAR_US if number < 5 else CHEAP_US
            await one.answer(f"rm-{number}_default", QUEUES)
            worker.took = 0
            await one.answer_now(f"rm-{number}_default", Query(what="nodes", args={"limit": "1"}))
            assert one._turns
            await asyncio.sleep(0)  # its time is over
            await asyncio.sleep(0)
            assert not one._turns
        assert len(one._expensive_counts) == 5
        clock.now += response_cache.REUSED_MAX_S + 1
        worker.took = DEAR_US
        await one.answer("rm-4_default", QUEUES)
        assert list(one._expensive_counts) == ["rm-4_default"]

    played(story)


def test_equal_bodies_are_compressed_once_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    compressed = list[bytes]()

    def counted(body: bytes, *args: int, **kwargs: int) -> bytes:
        compressed.append(body)
        return b"gzipped"

    async def run() -> None:
        one = GzipCache()
        assert await asyncio.gather(*(one.compress(body) for body in (b"a", b"b", b"a"))) == [b"gzipped"] * 3
        assert compressed == [b"a", b"b"]
        await one.compress(b"c")
        assert await one.compress(b"a") == b"gzipped"
        assert compressed == [b"a", b"b", b"c"]
        await one.compress(b"b")
        assert compressed == [b"a", b"b", b"c", b"b"]

    monkeypatch.setattr("gzip.compress", counted)
    monkeypatch.setattr(response_cache, "GZIPPED_BYTES_MAX", 2)
    asyncio.run(run())


# Lists that are too long for one answer -----------------------------------------------------------------------------


class Lister:
    """A worker with a list that it shows page by page only."""

    def __init__(self, entries: int) -> None:
        self.entries = [{"id": f"n{number:02}"} for number in range(entries)]
        self.asked: list[Query] = []
        self.version = "v1"

    async def ask(self, partition: str, query: Query) -> Answer:
        self.asked.append(query)
        if query.known == self.version:
            return Answer(status=NOT_MODIFIED, body=b"", version=self.version)
        if "limit" not in query.args:
            return Answer(status=TOO_LONG, body=b"ask for pages", version=self.version)
        rest = [one for one in self.entries if one["id"] > query.args["after"]]
        found = rest[: int(query.args["limit"])]
        more = found[-1]["id"] if len(rest) > len(found) else ""
        return Answer(status=200, body=json.dumps(found).encode() + b"\n", next=more, took_micro_seconds=DEAR_US)


@pytest.mark.parametrize("entries", [0, 1, 3, 4, 7])
def test_a_list_that_is_too_long_is_put_together(monkeypatch: pytest.MonkeyPatch, entries: int) -> None:
    monkeypatch.setattr(response_cache, "PAGE_ENTRIES", 3)
    lister = Lister(entries)

    async def run() -> None:
        one = ResponseCache(lister.ask)
        found = (await one.answer("p", Query(what="nodes", args={"state": "active"}))).answer
        assert (found.status, found.version) == (200, "v1")
        assert json.loads(found.body) == lister.entries
        assert found.took_micro_seconds == (len(lister.asked) - 1) * DEAR_US
        assert all(query.args["state"] == "active" for query in lister.asked)

    asyncio.run(run())


def test_an_unchanged_list_is_not_joined_again() -> None:
    lister, clock = Lister(3), Clock()

    async def run() -> None:
        one = ResponseCache(lister.ask, clock)
        await one.answer("p", Query(what="nodes"))
        clock.now += response_cache.REUSED_MAX_S
        asked = len(lister.asked)
        assert json.loads((await one.answer("p", Query(what="nodes"))).answer.body) == lister.entries
        assert [query.known for query in lister.asked[asked:]] == ["v1"]

    asyncio.run(run())


def test_a_list_that_is_too_long_for_us_too_is_refused_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_cache, "BYTES_MAX", 20)

    async def run() -> None:
        found = (await ResponseCache(Lister(9).ask).answer("p", Query(what="nodes"))).answer
        assert (found.status, found.body) == (503, b"the list has more than 20 bytes: ask for pages of it with limit")

    asyncio.run(run())
