"""An ordinary user with the rights to edit a namespace, with a real API server, admission controller, shim and core:
nothing that the user writes runs as another user, also while no admission controller runs.

`boss` is a user with the same rights; `eve` has all rights in the namespace, for subresources that are not in `edit`.
"""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import httpx
import pytest
from msgspec import convert

from tests.kubernetes.controlplane import ControlPlane, Json, eventually
from tests.kubernetes.system import Admission, System, run_admission
from yunishard.kubernetes_shim.admission.registrations import REVISIONS
from yunishard.kubernetes_shim.admission.users import CREATOR, WORKLOADS, Workload
from yunishard.kubernetes_shim.objects import Pod
from yunishard.kubernetes_shim.pods import SCHEDULER, USER_INFO, USER_LABEL, find_user

NAMESPACE: Final = "users"
SETTINGS_NAMESPACE: Final = "users-settings"
SETTINGS: Final = {
    "admissionController.filtering.processNamespaces": f"^{NAMESPACE}$",
    "admissionController.accessControl.systemUsers": "^admin$",
}
"""The controllers of this control plane, and the shim, have the rights of `admin`."""

GROUPS: Final = ("staff", "system:authenticated")
BOSS_INFO: Final = '{"user":"boss","groups":["staff","system:authenticated"]}'
ALICE_INFO: Final = BOSS_INFO.replace("boss", "alice")
ACCOUNT: Final = f"system:serviceaccount:{NAMESPACE}:default"

MERGE: Final = "application/merge-patch+json"
STEPS: Final = "application/json-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"

POD: Final = Workload("Pod", "", "pods", ())
"""A pod is its own template."""
KINDS: Final = (POD, *WORKLOADS)


class Act:
    """Requests of one user."""

    def __init__(self, plane: ControlPlane, user: str) -> None:
        self.plane, self.user = plane, user

    def send(self, method: str, kind: Workload, name: str = "", body: object = None, **more: Any) -> httpx.Response:
        path = "/".join(filter(None, (path_of(kind), name, more.pop("subresource", ""))))
        query = more.pop("query", "")
        return self.plane.send(method, f"{path}{query}", body, user=self.user, groups=GROUPS, **more)

    def create(self, kind: Workload, body: Json) -> httpx.Response:
        return self.send("POST", kind, body=body)

    def get(self, kind: Workload, name: str) -> Json:
        found: Json = self.plane.request("GET", f"{path_of(kind)}/{name}")
        return found


def path_of(kind: Workload) -> str:
    group = "api/v1" if not kind.group else f"apis/{kind.group}/v1"
    return f"/{group}/namespaces/{NAMESPACE}/{kind.plural}"


def template_of(kind: Workload, found: Json) -> Json:
    for name in kind.path:
        found = found[name]
    return found


def user_of(kind: Workload, found: Json) -> str:
    """The user as whom the shim runs the pods of an object."""
    metadata = {"annotations": {}, "labels": {}, **template_of(kind, found).get("metadata", {})}
    return find_user(convert({"metadata": metadata}, Pod)).user


def build(kind: Workload, name: str, *, by: str, app: str = "", replicas: int = 0, **metadata: Any) -> Json:
    """An object whose pods have these annotations and labels; the label `by` names the user who wrote it."""
    labels = {"x": name, "applicationId": app or name, "by": by, **metadata.get("labels", {})}
    container = {"name": "main", "image": "a", "resources": {"requests": {"cpu": "10m"}}}
    spec: Json = {"schedulerName": SCHEDULER, "containers": [container], "terminationGracePeriodSeconds": 0}
    if kind.kind in ("Job", "CronJob"):
        spec["restartPolicy"] = "Never"
    template: Json = {"metadata": {"labels": labels, "annotations": metadata.get("annotations", {})}, "spec": spec}
    group = kind.group or "core"
    found: Json = {"apiVersion": "v1" if group == "core" else f"{group}/v1", "kind": kind.kind}
    found["metadata"] = {"name": name, "namespace": NAMESPACE}
    match kind.kind:
        case "Pod":
            found["metadata"] |= template["metadata"]
            found["spec"] = spec
        case "PodTemplate":
            found["template"] = template
        case "CronJob":
            job = {"spec": {"template": template}}
            found["spec"] = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": job}
        case "Job":
            found["spec"] = {"template": template, "suspend": True}  # so that its template can change
        case "ReplicationController":
            found["spec"] = {"replicas": replicas, "selector": {"x": name}, "template": template}
        case "DaemonSet":
            spec["nodeSelector"] = {"site": NAMESPACE if replicas else "none"}
            found["spec"] = {"selector": {"matchLabels": {"x": name}}, "template": template}
        case _:
            found["spec"] = {"replicas": replicas, "selector": {"matchLabels": {"x": name}}, "template": template}
    if kind.kind == "StatefulSet":
        found["spec"]["serviceName"] = "none"
    return found


def rewrite(kind: Workload, found: Json, info: str | None) -> Json:
    """The object with another image, written by `alice`, and this annotation."""
    changed = copy.deepcopy(found)
    changed["metadata"].pop("managedFields", None)
    template = template_of(kind, changed)
    template["metadata"].setdefault("labels", {})["by"] = "alice"
    annotations = template["metadata"].setdefault("annotations", {})
    annotations.pop(USER_INFO, None)
    if info is not None:
        annotations[USER_INFO] = info
    template["spec"]["containers"][0]["image"] = "b"
    return changed


def difference(kind: Workload, info: str | None, *, with_image: bool = True) -> Json:
    """A merge patch of the template: another image, written by `alice`, and this annotation; None removes it."""
    containers = [{"name": "main", "image": "b"}]
    found: Json = {"metadata": {"labels": {"by": "alice"}, "annotations": {USER_INFO: info}}}
    if with_image:
        found["spec"] = {"containers": containers}
    for name in reversed(kind.path):
        found = {name: found}
    return found


@pytest.fixture(scope="module")
def admission(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admission]:
    """An admission controller, two users who may edit the namespace, and one who may do everything there."""
    for name in (NAMESPACE, SETTINGS_NAMESPACE):
        plane.create_namespace(name)
    maps = {"metadata": {"name": "yunikorn-configs", "namespace": SETTINGS_NAMESPACE}, "data": SETTINGS}
    plane.create("configmaps", maps)
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
    for name, rule in (
        ("everything", {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}),
        ("templates", {"apiGroups": [""], "resources": ["podtemplates"], "verbs": ["*"]}),  # they are not in `edit`
    ):
        plane.request("POST", f"{rbac}/roles", {"metadata": {"name": name}, "rules": [rule]})
    for user, role in (
        ("alice", {"kind": "Role", "name": "templates"}),
        ("boss", {"kind": "Role", "name": "templates"}),
        ("alice", {"kind": "ClusterRole", "name": "edit"}),
        ("boss", {"kind": "ClusterRole", "name": "edit"}),
        (ACCOUNT, {"kind": "ClusterRole", "name": "edit"}),
        ("eve", {"kind": "Role", "name": "everything"}),
    ):
        plane.request(
            "POST",
            f"{rbac}/rolebindings",
            {
                "metadata": {"name": f"{user.replace(':', '-')}-{role['name']}"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", **role},
                "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
            },
        )
    folder = tmp_path_factory.mktemp("users")
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "1000"}
    nodes = plane.create_nodes(2, resources=amounts, labels={"site": NAMESPACE})
    with run_admission(plane, folder, SETTINGS_NAMESPACE, "--shim-user", "admin") as running:
        eventually(lambda: is_stamped(plane) and is_guarded(plane), what="webhook or policy are not in force")
        yield running
    for kind in reversed(KINDS):
        plane.request("DELETE", path_of(kind), {"propagationPolicy": "Background", "gracePeriodSeconds": 0})
    eventually(lambda: not plane.list("pods", NAMESPACE), what="pods are left")
    for node in nodes:
        plane.delete("nodes", node)


def is_stamped(plane: ControlPlane) -> bool:
    answer = Act(plane, "alice").send("POST", POD, body=build(POD, "probe", by="alice"), query="?dryRun=All")
    return answer.status_code < 300 and user_of(POD, answer.json()) == "alice"


def is_guarded(plane: ControlPlane) -> bool:
    """Whether the policy refuses a stranger's revision, which no webhook does."""
    body = build_revision("probe", {USER_INFO: BOSS_INFO})
    return Act(plane, "eve").send("POST", REVISION, body=body, query="?dryRun=All").status_code in (403, 422)


REVISION: Final = Workload("ControllerRevision", "apps", REVISIONS, ("data", "spec", "template"))


def build_revision(name: str, annotations: dict[str, str]) -> Json:
    data = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "revision": 1,
        "data": data,
    }


MODES: Final = ("up", "away")
SUBRESOURCE_USERS: Final = ("alice", "eve")


@pytest.fixture(scope="module")
def objects_of_boss(plane: ControlPlane, admission: Admission) -> None:
    """Objects that `boss` has created while the admission controller ran, for each mode."""
    boss = Act(plane, "boss")
    for mode in MODES:
        assert boss.create(POD, build(POD, f"driver-{mode}", by="boss", app=f"spark-{mode}")).status_code < 300
        for kind in KINDS:
            names = {f"boss-{kind.plural}-{number}-{mode}": number in TAKEN_OVER for number in range(len(CHANGES))}
            names |= {f"sub-{kind.plural}-{user}-{mode}": False for user in SUBRESOURCE_USERS}
            for name, replicas in names.items():
                answer = boss.create(kind, build(kind, name, by="boss", replicas=int(replicas)))
                assert answer.status_code < 300, answer.text
                assert user_of(kind, answer.json()) == "boss"


@pytest.fixture(params=MODES)
def mode(
    request: pytest.FixtureRequest, plane: ControlPlane, admission: Admission, objects_of_boss: None
) -> Iterator[str]:
    """Whether the admission controller runs."""
    mode = str(request.param)
    if mode == "away":
        admission.stop()
    yield mode
    if mode == "away":
        admission.start()
        eventually(lambda: is_stamped(plane), what="the webhook is not called again")


CREATIONS: Final = {
    "plain": {},
    "annotation": {"annotations": {USER_INFO: BOSS_INFO}},
    "annotation-of-another-form": {"annotations": {USER_INFO: '{"user":"alice","User":"boss","user":"boss"}'}},
    "empty-annotation": {"annotations": {USER_INFO: ""}, "labels": {USER_LABEL: "boss"}},
    "label": {"labels": {USER_LABEL: "boss"}},
    "label-of-the-scheduler": {"labels": {USER_LABEL: "boss", "app": "yunikorn"}},
    "annotation-and-label-of-the-scheduler": {
        "annotations": {USER_INFO: BOSS_INFO},
        "labels": {"app": "yunikorn"},
    },
}

Change = Callable[[Act, Workload, str], list[httpx.Response]]


def put(info: str | None) -> Change:
    return lambda act, kind, name: [act.send("PUT", kind, name, rewrite(kind, act.get(kind, name), info))]


def patch(info: str | None, content_type: str = MERGE) -> Change:
    def change(act: Act, kind: Workload, name: str) -> list[httpx.Response]:
        with_image = kind is not POD or content_type == STRATEGIC  # a list of containers cannot be replaced in a pod
        body = difference(kind, info, with_image=with_image)
        return [act.send("PATCH", kind, name, body, content_type=content_type)]

    return change


def image_only(act: Act, kind: Workload, name: str) -> list[httpx.Response]:
    body = difference(kind, None)
    template_of(kind, body)["metadata"].pop("annotations")
    return [act.send("PATCH", kind, name, body, content_type=STRATEGIC)]


def apply(info: str | None) -> Change:
    def change(act: Act, kind: Workload, name: str) -> list[httpx.Response]:
        body = rewrite(kind, build(kind, name, by="alice"), info)
        query = "?fieldManager=alice&force=true"
        return [act.send("PATCH", kind, name, body, content_type=APPLY, query=query)]

    return change


def step_by_step(act: Act, kind: Workload, name: str) -> list[httpx.Response]:
    """Remove the annotation, and set it anew, each by a JSON patch."""
    path = "".join(f"/{one}" for one in (*kind.path, "metadata", "annotations", USER_INFO.replace("/", "~1")))
    steps: list[Json] = [{"op": "remove", "path": path}, {"op": "add", "path": path, "value": BOSS_INFO}]
    found = [act.send("PATCH", kind, name, [step], content_type=STEPS) for step in steps]
    return [*found, *patch(BOSS_INFO)(act, kind, name)]


def remove_then_label(act: Act, kind: Workload, name: str) -> list[httpx.Response]:
    labels: Json = {"metadata": {"labels": {USER_LABEL: "boss", "by": "alice"}}}
    for one in reversed(kind.path):
        labels = {one: labels}
    return [*patch(None)(act, kind, name), act.send("PATCH", kind, name, labels, content_type=MERGE)]


CHANGES: Final[dict[str, Change]] = {
    "put": put(BOSS_INFO),
    "put-without": put(None),
    "merge-patch": patch(BOSS_INFO),
    "merge-patch-without": patch(None),
    "strategic-patch": patch(BOSS_INFO, STRATEGIC),
    "strategic-patch-of-the-image": image_only,
    "apply": apply(BOSS_INFO),
    "apply-without": apply(None),
    "step-by-step": step_by_step,
    "remove-then-label": remove_then_label,
}
"""What a user tries with an object, of its own or of another user, to write pods of another user."""

TAKEN_OVER: Final = (0, 3, 7)
"""The changes whose objects of `boss` have pods."""


def test_nothing_that_a_user_writes_runs_as_another_user(plane: ControlPlane, system: System, mode: str) -> None:
    alice = Act(plane, "alice")
    problems, refused, passed = [], 0, 0
    for kind in KINDS:
        for what, metadata in CREATIONS.items():
            name = f"alice-{kind.plural}-{what}-{mode}"[:52]
            answer = alice.create(kind, build(kind, name, by="alice", replicas=1, **metadata))
            refused, passed = refused + (answer.status_code >= 400), passed + (answer.status_code < 300)
            problems += check_written(kind, answer, f"{mode}: create {kind.kind} {what}")
        for number, (what, change) in enumerate(CHANGES.items()):
            own = f"own-{kind.plural}-{number}-{mode}"
            assert alice.create(kind, build(kind, own, by="alice")).status_code < 300
            for name in (own, f"boss-{kind.plural}-{number}-{mode}"):
                for answer in change(alice, kind, name):
                    assert answer.status_code < 500, answer.text
                    refused, passed = refused + (answer.status_code >= 400), passed + (answer.status_code < 300)
                problems += check_stored(kind, alice.get(kind, name), f"{mode}: {what} of {name}")
    assert not problems, "\n".join(problems)
    assert refused > 20
    assert passed > 20
    for kind in KINDS:
        if kind.kind == "Job":
            resume = {"spec": {"suspend": False}}
            for job in plane.request("GET", path_of(kind))["items"]:
                plane.request("PATCH", f"{path_of(kind)}/{job['metadata']['name']}", resume, content_type=MERGE)
    check_core(plane, system)


def check_written(kind: Workload, answer: httpx.Response, what: str) -> list[str]:
    if answer.status_code >= 400:
        assert answer.status_code in (403, 422), answer.text
        return []
    return check_stored(kind, answer.json(), what)


def author_of(kind: Workload, found: Json) -> str:
    """The user who wrote what the pods run. Another label on a pod makes it no other program."""
    template = template_of(kind, found)
    is_program_of_boss = template["spec"]["containers"][0]["image"] == "a"
    if is_program_of_boss and found["metadata"]["name"].startswith(f"boss-{POD.plural}-"):
        return "boss"
    return str(template["metadata"]["labels"]["by"])


def check_stored(kind: Workload, found: Json, what: str) -> list[str]:
    """Return a problem if an object that `alice` wrote runs as another user, or one of `boss` does not as that one."""
    by, user = author_of(kind, found), user_of(kind, found)
    is_boss = by == "boss" and user in ("boss", "nobody", "alice")
    is_alice = by == "alice" and user in ("alice", "nobody")
    return [] if is_boss or is_alice else [f"{what}: written by {by}, runs as {user}"]


def check_core(plane: ControlPlane, system: System) -> None:
    """Every pod is in an application of the user who wrote it, or of nobody."""
    by: dict[str, str] = {}
    users: dict[str, str] = {}

    def are_known() -> bool:
        pods = [one for one in plane.list("pods", NAMESPACE) if one["status"].get("phase") != "Succeeded"]
        by.clear()
        by.update({one["metadata"]["uid"]: author_of(POD, one) for one in pods})
        users.update(users_of_allocations(system))
        return len(by) > 20 and set(by) <= set(users)

    eventually(are_known, what="the core does not have all pods")
    wrong = [(by[uid], users[uid]) for uid in by if users[uid] not in (by[uid], "nobody")]
    assert [one for one in wrong if one[0] == "alice"] == []
    ids = system.ask("partition/default/applications/active") + system.ask("partition/default/applications/completed")
    assert not [one for one in ids if one["applicationID"].startswith(("alice-", "own-")) and one["user"] == "boss"]


def users_of_allocations(system: System) -> dict[str, str]:
    """Allocation key or ask to the user of its application."""
    found = {}
    for one in system.ask("partition/default/applications/active"):
        for item in (*(one.get("allocations") or ()), *(one.get("requests") or ())):
            found[item["allocationKey"]] = one["user"]
    return found


@pytest.mark.parametrize("user", SUBRESOURCE_USERS)
def test_no_subresource_names_another_user(plane: ControlPlane, mode: str, user: str) -> None:
    act = Act(plane, user)
    pod = f"sub-pods-{user}-{mode}"
    marks = {"annotations": {USER_INFO: ALICE_INFO}, "labels": {USER_LABEL: "alice"}}
    for subresource in ("status", "ephemeralcontainers", "resize"):
        found = {**act.get(POD, pod)}
        found["metadata"] = {**found["metadata"], **marks}
        for answer in (
            act.send("PUT", POD, pod, found, subresource=subresource),
            act.send("PATCH", POD, pod, {"metadata": marks}, subresource=subresource, content_type=MERGE),
            act.send(
                "PATCH",
                POD,
                pod,
                {"metadata": {"annotations": {USER_INFO: None}}},
                subresource=subresource,
                content_type=MERGE,
            ),
        ):
            assert answer.status_code < 500, answer.text
        assert user_of(POD, act.get(POD, pod)) == "boss", subresource
    for kind, name, subresource in ((POD, pod, "binding"), (Workload("Binding", "", "bindings"), "", "")):
        body = {"metadata": {"name": pod, **marks}, "target": {"kind": "Node", "name": "node-1"}}
        assert act.send("POST", kind, name, body, subresource=subresource).status_code == 403
    assert user_of(POD, act.get(POD, pod)) == "boss"
    assert act.send("POST", REVISION, body=build_revision("stolen", {USER_INFO: BOSS_INFO})).status_code == 403
    for kind in WORKLOADS:
        if kind.kind in ("PodTemplate",):
            continue
        name = f"sub-{kind.plural}-{user}-{mode}"
        act.send("PATCH", kind, name, difference(kind, ALICE_INFO), subresource="status", content_type=MERGE)
        act.send("PATCH", kind, name, {"spec": {"replicas": 0}}, subresource="scale", content_type=MERGE)
        assert user_of(kind, act.get(kind, name)) == "boss"


def test_a_pod_joins_the_application_of_another_user_only_if_a_pod_of_it_creates_it(
    plane: ControlPlane, system: System, mode: str
) -> None:
    app = f"spark-{mode}"
    account, alice = Act(plane, ACCOUNT), Act(plane, "alice")
    driver = account.get(POD, f"driver-{mode}")
    creator = {CREATOR: driver["metadata"]["uid"]}
    answers = [
        account.send("POST", POD, body=build(POD, f"executor-{mode}", by="boss", app=app), extra=creator),
        alice.create(POD, build(POD, f"intruder-{mode}", by="alice", app=app)),
        account.create(POD, build(POD, f"impersonator-{mode}", by="alice", app=app)),
    ]
    executor = answers[0].json()["metadata"].get("annotations", {}).get(USER_INFO, BOSS_INFO)
    forged = build(POD, f"forged-{mode}", by="alice", app=app, annotations={USER_INFO: executor})
    assert alice.create(POD, forged).status_code == 403
    answers.append(account.create(POD, forged))  # it names itself, and an admission controller replaces the annotation
    pods = [driver, *(one.json() for one in answers if one.status_code < 300)]
    uids = {one["metadata"]["uid"]: one["metadata"]["name"].partition("-")[0] for one in pods}
    eventually(lambda: set(uids) <= set(users_of_allocations(system)), what="the core does not have all pods")
    users = users_of_allocations(system)
    assert {name: users[uid] for uid, name in uids.items()} == (
        {"driver": "boss", "executor": "boss", "intruder": "alice", "impersonator": ACCOUNT, "forged": ACCOUNT}
        if mode == "up"
        else {"driver": "boss", "executor": "nobody", "intruder": "nobody", "impersonator": "nobody"}
    )


def test_every_kind_with_a_template_of_pods_is_guarded(plane: ControlPlane) -> None:
    """By the schemas of the API server: a kind that Kubernetes adds has to be added to ours."""
    schemas: Json = plane.request("GET", "/openapi/v2")["definitions"]

    def has_template(name: str, seen: frozenset[str] = frozenset()) -> bool:
        if name.endswith("core.v1.PodTemplateSpec"):
            return True
        inside = {text.split('"')[0] for text in json.dumps(schemas[name]).split('"#/definitions/')[1:]}
        return any(has_template(one, seen | {name}) for one in inside - seen)

    found = set()
    for name, schema in schemas.items():
        for kind in schema.get("x-kubernetes-group-version-kind", ()):
            if not kind["kind"].endswith("List") and has_template(name):
                found.add((kind["group"], kind["kind"]))
    assert found == {(one.group, one.kind) for one in WORKLOADS}


def test_pods_without_a_user_are_created_while_no_admission_controller_runs(
    plane: ControlPlane, admission: Admission
) -> None:
    admission.stop()
    created = Act(plane, "alice").create(POD, build(POD, "open", by="alice"))
    assert created.status_code == 201, created.text
    assert user_of(POD, created.json()) == "nobody"
    own = build(POD, "own", by="alice", annotations={USER_INFO: ALICE_INFO})
    assert Act(plane, "alice").create(POD, own).status_code == 201
    admission.start()
