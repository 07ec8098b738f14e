import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from tests.kubernetes_shim.fake_api import Answer, FakeApi, make_pod, serve_fake_api
from yunishard.kubernetes_shim import client as client_module
from yunishard.kubernetes_shim.client import KubernetesClient, KubernetesError
from yunishard.kubernetes_shim.objects import PODS, ObjectEvent, Pod
from yunishard.kubernetes_shim.reflector import Reflector

COLLECTION = "api/v1/pods"


class Receiver:
    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.batches = 0
        self._changed = asyncio.Event()

    def receive(self, event: ObjectEvent, pod: Pod) -> None:
        self.events.append((event, pod.metadata.name))
        self._changed.set()

    def end_batch(self) -> None:
        self.batches += 1

    async def expect(self, *events: tuple[str, str]) -> None:
        """Wait for as many events as these, which have to be these."""
        async with asyncio.timeout(10):
            while len(self.events) < len(events):
                self._changed.clear()
                await self._changed.wait()
        assert self.events == list(events)
        self.events.clear()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "FIRST_PAUSE_S", 0.001)


def run(test: Callable[[FakeApi, Receiver], Awaitable[None]], *, with_pods: tuple[str, ...] = ("a",)) -> None:
    async def main() -> None:
        receiver = Receiver()
        async with serve_fake_api() as api, KubernetesClient(api.access) as client, asyncio.timeout(20):
            for name in with_pods:
                api.put(COLLECTION, make_pod(name))
            reflector = Reflector(client, PODS, receiver.receive, after_batch=receiver.end_batch)
            task = asyncio.create_task(reflector.run())
            await reflector.listed.wait()
            await receiver.expect(*(("added", name) for name in with_pods))
            await until(lambda: bool(api.watches))
            await test(api, receiver)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.001)


def count(api: FakeApi, words: str) -> int:
    return sum(words in request for request in api.requests)


def test_changes_arrive_as_they_happen() -> None:
    async def test(api: FakeApi, receiver: Receiver) -> None:
        api.put(COLLECTION, make_pod("b"))
        api.put(COLLECTION, make_pod("a", nodeName="n"))
        api.remove(COLLECTION, "b", "default")
        await receiver.expect(("added", "b"), ("modified", "a"), ("deleted", "b"))

    run(test)


def test_a_watch_that_ends_continues_at_its_last_version() -> None:
    async def test(api: FakeApi, receiver: Receiver) -> None:
        bookmark = {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "1"}}}
        api.send_to_watches(bookmark)
        api.end_watches()
        await until(lambda: not api.watches)
        api.put(COLLECTION, make_pod("b"))
        await receiver.expect(("added", "b"))
        assert count(api, "limit=") == 1

    run(test)


def test_a_bookmark_moves_the_version_on() -> None:
    async def test(api: FakeApi, receiver: Receiver) -> None:
        api.version += 41
        api.send_to_watches({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(api.version)}}})
        api.end_watches()
        await until(lambda: count(api, "resourceVersion=42") == 1)

    run(test)


@pytest.mark.parametrize("as_status", [True, False])
def test_changes_that_are_gone_are_found_by_listing_again(as_status: bool) -> None:
    async def test(api: FakeApi, receiver: Receiver) -> None:
        watching, api.watches = api.watches, []  # the changes do not arrive
        api.remove(COLLECTION, "a", "default")
        api.put(COLLECTION, make_pod("a"))  # another one of the name
        api.remove(COLLECTION, "b", "default")
        api.put(COLLECTION, make_pod("c", nodeName="n"))
        api.put(COLLECTION, make_pod("e"))
        api.watches = watching
        if as_status:
            api.compact()
            api.end_watches()
        else:
            api.send_to_watches({"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}})
        await receiver.expect(("deleted", "a"), ("deleted", "b"), ("added", "a"), ("modified", "c"), ("added", "e"))
        assert count(api, "limit=") == 2

    run(test, with_pods=("a", "b", "c", "d"))


def test_another_error_in_a_watch_also_lists_again() -> None:
    async def test(api: FakeApi, receiver: Receiver) -> None:
        api.send_to_watches({"type": "ERROR", "object": {"code": 500, "reason": "InternalError", "message": "oops"}})
        await until(lambda: count(api, "limit=") == 2)
        assert receiver.events == []

    run(test)


def test_a_refused_watch_is_tried_again_without_a_list() -> None:
    async def test(api: FakeApi, receiver: Receiver) -> None:
        api.answers += [Answer("GET", "pods", 429), Answer("GET", "pods", 0), Answer("GET", "pods", 503)]
        api.end_watches()
        await until(lambda: count(api, "watch=") == 5)
        api.put(COLLECTION, make_pod("b"))
        await receiver.expect(("added", "b"))
        assert count(api, "limit=") == 1

    run(test)


def test_a_silent_watch_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "SILENCE_S_MAX", 0.1)

    async def test(api: FakeApi, receiver: Receiver) -> None:
        await until(lambda: count(api, "watch=") >= 2)
        await until(lambda: bool(api.watches))
        api.put(COLLECTION, make_pod("b"))
        await receiver.expect(("added", "b"))
        assert count(api, "limit=") == 1

    run(test)


def test_lines_arrive_in_pieces() -> None:
    async def test(api: FakeApi, receiver: Receiver) -> None:
        api.chunk_bytes = 100
        api.put(COLLECTION, make_pod("b", nodeSelector={"key": "x" * 50_000}))
        api.put(COLLECTION, make_pod("c"))
        await receiver.expect(("added", "b"), ("added", "c"))

    run(test)


def test_what_arrives_together_is_one_batch() -> None:
    async def test(api: FakeApi, receiver: Receiver) -> None:
        before = receiver.batches
        lines = [{"type": "ADDED", "object": {**make_pod(f"p{number}")}} for number in range(100)]
        for number, line in enumerate(lines):
            line["object"]["metadata"] |= {"uid": f"u{number}", "resourceVersion": str(100 + number)}  # type: ignore[index]
        api.send_to_watches(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        await receiver.expect(*(("added", f"p{number}") for number in range(100)))
        assert receiver.batches <= before + 2

    run(test)


def test_a_refused_first_list_ends_the_reflector() -> None:
    async def main() -> None:
        async with serve_fake_api() as api, KubernetesClient(api.access) as client:
            api.answers.append(Answer("GET", "/pods", 403, {"reason": "Forbidden", "message": "may not list"}))
            with pytest.raises(KubernetesError, match="may not list"):
                await Reflector(client, PODS, Receiver().receive).run()

    asyncio.run(main())
