"""The switch from YuniKorn and the way back: on the same cluster its shim with its core, ours, and its own again. Pods
that run are not even written to, and each scheduler has all of them in its state.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.deploy.system import FREE_PORTS, up
from tests.kubernetes.build import find_binaries
from tests.kubernetes.controlplane import ControlPlane, Json, build_node, build_pod, eventually
from tests.processes.system import MAIN

NAMESPACE = "migration"
QUEUES = """\
partitions:
  - name: default
    placementrules: [{name: tag, value: namespace, create: true}]
    queues: [{name: root, submitacl: "*"}]
"""
SITE = {"site": NAMESPACE}
"""The label of the nodes of this test, on a cluster with others."""
GANG = [{"name": "g", "minMember": 3, "minResource": {"cpu": "100m", "memory": "64Mi"}, "nodeSelector": SITE}]
ANNOTATIONS = {
    "yunikorn.apache.org/task-groups": json.dumps(GANG),
    "yunikorn.apache.org/task-group-name": "g",
}
REFERENCE = "http://127.0.0.1:9080"


@pytest.fixture(scope="module", autouse=True)
def nodes(plane: ControlPlane) -> Iterator[None]:
    plane.create_namespace(NAMESPACE)
    data = {"queues.yaml": QUEUES}
    plane.create("configmaps", {"metadata": {"name": "yunikorn-configs", "namespace": NAMESPACE}, "data": data})
    names = [f"{NAMESPACE}-{number}" for number in range(4)]
    plane.create_all("nodes", [build_node(name, labels=SITE) for name in names])
    yield
    plane.delete_all("pods", NAMESPACE)
    for name in names:
        plane.delete("nodes", name)


class Scheduler:
    """One that runs, by its REST port."""

    def __init__(self, plane: ControlPlane, rest: str) -> None:
        self._plane, self._rest = plane, rest

    def allocations(self) -> dict[str, str]:
        """Keys of the allocations on the nodes of this test, with their nodes."""
        answer = httpx.get(f"{self._rest}/ws/v1/partition/default/nodes", timeout=10)
        return {
            one["allocationKey"]: node["nodeID"]
            for node in answer.json()
            for one in node.get("allocations") or ()
            if node["nodeID"].startswith(NAMESPACE)
        }

    def create(self, name: str, **changes: object) -> Json:
        pod = build_pod(name, NAMESPACE, nodeSelector=SITE, **{"app": "app", **changes})
        return self._plane.create("pods", pod)

    def expect_all_pods(self) -> None:
        """Wait until the scheduler has exactly the pods that have a node."""
        try:
            eventually(lambda: self.allocations() == find_places(self._plane))
        except AssertionError:
            assert self.allocations() == find_places(self._plane), "another state than the API server"


@contextmanager
def reference(plane: ControlPlane, folder: Path) -> Iterator[Scheduler]:
    """YuniKorn's shim, with its own core."""
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "NAMESPACE": NAMESPACE}
    with (folder / "reference").open("a") as log:
        command = [str(find_binaries() / "k8shim")]
        with subprocess.Popen(command, stdout=log, stderr=log, env=environment) as process:
            try:
                eventually(lambda: answers(f"{REFERENCE}/ws/v1/partition/default/nodes"), what="the reference")
                yield Scheduler(plane, REFERENCE)
            finally:
                process.kill()


@contextmanager
def ours(plane: ControlPlane, folder: Path) -> Iterator[Scheduler]:
    words = ("k8s-shim", "--kubeconfig", str(plane.kubeconfig), "--namespace", NAMESPACE, "--connect")
    with up("--ephemeral", *FREE_PORTS, folder=folder) as core, (folder / "shim").open("a") as log:
        ports = core.announced()
        command = [sys.executable, "-P", "-c", MAIN, *words, ports["native"]]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline(), (folder / "shim").read_text()
                yield Scheduler(plane, ports["rest"])
                process.terminate()
                assert process.wait(20) == 0, (folder / "shim").read_text()
            finally:
                process.kill()


def answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


def find_places(plane: ControlPlane) -> dict[str, str]:
    pods = [pod for pod in plane.list("pods", NAMESPACE) if pod["spec"].get("nodeName")]
    return {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in pods}


def find_running(plane: ControlPlane) -> dict[str, str]:
    """Uids of the pods that run, with the version of the last change of each, after all that have a node run."""

    def do_all_run() -> bool:
        pods = [pod for pod in plane.list("pods", NAMESPACE) if pod["spec"].get("nodeName")]
        return all(pod["status"].get("phase") == "Running" for pod in pods)

    eventually(do_all_run, what="not all pods run")
    pods = [pod for pod in plane.list("pods", NAMESPACE) if pod["status"].get("phase") == "Running"]
    return {pod["metadata"]["uid"]: pod["metadata"]["resourceVersion"] for pod in pods}


@pytest.mark.timeout(300)
def test_schedulers_take_over_from_each_other_without_touching_pods(plane: ControlPlane, tmp_path: Path) -> None:
    with reference(plane, tmp_path) as yunikorn:
        pods = [yunikorn.create(f"plain-{number}") for number in range(6)]
        pods += [yunikorn.create(f"gang-{number}", app="gang", annotations=ANNOTATIONS) for number in range(3)]
        plane.wait_until_bound(pods)
        waiting = yunikorn.create("large", app="large", requests={"cpu": "8"})
        eventually(lambda: len(plane.list("pods", NAMESPACE)) == len(pods) + 1, what="placeholders are left")
        yunikorn.expect_all_pods()
        running = find_running(plane)
    with ours(plane, tmp_path) as yunishard:
        yunishard.expect_all_pods()
        plane.wait_until_bound([yunishard.create("plain-6"), yunishard.create("gang-3", app="gang")])
        eventually(lambda: plane.find_condition(waiting).get("reason") == "Unschedulable")
        assert running.items() <= find_running(plane).items()
        plane.delete("pods", "plain-0", NAMESPACE)
        yunishard.expect_all_pods()
        running = find_running(plane)
    with reference(plane, tmp_path) as yunikorn:
        yunikorn.expect_all_pods()
        plane.wait_until_bound([yunikorn.create("plain-7")])
        assert running.items() <= find_running(plane).items()
        assert not plane.place_of(waiting)
