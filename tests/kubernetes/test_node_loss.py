"""The node of the scheduler is lost: its kubelet is silent, Kubernetes replaces the pod, and scheduling continues on
another node with everything that was decided before.

The test is the default scheduler, and the kubelet of the scheduler's pods: it starts the processes of their containers,
with the arguments, settings and volume of the pod. KWOK keeps all nodes alive. When one is lost, the test ends KWOK and
keeps the others alive in its place.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests import postgres
from tests.deploy.system import free_ports
from tests.kubernetes.controlplane import ControlPlane, Json, build_node, build_pod, eventually
from tests.kubernetes.test_chart import Container, bind, helm
from tests.packaging import test_helm as chart
from tests.processes.system import MAIN

NAMESPACE: Final = chart.NAMESPACE
SITE: Final = "node-loss"
FITTING: Final = 8
"""Pods that fit on the nodes for them before another one is added."""

HEARTBEAT_S: Final = 2.0
"""Seconds between two renewals of a node's lease."""

GRACE_MAX_S: Final = 180.0
"""Seconds until the node controller has noticed a silent node (50 s), and its pods are replaced."""

pytestmark = [chart.pytestmark, pytest.mark.timeout(600)]


@pytest.fixture
def place(plane: ControlPlane) -> Iterator[None]:
    """Two nodes for the scheduler, and two for pods: one has room for FITTING of them, the other one is cordoned."""
    for name in (NAMESPACE, SITE):
        if plane.get("namespaces", name) is None:
            plane.create_namespace(name)
    amounts = {"cpu": str(FITTING), "memory": "32Gi", "pods": "110"}
    nodes = [
        build_node("host-a"),
        build_node("host-b"),
        build_node("work-1", amounts, labels={"site": SITE}),
        build_node("work-2", labels={"site": SITE}, unschedulable=True),
    ]
    plane.create_all("nodes", nodes)
    names = [one["metadata"]["name"] for one in nodes]
    eventually(lambda: all(is_ready(plane, name) for name in names), what="not every node is ready")
    yield
    for namespace in (SITE, NAMESPACE):
        plane.delete_all("pods", namespace)
    for name in names:
        plane.delete("nodes", name)
    eventually(lambda: not plane.list("pods", NAMESPACE) + plane.list("pods", SITE), what="pods are left")


def is_ready(plane: ControlPlane, node: str) -> bool:
    conditions = (plane.get("nodes", node) or {}).get("status", {}).get("conditions", ())
    return ("Ready", "True") in [(one["type"], one["status"]) for one in conditions]


class PlayedPod:
    """The containers of a pod of the scheduler, with a folder as the volume of its state."""

    def __init__(self, plane: ControlPlane, pod: Json, state: Path, folder: Path) -> None:
        folder.mkdir()
        self._plane, self._pod, self._folder = plane, pod, folder
        self._shim = Container(plane, "yunishard-shim", folder, pod)
        native, rest = free_ports(2)
        self._native, self.rest = f"tcp://127.0.0.1:{native}", f"http://127.0.0.1:{rest}"
        settings = plane.get("configmaps", "yunishard-core", NAMESPACE) or {}
        (folder / "settings.yaml").write_text(settings["data"]["settings.yaml"])
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("YUNISHARD_")},
            "YUNISHARD_SETTINGS": str(folder / "settings.yaml"),
            "YUNISHARD_STATE": str(state),
            "YUNISHARD_NATIVE": self._native,
            "YUNISHARD_REST": f"127.0.0.1:{rest}",
            "HOME": str(folder),
        }
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for container in pod["spec"].get("initContainers", ()):
            self._start_core_container(container)
            assert self._processes.pop(container["name"]).wait(60) == 0, self.core_log
        for container in pod["spec"]["containers"]:
            self.start(container["name"])

    @property
    def shim_log(self) -> str:
        return self._shim.log

    @property
    def core_log(self) -> str:
        return (self._folder / "core.log").read_text()

    def start(self, name: str) -> None:
        """Start a container, also again."""
        container = next(one for one in self._pod["spec"]["containers"] if one["name"] == name)
        if name == "core":
            self._start_core_container(container)
            return
        meta = self._pod["metadata"]
        variables = {"$(POD_NAME)": meta["name"], "$(POD_UID)": meta["uid"]}
        words = list(container["args"])
        for variable, value in variables.items():
            words = [word.replace(variable, value) for word in words]
        self._processes[name] = self._shim.start(*words, "--connect", self._native, "--metrics", "127.0.0.1:0")

    def _start_core_container(self, container: Json) -> None:
        with (self._folder / "core.log").open("ab") as log:
            self._processes[container["name"]] = subprocess.Popen(
                [sys.executable, "-P", "-c", MAIN, *container["args"]],
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        if name == "core":
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def kill_all(self) -> None:
        for name in list(self._processes):
            self.kill(name)

    def is_scheduling(self) -> bool:
        assert all(one.poll() is None for one in self._processes.values()), self.shim_log + self.core_log
        return "has the lease" in self.shim_log and self.ask("partitions") != []

    def ask(self, path: str) -> Any:
        """An answer of the core, [] while it gives none."""
        try:
            answer = httpx.get(f"{self.rest}/ws/v1/{path}", timeout=30)
        except httpx.TransportError:
            return []
        return answer.json() if answer.status_code == 200 else []

    def allocations(self) -> dict[str, str]:
        return {
            one["allocationKey"]: node["nodeID"]
            for node in self.ask("partition/default/nodes")
            for one in node.get("allocations", ())
        }


class Release:
    """The installed chart, and the pods of the scheduler that the test plays."""

    def __init__(self, plane: ControlPlane, folder: Path, stack: ExitStack) -> None:
        self._plane, self._folder, self._stack = plane, folder, stack
        self._numbers = 0

    def wait_for_pod(self, *, after: Json | None = None) -> Json:
        """Wait until there is a pod that waits for its node."""
        found: list[Json] = []

        def is_there() -> bool:
            found[:] = [
                one
                for one in self._plane.list("pods", NAMESPACE)
                if "nodeName" not in one["spec"]
                and (after is None or one["metadata"]["uid"] != after["metadata"]["uid"])
            ]
            return bool(found)

        eventually(is_there, within_s=GRACE_MAX_S, what="no pod replaces the one on the lost node")
        return found[0]

    def force_delete(self, pod: Json) -> None:
        """Remove a pod, whether or not a kubelet has ended it, if it is still there."""
        name = pod["metadata"]["name"]
        if self._plane.get("pods", name, NAMESPACE) is not None:
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"
            self._plane.request("DELETE", path, {"gracePeriodSeconds": 0})

    def play(self, pod: Json, node: str, state: Path) -> PlayedPod:
        """Bind a pod to a node, and start its containers."""
        bind(self._plane, pod, node)
        self._numbers += 1
        played = PlayedPod(self._plane, pod, state, self._folder / f"pod-{self._numbers}")
        self._stack.callback(played.kill_all)
        return played


@contextmanager
def install(plane: ControlPlane, folder: Path, *values: str) -> Iterator[Release]:
    settings = ("admission.enabled=false", "nodeFailureTolerationSeconds=1", f"config.service\\.clusterId={SITE}")
    words = [word for value in (*settings, *values) for word in ("--set", value)]
    helm(plane, "install", "yunishard", str(chart.CHART), *words)
    with ExitStack() as stack:
        stack.callback(uninstall, plane)
        yield Release(plane, folder, stack)


def uninstall(plane: ControlPlane) -> None:
    helm(plane, "uninstall", "yunishard")
    plane.delete_all("persistentvolumeclaims", NAMESPACE)
    for lease in plane.list("leases", NAMESPACE):
        plane.delete("leases", lease["metadata"]["name"], NAMESPACE)


@contextmanager
def silent_kubelet(plane: ControlPlane, lost: str) -> Iterator[None]:
    """Within the block, one node has no kubelet. The test renews the leases of the others, so that KWOK, which starts
    again afterwards, takes them at once.
    """
    others = [name for one in plane.list("nodes") if (name := one["metadata"]["name"]) != lost]
    is_over = threading.Event()

    def renew() -> None:
        while not is_over.wait(HEARTBEAT_S):
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            for name in others:
                spec = {"renewTime": now, "leaseDurationSeconds": 1}
                with suppress(AssertionError, httpx.TransportError):  # a busy API server; the next heartbeat counts
                    plane.patch("leases", name, {"spec": spec}, "kube-node-lease")

    plane.kill("kwok")
    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        plane.start_process("kwok")


def create_pods(plane: ControlPlane, prefix: str, count: int) -> list[Json]:
    place = {"nodeSelector": {"site": SITE}, "requests": {"cpu": "1", "memory": "64Mi"}}
    return plane.create_all("pods", [build_pod(f"{prefix}-{one}", SITE, app=SITE, **place) for one in range(count)])


def find_bound(plane: ControlPlane) -> dict[str, str]:
    pods = plane.list("pods", SITE)
    return {one["metadata"]["uid"]: one["spec"]["nodeName"] for one in pods if "nodeName" in one["spec"]}


def check_continuation(plane: ControlPlane, played: PlayedPod, before: dict[str, str]) -> None:
    """The pods that wait get nodes, none moves, and the core has what the API server has, and what it had before."""
    eventually(played.is_scheduling, within_s=60, what="the pod on the other node does not schedule")
    plane.patch("nodes", "work-2", {"spec": {"unschedulable": False}})
    plane.wait_until_bound(plane.list("pods", SITE), within_s=60)
    after = find_bound(plane)
    assert before.items() <= after.items()
    eventually(lambda: played.allocations() == after, what="core and API server differ")
    cordoned = [one["nodeID"] for one in played.ask("partition/default/nodes") if one.get("cordoned")]
    assert cordoned == ["host-b"]  # by the operator, before the node was lost


def cordon(played: PlayedPod, node: str) -> None:
    answer = httpx.post(f"{played.rest}/ws/v1/partition/default/node/{node}/cordon")
    assert answer.status_code == 200, answer.text


@pytest.mark.usefixtures("place")
def test_a_volume_follows_when_the_node_is_lost_with_everything_on_it(plane: ControlPlane, tmp_path: Path) -> None:
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": "network", "capacity": {"storage": "4Gi"}}
    claim = {"name": "yunishard-state", "namespace": NAMESPACE}
    volume = {**common, "claimRef": claim, "nfs": {"server": "nfs.example", "path": "/"}}
    plane.create("persistentvolumes", {"metadata": {"name": "network"}, "spec": volume})
    state = tmp_path / "volume"
    values = ("core.persistence.enabled=true", "core.persistence.storageClass=network")
    with install(plane, tmp_path, *values) as release:
        first = release.wait_for_pod()
        played = release.play(first, "host-a", state)
        pods = create_pods(plane, "pod", FITTING + 4)
        eventually(lambda: len(find_bound(plane)) == FITTING, within_s=60, what=played.shim_log)
        cordon(played, "host-b")
        before = find_bound(plane)
        with silent_kubelet(plane, "host-a"):
            played.kill_all()
            second = release.wait_for_pod(after=first)
            left = plane.get("pods", first["metadata"]["name"], NAMESPACE)
            assert left is not None
            assert "deletionTimestamp" in left["metadata"]  # until someone confirms that the node is off
            check_continuation(plane, release.play(second, "host-b", state), before)
            assert len(find_bound(plane)) == len(pods)
            bound = plane.get("persistentvolumeclaims", "yunishard-state", NAMESPACE) or {}
            assert (bound["status"]["phase"], bound["spec"]["volumeName"]) == ("Bound", "network")
    plane.delete("persistentvolumes", "network")


@pytest.mark.usefixtures("place")
def test_a_pod_that_runs_on_behind_a_silent_kubelet_works_alone_until_it_ends(
    plane: ControlPlane, tmp_path: Path
) -> None:
    server = postgres.Server()
    with install(plane, tmp_path, f"core.settings.store={server.dsn}") as release:
        first = release.wait_for_pod()
        played = release.play(first, "host-a", tmp_path / "state-1")
        create_pods(plane, "pod", FITTING - 1)
        eventually(lambda: len(find_bound(plane)) == FITTING - 1, within_s=60, what=played.shim_log)
        cordon(played, "host-b")
        with silent_kubelet(plane, "host-a"):
            second = release.wait_for_pod(after=first)
            other = release.play(second, "host-b", tmp_path / "state-2")
            eventually(lambda: "waiting for the lease" in other.shim_log, within_s=60)
            create_pods(plane, "late", 5)
            eventually(lambda: len(find_bound(plane)) == FITTING, within_s=60, what=played.shim_log)
            assert "has the lease" not in other.shim_log
            assert "this broker leads" not in other.core_log
            before = find_bound(plane)
            played.kill_all()
            check_continuation(plane, other, before)
    server.remove()


@pytest.mark.usefixtures("place")
def test_a_container_of_the_shim_that_is_killed_follows_itself(plane: ControlPlane, tmp_path: Path) -> None:
    with install(plane, tmp_path) as release:
        pod = release.wait_for_pod()
        played = release.play(pod, "host-a", tmp_path / "state")
        eventually(played.is_scheduling, within_s=60)
        played.kill("shim")
        created = create_pods(plane, "pod", 2)
        played.start("shim")
        plane.wait_until_bound(created)
        assert "waiting for the lease" not in played.shim_log
        [lease] = plane.list("leases", NAMESPACE)
        assert lease["spec"]["holderIdentity"] == f"{pod['metadata']['name']}_{pod['metadata']['uid']}"
        assert lease["spec"].get("leaseTransitions", 0) == 0


@pytest.mark.usefixtures("place")
def test_a_release_whose_volume_cannot_follow_continues_without_it(plane: ControlPlane, tmp_path: Path) -> None:
    """The way out that docs/kubernetes.md describes."""
    with install(plane, tmp_path, "core.persistence.enabled=true") as release:
        first = release.wait_for_pod()
        played = release.play(first, "host-a", tmp_path / "state-1")
        create_pods(plane, "pod", FITTING)
        eventually(lambda: len(find_bound(plane)) == FITTING, within_s=60, what=played.shim_log)
        before = find_bound(plane)
        with silent_kubelet(plane, "host-a"):
            played.kill_all()
            second = release.wait_for_pod(after=first)  # a scheduler finds no node for it that has the volume
            words = ("--reuse-values", "--set", "core.persistence.enabled=false")
            helm(plane, "upgrade", "yunishard", str(chart.CHART), *words)
            for one in (first, second):  # as `kubectl delete pod --selector ... --force`
                release.force_delete(one)
            third = release.wait_for_pod(after=second)
            assert "emptyDir" in next(one for one in third["spec"]["volumes"] if one["name"] == "state")
            other = release.play(third, "host-b", tmp_path / "state-2")
            eventually(other.is_scheduling, within_s=60, what="the pod without the volume does not schedule")
            plane.patch("nodes", "work-2", {"spec": {"unschedulable": False}})
            plane.wait_until_bound(create_pods(plane, "later", 3), within_s=60)
            after = find_bound(plane)
            assert before.items() <= after.items()
            eventually(lambda: other.allocations() == after, what="core and API server differ")
