import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from aiohttp import ClientConnectorCertificateError, ClientConnectorError
from aiohttp.client_reqrep import ConnectionKey

from tests.kubernetes_shim.fake_api import Answer, FakeApi, make_pod, serve_fake_api
from yunishard.kubernetes_shim import client as client_module
from yunishard.kubernetes_shim.client import (
    Backoff,
    KubernetesClient,
    KubernetesError,
    LineSplitter,
    RequestRate,
    build_path,
    describe,
)
from yunishard.kubernetes_shim.objects import CSI_NODES, NODES, PODS

Test = Callable[[FakeApi, KubernetesClient], Awaitable[None]]


def run(test: Test) -> None:
    async def main() -> None:
        async with serve_fake_api() as api, KubernetesClient(api.access) as client, asyncio.timeout(20):
            await test(api, client)

    asyncio.run(main())


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "FIRST_PAUSE_S", 0.001)


def test_a_list_is_read_in_pages() -> None:
    async def test(api: FakeApi, client: KubernetesClient) -> None:
        for number in range(5):
            api.put("api/v1/pods", make_pod(f"pod-{number}"))
        listing = await client.list(PODS, page=2)
        assert [pod.metadata.name for pod in listing.items] == [f"pod-{number}" for number in range(5)]
        assert listing.resource_version == "5"
        assert [request.partition("?")[2] for request in api.requests] == [
            "limit=2",
            "limit=2&continue=2",
            "limit=2&continue=4",
        ]

    run(test)


def test_a_list_whose_pages_expired_is_read_in_one() -> None:
    async def test(api: FakeApi, client: KubernetesClient) -> None:
        for number in range(3):
            api.put("api/v1/pods", make_pod(f"pod-{number}"))
        api.answers.append(Answer("GET", "continue=2", 410, {"reason": "Expired"}))
        listing = await client.list(PODS, page=2)
        assert len(listing.items) == 3
        assert api.requests[-1] == "GET /api/v1/pods"

    run(test)


def test_a_request_is_repeated_until_there_is_an_answer() -> None:
    async def test(api: FakeApi, client: KubernetesClient) -> None:
        api.put("api/v1/nodes", {"metadata": {"name": "n"}})
        api.answers += [Answer("GET", "nodes", 0), Answer("GET", "nodes", 503), Answer("GET", "nodes", 0)]
        assert (await client.get(NODES, "", "n")).metadata.name == "n"
        assert len(api.requests) >= 4

    run(test)


def test_a_pause_that_the_server_asks_for_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(api: FakeApi, client: KubernetesClient) -> None:
        api.put("api/v1/nodes", {"metadata": {"name": "n"}})
        pauses = []

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)

        api.answers += [
            Answer("GET", "nodes", 429, headers={"Retry-After": "7"}),
            Answer("GET", "nodes", 429, headers={"Retry-After": "100000"}),
        ]
        monkeypatch.setattr(client_module.asyncio, "sleep", sleep)
        await client.get(NODES, "", "n")
        monkeypatch.undo()
        assert pauses == [7, client_module.RETRY_AFTER_S_MAX]

    run(test)


def test_errors_of_the_server_end_a_request_after_some_tries() -> None:
    async def test(api: FakeApi, client: KubernetesClient) -> None:
        api.answers += [Answer("GET", "nodes", 500, b"oops")] * 99
        with pytest.raises(KubernetesError, match="500: oops"):
            await client.get(NODES, "", "n")
        assert len(api.requests) == client_module.SERVER_ERRORS_MAX

    run(test)


def test_a_refusal_has_status_reason_and_message() -> None:
    async def test(api: FakeApi, client: KubernetesClient) -> None:
        with pytest.raises(KubernetesError, match="404 NotFound: NotFound") as caught:
            await client.get(NODES, "", "n")
        assert (caught.value.status, caught.value.reason) == (404, "NotFound")
        assert len(api.requests) == 1

    run(test)


def test_refused_credentials_are_read_again_once() -> None:
    async def test(api: FakeApi, client: KubernetesClient) -> None:
        api.answers += [Answer("GET", "nodes", 401, {"reason": "Unauthorized", "message": "no"})] * 3
        with pytest.raises(KubernetesError, match="401 Unauthorized: no"):
            await client.get(NODES, "", "n")
        assert len(api.requests) == 2

    run(test)


def test_a_pod_is_bound_once_also_if_the_answer_was_lost() -> None:
    async def test(api: FakeApi, client: KubernetesClient) -> None:
        uid = api.put("api/v1/pods", make_pod("a"))["metadata"]["uid"]
        api.answers.append(Answer("POST", "binding", 0, after=True))
        await client.bind("default", "a", uid, "n1")
        assert api.objects["api/v1/pods"]["default", "a"]["spec"]["nodeName"] == "n1"
        with pytest.raises(KubernetesError, match="409"):
            await client.bind("default", "a", uid, "n2")
        with pytest.raises(KubernetesError, match="409"):
            await client.bind("default", "a", "another", "n1")
        with pytest.raises(KubernetesError, match="404"):
            await client.bind("default", "b", uid, "n1")

    run(test)


def test_an_object_is_created_once_also_if_the_answer_was_lost() -> None:
    async def test(api: FakeApi, client: KubernetesClient) -> None:
        api.answers.append(Answer("POST", "pods", 0, after=True))
        created = await client.create(PODS, "default", make_pod("a"))
        assert created.metadata.name == "a"
        with pytest.raises(KubernetesError, match="409 AlreadyExists"):
            await client.create(PODS, "default", make_pod("a"))

    run(test)


def test_an_object_that_is_gone_or_another_one_counts_as_deleted() -> None:
    async def test(api: FakeApi, client: KubernetesClient) -> None:
        api.put("api/v1/pods", make_pod("a"))
        await client.delete(PODS, "default", "a", uid="another")
        assert api.objects["api/v1/pods"]
        await client.delete(PODS, "default", "a", grace_s=0)
        assert not api.objects["api/v1/pods"]
        await client.delete(PODS, "default", "a")

    run(test)


def test_a_patch_changes_only_its_fields() -> None:
    async def test(api: FakeApi, client: KubernetesClient) -> None:
        api.put("api/v1/pods", make_pod("a", nodeName="n"))
        pod = await client.patch(PODS, "default", "a", {"status": {"phase": "Failed"}}, subresource="status")
        assert (pod.status.phase, pod.spec.node_name) == ("Failed", "n")
        assert api.requests == ["PATCH /api/v1/namespaces/default/pods/a/status"]
        with pytest.raises(KubernetesError, match="409"):
            await client.patch(PODS, "default", "a", {"metadata": {"resourceVersion": "1"}})

    run(test)


def test_lines_are_split_from_any_chunks() -> None:
    splitter = LineSplitter()
    text = b"one\n\ntwo" * 3 + b"\n" + b"x" * 1000 + b"\nrest"
    lines = [line for at in range(len(text)) for line in splitter.split(text[at : at + 1])]
    assert lines == [b"one", b"twoone", b"twoone", b"two", b"x" * 1000]
    assert splitter.split(b"\n") == [b"rest"]
    assert splitter.split(b"a\nb\nc") == [b"a", b"b"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (build_path(PODS, ""), "/api/v1/pods"),
        (build_path(PODS, "a", "b", "status"), "/api/v1/namespaces/a/pods/b/status"),
        (build_path(NODES, "a", "b/c"), "/api/v1/nodes/b%2Fc"),
        (build_path(CSI_NODES, ""), "/apis/storage.k8s.io/v1/csinodes"),
    ],
)
def test_paths(path: str, expected: str) -> None:
    assert path == expected


def test_what_is_no_status_is_quoted() -> None:
    assert str(client_module.read_error(502, b"<html>bad gateway")) == "502: <html>bad gateway"
    assert str(client_module.read_error(502, b"")) == "502: no text in the answer"
    status = msgspec.json.encode({"reason": "Forbidden", "message": "no"})
    assert str(client_module.read_error(403, status)) == "403 Forbidden: no"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"), "connection refused"),
        (socket.gaierror(-2, "Name or service not known"), "name or service not known"),
    ],
)
def test_a_failed_connection_is_described_by_its_cause(error: OSError, expected: str) -> None:
    key = ConnectionKey("api", 1, True, True, None, None, None)
    assert describe(ClientConnectorError(key, error)) == expected
    refused = ssl.SSLCertVerificationError(1, "text of OpenSSL")
    text = describe(ClientConnectorCertificateError(key, refused))
    assert text.startswith("its certificate is not one of the configured authority (")
    assert describe(TimeoutError()) == "TimeoutError"


def test_requests_wait_for_their_turn() -> None:
    rate = RequestRate(10, 3)
    assert [round(rate.reserve(5.0), 3) for _ in range(5)] == [0, 0, 0, 0.1, 0.2]
    assert rate.reserve(5.3) == 0
    assert [round(rate.reserve(100.0), 3) for _ in range(4)] == [0, 0, 0, 0.1]


def test_pauses_double_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "FIRST_PAUSE_S", 0.001)
    backoff = Backoff(0.003)
    assert all(low <= backoff.next_pause() <= high for low, high in ((0.0005, 0.001), (0.001, 0.002), (0.0015, 0.003)))
    assert backoff.next_pause() <= 0.003
    backoff.reset()
    assert backoff.next_pause() <= 0.001
