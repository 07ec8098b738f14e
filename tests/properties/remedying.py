"""Makes the changes of a remedy on a copy of a partition, and sees whether the ask then runs.

The copy is restored from the records of everything, as after a restart of the worker, so it shares nothing with the
partition. Nothing else arrives; the RM confirms each release that it is asked for.
"""

from collections.abc import Callable

from msgspec.structs import replace

from tests.builders import released
from tests.invariants import check
from tests.recorded import encoded
from tests.trial import ADMIN
from yunishard.common.config.model import LimitConfig, PartitionConfig, QueueConfig
from yunishard.common.messages.kinds import Command
from yunishard.common.messages.rm_messages import (
    NODE_CREATE,
    NODE_DRAIN_TO_SCHEDULABLE,
    NODE_UPDATE,
    PLACEHOLDER_REPLACED,
    PREEMPTED_BY_SCHEDULER,
    TIMEOUT,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    ApplicationRequest,
    NodeInfo,
    NodeRequest,
    RemoveApplicationRequest,
)
from yunishard.common.messages.wire import NEVER
from yunishard.common.resources import plus
from yunishard.common.rest.explain import ChangeView
from yunishard.partition_worker.engine.durable_records import Image
from yunishard.partition_worker.engine.effects import Effect
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.recording import list_everything
from yunishard.partition_worker.engine.restoring import restore_partition

STEPS_MAX = 400
CONFIRMED = (PREEMPTED_BY_SCHEDULER, TIMEOUT, PLACEHOLDER_REPLACED)


class Copy:
    """A copy of a partition with a clock of its own."""

    def __init__(self, partition: Partition) -> None:
        image = Image()
        image.apply(encoded(list(list_everything(partition))))
        self.now = partition.now
        self.partition = restore_partition(image, name=partition.name, now=self.now, tuning=partition.tuning)
        for path, queue in ((one.path, one) for one in partition.tree):  # failed searches for victims are not recorded
            found = self.partition.tree.find(path)
            assert found is not None
            found.preemption_tried = dict(queue.preemption_tried)
        self.partition.preemptions.pause_until = partition.preemptions.pause_until

    def settle(self) -> None:
        """Make all decisions, and confirm releases."""
        for _ in range(STEPS_MAX):
            effects = self.partition.step(self.now, 20)
            check(self.partition)
            if self._confirm(effects):
                continue
            if self.partition.idle:
                return
        raise AssertionError("it does not settle")

    def _confirm(self, effects: list[Effect]) -> bool:
        told = [effect.part for effect in effects if isinstance(effect.part, AllocationRelease)]
        wanted = [
            one for one in told if one.termination_type in CONFIRMED or one.allocation_key in self.partition.allocations
        ]
        if wanted:
            self._apply(AllocationRequest(releases=AllocationReleasesRequest(allocations_to_release=wanted)))
        return bool(wanted)

    def _apply(self, command: Command) -> None:
        effects = self.partition.apply(command, self.now)
        check(self.partition)
        self._confirm(effects)

    def wait(self, seconds: float) -> None:
        """Let time pass, with every timer at its moment."""
        until = self.now + seconds
        while (at := min(self.partition.next_change, until)) < until:
            assert at < NEVER
            self.now = max(self.now, at)
            self.settle()
        self.now = until
        self.settle()

    def make(self, changes: list[ChangeView]) -> None:
        """Make the changes of a remedy, then decide."""
        for one in changes:
            self._make(one)
        self.settle()
        waits = max((one.seconds for one in changes), default=0.0)
        if waits:
            self.wait(waits)

    def _make(self, one: ChangeView) -> None:
        partition, node_id = self.partition, one.node
        match one.code:
            case "raise-queue-maximum":
                self._configure(one.queue, lambda queue: _raise_maximum(queue, one))
            case "raise-queue-applications":
                self._configure(
                    one.queue, lambda queue: replace(queue, max_applications=queue.max_applications + one.applications)
                )
            case "raise-user-limit" | "raise-user-applications":
                self._configure(one.queue, lambda queue: _raise_limit(queue, one, "users", one.user))
            case "raise-group-limit" | "raise-group-applications":
                self._configure(one.queue, lambda queue: _raise_limit(queue, one, "groups", one.group))
            case "add-node":
                name = node_id or f"n-new-{len(partition.nodes)}"
                assert partition.nodes.get(name) is None
                info = NodeInfo(
                    node_id=name, action=NODE_CREATE, attributes=one.attributes, schedulable_resource=one.amounts
                )
                self._apply(NodeRequest(nodes=[info]))
            case "grow-node":
                node = partition.nodes.get(node_id)
                assert node is not None
                size = plus(node.capacity, one.amounts)
                self._apply(
                    NodeRequest(nodes=[NodeInfo(node_id=node_id, action=NODE_UPDATE, schedulable_resource=size)])
                )
            case "make-node-schedulable":
                self._apply(NodeRequest(nodes=[NodeInfo(node_id=node_id, action=NODE_DRAIN_TO_SCHEDULABLE)]))
            case "release-allocation":
                self._apply(released(f"{one.application} {one.allocation}"))
            case "end-application":
                self._apply(ApplicationRequest(remove=[RemoveApplicationRequest(application_id=one.application)]))
            case "start-queue":
                partition.start_queue(one.queue, ADMIN, self.now)
            case "uncordon-node":
                partition.uncordon_node(node_id, ADMIN, self.now)
            case "wait":
                pass
            case _:
                raise AssertionError(one.code)

    def _configure(self, path: str, change: Callable[[QueueConfig], QueueConfig]) -> None:
        wanted = change_queue(self.partition.config, path, change)
        assert self.partition.objections(wanted) == []
        self.partition.reconfigure(wanted, self.now)


def change_queue(config: PartitionConfig, path: str, change: Callable[[QueueConfig], QueueConfig]) -> PartitionConfig:
    """A configuration with a changed queue."""
    return replace(config, queues=(_change(config.root, path.split(".")[1:], change),))


def _change(queue: QueueConfig, names: list[str], change: Callable[[QueueConfig], QueueConfig]) -> QueueConfig:
    if not names:
        return change(queue)
    assert any(child.name.lower() == names[0] for child in queue.queues), names
    children = (
        _change(child, names[1:], change) if child.name.lower() == names[0] else child for child in queue.queues
    )
    return replace(queue, queues=tuple(children))


def _raise_maximum(queue: QueueConfig, one: ChangeView) -> QueueConfig:
    return replace(queue, resources=replace(queue.resources, max=_raise(queue.resources.max or {}, one)))


def _raise(texts: dict[str, str], one: ChangeView) -> dict[str, str]:
    raised = dict(texts)
    for kind, amount in one.amounts.items():
        raised[kind] = str(int(texts[kind]) + amount)
    return raised


def _raise_limit(queue: QueueConfig, one: ChangeView, whom: str, name: str) -> QueueConfig:
    def change(limit: LimitConfig) -> LimitConfig:
        if name not in getattr(limit, whom):
            return limit
        return replace(
            limit,
            max_resources=_raise(limit.max_resources, one),
            max_applications=limit.max_applications + one.applications,
        )

    return replace(queue, limits=tuple(change(limit) for limit in queue.limits))
