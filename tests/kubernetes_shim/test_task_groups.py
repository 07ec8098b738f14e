import json

import pytest

from tests.kubernetes_shim.shim_builders import make_pod
from yunishard.common.messages.kinds import INT64_MAX
from yunishard.common.messages.rm_messages import AddApplicationRequest, UserGroupInformation
from yunishard.kubernetes_shim.task_groups import (
    GangParameters,
    TaskGroupsError,
    build_placeholder,
    describe_unknown_keys,
    list_missing,
    name_placeholder,
    read_gang_parameters,
    read_task_groups,
    sum_placeholders,
)

Y = "yunikorn.apache.org/"
GROUP = {"name": "g", "minMember": 2, "minResource": {"cpu": "500m", "memory": "1Ki"}}


def groups(*found: object) -> dict[str, str]:
    return {f"{Y}task-groups": json.dumps(found)}


def test_task_groups_are_read_from_the_annotation() -> None:
    (group,) = read_task_groups(make_pod(annotations=groups({**GROUP, "nodeSelector": {"zone": "a"}})))
    assert (group.name, group.min_member, group.node_selector) == ("g", 2, {"zone": "a"})
    assert group.resources == {"vcore": 500, "memory": 1024, "pods": 1}
    assert read_task_groups(make_pod()) == []
    unset = {"nodeSelector": None, "tolerations": None, "labels": None}
    assert read_task_groups(make_pod(annotations=groups({**GROUP, **unset}))) == read_task_groups(
        make_pod(annotations=groups(GROUP))
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "expected a JSON list of task groups"),
        ("[" * 100_000, "expected a JSON list of task groups: the JSON is nested too deeply"),
        (json.dumps([{**GROUP, "name": ""}]), "task group 0 (without a name): expected a name"),
        (json.dumps([{**GROUP, "minMember": 0}]), "task group 0 (g): expected a minMember above 0, got 0"),
        (json.dumps([{**GROUP, "minResource": None}]), "expected amounts in minResource"),
        (json.dumps([{**GROUP, "minResource": {"cpu": "much"}}]), "minResource: cpu: 'much' is not a quantity"),
        (json.dumps([{**GROUP, "minMember": 10_001}]), "expected at most 10000 members in all groups"),
    ],
)
def test_task_groups_that_cannot_be_used_are_refused_with_the_reason(text: str, problem: str) -> None:
    with pytest.raises(TaskGroupsError) as caught:
        read_task_groups(make_pod(annotations={f"{Y}task-groups": text}))
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("", GangParameters(0, "Soft")),
        ("placeholderTimeoutInSeconds=30 gangSchedulingStyle=Hard", GangParameters(30, "Hard")),
        ("placeholderTimeoutInSeconds=x gangSchedulingStyle=Firm more", GangParameters(0, "Soft")),
        (" a=b=c  placeholderTimeoutInSeconds=+5 gangSchedulingStyle=hard ", GangParameters(5, "Soft")),
        ("placeholderTimeoutInSeconds=86400000000", GangParameters(86_400_000_000, "Soft")),
        ("placeholderTimeoutInSeconds=9999999999999999999", GangParameters(INT64_MAX // 1000, "Soft")),
        ("placeholderTimeoutInSeconds=-1", GangParameters(0, "Soft")),
    ],
)
def test_pairs_of_gang_parameters_that_cannot_be_read_are_skipped(text: str, parameters: GangParameters) -> None:
    assert read_gang_parameters(make_pod(annotations={f"{Y}schedulingPolicyParameters": text})) == parameters


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        (
            {"task-groups": '[{"Name": "g", "minMembers": 2, "affinity": {"nodeafinity": {}}}]'},
            [
                "annotation Y/task-groups: 'minMembers' in [0] is ignored: did you mean 'minMember'?",
                "annotation Y/task-groups: 'nodeafinity' in [0].affinity is ignored: did you mean 'nodeAffinity'?",
            ],
        ),
        (
            {"user.info": '{"usr": "sue", "x": 1}'},
            [
                "annotation Y/user.info: 'usr' is ignored: did you mean 'user'?",
                "annotation Y/user.info: 'x' is ignored: known are user, groups, pod",
            ],
        ),
        (
            {"schedulingPolicyParameters": "gangSchedulingStyle=Hard placeholdertimeoutinseconds=3"},
            [
                (
                    "annotation Y/schedulingPolicyParameters: 'placeholdertimeoutinseconds' is ignored: "
                    "did you mean 'placeholderTimeoutInSeconds'?"
                )
            ],
        ),
        ({"task-groups": "[", "user.info": '{"USER": "sue"}'}, []),
        ({}, []),
    ],
)
def test_unknown_keys_are_named_with_the_nearest_known_one(annotations: dict[str, str], expected: list[str]) -> None:
    pod = make_pod(annotations={Y + key: text for key, text in annotations.items()})
    assert describe_unknown_keys(pod, with_gang=True) == "; ".join(expected).replace("Y/", Y)
    assert describe_unknown_keys(pod, with_gang=False) == "; ".join(
        one.replace("Y/", Y) for one in expected if "user.info" in one
    )


def test_placeholders_of_a_group_without_requests_take_only_their_place() -> None:
    (group,) = read_task_groups(make_pod(annotations=groups({**GROUP, "minResource": {}})))
    assert group.resources == {"pods": 1}


def test_all_placeholders_of_an_application_are_summed() -> None:
    found = read_task_groups(make_pod(annotations=groups(GROUP, {**GROUP, "name": "h", "minMember": 1})))
    assert sum_placeholders(found) == {"vcore": 1500, "memory": 3072, "pods": 3}
    found = read_task_groups(make_pod(annotations=groups({**GROUP, "minResource": {"memory": "9Ei"}})))
    assert sum_placeholders(found) == {"memory": INT64_MAX, "pods": 2}


def test_the_name_of_a_placeholder_is_the_same_for_each_attempt_and_has_bounded_parts() -> None:
    name = name_placeholder("a" * 40, "g" * 30, "uid", 0)
    assert name == name_placeholder("a" * 40, "g" * 30, "uid", 0)
    assert name.startswith(f"tg-{'a' * 28}-{'g' * 20}-")
    assert len(name.rpartition("-")[2]) == 10
    assert name != name_placeholder("a" * 40, "g" * 30, "uid", 1)


def test_only_missing_placeholders_get_names_that_are_free() -> None:
    (group,) = read_task_groups(make_pod(annotations=groups({**GROUP, "minMember": 3})))
    first = name_placeholder("app", "g", "uid", 0)
    missing = list_missing("app", group, "uid", present=1, names={first})
    assert missing == [name_placeholder("app", "g", "uid", number) for number in (1, 2)]
    later = list_missing("app", group, "uid", present=2, names=set(), first=7)
    assert later == [name_placeholder("app", "g", "uid", 7)]


def test_a_placeholder_has_the_constraints_of_its_group_and_belongs_to_the_originator() -> None:
    toleration = {"key": "gpu", "operator": "Exists"}
    marks = groups(
        {
            **GROUP,
            "nodeSelector": {"zone": "a"},
            "tolerations": [toleration],
            "labels": {"l": "1"},
            "Affinity": {"PodAntiAffinity": {}, "x": {}},
        }
    )
    origin = make_pod(
        annotations=marks, spec={"priorityClassName": "high", "imagePullSecrets": [{"name": "s"}]}, namespace="ns"
    )
    (group,) = read_task_groups(origin)
    request = AddApplicationRequest(queue_name="root.a", ugi=UserGroupInformation(user="sue", groups=["dev"]))
    body = build_placeholder("tg-1", "app", request, group, origin, "pause:1")
    assert body["metadata"] == {
        "name": "tg-1",
        "namespace": "ns",
        "labels": {"l": "1", f"{Y}app-id": "app", f"{Y}queue": "root.a"},
        "annotations": {
            **marks,
            "internal.yunikorn.apache.org/placeholder": "true",
            f"{Y}task-group-name": "g",
            f"{Y}user.info": '{"user":"sue","groups":["dev"]}',
        },
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": "p1",
                "uid": "uid-p1",
                "controller": False,
                "blockOwnerDeletion": True,
            }
        ],
    }
    amounts = {"cpu": "500m", "memory": "1Ki"}
    assert body["spec"] == {
        "schedulerName": "yunikorn",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"runAsUser": 1000, "runAsGroup": 3000},
        "containers": [
            {
                "name": "pause",
                "image": "pause:1",
                "imagePullPolicy": "IfNotPresent",
                "resources": {"requests": amounts, "limits": amounts},
            }
        ],
        "nodeSelector": {"zone": "a"},
        "tolerations": [toleration],
        "topologySpreadConstraints": [],
        "imagePullSecrets": [{"name": "s"}],
        "affinity": {"podAntiAffinity": {}},
        "priorityClassName": "high",
    }
