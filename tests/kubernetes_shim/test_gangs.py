import json

import pytest
from msgspec.structs import replace

from tests.invariants import check as check_partition
from tests.kubernetes_shim.shim_builders import make_pod
from tests.kubernetes_shim.shim_world import World, with_nodes
from yunishard.kubernetes_shim.actions import BindPod, CreatePod
from yunishard.kubernetes_shim.objects import Pod
from yunishard.kubernetes_shim.settings import Settings

Y = "yunikorn.apache.org/"


def gang_pod(name: str, *, members: int = 2, style: str = "Soft", cpu: str = "1", **more: str) -> Pod:
    group = {"name": "g", "minMember": members, "minResource": {"cpu": cpu}}
    return make_pod(
        name,
        labels={f"{Y}app-id": "gang", "queue": "root.a"},
        annotations={
            f"{Y}task-groups": json.dumps([group]),
            f"{Y}task-group-name": "g",
            f"{Y}schedulingPolicyParameters": f"placeholderTimeoutInSeconds=20 gangSchedulingStyle={style}",
        },
        requests={"cpu": cpu},
        **more,
    )


def test_real_pods_replace_the_placeholders_of_their_gang() -> None:
    world = with_nodes("n1", "n2")
    world.api.set_pod(gang_pod("p1"))
    world.api.set_pod(gang_pod("p2"))
    world.settle()
    world.check()
    assert set(world.bound) == {"p1", "p2"}
    assert world.placeholders == []
    actions = world.actions_of_events("p1")
    assert [one for one in actions if one in ("CreatingPlaceholders", "GangReservationComplete")] == [
        "CreatingPlaceholders",
        "GangReservationComplete",
    ]


def test_no_real_pod_is_asked_for_before_all_placeholders_have_nodes() -> None:
    world = with_nodes("n1", cpu="1")
    world.api.set_pod(gang_pod("p1", members=2))
    world.settle()
    world.check()
    assert world.bound == {}
    assert len(world.placeholders) == 2


def test_a_soft_gang_that_gets_no_room_runs_as_an_ordinary_application() -> None:
    world = with_nodes("n1", cpu="1")
    world.api.set_pod(gang_pod("p1", members=2))
    world.settle()
    world.pass_time(21)
    world.settle()
    world.check()
    assert world.bound == {"p1": "n1"}
    assert world.placeholders == []
    assert "PlaceholderTimeOut" in world.actions_of_events("p1")


@pytest.mark.parametrize("runs", [False, True])
def test_a_placeholder_that_the_core_allocates_after_the_gang_timed_out_is_deleted(runs: bool) -> None:
    world = with_nodes("n1", cpu="4")
    world.api.set_pod(gang_pod("p1", members=2))
    world.settle_until(lambda: sum(isinstance(one, CreatePod) for one in world.writes) == 2)
    world.step_write()
    world.settle_until(lambda: any(isinstance(one, BindPod) for one in world.writes))
    world.step_write(next(number for number, one in enumerate(world.writes) if isinstance(one, CreatePod)))
    if runs:
        world.api.change_pod("uid-p1", node="n1")  # by another scheduler
    while world.api.watch["pods"]:
        world.step_watch("pods")  # the shim asks for the other placeholder
    world.now += 21
    world.step_core(0)  # the gang times out before the core receives the ask
    while world.to_core:
        world.step_to_core()
    world.step_core(10)
    assert sum(one.placeholder for one in world.core.allocations.values()) == 2
    check_partition(world.core)
    world.settle()
    world.check()
    assert world.placeholders == []
    assert world.bound == {"p1": "n1"}


def test_a_placeholder_that_is_asked_for_again_while_the_gang_times_out_leaves_no_ask() -> None:
    world = with_nodes("n1", cpu="1")
    world.api.set_pod(gang_pod("p1", members=2))
    world.settle()
    (waiting,) = (one for one in world.placeholders if not one.spec.node_name)
    uid = waiting.metadata.uid
    world.pass_time(21)  # the core removes the ask
    world.api.set_pod(replace(waiting, spec=replace(waiting.spec, overhead={"memory": "1Mi"})))
    world.step_watch("pods")
    world.step_to_core()
    assert uid in world.core.allocations, "as a new ask"
    world.settle(kubelets=False)
    assert uid not in world.core.allocations
    world.check()


def test_the_pods_of_a_hard_gang_that_gets_no_room_fail() -> None:
    world = with_nodes("n1", cpu="1")
    world.api.set_pod(gang_pod("p1", members=2, style="Hard"))
    world.settle()
    world.pass_time(21)
    world.settle()
    world.check()
    status = world.api.pods["uid-p1"].status
    assert (status.phase, status.reason) == ("Failed", "ResourceReservationTimeout")
    assert world.placeholders == []
    assert world.state.applications == {}


def test_an_application_runs_without_its_gang_if_a_placeholder_cannot_be_created() -> None:
    world = with_nodes("n1")
    world.api.set_pod(gang_pod("p1", members=2))
    world.settle_until(lambda: any(isinstance(one, CreatePod) for one in world.writes))
    world.step_write(0, "refused")
    world.settle()
    world.check()
    assert world.bound == {"p1": "n1"}
    assert world.placeholders == []
    assert "PlaceholderCreateFailed" in world.actions_of_events("p1")


def test_placeholders_of_a_deleted_originator_are_created_again_for_the_next_pod() -> None:
    world = with_nodes("n1", cpu="1")
    world.api.set_pod(gang_pod("p1"))
    world.api.set_pod(gang_pod("p2", created="2026-01-31T12:00:06Z"))
    world.settle()
    world.api.remove_pod("uid-p1")
    world.settle()
    world.check()
    assert {owner.uid for one in world.placeholders for owner in one.metadata.owner_references} == {"uid-p2"}
    assert len(world.placeholders) == 2


def test_a_gang_whose_placeholders_are_deleted_again_and_again_runs_without_it() -> None:
    world = with_nodes("n1", cpu="1")
    world.api.set_pod(gang_pod("p1"))
    for _ in range(3):
        world.settle()
        for pod in world.placeholders:
            world.api.remove_pod(pod.metadata.uid)
    world.settle()
    world.check()
    assert world.bound == {"p1": "n1"}


def test_task_groups_of_one_name_share_their_placeholders() -> None:
    world = with_nodes("n1")
    group = {"name": "g", "minMember": 1, "minResource": {"cpu": "1"}}
    marks = {f"{Y}task-groups": json.dumps([group, group]), f"{Y}task-group-name": "g"}
    world.api.set_pod(make_pod("p1", labels={"queue": "root.a"}, annotations=marks))
    world.settle()
    world.check()
    assert world.bound == {"p1": "n1"}
    assert world.api.count == 1
    assert world.actions_of_events("p1").count("CreatingPlaceholders") == 1


def test_after_a_restart_only_missing_placeholders_are_created() -> None:
    world = with_nodes("n1", cpu="1")
    world.api.set_pod(gang_pod("p1"))
    world.settle()
    names = {one.metadata.name for one in world.placeholders}
    world.start_shim()
    world.settle()
    world.check()
    assert {one.metadata.name for one in world.placeholders} == names


def test_gang_scheduling_can_be_switched_off() -> None:
    world = with_nodes("n1", settings=Settings(disable_gang_scheduling=True))
    world.api.set_pod(gang_pod("p1"))
    world.settle()
    assert world.bound == {"p1": "n1"}
    assert world.api.count == 0


def test_placeholders_from_before_gang_scheduling_was_switched_off_are_deleted() -> None:
    world = with_nodes("n1", cpu="1")
    world.api.set_pod(gang_pod("p1"))
    world.settle()
    assert len(world.placeholders) == 2
    world.settings = Settings(disable_gang_scheduling=True)
    world.start_shim()
    world.settle()
    world.check()
    assert world.bound == {"p1": "n1"}
    assert world.placeholders == []


def test_a_gang_whose_keys_are_written_in_another_case_has_placeholders() -> None:
    world: World = with_nodes("n1")
    group = '[{"Name": "g", "MINMEMBER": 2, "MinResource": {"cpu": "500m"}, "Toleration\u017f": [{"Key": "gpu"}]}]'
    marks = {f"{Y}task-groups": group, f"{Y}task-group-name": "g", f"{Y}user.info": '{"User": "sue"}'}
    world.api.set_pod(make_pod("p1", labels={"queue": "root.a"}, annotations=marks))
    world.settle()
    assert len(world.placeholders) == 1  # the pod has taken the place of the other one
    assert world.placeholders[0].spec.tolerations[0].key == "gpu"
    assert not {"TaskGroupsError", "UnknownKeys"} & set(world.actions_of_events("p1"))


def test_task_groups_that_cannot_be_read_are_reported_and_the_pod_runs_without_a_gang() -> None:
    world: World = with_nodes("n1")
    world.api.set_pod(make_pod("p1", labels={"queue": "root.a"}, annotations={f"{Y}task-groups": "["}))
    world.settle()
    assert world.bound == {"p1": "n1"}
    assert "TaskGroupsError" in world.actions_of_events("p1")


def test_placeholders_that_no_pod_will_use_are_deleted_when_the_last_pod_ends() -> None:
    world = with_nodes("n1")
    world.api.set_pod(gang_pod("p1", members=3))
    world.settle()
    assert len(world.placeholders) == 2
    world.api.change_pod("uid-p1", phase="Succeeded")
    world.settle()
    world.check()
    assert world.placeholders == []
