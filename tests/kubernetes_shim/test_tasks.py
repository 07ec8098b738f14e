from msgspec import convert
from msgspec.structs import replace

from tests.kubernetes_shim.shim_builders import make_node, make_pod
from tests.kubernetes_shim.shim_world import World, with_nodes
from yunishard.common.messages.rm_messages import (
    PREEMPTED_BY_SCHEDULER,
    SCHEDULING_FAILED,
    AllocationResponse,
    PreemptionPolicy,
    SchedulingStateResponse,
    UpdateContainerSchedulingState,
)
from yunishard.kubernetes_shim.actions import BindPod, Failure, PatchPodStatus, PatchVolume, SendAllocations
from yunishard.kubernetes_shim.objects import (
    ObjectMeta,
    PersistentVolumeClaim,
    PriorityClass,
    StorageClass,
)
from yunishard.kubernetes_shim.state import TaskState
from yunishard.kubernetes_shim.tasks import SKIPPED, delete_pod

QUEUE = {"queue": "root.a"}
Y = "yunikorn.apache.org/"
CLAIM = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}


def with_pod(**more: object) -> World:
    """A world with a bound pod."""
    world = with_nodes("n1")
    world.api.set_pod(make_pod(labels=QUEUE, **more))  # type: ignore[arg-type]
    world.settle()
    return world


def is_binding(world: World) -> bool:
    return any(isinstance(one, BindPod) for one in world.writes)


def waiting_to_bind() -> World:
    """A world in which a pod is about to be bound to the node n1."""
    world = with_nodes("n1")
    world.api.set_pod(make_pod(labels=QUEUE))
    world.settle_until(lambda: is_binding(world))
    return world


def test_a_pod_is_bound_and_its_events_tell_how() -> None:
    world = with_pod()
    world.check()
    assert world.bound == {"p1": "n1"}
    assert world.actions_of_events("p1") == ["Scheduling", "Scheduled", "PodBindSuccessful"]
    notes = [one.note for one in world.events if one.name == "p1"]
    assert notes[:2] == [
        "default/p1 is queued and waiting for allocation",
        "Successfully assigned default/p1 to node n1",
    ]


def test_an_ask_has_what_the_pod_and_its_priority_class_say() -> None:
    world = with_nodes("n1")
    protected = PriorityClass(metadata=ObjectMeta(name="high", annotations={f"{Y}allow-preemption": "false"}))
    world.shim.handle_object("added", protected, 0)
    spec = {"priority": 1000, "priorityClassName": "high", "preemptionPolicy": "Never"}
    pods = [make_pod("p1", labels={f"{Y}app-id": "app", **QUEUE}, annotations={f"{Y}task-group-name": "g"}, spec=spec)]
    pods.append(make_pod("p2", labels={f"{Y}app-id": "app", **QUEUE}))
    for pod in pods:
        world.shim.handle_object("added", pod, 0)
    world.take()
    world.settle_until(lambda: len(world.core.allocations) == 2)
    first, second = (world.core.allocations[f"uid-{name}"] for name in ("p1", "p2"))
    assert (first.application_id, first.priority, second.priority) == ("app", 1000, 0)
    assert (first.task_group, first.placeholder) == ("g", False)
    assert (first.originator, second.originator) == (True, False)
    assert first.preemption_policy == PreemptionPolicy(allow_preempt_self=False, allow_preempt_other=False)
    assert second.preemption_policy == PreemptionPolicy(allow_preempt_self=True, allow_preempt_other=True)


def test_a_pod_that_ends_is_released() -> None:
    world = with_pod()
    world.api.change_pod("uid-p1", phase="Succeeded")
    world.settle()
    world.check()
    assert world.core.allocations == {}
    assert world.actions_of_events("p1")[-1] == "TaskCompleted"


def test_a_pod_that_cannot_be_bound_goes_back_to_the_core() -> None:
    world = waiting_to_bind()
    world.step_write(0, "refused")
    world.step_outcome()
    assert world.state.tasks["uid-p1"].state is TaskState.SCHEDULING
    assert "PodBindFailure" in world.actions_of_events("p1")
    command, _ = world.to_core[-1]
    (release,) = command.releases.allocations_to_release  # type: ignore[attr-defined]
    assert release.termination_type == 5
    world.settle()
    world.pass_time(31)  # the core keeps the ask from the node for a while
    world.settle()
    world.check()
    assert world.bound == {"p1": "n1"}


def test_the_answer_to_a_report_is_no_new_allocation_of_a_pod_that_has_gone_back_since() -> None:
    world = waiting_to_bind()
    world.restart_partition()
    world.step_from_core()
    while world.to_core:
        world.step_to_core()
    world.step_write(0, "refused")
    world.step_outcome()
    task = world.state.tasks["uid-p1"]
    assert (task.state, task.is_unconfirmed) == (TaskState.SCHEDULING, True)
    while task.is_unconfirmed:
        world.step_from_core()
    assert task.state is TaskState.SCHEDULING
    world.api.remove_node("n1")
    world.settle()
    world.check()


def test_a_binding_that_the_api_server_cannot_execute_is_given_up() -> None:
    world = waiting_to_bind()
    world.step_write(0, "unreached")
    world.step_outcome()
    assert "PodBindFailure" in world.actions_of_events("p1")


def test_a_pod_that_goes_while_it_is_bound_is_released() -> None:
    world = waiting_to_bind()
    world.api.remove_pod("uid-p1")
    world.settle()
    world.check()
    assert world.core.allocations == {}


def test_a_waiting_pod_that_is_being_deleted_is_asked_for_no_more_while_a_finalizer_keeps_it() -> None:
    world = with_nodes("n1", cpu="100m")
    world.api.set_pod(make_pod(labels=QUEUE))
    world.settle()
    assert set(world.core.allocations) == {"uid-p1"}
    world.api.change_pod("uid-p1", deleted=True)
    world.settle(kubelets=False)
    assert world.core.allocations == {}
    world.api.set_node(make_node("n1"))
    world.settle(kubelets=False)
    assert world.api.binds == {}
    world.settle()
    world.check()


def test_a_pod_that_another_scheduler_binds_counts_where_it_runs() -> None:
    world = waiting_to_bind()
    world.api.set_node(make_node("n2"))
    world.api.change_pod("uid-p1", node="n2")
    world.settle()
    world.check()
    assert world.core.allocations["uid-p1"].node_id == "n2"


def test_an_allocation_for_a_pod_that_is_gone_is_released() -> None:
    world = with_nodes("n1")
    world.api.set_pod(make_pod(labels=QUEUE))
    world.settle_until(lambda: bool(world.core.allocations))
    world.step_core(10)
    world.api.remove_pod("uid-p1")
    world.step_watch("pods")
    world.settle()
    world.check()
    assert world.core.allocations == {}


def test_a_pod_that_fits_nowhere_has_a_condition_for_cluster_autoscalers() -> None:
    world = with_nodes("n1", cpu="1")
    world.api.set_pod(make_pod(labels=QUEUE, requests={"cpu": "2"}))
    world.settle()
    world.pass_time(5)
    patches = [one for one in world.writes if isinstance(one, PatchPodStatus)]
    world.settle()
    assert "PodUnschedulable" in world.actions_of_events("p1")
    (condition,) = world.api.pods["uid-p1"].status.conditions
    assert (condition.type, condition.status, condition.reason) == ("PodScheduled", "False", "Unschedulable")
    assert len(patches) <= 1


def test_a_condition_that_changes_its_reason_only_keeps_the_time_of_its_status() -> None:
    world = with_nodes("n1", cpu="1")
    world.api.set_pod(make_pod(labels=QUEUE, requests={"cpu": "2"}))
    world.settle_until(lambda: "Scheduling" in world.actions_of_events("p1"))
    patches = []
    for state in (SCHEDULING_FAILED, SKIPPED, SCHEDULING_FAILED):
        update = UpdateContainerSchedulingState(application_id="", allocation_key="uid-p1", state=state)
        world.shim.handle_result("mycluster_default", SchedulingStateResponse(updated=[update]), world.now)
        world.take()
        patches += [one for one in world.writes if isinstance(one, PatchPodStatus)]
        world.settle()
    assert [(one.condition["reason"], one.is_transition) for one in patches] == [
        ("Unschedulable", True),
        ("SchedulingSkipped", False),
        ("Unschedulable", False),
    ]


def test_a_resized_pod_is_sent_again() -> None:
    world = with_pod()
    world.api.set_pod(make_pod(labels=QUEUE, node="n1", requests={"cpu": "2"}))
    world.settle()
    world.check()
    assert world.core.allocations["uid-p1"].resources == {"vcore": 2000, "pods": 1}


def test_a_preempted_pod_is_deleted_and_released_with_the_type_of_the_core() -> None:
    world = with_pod()
    released = world.core.allocations["uid-p1"].release("default", "preempted")
    world.shim.handle_result(
        "mycluster_default",
        AllocationResponse(released=[replace(released, termination_type=PREEMPTED_BY_SCHEDULER)]),
        world.now,
    )
    world.take()
    world.step_write()
    assert world.api.pods["uid-p1"].metadata.deletion_timestamp is not None
    world.step_kubelets()
    world.step_watch("pods")
    world.step_watch("pods")
    command, _ = world.to_core[-1]
    (release,) = command.releases.allocations_to_release  # type: ignore[attr-defined]
    assert release.termination_type == PREEMPTED_BY_SCHEDULER


def test_a_pod_that_cannot_be_deleted_is_tried_again_later() -> None:
    world = with_pod()
    task = world.state.tasks["uid-p1"]
    delete_pod(world.state, task)
    world.take()
    world.shim.handle_outcome(world.writes.pop(), Failure(403), world.now)
    assert world.shim.next_deadline == world.now + 5
    world.pass_time(5)
    assert [type(one).__name__ for one in world.writes] == ["DeletePod"]


# Volumes --------------------------------------------------------------------------------------------------------------


LATE = convert(
    {"metadata": {"name": "late"}, "provisioner": "csi", "volumeBindingMode": "WaitForFirstConsumer"}, StorageClass
)


def claim(**more: object) -> PersistentVolumeClaim:
    spec = {"storageClassName": "late", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    found = {"metadata": {"name": "c", "namespace": "default", "uid": "uid-c"}, "spec": {**spec, **more}}
    return convert({**found, "status": {"phase": "Bound" if more else "Pending"}}, PersistentVolumeClaim)


def test_a_pod_waits_for_its_claim_to_exist() -> None:
    world = with_pod(spec=CLAIM)
    assert world.bound == {}
    assert [one.note for one in world.events if one.action == "FailedScheduling"] == [
        'persistentvolumeclaim "c" not found'
    ]
    world.shim.handle_object("added", LATE, world.now)
    world.shim.handle_object("added", claim(), world.now)
    asks = [one for one in world.shim.take_actions() if isinstance(one, SendAllocations)]
    assert [one.allocation_key for one in asks[0].allocations] == ["uid-p1"]


def with_late_claim() -> World:
    """A world in which the claim of an allocated pod is being provisioned."""
    world = with_nodes("n1")
    world.shim.handle_object("added", LATE, world.now)
    world.shim.handle_object("added", claim(), world.now)
    world.api.set_pod(make_pod(labels=QUEUE, spec=CLAIM))
    world.settle_until(lambda: any(isinstance(one, PatchVolume) for one in world.writes))
    return world


def test_a_pod_is_bound_after_its_volume_was_provisioned_for_its_node() -> None:
    world = with_late_claim()
    (patch,) = world.writes
    assert isinstance(patch, PatchVolume)
    assert "volume.kubernetes.io/selected-node" in str(patch.body)
    world.step_write()
    world.step_outcome()
    assert not is_binding(world)
    assert world.shim.next_deadline == world.now + 600


def test_other_pods_do_not_wait_for_a_volume() -> None:
    world = with_late_claim()
    world.api.set_pod(make_pod("p2", labels=QUEUE))
    world.settle_until(lambda: is_binding(world))
    assert [one.name for one in world.writes if isinstance(one, BindPod)] == ["p2"]


def test_volumes_that_are_not_bound_in_time_are_given_up() -> None:
    world = with_late_claim()
    world.step_write()
    world.step_outcome()
    world.pass_time(600)
    assert "PodVolumesBindFailure" in world.actions_of_events("p1")
    assert world.state.binding_volumes == {}


def test_a_claim_that_cannot_be_patched_fails_the_binding() -> None:
    world = with_late_claim()
    world.shim.handle_outcome(world.writes.pop(), Failure(403), world.now)
    world.take()
    assert "PodVolumesBindFailure" in world.actions_of_events("p1")
