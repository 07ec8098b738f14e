"""Incremental counts answer like a walk over all pods and nodes, whatever has happened before."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import convert

from tests.kubernetes_shim.predicates.plain_filters import PlainCluster, may_run
from tests.kubernetes_shim.predicates.strategies import NAMESPACES, NODES, PODS, labels, node_labels, specs, taints
from tests.kubernetes_shim.shim_builders import Json, make_node, make_pod
from yunishard.kubernetes_shim.cluster import Cluster
from yunishard.kubernetes_shim.objects import Namespace
from yunishard.kubernetes_shim.predicates.evaluation import refuse

Step = Callable[[Cluster, PlainCluster], None]


@st.composite
def set_pods(draw: st.DrawFn, kinds: tuple[Json, ...]) -> Step:
    pod = make_pod(
        draw(st.sampled_from(PODS)),
        namespace=draw(st.sampled_from(("default", "default", *NAMESPACES))),
        node=draw(st.sampled_from(("", *NODES))),
        labels=draw(labels),
        spec=draw(st.sampled_from(kinds)),
        deleted=draw(st.sampled_from((False, True))),
        phase=draw(st.sampled_from(("Pending", "Running", "Running", "Failed"))),
    )

    def apply(cluster: Cluster, plain: PlainCluster) -> None:
        earlier = plain.pods.get(pod.metadata.uid)
        if earlier is not None and earlier.metadata.namespace != pod.metadata.namespace:
            cluster.remove_object(earlier)
            plain.assumed.pop(pod.metadata.uid, None)
        if pod.status.phase == "Failed":  # the API server reports it as deleted
            cluster.remove_object(pod)
            plain.pods.pop(pod.metadata.uid, None)
        else:
            cluster.set_object(pod)
            plain.pods[pod.metadata.uid] = pod
        if pod.spec.node_name or pod.status.phase == "Failed":
            plain.assumed.pop(pod.metadata.uid, None)
        elif earlier is not None and earlier.spec.node_name and pod.metadata.uid in plain.pods:
            cluster.remove_object(pod)  # a pod never loses its node
            cluster.set_object(pod)

    return apply


@st.composite
def change_nodes(draw: st.DrawFn) -> Step:
    node = make_node(
        draw(st.sampled_from(NODES)),
        labels=draw(node_labels),
        taints=draw(st.just([]) | taints),
        unschedulable=draw(st.sampled_from((False, False, False, True))),
    )
    is_removed = draw(st.sampled_from((False, False, False, True)))

    def apply(cluster: Cluster, plain: PlainCluster) -> None:
        if is_removed:
            cluster.remove_object(node)
            plain.nodes.pop(node.metadata.name, None)
        else:
            cluster.set_object(node)
            plain.nodes[node.metadata.name] = node

    return apply


@st.composite
def change_namespaces(draw: st.DrawFn) -> Step:
    name, of_it = draw(st.sampled_from(NAMESPACES)), draw(st.none() | labels)

    def apply(cluster: Cluster, plain: PlainCluster) -> None:
        namespace = convert({"metadata": {"name": name, "labels": of_it or {}}}, Namespace)
        if of_it is None:
            cluster.remove_object(namespace)
            plain.namespaces.pop(name, None)
        else:
            cluster.set_object(namespace)
            plain.namespaces[name] = of_it

    return apply


@st.composite
def move_pods(draw: st.DrawFn) -> Step:
    uid, node = f"uid-{draw(st.sampled_from(PODS))}", draw(st.sampled_from(("", "remove", *NODES)))

    def apply(cluster: Cluster, plain: PlainCluster) -> None:
        pod = plain.pods.get(uid)
        if node == "remove":
            if pod is not None:
                cluster.remove_object(pod)
            plain.pods.pop(uid, None)
            plain.assumed.pop(uid, None)
        elif node and pod is not None and not pod.spec.node_name:
            cluster.assume(uid, node)
            plain.assumed[uid] = node
        elif not node:
            cluster.forget(uid)
            plain.assumed.pop(uid, None)

    return apply


@st.composite
def stories(draw: st.DrawFn) -> list[list[Step]]:
    """Draw what happens between questions. Pods are of few kinds, as they are in clusters."""
    kinds = tuple(draw(specs) for _ in range(3))
    steps = set_pods(kinds) | set_pods(kinds) | set_pods(kinds) | change_nodes() | move_pods() | change_namespaces()
    return draw(st.lists(st.lists(steps, min_size=4, max_size=8), min_size=2, max_size=6))


@settings(max_examples=100)
@given(stories(), st.sets(st.sampled_from(PODS), max_size=2).map(lambda names: {f"uid-{name}" for name in names}))
def test_incremental_counts_answer_like_a_walk_over_all_pods(story: list[list[Step]], victims: set[str]) -> None:
    cluster, plain = Cluster(), PlainCluster()
    for name in NODES[:3]:
        node = make_node(name, labels={"zone": "xy"[name == "n3"], "host": name[1]})
        cluster.set_object(node)
        plain.nodes[name] = node
    for steps in story:
        for step in steps:
            step(cluster, plain)
        _compare(cluster, plain, set())
    _compare(cluster, plain, victims)
    _remove_everything(cluster, plain)


def _compare(cluster: Cluster, plain: PlainCluster, victims: set[str]) -> None:
    for uid in plain.pods:
        for node in plain.nodes:
            reason = refuse(cluster, uid, node, without=victims)
            assert (reason is None) == may_run(plain, uid, node, victims - {uid}), (uid, node, reason)


def _remove_everything(cluster: Cluster, plain: PlainCluster) -> None:
    """Nothing is left of what was counted for pods that are gone."""
    for pod in plain.pods.values():
        cluster.remove_object(pod)
    for node in plain.nodes.values():
        cluster.remove_object(node)
    index = cluster.index
    left = (index.nodes, index.shapes, index.constraints, index.labels, index.term_counts, index.spread_counts)
    assert not any((*left, index.eligible, index.anti_affinities, index.claim_users, cluster.pods)), vars(index)
