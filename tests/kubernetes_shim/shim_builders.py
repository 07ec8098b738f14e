"""Objects of the API server for tests of the machine, made from what a test is about."""

from msgspec import convert

from yunishard.kubernetes_shim.objects import Node, Pod

Json = dict[str, object]


def make_pod(
    name: str = "p1",
    *,
    namespace: str = "default",
    uid: str = "",
    node: str = "",
    phase: str = "Pending",
    created: str = "2026-01-31T12:00:05Z",
    scheduler: str = "yunikorn",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    requests: dict[str, str] | None = None,
    owners: list[Json] | None = None,
    spec: Json | None = None,
    status: Json | None = None,
    deleted: bool = False,
) -> Pod:
    """Return a pod with one container."""
    return convert(
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": uid or f"uid-{name}",
                "labels": labels or {},
                "annotations": annotations or {},
                "creationTimestamp": created,
                "ownerReferences": owners or [],
                "deletionTimestamp": created if deleted else None,
            },
            "spec": {
                "schedulerName": scheduler,
                "nodeName": node,
                "containers": [{"name": "main", "resources": {"requests": requests or {"cpu": "500m"}}}],
                **(spec or {}),
            },
            "status": {"phase": phase, **(status or {})},
        },
        Pod,
    )


def make_node(
    name: str = "n1",
    *,
    cpu: str = "8",
    labels: dict[str, str] | None = None,
    taints: list[Json] | None = None,
    unschedulable: bool = False,
    ready: str = "True",
) -> Node:
    """Return a node."""
    return convert(
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels or {}},
            "spec": {"unschedulable": unschedulable, "taints": taints or []},
            "status": {
                "allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": ready}] if ready else [],
            },
        },
        Node,
    )


def repel(key: str, namespaces: Json | None = None, **labels: str) -> Json:
    """Return the specification of a pod that repels pods with these labels."""
    term: Json = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    if namespaces is not None:
        term["namespaceSelector"] = namespaces
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
