"""The same decisions as YuniKorn's admission controller: `reference.jsonl` has what that of yunikorn-k8shim 1.8.0 made
of pods and workloads. It was recorded from its port. `Y/` stands for the prefix of all keys.
"""

import json
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from yunishard.kubernetes_shim.admission.mutations import Surroundings, review
from yunishard.kubernetes_shim.admission.reviews import AdmissionRequest, RequestKind, RequestUser
from yunishard.kubernetes_shim.admission.users import Access
from yunishard.kubernetes_shim.objects import Namespace, ObjectMeta, PriorityClass
from yunishard.kubernetes_shim.pods import DOMAIN
from yunishard.kubernetes_shim.settings import read_settings

Json = dict[str, Any]

ROWS: Final = [
    json.loads(line.replace("Y/", DOMAIN))
    for line in Path(__file__).with_name("reference.jsonl").read_text().splitlines()
]

SETTINGS: Final = {
    "filtering.bypassNamespaces": "^kube-system$,bypass$",
    "accessControl.externalUsers": "^extuser$",
    "accessControl.externalGroups": "^extgroup$",
}
"""Of all rows, besides their own."""

FLAGS: Final = ["True", "1", "TRUE", "", " true", "false", "t", "maybe"]

NAMESPACES: Final = {
    "dev": {},
    "off": {"namespace.enableYuniKorn": "false"},
    "on-bypass": {"namespace.enableYuniKorn": "true"},
    "nolabel": {"namespace.generateAppId": "false"},
    "badflag": {"namespace.enableYuniKorn": "maybe", "namespace.generateAppId": "maybe"},
    **{f"enable-{number}": {"namespace.enableYuniKorn": flag} for number, flag in enumerate(FLAGS)},
    **{f"generate-{number}": {"namespace.generateAppId": flag} for number, flag in enumerate(FLAGS)},
}
CLASSES: Final = {"pc-false": "false", "pc-true": "true", "pc-bad": "perhaps", "pc-none": None}


def build_meta(annotations: Json) -> ObjectMeta:
    return ObjectMeta(annotations={DOMAIN + key: value for key, value in annotations.items() if value is not None})


NAMESPACE_OBJECTS: Final = {name: Namespace(metadata=build_meta(found)) for name, found in NAMESPACES.items()}
CLASS_OBJECTS: Final = {
    name: PriorityClass(metadata=build_meta({"allow-preemption": value})) for name, value in CLASSES.items()
}


def apply(patch: list[Json], found: Json) -> Json:
    changed: Json = json.loads(json.dumps(found))
    for step in patch:
        assert step["op"] == "add"
        *folders, last = step["path"].strip("/").split("/")
        place = changed
        for name in folders:
            place = place[name]
        place[last] = step["value"]
    return changed


def decide(row: Json) -> object:
    """The object as it is created; `unchanged`, or None if it is refused."""
    values = {f"admissionController.{key}": value for key, value in {**SETTINGS, **row["settings"]}.items()}
    around = Surroundings(Access(read_settings([values]).admission), NAMESPACE_OBJECTS, CLASS_OBJECTS)
    request = AdmissionRequest(
        uid="1",
        kind=RequestKind(row["kind"]),
        namespace=row["namespace"],
        operation=row["operation"],
        user_info=msgspec.convert(row["user"], RequestUser),
        object=msgspec.Raw(json.dumps(row["object"]).encode()),
        old_object=msgspec.Raw(json.dumps(row.get("old")).encode()),
    )
    verdict = review(request, around)
    if verdict.refusal:
        return None
    changed = apply(list(msgspec.to_builtins(verdict.patch)), row["object"])
    return "unchanged" if changed == row["object"] else changed


def find_difference(row: Json) -> str:
    """Why the decision is another one on purpose; empty if it has to be the same."""
    if row["kind"] != "Pod" and (row["operation"] == "UPDATE" or row["namespace"] == "kube-system"):
        return "a user may not be set in any workload, as its controller could not be refused"
    if row["operation"] == "UPDATE" and row["namespace"] == "kube-system":
        return "the user of a pod cannot change in any namespace"
    return ""


def find_change(row: Json) -> Json:
    """Where a template that stays as it is keeps its user, in place of the reference's decision."""
    is_kept = row["kind"] != "Pod" and row["operation"] == "UPDATE" and DOMAIN in json.dumps(row["old"])
    return row["old"] if is_kept and DOMAIN not in json.dumps(row["object"]) else {}


def drop_empty(found: object) -> object:
    """Without empty labels, which the reference writes."""
    if isinstance(found, dict) and found.get("metadata", {}).get("labels") == {}:
        return {**found, "metadata": {key: value for key, value in found["metadata"].items() if key != "labels"}}
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['case']} {row['settings'] or ''}")
def test_the_decision_is_that_of_the_reference(row: Json) -> None:
    expected, found = row.get("result"), decide(row)
    if change := find_change(row):
        assert found == change
        return
    if find_difference(row) and found is None:
        assert DOMAIN + "user.info" in json.dumps(row["object"])
        return
    annotations = expected["metadata"].get("annotations", {}) if isinstance(expected, dict) else {}
    if annotations.get(DOMAIN + "ignore-application"):
        # The reference's last patch replaces all annotations: also the user, which it has set before.
        assert isinstance(found, dict)
        assert annotations.items() <= found["metadata"]["annotations"].items()
        return
    assert drop_empty(found) == drop_empty(expected)
