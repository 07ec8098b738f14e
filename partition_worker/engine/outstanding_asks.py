"""Outstanding asks: asks that only a larger cluster helps. The RM receives each once, so that it can add nodes.

An ask is outstanding if an attempt to place it failed although its queues and its user have room for it; the size of
the cluster does not count as a limit here. The RM receives it REPORT_EVERY_S after the last change, at the earliest.

Asks of one group are equal to nodes and quotas, so they are checked together, and an application without unreported
asks costs one comparison.

    1. Queues in the order in which they deserve the next allocation, then their applications, then their ask groups.
    2. As many asks of a group as fit the room of its queues and its user; the next groups of the application get what
       is left after them, whether or not these were reported before.
    3. New reports reduce the room of the applications and queues after them.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from common.messages import Resources
from common.resources import Limit, add_to, is_positive, less, tighten
from common.rm_messages import SCHEDULING_FAILED, UpdateContainerSchedulingState
from common.wire import NEVER
from partition_worker.engine.allocation import Standing
from partition_worker.engine.application import Application
from partition_worker.engine.queues.fair_share import queue_key
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.ready_queues import application_key
from partition_worker.engine.state import PartitionState

REPORT_EVERY_S: Final = 0.5
"""Seconds between two reports. Cluster autoscalers wait for them: a pod has its condition within a second."""

APPLICATIONS_MAX: Final = 500
"""Applications that one call checks; the next call continues with the others."""

GROUPS_MAX: Final = 50
"""Ask groups that are checked of one application, the first ones in its order."""

REPORTED_MAX: Final = 1000
"""Asks that one call reports; the others follow with the next one."""

REASON: Final = "request is waiting for cluster resources become available"


class OutstandingAsks:
    """The schedule of the reports of one partition."""

    def __init__(self) -> None:
        self.deadline = NEVER
        """When `report` has something to do, in Unix seconds."""
        self.seen = 0
        """Applications that earlier calls have checked since the last complete pass."""

    def report(self, state: PartitionState) -> None:
        """Report outstanding asks to the RM."""
        chosen = list(islice(_with_unreported_asks(state), self.seen, self.seen + APPLICATIONS_MAX))
        report = _Report(state, chosen)
        report.report_below(state.tree.root, None)
        is_full = report.count >= REPORTED_MAX
        self.seen = 0 if is_full or len(chosen) < APPLICATIONS_MAX else self.seen + APPLICATIONS_MAX
        self.deadline = state.now + REPORT_EVERY_S if is_full or self.seen else NEVER


def _with_unreported_asks(state: PartitionState) -> Iterator[Application]:
    for leaf in state.tree:
        if leaf.leaf and is_positive(leaf.pending) and leaf.find_stopped() is None:
            for application in [state.applications[name] for name in leaf.applications]:
                if application.asks.told < len(application.requests):
                    yield application


class _Report:
    """One call: the applications that it checks, and the number of asks that it has reported."""

    def __init__(self, state: PartitionState, applications: list[Application]) -> None:
        self.count = 0
        self._state = state
        self._applications: dict[int, list[Application]] = {}
        """By the rank of the leaf."""
        for application in applications:
            self._applications.setdefault(application.queue.rank, []).append(application)
        self._paths = {level.rank for one in applications for level in one.queue.ancestry()}
        """Ranks of the queues that lead to them."""

    def report_below(self, queue: Queue, room: Limit | None) -> Resources:
        """Report asks in a queue with this room; return their total."""
        total: Resources = {}
        children = [one for one in queue.children.values() if one.rank in self._paths]
        for child in sorted(children, key=lambda one: (queue_key(one), one.rank)):
            own = None if child.maximum is None else less(child.maximum, child.allocated)
            add_to(total, self.report_below(child, tighten(own, _less_total(room, total))))
        applications = self._applications.get(queue.rank, [])
        for application in sorted(applications, key=lambda one: (application_key(one), one.rank)):
            if self.count >= REPORTED_MAX:
                break
            add_to(total, self._report_application(application, _less_total(room, total)))
        return total

    def _report_application(self, application: Application, room: Limit | None) -> Resources:
        room = tighten(room, self._state.usage.account(application).headroom())
        total: Resources = {}
        for group in islice(application.asks.groups, GROUPS_MAX):
            if not group.attempted or group.kind.standing is Standing.HELD:
                continue
            amounts, fitting = group.shape.amounts, len(group.asks)
            if room is not None:
                counts = (max(0, room[kind]) // value for kind, value in amounts if value > 0 and kind in room)
                fitting = min([fitting, *counts])
                room = less(room, {kind: value * fitting for kind, value in amounts}) if fitting else room
            if group.told >= fitting or group.shape.required_node:
                continue
            unreported = (ask for ask in islice(group.asks, fitting) if not ask.scale_up_told)
            reported = list(islice(unreported, REPORTED_MAX - self.count))
            for ask in reported:
                application.asks.tell(ask)
                self._state.changes.allocations[ask.key] = None
                self._state.emit(
                    UpdateContainerSchedulingState(
                        application_id=application.application_id,
                        allocation_key=ask.key,
                        state=SCHEDULING_FAILED,
                        reason=REASON,
                    )
                )
            self.count += len(reported)
            add_to(total, {kind: value * len(reported) for kind, value in amounts})
        return total


def _less_total(room: Limit | None, total: Resources) -> Limit | None:
    return less(room, total) if room is not None and total else room
