"""What `settle` records: the state of everything, as each resource manager heard it and as REST tells it.

The names are those of the golden files, which were recorded with the reference. Amounts of zero are left out where
it makes no difference whether they are told. Not here: when to record (`steps.py`).
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.conformance.manager import RecordingManager
from tests.conformance.rest import Rest, quoted

Json: TypeAlias = Any
Object: TypeAlias = dict[str, Json]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """How much of the state a trace asks for."""

    detail: str = "apps"
    """apps: allocations are counted for each application. keys: they are named. nodes: as apps, and each node.
    placement: they are named, with their nodes, and each node."""
    extra: Collection[str] = ()
    """policies: how queues sort and preempt. limits: those of users and groups. accepted: applications that count as
    running in a queue before they run."""
    without: Collection[str] = ()
    """Names to leave out, at any depth."""

    @property
    def named(self) -> bool:
        return self.detail in ("keys", "placement")

    @property
    def nodes(self) -> bool:
        return self.detail in ("nodes", "placement")


def state_of(managers: dict[str, RecordingManager], rest: Rest, wanted: Wanted) -> Object:
    found: Object = {"rms": {rm_id: _manager(managers[rm_id], wanted) for rm_id in sorted(managers)}}
    if "partitions" not in wanted.without:
        partitions = rest.read("/ws/v1/partitions") or []
        found["partitions"] = {one["name"]: _partition(one, rest, wanted) for one in partitions}
    return _without(found, wanted.without)


def _without(value: Json, names: Collection[str]) -> Json:
    if isinstance(value, dict):
        return {key: _without(inner, names) for key, inner in value.items() if key not in names}
    return value


# Resource managers --------------------------------------------------------------------------------------------------


def _manager(rm: RecordingManager, wanted: Wanted) -> Object:
    with rm.lock:
        return {
            "acceptedApps": sorted(rm.accepted_applications),
            "rejectedApps": sorted(rm.rejected_applications),
            "acceptedNodes": sorted(rm.accepted_nodes),
            "rejectedNodes": sorted(rm.rejected_nodes),
            "rejectedAsks": sorted(rm.rejected_asks),
            "appStates": {application: list(states) for application, states in rm.application_states.items()},
            "released": sorted(f"{key if wanted.named else app} {kind}" for key, app, kind in rm.released),
            "running": _running(rm, wanted),
            "streamErrors": rm.streams_failed,
        }


def _running(rm: RecordingManager, wanted: Wanted) -> Object:
    if wanted.detail == "placement":
        return {key: one.node for key, one in rm.running.items()}
    if wanted.named:
        return {key: one.application for key, one in rm.running.items()}
    counts: dict[str, int] = {}
    for one in rm.running.values():
        counts[one.application] = counts.get(one.application, 0) + 1
    return counts


# Partitions ---------------------------------------------------------------------------------------------------------


def _partition(told: Object, rest: Rest, wanted: Wanted) -> Object:
    def part(path: str) -> Json:
        return rest.read(f"/ws/v1/partition/{quoted(told['name'])}/{path}") or []

    capacity = told.get("capacity", {})
    found = {
        "state": told.get("state"),
        "capacity": capacity.get("capacity"),
        "used": _nonzero(capacity.get("usedCapacity")),
        "totalNodes": told.get("totalNodes"),
        "containers": told.get("totalContainers", 0),
        "appCounts": told.get("applications"),
        "nodeSort": told.get("nodeSortingPolicy", {}).get("type"),
        "queues": _queues(part("queues"), wanted),
        "apps": {one["applicationID"]: _application(one, wanted) for one in part("applications/active")},
        "completed": sorted(f"{o['applicationID']} {o['applicationState']}" for o in part("applications/completed")),
        "rejected": sorted(one["applicationID"] for one in part("applications/rejected")),
        "users": _usage(part("usage/users"), "userName", wanted),
        "groups": _usage(part("usage/groups"), "groupName", wanted),
    }
    if wanted.nodes:
        found["nodes"] = {one["nodeID"]: _node(one, wanted) for one in part("nodes")}
    return found


def _queues(root: Object, wanted: Wanted) -> Object:
    """All queues by name, the tree made flat."""
    found, waiting = {}, [root] if root else []
    while waiting:
        queue = waiting.pop()
        found[queue["queuename"]] = _queue(queue, wanted)
        waiting += queue.get("children") or []
    return found


def _queue(told: Object, wanted: Wanted) -> Object:
    found: Object = {
        "leaf": told["isLeaf"],
        "managed": told["isManaged"],
        "status": told.get("status"),
        "allocated": _nonzero(told.get("allocatedResource")),
        "pending": _nonzero(told.get("pendingResource")),
        "preempting": _nonzero(told.get("preemptingResource")),
        "max": told.get("maxResource") or {},
        "guaranteed": told.get("guaranteedResource") or {},
        "headroom": told.get("headroom") or {},
        "running": told.get("runningApps", 0),
        "maxApps": told.get("maxRunningApps", 0),
        "priority": told.get("currentPriority"),
    }
    if "accepted" in wanted.extra:
        found["allocatingAccepted"] = sorted(told.get("allocatingAcceptedApps") or [])
    if "policies" in wanted.extra:
        found["policies"] = {
            "sort": told.get("sortingPolicy"),
            "prioritySort": told.get("prioritySorting"),
            "priorityFence": told.get("isPriorityFence"),
            "priorityOffset": told.get("priorityOffset", 0),
            "preemption": told.get("preemptionEnabled"),
            "preemptionFence": told.get("isPreemptionFence"),
            "preemptionDelay": told.get("preemptionDelay"),
            "quotaPreemptionDelay": told.get("quotaPreemptionDelay"),
            "template": told.get("template"),
        }
    return found


def _application(told: Object, wanted: Wanted) -> Object:
    groups = told.get("placeholderData") or []
    return {
        "queue": told["queueName"],
        "state": told["applicationState"],
        "user": told["user"],
        "used": _nonzero(told.get("usedResource")),
        "pending": _nonzero(told.get("pendingResource")),
        "placeholders": {
            one.get("taskGroupName", ""): {name: one.get(name, 0) for name in ("count", "replaced", "timedout")}
            for one in groups
        },
        "allocations": len(told.get("allocations") or []),
        "reservations": _named_or_counted(told.get("reservations"), wanted),
    }


def _node(told: Object, wanted: Wanted) -> Object:
    return {
        "capacity": told.get("capacity"),
        "allocated": _nonzero(told.get("allocated")),
        "occupied": _nonzero(told.get("occupied")),
        "available": _nonzero(told.get("available")),
        "schedulable": told.get("schedulable"),
        "reservations": _named_or_counted(told.get("reservations"), wanted),
        "allocations": len(told.get("allocations") or []),
        "foreign": sorted(one["allocationKey"] for one in told.get("foreignAllocations") or []),
    }


def _usage(trackers: list[Object], name: str, wanted: Wanted) -> Object:
    """What each user or group has in each queue; who has nothing, and no limit that was asked for, is left out."""
    found = {}
    for tracker in trackers:
        queues, limits = {}, {}
        waiting = [tracker.get("queues") or {}]
        while waiting:
            queue = waiting.pop()
            waiting += queue.get("children") or []
            used, applications = _nonzero(queue.get("resourceUsage")), sorted(queue.get("runningApplications") or [])
            if used or applications:
                queues[queue["queuePath"]] = {"used": used, "apps": applications}
            most, most_applications = queue.get("maxResources") or {}, queue.get("maxApplications") or 0
            if "limits" in wanted.extra and (most or most_applications):
                limits[queue["queuePath"]] = {"max": most, "maxApps": most_applications}
        if queues or limits:
            found[tracker[name]] = {"queues": queues} | ({"limits": limits} if "limits" in wanted.extra else {})
    return found


def _named_or_counted(items: list[str] | None, wanted: Wanted) -> list[str] | int:
    return sorted(items or []) if wanted.named else len(items or [])


def _nonzero(amounts: dict[str, int] | None) -> dict[str, int]:
    return {name: value for name, value in (amounts or {}).items() if value}
