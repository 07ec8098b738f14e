"""A core and its shim as processes, and the place where one test works: a namespace with nodes of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from tests.deploy.system import FREE_PORTS, Up, up
from tests.kubernetes.controlplane import ControlPlane, Json, build_node, build_pod, eventually
from tests.processes.system import MAIN

SHORT: Final = ("--heartbeat", "200ms", "--silence", "2s", "--lease-timeout", "2s")
"""Times of the core after which a process that does not answer is replaced."""

PLACEHOLDER: Final = "internal.yunikorn.apache.org/placeholder"

QUEUES: Final = """\
partitions:
  - name: default
    placementrules:
      - name: provided
        create: true
      - name: tag
        value: namespace
        create: true
    queues:
      - name: root
        submitacl: "*"
"""
"""Pods name their queue, or are placed in one for their namespace."""


class Shim:
    """A process `yunishard k8s-shim`."""

    def __init__(self, plane: ControlPlane, native: str, folder: Path, *, name: str = "shim") -> None:
        self._log = folder / f"{name}.log"
        words = ("k8s-shim", "--connect", native, "--kubeconfig", str(plane.kubeconfig), "--log-level", "debug")
        with self._log.open("a") as log:
            command = [sys.executable, "-P", "-c", MAIN, *words]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "NAMESPACE": "default"})

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def resident_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def wait_until_ready(self, *, within_s: float = 60.0) -> None:
        eventually(self._is_ready, within_s=within_s, what=self.log[-2000:])

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, f"the shim has ended: {self.log[-4000:]}"
        return "\nscheduling the pods of " in f"\n{self.log}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


class System:
    """A core, its shim, and the control plane."""

    def __init__(self, plane: ControlPlane, core: Up, folder: Path) -> None:
        self.plane, self.core, self._folder = plane, core, folder
        endpoints = core.announced()
        self.native = endpoints["native"]
        self._rest = httpx.Client(base_url=endpoints["rest"], timeout=30.0)
        self._shims = 0
        self.shim = self.start_shim()

    def start_shim(self) -> Shim:
        """Start another shim, which waits while one has the lease."""
        self._shims += 1
        return Shim(self.plane, self.native, self._folder, name=f"shim-{self._shims}")

    def restart_shim(self) -> None:
        """Kill the shim, free its lease so that the next one does not wait for 15 s, and wait until it is ready."""
        self.shim.kill()
        self.plane.delete("leases", "yunishard-k8s-shim", "default")
        self.shim = self.start_shim()
        self.shim.wait_until_ready()

    def stop(self) -> None:
        if self.shim.process.poll() is None:
            assert self.shim.stop() == 0, self.shim.log[-4000:]
        self._rest.close()

    def ask(self, path: str) -> Any:
        """The answer of the core's REST port."""
        answer = self._rest.get(f"/ws/v1/{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def kill(self, application: str) -> None:
        """End an application as an operator."""
        answer = self._rest.post(f"/ws/v1/partition/default/application/{application}/kill")
        assert answer.status_code == 200, answer.text

    def allocations(self) -> dict[str, str]:
        """Keys of all allocations of the core with their nodes, foreign ones included."""
        found = {}
        for node in self.ask("partition/default/nodes"):
            for one in (*node.get("allocations", ()), *node.get("foreignAllocations", ())):
                found[one["allocationKey"]] = node["nodeID"]
        return found

    def find_application(self, name: str) -> Json | None:
        applications: list[Json] = self.ask("partition/default/applications/active")
        return next((one for one in applications if one["applicationID"] == name), None)

    def has_equal_state(self, namespace: str = "") -> bool:
        """Whether core and API server have the same pods on the same nodes."""
        bound = {}
        for pod in self.plane.list("pods", namespace):
            if pod["spec"].get("nodeName") and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                bound[pod["metadata"]["uid"]] = pod["spec"]["nodeName"]
        found = self.allocations()
        if namespace:
            found = {key: node for key, node in found.items() if key in bound}
        return found == bound


@contextmanager
def run_system(plane: ControlPlane, folder: Path, *options: str, queues: str = QUEUES) -> Iterator[System]:
    """Start a core and a shim, with these queues in the config map."""
    configure(plane, {"queues.yaml": queues})
    with up("--ephemeral", *SHORT, *options, *FREE_PORTS, folder=folder) as core:
        system = System(plane, core, folder)
        try:
            system.shim.wait_until_ready()
            yield system
        finally:
            system.stop()


def configure(plane: ControlPlane, data: dict[str, str]) -> None:
    """Set the whole config map `yunikorn-configs`."""
    body = {"metadata": {"name": "yunikorn-configs", "namespace": "default"}, "data": data}
    if plane.get("configmaps", "yunikorn-configs", "default") is None:
        plane.create("configmaps", body)
    else:
        plane.request("PUT", "/api/v1/namespaces/default/configmaps/yunikorn-configs", body)


REGISTRATIONS: Final = "/apis/admissionregistration.k8s.io/v1"
ADMISSION: Final = "127.0.0.1:9089"


class Admission:
    """A process `yunishard k8s-admission`, which outlives none of its registrations."""

    def __init__(self, plane: ControlPlane, folder: Path, namespace: str, *options: str) -> None:
        self._log = folder / "admission.log"
        words = ("k8s-admission", "--kubeconfig", str(plane.kubeconfig), "--namespace", namespace)
        self._command = [sys.executable, "-P", "-c", MAIN, *words, "--listen", ADMISSION]
        self._command += ["--url", f"https://{ADMISSION}", *options]
        self.start()

    def start(self) -> None:
        """Start it, and wait until it serves."""
        with self._log.open("a") as errors:
            self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "serving admission webhooks on port 9089\n", self._log.read_text()

    def stop(self) -> None:
        self.process.terminate()
        code = self.process.wait(20)
        self.end()
        assert code == 0, self._log.read_text()

    def end(self) -> None:
        """Kill the process if it still runs."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def run_admission(plane: ControlPlane, folder: Path, namespace: str, *options: str) -> Iterator[Admission]:
    """Start an admission controller, whose settings are in this namespace; in the end, remove what it has created."""
    admission = Admission(plane, folder, namespace, *options)
    try:
        yield admission
        if admission.process.poll() is None:
            admission.stop()
    finally:
        admission.end()
        for plural in (
            *("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
            *("validatingadmissionpolicybindings", "validatingadmissionpolicies"),
        ):
            plane.request("DELETE", f"{REGISTRATIONS}/{plural}")


class Site:
    """Where one test works. Its pods run on its nodes only, by a label of theirs."""

    def __init__(self, system: System, name: str) -> None:
        self.system, self.plane, self.name = system, system.plane, name
        self.nodes: list[str] = []

    def add_nodes(self, count: int, resources: Json | None = None, **changes: Any) -> list[str]:
        labels = {"site": self.name, **changes.pop("labels", {})}
        first = len(self.nodes) + 1
        names = [f"{self.name}-{number}" for number in range(first, first + count)]
        self.plane.create_all("nodes", [build_node(name, resources, labels=labels, **changes) for name in names])
        self.nodes += names
        eventually(lambda: {one["nodeID"] for one in self.system.ask("partition/default/nodes")} >= set(names))
        return names

    def build(self, name: str, **changes: Any) -> Json:
        changes["nodeSelector"] = {"site": self.name, **changes.get("nodeSelector", {})}
        return build_pod(name, self.name, **{"app": self.name, **changes})

    def create(self, name: str, **changes: Any) -> Json:
        return self.plane.create("pods", self.build(name, **changes))

    def create_many(self, count: int, prefix: str = "pod", **changes: Any) -> list[Json]:
        return self.plane.create_all("pods", [self.build(f"{prefix}-{number}", **changes) for number in range(count)])

    def pods(self) -> list[Json]:
        return self.plane.list("pods", self.name)

    def bound(self) -> dict[str, str]:
        """Names of the pods that have a node, with it."""
        return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in self.pods() if pod["spec"].get("nodeName")}

    def placeholders(self) -> list[Json]:
        return [pod for pod in self.pods() if PLACEHOLDER in pod["metadata"].get("annotations", {})]

    def is_unschedulable(self, pod: Json) -> bool:
        return self.plane.find_condition(pod).get("reason") == "Unschedulable"

    def expect_waiting(self, pod: Json, *, for_s: float = 0.5) -> None:
        """Fail if the pod gets a node within this time."""
        end = time.monotonic() + for_s
        while time.monotonic() < end:
            assert not self.plane.place_of(pod), pod["metadata"]["name"]
            time.sleep(0.05)

    def delete(self, pod: Json) -> None:
        self.plane.delete("pods", pod["metadata"]["name"], self.name)

    def actions_of_events(self, pod: Json) -> set[str]:
        uid = pod["metadata"]["uid"]
        return {one["action"] for one in self.plane.list("events", self.name) if one["regarding"].get("uid") == uid}

    def clean(self) -> None:
        """Remove pods and nodes, and wait until the core has none of them."""
        self.plane.delete_all("pods", self.name)
        eventually(lambda: not self.pods(), what=f"pods of {self.name} are left")
        for node in self.nodes:
            if self.plane.get("nodes", node) is not None:
                self.plane.delete("nodes", node)
        eventually(lambda: not {one["nodeID"] for one in self.system.ask("partition/default/nodes")} & set(self.nodes))
