import pytest

from tests.kubernetes_shim.shim_builders import make_pod
from yunishard.common.messages.kinds import INT64_MAX
from yunishard.common.messages.rm_messages import PreemptionPolicy, UserGroupInformation
from yunishard.kubernetes_shim.objects import ObjectMeta, Pod, PriorityClass
from yunishard.kubernetes_shim.pods import (
    build_tags,
    compute_resources,
    describe_conflicts,
    find_application_id,
    find_foreign_kind,
    find_preemption_policy,
    find_queue,
    find_required_node,
    find_user,
    is_placeholder,
)

Y = "yunikorn.apache.org/"


def test_the_first_source_of_the_application_id_that_is_not_empty_counts() -> None:
    sources = [
        ({f"{Y}app-id": "a"}, {f"{Y}app-id": "b"}),
        ({"applicationId": "c", "spark-app-selector": "d"}, {f"{Y}app-id": "b"}),
        ({"applicationId": "c", "spark-app-selector": "d"}, {}),
        ({f"{Y}app-id": "", "spark-app-selector": "d"}, {}),
        ({}, {}),
    ]
    found = [find_application_id(make_pod(labels=labels, annotations=marks)) for labels, marks in sources]
    assert found == ["a", "b", "c", "d", "yunikorn-default-autogen"]


def test_a_generated_id_is_unique_on_demand_and_fits_a_label() -> None:
    pod = make_pod(namespace="n" * 63, uid="0" * 36)
    assert find_application_id(pod) == f"yunikorn-{'n' * 54}"
    assert find_application_id(pod, is_unique=True) == f"{'n' * 26}-{'0' * 36}"
    marked = make_pod(labels={f"{Y}app-id": "ns-uniqueautogen"}, uid="u1")
    assert find_application_id(marked) == "ns-u1"


def test_the_first_source_of_the_queue_that_is_not_empty_counts() -> None:
    assert find_queue(make_pod(labels={f"{Y}queue": "root.a", "queue": "root.c"})) == "root.a"
    assert find_queue(make_pod(labels={"queue": "root.c"}, annotations={f"{Y}queue": "root.b"})) == "root.b"
    assert find_queue(make_pod(labels={"queue": "root.c"})) == "root.c"
    assert find_queue(make_pod()) == ""


def test_ignored_applications_and_queues_are_named() -> None:
    pod = make_pod(labels={f"{Y}app-id": "a", "applicationId": "a", "queue": "q2"}, annotations={f"{Y}queue": "q1"})
    assert describe_conflicts(pod) == f"queue q1 (annotation {Y}queue) is used, ignored: q2 (label queue)"
    assert describe_conflicts(make_pod()) == ""


@pytest.mark.parametrize(
    ("info", "user", "groups"),
    [
        ('{"user": "sue", "groups": ["dev", "ops"]}', "sue", ["dev", "ops"]),
        ('{"user": "sue"}', "sue", []),
        ('{"user": "sue", "groups": null}', "sue", []),
        ('{"user": "", "groups": ["dev"]}', "nobody", []),
        ('{"user": 5}', "nobody", []),
        ("sue", "nobody", []),
        (f'{{"user": "sue", "more": {"[" * 100_000}', "nobody", []),
    ],
)
def test_the_user_comes_from_the_annotation(info: str, user: str, groups: list[str]) -> None:
    pod = make_pod(annotations={f"{Y}user.info": info}, labels={f"{Y}username": "bob"})
    assert find_user(pod) == UserGroupInformation(user=user, groups=groups)


def test_without_the_annotation_a_label_names_the_user_if_the_settings_say_so() -> None:
    pod = make_pod(labels={f"{Y}username": "bob"})
    assert find_user(pod, reads_label=True).user == "bob"
    assert find_user(pod).user == "nobody"
    assert find_user(make_pod()).user == "nobody"


def test_a_placeholder_is_marked_by_one_of_three_keys() -> None:
    mark = "internal.yunikorn.apache.org/placeholder"
    assert is_placeholder(make_pod(annotations={mark: "true"}))
    assert not is_placeholder(make_pod(annotations={mark: "false", f"{Y}placeholder": "true"}))
    assert is_placeholder(make_pod(annotations={f"{Y}placeholder": "T"}))
    assert is_placeholder(make_pod(labels={"placeholder": "1"}))
    assert not is_placeholder(make_pod(labels={"placeholder": "yes"}))


@pytest.mark.parametrize(
    ("own", "of_class", "allowed"),
    [
        ("", "", True),
        ("true", "false", True),
        ("false", "", False),
        ("", "false", False),
        ("", "true", True),
        ("x", "false", False),
    ],
)
def test_the_pod_or_its_class_protects_it_from_preemption(own: str, of_class: str, allowed: bool) -> None:
    marks = {f"{Y}allow-preemption": own} if own else {}
    known = PriorityClass(metadata=ObjectMeta(annotations={f"{Y}allow-preemption": of_class}))
    found = find_preemption_policy(make_pod(annotations=marks), known if of_class else None)
    assert found == PreemptionPolicy(allow_preempt_self=allowed, allow_preempt_other=True)


def test_the_preemption_policy_of_the_pod_decides_whether_it_may_have_victims() -> None:
    assert not find_preemption_policy(make_pod(spec={"preemptionPolicy": "Never"}), None).allow_preempt_other


def container(name: str, cpu: str, **more: object) -> dict[str, object]:
    return {"name": name, "resources": {"requests": {"cpu": cpu}}, **more}


def test_a_pod_takes_the_sum_of_its_containers_and_one_pod() -> None:
    pod = make_pod(spec={"containers": [container("a", "1"), container("b", "250m")]})
    assert compute_resources(pod) == {"vcore": 1250, "pods": 1}


def test_a_sum_that_the_core_cannot_read_is_the_largest_that_it_can() -> None:
    pod = make_pod(spec={"containers": [container("a", "9E"), container("b", "9E")]})
    assert compute_resources(pod) == {"vcore": INT64_MAX, "pods": 1}


def test_an_init_container_needs_itself_and_the_sidecars_before_it() -> None:
    sidecar = container("s", "1", restartPolicy="Always")
    for inits, vcore in [
        ([container("i", "5"), sidecar], 5000),
        ([sidecar, container("i", "5")], 6000),
        ([sidecar, container("i", "1")], 3000),
    ]:
        pod = make_pod(spec={"containers": [container("a", "2")], "initContainers": inits})
        assert compute_resources(pod)["vcore"] == vcore


def test_pod_level_requests_replace_those_of_the_containers_and_overhead_is_added() -> None:
    whole = {"requests": {"cpu": "3", "memory": "1Ki", "nvidia.com/gpu": "7"}}
    pod = make_pod(requests={"cpu": "1", "nvidia.com/gpu": "1"}, spec={"resources": whole, "overhead": {"cpu": "100m"}})
    assert compute_resources(pod) == {"vcore": 3100, "memory": 1024, "nvidia.com/gpu": 1, "pods": 1}


def resize(**more: object) -> dict[str, object]:
    return {
        "containerStatuses": [
            {"name": "main", "allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "1"}}}
        ],
        **more,
    }


def test_during_a_resize_the_larger_amount_counts() -> None:
    assert compute_resources(make_pod(requests={"cpu": "1"}, status=resize()))["vcore"] == 2000
    assert compute_resources(make_pod(requests={"cpu": "3"}, status=resize()))["vcore"] == 3000


def test_an_infeasible_resize_does_not_count() -> None:
    condition = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    for status in (resize(resize="Infeasible"), resize(conditions=[condition])):
        assert compute_resources(make_pod(requests={"cpu": "9"}, status=status))["vcore"] == 1000
    allocated = {"containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "2"}}], "resize": "Infeasible"}
    assert compute_resources(make_pod(requests={"cpu": "9"}, status=allocated))["vcore"] == 2000
    assert compute_resources(make_pod(requests={"cpu": "9"}, status={"resize": "Infeasible"}))["vcore"] == 9000


def daemon(owner: str) -> Pod:
    field = {"key": "metadata.name", "operator": "In", "values": ["n7"]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return make_pod(owners=[{"kind": owner}], spec={"affinity": affinity})


def test_only_a_pod_of_a_daemon_set_has_a_required_node() -> None:
    assert find_required_node(daemon("DaemonSet")) == "n7"
    assert find_required_node(daemon("ReplicaSet")) == ""
    assert find_required_node(make_pod(owners=[{"kind": "DaemonSet"}])) == ""


def test_tags_have_the_names_the_labels_and_the_time_of_creation() -> None:
    assert build_tags(make_pod(labels={"app": "web"})) == {
        "kubernetes.io/meta/namespace": "default",
        "kubernetes.io/meta/podName": "p1",
        "kubernetes.io/label/app": "web",
        "creationTime": "1769860805",
    }


def test_a_pod_of_the_node_itself_is_static() -> None:
    assert find_foreign_kind(make_pod(owners=[{"kind": "Node"}])) == "static"
    assert find_foreign_kind(make_pod()) == "default"
