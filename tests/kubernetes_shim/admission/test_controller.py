"""The controller with an API server in memory: real TLS, and what it writes."""

import asyncio
import base64
import io
import json
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web

from tests.kubernetes_shim.fake_api import Answer, FakeApi, Json, serve_fake_api
from yunishard.common.process.process_metrics import list_families
from yunishard.kubernetes_shim.admission import controller
from yunishard.kubernetes_shim.admission.controller import BODY_BYTES_MAX, SECRET, AdmissionController, Options
from yunishard.kubernetes_shim.admission.registrations import POLICY
from yunishard.kubernetes_shim.client import KubernetesClient, find_cause
from yunishard.kubernetes_shim.metrics import ListenFailed
from yunishard.kubernetes_shim.settings import SettingsError

SECRETS = "api/v1/secrets"
CONFIG_MAPS = "api/v1/configmaps"
WEBHOOKS = "apis/admissionregistration.k8s.io/v1"
POLICIES = f"{WEBHOOKS}/validatingadmissionpolicies"
MUTATIONS = f"{WEBHOOKS}/mutatingwebhookconfigurations"


@dataclass
class FakeCore:
    """The REST port of a core that refuses every configuration with the word `bad`."""

    url: str = ""
    texts: list[str] = field(default_factory=list)
    status: int = 200

    async def handle(self, request: web.Request) -> web.Response:
        text = await request.text()
        self.texts.append(text)
        verdict = {"allowed": "bad" not in text, "reason": "it is bad" if "bad" in text else ""}
        return web.json_response(verdict, status=self.status)


@dataclass
class World:
    api: FakeApi
    core: FakeCore
    port: int = 0

    def bundle(self) -> str:
        """The authorities that the API server trusts."""
        (found,) = self.api.objects[MUTATIONS].values()
        return base64.b64decode(found["webhooks"][0]["clientConfig"]["caBundle"]).decode()

    async def post(self, path: str, body: bytes | io.BytesIO) -> tuple[int, bytes]:
        """Send a request as the API server does: it trusts only the authorities in the configuration."""
        tls = ssl.create_default_context(cadata=self.bundle())
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"https://127.0.0.1:{self.port}{path}", data=body, ssl=tls) as response,
        ):
            return response.status, await response.read()

    async def review(self, path: str, **request: object) -> Json:
        body = {"request": {"uid": "1", "namespace": "dev", "userInfo": {"username": "alice"}, **request}}
        status, answer = await self.post(path, json.dumps(body).encode())
        assert status == 200
        found: Json = json.loads(answer)["response"]
        return found

    async def mutate(self, namespace: str = "dev") -> list[Json]:
        """The patch of a new pod."""
        created = {"metadata": {"name": "a"}, "spec": {}}
        found = await self.review("/mutate", kind={"kind": "Pod"}, namespace=namespace, object=created)
        patch: list[Json] = json.loads(base64.b64decode(found.get("patch", "W10=")))
        return patch

    async def validate(self, data: dict[str, str], namespace: str = "yunikorn") -> Json:
        return await self.review(
            "/validate-conf",
            name="yunikorn-configs",
            namespace=namespace,
            operation="UPDATE",
            object={"data": data},
        )


@asynccontextmanager
async def serve(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def running(world: World, *, port: int = 0) -> AsyncIterator[AdmissionController]:
    """A controller that is ready."""
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    options = Options("yunikorn", f"127.0.0.1:{port}", "https://127.0.0.1:9089", world.core.url)
    async with KubernetesClient(world.api.access) as client:
        found = AdmissionController(client, options)
        task = asyncio.create_task(found.run(ready.set_result))
        await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
        world.port = ready.result()
        try:
            yield found
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def play(test: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        core = FakeCore()
        async with asyncio.timeout(20), serve_fake_api() as api, serve(core.handle) as core.url:
            await test(World(api, core))

    asyncio.run(main())


async def until(is_done: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_done():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.001)


def put_settings(api: FakeApi, name: str = "yunikorn-configs", **data: str) -> None:
    api.put(CONFIG_MAPS, {"metadata": {"name": name, "namespace": "yunikorn"}, "data": data})


def test_the_api_server_can_call_the_webhooks_with_what_the_controller_has_written() -> None:
    async def test(world: World) -> None:
        async with running(world):
            assert [one["path"] for one in await world.mutate()] == [
                "/spec/schedulerName",
                "/metadata/labels",
                "/metadata/annotations",
            ]
            assert sorted(world.api.objects[SECRETS]["yunikorn", SECRET]["data"]) == [
                "cacert1.pem",
                "cacert2.pem",
                "cakey1.pem",
                "cakey2.pem",
            ]

    play(test)


def test_a_second_controller_uses_the_authorities_of_the_first_one() -> None:
    async def test(world: World) -> None:
        async with running(world):
            written = world.bundle()
        async with running(world):
            assert world.bundle() == written
            assert await world.mutate()
        writes = [one for one in world.api.requests if not one.startswith("GET")]
        assert len(writes) == 5  # the secret, both configurations, the policy and its binding, once

    play(test)


def test_a_controller_that_was_slower_takes_the_secret_of_the_other_one() -> None:
    async def test(world: World) -> None:
        async with running(world):
            secret = world.api.objects[SECRETS]["yunikorn", SECRET]
        world.api.objects[SECRETS].clear()
        other = Answer("POST", "/secrets", 409, {"code": 409, "reason": "AlreadyExists"})
        world.api.answers.append(Answer("GET", SECRET, 404, {"code": 404, "reason": "NotFound"}))
        world.api.answers.append(other)
        world.api.objects[SECRETS]["yunikorn", SECRET] = secret
        async with running(world):
            assert await world.mutate()
        assert other not in world.api.answers

    play(test)


def test_what_others_have_changed_is_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "RECONCILE_S", 0.01)

    async def test(world: World) -> None:
        async with running(world):
            before = world.bundle()
            world.api.objects[MUTATIONS].clear()
            await until(lambda: bool(world.api.objects[MUTATIONS]))
            assert world.bundle() == before
            world.api.objects[SECRETS]["yunikorn", SECRET]["data"] = {"cacert1.pem": "?"}
            await until(lambda: world.bundle() != before)
            assert await world.mutate()

    play(test)


def test_namespaces_and_settings_are_followed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "admission")

    async def test(world: World) -> None:
        api = world.api
        api.put("api/v1/namespaces", {"metadata": {"name": "dev"}})
        put_settings(api)
        async with running(world) as found:
            await until(lambda: len(api.watches) == 3)
            key = "yunikorn.apache.org/namespace.enableYuniKorn"
            api.put("api/v1/namespaces", {"metadata": {"name": "dev", "annotations": {key: "false"}}})
            await until(lambda: bool(found._namespaces["dev"].metadata.annotations))
            assert await world.mutate() == []
            assert await world.mutate("prod") != []
            put_settings(api, **{"admissionController.filtering.bypassNamespaces": "prod"})
            await until(lambda: "the settings have changed" in caplog.text)
            assert await world.mutate("prod") == []
            put_settings(api, **{"kubernetes.qps": "x"})
            await until(lambda: "the settings in force stay" in caplog.text)
            assert await world.mutate("prod") == []
            api.remove("api/v1/namespaces", "dev")
            await until(lambda: not found._namespaces)
            assert await world.mutate() != []

    play(test)


def test_the_policy_follows_the_settings_at_once_and_what_others_have_changed() -> None:
    async def test(world: World) -> None:
        def read() -> str:
            (found,) = world.api.objects[POLICIES].values()
            return str(found["spec"]["matchConditions"])

        async with running(world):
            await until(lambda: len(world.api.watches) == 3)
            assert "kube-system" in read()
            put_settings(world.api, **{"admissionController.accessControl.externalUsers": "^carol$"})
            await until(lambda: "^carol$" in read())
            (found,) = world.api.objects[POLICIES].values()
            found["spec"]["paramKind"] = {"kind": "ConfigMap"}
            put_settings(world.api, **{"admissionController.accessControl.externalUsers": "^dave$"})
            await until(lambda: "^dave$" in read())
            assert "paramKind" not in found["spec"]
            (binding,) = world.api.objects[f"{POLICIES[:-3]}ybindings"].values()
            assert binding["spec"] == {"policyName": POLICY, "validationActions": ["Deny"]}

    play(test)


@pytest.mark.parametrize("status", [403, 404, 422])
def test_an_api_server_that_does_not_take_the_policy_hinders_nobody(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(world: World) -> None:
        body = {"code": status, "reason": "Refused", "message": "no policies"}
        world.api.answers.append(Answer("POST", "validatingadmissionpolicies", status, body))
        async with running(world):
            assert await world.mutate()
        assert f"the policy {POLICY} cannot be written: {status} Refused: no policies" in caplog.text

    play(test)


def test_settings_that_cannot_be_read_at_the_start_end_the_controller() -> None:
    async def test(world: World) -> None:
        put_settings(world.api, **{"kubernetes.qps": "x"})
        with pytest.raises(ExceptionGroup) as caught:
            async with running(world):
                pass
        assert isinstance(problem := find_cause(caught.value), SettingsError)
        assert str(problem).startswith(
            "the config maps yunikorn-defaults and yunikorn-configs of namespace yunikorn have"
        )
        assert str(problem).endswith("\n  kubernetes.qps is 'x': expected a whole number from 1 to 999999999")

    play(test)


def test_a_port_that_another_process_has_ends_the_controller_before_it_writes_anything() -> None:
    async def test(world: World) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(ListenFailed) as caught:
                async with running(world, port=port):
                    pass
        text = f"127.0.0.1:{port} cannot be opened: address already in use; --listen names another address"
        assert str(caught.value) == text
        assert MUTATIONS not in world.api.objects

    play(test)


def test_a_missing_right_ends_the_controller() -> None:
    async def test(world: World) -> None:
        world.api.answers.append(Answer("GET", "/namespaces?", 403, {"reason": "Forbidden", "message": "may not list"}))
        with pytest.raises(ExceptionGroup) as caught:
            async with running(world):
                pass
        assert str(find_cause(caught.value)) == "403 Forbidden: may not list"

    play(test)


def test_the_core_validates_configurations() -> None:
    async def test(world: World) -> None:
        put_settings(world.api, "yunikorn-defaults", **{"queues.yaml": "fine"})
        async with running(world):
            assert (await world.validate({"queues.yaml": "new"}))["allowed"]
            assert (await world.validate({"log.level": "0"}))["allowed"]
            assert world.core.texts == ["new", "fine"]
            refused = await world.validate({"queues.yaml": "bad"})
            assert refused["status"]["message"] == "queues.yaml: it is bad"
            assert "kubernetes.qps" in (await world.validate({"kubernetes.qps": "x"}))["status"]["message"]
            assert (await world.validate({"queues.yaml": "bad"}, "elsewhere"))["allowed"]
            world.core.status = 503
            found = await world.validate({"queues.yaml": "bad"})
            assert found["allowed"]
            assert "not validated" in found["warnings"][0]

    play(test)


def test_the_author_of_a_key_without_effect_is_warned() -> None:
    async def test(world: World) -> None:
        async with running(world):
            found = await world.validate({"queue.yaml": "x"})
            assert found["allowed"]
            assert found["warnings"] == ["queue.yaml is not read: the queues are in queues.yaml (service.policyGroup)"]
            assert not world.core.texts

    play(test)


def test_a_core_that_does_not_answer_hinders_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "CORE_S_MAX", 0.01)

    async def hang(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async def test(world: World) -> None:
        async with serve(hang) as world.core.url, running(world):
            assert (await world.validate({"queues.yaml": "bad"}))["allowed"]

    play(test)


def test_reviews_are_counted_by_their_outcome_and_the_ends_of_certificates_are_shown() -> None:
    async def test(world: World) -> None:
        async with running(world) as found:
            await world.mutate()
            await world.mutate("kube-system")
            await world.validate({"queues.yaml": "bad"})
            world.core.status = 500
            await world.validate({"queues.yaml": "bad"})
            await world.post("/mutate", b"{")
        samples = {one.name: dict(one.samples) for one in list_families(found.metrics.registry)}
        assert samples["yunishard_k8s_admission_reviews_total"] == {
            ("mutate", "changed"): 1,
            ("mutate", "unchanged"): 1,
            ("validate-conf", "refused"): 1,
            ("validate-conf", "unchanged"): 1,
            ("mutate", "malformed"): 1,
        }
        assert samples["yunishard_k8s_admission_unvalidated_total"] == {(): 1}
        ends_at = samples["yunishard_k8s_certificate_end_time_seconds"]
        assert time.time() + 30 * 86400 < ends_at["server",] <= ends_at["authority",]

    play(test)


def test_what_is_no_review_is_refused() -> None:
    async def test(world: World) -> None:
        async with running(world):
            for path in ("/mutate", "/validate-conf"):
                status, text = await world.post(path, b"{}")
                assert (status, text.decode()[:32]) == (400, "expected an AdmissionReview of a")
            status, _ = await world.post("/mutate", io.BytesIO(bytes(BODY_BYTES_MAX + 1)))
            assert status == 413

    play(test)
