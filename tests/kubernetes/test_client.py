"""The client and the reflector with a real API server: what the fake one of `tests/kubernetes_shim` cannot prove."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import yaml

from tests.kubernetes.controlplane import ControlPlane, build_node, build_pod, certify_user
from yunishard.kubernetes_shim.client import KubernetesClient, KubernetesError
from yunishard.kubernetes_shim.kubeconfig import read_kubeconfig
from yunishard.kubernetes_shim.objects import NODES, PODS, ObjectEvent, Pod
from yunishard.kubernetes_shim.reflector import Reflector

NAMESPACE = "client"


@pytest.fixture(scope="module", autouse=True)
def namespace(plane: ControlPlane) -> None:
    plane.create_namespace(NAMESPACE)
    plane.create_nodes(2, first=9001)


def run(plane: ControlPlane, test: Callable[[KubernetesClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with KubernetesClient(read_kubeconfig([plane.kubeconfig])) as client, asyncio.timeout(60):
            await test(client)

    asyncio.run(main())


def test_pods_are_created_listed_in_pages_bound_patched_and_deleted(plane: ControlPlane) -> None:
    async def test(client: KubernetesClient) -> None:
        created = [
            await client.create(PODS, NAMESPACE, build_pod(f"p{number}", NAMESPACE, schedulerName="other"))
            for number in range(5)
        ]
        listing = await client.list(PODS, NAMESPACE, page=2)
        assert [pod.metadata.uid for pod in listing.items] == [pod.metadata.uid for pod in created]
        [first, second, *_] = created
        with pytest.raises(KubernetesError) as caught:
            await client.bind(NAMESPACE, "p0", second.metadata.uid, "node-9001")
        assert caught.value.status == 409
        for _ in range(2):  # the second call finds it done
            await client.bind(NAMESPACE, "p0", first.metadata.uid, "node-9001")
        with pytest.raises(KubernetesError) as caught:
            await client.bind(NAMESPACE, "p0", first.metadata.uid, "node-9002")
        assert caught.value.status == 409
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}
        body = {"metadata": {"uid": second.metadata.uid}, "status": {"conditions": [condition]}}
        patched = await client.patch(PODS, NAMESPACE, "p1", body, subresource="status", patch_type="strategic")
        assert patched.status.conditions[0].reason == "Unschedulable"
        body["metadata"] = {"uid": first.metadata.uid}
        with pytest.raises(KubernetesError) as caught:
            await client.patch(PODS, NAMESPACE, "p1", body, subresource="status", patch_type="strategic")
        assert caught.value.status == 422
        await client.delete(PODS, NAMESPACE, "p1", uid=first.metadata.uid)
        assert (await client.get(PODS, NAMESPACE, "p1")).metadata.uid == second.metadata.uid
        for pod in created:
            await client.delete(PODS, NAMESPACE, pod.metadata.name, uid=pod.metadata.uid, grace_s=0)
        with pytest.raises(KubernetesError, match="404 NotFound"):
            await client.get(PODS, NAMESPACE, "p1")

    run(plane, test)


def test_a_node_has_its_resources_and_conditions(plane: ControlPlane) -> None:
    async def test(client: KubernetesClient) -> None:
        node = await client.get(NODES, "", "node-9001")
        assert node.status.allocatable["cpu"] == "8"
        with pytest.raises(KubernetesError, match="409 AlreadyExists"):
            await client.create(NODES, "", build_node("node-9001"))

    run(plane, test)


def test_a_reflector_has_the_same_pods_after_the_server_was_killed(plane: ControlPlane) -> None:
    async def test(client: KubernetesClient) -> None:
        names: set[str] = set()

        def receive(event: ObjectEvent, pod: Pod) -> None:
            (names.discard if event == "deleted" else names.add)(pod.metadata.name)

        async def until(expected: set[str]) -> None:
            while names != expected:  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.01)

        reflector = Reflector(client, PODS, receive, namespace=NAMESPACE)
        task = asyncio.create_task(reflector.run())
        for name in ("a", "b"):
            await client.create(PODS, NAMESPACE, build_pod(name, NAMESPACE, schedulerName="other"))
        await until({"a", "b"})
        plane.kill("kube-apiserver")
        plane.start_process("kube-apiserver")
        await client.create(PODS, NAMESPACE, build_pod("c", NAMESPACE, schedulerName="other"))
        await client.delete(PODS, NAMESPACE, "a", grace_s=0)
        await until({"b", "c"})
        task.cancel()
        with pytest.raises(KubernetesError) as caught:  # its cache begins with its start
            async for _ in client.watch(PODS, "1"):
                pass
        assert caught.value.status == 410

    run(plane, test)
    plane.wait_until_ready()


def test_a_certificate_of_a_plugin_that_has_expired_is_replaced(plane: ControlPlane, tmp_path: Path) -> None:
    answers = tmp_path / "answers"
    for name, lifetime_s in (("first", 2.0), ("second", 3600.0)):
        certificate, key = certify_user(plane.folder, name, lifetime_s)
        status = {"clientCertificateData": certificate, "clientKeyData": key}
        with answers.open("a") as file:
            file.write(json.dumps({"kind": "ExecCredential", "status": status}) + "\n")
    config = yaml.safe_load(plane.kubeconfig.read_text())
    script = f"head -n 1 {answers}; sed -i 1d {answers}"  # each call answers the next line
    execute = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script]}
    config["users"] = [{"name": "admin", "user": {"exec": execute}}]
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))

    async def main() -> None:
        async with KubernetesClient(read_kubeconfig([path])) as client, asyncio.timeout(30):
            while answers.read_text():  # requests continue on a connection with the first certificate
                assert (await client.list(NODES)).items
                await asyncio.sleep(0.1)
            assert (await client.list(NODES)).items
        assert "401" in str(list(client.metrics.registry.collect()))

    asyncio.run(main())
