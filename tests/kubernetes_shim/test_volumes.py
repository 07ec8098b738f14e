"""Plans for the claims of a pod, from the choice of volumes to their binding. Cases of the choice itself are those of
`predicates/test_scheduler_cases.py`.
"""

from msgspec import convert, structs

from tests.kubernetes_shim.shim_builders import Json, make_node, make_pod
from yunishard.kubernetes_shim.cluster import Cluster
from yunishard.kubernetes_shim.objects import PersistentVolume, PersistentVolumeClaim, StorageClass
from yunishard.kubernetes_shim.predicates.volume_objects import VolumePlan
from yunishard.kubernetes_shim.volumes import BindingState, Progress, check_binding, list_patches, plan_binding

WAIT, BOUND = BindingState(Progress.WAIT), BindingState(Progress.BOUND)


def make_class(name: str = "local", provisioner: str = "kubernetes.io/no-provisioner") -> StorageClass:
    body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    return convert(body, StorageClass)


def make_claim(
    name: str = "c1",
    *,
    storage_class: str = "local",
    size: str = "1Gi",
    version: str = "1",
    bound_to: str = "",
    annotations: dict[str, str] | None = None,
) -> PersistentVolumeClaim:
    completed = {"pv.kubernetes.io/bind-completed": "yes"} if bound_to else {}
    body: Json = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": version,
            "annotations": {**completed, **(annotations or {})},
        },
        "spec": {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            "volumeName": bound_to,
        },
    }
    return convert(body, PersistentVolumeClaim)


def make_volume(
    name: str, *, node: str = "n1", size: str = "1Gi", version: str = "1", claim: str = ""
) -> PersistentVolume:
    term = {"matchExpressions": [{"key": "host", "operator": "In", "values": [node]}]}
    body: Json = {
        "metadata": {"name": name, "resourceVersion": version},
        "spec": {
            "storageClassName": "local",
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": size},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            "claimRef": {"namespace": "default", "name": claim, "uid": f"uid-{claim}"} if claim else None,
        },
        "status": {"phase": "Bound" if claim else "Available"},
    }
    return convert(body, PersistentVolume)


def make_cluster(*objects: object, claims: tuple[str, ...] = ("c1",)) -> Cluster:
    cluster = Cluster()
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    for name in ("n1", "n2"):
        cluster.set_object(make_node(name, labels={"host": name}))
    for pod in ("p1", "p2"):
        cluster.set_object(make_pod(pod, spec={"volumes": volumes}))
    for one in (make_class(), make_class("made", "driver"), *objects):
        cluster.set_object(one)  # type: ignore[arg-type]
    return cluster


def volumes_of(plan: VolumePlan) -> list[str]:
    return [one.volume for one in plan.bindings]


def test_a_pod_without_unbound_claims_is_bound() -> None:
    cluster = make_cluster(make_claim(bound_to="v1"), make_volume("v1", claim="c1"))
    assert plan_binding(cluster, "uid-p1", "n1").is_bound
    assert plan_binding(cluster, "uid-p1", "n2").refusal == "node cannot reach volume v1"


def test_the_smallest_volume_that_fits_is_chosen() -> None:
    volumes = [make_volume("large", size="9Gi"), make_volume("fits", size="2Gi"), make_volume("small", size="1Mi")]
    cluster = make_cluster(make_claim(), *volumes)
    assert volumes_of(plan_binding(cluster, "uid-p1", "n1")) == ["fits"]
    assert plan_binding(cluster, "uid-p1", "n2").refusal == "no volume on the node fits the claims of the pod"


def test_reserved_volumes_are_not_chosen_again_until_they_are_released() -> None:
    cluster = make_cluster(make_claim(), make_volume("v1"))
    cluster.assume_volumes("uid-p1", plan_binding(cluster, "uid-p1", "n1"))
    cluster.set_object(make_claim("c2"))
    cluster.set_object(make_pod("p3", spec={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c2"}}]}))
    assert plan_binding(cluster, "uid-p3", "n1").refusal
    cluster.forget("uid-p1")
    assert volumes_of(plan_binding(cluster, "uid-p3", "n1")) == ["v1"]


def test_pods_that_share_a_claim_wait_for_the_one_whose_volume_is_being_bound() -> None:
    cluster = make_cluster(make_claim(), make_volume("v1"), make_volume("v2"))
    cluster.assume_volumes("uid-p1", plan_binding(cluster, "uid-p1", "n1"))
    assert volumes_of(plan_binding(cluster, "uid-p1", "n1"))
    assert plan_binding(cluster, "uid-p2", "n1").refusal == "a claim of the pod is being bound for another pod"
    cluster.forget("uid-p1")
    assert volumes_of(plan_binding(cluster, "uid-p2", "n1")) == ["v1"]


def test_reservations_end_with_their_pod() -> None:
    cluster = make_cluster(make_claim(), make_volume("v1"))
    cluster.assume_volumes("uid-p1", plan_binding(cluster, "uid-p1", "n1"))
    cluster.remove_object(make_pod("p1"))
    assert not cluster.volumes.plans
    assert not cluster.volumes.reserved


def test_a_claim_is_provisioned_for_the_node_as_long_as_one_of_its_pods_waits_there() -> None:
    cluster = make_cluster(make_claim(storage_class="made"))
    for uid in ("uid-p1", "uid-p2"):
        cluster.assume_volumes(uid, plan_binding(cluster, uid, "n1"))
    cluster.set_object(make_pod("p1", node="n1"))
    assert list(cluster.volumes.provisioning) == [("default", "c1")]
    cluster.set_object(make_pod("p2", node="n1"))
    assert not cluster.volumes.provisioning


def test_a_claim_that_is_being_provisioned_binds_other_pods_to_the_node() -> None:
    cluster = make_cluster(make_claim(storage_class="made"))
    cluster.assume_volumes("uid-p1", plan_binding(cluster, "uid-p1", "n1"))
    assert plan_binding(cluster, "uid-p2", "n2").refusal == "a claim of the pod is being provisioned for another node"
    assert [one.claim for one in plan_binding(cluster, "uid-p2", "n1").provisions] == [("default", "c1")]


def test_patches_name_claim_and_node_and_guard_the_version() -> None:
    claims = (make_claim("c1", version="5"), make_claim("c2", storage_class="made", version="6"))
    cluster = make_cluster(*claims, make_volume("v1", version="7"), claims=("c1", "c2"))
    patches = list_patches(cluster, "uid-p1", plan_binding(cluster, "uid-p1", "n1"))
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": "default",
        "name": "c1",
        "uid": "uid-c1",
        "resourceVersion": "5",
    }
    assert [(one.kind.plural, one.namespace, one.name, one.body) for one in patches] == [
        (
            "persistentvolumes",
            "",
            "v1",
            {
                "metadata": {"resourceVersion": "7", "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
                "spec": {"claimRef": reference},
            },
        ),
        (
            "persistentvolumeclaims",
            "default",
            "c2",
            {"metadata": {"resourceVersion": "6", "annotations": {"volume.kubernetes.io/selected-node": "n1"}}},
        ),
    ]


def test_a_volume_that_names_the_claim_is_taken_without_marking_it() -> None:
    cluster = make_cluster(make_claim(), make_volume("small"), make_volume("named", size="9Gi", claim="c1"))
    plan = plan_binding(cluster, "uid-p1", "n1")
    assert volumes_of(plan) == ["named"]
    [patch] = list_patches(cluster, "uid-p1", plan)
    assert patch.body["metadata"] == {"resourceVersion": "1"}


def test_a_static_binding_waits_for_volume_and_claim() -> None:
    cluster = make_cluster(make_claim(), make_volume("v1"))
    plan = plan_binding(cluster, "uid-p1", "n1")
    assert check_binding(cluster, plan) == WAIT
    cluster.set_object(make_volume("v1", version="2", claim="c1"))
    assert check_binding(cluster, plan) == WAIT
    cluster.set_object(make_claim(version="2", bound_to="v1"))
    assert check_binding(cluster, plan) == BOUND


def test_a_static_binding_fails_if_another_claim_gets_the_volume_or_something_is_gone() -> None:
    cluster = make_cluster(make_claim(), make_volume("v1"))
    plan = plan_binding(cluster, "uid-p1", "n1")
    cluster.set_object(make_volume("v1", version="2", claim="c1"))
    cluster.set_object(make_claim(version="2", bound_to="v2"))
    assert check_binding(cluster, plan) == (Progress.FAILED, "claim c1 is bound to another volume, v2")
    cluster.set_object(make_volume("v1", version="3", claim="c2"))
    assert check_binding(cluster, plan) == (Progress.FAILED, "volume v1 is not bound to claim c1")
    cluster.remove_object(make_volume("v1"))
    assert check_binding(cluster, plan) == (Progress.FAILED, "volume v1 is gone")
    cluster.remove_object(make_claim())
    assert check_binding(cluster, plan) == (Progress.FAILED, "claim c1 is gone")
    cluster.remove_object(make_node("n1"))
    assert check_binding(cluster, plan) == (Progress.FAILED, "node n1 is gone")


def test_provisioning_waits_for_a_volume_that_the_node_can_reach() -> None:
    cluster = make_cluster(make_claim(storage_class="made"))
    plan = plan_binding(cluster, "uid-p1", "n1")
    assert check_binding(cluster, plan) == WAIT
    selected = {"volume.kubernetes.io/selected-node": "n1"}
    cluster.set_object(make_claim(storage_class="made", version="2", annotations=selected))
    assert check_binding(cluster, plan) == WAIT
    cluster.set_object(make_claim(storage_class="made", version="3", annotations=selected, bound_to="v1"))
    assert check_binding(cluster, plan) == WAIT, "the volume may arrive after the claim"
    cluster.set_object(make_volume("v1", claim="c1"))
    assert check_binding(cluster, plan) == BOUND
    cluster.set_object(make_volume("v1", node="n2", claim="c1"))
    assert check_binding(cluster, plan) == (Progress.FAILED, "node cannot reach volume v1")


def test_provisioning_fails_if_the_provisioner_gives_the_node_up() -> None:
    cluster = make_cluster(make_claim(storage_class="made"))
    plan = plan_binding(cluster, "uid-p1", "n1")
    cluster.set_object(make_claim(storage_class="made", version="3"))
    state = check_binding(cluster, plan)
    assert state == (Progress.FAILED, "no volume could be made for claim c1 on the node")


def test_unknown_pods_and_nodes_have_no_plan() -> None:
    cluster = make_cluster()
    assert plan_binding(cluster, "uid-p9", "n1").refusal == "pod is gone"
    assert plan_binding(cluster, "uid-p1", "n9").refusal == "node is unknown"


def test_a_volume_that_is_being_deleted_is_not_chosen() -> None:
    volume = make_volume("v1")
    metadata = structs.replace(volume.metadata, deletion_timestamp="2026-01-31T12:00:05Z")
    cluster = make_cluster(make_claim(), structs.replace(volume, metadata=metadata))
    assert plan_binding(cluster, "uid-p1", "n1").refusal
