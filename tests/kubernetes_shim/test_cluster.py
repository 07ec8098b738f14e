"""The cache of nodes and pods that predicates read."""

from tests.kubernetes_shim.shim_builders import make_node, make_pod
from yunishard.kubernetes_shim.cluster import Cluster


def place_of(cluster: Cluster, name: str) -> str | None:
    node = cluster.pods[f"uid-{name}"].node
    return None if node is None else node.name


def test_an_assumed_pod_counts_on_its_node_until_it_is_forgotten() -> None:
    cluster = Cluster()
    cluster.set_object(make_node())
    cluster.set_object(make_pod())
    cluster.assume("uid-p1", "n1")
    assert list(cluster.nodes["n1"].pods) == ["uid-p1"]
    cluster.forget("uid-p1")
    assert not cluster.nodes["n1"].pods
    assert place_of(cluster, "p1") is None


def test_an_event_of_an_assumed_pod_without_its_node_leaves_it_there() -> None:
    cluster = Cluster()
    cluster.set_object(make_node())
    cluster.set_object(make_pod())
    cluster.assume("uid-p1", "n1")
    cluster.set_object(make_pod(labels={"step": "2"}))
    assert place_of(cluster, "p1") == "n1"


def test_a_bound_pod_stays_on_its_node_when_it_is_forgotten() -> None:
    cluster = Cluster()
    cluster.set_object(make_pod())
    cluster.assume("uid-p1", "n1")
    cluster.set_object(make_pod(node="n2"))
    cluster.forget("uid-p1")
    assert place_of(cluster, "p1") == "n2"


def test_a_pod_that_is_gone_or_unknown_is_ignored() -> None:
    cluster = Cluster()
    cluster.set_object(make_pod(node="n1"))
    cluster.remove_object(make_pod())
    cluster.remove_object(make_pod())
    cluster.assume("uid-p1", "n1")
    cluster.forget("uid-p1")
    assert not cluster.pods
    assert not cluster.nodes


def test_pods_of_an_unknown_node_count_once_it_appears() -> None:
    cluster = Cluster()
    cluster.set_object(make_pod(node="n1"))
    assert not cluster.nodes["n1"].is_known
    cluster.set_object(make_node())
    assert cluster.nodes["n1"].is_known
    assert list(cluster.nodes["n1"].pods) == ["uid-p1"]
    cluster.remove_object(make_node())
    assert not cluster.nodes["n1"].is_known
    cluster.remove_object(make_pod())
    assert not cluster.nodes


def test_equal_pods_share_what_they_have_in_common() -> None:
    cluster = Cluster()
    spec: dict[str, object] = {"nodeSelector": {"zone": "a"}}
    for name in ("p1", "p2"):
        cluster.set_object(make_pod(name, labels={"app": "web"}, spec=spec))
    cluster.set_object(make_pod("p3", labels={"app": "db"}, spec=spec))
    first, second, third = (cluster.pods[f"uid-{name}"].shape for name in ("p1", "p2", "p3"))
    assert first is second
    assert first is not third
    assert first.constraints is third.constraints


def test_a_bound_pod_is_not_assumed_elsewhere() -> None:
    cluster = Cluster()
    cluster.set_object(make_pod(node="n1"))
    cluster.assume("uid-p1", "n2")
    cluster.forget("uid-p1")
    assert place_of(cluster, "p1") == "n1"
