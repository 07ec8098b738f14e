"""Pods with volumes: bound before, bound to their node, provisioned for it. No provisioner runs here: tests play it."""

import time
from typing import Any

import pytest

from tests.kubernetes.controlplane import Json, eventually
from tests.kubernetes.system import Site


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


def use(claim: str) -> dict[str, Any]:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}


def is_bound(site: Site, claim: str) -> bool:
    found = site.plane.get("persistentvolumeclaims", claim, site.name)
    return found is not None and found["status"].get("phase") == "Bound"


@pytest.fixture(autouse=True)
def remove_volumes(site: Site) -> Any:
    yield
    for plural in ("persistentvolumes", "storageclasses"):
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
    assert site.plane.wait_until_bound([pod], within_s=40) == [nodes[0]]
    eventually(lambda: "FailedScheduling" in site.actions_of_events(absent))
    create_volume(site, "v2", storage, nodes[1])
    create_claim(site, "no-such-claim", storage)
    assert site.plane.wait_until_bound([absent], within_s=40) == [nodes[1]]


def test_a_volume_is_provisioned_for_the_node_of_its_pod(site: Site) -> None:
    nodes = site.add_nodes(2)
    storage = create_class(site, "csi", provisioner="example.com/csi")
    create_claim(site, "claim", storage)
    pod = site.create("pod", **use("claim"))

    def find_node() -> str:
        claim = site.plane.get("persistentvolumeclaims", "claim", site.name) or {"metadata": {}}
        return str(claim["metadata"].get("annotations", {}).get("volume.kubernetes.io/selected-node", ""))

    eventually(find_node)
    assert find_node() in nodes
    assert not site.plane.place_of(pod)
    volume = create_volume(site, "made", storage, find_node())
    claim = site.plane.get("persistentvolumeclaims", "claim", site.name)
    assert claim is not None
    reference = {
        "kind": "PersistentVolumeClaim",
        "name": "claim",
        "namespace": site.name,
        "uid": claim["metadata"]["uid"],
    }
    site.plane.patch("persistentvolumes", volume["metadata"]["name"], {"spec": {"claimRef": reference}})
    assert site.plane.wait_until_bound([pod]) == [find_node()]
