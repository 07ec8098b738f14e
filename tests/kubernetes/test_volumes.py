"""Pods with volumes: bound before, bound to their node, provisioned for it. No provisioner runs here: tests play it."""

import time
from typing import Any, Final

import pytest

from tests.kubernetes.controlplane import Json, eventually
from tests.kubernetes.system import Site

CHANGE_S: Final = 2.0
"""Seconds within which a pod is bound, or its volume asked for, after an object appears that it waits for."""


def create_class(site: Site, name: str, *, provisioner: str = "kubernetes.io/no-provisioner", **changes: Any) -> str:
    name = f"{site.name}-{name}"
    body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    site.plane.create("storageclasses", {**body, **changes})
    return name


def create_volume(site: Site, name: str, storage_class: str, node: str, size: str = "10Gi") -> Json:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    spec = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    return site.plane.create("persistentvolumes", {"metadata": {"name": f"{site.name}-{name}"}, "spec": spec})


def create_claim(site: Site, name: str, storage_class: str, size: str = "5Gi") -> Json:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": size}},
    }
    return site.plane.create(
        "persistentvolumeclaims", {"metadata": {"name": name, "namespace": site.name}, "spec": spec}
    )


def create_driver(site: Site, name: str) -> None:
    spec = {"storageCapacity": True, "attachRequired": False}
    site.plane.create("csidrivers", {"metadata": {"name": name}, "spec": spec})


def selected_node(site: Site) -> str:
    """The node for which the claim `claim` is to be provisioned."""
    claim = site.plane.get("persistentvolumeclaims", "claim", site.name) or {"metadata": {}}
    return str(claim["metadata"].get("annotations", {}).get("volume.kubernetes.io/selected-node", ""))


def use(claim: str) -> dict[str, Any]:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}


def is_bound(site: Site, claim: str) -> bool:
    found = site.plane.get("persistentvolumeclaims", claim, site.name)
    return found is not None and found["status"].get("phase") == "Bound"


@pytest.fixture(autouse=True)
def remove_volumes(site: Site) -> Any:
    yield
    for plural in ("persistentvolumes", "storageclasses", "csidrivers"):
        for found in site.plane.list(plural):
            if found["metadata"]["name"].startswith(site.name):
                site.plane.delete(plural, found["metadata"]["name"])


def test_a_pod_runs_where_its_local_volume_is(site: Site) -> None:
    nodes = site.add_nodes(3)
    storage = create_class(site, "local")
    create_volume(site, "v", storage, nodes[1])
    create_claim(site, "claim", storage)
    pod = site.create("pod", **use("claim"))
    assert site.plane.wait_until_bound([pod]) == [nodes[1]]
    eventually(lambda: is_bound(site, "claim"))


def test_each_pod_gets_a_volume_of_its_own(site: Site) -> None:
    nodes = site.add_nodes(3)
    storage = create_class(site, "local")
    for number, node in enumerate(nodes):
        create_volume(site, f"v{number}", storage, node)
    for number in range(3):
        create_claim(site, f"claim-{number}", storage)
    pods = [site.create(f"pod-{number}", **use(f"claim-{number}")) for number in range(3)]
    assert set(site.plane.wait_until_bound(pods)) == set(nodes)


def test_a_pod_whose_volume_is_missing_waits_and_delays_no_other(site: Site) -> None:
    nodes = site.add_nodes(2)
    storage = create_class(site, "local")
    create_claim(site, "claim", storage)
    pod = site.create("pod", **use("claim"))
    absent = site.create("absent", **use("no-such-claim"))
    begun = time.monotonic()
    site.plane.wait_until_bound(site.create_many(10, "other"))
    assert time.monotonic() - begun < 3
    assert not site.plane.place_of(pod)
    create_volume(site, "v", storage, nodes[0])
    assert site.plane.wait_until_bound([pod], within_s=CHANGE_S) == [nodes[0]]
    eventually(lambda: "FailedScheduling" in site.actions_of_events(absent))
    create_volume(site, "v2", storage, nodes[1])
    create_claim(site, "no-such-claim", storage)
    assert site.plane.wait_until_bound([absent], within_s=CHANGE_S) == [nodes[1]]


def test_a_pod_starts_soon_after_its_storage_class_or_capacity_was_created(site: Site) -> None:
    [node] = site.add_nodes(1)
    name = f"{site.name}-late"
    create_claim(site, "claim", name)
    pod = site.create("pod", **use("claim"))
    eventually(lambda: site.is_unschedulable(pod))
    create_driver(site, name)
    create_class(site, "late", provisioner=name)
    site.expect_waiting(pod)
    assert not selected_node(site)
    capacity = {"metadata": {"name": "c", "namespace": site.name}, "storageClassName": name, "capacity": "1Ti"}
    site.plane.create("csistoragecapacities", {**capacity, "nodeTopology": {}})
    eventually(lambda: selected_node(site) == node, within_s=CHANGE_S)


def test_a_volume_is_provisioned_for_the_node_of_its_pod(site: Site) -> None:
    nodes = site.add_nodes(2)
    storage = create_class(site, "csi", provisioner="example.com/csi")
    create_claim(site, "claim", storage)
    pod = site.create("pod", **use("claim"))
    eventually(lambda: selected_node(site))
    assert selected_node(site) in nodes
    assert not site.plane.place_of(pod)
    volume = create_volume(site, "made", storage, selected_node(site))
    claim = site.plane.get("persistentvolumeclaims", "claim", site.name)
    assert claim is not None
    reference = {
        "kind": "PersistentVolumeClaim",
        "name": "claim",
        "namespace": site.name,
        "uid": claim["metadata"]["uid"],
    }
    site.plane.patch("persistentvolumes", volume["metadata"]["name"], {"spec": {"claimRef": reference}})
    assert site.plane.wait_until_bound([pod]) == [selected_node(site)]
