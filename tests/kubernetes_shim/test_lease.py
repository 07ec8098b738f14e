import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest

from tests.kubernetes_shim.fake_api import Answer, FakeApi, Json, serve_fake_api
from yunishard.kubernetes_shim import client as client_module
from yunishard.kubernetes_shim import lease as lease_module
from yunishard.kubernetes_shim.client import KubernetesClient
from yunishard.kubernetes_shim.lease import Expiry, LeaseHolder, LeaseLost, build_renewal
from yunishard.kubernetes_shim.objects import Lease, LeaseSpec, ObjectMeta

COLLECTION = "apis/coordination.k8s.io/v1/leases"


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "RETRY_S", 0.01)
    monkeypatch.setattr(lease_module, "RENEW_S_MAX", 0.2)
    monkeypatch.setattr(client_module, "FIRST_PAUSE_S", 0.001)


def run(test: Callable[[FakeApi, KubernetesClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with serve_fake_api() as api, KubernetesClient(api.access) as client, asyncio.timeout(20):
            await test(api, client)

    asyncio.run(main())


def spec_of(api: FakeApi) -> Json:
    found: Json = api.objects[COLLECTION]["default", "shim"]["spec"]
    return found


def make(holder: str, version: str, transitions: int = 0) -> Lease:
    spec = LeaseSpec(holder_identity=holder, lease_duration_seconds=15, lease_transitions=transitions)
    return Lease(metadata=ObjectMeta(resource_version=version), spec=spec)


def test_one_process_at_a_time_has_the_lease_and_the_next_one_takes_it_when_released() -> None:
    async def test(api: FakeApi, client: KubernetesClient) -> None:
        order = []

        async def work(name: str) -> None:
            async with LeaseHolder(client, "default", "shim", name).hold() as lost:
                order.append(f"{name} begins")
                assert spec_of(api)["holderIdentity"] == name
                await asyncio.wait([lost], timeout=0.1)
                assert not lost.done()
                order.append(f"{name} ends")

        await asyncio.gather(work("a"), work("b"))
        assert order in (["a begins", "a ends", "b begins", "b ends"], ["b begins", "b ends", "a begins", "a ends"])
        assert spec_of(api)["leaseTransitions"] == 1

    run(test)


def test_a_lease_that_is_not_renewed_is_taken_after_its_duration() -> None:
    expiry = Expiry("own")
    assert not expiry.is_free(make("other", "1"), 100.0)
    assert not expiry.is_free(make("other", "2"), 114.0)
    assert not expiry.is_free(make("other", "2"), 128.9)
    assert expiry.is_free(make("other", "2"), 129.0)
    assert Expiry("own").is_free(make("", "1"), 0.0)


def test_a_process_with_the_identity_of_the_holder_takes_the_lease_at_once_and_others_wait() -> None:
    assert Expiry("own").is_free(make("own", "1"), 0.0)
    assert not Expiry("own").is_free(make("own-2", "1"), 0.0)

    async def test(api: FakeApi, client: KubernetesClient) -> None:
        spec = {"holderIdentity": "pod-1", "leaseDurationSeconds": 1_000_000, "leaseTransitions": 3}
        api.put(COLLECTION, {"metadata": {"name": "shim", "namespace": "default"}, "spec": spec})
        async with LeaseHolder(client, "default", "shim", "pod-1").hold() as lost:
            assert not lost.done()
            assert (spec_of(api)["holderIdentity"], spec_of(api)["leaseTransitions"]) == ("pod-1", 3)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1), LeaseHolder(client, "default", "shim", "pod-2").hold():
                    pass

    run(test)


def test_a_holder_that_cannot_renew_has_lost_it() -> None:
    async def test(api: FakeApi, client: KubernetesClient) -> None:
        async with LeaseHolder(client, "default", "shim", "a").hold() as lost:
            api.answers += [Answer("PATCH", "leases", 0)] * 10_000
            with pytest.raises(LeaseLost, match=r"default/shim could not be renewed for 0\.2 s"):
                await lost

    run(test)


def test_a_holder_whose_lease_another_process_took_has_lost_it() -> None:
    async def test(api: FakeApi, client: KubernetesClient) -> None:
        async with LeaseHolder(client, "default", "shim", "a").hold() as lost:
            api.put(COLLECTION, {"metadata": {"name": "shim", "namespace": "default"}, "spec": {"holderIdentity": "b"}})
            with pytest.raises(LeaseLost, match="b has the lease default/shim"):
                await lost
        assert spec_of(api)["holderIdentity"] == "b"

    run(test)


def test_a_renewal_whose_answer_was_lost_counts() -> None:
    async def test(api: FakeApi, client: KubernetesClient) -> None:
        async with LeaseHolder(client, "default", "shim", "a").hold() as lost:
            api.answers.append(Answer("PATCH", "leases", 0, after=True))
            await asyncio.wait([lost], timeout=0.15)
            assert not lost.done()
            assert not api.answers

    run(test)


def test_a_renewal_keeps_when_the_lease_was_acquired() -> None:
    wall = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
    taken = build_renewal("a", wall, make("b", "7", transitions=3))
    assert taken == {
        "metadata": {"resourceVersion": "7"},
        "spec": {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "renewTime": "2026-01-02T03:04:05.000678Z",
            "acquireTime": "2026-01-02T03:04:05.000678Z",
            "leaseTransitions": 4,
        },
    }
    renewed = build_renewal("a", wall, make("a", "8"))
    assert renewed["spec"] == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "renewTime": "2026-01-02T03:04:05.000678Z",
    }
