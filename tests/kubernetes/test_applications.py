"""Gangs, preemption, quotas and configurations, with real pods."""

import json
from typing import Any

import pytest

from tests.kubernetes.controlplane import Json, eventually
from tests.kubernetes.system import QUEUES, Site, System, configure

PREFIX = "yunikorn.apache.org"

LIMITED = f"""{QUEUES}\
        queues:
          - name: fenced
            properties:
              preemption.delay: 1s
            resources:
              max: {{vcore: "4"}}
            queues:
              - name: guaranteed
                resources:
                  guaranteed: {{vcore: "3"}}
              - name: greedy
          - name: small
            resources:
              max: {{vcore: "1"}}
"""


@pytest.fixture(autouse=True)
def queues(system: System) -> None:
    """The queues of this file, also after a test that changed them."""
    configure(system.plane, {"queues.yaml": LIMITED})
    eventually(lambda: find_queue(system, "root.small"))


def find_queue(system: System, name: str) -> Json | None:
    def search(queue: Json) -> Json | None:
        if queue["queuename"] == name:
            return queue
        return next((found for child in queue.get("children") or () if (found := search(child))), None)

    return search(system.ask("partition/default/queues"))


def gang(members: int, *, style: str = "Soft", timeout_s: int = 30, cpu: str = "100m") -> dict[str, Any]:
    group = {"name": "workers", "minMember": members, "minResource": {"cpu": cpu, "memory": "64Mi"}}
    parameters = f"placeholderTimeoutInSeconds={timeout_s} gangSchedulingStyle={style}"
    annotations = {
        f"{PREFIX}/task-group-name": "workers",
        f"{PREFIX}/task-groups": json.dumps([group]),
        f"{PREFIX}/schedulingPolicyParameters": parameters,
    }
    return {"annotations": annotations, "requests": {"cpu": cpu, "memory": "64Mi"}}


def site_group(site: Site, changes: dict[str, Any]) -> dict[str, Any]:
    """The same, with placeholders that run on the nodes of the test."""
    annotations = changes["annotations"]
    [group] = json.loads(annotations[f"{PREFIX}/task-groups"])
    group["nodeSelector"] = {"site": site.name}
    return {**changes, "annotations": {**annotations, f"{PREFIX}/task-groups": json.dumps([group])}}


def test_the_pods_of_a_gang_replace_its_placeholders(site: Site) -> None:
    site.add_nodes(2)
    changes = site_group(site, gang(5))
    first = site.create("first", **changes)
    eventually(lambda: len(site.placeholders()) >= 4 or len(site.bound()) > 0)
    pods = [first, *site.create_many(4, **changes)]
    site.plane.wait_until_bound(pods)
    eventually(lambda: not site.placeholders())
    assert len(site.pods()) == 5
    eventually(lambda: site.system.has_equal_state(site.name))
    expected = {"CreatingPlaceholders", "PlaceholderAllocated", "GangReservationComplete", "TaskGroupMatch"}
    eventually(lambda: expected <= _all_actions(site))


def test_a_gang_that_does_not_fit_has_placeholders_and_starts_on_a_new_node(site: Site) -> None:
    site.add_nodes(1, {"cpu": "1", "memory": "4Gi", "pods": "110"})
    changes = site_group(site, gang(4, cpu="400m"))
    pods = [site.create("first", **changes), *site.create_many(3, **changes)]
    eventually(lambda: len(site.placeholders()) == 4)
    eventually(lambda: sum(bool(pod["spec"].get("nodeName")) for pod in site.placeholders()) == 2)
    site.expect_waiting(pods[0])
    eventually(lambda: any(map(site.is_unschedulable, site.placeholders())), within_s=5)
    site.add_nodes(1, {"cpu": "1", "memory": "4Gi", "pods": "110"})
    site.plane.wait_until_bound(pods)
    eventually(lambda: not site.placeholders())


@pytest.mark.parametrize("style", ["Soft", "Hard"])
def test_a_gang_whose_time_is_over(site: Site, style: str) -> None:
    site.add_nodes(1, {"cpu": "1", "memory": "4Gi", "pods": "110"})
    pod = site.create("first", **site_group(site, gang(4, style=style, timeout_s=2, cpu="400m")))
    eventually(lambda: len(site.placeholders()) == 4)
    eventually(lambda: not site.placeholders(), within_s=30)
    if style == "Soft":
        site.plane.wait_until_bound([pod])
        eventually(lambda: {"PlaceholderTimeOut", "GangSchedulingFailed"} <= site.actions_of_events(pod))
    else:
        eventually(lambda: (site.plane.get("pods", "first", site.name) or {})["status"].get("phase") == "Failed")
        found = site.plane.get("pods", "first", site.name)
        assert found is not None
        assert found["status"]["reason"] == "ResourceReservationTimeout"


def test_the_keys_of_a_gang_may_have_any_case(site: Site) -> None:
    site.add_nodes(1)
    place = {"Key": "site", "Operator": "In", "Values": [site.name]}
    required = {
        "RequiredDuringSchedulingIgnoredDuringExecution": {"NodeSelectorTerms": [{"MatchExpressions": [place]}]}
    }
    group = {"Name": "a", "MinMember": 3, "MINRESOURCE": {"cpu": "100m", "memory": "64Mi"}, "nodeSelectors": {}}
    groups = json.dumps([{**group, "Affinity": {"NodeAffinity": required}}])
    pod = site.create("pod", annotations={f"{PREFIX}/task-group-name": "a", f"{PREFIX}/task-groups": groups})
    site.plane.wait_until_bound([pod])
    eventually(lambda: len(site.placeholders()) == 2)
    for one in site.placeholders():
        (term,) = one["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        assert term == {"matchExpressions": [{"key": "site", "operator": "In", "values": [site.name]}]}
    eventually(lambda: "UnknownKeys" in site.actions_of_events(pod))  # nodeSelectors


def test_invalid_task_groups_are_ignored_with_an_event(site: Site) -> None:
    site.add_nodes(1)
    pod = site.create("pod", annotations={f"{PREFIX}/task-group-name": "a", f"{PREFIX}/task-groups": "[{]"})
    site.plane.wait_until_bound([pod])
    eventually(lambda: "TaskGroupsError" in site.actions_of_events(pod))


def _all_actions(site: Site) -> set[str]:
    return {one["action"] for one in site.plane.list("events", site.name)}


def test_a_queue_below_its_guarantee_preempts(site: Site) -> None:
    site.add_nodes(1, {"cpu": "4", "memory": "32Gi", "pods": "110"})
    victims = site.create_many(4, "greedy", app="greedy", labels={"queue": "root.fenced.greedy"}, requests={"cpu": "1"})
    site.plane.wait_until_bound(victims)
    wanted = site.create_many(2, app="fair", labels={"queue": "root.fenced.guaranteed"}, requests={"cpu": "1"})
    site.plane.wait_until_bound(wanted, within_s=30)
    eventually(lambda: sum(name.startswith("greedy") for name in site.bound()) == 2)
    assert site.system.has_equal_state(site.name)


def test_a_higher_priority_comes_first(site: Site) -> None:
    site.plane.create("priorityclasses", {"metadata": {"name": "urgent"}, "value": 1000})
    [node] = site.add_nodes(1, {"cpu": "1", "memory": "4Gi", "pods": "110"}, unschedulable=True)
    ordinary = site.create_many(3, requests={"cpu": "800m"})
    eventually(lambda: site.system.find_application(site.name))
    urgent = site.create("urgent", requests={"cpu": "800m"}, priorityClassName="urgent")
    eventually(lambda: "Scheduling" in site.actions_of_events(urgent))
    site.plane.patch("nodes", node, {"spec": {"unschedulable": False}})
    site.plane.wait_until_bound([urgent])
    assert list(site.bound()) == ["urgent"]
    assert len(ordinary) == 3
    site.plane.delete("priorityclasses", "urgent")


def test_a_queue_has_no_more_than_its_maximum(site: Site) -> None:
    site.add_nodes(1)
    site.create_many(4, labels={"queue": "root.small"}, requests={"cpu": "400m"})
    eventually(lambda: len(site.bound()) == 2)
    site.expect_waiting(next(pod for pod in site.pods() if not pod["spec"].get("nodeName")))


def test_the_quota_of_a_namespace_limits_its_queue(site: Site) -> None:
    quota = json.dumps({"cpu": "1", "memory": "10Gi"})
    site.plane.patch("namespaces", site.name, {"metadata": {"annotations": {f"{PREFIX}/namespace.quota": quota}}})
    site.add_nodes(1)
    site.create_many(4, requests={"cpu": "400m"})
    eventually(lambda: len(site.bound()) == 2)
    queue = find_queue(site.system, f"root.{site.name}")
    assert queue is not None
    assert queue["maxResource"]["vcore"] == 1000


def test_a_changed_configuration_takes_effect_at_once_and_a_refused_one_changes_nothing(site: Site) -> None:
    site.add_nodes(1)
    pods = site.create_many(4, labels={"queue": "root.small"}, requests={"cpu": "400m"})
    eventually(lambda: len(site.bound()) == 2)
    configure(site.plane, {"queues.yaml": LIMITED.replace('max: {vcore: "1"}', 'max: {vcore: "many"}')})
    eventually(lambda: "many" in site.system.shim.log)
    configure(site.plane, {"queues.yaml": LIMITED.replace('max: {vcore: "1"}', 'max: {vcore: "8"}')})
    site.plane.wait_until_bound(pods, within_s=10)


def test_the_user_of_a_pod_is_the_user_of_its_application(site: Site) -> None:
    site.add_nodes(1)
    info = json.dumps({"user": "alice", "groups": ["research"]})
    site.plane.wait_until_bound([site.create("pod", annotations={f"{PREFIX}/user.info": info})])
    found = site.system.find_application(site.name)
    assert found is not None
    assert (found["user"], found["groups"]) == ("alice", ["research"])


def test_an_application_that_an_operator_ends_loses_its_pods(site: Site) -> None:
    site.add_nodes(1)
    pods = site.create_many(3)
    waiting = site.create("large", requests={"cpu": "1000"})
    site.plane.wait_until_bound(pods)
    site.system.kill(site.name)
    eventually(lambda: [one["metadata"]["name"] for one in site.pods()] == ["large"])
    eventually(lambda: {"ApplicationFailed", "TaskFailed"} <= site.actions_of_events(waiting))
    assert site.system.has_equal_state(site.name)
    site.plane.wait_until_bound([site.create("later")])


def test_an_application_ends_with_its_last_pod(site: Site) -> None:
    site.add_nodes(1)
    pods = site.create_many(3)
    site.plane.wait_until_bound(pods)
    for pod in pods:
        site.delete(pod)
    uids = {pod["metadata"]["uid"] for pod in pods}
    eventually(lambda: not uids & site.system.allocations().keys())
    again = site.create("again")
    site.plane.wait_until_bound([again])
