"""Every action of an event that users of YuniKorn know occurs in a story, on the object where they look for it."""

from collections.abc import Callable

import pytest
from msgspec import convert

from tests.kubernetes_shim.shim_builders import make_pod
from tests.kubernetes_shim.shim_world import PARTITION, World, with_nodes
from tests.kubernetes_shim.test_gangs import Y, gang_pod
from yunishard.common.messages import event_codes
from yunishard.common.messages.rm_messages import (
    AllocationResponse,
    EventRecord,
    EventResponse,
    NodeResponse,
    RejectedAllocation,
    RejectedNode,
)
from yunishard.kubernetes_shim.actions import BindPod, CreatePod, Failure, PatchVolume
from yunishard.kubernetes_shim.objects import (
    PersistentVolumeClaim,
    StorageClass,
)

QUEUE = {"queue": "root.a"}


def a_gang_runs_and_ends() -> World:
    world = with_nodes("n1", "n2")
    for name in ("p1", "p2"):
        world.api.set_pod(gang_pod(name))
    world.settle()
    world.api.remove_pod("uid-p1")
    world.settle()
    return world


def a_gang_gets_no_room_in_time() -> World:
    world = with_nodes("n1", cpu="1")
    world.api.set_pod(gang_pod("p1"))
    world.settle()
    world.pass_time(21)
    world.settle()
    return world


def a_placeholder_cannot_be_created() -> World:
    world = with_nodes("n1")
    world.api.set_pod(gang_pod("p1"))
    world.settle_until(lambda: any(isinstance(one, CreatePod) for one in world.writes))
    world.step_write(0, "refused")
    world.settle()
    return world


def task_groups_cannot_be_read() -> World:
    world = with_nodes("n1")
    world.api.set_pod(make_pod(labels=QUEUE, annotations={f"{Y}task-groups": "["}))
    world.settle()
    return world


def a_key_of_an_annotation_is_unknown() -> World:
    world = with_nodes("n1")
    world.api.set_pod(make_pod(labels=QUEUE, annotations={f"{Y}user.info": '{"usr": "sue"}'}))
    world.settle()
    return world


def the_core_rejects_the_application() -> World:
    world = with_nodes("n1")
    world.api.set_pod(make_pod(labels={"queue": "root.unknown"}))
    world.settle()
    return world


def the_core_rejects_the_ask() -> World:
    world = with_nodes()
    world.api.set_pod(make_pod(labels=QUEUE))
    world.settle()
    rejected = RejectedAllocation(allocation_key="uid-p1", application_id="yunikorn-default-autogen", reason="too many")
    world.shim.handle_result(PARTITION, AllocationResponse(rejected_allocations=[rejected]), world.now)
    world.take()
    return world


def a_pod_fits_nowhere() -> World:
    world = with_nodes("n1", cpu="1")
    world.api.set_pod(make_pod(labels=QUEUE, requests={"cpu": "2"}))
    world.settle()
    world.pass_time(5)
    world.settle()
    return world


def a_binding_is_refused() -> World:
    world = with_nodes("n1")
    world.api.set_pod(make_pod(labels=QUEUE))
    world.settle_until(lambda: any(isinstance(one, BindPod) for one in world.writes))
    world.step_write(0, "refused")
    world.step_outcome()
    return world


def two_pods_need_the_same_port() -> World:
    world = with_nodes("n1")
    ports = {"containers": [{"name": "main", "ports": [{"hostPort": 80}]}]}
    for name in ("p2", "p1"):
        world.api.set_pod(make_pod(name, labels=QUEUE, spec=ports))
    world.settle_until(lambda: "AssumePodError" in world.actions_of_events("p1"))
    return world


def a_claim_is_missing_and_its_volume_cannot_be_bound() -> World:
    world = with_nodes("n1")
    spec = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
    world.api.set_pod(make_pod(labels=QUEUE, spec=spec))
    world.settle()
    late = {"metadata": {"name": "late"}, "provisioner": "csi", "volumeBindingMode": "WaitForFirstConsumer"}
    world.shim.handle_object("added", convert(late, StorageClass), world.now)
    claim = {
        "metadata": {"name": "c", "namespace": "default", "uid": "uid-c"},
        "spec": {"storageClassName": "late", "resources": {"requests": {"storage": "1Gi"}}},
    }
    world.shim.handle_object("added", convert(claim, PersistentVolumeClaim), world.now)
    world.take()
    world.settle_until(lambda: any(isinstance(one, PatchVolume) for one in world.writes))
    world.shim.handle_outcome(world.writes.pop(), Failure(403), world.now)
    world.take()
    return world


def a_node_goes() -> World:
    world = with_nodes("n1")
    world.api.remove_node("n1")
    world.settle()
    return world


def a_node_is_rejected() -> World:
    world = with_nodes("n1")
    rejected = NodeResponse(rejected=[RejectedNode(node_id="n1", reason="it exists already")])
    world.shim.handle_result(PARTITION, rejected, world.now)
    world.take()
    return world


def the_core_records_an_event(kind: int, object_id: str, change: int, detail: int) -> World:
    world = with_nodes("n1", cpu="100m")
    world.api.set_pod(make_pod(labels=QUEUE))
    world.settle()
    record = EventRecord(kind, object_id, "the message", event_change_type=change, event_change_detail=detail)
    world.shim.handle_result(PARTITION, EventResponse(events=[record]), world.now)
    world.take()
    return world


def an_ask_is_out_of_quota() -> World:
    return the_core_records_an_event(event_codes.REQUEST, "uid-p1", event_codes.NONE, event_codes.DETAILS_NONE)


def the_core_adds_a_node() -> World:
    return the_core_records_an_event(event_codes.NODE, "n1", event_codes.ADD, event_codes.DETAILS_NONE)


def the_core_decommissions_a_node() -> World:
    return the_core_records_an_event(event_codes.NODE, "n1", event_codes.REMOVE, event_codes.NODE_DECOMISSION)


def the_core_allocates_on_a_node() -> World:
    return the_core_records_an_event(event_codes.NODE, "n1", event_codes.ADD, event_codes.NODE_ALLOC)


GANG = "GangScheduling"


@pytest.mark.parametrize(
    ("story", "name", "action", "reason", "kind"),
    [
        (a_gang_runs_and_ends, "p1", "Scheduling", "Scheduling", "Normal"),
        (a_gang_runs_and_ends, "p1", "Scheduled", "Scheduled", "Normal"),
        (a_gang_runs_and_ends, "p1", "PodBindSuccessful", "PodBindSuccessful", "Normal"),
        (a_gang_runs_and_ends, "p1", "TaskCompleted", "TaskCompleted", "Normal"),
        (a_gang_runs_and_ends, "p1", "CreatingPlaceholders", GANG, "Normal"),
        (a_gang_runs_and_ends, "p1", "PlaceholderAllocated", GANG, "Normal"),
        (a_gang_runs_and_ends, "p1", "GangReservationComplete", GANG, "Normal"),
        (a_gang_runs_and_ends, "p2", "TaskGroupMatch", GANG, "Normal"),
        (a_gang_gets_no_room_in_time, "p1", "PlaceholderTimeOut", GANG, "Warning"),
        (a_gang_gets_no_room_in_time, "p1", "GangSchedulingFailed", GANG, "Warning"),
        (a_placeholder_cannot_be_created, "p1", "PlaceholderCreateFailed", GANG, "Warning"),
        (task_groups_cannot_be_read, "p1", "TaskGroupsError", GANG, "Warning"),
        (a_key_of_an_annotation_is_unknown, "p1", "UnknownKeys", "UnknownKeys", "Warning"),
        (the_core_rejects_the_application, "p1", "ApplicationFailed", "ApplicationFailed", "Warning"),
        (the_core_rejects_the_application, "p1", "TaskFailed", "TaskFailed", "Warning"),
        (the_core_rejects_the_ask, "p1", "TaskRejected", "TaskRejected", "Warning"),
        (the_core_rejects_the_ask, "p1", "TaskFailed", "TaskFailed", "Warning"),
        (a_pod_fits_nowhere, "p1", "PodUnschedulable", "PodUnschedulable", "Normal"),
        (a_binding_is_refused, "p1", "PodBindFailure", "PodBindFailure", "Warning"),
        (two_pods_need_the_same_port, "p1", "AssumePodError", "AssumePodError", "Warning"),
        (a_claim_is_missing_and_its_volume_cannot_be_bound, "p1", "FailedScheduling", "FailedScheduling", "Warning"),
        (
            a_claim_is_missing_and_its_volume_cannot_be_bound,
            "p1",
            "PodVolumesBindFailure",
            "PodVolumesBindFailure",
            "Warning",
        ),
        (a_node_goes, "n1", "NodeAccepted", "NodeAccepted", "Normal"),
        (a_node_goes, "n1", "NodeDeleted", "NodeDeleted", "Normal"),
        (a_node_is_rejected, "n1", "NodeRejected", "NodeRejected", "Normal"),
        (an_ask_is_out_of_quota, "p1", "Informational", "Informational", "Normal"),
        (the_core_adds_a_node, "n1", "Informational", "Informational", "Normal"),
        (the_core_decommissions_a_node, "n1", "Informational", "Informational", "Normal"),
    ],
)
def test_the_action_occurs_in_the_story(
    story: Callable[[], World], name: str, action: str, reason: str, kind: str
) -> None:
    world = story()
    assert (action, reason, kind) in [(one.action, one.reason, one.type) for one in world.events if one.name == name]


def test_events_of_the_core_about_allocations_are_not_shown_on_nodes() -> None:
    assert "Informational" not in the_core_allocates_on_a_node().actions_of_events("n1")


def test_events_of_all_placeholders_of_a_gang_are_equal_so_that_they_become_one_series() -> None:
    world = a_gang_runs_and_ends()
    found = [one for one in world.events if one.action == "PlaceholderAllocated"]
    assert len(found) == 2
    assert len(set(found)) == 1
