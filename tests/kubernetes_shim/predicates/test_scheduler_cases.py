"""The filters decide as kube-scheduler's do, in the cases of its own test tables and in generated clusters.

`scheduler_cases/README.md` says where the cases come from.
"""

from pathlib import Path

import pytest
from msgspec import Struct, convert, field, json

from yunishard.kubernetes_shim import objects
from yunishard.kubernetes_shim.cluster import Cluster
from yunishard.kubernetes_shim.objects import Kind, Object, Pod
from yunishard.kubernetes_shim.predicates.evaluation import refuse, refuse_by_spread
from yunishard.kubernetes_shim.volumes import (
    plan_binding,
    refuse_by_limit,
    refuse_by_zone,
    refuse_claims,
    refuse_shared,
)

KINDS: dict[str, Kind[Object]] = {
    kind.struct.__name__.lower(): kind for kind in vars(objects).values() if isinstance(kind, Kind)
}
ASKED = "asked"


class Case(Struct, frozen=True, kw_only=True):
    """A pod in a cluster, and what kube-scheduler's tests expect."""

    source: str
    name: str
    pod: dict[str, object]
    objects: list[dict[str, object]]
    verdicts: dict[str, bool] = field(default_factory=dict)
    """Whether the pod may run, by node."""
    counts: list[dict[str, int]] | None = None
    """Pods by topology value, for each constraint that spreads the pod."""
    without: list[int] = field(default_factory=list)
    """Pods that do not count, by their place among the objects."""
    bindings: dict[str, str] | None = None
    """Volumes by claim."""
    provisions: list[str] | None = None


FOLDER = Path(__file__).parent / "scheduler_cases"
FILES = ("cases.jsonl", "generated.jsonl")
CASES = [json.decode(line, type=Case) for name in FILES for line in (FOLDER / name).read_bytes().splitlines()]


def make_cluster(case: Case) -> Cluster:
    cluster = Cluster()
    for number, one in enumerate(case.objects):
        kind = KINDS[str(one["kind"]).lower()]
        body = {key: value for key, value in one.items() if key != "kind"}
        cluster.set_object(convert(with_uid(body, f"uid-{number}"), kind.struct))
    cluster.set_object(convert(with_uid(case.pod, ASKED), Pod))
    return cluster


def with_uid(body: dict[str, object], uid: str) -> dict[str, object]:
    metadata = body.get("metadata") or {}
    assert isinstance(metadata, dict)
    return {**body, "metadata": {"uid": uid, **metadata}}


def decide(cluster: Cluster, case: Case, uid: str, node: str) -> str | None:
    """Ask the filter that the case is about."""
    pod, record = cluster.pods[uid], cluster.nodes[node]
    match case.source.partition("/")[0]:
        case "volumebinding":
            return plan_binding(cluster, uid, node).refusal or None
        case "volumezone":
            return refuse_by_zone(cluster.volumes, pod, record)
        case "nodevolumelimits":
            return refuse_claims(cluster.volumes, pod) or refuse_by_limit(cluster.volumes, pod, record)
        case "volumerestrictions":
            with cluster.index.without([pod]):
                missing = refuse_claims(cluster.volumes, pod)
                return missing or refuse_shared(cluster.volumes, cluster.index.claim_users, pod)
        case "podtopologyspread":
            return refuse_by_spread(cluster.index.find_terms(pod.shape), record)
    return refuse(cluster, uid, node)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.source}: {case.name}")
def test_decides_as_kube_scheduler(case: Case) -> None:
    cluster = make_cluster(case)
    uid = str(case.pod.get("metadata", {}).get("uid", ASKED))  # type: ignore[union-attr, attr-defined]
    found = {node: decide(cluster, case, uid, node) for node in case.verdicts}
    assert {node: reason is None for node, reason in found.items()} == case.verdicts, found
    if case.counts is not None:
        absent = [cluster.pods[f"uid-{number}"] for number in case.without]
        terms = cluster.index.find_terms(cluster.pods[uid].shape)
        with cluster.index.without(absent):
            counted = [
                {value: rule.counts.by_value.get(value, 0) for value in domains}
                for rule in terms.spread
                for domains in [rule.counts.eligible.domains[rule.counts.topology_key]]
            ]
        assert counted == case.counts
    if case.bindings is not None:
        plan = plan_binding(cluster, uid, "node1")
        assert {one.claim[1]: one.volume for one in plan.bindings} == case.bindings
        assert [one.claim[1] for one in plan.provisions] == (case.provisions or [])
