"""The Helm chart on a real API server: it is installed, upgraded and removed, and its rights are enough for the
processes of its pods. No kubelet starts those, so the tests run them in the place of a container: with the token,
certificates and namespace of the service account, and the address of the API server, as a kubelet provides them.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.system import FREE_PORTS, up
from tests.kubernetes.controlplane import SERVER, ControlPlane, Json, build_node, build_pod, eventually
from tests.packaging import test_helm as chart
from tests.processes.system import MAIN

NAMESPACE: Final = chart.NAMESPACE
SITE: Final = "chart"
GANG: Final = [{"name": "g", "minMember": 2, "minResource": {"cpu": "100m", "memory": "64Mi"}}]
INSTANCE: Final = "app.kubernetes.io/instance"

QUEUES: Final = """\
partitions:
  - name: default
    placementrules: [{name: tag, value: namespace, create: true}]
    queues: [{name: root, submitacl: "*", queues: [{name: added-by-upgrade}]}]
"""

METRICS: Final = "127.0.0.1:9091"

WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"

ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
AS_CONTAINER: Final = f'mount -t tmpfs none /var/run && mkdir -p {ACCOUNT} && mount --bind "$0" {ACCOUNT} && exec "$@"'
"""Runs a command with a folder where the files of a service account are."""

pytestmark = chart.pytestmark


def path_of(found: Json) -> str:
    """The path of the collection of an object."""
    prefix = "/api/v1" if found["apiVersion"] == "v1" else f"/apis/{found['apiVersion']}"
    plural = f"{found['kind'].lower()}s".replace("ys", "ies").replace("sss", "sses")
    is_global = found["kind"].startswith(("Cluster", "PriorityClass"))
    is_global |= found["apiVersion"].startswith("admissionregistration")
    return f"{prefix}/{plural}" if is_global else f"{prefix}/namespaces/{NAMESPACE}/{plural}"


@pytest.fixture(scope="module", autouse=True)
def namespaces(plane: ControlPlane) -> None:
    plane.create_namespace(NAMESPACE)
    plane.create_namespace(SITE)


@pytest.mark.parametrize("values", chart.VARIANTS, ids=lambda values: " ".join(values) or "defaults")
def test_the_api_server_accepts_every_field(plane: ControlPlane, values: tuple[str, ...]) -> None:
    for found in chart.render(*values).values():
        if found["kind"] != "PodMonitor":  # only the Prometheus Operator has this kind
            plane.request("POST", f"{path_of(dict(found))}?fieldValidation=Strict&dryRun=All", found)


def helm(plane: ControlPlane, *words: str) -> str:
    """Run Helm as an administrator of the cluster, and return its output."""
    assert chart.HELM is not None
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "HOME": str(plane.folder)}
    command = [chart.HELM, "--namespace", NAMESPACE, *words]
    done = subprocess.run(
        command, env=environment, cwd=chart.ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def node(plane: ControlPlane) -> Iterator[str]:
    yield plane.create("nodes", build_node("chart-1"))["metadata"]["name"]
    plane.delete_all("pods", SITE)
    plane.delete("nodes", "chart-1")


@pytest.fixture
def installed(plane: ControlPlane, node: str) -> Iterator[None]:
    """A release whose pods have a node. The test is the default scheduler, and KWOK the kubelet."""
    helm(plane, *find_install_command(), "--set", f"config.service\\.clusterId={SITE}")
    kinds = {f"{one['kind']}/{one['metadata']['name']}": dict(one) for one in chart.render().values()}
    eventually(lambda: len(plane.list("pods", NAMESPACE)) == 3, what="not every workload has created its pods")
    for pod in plane.list("pods", NAMESPACE):
        bind(plane, pod, node)
    workloads = [one for one in kinds.values() if one["kind"] == "Deployment"]
    eventually(lambda: all(is_ready(plane, one) for one in workloads), what="a workload of the chart is not ready")
    yield
    helm(plane, "uninstall", "yunishard", "--wait")
    for found in kinds.values():
        left = plane.request("GET", f"{path_of(found)}")["items"]
        assert not [one for one in left if one["metadata"].get("labels", {}).get(INSTANCE) == "yunishard"]
    for lease in plane.list("leases", NAMESPACE):  # the only thing that the processes create
        plane.delete("leases", lease["metadata"]["name"], NAMESPACE)
    eventually(lambda: not plane.list("pods", NAMESPACE), what="pods of the release are left")


def find_install_command() -> list[str]:
    """The words of the command in the README, after `helm`."""
    found = re.search(r"^    helm (install (?:.*\\\n)*.*)$", (chart.ROOT / "README.md").read_text(), re.MULTILINE)
    assert found is not None
    return shlex.split(found[1].replace("\\\n", " "))


def bind(plane: ControlPlane, pod: Json, node: str) -> None:
    name = pod["metadata"]["name"]
    body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
    plane.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/binding", body)


def is_ready(plane: ControlPlane, workload: Json) -> bool:
    found = plane.request("GET", f"{path_of(workload)}/{workload['metadata']['name']}")
    return bool(found["status"].get("readyReplicas", 0) == found["spec"]["replicas"])


class Container:
    """A container of the release that a test runs: its service account, and its log."""

    def __init__(self, plane: ControlPlane, account: str, folder: Path, pod: Json | None = None) -> None:
        """Without a pod, that of the service account."""
        self._plane, self._account, self._pod = plane, account, pod
        self._log, self._folder = folder / f"{account}.log", folder / account
        self._folder.mkdir()
        (self._folder / "ca.crt").write_bytes((plane.folder / "ca.crt").read_bytes())
        (self._folder / "namespace").write_text(NAMESPACE)
        self.write_token()

    @property
    def log(self) -> str:
        return self._log.read_text()

    def list_pods(self) -> list[Json]:
        """Return the pods with this service account that stay."""
        pods = self._plane.list("pods", NAMESPACE)
        return [
            one
            for one in pods
            if one["spec"]["serviceAccountName"] == self._account and "deletionTimestamp" not in one["metadata"]
        ]

    def write_token(self) -> str:
        """Replace the token by a new one, which counts as long as the pod is there, as a kubelet does."""
        pod = self._pod or self.list_pods()[0]
        bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}}
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{self._account}/token"
        token = str(self._plane.request("POST", path, body)["status"]["token"])
        (self._folder / "new").write_text(token)
        (self._folder / "new").rename(self._folder / "token")
        return token

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        """Start a command, whose output is a pipe."""
        environment = {one: value for one, value in os.environ.items() if one not in ("KUBECONFIG", "NAMESPACE")}
        environment |= {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": SERVER.rpartition(":")[2]}
        command = ["unshare", "--mount", "sh", "-c", AS_CONTAINER, str(self._folder), sys.executable, "-P", "-c", MAIN]
        with self._log.open("w") as errors:
            return subprocess.Popen([*command, *words], env=environment, stdout=subprocess.PIPE, stderr=errors)

    @contextmanager
    def running(self, *words: str) -> Iterator[None]:
        """Run a command, from its first line of output to the end of the block."""
        with self.start(*words) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline(), self.log
                yield
                process.terminate()
                assert process.wait(20) == 0, self.log
            finally:
                process.kill()


def read_metrics() -> dict[str, dict[str, float]]:
    """The samples of the process that runs, by name and the values of the labels."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(httpx.get(f"http://{METRICS}/metrics").text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[",".join(sample.labels.values())] = sample.value
    return found


def create_local_volume(plane: ControlPlane, node: str) -> Json:
    """A class, a volume on this node, and a claim that waits for its pod. Returns what such a pod has."""
    storage = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    plane.create("storageclasses", {"metadata": {"name": SITE}, **storage})
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": SITE}
    local = {"local": {"path": "/data"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}
    volume = {"metadata": {"name": SITE}, "spec": {**common, **local, "capacity": {"storage": "1Gi"}}}
    plane.create("persistentvolumes", volume)
    claim = {"metadata": {"name": "data", "namespace": SITE}, "spec": common}
    claim["spec"] = {**common, "resources": {"requests": {"storage": "1Gi"}}}
    plane.create("persistentvolumeclaims", claim)
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


@pytest.mark.usefixtures("installed")
def test_the_rights_of_the_shim_are_enough_for_pods_gangs_and_volumes(
    plane: ControlPlane, node: str, tmp_path: Path
) -> None:
    shim = Container(plane, "yunishard-shim", tmp_path)
    with (
        up("--ephemeral", *FREE_PORTS, folder=tmp_path) as core,
        shim.running("k8s-shim", "--connect", core.announced()["native"], "--metrics", METRICS),
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
        pods.append(plane.create("pods", build_pod("data", SITE, app="data", **create_local_volume(plane, node))))
        assert set(plane.wait_until_bound(pods)) == {node}
        large = plane.create("pods", build_pod("large", SITE, app="large", requests={"cpu": "900"}))
        eventually(lambda: plane.find_condition(large).get("reason") == "Unschedulable")
        eventually(lambda: len(plane.list("events", SITE)) >= 5, what="events")
        assert plane.list("leases", NAMESPACE)[0]["spec"]["holderIdentity"]
        metrics = read_metrics()
    assert metrics["yunishard_k8s_binds_total"] == {"bound": 6}  # two of them are placeholders
    assert not [status for status in metrics["yunishard_k8s_requests_total"] if "403" in status]
    assert "forbidden" not in shim.log.lower()
    assert not plane.list("leases", NAMESPACE)[0]["spec"]["holderIdentity"]


@pytest.mark.usefixtures("installed")
def test_a_token_that_is_refused_is_read_again(plane: ControlPlane, node: str, tmp_path: Path) -> None:
    shim = Container(plane, "yunishard-shim", tmp_path)
    first = (tmp_path / "yunishard-shim" / "token").read_text()

    def is_refused() -> bool:
        answer = httpx.get(f"{SERVER}/api", headers={"Authorization": f"Bearer {first}"}, verify=False)
        return answer.status_code == 401

    with (
        up("--ephemeral", *FREE_PORTS, folder=tmp_path) as core,
        shim.running("k8s-shim", "--connect", core.announced()["native"]),
    ):
        name = shim.list_pods()[0]["metadata"]["name"]
        plane.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}", {"gracePeriodSeconds": 0})
        eventually(shim.list_pods, what="no other pod")
        assert shim.write_token() != first
        eventually(is_refused, what="the API server accepts the token of a pod that is gone")
        plane.wait_until_bound([plane.create("pods", build_pod("later", SITE, app="later"))])


@pytest.mark.usefixtures("installed")
def test_an_upgrade_keeps_what_the_admission_controller_wrote_and_changes_the_queues_of_a_running_core(
    plane: ControlPlane, tmp_path: Path
) -> None:
    def find_webhooks() -> list[Json]:
        (found,) = plane.request("GET", WEBHOOKS)["items"]
        return list(found.get("webhooks", ()))

    def is_changed() -> bool:
        created = plane.create("pods", build_pod("probe", SITE, schedulerName="default-scheduler"))
        plane.delete("pods", "probe", SITE)
        return bool(created["spec"]["schedulerName"] == "yunikorn")

    secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/admission-controller-secrets"
    assert not find_webhooks()
    shim = Container(plane, "yunishard-shim", tmp_path)
    admission = Container(plane, "yunishard-admission", tmp_path)
    with (
        up("--ephemeral", *FREE_PORTS, folder=tmp_path) as core,
        shim.running("k8s-shim", "--connect", (endpoints := core.announced())["native"]),
        admission.running(
            *("k8s-admission", "--listen", "127.0.0.1:9089", "--url", "https://127.0.0.1:9089", "--metrics", METRICS)
        ),
    ):
        eventually(is_changed, what="the API server does not call the webhook")
        written, webhooks = plane.request("GET", secret)["data"], find_webhooks()
        assert written
        assert webhooks[0]["clientConfig"]["caBundle"]
        [before] = shim.list_pods()
        queues = tmp_path / "queues.yaml"
        queues.write_text(QUEUES)
        words = ("--reuse-values", "--set-file", f"config.queues\\.yaml={queues}", "--set", "admission.replicas=1")
        helm(plane, "upgrade", "yunishard", str(chart.CHART), *words)

        def has_queue() -> bool:
            found = httpx.get(f"{endpoints['rest']}/ws/v1/partition/default/queues").json()
            return "root.added-by-upgrade" in [one["queuename"] for one in found["children"]]

        eventually(has_queue, what="the core does not have the queue of the upgrade")
        eventually(lambda: len(plane.list("pods", NAMESPACE)) == 2, what="admission.replicas has no effect")
        assert shim.list_pods() == [before]
        assert (plane.request("GET", secret)["data"], find_webhooks()) == (written, webhooks)
        helm(
            plane, "upgrade", "yunishard", str(chart.CHART), "--reuse-values", "--set", "core.persistence.enabled=true"
        )
        metrics = read_metrics()
        assert metrics["yunishard_k8s_admission_reviews_total"]["changed,mutate"] > 0
        assert not [status for status in metrics["yunishard_k8s_requests_total"] if "403" in status]
    assert "forbidden" not in f"{shim.log}{admission.log}".lower()
    helm(plane, "uninstall", "yunishard", "--wait")
    assert [one["metadata"]["name"] for one in plane.list("persistentvolumeclaims", NAMESPACE)] == ["yunishard-state"]
    helm(plane, *find_install_command(), "--set", "core.persistence.enabled=true")  # takes the volume over
    helm(plane, "uninstall", "yunishard", "--wait")
    plane.delete_all("persistentvolumeclaims", NAMESPACE)
    helm(plane, *find_install_command())


def write_earlier_chart(folder: Path) -> Path:
    """The chart as it was with a StatefulSet, without the values that came later."""
    copy = shutil.copytree(chart.CHART, folder / "yunishard")
    scheduler, values = copy / "templates" / "scheduler.yaml", copy / "values.yaml"
    text = scheduler.read_text().replace("kind: Deployment", "kind: StatefulSet")
    text, count = re.subn(r"  strategy:\n.*\n    type: .*\n", "  serviceName: yunikorn-service\n", text)
    assert count == 1
    scheduler.write_text(text)
    later = r"^ *(nodeFailureTolerationSeconds|accessMode|storeSecret): .*\n"
    text, count = re.subn(later, "", values.read_text(), flags=re.MULTILINE)
    assert count == 3
    values.write_text(text)
    return copy


def test_an_upgrade_from_the_stateful_set_keeps_the_volume_and_replaces_the_pod(
    plane: ControlPlane, node: str, tmp_path: Path
) -> None:
    earlier = write_earlier_chart(tmp_path)
    helm(plane, "install", "yunishard", str(earlier), "--set", "core.persistence.enabled=true,admission.enabled=false")
    eventually(lambda: plane.list("pods", NAMESPACE), what="the StatefulSet has no pod")
    [pod] = plane.list("pods", NAMESPACE)
    assert pod["metadata"]["name"] == "yunishard-scheduler-0"
    bind(plane, pod, node)
    [claim] = plane.list("persistentvolumeclaims", NAMESPACE)
    helm(plane, "upgrade", "yunishard", str(chart.CHART), "--reuse-values")

    def is_replaced() -> bool:
        names = [one["metadata"]["name"] for one in plane.list("pods", NAMESPACE)]
        return len(names) == 1 and names != [pod["metadata"]["name"]]

    eventually(is_replaced, what="the pod of the StatefulSet has no successor")
    [successor] = plane.list("pods", NAMESPACE)
    volumes = {one["name"]: one for one in successor["spec"]["volumes"]}
    assert volumes["state"]["persistentVolumeClaim"] == {"claimName": claim["metadata"]["name"]}
    [left] = plane.list("persistentvolumeclaims", NAMESPACE)
    assert left["metadata"]["uid"] == claim["metadata"]["uid"]
    assert "deletionTimestamp" not in left["metadata"]
    helm(plane, "uninstall", "yunishard", "--wait")
    plane.delete_all("persistentvolumeclaims", NAMESPACE)
    eventually(lambda: not plane.list("pods", NAMESPACE), what="pods of the release are left")
