"""A core of the replay's own kind for its tests: places asks first come, first served, wherever they fit, in no time.

It answers as the real one does: one response an entry for releases, rejections in place of acceptance. It keeps its own
books, so that a test can ask it what is left.
"""

from dataclasses import dataclass, field

from msgspec.structs import replace

from yunishard.common.messages.rm_messages import (
    NODE_CREATE,
    NODE_DECOMMISSION,
    STOPPED_BY_RM,
    AcceptedApplication,
    AcceptedNode,
    Allocation,
    AllocationResponse,
    ApplicationResponse,
    NodeResponse,
    RejectedApplication,
    RejectedNode,
)
from yunishard.common.names import NODE_PARTITION, normalise_partition_name
from yunishard.common.rm_player import Batch
from yunishard.sdk.items import Result


@dataclass
class SmallPartition:
    """One partition: free vcores by node, what waits and what runs."""

    free: dict[str, int] = field(default_factory=dict)
    applications: set[str] = field(default_factory=set)
    waiting: dict[str, Allocation] = field(default_factory=dict)
    running: dict[str, Allocation] = field(default_factory=dict)


class SmallCore:
    def __init__(self, rm_id: str = "replay") -> None:
        self.rm_id = rm_id
        self.partitions: dict[str, SmallPartition] = {}
        self.refuse: set[str] = set()
        """Applications to reject."""
        self.cut_off = 0
        """Allocations that went with their application, not by a release of their own."""

    def partition(self, name: str) -> SmallPartition:
        return self.partitions.setdefault(normalise_partition_name(self.rm_id, name), SmallPartition())

    @property
    def empty(self) -> bool:
        """Nothing of any application is left."""
        return not any(part.applications or part.waiting or part.running for part in self.partitions.values())

    def take(self, batch: Batch) -> list[Result]:
        """Act on a batch; what the core has to tell, in order."""
        results = [*self._nodes(batch), *self._applications(batch), *self._allocations(batch)]
        for gone in batch.removals:
            part = self.partition(gone.partition_name)
            part.applications.discard(gone.application_id)
            self.cut_off += _drop(part.waiting, gone.application_id) + _drop(part.running, gone.application_id)
        for name, part in self.partitions.items():
            if placed := _place(part):
                results.append(Result(name, AllocationResponse(new=placed)))
        return results

    def _nodes(self, batch: Batch) -> list[Result]:
        results = []
        for item in batch.nodes:
            name = normalise_partition_name(self.rm_id, item.attributes[NODE_PARTITION])
            part = self.partition(name)
            if item.action == NODE_DECOMMISSION:
                del part.free[item.node_id]
                continue
            assert item.action == NODE_CREATE
            assert item.schedulable_resource is not None
            if item.node_id in part.free:
                news = NodeResponse(rejected=[RejectedNode(node_id=item.node_id, reason="it is here already")])
            else:
                part.free[item.node_id] = item.schedulable_resource["vcore"]
                news = NodeResponse(accepted=[AcceptedNode(node_id=item.node_id)])
            results.append(Result(name, news))
        return results

    def _applications(self, batch: Batch) -> list[Result]:
        results = []
        for new in batch.applications:
            name = normalise_partition_name(self.rm_id, new.partition_name)
            if new.application_id in self.refuse:
                rejected = RejectedApplication(application_id=new.application_id, reason="not today")
                results.append(Result(name, ApplicationResponse(rejected=[rejected])))
                continue
            self.partition(name).applications.add(new.application_id)
            accepted = AcceptedApplication(application_id=new.application_id)
            results.append(Result(name, ApplicationResponse(accepted=[accepted])))
        return results

    def _allocations(self, batch: Batch) -> list[Result]:
        for item in batch.asks:
            part = self.partition(item.partition_name)
            if item.application_id not in part.applications:
                continue
            if item.node_id:
                part.running[item.allocation_key] = item
                part.free[item.node_id] -= item.resource_per_alloc["vcore"]
            else:
                part.waiting[item.allocation_key] = item
        results = []
        for gone in batch.releases:
            assert gone.termination_type == STOPPED_BY_RM
            part = self.partition(gone.partition_name)
            allocation = part.running.pop(gone.allocation_key, None)
            if allocation is None:
                continue  # sent before the RM received that the partition had lost its state
            part.free[allocation.node_id] += allocation.resource_per_alloc["vcore"]
            results.append(
                Result(normalise_partition_name(self.rm_id, gone.partition_name), AllocationResponse(released=[gone]))
            )
        return results


def _drop(items: dict[str, Allocation], application_id: str) -> int:
    keys = [key for key, item in items.items() if item.application_id == application_id]
    for key in keys:
        del items[key]
    return len(keys)


def _place(part: SmallPartition) -> list[Allocation]:
    placed = []
    for key, item in list(part.waiting.items()):
        wanted = item.resource_per_alloc["vcore"]
        node_id = next((node_id for node_id, free in part.free.items() if free >= wanted), None)
        if node_id is not None:
            del part.waiting[key]
            part.free[node_id] -= wanted
            part.running[key] = replace(item, node_id=node_id)
            placed.append(part.running[key])
    return placed
