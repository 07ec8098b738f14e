"""The admission controller with a real API server, which calls it, and a real core, which validates configurations."""

import json
from collections.abc import Iterator

import pytest

from tests.deploy.system import FREE_PORTS, up
from tests.kubernetes.controlplane import ControlPlane, Json, build_pod, eventually
from tests.kubernetes.system import run_admission

NAMESPACE = "admission"
DOMAIN = "yunikorn.apache.org/"
SETTINGS = {
    "admissionController.filtering.processNamespaces": f"^{NAMESPACE}$",
    "admissionController.accessControl.systemUsers": "^admin$",
}
"""Other tests use the same API server. The controllers of this control plane have the rights of `admin`."""

GOOD = "partitions: [{name: default, queues: [{name: root, queues: [{name: a}]}]}]"
BAD = "partitions: [{name: default, queues: [{name: root, queues: [{name: a}, {name: a}]}]}]"


@pytest.fixture(scope="module", autouse=True)
def controller(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A controller whose webhooks the API server calls."""
    plane.create_namespace(NAMESPACE)
    plane.create("configmaps", {"metadata": {"name": "yunikorn-defaults", "namespace": NAMESPACE}, "data": SETTINGS})
    folder = tmp_path_factory.mktemp("controller")
    with (
        up("--ephemeral", *FREE_PORTS, folder=folder) as core,
        run_admission(plane, folder, NAMESPACE, "--core", core.announced()["rest"]),
    ):
        eventually(lambda: create(plane, "probe")["spec"]["schedulerName"] == "yunikorn", what="never called")
        yield


def create(plane: ControlPlane, name: str, **changes: object) -> Json:
    """Create a pod of the default scheduler as `alice`."""
    if plane.get("pods", name, NAMESPACE) is not None:
        plane.delete("pods", name, NAMESPACE)
    return plane.create("pods", build_pod(name, NAMESPACE, schedulerName="default-scheduler", **changes), user="alice")


def change_queues(plane: ControlPlane, text: str) -> None:
    name = "yunikorn-configs"
    body = {"metadata": {"name": name, "namespace": NAMESPACE}, "data": {"queues.yaml": text}}
    if plane.get("configmaps", name, NAMESPACE) is None:
        plane.create("configmaps", body)
    else:
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}"
        plane.request("PATCH", path, body, content_type="application/merge-patch+json")


def test_a_pod_gets_the_scheduler_an_application_and_its_user(plane: ControlPlane) -> None:
    created = create(plane, "plain")
    assert created["spec"]["schedulerName"] == "yunikorn"
    assert created["metadata"]["labels"] == {
        f"{DOMAIN}app-id": "yunikorn-admission-autogen",
        "applicationId": "yunikorn-admission-autogen",
    }
    annotations = created["metadata"]["annotations"]
    assert json.loads(annotations[f"{DOMAIN}user.info"])["user"] == "alice"
    assert annotations[f"{DOMAIN}allow-preemption"] == "true"


def test_other_namespaces_are_not_touched(plane: ControlPlane) -> None:
    plane.create_namespace("not-ours")
    created = plane.create("pods", build_pod("a", "not-ours", schedulerName="default-scheduler"))
    assert created["spec"]["schedulerName"] == "default-scheduler"


def test_the_pods_of_a_deployment_have_the_user_who_created_it(plane: ControlPlane) -> None:
    template = {"metadata": {"labels": {"run": "d"}}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"run": "d"}}, "template": template}
    plane.create("deployments", {"metadata": {"name": "d", "namespace": NAMESPACE}, "spec": spec}, user="alice")

    def find_pods() -> list[Json]:
        return [one for one in plane.list("pods", NAMESPACE) if one["metadata"]["labels"].get("run") == "d"]

    eventually(find_pods, what="the controllers create no pod")
    (pod,) = find_pods()
    assert pod["spec"]["schedulerName"] == "yunikorn"
    assert json.loads(pod["metadata"]["annotations"][f"{DOMAIN}user.info"])["user"] == "alice"


def test_no_one_may_create_pods_for_another_user_unless_the_settings_say_so(plane: ControlPlane) -> None:
    with pytest.raises(AssertionError, match=r"403.*the user 'alice' may not set the annotation"):
        create(plane, "stolen", annotations={f"{DOMAIN}user.info": '{"user": "bob"}'})


def test_bad_queues_are_not_stored(plane: ControlPlane) -> None:
    change_queues(plane, GOOD)
    with pytest.raises(AssertionError, match=r"403.*queues.yaml: duplicate child name found with name 'a'"):
        change_queues(plane, BAD)
    stored = plane.get("configmaps", "yunikorn-configs", NAMESPACE) or {}
    assert stored["data"]["queues.yaml"] == GOOD
