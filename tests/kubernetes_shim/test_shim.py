import json
from typing import Any, Literal

from tests.kubernetes_shim.shim_builders import make_node, make_pod
from tests.kubernetes_shim.shim_world import with_nodes
from yunishard import AcceptedApplication, Allocation, AllocationResponse, ApplicationResponse
from yunishard.common.messages.rm_messages import SCHEDULING_FAILED_ON_RM
from yunishard.kubernetes_shim.actions import (
    Action,
    BindPod,
    EmitEvent,
    Failure,
    LogProblem,
    SendAllocations,
    SendApplications,
    SendConfiguration,
    SendReport,
)
from yunishard.kubernetes_shim.objects import ConfigMap, ObjectMeta
from yunishard.kubernetes_shim.pods import PLACEHOLDER
from yunishard.kubernetes_shim.settings import Settings
from yunishard.kubernetes_shim.shim import DUMPED_MAX, Shim

PARTITION = "mycluster_default"


def test_a_pod_is_asked_for_and_bound() -> None:
    shim = Shim(Settings())
    shim.handle_object("added", make_node(), 0)
    shim.handle_listed(0)
    shim.handle_registered(0)
    (report,) = shim.take_actions()
    assert isinstance(report, SendReport)
    assert [one.node_id for one in report.nodes] == ["n1"]
    shim.handle_outcome(report, None, 0)
    pod = make_pod()
    shim.handle_object("added", pod, 1)
    (submit,) = shim.take_actions()
    assert isinstance(submit, SendApplications)
    application_id = submit.new[0].application_id
    accepted = ApplicationResponse(accepted=[AcceptedApplication(application_id=application_id)])
    shim.handle_result(PARTITION, accepted, 1)
    (send, event) = shim.take_actions()
    assert isinstance(send, SendAllocations)
    assert isinstance(event, EmitEvent)
    assert [one.allocation_key for one in send.allocations] == ["uid-p1"]
    new = Allocation(allocation_key="uid-p1", application_id=application_id, node_id="n1")
    shim.handle_result(PARTITION, AllocationResponse(new=[new]), 1)
    bind = next(one for one in shim.take_actions() if isinstance(one, BindPod))
    assert bind == BindPod(namespace="default", name="p1", uid="uid-p1", node="n1")
    shim.handle_outcome(bind, None, 1)
    shim.handle_object("modified", make_pod(node="n1"), 1)
    shim.handle_object("deleted", make_pod(node="n1"), 1)
    released = [one for one in shim.take_actions() if isinstance(one, SendAllocations)]
    assert [one.allocation_key for one in released[0].releases] == ["uid-p1"]


def test_an_allocation_that_the_predicates_refuse_by_now_is_given_back() -> None:
    shim = Shim(Settings())
    shim.handle_object("added", make_node(), 0)
    ports = {"containers": [{"name": "main", "ports": [{"hostPort": 80}]}]}
    for name in ("p1", "p2"):
        shim.handle_object("added", make_pod(name, labels={"yunikorn.apache.org/app-id": "a"}, spec=ports), 0)
    shim.handle_listed(0)
    shim.handle_registered(0)
    (report,) = shim.take_actions()
    shim.handle_outcome(report, None, 0)
    shim.handle_result(PARTITION, ApplicationResponse(accepted=[AcceptedApplication(application_id="a")]), 1)
    assert shim.may_run("uid-p1", "n1", True) is None
    assert shim.may_run("uid-p2", "n1", True) is None
    shim.take_actions()
    new = [Allocation(allocation_key=key, application_id="a", node_id="n1") for key in ("uid-p1", "uid-p2")]
    shim.handle_result(PARTITION, AllocationResponse(new=new), 1)
    actions = shim.take_actions()
    assert [one.name for one in actions if isinstance(one, BindPod)] == ["p1"]
    (given_back,) = [release for one in actions if isinstance(one, SendAllocations) for release in one.releases]
    assert given_back.allocation_key == "uid-p2"
    assert given_back.termination_type == SCHEDULING_FAILED_ON_RM


def test_a_placeholder_is_not_in_the_way_of_the_pod_that_replaces_it() -> None:
    shim = Shim(Settings())
    shim.handle_object("added", make_node(labels={"host": "n1"}), 0)
    term = {"topologyKey": "host", "labelSelector": {"matchLabels": {"yunikorn.apache.org/app-id": "a"}}}
    spec: dict[str, object] = {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }
    labels, group = {"yunikorn.apache.org/app-id": "a"}, {"yunikorn.apache.org/task-group-name": "workers"}
    marked = {**group, "yunikorn.apache.org/placeholder": "true"}
    shim.handle_object("added", make_pod("real", labels=labels, annotations=group, spec=spec), 0)
    placeholder = make_pod("held", labels=labels, annotations=marked, spec=spec, node="n1")
    shim.handle_object("added", placeholder, 0)
    shim.handle_listed(0)
    shim.handle_registered(0)
    assert shim.may_run("uid-real", "n1", False) is None
    assert shim.may_run("uid-real", "n1", True) == "the anti-affinity of a pod in the same host repels the pod"


def test_a_state_dump_counts_everything_and_lists_what_waits() -> None:
    world = with_nodes("n1", "n2")
    world.api.set_node(make_node("n2", unschedulable=True))
    world.api.set_pod(make_pod("bound", labels={"queue": "root.a"}))
    world.api.set_pod(make_pod("orphan", scheduler="other", node="n3"))
    for number in range(DUMPED_MAX + 1):
        world.api.set_pod(make_pod(f"waits-{number}", labels={"queue": "root.a"}, requests={"cpu": "900"}))
    world.settle()
    dump = json.loads(world.shim.dump_state())
    assert dump["podsByState"] == {"Bound": 1, "Scheduling": DUMPED_MAX + 1}
    assert len(dump["unboundPods"]) == DUMPED_MAX
    assert dump["unboundPods"][0] == {"pod": "default/waits-0", "uid": "uid-waits-0", "state": "Scheduling"}
    assert dump["applications"] == [
        {
            "applicationID": "yunikorn-default-autogen",
            "namespace": "default",
            "state": "Running",
            "pods": DUMPED_MAX + 2,
            "placeholders": 0,
        }
    ]
    long = {"yunikorn.apache.org/app-id": "a" * 1000}
    world.api.set_pod(make_pod("long", labels={"queue": "root.a"}, annotations=long))
    world.settle()
    assert len(json.loads(world.shim.dump_state())["applications"][1]["applicationID"]) == 253
    assert (dump["nodes"], dump["closedNodes"], dump["orphanUids"]) == (2, ["n2"], ["uid-orphan"])


# Config maps ----------------------------------------------------------------------------------------------------------


def change_maps(shim: Shim, event: Literal["modified", "deleted"] = "modified", **data: str) -> list[Action]:
    """Return what follows when the config map changes to this data."""
    config_map = ConfigMap(
        metadata=ObjectMeta(name="yunikorn-configs"), data={key.replace("_", "."): text for key, text in data.items()}
    )
    shim.handle_object(event, config_map, 0)
    return shim.take_actions()


def start(**settings: Any) -> Shim:
    shim = Shim(Settings(**settings))
    shim.handle_listed(0)
    shim.handle_registered(0)
    (report,) = shim.take_actions()
    shim.handle_outcome(report, None, 0)
    return shim


def test_a_changed_config_map_sends_the_configuration_and_the_settings_of_the_core() -> None:
    shim = start()
    assert change_maps(shim, queues_yaml="x", log_level="1") == [SendConfiguration("x", {"log.level": "1"})]
    assert change_maps(shim, queues_yaml="x", log_level="1") == []
    assert change_maps(shim, queues_yaml="y", other_yaml="z") == [SendConfiguration("y", {})]
    assert change_maps(shim, "deleted", queues_yaml="y") == [SendConfiguration("", {})]


def test_a_refused_configuration_is_logged() -> None:
    shim = start()
    (change,) = change_maps(shim, queues_yaml="x")
    shim.handle_outcome(change, Failure(message="no root"), 0)
    assert shim.take_actions() == [LogProblem("the core refuses the configuration, the previous one stays: no root")]


def test_settings_that_cannot_be_read_change_nothing_and_are_logged() -> None:
    shim = start()
    (problem,) = change_maps(shim, queues_yaml="x", kubernetes_qps="many")
    assert isinstance(problem, LogProblem)
    assert problem.text.startswith("config maps: the previous settings stay: kubernetes.qps is 'many'")


def test_without_hot_refresh_a_changed_config_map_has_no_effect() -> None:
    assert change_maps(start(enable_config_hot_refresh=False), queues_yaml="x") == []


def test_a_setting_that_needs_a_restart_is_logged_once() -> None:
    shim = start()
    text = "config maps: changes of kubernetes.qps take effect when the shim is restarted"
    extra = {"kubernetes.qps": "5"}
    assert change_maps(shim, kubernetes_qps="5") == [SendConfiguration("", extra), LogProblem(text)]
    assert change_maps(shim, kubernetes_qps="5", queues_yaml="x") == [SendConfiguration("x", extra)]
    assert change_maps(shim, queues_yaml="x") == [SendConfiguration("x", {})]


# The start ------------------------------------------------------------------------------------------------------------


def test_after_a_restart_an_application_is_that_of_its_first_real_pod() -> None:
    shim = Shim(Settings())
    labels_count = {"admissionController.accessControl.bypassAuth": "true"}
    maps = ConfigMap(metadata=ObjectMeta(name="yunikorn-configs"), data=labels_count)
    shim.handle_object("added", maps, 0)
    labels, marks = {"yunikorn.apache.org/app-id": "a"}, {"yunikorn.apache.org/task-group-name": "g"}
    pods = [
        make_pod("held", labels=labels, annotations={**marks, PLACEHOLDER: "true"}, created="2026-01-31T12:00:01Z"),
        make_pod("late", labels={**labels, "yunikorn.apache.org/username": "tim"}, created="2026-01-31T12:00:09Z"),
        make_pod("first", labels={**labels, "yunikorn.apache.org/username": "sue"}, created="2026-01-31T12:00:05Z"),
    ]
    for pod in pods:
        shim.handle_object("added", pod, 0)
    shim.handle_listed(0)
    shim.handle_registered(0)
    (report,) = [one for one in shim.take_actions() if isinstance(one, SendReport)]
    assert [one.ugi.user for one in report.applications] == ["sue"]
    shim.handle_outcome(report, None, 0)
    shim.handle_result(PARTITION, ApplicationResponse(accepted=[AcceptedApplication(application_id="a")]), 1)
    (asks,) = [one.allocations for one in shim.take_actions() if isinstance(one, SendAllocations)]
    assert [(one.allocation_key, one.originator) for one in asks] == [("uid-first", True), ("uid-late", False)]


def test_each_pod_without_an_application_id_is_one_of_its_own_if_the_setting_says_so() -> None:
    shim = start()
    change_maps(shim, admissionController_filtering_generateUniqueAppId="T")
    shim.handle_object("added", make_pod(uid="u1"), 0)
    (submit,) = shim.take_actions()
    assert isinstance(submit, SendApplications)
    assert [one.application_id for one in submit.new] == ["default-u1"]
