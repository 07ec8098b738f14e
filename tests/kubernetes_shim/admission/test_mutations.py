"""What changes in pods and workloads: the exact patches, and who may set the user."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from yunishard.kubernetes_shim.admission.mutations import Surroundings, review
from yunishard.kubernetes_shim.admission.reviews import (
    AdmissionRequest,
    Operation,
    RequestKind,
    RequestUser,
    ReviewError,
    Verdict,
)
from yunishard.kubernetes_shim.admission.users import CREATOR, WORKLOADS, Access, Workload
from yunishard.kubernetes_shim.objects import Namespace, ObjectMeta, PriorityClass
from yunishard.kubernetes_shim.settings import AdmissionSettings

Y = "yunikorn.apache.org/"
ALICE = RequestUser("alice", ["staff", "ops"])
CONTROLLER = RequestUser("system:serviceaccount:kube-system:job-controller", ["system:serviceaccounts"])
ALICE_INFO = '{"user":"alice","groups":["staff","ops"]}'
SCHEDULER = {"op": "add", "path": "/spec/schedulerName", "value": "yunikorn"}
ANNOTATIONS = {f"{Y}user.info": ALICE_INFO, f"{Y}allow-preemption": "true"}


def annotated(text: Mapping[str, str]) -> ObjectMeta:
    return ObjectMeta(annotations={f"{Y}{key}": value for key, value in text.items()})


def surroundings(
    *, namespace: Mapping[str, str] | None = None, protects: str | None = None, **settings: Any
) -> Surroundings:
    """Those of a namespace `dev` with these annotations, and of a priority class `high`."""
    return Surroundings(
        Access(AdmissionSettings(**settings)),
        {} if namespace is None else {"dev": Namespace(metadata=annotated(namespace))},
        {} if protects is None else {"high": PriorityClass(metadata=annotated({"allow-preemption": protects}))},
    )


def request(
    kind: str,
    found: object,
    *,
    user: RequestUser = ALICE,
    operation: Operation = "CREATE",
    old: object = None,
    namespace: str = "dev",
) -> AdmissionRequest:
    return AdmissionRequest(
        uid="1",
        kind=RequestKind(kind),
        namespace=namespace,
        operation=operation,
        user_info=user,
        object=msgspec.Raw(json.dumps(found).encode()),
        old_object=msgspec.Raw(json.dumps(old).encode()),
    )


def pod(
    labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None, priority_class: str = ""
) -> dict[str, object]:
    metadata: dict[str, object] = {"generateName": "a-"}
    if labels:
        metadata["labels"] = labels
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": {"containers": None, "priorityClassName": priority_class}}


def patch_of(verdict: Verdict) -> list[dict[str, Any]]:
    assert not verdict.refusal
    found: list[dict[str, Any]] = list(msgspec.to_builtins(verdict.patch))
    return found


def labels_of(verdict: Verdict) -> dict[str, str]:
    """The labels that a patch sets."""
    return next((one["value"] for one in patch_of(verdict) if one["path"] == "/metadata/labels"), {})


def annotations_of(verdict: Verdict) -> dict[str, str]:
    """The annotations that a patch sets, with short keys."""
    found = next((one["value"] for one in patch_of(verdict) if one["path"] == "/metadata/annotations"), {})
    return {key.removeprefix(Y): value for key, value in found.items()}


# New pods -------------------------------------------------------------------------------------------------------------


def test_a_plain_pod_gets_the_scheduler_an_application_and_its_user() -> None:
    labels = {f"{Y}app-id": "yunikorn-dev-autogen", "applicationId": "yunikorn-dev-autogen"}
    assert patch_of(review(request("Pod", pod()), surroundings())) == [
        SCHEDULER,
        {"op": "add", "path": "/metadata/labels", "value": labels},
        {"op": "add", "path": "/metadata/annotations", "value": ANNOTATIONS},
    ]


def test_existing_labels_and_annotations_stay() -> None:
    found = review(request("Pod", pod({"a": "1"}, {"b": "2"})), surroundings())
    assert labels_of(found)["a"] == "1"
    assert annotations_of(found) == {"b": "2", "user.info": ALICE_INFO, "allow-preemption": "true"}


@pytest.mark.parametrize(
    ("labels", "annotations", "added"),
    [
        ({f"{Y}app-id": "x"}, {}, {"applicationId": "x"}),
        ({f"{Y}app-id": "x", "applicationId": "y"}, {}, {"applicationId": "x"}),
        ({f"{Y}app-id": "x", f"{Y}queue": "root.a"}, {}, {"applicationId": "x", "queue": "root.a"}),
        ({"applicationId": "x"}, {}, {}),
        ({"spark-app-selector": "x"}, {}, {}),
        ({}, {f"{Y}app-id": "x"}, {}),
        ({"applicationId": "x", f"{Y}queue": "root.a"}, {}, {"queue": "root.a"}),
    ],
)
def test_application_and_queue_are_copied_to_their_older_names(
    labels: dict[str, str], annotations: dict[str, str], added: dict[str, str]
) -> None:
    found = review(request("Pod", pod(labels, annotations)), surroundings())
    assert labels_of(found) == ({**labels, **added} if added else {})


def test_generated_ids_fit_into_a_label() -> None:
    long = "n" * 63
    found = labels_of(review(request("Pod", pod(), namespace=long), surroundings()))
    assert found["applicationId"] == f"yunikorn-{long}-autogen"[:63]
    unique = surroundings(generate_unique_app_id=True)
    assert labels_of(review(request("Pod", pod(), namespace=long), unique)) == dict.fromkeys(
        (f"{Y}app-id", "applicationId"), f"{'n' * 26}-uniqueautogen"
    )


def test_pods_of_the_scheduler_itself_stay_as_they_are() -> None:
    assert review(request("Pod", pod({"app": "yunikorn"})), surroundings()) == Verdict()


@pytest.mark.parametrize(("labels", "namespace"), [({"app": "yunikorn"}, "dev"), ({}, "kube-system")])
def test_a_pod_that_names_the_scheduler_itself_gets_only_its_user(labels: dict[str, str], namespace: str) -> None:
    created = pod({**labels, f"{Y}username": "bob"}, {"a": "b"})
    created["spec"] = {"schedulerName": "yunikorn"}
    assert patch_of(review(request("Pod", created, namespace=namespace), surroundings())) == [
        {"op": "add", "path": "/metadata/annotations", "value": {"a": "b", f"{Y}user.info": ALICE_INFO}}
    ]


@pytest.mark.parametrize(
    ("namespace", "settings", "is_ours"),
    [
        (None, {}, True),
        (None, {"bypass_namespaces": ("^d",)}, False),
        (None, {"bypass_namespaces": ("^e", "v$")}, False),
        (None, {"process_namespaces": ("^prod",)}, False),
        (None, {"process_namespaces": ("^dev$",), "bypass_namespaces": ()}, True),
        (None, {"process_namespaces": ("^dev$",), "bypass_namespaces": ("dev",)}, False),
        ({"namespace.enableYuniKorn": "true"}, {"bypass_namespaces": ("dev",)}, True),
        ({"namespace.enableYuniKorn": "false"}, {}, False),
        ({"namespace.enableYuniKorn": "maybe"}, {}, False),
    ],
)
def test_the_namespace_decides_whose_pods_the_scheduler_gets(
    namespace: dict[str, str] | None, settings: dict[str, Any], *, is_ours: bool
) -> None:
    found = patch_of(review(request("Pod", pod()), surroundings(namespace=namespace, **settings)))
    assert (SCHEDULER in found) == bool(found) == is_ours


@pytest.mark.parametrize(
    ("namespace", "settings", "is_labelled"),
    [
        (None, {}, True),
        (None, {"no_label_namespaces": ("dev",)}, False),
        (None, {"label_namespaces": ("prod",)}, False),
        ({"namespace.generateAppId": "true"}, {"no_label_namespaces": ("dev",)}, True),
        ({"namespace.generateAppId": "false"}, {}, False),
        ({"namespace.generateAppId": ""}, {}, False),
    ],
)
def test_the_namespace_decides_whose_pods_get_an_application(
    namespace: dict[str, str] | None, settings: dict[str, Any], *, is_labelled: bool
) -> None:
    found = review(request("Pod", pod()), surroundings(namespace=namespace, **settings))
    assert SCHEDULER in patch_of(found)
    assert bool(labels_of(found)) == is_labelled
    assert annotations_of(found).get("ignore-application", "false") == str(not is_labelled).lower()


@pytest.mark.parametrize(
    ("own", "of_class", "expected"),
    [
        (None, None, "true"),
        (None, "false", "false"),
        (None, "true", "true"),
        (None, "perhaps", "true"),
        ("true", "false", None),
        ("false", "true", None),
        ("yes", "false", "false"),
    ],
)
def test_the_priority_class_decides_about_preemption_if_the_pod_does_not(
    own: str | None, of_class: str | None, expected: str | None
) -> None:
    created = pod(None, None if own is None else {f"{Y}allow-preemption": own}, "high")
    found = review(request("Pod", created), surroundings(protects=of_class))
    assert annotations_of(found)["allow-preemption"] == (expected or own)


def test_pods_are_changed_only_when_they_are_created() -> None:
    assert review(request("Pod", pod(), operation="DELETE"), surroundings()) == Verdict()
    assert review(request("Pod", pod(), operation="UPDATE", old=pod()), surroundings()) == Verdict()
    assert review(request("Service", pod()), surroundings()) == Verdict()


# Users ----------------------------------------------------------------------------------------------------------------

BOB = {f"{Y}user.info": '{"user":"bob"}'}


def refusal_for(user: RequestUser, annotations: dict[str, str], **settings: Any) -> str:
    """Why a user may not create a pod with these annotations; the same holds for templates."""
    found = review(request("Pod", pod({}, annotations), user=user), surroundings(**settings))
    workload = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
    assert review(request("Job", workload, user=user), surroundings(**settings)).refusal == found.refusal
    return found.refusal


def test_controllers_may_create_pods_for_users() -> None:
    assert not refusal_for(CONTROLLER, BOB)
    assert refusal_for(CONTROLLER, BOB, trust_controllers=False)


def test_a_refusal_names_the_settings() -> None:
    assert refusal_for(ALICE, BOB) == (
        "the user 'alice' may not set the annotation yunikorn.apache.org/user.info: leave it out, or list the user in "
        "admissionController.accessControl.externalUsers, or a group of the user in externalGroups"
    )


@pytest.mark.parametrize(
    ("settings", "is_permitted"),
    [
        ({"external_users": ("^alice$",)}, True),
        ({"external_users": ("^bob$",)}, False),
        ({"external_groups": ("^x$", "^ops$")}, True),
        ({"external_groups": ("^op$",)}, False),
        ({"bypass_auth": True}, True),
    ],
)
def test_only_listed_users_may_name_another_user(settings: dict[str, Any], *, is_permitted: bool) -> None:
    assert (not refusal_for(ALICE, BOB, **settings)) == is_permitted


@pytest.mark.parametrize("text", ["", "bob", "[]", '{"user": 1}', '{"user":"bob","groups":"a"}'])
def test_the_user_must_be_readable(text: str) -> None:
    assert "expected JSON as in" in refusal_for(CONTROLLER, {f"{Y}user.info": text})
    assert not refusal_for(CONTROLLER, {f"{Y}user.info": text}, bypass_auth=True)


def test_without_authentication_no_user_is_set() -> None:
    found = review(request("Pod", pod()), surroundings(bypass_auth=True))
    assert annotations_of(found) == {"allow-preemption": "true"}
    workload = request("Job", {"spec": {"template": {"metadata": {}}}})
    assert review(workload, surroundings(bypass_auth=True)) == Verdict()


def test_a_user_without_groups_has_none_in_the_annotation() -> None:
    found = review(request("Pod", pod(), user=RequestUser("zed")), surroundings())
    assert annotations_of(found)["user.info"] == '{"user":"zed"}'


def test_a_user_who_is_named_by_itself_is_written_anew() -> None:
    for text in (
        '{"user":"alice"}',
        '{"user":"alice","groups":["admins"],"pod":"boss"}',
        '{"user":"bob","user":"alice"}',
    ):
        found = review(request("Pod", pod({}, {f"{Y}user.info": text})), surroundings())
        assert annotations_of(found)["user.info"] == ALICE_INFO
        created = {"spec": {"template": {"metadata": {"annotations": {f"{Y}user.info": text}}}}}
        (step,) = patch_of(review(request("Job", created), surroundings()))
        assert step["value"] == {f"{Y}user.info": ALICE_INFO}


def test_the_shim_may_name_the_user_of_an_application() -> None:
    shim = RequestUser("system:serviceaccount:yunikorn:yunishard-shim")
    assert refusal_for(shim, BOB)
    around = replace(surroundings(), access=Access(shim_user=shim.username))
    assert not review(request("Pod", pod({}, BOB), user=shim), around).refusal
    assert review(request("Pod", pod({}, BOB), user=RequestUser("")), around).refusal


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        (RequestUser('a"\\b', ["é"]), '{"user":"a\\"\\\\b","groups":["é"]}'),
        (RequestUser("a\nb"), '{"user":"nobody"}'),
        (RequestUser("a", ["b\x01"]), '{"user":"nobody"}'),
        (RequestUser("a", [], {CREATOR: ["u-1"]}), '{"user":"a","pod":"u-1"}'),
        (RequestUser("a", ["b"], {CREATOR: ["u-1"]}), '{"user":"a","groups":["b"],"pod":"u-1"}'),
        (RequestUser("a", [], {CREATOR: ["u-1", "u-2"]}), '{"user":"a"}'),
        (RequestUser("a", [], {CREATOR: ['"']}), '{"user":"a"}'),
    ],
)
def test_the_annotation_has_the_user_the_groups_and_the_pod_that_sent_the_request(
    user: RequestUser, expected: str
) -> None:
    found = review(request("Pod", pod(), user=user), surroundings())
    assert annotations_of(found)["user.info"] == expected
    again = review(request("Pod", pod({}, {f"{Y}user.info": expected}), user=user), surroundings())
    assert "user.info" not in annotations_of(again) or annotations_of(again)["user.info"] == expected


def test_a_user_is_checked_before_everything_else() -> None:
    bypassed = surroundings(bypass_namespaces=("dev",))
    assert review(request("Pod", pod({"app": "yunikorn"}, BOB)), bypassed).refusal


def test_an_overlong_name_is_in_no_list() -> None:
    assert refusal_for(RequestUser("a" * 1025), BOB, external_users=("a",))


def test_the_user_of_a_pod_cannot_change() -> None:
    for old, new in ((pod({}, BOB), pod()), (pod(), pod({}, BOB)), (pod({}, BOB), pod({}, {f"{Y}user.info": "x"}))):
        changed = request("Pod", new, old=old, operation="UPDATE", user=CONTROLLER)
        assert "cannot change" in review(changed, surroundings()).refusal
    same = request("Pod", pod({"a": "b"}, BOB), old=pod({}, BOB), operation="UPDATE")
    assert review(same, surroundings()) == Verdict()


# Workloads ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [one.kind for one in WORKLOADS if len(one.path) == 2])
def test_a_workload_gets_the_user_in_its_template(kind: str) -> None:
    created = {"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}
    assert patch_of(review(request(kind, created), surroundings())) == [
        {
            "op": "add",
            "path": "/spec/template/metadata/annotations",
            "value": {"a": "b", f"{Y}user.info": ALICE_INFO},
        }
    ]


def test_the_template_of_a_cron_job_is_deeper() -> None:
    created = {"spec": {"jobTemplate": {"spec": {"template": {"metadata": {}}}}}}
    (found,) = patch_of(review(request("CronJob", created), surroundings()))
    assert found["path"] == "/spec/jobTemplate/spec/template/metadata/annotations"


def test_a_template_of_its_own_is_a_workload() -> None:
    (found,) = patch_of(review(request("PodTemplate", {"template": {"metadata": {}}}), surroundings()))
    assert found["path"] == "/template/metadata/annotations"


def test_a_template_without_metadata_gets_some() -> None:
    assert patch_of(review(request("Job", {"spec": {"template": {}}}), surroundings())) == [
        {"op": "add", "path": "/spec/template/metadata", "value": {"annotations": {f"{Y}user.info": ALICE_INFO}}}
    ]


def test_replica_sets_of_controllers_have_the_user_of_their_deployment() -> None:
    created = {"spec": {"template": {"metadata": {}}}}
    assert review(request("ReplicaSet", created, user=CONTROLLER), surroundings()) == Verdict()
    assert review(request("Job", created, user=CONTROLLER), surroundings()).patch


def test_a_controller_vouches_only_for_the_user_in_a_template() -> None:
    """Otherwise pods from before, and those of a template without a user, would run as the controller."""
    owned = {"ownerReferences": [{"kind": "CronJob", "name": "c", "uid": "1"}]}
    created = {"metadata": owned, "spec": {"template": {"metadata": {}}}}
    assert review(request("Job", created, user=CONTROLLER), surroundings()) == Verdict()
    found = review(request("Pod", {"metadata": owned, "spec": {}}, user=CONTROLLER), surroundings())
    assert annotations_of(found)["user.info"] == '{"user":"nobody"}'
    found = review(request("Pod", {"metadata": owned, "spec": {}}), surroundings())
    assert annotations_of(found)["user.info"] == ALICE_INFO
    untrusted = surroundings(trust_controllers=False)
    found = review(request("Pod", {"metadata": owned, "spec": {}}, user=CONTROLLER), untrusted)
    assert "job-controller" in annotations_of(found)["user.info"]


@pytest.mark.parametrize("settings", [{"bypass_namespaces": ("dev",)}, {"process_namespaces": ("prod",)}])
def test_workloads_of_other_namespaces_stay_as_they_are(settings: dict[str, Any]) -> None:
    created = {"spec": {"template": {"metadata": {}}}}
    assert review(request("Job", created), surroundings(**settings)) == Verdict()


ALICE_OF_OLD = '{"user":"alice"}'
BOSS = '{"user":"boss"}'
REFUSED = "refused"


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda one: one.kind)
@pytest.mark.parametrize(
    ("old", "new", "is_changed", "settings", "expected"),
    [
        # A template that stays as it is keeps its user, also if the client leaves it out.
        (BOSS, BOSS, False, {}, BOSS),
        (BOSS, None, False, {}, BOSS),
        (None, None, False, {}, None),
        # A user who changes a template becomes its user.
        (BOSS, BOSS, True, {}, ALICE_INFO),
        (BOSS, None, True, {}, ALICE_INFO),
        (None, None, True, {}, ALICE_INFO),
        (ALICE_OF_OLD, ALICE_OF_OLD, True, {}, ALICE_INFO),
        (BOSS, ALICE_INFO, False, {}, ALICE_INFO),
        (BOSS, ALICE_OF_OLD, False, {}, ALICE_INFO),
        # Nobody names another user.
        (None, BOSS, False, {}, REFUSED),
        (ALICE_INFO, BOSS, True, {}, REFUSED),
        (BOSS, "x", False, {}, REFUSED),
        # Those who may create pods for other users may change templates for them.
        (BOSS, BOSS, True, {"external_users": ("alice",)}, BOSS),
        (BOSS, None, True, {"external_groups": ("^ops$",)}, BOSS),
        (None, BOSS, True, {"external_users": ("alice",)}, BOSS),
        (None, None, True, {"external_users": ("alice",)}, None),
        (None, "x", True, {"external_users": ("alice",)}, REFUSED),
        (BOSS, BOSS, True, {"system_users": ("alice",)}, BOSS),
        (BOSS, BOSS, True, {"system_users": ("alice",), "trust_controllers": False}, ALICE_INFO),
        # Elsewhere no user is set, but one that was set does not stay.
        (None, None, True, {"bypass_namespaces": ("dev",)}, None),
        (BOSS, BOSS, True, {"bypass_namespaces": ("dev",)}, ALICE_INFO),
        (None, BOSS, True, {"bypass_auth": True}, BOSS),
        (BOSS, None, True, {"bypass_auth": True}, None),
    ],
)
def test_a_changed_template_has_the_user_who_changed_it(
    workload: Workload, old: str | None, new: str | None, *, is_changed: bool, settings: dict[str, Any],
    expected: str | None,
) -> None:  # fmt: skip
    def build(info: str | None, image: str) -> dict[str, Any]:
        annotations = {} if info is None else {f"{Y}user.info": info}
        found: dict[str, Any] = {"metadata": {"annotations": annotations}, "spec": {"image": image}}
        for name in reversed(workload.path):
            found = {name: found}
        return found

    changed = request(workload.kind, build(new, "b" if is_changed else "a"), old=build(old, "a"), operation="UPDATE")
    verdict = review(changed, surroundings(**settings))
    if expected == REFUSED:
        assert verdict.refusal
        return
    patch = patch_of(verdict)
    assert (patch[0]["value"][f"{Y}user.info"] if patch else new) == expected
    assert all(one["path"] == "/".join(["", *workload.path, "metadata", "annotations"]) for one in patch)


def test_a_workload_without_a_template_is_left_to_the_api_server() -> None:
    for found in ({}, {"spec": None}, {"spec": {"template": None}}, {"spec": []}):
        assert (
            review(request("ReplicationController", found, operation="UPDATE", old=found), surroundings()) == Verdict()
        )


def test_a_template_with_a_user_stays_as_it_is() -> None:
    created = {"spec": {"template": {"metadata": {"annotations": BOB}}}}
    assert review(request("Job", created, user=CONTROLLER), surroundings()) == Verdict()


def test_null_counts_as_absent() -> None:
    unset: dict[str, object] = {"creationTimestamp": None, "labels": None}
    found = review(request("Pod", {"metadata": unset, "spec": {"priorityClassName": None}}), surroundings())
    assert found == review(request("Pod", pod()), surroundings())
    template = {"spec": {"template": {"metadata": unset}}}
    assert patch_of(review(request("Job", template), surroundings()))
    assert review(request("Job", template, old=template, operation="UPDATE"), surroundings()) == Verdict()


def test_an_object_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(ReviewError, match="labels"):
        review(request("Pod", {"metadata": {"labels": 1}}), surroundings())
