"""Answers to the core's questions, and their reasons. `test_scheduler_cases.py` has the rules."""

from tests.kubernetes_shim.shim_builders import Json, make_node, make_pod
from yunishard.kubernetes_shim.cluster import Cluster
from yunishard.kubernetes_shim.predicates.evaluation import count_victims, refuse

PORT: Json = {"containers": [{"name": "main", "ports": [{"hostPort": 80}]}]}


def repel(key: str = "host") -> Json:
    """Return a specification by which pods with the label `app: web` repel each other."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def attract(key: str = "host") -> Json:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def make_cluster(*pods: object, **node: object) -> Cluster:
    cluster = Cluster()
    for number in (1, 2):
        cluster.set_object(make_node(f"n{number}", labels={"host": str(number), "zone": "a"}, **node))  # type: ignore[arg-type]
    for pod in pods:
        cluster.set_object(pod)  # type: ignore[arg-type]
    return cluster


def test_reasons_name_the_constraint_and_are_the_same_for_all_nodes() -> None:
    web = {"app": "web"}
    spread = {"topologyKey": "host", "maxSkew": 1, "labelSelector": {"matchLabels": web}}
    cases = [
        ({"nodeSelector": {"disk": "ssd"}}, "node does not match the node selector or node affinity of the pod"),
        (PORT, "host port 80/TCP is occupied"),
        (repel(), "pods in the same host match the anti-affinity of the pod"),
        (repel("rack") | {"nodeSelector": {}}, None),
        (attract("rack"), "node has no label rack, which the pod affinity requires"),
        (
            {"topologySpreadConstraints": [spread]},
            "the pod would exceed the skew of 1 of its topology spread over host",
        ),
        (
            {"topologySpreadConstraints": [{**spread, "topologyKey": "rack"}]},
            "node has no label rack, which the topology spread requires",
        ),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, "claim c does not exist"),
    ]
    found = []
    for spec, _ in cases:
        cluster = make_cluster(make_pod("other", node="n1", labels=web, spec=PORT), make_pod(labels=web, spec=spec))
        found.append(refuse(cluster, "uid-p1", "n1"))
    assert found == [reason for _, reason in cases]


def test_placed_pods_repel_pods_without_constraints() -> None:
    cluster = make_cluster(make_pod("other", node="n1", spec=repel()), make_pod(labels={"app": "web"}))
    assert refuse(cluster, "uid-p1", "n1") == "the anti-affinity of a pod in the same host repels the pod"
    assert refuse(cluster, "uid-p1", "n2") is None


def test_taints_and_cordons_keep_pods_away() -> None:
    cluster = make_cluster(make_pod(), taints=[{"key": "gpu", "value": "a100", "effect": "NoSchedule"}])
    assert refuse(cluster, "uid-p1", "n1") == "pod does not tolerate the taint gpu=a100:NoSchedule"
    assert refuse(make_cluster(make_pod(), unschedulable=True), "uid-p1", "n1") == "node is unschedulable"


def test_unknown_pods_and_nodes_are_refused() -> None:
    cluster = make_cluster(make_pod(), make_pod("p2", node="n3"))
    assert refuse(cluster, "uid-p9", "n1") == "pod is gone"
    assert refuse(cluster, "uid-p1", "n9") == refuse(cluster, "uid-p1", "n3") == "node is unknown"
    assert refuse(cluster, "uid-p2", "n1") == "pod is bound to another node"


def test_two_pods_of_a_gang_do_not_get_the_same_host_port() -> None:
    cluster = make_cluster(make_pod("p1", spec=PORT), make_pod("p2", spec=PORT))
    cluster.assume("uid-p1", "n1")
    assert refuse(cluster, "uid-p2", "n1") == "host port 80/TCP is occupied"
    assert refuse(cluster, "uid-p2", "n2") is None
    assert refuse(cluster, "uid-p1", "n1") is None, "a pod is not in its own way"


def test_volumes_are_examined_only_for_an_allocation() -> None:
    pod = make_pod(spec={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]})
    assert refuse(make_cluster(pod), "uid-p1", "n1", allocate=False) is None


def test_the_first_of_pods_that_want_to_be_together_may_start_anywhere() -> None:
    web = {"app": "web"}
    cluster = make_cluster(make_pod("p1", labels=web, spec=attract()), make_pod("p2", labels=web, spec=attract()))
    assert [refuse(cluster, "uid-p1", node) for node in ("n1", "n2")] == [None, None]
    cluster.assume("uid-p1", "n1")
    assert refuse(cluster, "uid-p2", "n1") is None
    assert refuse(cluster, "uid-p2", "n2") == "no pods in the topology of the node match the pod affinity"


def test_victims_are_counted_until_the_pod_fits() -> None:
    others = [make_pod(f"v{number}", node="n1", labels={"app": "web"} if number == 1 else {}) for number in range(3)]
    cluster = make_cluster(*others, make_pod(spec=repel()))
    victims = [f"uid-v{number}" for number in range(3)]
    assert count_victims(cluster, "uid-p1", "n1", victims) == 2
    assert count_victims(cluster, "uid-p1", "n1", victims, start=3) == 3
    assert count_victims(cluster, "uid-p1", "n1", ["uid-v0"]) is None
    assert count_victims(cluster, "uid-p1", "n1", ["uid-gone", *victims]) == 3, "a victim that is gone needs no removal"
    assert len(cluster.nodes["n1"].pods) == 3, "nothing has changed"


def test_a_question_leaves_everything_as_it_was_even_if_it_fails() -> None:
    cluster = make_cluster(make_pod("v", node="n1", spec=PORT), make_pod(spec=PORT))
    assert refuse(cluster, "uid-p1", "n1", without=["uid-v"]) is None
    assert refuse(cluster, "uid-p1", "n1") == "host port 80/TCP is occupied"
    assert list(cluster.nodes["n1"].pods) == ["uid-v"]
