"""What changes in pods and workloads: the exact patches, and who may set the user."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from kubernetes_shim.admission.mutations import Surroundings, review
from kubernetes_shim.admission.reviews import (
    AdmissionRequest,
    Operation,
    RequestKind,
    RequestUser,
    ReviewError,
    Verdict,
)
from kubernetes_shim.objects import Namespace, ObjectMeta, PriorityClass
from kubernetes_shim.settings import AdmissionSettings

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
        AdmissionSettings(**settings),
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


@pytest.mark.parametrize("kind", ["DaemonSet", "Deployment", "Job", "ReplicaSet", "StatefulSet"])
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


def test_a_template_without_metadata_gets_some() -> None:
    assert patch_of(review(request("Job", {"spec": {"template": {}}}), surroundings())) == [
        {"op": "add", "path": "/spec/template/metadata", "value": {"annotations": {f"{Y}user.info": ALICE_INFO}}}
    ]


def test_replica_sets_of_controllers_have_the_user_of_their_deployment() -> None:
    created = {"spec": {"template": {"metadata": {}}}}
    assert review(request("ReplicaSet", created, user=CONTROLLER), surroundings()) == Verdict()
    assert review(request("Job", created, user=CONTROLLER), surroundings()).patch


@pytest.mark.parametrize("settings", [{"bypass_namespaces": ("dev",)}, {"process_namespaces": ("prod",)}])
def test_workloads_of_other_namespaces_stay_as_they_are(settings: dict[str, Any]) -> None:
    created = {"spec": {"template": {"metadata": {}}}}
    assert review(request("Job", created), surroundings(**settings)) == Verdict()


def test_a_changed_workload_may_not_get_another_user() -> None:
    def template(info: dict[str, str]) -> dict[str, object]:
        return {"spec": {"template": {"metadata": {"annotations": info}}}}

    def change(old: dict[str, str], new: dict[str, str], **settings: Any) -> Verdict:
        changed = request("Deployment", template(new), old=template(old), operation="UPDATE")
        return review(changed, surroundings(**settings))

    assert "may not set the annotation" in change({}, BOB).refusal
    assert change({}, BOB, external_users=("alice",)) == Verdict()
    assert change(BOB, BOB) == change(BOB, {}) == change({}, {"a": "b"}) == Verdict()


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
