"""How fast pods get their nodes, with this shim and with the reference's, in turn on the same control plane.

`python -m tests.kubernetes --bench`: creates nodes, then pods as fast as the API server takes them, and reads from a
watch when the last one has its node. Each round uses fresh nodes and a namespace of its own.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import httpx

from tests.kubernetes.build import find_binaries
from tests.kubernetes.controlplane import ControlPlane, Json, build_node, build_pod, eventually, run_control_plane
from tests.kubernetes.system import QUEUES, configure, run_system
from yunishard.kubernetes_shim.client import KubernetesClient
from yunishard.kubernetes_shim.kubeconfig import read_kubeconfig
from yunishard.kubernetes_shim.objects import NODES, PODS, ObjectEvent, Pod
from yunishard.kubernetes_shim.reflector import Reflector

CREATORS: Final = 8
"""Pods created at the same time."""

APPLICATIONS: Final = 10

ZONES: Final = 5

ZONE: Final = "topology.kubernetes.io/zone"
HOST_NAME: Final = "kubernetes.io/hostname"

CONSTRAINTS: Final = ("spread", "apart", "together")
"""Constraints of the pods of an application: spread over zones and nodes, no two on one node, all in one zone."""

ROUND_S_MAX: Final = 1800.0
CLEANING_S_MAX: Final = 600.0


class Figures(NamedTuple):
    name: str
    pods: int
    seconds: float
    cpu_s: float
    """Processor time of scheduler and shim."""
    peak_mib: float
    """Most memory of the shim; of the reference with its core in the same process."""

    def __str__(self) -> str:
        rate = f"{self.pods / self.seconds:7.1f} pods/s"
        costs = f"{self.cpu_s:7.1f} s CPU {self.peak_mib:6.0f} MiB"
        return f"{self.name:10} {self.pods:6} pods {self.seconds:7.1f} s {rate} {costs}"


def build_constraints(app: str, kind: str) -> Json:
    """Return constraints between the pods of an application, of a kind in CONSTRAINTS, as fields of a specification."""
    selector = {"matchLabels": {"applicationId": app}}
    if kind == "spread":
        rule = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
        return {"topologySpreadConstraints": [{**rule, "topologyKey": key} for key in (ZONE, HOST_NAME)]}
    if kind == "apart":
        terms = [{"topologyKey": HOST_NAME, "labelSelector": selector}]
        return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    if kind == "together":
        terms = [{"topologyKey": ZONE, "labelSelector": selector}]
        return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    return {}


async def measure(plane: ControlPlane, namespace: str, pods: int, constraints: str = "") -> float:
    """Create pods, and return the seconds until the last one has its node."""
    bound: set[str] = set()
    complete = asyncio.Event()

    def receive(event: ObjectEvent, pod: Pod) -> None:
        if event != "deleted" and pod.spec.node_name:
            bound.add(pod.metadata.uid)
            if len(bound) == pods:
                complete.set()

    async with KubernetesClient(read_kubeconfig([plane.kubeconfig]), per_s=1e6, burst=1_000_000) as client:
        reflector = Reflector(client, PODS, receive, namespace=namespace)
        watching = asyncio.create_task(reflector.run())
        await reflector.listed.wait()
        numbers = iter(range(pods))

        async def create() -> None:
            for number in numbers:
                app = f"{namespace}-{number % APPLICATIONS}"
                body = build_pod(f"pod-{number}", namespace, app=app, **build_constraints(app, constraints))
                await client.create(PODS, namespace, body)

        begun = time.monotonic()
        await asyncio.gather(*(create() for _ in range(CREATORS)))
        sys.stdout.write(f"  created after {time.monotonic() - begun:.1f} s, {len(bound)} have nodes\n")
        sys.stdout.flush()
        async with asyncio.timeout(ROUND_S_MAX):
            await complete.wait()
        took = time.monotonic() - begun
        watching.cancel()
        return took


async def create_nodes(plane: ControlPlane, prefix: str, count: int) -> None:
    async with KubernetesClient(read_kubeconfig([plane.kubeconfig])) as client:
        numbers = iter(range(count))

        async def create() -> None:
            for number in numbers:
                labels = {ZONE: f"zone-{number % ZONES}"}
                await client.create(NODES, "", build_node(f"{prefix}-{number}", labels=labels))

        await asyncio.gather(*(create() for _ in range(CREATORS)))


def clean(plane: ControlPlane, namespace: str) -> None:
    def delete_pods() -> bool:
        with suppress(httpx.RemoteProtocolError):  # the API server ends a request after a minute; thousands take longer
            plane.delete_all("pods", namespace)
        return not plane.list("pods", namespace)

    eventually(delete_pods, within_s=CLEANING_S_MAX)
    plane.delete_all("nodes")


def read_cpu_s(number: int) -> float:
    """Processor time of a process, and of its children that have ended."""
    fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def read_peak_mib(number: int) -> float:
    return int(Path(f"/proc/{number}/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


def run_ours(
    plane: ControlPlane, folder: Path, namespace: str, pods: int, nodes: int, constraints: str = ""
) -> Figures:
    asyncio.run(create_nodes(plane, namespace, nodes))
    with run_system(plane, folder) as system:
        processes = [system.shim.process.pid, *system.core.children]
        before = sum(map(read_cpu_s, processes))
        seconds = asyncio.run(measure(plane, namespace, pods, constraints))
        cpu_s = sum(map(read_cpu_s, processes)) - before
        peak_mib = read_peak_mib(system.shim.process.pid)
        eventually(lambda: system.has_equal_state(namespace))
    return Figures("yunishard", pods, seconds, cpu_s, peak_mib)


@contextmanager
def reference(plane: ControlPlane, folder: Path) -> Iterator[int]:
    """The reference's shim with its core, as a process."""
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "NAMESPACE": "default"}
    with (folder / "reference.log").open("a") as log:
        process = subprocess.Popen([str(find_binaries() / "k8shim")], stdout=log, stderr=log, env=environment)
    try:
        time.sleep(10)  # it has no line that says when it is ready
        assert process.poll() is None, (folder / "reference.log").read_text()[-2000:]
        yield process.pid
    finally:
        process.kill()
        process.wait()


def run_reference(
    plane: ControlPlane, folder: Path, namespace: str, pods: int, nodes: int, constraints: str = ""
) -> Figures:
    asyncio.run(create_nodes(plane, namespace, nodes))
    configure(plane, {"queues.yaml": QUEUES})
    with reference(plane, folder) as number:
        before = read_cpu_s(number)
        seconds = asyncio.run(measure(plane, namespace, pods, constraints))
        return Figures("reference", pods, seconds, read_cpu_s(number) - before, read_peak_mib(number))


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kubernetes --bench", description=__doc__)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=2, help="of each scheduler, in turn (default: 2)")
    parser.add_argument("--ours", action="store_true", help="without the reference")
    parser.add_argument("--constraints", choices=CONSTRAINTS, default="", help="of the pods of an application")
    args = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="kubernetes-") as name, run_control_plane(Path(name) / "plane") as plane:
        for number in range(args.rounds * (1 if args.ours else 2)):
            folder = Path(name) / f"round-{number}"
            folder.mkdir()
            run = run_ours if args.ours or number % 2 == 0 else run_reference
            namespace = f"bench-{number}"
            plane.create_namespace(namespace)
            sys.stdout.write(f"{run(plane, folder, namespace, args.pods, args.nodes, args.constraints)}\n")
            sys.stdout.flush()
            clean(plane, namespace)
    return 0
