"""Pods get the nodes where they may run, for every reason that Kubernetes has."""

import time
from collections import Counter
from typing import Any

import pytest

from tests.kubernetes.controlplane import Json, eventually
from tests.kubernetes.system import Site


def test_no_node_gets_more_than_it_has(site: Site) -> None:
    site.add_nodes(4, {"cpu": "1", "memory": "4Gi", "pods": "110"})
    site.add_nodes(1, {"cpu": "8", "memory": "4Gi", "pods": "3"})
    pods = site.create_many(60)
    eventually(lambda: len(site.bound()) == 43)
    assert Counter(site.bound().values()) == {**dict.fromkeys(site.nodes[:4], 10), site.nodes[4]: 3}
    waiting = [pod for pod in pods if not site.plane.place_of(pod)]
    eventually(lambda: all(map(site.is_unschedulable, waiting)))
    site.delete(next(pod for pod in pods if site.plane.place_of(pod)))
    eventually(lambda: len(site.bound()) == 43)
    assert site.system.has_equal_state(site.name)


def test_a_pod_that_fits_nowhere_has_a_condition_for_autoscalers_and_starts_on_a_new_node(site: Site) -> None:
    site.add_nodes(1)
    pod = site.create("large", requests={"cpu": "100"})
    eventually(lambda: site.is_unschedulable(pod))
    assert site.plane.find_condition(pod)["lastTransitionTime"]
    eventually(lambda: "PodUnschedulable" in site.actions_of_events(pod))
    site.add_nodes(1, {"cpu": "128", "memory": "32Gi", "pods": "110"})
    assert site.plane.wait_until_bound([pod]) == [site.nodes[1]]
    eventually(lambda: {"Scheduling", "Scheduled", "PodBindSuccessful"} <= site.actions_of_events(pod))


def require(key: str, operator: str, *values: str) -> Json:
    term = {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"nodeSelector": {"disk": "ssd"}}, {1}),
        ({"affinity": require("disk", "In", "ssd", "hdd")}, {1, 2}),
        ({"affinity": require("disk", "NotIn", "ssd", "hdd")}, {3}),
        ({"affinity": require("disk", "DoesNotExist")}, {3}),
        ({"affinity": require("cores", "Gt", "8")}, {2}),
        ({"affinity": require("cores", "Lt", "8")}, {1}),
        ({"nodeName": ""}, {1, 2, 3}),
    ],
)
def test_node_selectors(site: Site, changes: dict[str, Any], expected: set[int]) -> None:
    site.add_nodes(1, labels={"disk": "ssd", "cores": "4"})
    site.add_nodes(1, labels={"disk": "hdd", "cores": "16"})
    site.add_nodes(1)
    pods = site.create_many(6, requests={"cpu": "2"}, **changes)
    places = {site.nodes[number - 1] for number in expected}
    eventually(lambda: len(site.bound()) == min(6, 4 * len(expected)))
    assert set(site.bound().values()) <= places
    assert len(pods) == 6


def test_a_label_that_a_node_gets_later_counts(site: Site) -> None:
    [node] = site.add_nodes(1)
    pod = site.create("pod", nodeSelector={"disk": "ssd"})
    eventually(lambda: site.is_unschedulable(pod))
    site.plane.patch("nodes", node, {"metadata": {"labels": {"disk": "ssd"}}})
    assert site.plane.wait_until_bound([pod], within_s=5) == [node]


def test_a_taint_that_a_node_gets_later_counts_and_may_be_tolerated(site: Site) -> None:
    first, second = site.add_nodes(2)
    taint = {"key": "reserved", "value": "gpu", "effect": "NoSchedule"}
    site.plane.patch("nodes", first, {"spec": {"taints": [taint]}})
    eventually(lambda: site.plane.get("nodes", first)["spec"]["taints"])  # type: ignore[index]
    time.sleep(0.3)
    site.plane.wait_until_bound(site.create_many(8))
    assert set(site.bound().values()) == {second}
    site.plane.patch("nodes", second, {"spec": {"taints": [taint]}})
    time.sleep(0.3)
    pod = site.create("late")
    eventually(lambda: site.is_unschedulable(pod))
    toleration = {"key": "reserved", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}
    site.plane.wait_until_bound([site.create("tolerant", tolerations=[toleration])])
    waiting = site.create("patient")
    eventually(lambda: site.is_unschedulable(waiting))
    tolerations = [*site.plane.get("pods", "patient", site.name)["spec"]["tolerations"], toleration]  # type: ignore[index]
    site.plane.patch("pods", "patient", {"spec": {"tolerations": tolerations}}, site.name)
    site.plane.wait_until_bound([waiting], within_s=5)
    site.plane.patch("nodes", first, {"spec": {"taints": []}})
    assert site.plane.wait_until_bound([pod], within_s=5) == [first]


def test_a_cordoned_node_gets_nothing_new(site: Site) -> None:
    first, second = site.add_nodes(2)
    site.plane.patch("nodes", first, {"spec": {"unschedulable": True}})
    eventually(lambda: _is_drained(site, first))
    site.plane.wait_until_bound(site.create_many(8))
    assert set(site.bound().values()) == {second}
    site.plane.patch("nodes", second, {"spec": {"unschedulable": True}})
    eventually(lambda: _is_drained(site, second))
    pod = site.create("late")
    site.expect_waiting(pod)
    site.plane.patch("nodes", first, {"spec": {"unschedulable": False}})
    assert site.plane.wait_until_bound([pod], within_s=5) == [first]


def _is_drained(site: Site, name: str) -> bool:
    return any(one["nodeID"] == name and not one["schedulable"] for one in site.system.ask("partition/default/nodes"))


def spread(key: str, *, anti: bool) -> Json:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"kind": "web"}}}
    return {"podAntiAffinity" if anti else "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_anti_affinity_holds_in_both_directions(site: Site) -> None:
    site.add_nodes(4)
    pods = site.create_many(6, labels={"kind": "web"}, affinity=spread("kubernetes.io/hostname", anti=True))
    eventually(lambda: len(site.bound()) == 4)
    site.expect_waiting(next(pod for pod in pods if not site.plane.place_of(pod)))
    assert len(set(site.bound().values())) == 4
    plain = site.create("plain", labels={"kind": "web"})
    site.expect_waiting(plain)
    other = site.create("other", labels={"kind": "batch"})
    site.plane.wait_until_bound([other])
    site.delete(next(pod for pod in pods if site.plane.place_of(pod)))
    eventually(lambda: sum(name.startswith(("pod", "plain")) for name in site.bound()) == 4)


def test_affinity_keeps_pods_together(site: Site) -> None:
    site.add_nodes(2, labels={"zone": "a"})
    site.add_nodes(2, labels={"zone": "b"})
    site.plane.wait_until_bound([site.create("first", labels={"kind": "web"})])
    pods = site.create_many(8, labels={"kind": "web"}, affinity=spread("zone", anti=False))
    site.plane.wait_until_bound(pods)
    zones = {"a" if node in site.nodes[:2] else "b" for node in site.bound().values()}
    assert len(zones) == 1


def test_a_host_port_is_used_once_a_node(site: Site) -> None:
    site.add_nodes(3)
    pods = site.create_many(5, ports=[{"containerPort": 80, "hostPort": 8080}])
    eventually(lambda: len(site.bound()) == 3)
    site.expect_waiting(next(pod for pod in pods if not site.plane.place_of(pod)))
    assert len(set(site.bound().values())) == 3
    site.plane.wait_until_bound([site.create("other", ports=[{"containerPort": 80, "hostPort": 8081}])])


def test_pods_spread_over_zones(site: Site) -> None:
    for zone in "abc":
        site.add_nodes(2, labels={"zone": zone})
    constraint = {
        "topologyKey": "zone",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"kind": "web"}},
    }
    pods = site.create_many(15, labels={"kind": "web"}, topologySpreadConstraints=[constraint])
    site.plane.wait_until_bound(pods)
    zones = Counter(site.nodes.index(node) // 2 for node in site.bound().values())
    assert zones == {0: 5, 1: 5, 2: 5}


def test_pods_of_other_schedulers_use_their_share(site: Site) -> None:
    [node] = site.add_nodes(1, {"cpu": "1", "memory": "4Gi", "pods": "110"})
    foreign = site.create("foreign", schedulerName="other", nodeName=node, requests={"cpu": "700m"})
    eventually(lambda: foreign["metadata"]["uid"] in site.system.allocations())
    pod = site.create("pod", requests={"cpu": "500m"})
    eventually(lambda: site.is_unschedulable(pod))
    site.delete(foreign)
    site.plane.wait_until_bound([pod], within_s=5)


def test_a_pod_waits_for_its_scheduling_gates(site: Site) -> None:
    site.add_nodes(1)
    pod = site.create("pod", schedulingGates=[{"name": "example.com/a"}, {"name": "example.com/b"}])
    eventually(lambda: "Scheduling" in site.actions_of_events(pod))
    assert not site.plane.place_of(pod)
    patch = [{"op": "remove", "path": "/spec/schedulingGates"}]
    path = f"/api/v1/namespaces/{site.name}/pods/pod"
    site.plane.request("PATCH", path, patch, content_type="application/json-patch+json")
    site.plane.wait_until_bound([pod], within_s=5)


def test_a_daemon_set_has_a_pod_on_each_node_also_on_a_cordoned_one(site: Site) -> None:
    nodes = site.add_nodes(3)
    site.plane.patch("nodes", nodes[0], {"spec": {"unschedulable": True}})
    eventually(lambda: _is_drained(site, nodes[0]))
    template = site.build("x", labels={"kind": "daemon"})
    del template["metadata"]["name"], template["metadata"]["namespace"]
    del template["spec"]["terminationGracePeriodSeconds"]
    spec = {"selector": {"matchLabels": {"kind": "daemon"}}, "template": template}
    body = {"metadata": {"name": "daemon", "namespace": site.name}, "spec": spec}
    site.plane.create("daemonsets", body)
    eventually(lambda: sorted(site.bound().values()) == sorted(nodes))
    site.plane.delete("daemonsets", "daemon", site.name)


def test_a_resized_pod_counts_with_its_new_size(site: Site) -> None:
    site.add_nodes(1, {"cpu": "1", "memory": "4Gi", "pods": "110"})
    pod = site.create("pod", requests={"cpu": "200m"})
    site.plane.wait_until_bound([pod])
    eventually(lambda: site.plane.get("pods", "pod", site.name)["status"].get("phase") == "Running")  # type: ignore[index]
    container = {"name": "main", "image": "none", "imageID": "", "ready": True, "restartCount": 0}
    actual = {"containerStatuses": [{**container, "resources": {"requests": {"cpu": "200m"}}}]}
    site.plane.patch("pods", "pod", {"status": actual}, site.name, subresource="status")
    resize = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "800m"}}}]}}
    path = f"/api/v1/namespaces/{site.name}/pods/pod/resize"
    site.plane.request("PATCH", path, resize, content_type="application/strategic-merge-patch+json")
    eventually(lambda: _used_cpu(site) == 800)
    late = site.create("late", requests={"cpu": "300m"})
    eventually(lambda: site.is_unschedulable(late))


def _used_cpu(site: Site) -> int:
    nodes = site.system.ask("partition/default/nodes")
    return next(int(one["allocated"].get("vcore", 0)) for one in nodes if one["nodeID"] == site.nodes[0])


def test_a_node_that_is_deleted_takes_its_pods_with_it(site: Site) -> None:
    first, second = site.add_nodes(2)
    site.plane.wait_until_bound(site.create_many(4, nodeSelector={"kubernetes.io/hostname": first}))
    site.plane.delete("nodes", first)
    eventually(lambda: first not in site.system.allocations().values())
    site.plane.wait_until_bound([site.create("late")])
    assert site.bound()["late"] == second


def test_pods_that_end_make_room(site: Site) -> None:
    site.add_nodes(1, {"cpu": "1", "memory": "4Gi", "pods": "110"})
    first = site.create("first", requests={"cpu": "800m"})
    site.plane.wait_until_bound([first])
    late = site.create("late", requests={"cpu": "800m"})
    eventually(lambda: site.is_unschedulable(late))
    site.plane.patch("pods", "first", {"status": {"phase": "Succeeded"}}, site.name, subresource="status")
    site.plane.wait_until_bound([late], within_s=5)


def test_an_application_that_is_refused_fails_its_pods(site: Site) -> None:
    site.add_nodes(1)
    pod = site.create("pod", labels={"queue": "root..bad"})
    eventually(lambda: (site.plane.get("pods", "pod", site.name) or {})["status"].get("phase") == "Failed")
    found = site.plane.get("pods", "pod", site.name)
    assert found is not None
    assert found["status"]["reason"] == "ApplicationRejected"
    assert found["status"]["message"]
    eventually(lambda: "ApplicationFailed" in site.actions_of_events(pod))
