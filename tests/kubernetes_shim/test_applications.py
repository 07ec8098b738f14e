import json
import re

import pytest

from tests.kubernetes_shim.shim_builders import make_pod
from tests.kubernetes_shim.shim_world import World, with_nodes
from tests.kubernetes_shim.test_gangs import gang_pod
from yunishard.kubernetes_shim.actions import BindPod, SendApplications
from yunishard.kubernetes_shim.applications import restart
from yunishard.kubernetes_shim.objects import ConfigMap, Namespace, ObjectMeta, Pod
from yunishard.kubernetes_shim.pods import is_placeholder
from yunishard.kubernetes_shim.state import ApplicationState, TaskState

Y = "yunikorn.apache.org/"


def submissions(world: World) -> list[SendApplications]:
    """The submissions of the pods that the shim has not received yet."""
    while world.api.watch["pods"]:
        event, obj = world.api.watch["pods"].popleft()
        assert isinstance(obj, Pod)
        world.shim.handle_object(event, obj, world.now)
    return [one for one in world.shim.take_actions() if isinstance(one, SendApplications)]


def test_an_application_is_submitted_as_its_first_pod_declares_it() -> None:
    world = with_nodes("n1")
    quota = json.dumps({"cpu": "2", "memory": "1Ki"})
    marks = {f"{Y}namespace.quota": quota, f"{Y}namespace.maxApps": "3", f"{Y}parentqueue": "root.b"}
    world.shim.handle_object("added", Namespace(metadata=ObjectMeta(name="ns", annotations=marks)), 0)
    group = [{"name": "g", "minMember": 2, "minResource": {"cpu": "1"}}]
    world.api.set_pod(
        make_pod(
            namespace="ns",
            labels={f"{Y}app-id": "app", f"{Y}queue": "root.a"},
            annotations={
                f"{Y}user.info": '{"user": "sue", "groups": ["dev"]}',
                f"{Y}task-groups": json.dumps(group),
                f"{Y}schedulingPolicyParameters": "placeholderTimeoutInSeconds=9 gangSchedulingStyle=Hard",
            },
            spec={"imagePullSecrets": [{"name": "s1"}, {"name": "s2"}]},
        )
    )
    ((request,),) = [one.new for one in submissions(world)]
    assert request.application_id == "app"
    assert request.queue_name == "root.a"
    assert (request.ugi.user, request.ugi.groups) == ("sue", ["dev"])
    assert request.placeholder_ask == {"vcore": 2000, "pods": 2}
    assert request.execution_timeout_milli_seconds == 9000
    assert request.gang_scheduling_style == "Hard"
    assert request.tags == {
        "namespace": "ns",
        "application.create.force": "false",
        "imagePullSecrets": "s1,s2",
        f"{Y}task-groups": json.dumps(group),
        f"{Y}schedulingPolicyParameters": "placeholderTimeoutInSeconds=9 gangSchedulingStyle=Hard",
        f"{Y}creationTime": "1769860805",
        "namespace.resourcequota": '{"resources":{"vcore":{"value":2000},"memory":{"value":1024}}}',
        "namespace.resourcemaxapps": "3",
        "namespace.parentqueue": "root.b",
    }


def test_older_annotations_of_a_quota_count_without_the_new_one() -> None:
    world = with_nodes("n1")
    marks = {f"{Y}namespace.max.cpu": "1", f"{Y}namespace.guaranteed": '{"cpu": "500m"}'}
    world.shim.handle_object("added", Namespace(metadata=ObjectMeta(name="ns", annotations=marks)), 0)
    world.api.set_pod(make_pod(namespace="ns"))
    tags = submissions(world)[0].new[0].tags
    assert tags["namespace.resourcequota"] == '{"resources":{"vcore":{"value":1000}}}'
    assert tags["namespace.resourceguaranteed"] == '{"resources":{"vcore":{"value":500}}}'


def test_a_quota_that_cannot_be_read_is_ignored_and_logged() -> None:
    world = with_nodes("n1")
    marks = {f"{Y}namespace.quota": '{"cpu": "much"}', f"{Y}namespace.guaranteed": '{"cpu": 0, "memory": 1}'}
    world.shim.handle_object("added", Namespace(metadata=ObjectMeta(name="default", annotations=marks)), 0)
    world.api.set_pod(make_pod(labels={"queue": "root.a"}))
    world.settle()
    assert world.bound == {"p1": "n1"}
    (problem,) = world.problems
    assert problem.startswith("namespace default: its quota is ignored: cpu: 'much' is not a quantity")
    (application,) = world.state.applications.values()
    tags = application.request.tags
    assert "namespace.resourcequota" not in tags
    assert tags["namespace.resourceguaranteed"] == '{"resources":{"vcore":{"value":0},"memory":{"value":1}}}'


def test_a_pod_of_a_rejected_application_fails_with_the_reason() -> None:
    world = with_nodes("n1")
    world.api.set_pod(make_pod(labels={"queue": "root.unknown"}))
    world.settle()
    world.check()
    status = world.api.pods["uid-p1"].status
    assert (status.phase, status.reason) == ("Failed", "ApplicationRejected")
    assert "ApplicationFailed" in world.actions_of_events("p1")
    assert world.state.applications == {}


def test_pods_after_a_rejected_application_are_submitted_again() -> None:
    world = with_nodes("n1")
    world.api.set_pod(make_pod("p1", labels={f"{Y}app-id": "app", "queue": "root.unknown"}))
    world.settle()
    world.api.set_pod(make_pod("p2", labels={f"{Y}app-id": "app", "queue": "root.a"}))
    world.settle()
    world.check()
    assert world.bound == {"p2": "n1"}


def test_an_application_is_discarded_when_the_core_completed_it() -> None:
    world = with_nodes("n1")
    world.api.set_pod(make_pod(labels={"queue": "root.a"}))
    world.settle()
    world.api.remove_pod("uid-p1")
    world.settle()
    world.pass_time(31)
    world.settle()
    assert world.state.applications == {}


def test_an_application_whose_pods_go_before_they_were_asked_for_is_removed_from_the_core() -> None:
    world = with_nodes("n1")
    pod = make_pod(labels={"queue": "root.a"}, spec={"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]})
    world.api.set_pod(pod)
    world.settle()
    world.api.remove_pod("uid-p1")
    world.settle()
    world.check()
    assert (world.state.applications, world.core.applications) == ({}, {})


def test_a_pod_that_arrives_when_the_core_completes_its_application_runs_in_a_new_one() -> None:
    world = with_nodes("n1")
    world.api.set_pod(make_pod("p1", labels={"queue": "root.a"}))
    world.settle()
    world.api.remove_pod("uid-p1")
    world.settle()
    world.pass_time(31)  # the core has completed it, and the shim has not received that
    world.api.set_pod(make_pod("p2", labels={"queue": "root.a"}))
    world.step_watch("pods")
    world.step_to_core()
    world.settle()
    world.check()
    assert world.bound == {"p2": "n1"}


def test_an_application_with_running_pods_may_enter_the_recovery_queue() -> None:
    world = with_nodes("n1")
    world.api.set_pod(make_pod(node="n1", phase="Running"))
    ((request,),) = [one.new for one in submissions(world)]
    assert request.tags["application.create.force"] == "true"


def test_pods_with_several_application_ids_have_a_warning() -> None:
    world = with_nodes("n1")
    world.api.set_pod(make_pod(labels={f"{Y}app-id": "a", "applicationId": "b", "queue": "root.a"}))
    world.settle()
    notes = [one.note for one in world.events if one.type == "Warning"]
    assert notes == [f"application id a (label {Y}app-id) is used, ignored: b (label applicationId)"]


def test_scheduling_gates_hold_a_pod_back_until_they_are_gone() -> None:
    world = with_nodes("n1")
    world.api.set_pod(make_pod(labels={"queue": "root.a"}, spec={"schedulingGates": [{"name": "a"}, {"name": "b"}]}))
    world.settle()
    world.api.set_pod(make_pod(labels={"queue": "root.a"}, spec={"schedulingGates": [{"name": "b"}]}))
    world.settle()
    world.check()
    assert [one.note for one in world.events if one.name == "p1"] == ["waiting for scheduling gates: a,b"]
    assert world.state.applications == {}
    world.api.set_pod(make_pod(labels={"queue": "root.a"}))
    world.settle()
    world.check()
    assert world.bound == {"p1": "n1"}


def test_an_application_that_an_operator_kills_fails_and_its_waiting_pods_with_it() -> None:
    world = with_nodes("n1", cpu="500m")
    world.api.set_pod(make_pod("p1", labels={"queue": "root.a"}))
    world.api.set_pod(make_pod("p2", labels={"queue": "root.a"}))
    world.settle()
    (application,) = world.state.applications.values()
    world.kill(application.application_id)
    world.settle()
    assert application.state in (ApplicationState.FAILING, ApplicationState.FAILED)
    assert "ApplicationFailed" in world.actions_of_events("p2")


def test_the_running_pods_of_an_application_that_an_operator_kills_are_deleted() -> None:
    world = with_nodes("n1")
    for name in ("p1", "p2"):
        world.api.set_pod(make_pod(name, labels={"queue": "root.a"}))
    world.settle_until(lambda: any(isinstance(one, BindPod) for one in world.writes))
    world.step_write()
    assert set(world.bound) == {"p1"}  # and the other one is being bound
    (application,) = world.state.applications.values()
    world.kill(application.application_id)
    world.settle(kubelets=False)
    assert {one.metadata.name for one in world.api.pods.values() if one.metadata.deletion_timestamp} == {"p1", "p2"}
    notes = [one.note for one in world.events if one.action == "ApplicationFailed"]
    assert all("killed by" in note for note in notes)
    world.settle()
    world.check()
    assert (world.api.pods, world.state.applications, world.core.allocations) == ({}, {}, {})


def test_pods_that_arrive_after_an_operator_killed_their_application_run_in_a_new_one() -> None:
    world = with_nodes("n1")
    world.api.set_pod(make_pod("p1", labels={"queue": "root.a"}))
    world.settle()
    world.api.set_pod(make_pod("large", labels={"queue": "root.a"}, requests={"cpu": "100"}))
    world.settle()
    world.kill("yunikorn-default-autogen")
    world.settle()
    world.api.set_pod(make_pod("p2", labels={"queue": "root.a"}))
    world.settle()
    world.check()
    assert world.bound == {"p2": "n1"}
    assert world.state.tasks["uid-large"].state is TaskState.FAILED
    assert world.actions_of_events("large").count("TaskFailed") == 1
    world.api.remove_pod("uid-p2")
    world.settle()
    world.pass_time(31)
    world.settle()
    assert world.core.applications == {}, "nothing is submitted for a pod that has failed"
    world.check()


def test_a_gang_of_new_pods_runs_although_pods_of_an_earlier_one_have_failed() -> None:
    world = with_nodes("n1", cpu="2")
    world.api.set_pod(gang_pod("p1", members=3))
    world.settle()
    world.kill("gang")
    world.settle()
    assert world.state.tasks["uid-p1"].state is TaskState.FAILED
    for name in ("p2", "p3"):
        world.api.set_pod(gang_pod(name))
    world.settle()
    world.check()
    assert set(world.bound) == {"p2", "p3"}
    assert "GangReservationComplete" in world.actions_of_events("p2")


def test_the_rejection_of_an_ask_from_before_a_report_changes_nothing() -> None:
    world = with_nodes("n1", cpu="1")
    meta = gang_pod("p1", members=2).metadata
    for number in (1, 2):
        pod = make_pod(f"p{number}", labels=meta.labels, annotations=meta.annotations, requests={"cpu": "2"})
        if number == 2:
            world.restart_partition()
        world.api.set_pod(pod)
        if number == 1:
            world.settle()
            world.pass_time(21)  # the gang times out, and the pod waits
            world.settle()
    world.step_watch("pods")
    world.step_to_core()
    assert "failed to find application" in str(world.from_core)
    while world.from_core:
        world.step_from_core()
    assert all(one.is_in_core and one.state is TaskState.SCHEDULING for one in world.state.tasks.values())
    world.settle()
    world.check()


# Users ----------------------------------------------------------------------------------------------------------------


def user_pod(name: str, user: str = "", *, creator: str = "", namespace: str = "default", app: str = "app") -> Pod:
    """A pod of this user, for whom the admission controller vouches, that this pod has created."""
    info = {"user": user, "groups": ["staff"], **({"pod": f"uid-{creator}"} if creator else {})}
    marks = {f"{Y}user.info": json.dumps(info)} if user else {}
    return make_pod(name, labels={f"{Y}app-id": app, "queue": "root.a"}, annotations=marks, namespace=namespace)


ACCOUNT = "system:serviceaccount:default:spark"
SUFFIXED = "app-<suffix>"


@pytest.mark.parametrize(
    ("pods", "settings", "expected"),
    [
        pytest.param([user_pod("a", "sue"), user_pod("b", "sue")], {}, ["sue app", "sue app"], id="one user"),
        pytest.param(
            [user_pod("a", "sue"), user_pod("b", "sue", namespace="other")],
            {},
            ["sue app", "sue app"],
            id="one user in two namespaces",
        ),
        pytest.param([user_pod("a", "sue"), user_pod("b", "tim")], {}, ["sue app", f"tim {SUFFIXED}"], id="two users"),
        pytest.param(
            [user_pod("a", "sue"), user_pod("b")], {}, ["sue app", f"nobody {SUFFIXED}"], id="a pod without a user"
        ),
        pytest.param([user_pod("a"), user_pod("b")], {}, ["nobody app", "nobody app"], id="nobody"),
        pytest.param(
            [user_pod("a"), user_pod("b", "nobody")], {}, ["nobody app", "nobody app"], id="nobody, as vouched"
        ),
        pytest.param(
            [user_pod("a"), user_pod("b", namespace="other")],
            {},
            ["nobody app", f"nobody {SUFFIXED}"],
            id="nobody in two namespaces",
        ),
        pytest.param(
            [user_pod("a", "sue"), user_pod("b", ACCOUNT, creator="a"), user_pod("c", ACCOUNT, creator="b")],
            {},
            ["sue app"] * 3,
            id="pods that a pod of the application creates",
        ),
        pytest.param(
            [user_pod("a", "sue"), user_pod("x", "tim", app="x"), user_pod("b", ACCOUNT, creator="x")],
            {},
            ["sue app", "tim x", f"{ACCOUNT} {SUFFIXED}"],
            id="pods that a pod of another application creates",
        ),
        pytest.param(
            [user_pod("a", "sue"), user_pod("b", ACCOUNT, creator="gone"), user_pod("c", ACCOUNT)],
            {},
            ["sue app", f"{ACCOUNT} {SUFFIXED}", f"{ACCOUNT} {SUFFIXED}"],
            id="pods of a service account that no pod of the application creates",
        ),
        pytest.param(
            [user_pod("a", "sue"), user_pod("b", ACCOUNT, creator="a", namespace="other")],
            {},
            ["sue app", f"{ACCOUNT} {SUFFIXED}"],
            id="pods of another namespace",
        ),
        pytest.param(
            [user_pod("a", "sue"), user_pod("b", "tim"), user_pod("c", namespace="other")],
            {"admissionController.accessControl.bypassAuth": "true"},
            ["sue app"] * 3,
            id="where nothing vouches for users",
        ),
    ],
)
def test_pods_run_only_in_an_application_of_their_user(
    pods: list[Pod], settings: dict[str, str], expected: list[str]
) -> None:
    world = with_nodes("n1")
    maps = ConfigMap(metadata=ObjectMeta(name="yunikorn-configs"), data=settings)
    world.shim.handle_object("added", maps, world.now)
    for pod in pods:
        world.api.set_pod(pod)
    world.settle()
    world.check()
    found = []
    for pod in pods:
        application = world.core.applications[world.core.allocations[pod.metadata.uid].application_id]
        name = re.sub("-[0-9a-f]{8}$", "-<suffix>", application.application_id)
        found.append(f"{application.user.name} {name}")
    assert found == expected


def test_a_pod_is_told_the_application_that_it_has_instead_of_one_of_another_user() -> None:
    world = with_nodes("n1")
    for pod in (user_pod("a", "sue"), user_pod("b", "tim")):
        world.api.set_pod(pod)
    world.settle()
    application = world.state.tasks["uid-b"].application_id
    (note,) = [one.note for one in world.events if one.type == "Warning"]
    assert note == f"the application id app is in use by another user: this pod is in application {application}"


def test_an_application_stays_one_when_the_user_who_had_its_id_is_gone() -> None:
    world = with_nodes("n1")
    for pod in (user_pod("a", "sue"), user_pod("b", "tim")):
        world.api.set_pod(pod)
    world.settle()
    squatted = world.state.tasks["uid-b"].application_id
    world.api.remove_pod("uid-a")
    world.settle()
    world.pass_time(31)
    world.api.set_pod(user_pod("c", "tim"))
    world.settle()
    assert {one.application_id for one in world.state.tasks.values()} == {squatted}
    world.start_shim()
    world.settle()
    world.check()
    assert {one.application_id for one in world.state.tasks.values()} == {"app"}


def test_an_id_with_the_suffix_of_another_user_does_not_take_it() -> None:
    world = with_nodes("n1")
    for pod in (user_pod("a", "sue"), user_pod("b", "tim")):
        world.api.set_pod(pod)
    world.settle()
    squatted = world.state.tasks["uid-b"].application_id
    world = with_nodes("n1")
    for pod in (user_pod("x", "sue", app=squatted), user_pod("a", "sue"), user_pod("b", "tim")):
        world.api.set_pod(pod)
    world.settle()
    users = {one.application_id: one.user.name for one in world.core.applications.values()}
    assert len(users) == 3
    assert users[world.state.tasks["uid-b"].application_id] == "tim"


def test_an_application_that_is_submitted_again_keeps_its_user() -> None:
    world = with_nodes("n1")
    for pod in (user_pod("a", "sue"), user_pod("b", ACCOUNT, creator="a")):
        world.api.set_pod(pod)
    world.settle()
    world.api.remove_pod("uid-a")
    world.settle()
    restart(world.state, world.state.applications["app"])
    world.take()
    (request,) = [one.request for one in world.state.applications.values()]
    assert (request.ugi.user, request.ugi.groups) == ("sue", ["staff"])


def test_placeholders_have_the_user_of_their_application_whatever_the_task_group_says() -> None:
    stolen = {f"{Y}user.info": '{"user":"boss"}'}
    group = {"name": "g", "minMember": 2, "minResource": {"cpu": "1"}, "annotations": stolen}
    world = with_nodes("n1", cpu="1")
    marks = {f"{Y}task-groups": json.dumps([group]), f"{Y}task-group-name": "g", f"{Y}user.info": '{"user":"sue"}'}
    world.api.set_pod(make_pod(labels={f"{Y}app-id": "app", "queue": "root.a"}, annotations=marks))
    world.settle()
    world.check()
    placeholders = [one.metadata.annotations for one in world.api.pods.values() if is_placeholder(one)]
    assert [one[f"{Y}user.info"] for one in placeholders] == ['{"user":"sue"}'] * 2
    assert [one.application_id for one in world.core.applications.values()] == ["app"]
