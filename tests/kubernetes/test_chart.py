"""The Helm chart on a real API server: it accepts every object, field by field, and the rights are enough."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.deploy.system import FREE_PORTS, up
from tests.kubernetes.controlplane import ControlPlane, Json, build_node, build_pod, eventually
from tests.packaging import test_helm as chart
from tests.processes.system import MAIN

NAMESPACE = chart.NAMESPACE
SITE = "chart"
GANG = [{"name": "g", "minMember": 2, "minResource": {"cpu": "100m", "memory": "64Mi"}}]

pytestmark = chart.pytestmark


def path_of(found: Json) -> str:
    """The path of the collection of an object."""
    prefix = "/api/v1" if found["apiVersion"] == "v1" else f"/apis/{found['apiVersion']}"
    plural = f"{found['kind'].lower()}s".replace("ys", "ies")
    is_global = found["kind"].startswith("Cluster") or found["kind"].endswith("WebhookConfiguration")
    return f"{prefix}/{plural}" if is_global else f"{prefix}/namespaces/{NAMESPACE}/{plural}"


@pytest.fixture(scope="module", autouse=True)
def namespaces(plane: ControlPlane) -> None:
    plane.create_namespace(NAMESPACE)
    plane.create_namespace(SITE)


@pytest.mark.parametrize("values", chart.VARIANTS, ids=lambda values: " ".join(values) or "defaults")
def test_the_api_server_accepts_every_field(plane: ControlPlane, values: tuple[str, ...]) -> None:
    for found in chart.render(*values).values():
        plane.request("POST", f"{path_of(dict(found))}?fieldValidation=Strict&dryRun=All", found)


@pytest.fixture
def installed(plane: ControlPlane) -> Iterator[None]:
    """A release, whose pods do not start: there is no default scheduler."""
    objects = [dict(one) for one in chart.render(f"config.service\\.clusterId={SITE}").values()]
    for found in objects:
        plane.request("POST", f"{path_of(found)}?fieldValidation=Strict", found)
    yield
    for found in objects:
        plane.request("DELETE", f"{path_of(found)}/{found['metadata']['name']}")
    for pod in plane.list("pods", NAMESPACE):
        plane.delete("pods", pod["metadata"]["name"], NAMESPACE)


@contextmanager
def run_as(plane: ControlPlane, account: str, folder: Path, *words: str) -> Iterator[Path]:
    """Run a command with the rights of a service account of the release, from its first line of output to the end of
    the block. Yields its log.
    """
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
    token = plane.request("POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"})
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["users"] = [{"name": "admin", "user": {"token": token["status"]["token"]}}]
    kubeconfig, log = folder / f"{account}.kubeconfig", folder / f"{account}.log"
    kubeconfig.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-P", "-c", MAIN, *words, "--kubeconfig", str(kubeconfig), "--namespace", NAMESPACE]
    with log.open("w") as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), log.read_text()
            yield log
            process.terminate()
            assert process.wait(20) == 0, log.read_text()
        finally:
            process.kill()


@pytest.mark.usefixtures("installed")
def test_the_rights_of_the_shim_are_enough_for_pods_gangs_and_volumes(plane: ControlPlane, tmp_path: Path) -> None:
    node = plane.create("nodes", build_node("chart-1"))["metadata"]["name"]
    with (
        up("--ephemeral", *FREE_PORTS, folder=tmp_path) as core,
        run_as(plane, "yunishard-shim", tmp_path, "k8s-shim", "--connect", core.announced()["native"]) as log,
    ):
        annotations = {
            "yunikorn.apache.org/task-groups": json.dumps(GANG),
            "yunikorn.apache.org/task-group-name": "g",
        }
        pods = [
            plane.create("pods", build_pod(f"gang-{number}", SITE, app="gang", annotations=annotations))
            for number in range(2)
        ]
        pods.append(plane.create("pods", build_pod("plain", SITE, app="plain")))
        assert set(plane.wait_until_bound(pods)) == {node}
        large = plane.create("pods", build_pod("large", SITE, app="large", requests={"cpu": "900"}))
        eventually(lambda: plane.find_condition(large).get("reason") == "Unschedulable")
        eventually(lambda: len(plane.list("events", SITE)) >= 5, what="events")
        assert plane.list("leases", NAMESPACE)
    assert "forbidden" not in log.read_text().lower()
    plane.delete_all("pods", SITE)
    plane.delete("nodes", node)


@pytest.mark.usefixtures("installed")
def test_the_rights_of_the_admission_controller_are_enough_to_fill_what_the_chart_has(
    plane: ControlPlane, tmp_path: Path
) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    assert not plane.request("GET", path)["items"][0].get("webhooks")
    words = ("k8s-admission", "--listen", "127.0.0.1:9089", "--url", "https://127.0.0.1:9089")
    with run_as(plane, "yunishard-admission", tmp_path, *words) as log:
        (found,) = plane.request("GET", path)["items"]
        assert found["webhooks"][0]["clientConfig"]["caBundle"]

        def is_changed() -> bool:
            created = plane.create("pods", build_pod("probe", SITE, schedulerName="default-scheduler"))
            plane.delete("pods", "probe", SITE)
            return bool(created["spec"]["schedulerName"] == "yunikorn")

        eventually(is_changed, what="the API server does not call the webhook")
    assert "forbidden" not in log.read_text().lower()
