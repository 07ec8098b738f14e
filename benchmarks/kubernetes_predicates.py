"""Cost of the Kubernetes shim's predicates: 10,000 pods of 100 applications on 1,000 nodes.

Each pod has a label of its own, as pods of stateful sets do. Half of the applications spread their pods over zones and
nodes, half repel their own pods from their nodes, and all require a label. A *question* is the largest that the core
sends: 64 asks, 16 nodes for each. *Placing* is the cost of one allocation: assumed, then seen bound. Memory is that of
the cache alone.
"""

import tracemalloc
from collections.abc import Iterator
from statistics import median
from time import process_time
from typing import Final

from msgspec import convert

from benchmarks.calibration import as_in_a_worker, calibrated
from benchmarks.results import Figure, Plan
from yunishard.kubernetes_shim.cluster import Cluster
from yunishard.kubernetes_shim.objects import Node, Pod
from yunishard.kubernetes_shim.predicates.evaluation import refuse

NODES: Final = 1_000
PODS: Final = 10_000
APPLICATIONS: Final = 100
ZONES: Final = 5
ASKS: Final = 64
NODES_PER_ASK: Final = 16


def figures(plan: Plan) -> Iterator[Figure]:
    """Processor time of a question and of placing a pod, and bytes of the cache for each pod."""
    nodes, pods = plan.scaled(NODES), plan.scaled(PODS)
    bytes_per_pod = _measure_bytes(nodes, pods)
    questions, placements = [], []
    for _ in range(plan.rounds):
        with as_in_a_worker():
            cluster = _make_cluster(nodes, pods)
            placements.append(calibrated(lambda: _place_all(cluster, nodes, pods)))  # noqa: B023 - called at once
            questions.append(calibrated(lambda: _ask_s(cluster, nodes, pods)))  # noqa: B023 - called at once
    for name, found, count in (("question", questions, 1), ("placing a pod", placements, pods)):
        spent, unit = min(found, key=lambda one: one[0] / one[1])
        yield Figure(f"kubernetes/{name}", spent / count * 1000, "ms", spent / count / unit)
    yield Figure("kubernetes/memory of a pod", bytes_per_pod, "bytes", bytes_per_pod)


def _measure_bytes(nodes: int, pods: int) -> float:
    tracemalloc.start()
    cluster = _make_cluster(nodes, pods)
    _place_all(cluster, nodes, pods)
    spent, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return spent / pods


def _make_cluster(nodes: int, pods: int) -> Cluster:
    cluster = Cluster()
    for number in range(nodes):
        cluster.set_object(_make_node(number))
    for number in range(pods):
        cluster.set_object(_make_pod(number))
    return cluster


def _place_all(cluster: Cluster, nodes: int, pods: int) -> float:
    began = process_time()
    for number in range(pods):
        name = f"node-{number % nodes}"
        cluster.assume(f"uid-{number}", name)
        cluster.set_object(_make_pod(number, name))
    return process_time() - began


def _ask_s(cluster: Cluster, nodes: int, pods: int) -> float:
    """Ask about new pods of all applications, as many as the core asks about at once."""
    for number in range(pods, pods + ASKS):
        cluster.set_object(_make_pod(number))
        refuse(cluster, f"uid-{number}", "node-0")  # the first question of an application also counts its pods
    times = []
    for turn in range(10):
        began = process_time()
        for number in range(pods, pods + ASKS):
            for place in range(NODES_PER_ASK):
                refuse(cluster, f"uid-{number}", f"node-{(number + turn * 37 + place) % nodes}")
        times.append(process_time() - began)
    return median(times)


def _make_node(number: int) -> Node:
    name = f"node-{number}"
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % ZONES}", "disk": "ssd"}
    taints = [{"key": "team", "value": "a", "effect": "NoSchedule"}] if number % 10 == 0 else []
    return convert({"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}, Node)


def _make_pod(number: int, node: str = "") -> Pod:
    application = number % APPLICATIONS
    labels = {"app": f"app-{application}", "team": "a", "index": f"{number}"}
    selector = {"matchLabels": {"app": labels["app"]}}
    spec: dict[str, object] = {"nodeName": node, "nodeSelector": {"disk": "ssd"}}
    if application % 2:
        keys = ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
        rules = [{"topologyKey": key, "maxSkew": 5, "labelSelector": selector} for key in keys]
        spec["topologySpreadConstraints"] = rules
    else:
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
        repelled = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        spec["affinity"] = {"podAntiAffinity": repelled}
        spec["tolerations"] = [{"key": "team", "operator": "Exists"}]
    metadata = {"name": f"pod-{number}", "namespace": "default", "uid": f"uid-{number}", "labels": labels}
    return convert({"metadata": metadata, "spec": spec}, Pod)
