"""The judge of what waits: whether it waits with a reason, and whether `explain` names a true one.

It looks at every pending ask, queue and reservation, and adds up all sums again. It reads the state, and shares no
decision with the engine: for victims it knows only conditions that are sufficient by the documentation
(`docs/operating/scheduling.md`), far narrower than the choice that the engine makes. Not here: what could be placed or
reserved (`searching.py`), and which victims a quota has (`plain_quota.py`).
"""

from collections.abc import Iterator
from itertools import combinations

from tests.properties.plain_quota import LEAVES_WITHIN_S, PlainQuota, exceeds_maximum
from tests.properties.searching import (
    RESERVES_AT_MOST_S,
    bounds,
    everything_below,
    fits,
    has_quota,
    is_full,
    is_open,
    may_run,
    missed,
    outranks,
    waits_for_placeholder,
)
from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.reasons import Reason
from yunishard.common.resources import minus, total_of
from yunishard.common.rest.explain import CheckView
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.application import Application
from yunishard.partition_worker.engine.explain.explanations import explain_ask
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.queues.queue import Queue

SEARCHES_EVERY_S = 15.0
VICTIMS_MAX = 3
"""Victims on a node that are tried together."""

PERMANENT = frozenset(
    (
        *(Reason.QUEUE_MAXIMUM, Reason.CLUSTER_FULL, Reason.USER_LIMIT, Reason.GROUP_LIMIT, Reason.QUEUE_NOT_LEAF),
        *(Reason.QUEUE_APPLICATION_LIMIT, Reason.USER_APPLICATION_LIMIT, Reason.GROUP_APPLICATION_LIMIT),
        *(Reason.NO_NODES, Reason.NO_NODE_FITS, Reason.REQUIRED_NODE_MISSING, Reason.REQUIRED_NODE_REFUSES),
        Reason.REQUIRED_NODE_TOO_SMALL,
    )
)
"""Why an ask may wait for ever where nothing runs: it is larger than a maximum or each node, or its application waits
for another one that has only such asks."""


class Judge:
    """What is wrong with a partition in which nothing has happened for long, a sentence each."""

    def __init__(self, partition: Partition, now: float) -> None:
        self.state, self.now = partition, now

    def complaints(self) -> list[str]:
        if self.state.tree.root.maximum is None:
            return []  # without nodes
        return [*missed(self.state), *self._of_queues(), *self._of_reservations(), *self._of_asks()]

    def never_end(self) -> list[str]:
        """What waits for ever, once all that ran has ended."""
        every = self.state.applications.values()
        running = [f"{key} still runs" for application in every for key in application.allocations]
        waiting = [(one, ask) for one in every for ask in one.requests.values() if not self._waits_for_ever(one, ask)]
        explained = [(ask.key, explain_ask(self.state, one, ask, self.now).summary) for one, ask in waiting]
        return running + [f"{key} still waits, although nothing runs: {summary}" for key, summary in explained]

    def _waits_for_ever(self, application: Application, ask: Allocation) -> bool:
        """Whether an ask may wait for ever where nothing runs."""
        code = explain_ask(self.state, application, ask, self.now).stopped_by
        if code == Reason.BACK_OFF:  # renewed by any ask of the application that fits no node
            return any(self._is_too_large(application, one) for one in application.requests.values())
        if code in (Reason.RESERVED_NODE_FULL, Reason.REQUIRED_NODE_FULL):  # by foreign allocations, which go on
            node = self.state.nodes.get(ask.shape.required_node)
            node = application.reservations[ask.key].node if ask.reserved else node
            return node is not None and not fits(minus(node.capacity, node.occupied), ask.resources)
        if code == Reason.GANG_PLACEHOLDER:
            placeholders = [one for one in application.requests.values() if one.placeholder]
            return any(self._waits_for_ever(application, o) for o in placeholders if o.task_group == ask.task_group)
        return code in PERMANENT

    def _is_too_large(self, application: Application, ask: Allocation) -> bool:
        checks = explain_ask(self.state, application, ask, self.now).checks
        return any(one.code in PERMANENT and not one.passed for one in checks)

    def _of_asks(self) -> Iterator[str]:
        for application in self.state.applications.values():
            for ask in application.requests.values():
                victims = self.find_victims(application, ask)
                if victims:
                    yield f"{ask.key} could preempt {' and '.join(one.key for one in victims)} on {victims[0].node_id}"
                yield from self._of_explanation(application, ask)

    # Quotas and reservations ------------------------------------------------------------------------------------------

    def _of_queues(self) -> Iterator[str]:
        if not self.state.config.preemption.is_quota_enabled:
            return
        for queue in self.state.tree:
            if queue.parent is None:
                continue  # the maximum of the root is the size of the cluster, which no operator lowers
            if queue.policies.quota_preemption_delay_s and exceeds_maximum(queue):
                victims = PlainQuota(self.state, queue, at=self.now).victims
                if victims:
                    yield f"{queue.path} exceeds its maximum, and could give up {' '.join(one.key for one in victims)}"

    def _of_reservations(self) -> Iterator[str]:
        for application in self.state.applications.values():
            for key, one in application.reservations.items():
                name, ask = f"the reservation of {one.node.node_id} for {key}", one.ask
                if self.now > one.created + RESERVES_AT_MOST_S or (
                    one.after_preemption and self.now > one.keeps_since + LEAVES_WITHIN_S
                ):
                    yield f"{name} is too old"
                elif not one.after_preemption and not ask.shape.required_node:
                    levels = [level for level in application.queue.ancestry() if level.parent is not None]
                    if not may_run(self.state, application):
                        yield f"{name}: its application may not start"
                    elif not self._is_within_limits(application, ask):
                        yield f"{name}: its user or group has no room"
                    elif not one.keeps and any(self._lacks(level, ask, []) for level in levels):
                        yield f"{name}: its queue has no room"

    def _is_within_limits(self, application: Application, ask: Allocation) -> bool:
        return not any(
            kind in one.limit.resources and value > 0 and one.used.get(kind, 0) + value > one.limit.resources[kind]
            for one in bounds(self.state, application)
            for kind, value in ask.resources.items()
        )

    # Victims ----------------------------------------------------------------------------------------------------------

    def find_victims(self, application: Application, ask: Allocation) -> list[Allocation]:
        """Some allocations that the ask should have preempted; none if it is not sure that it should have."""
        leaf, node_id = application.queue, ask.shape.required_node
        if (
            ask.preemption_triggered
            or not leaf.leaf
            or any(level.stopped for level in leaf.ancestry())
            or waits_for_placeholder(application, ask)
            or not may_run(self.state, application)
            or not self._is_within_limits(application, ask)
            or (self.now < application.back_off_until and not ask.reserved)
        ):
            return []
        if node_id:
            node = self.state.nodes.get(node_id)
            return [] if node is None else self._find_on_required_node(leaf, ask, node)
        since = ask.created_ns / 1e9 + leaf.policies.preemption_delay_s + SEARCHES_EVERY_S
        if not (ask.may_preempt and self.state.config.preemption.is_enabled and since < self.now):
            return []
        if not self._is_below_guarantee(leaf, ask):
            return []
        candidates = [one for one in self._running() if self._may_be_preempted(leaf, ask, one)]
        for node in self.state.nodes:
            has_room = fits(node.available, ask.resources)
            there = [one for one in candidates if has_room or one.node_id == node.node_id]
            if self._is_usable(node, ask):
                for number in range(1, VICTIMS_MAX + 1):
                    for victims in combinations(there, number):
                        if self._make_room(leaf, ask, node, [*victims]) and self._leave_guarantees(leaf, [*victims]):
                            return [*victims]
        return []

    def _find_on_required_node(self, leaf: Queue, ask: Allocation, node: Node) -> list[Allocation]:
        if not is_open(self.state, node, ask) or not self.state.nodes.is_accepted(ask.shape, node, allocate=False):
            return []
        if fits(node.available, ask.resources):
            return []
        victims = [
            one
            for one in self._running()
            if one.node_id == node.node_id and one.priority <= ask.priority and one.resources.keys() & ask.resources
        ]
        return victims if self._make_room(leaf, ask, node, victims) else []

    def _running(self) -> list[Allocation]:
        """Allocations that may be preempted."""
        every = [one for application in self.state.applications.values() for one in application.allocations.values()]
        return [one for one in every if not (one.released or one.preempted or one.shape.required_node)]

    def _is_below_guarantee(self, leaf: Queue, ask: Allocation) -> bool:
        """Whether something that the ask needs is guaranteed, and it is within each guarantee on its path."""
        wanted = {kind: value for kind, value in ask.resources.items() if value > 0}
        levels = [(level.guaranteed, self._used(level)) for level in leaf.ancestry() if level.guaranteed]
        return any(least.keys() & wanted for least, _ in levels) and all(
            used.get(kind, 0) + wanted.get(kind, 0) <= most for least, used in levels for kind, most in least.items()
        )

    def _may_be_preempted(self, leaf: Queue, ask: Allocation, one: Allocation) -> bool:
        queue = self.state.applications[one.application_id].queue
        return (
            queue is not leaf
            and queue.policies.preemption != "disabled"
            and not any(level.policies.preemption == "fence" for level in (*leaf.ancestry(), *queue.ancestry()))
            and bool(one.resources.keys() & {kind for kind, value in ask.resources.items() if value > 0})
            and not outranks(self.state, one, ask)
            and self._exceeds_guarantee(queue, ask)
            and queue.path not in self.state.preemptions.protected(self.now, leaf, ask.resources)
        )

    def _exceeds_guarantee(self, queue: Queue, ask: Allocation) -> bool:
        """Whether a queue has more than is guaranteed to it of a type that the ask needs, or has no guarantee."""
        levels = [(level.guaranteed, self._used(level)) for level in queue.ancestry() if level.guaranteed]
        return not levels or any(
            value > 0 and used.get(kind, 0) > least.get(kind, used.get(kind, 0))
            for least, used in levels
            for kind, value in ask.resources.items()
        )

    def _is_usable(self, node: Node, ask: Allocation) -> bool:
        return (
            node.schedulable
            and node.node_id not in self.state.nodes.cordons
            and all(one.ask is ask for one in node.reservations.values())
            and self.state.nodes.is_accepted(ask.shape, node, allocate=False)
        )

    def _make_room(self, leaf: Queue, ask: Allocation, node: Node, victims: list[Allocation]) -> bool:
        room = total_of([node.available, *(one.resources for one in victims)])
        return fits(room, ask.resources) and not any(self._lacks(level, ask, victims) for level in leaf.ancestry())

    def _leave_guarantees(self, leaf: Queue, victims: list[Allocation]) -> bool:
        """Whether each queue of the victims has all of its guarantee without them, or none of what they use."""
        for level in self.state.tree:
            if level in leaf.ancestry():
                continue
            lost = total_of(one.resources for one in victims if level in self._path(one))
            used = self._used(level)
            if any(
                lost.get(kind) and used[kind] - lost[kind] < least for kind, least in (level.guaranteed or {}).items()
            ):
                return False
        return True

    def _path(self, one: Allocation) -> list[Queue]:
        return self.state.applications[one.application_id].queue.ancestry()

    # Sums -------------------------------------------------------------------------------------------------------------

    def _used(self, queue: Queue) -> Resources:
        """What a queue uses, without victims that may still leave in time."""
        every = [one for app in everything_below(self.state, queue) for one in app.allocations.values()]
        return total_of(
            one.resources for one in every if not (one.preempted and self.now < one.preempted_at + LEAVES_WITHIN_S)
        )

    def _charged(self, queue: Queue) -> Resources:
        return total_of(app.charged for app in everything_below(self.state, queue))

    def _maximum(self, queue: Queue) -> Resources:
        return total_of(node.capacity for node in self.state.nodes) if queue.parent is None else queue.maximum or {}

    def _lacks(self, queue: Queue, ask: Allocation, victims: list[Allocation]) -> bool:
        """Whether the queue has no room for the ask once these victims have left."""
        gone = total_of(one.resources for one in victims if queue in self._path(one))
        used, most = self._used(queue), self._maximum(queue)
        return any(
            kind in most and used.get(kind, 0) - gone.get(kind, 0) + queue.kept.get(kind, 0) + value > most[kind]
            for kind, value in ask.resources.items()
            if value > 0
        )

    # Explanations -----------------------------------------------------------------------------------------------------

    def _of_explanation(self, application: Application, ask: Allocation) -> Iterator[str]:
        view = explain_ask(self.state, application, ask, self.now)
        failed = [one for one in view.checks if not one.passed and not one.code.startswith("preemption-")]
        if not failed or view.stopped_by != failed[0].code:
            yield f"{ask.key} waits, and the explanation names no reason: {view.summary}"
        for one in failed:
            if not self._is_true(application, ask, one):
                yield f"{ask.key} waits, and this is not true: {one.code}: {one.text}"
        for each in view.reservations:
            if not self.now <= each.until / 1e9 <= self.now + RESERVES_AT_MOST_S:
                yield f"{ask.key} waits for a reservation that does not end: {each.text}"

    def _is_true(self, application: Application, ask: Allocation, check: CheckView) -> bool:
        state, node = self.state, self.state.nodes.get(check.node)
        asked = ask.resources.get(check.resource, 0)
        match check.code:
            case Reason.QUEUE_MAXIMUM | Reason.CLUSTER_FULL:
                queue = next(level for level in application.queue.ancestry() if level.path == check.queue)
                used, most = self._charged(queue).get(check.resource, 0), self._maximum(queue)[check.resource]
                return (used, most, asked) == (check.used, check.maximum, check.asked) and used + asked > most
            case Reason.QUEUE_ROOM_KEPT:
                return not has_quota(state, application, ask)
            case Reason.USER_LIMIT | Reason.GROUP_LIMIT:
                return any(
                    (one.queue, one.kind, one.used.get(check.resource, 0)) == (check.queue, check.code[:-6], check.used)
                    and one.limit.resources.get(check.resource, check.used + asked) < check.used + asked
                    for one in bounds(state, application)
                )
            case Reason.QUEUE_APPLICATION_LIMIT:
                return any(
                    level.path == check.queue and is_full(state, level, application) for level in self._path(ask)
                )
            case Reason.USER_APPLICATION_LIMIT | Reason.GROUP_APPLICATION_LIMIT:
                return not may_run(state, application)
            case Reason.BACK_OFF:
                return self.now < application.back_off_until
            case Reason.QUEUE_STOPPED:
                return check.queue in state.tree.stops
            case Reason.QUEUE_NOT_LEAF:
                return bool(application.queue.children)
            case Reason.GANG_PLACEHOLDER:
                return waits_for_placeholder(application, ask)
            case Reason.VICTIMS_LEAVING:
                return node is not None and any(one.preempted for one in node.allocations.values())
            case Reason.NO_NODE_FITS:
                return not any(self._takes(one, ask) for one in state.nodes)
            case Reason.REQUIRED_NODE_MISSING:
                return node is None
            case Reason.REQUIRED_NODE_REFUSES:
                return node is not None and not state.nodes.is_accepted(ask.shape, node)
            case Reason.REQUIRED_NODE_KEPT:
                return node is not None and any(
                    one.after_preemption and one.ask is not ask for one in node.reservations.values()
                )
            case Reason.REQUIRED_NODE_TOO_SMALL | Reason.REQUIRED_NODE_FULL | Reason.RESERVED_NODE_FULL:
                return node is not None and not fits(node.available, ask.resources)
        return False

    def _takes(self, node: Node, ask: Allocation) -> bool:
        is_accepted = self.state.nodes.is_accepted(ask.shape, node)
        return is_open(self.state, node, ask) and is_accepted and fits(node.available, ask.resources)
