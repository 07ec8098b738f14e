"""Outstanding asks: asks that only a larger cluster helps. The RM receives each once, so that it can add nodes.

An ask is outstanding if an attempt to place it failed although its queues and its user have room for it; the size of
the cluster does not count as a limit here. The RM receives it REPORT_EVERY_S after the last change, at the earliest.

Asks of one group are equal to nodes and quotas, so they are checked together, and an application without unreported
asks costs one comparison.

    1. Queues in the order in which they deserve the next allocation, then their applications, then their ask groups.
    2. As many asks of a group as fit the room of its queues and its user. Asks that were reported before and still wait
       have taken their part of that room: otherwise each report would fill it again.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.rm_messages import SCHEDULING_FAILED, UpdateContainerSchedulingState
from yunishard.common.messages.wire import NEVER
from yunishard.common.resources import NOTHING, Limit, add_to, is_positive, less, tightest
from yunishard.partition_worker.engine.allocation import Standing
from yunishard.partition_worker.engine.application import Application
from yunishard.partition_worker.engine.queues.fair_share import queue_key
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.ready_queues import application_key
from yunishard.partition_worker.engine.state import PartitionState
from yunishard.partition_worker.engine.user_limits import UsageAccount

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
        """Applications that earlier calls have checked since the last complete pass, and that still have unreported
        asks.
        """

    def report(self, state: PartitionState) -> None:
        """Report outstanding asks to the RM."""
        chosen = list(islice(_with_unreported_asks(state), self.seen, self.seen + APPLICATIONS_MAX))
        report = _Report(state, chosen)
        report.report_below(state.tree.root)
        is_full = report.count >= REPORTED_MAX
        is_complete = len(chosen) < APPLICATIONS_MAX
        self.seen = 0 if is_full or is_complete else self.seen + sum(_has_unreported_asks(one) for one in chosen)
        self.deadline = NEVER if is_complete and not is_full else state.now + REPORT_EVERY_S


def _with_unreported_asks(state: PartitionState) -> Iterator[Application]:
    for leaf in state.tree:
        if leaf.leaf and is_positive(leaf.pending) and leaf.find_stopped() is None:
            for application in [state.applications[name] for name in leaf.applications]:
                if _has_unreported_asks(application):
                    yield application


def _has_unreported_asks(application: Application) -> bool:
    return application.asks.told < len(application.requests)


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
        self._in_queues: dict[int, Resources] = {}
        """The total of the reported asks that wait below a queue with a maximum, by its rank."""
        self._of_users: dict[int, Resources] = {}
        """The total of those that count for the limit of a user or group, by the rank of its usage."""
        if applications:
            for leaf in state.tree:
                if leaf.leaf and is_positive(leaf.pending):
                    self._count_reported(leaf)

    def _count_reported(self, leaf: Queue) -> None:
        """Count the reported asks of a leaf."""
        levels, usage = _limited_levels(leaf), self._state.usage
        if not levels and not usage.has_limits:
            return
        total: Resources = {}
        for application_id in leaf.applications:
            application = self._state.applications[application_id]
            amounts = application.asks.told_amounts
            if not amounts:
                continue
            add_to(total, amounts)
            if usage.has_limits and application.rank in usage.accounts:
                for limit in usage.accounts[application.rank].limits:
                    add_to(self._of_users.setdefault(limit.rank, {}), amounts)
        for level in levels:
            add_to(self._in_queues.setdefault(level.rank, {}), total)

    def report_below(self, queue: Queue) -> None:
        """Report asks of a queue and of those below it."""
        children = [one for one in queue.children.values() if one.rank in self._paths]
        for child in sorted(children, key=lambda one: (queue_key(one), one.rank)):
            self.report_below(child)
        applications = self._applications.get(queue.rank, [])
        for application in sorted(applications, key=lambda one: (application_key(one), one.rank)):
            if self.count >= REPORTED_MAX:
                break
            self._report_application(application)

    def _report_application(self, application: Application) -> None:
        account = self._state.usage.account(application)
        room = self._find_room(application, account)
        total: Resources = {}
        for group in islice(application.asks.groups, GROUPS_MAX):
            if not group.attempted or group.kind.standing is Standing.HELD:
                continue
            amounts, fitting = group.shape.amounts, len(group.asks) - group.told
            if room is not None and fitting:
                counts = (max(0, room[kind]) // value for kind, value in amounts if value > 0 and kind in room)
                fitting = min([fitting, *counts])
                room = less(room, {kind: value * fitting for kind, value in amounts})
            if group.shape.required_node:
                continue
            unreported = (ask for ask in group.asks if not ask.scale_up_told)
            reported = list(islice(unreported, min(fitting, REPORTED_MAX - self.count)))
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
        if total:
            for level in _limited_levels(application.queue):
                add_to(self._in_queues.setdefault(level.rank, {}), total)
            for usage in account.limits:
                add_to(self._of_users.setdefault(usage.rank, {}), total)

    def _find_room(self, application: Application, account: UsageAccount) -> Limit | None:
        """Return what the queues, the user and the group of an application let it have; None is no limit."""
        rooms: list[Limit | None] = [
            less(less(level.maximum, level.allocated), self._in_queues.get(level.rank, NOTHING))
            for level in _limited_levels(application.queue)
            if level.maximum is not None
        ]
        rooms += [
            less(less(usage.allowance.resources, usage.used), self._of_users.get(usage.rank, NOTHING))
            for usage in account.limits
            if usage.allowance is not None
        ]
        return tightest(rooms)


def _limited_levels(leaf: Queue) -> list[Queue]:
    """The queues of a path that have a maximum; that of the root is the size of the cluster."""
    return [level for level in leaf.ancestry() if level.parent is not None and level.maximum is not None]
