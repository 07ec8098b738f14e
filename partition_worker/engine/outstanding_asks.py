"""Outstanding asks: asks that only a larger cluster helps. The RM receives each once, so that it can add nodes.

An ask is outstanding if an attempt to place it failed although its queues and its user have room for it; the size of
the cluster does not count as a limit here. The RM receives it REPORT_EVERY_S after the last change, at the earliest.

Asks of one group are equal to nodes and quotas, so they are checked together. `Readiness.changed_asks` names the
applications of which asks changed, so a report costs neither the asks that wait nor those that were reported:

    1. Queues in the order in which they deserve the next allocation, then their applications, then their ask groups.
    2. As many asks of a group as fit the room of its queues and its user. Asks that were reported before and still wait
       have taken their part of that room: otherwise each report would fill it again.
"""

from itertools import islice
from typing import Final

from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.rm_messages import SCHEDULING_FAILED, UpdateContainerSchedulingState
from yunishard.common.messages.wire import NEVER
from yunishard.common.resources import Limit, less, tightest
from yunishard.partition_worker.engine.allocation import Allocation, AskGroup, Standing
from yunishard.partition_worker.engine.amounts import Sum, any_of, name_types, subtract_sum
from yunishard.partition_worker.engine.application import Application
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.ready_queues import place_key
from yunishard.partition_worker.engine.state import PartitionState
from yunishard.partition_worker.engine.user_limits import QueueUsage, UsageAccount

REPORT_EVERY_S: Final = 0.5
"""Seconds between two reports. Cluster autoscalers wait for them: a pod has its condition within a second."""

CHANGED_MAX: Final = 2_000
"""Applications with changed asks that one call counts, in about 4 ms; if there are more, the next turn continues, and
nothing is reported before all are counted.
"""

APPLICATIONS_MAX: Final = 500
"""Applications that one call checks; the next call continues with the others."""

SKIPPED_MAX: Final = 10_000
"""Applications of stopped queues that one call skips; the next call continues with the others."""

GROUPS_MAX: Final = 50
"""Ask groups that are checked of one application, the first ones in its order."""

REPORTED_MAX: Final = 1000
"""Asks that one call reports; the others follow with the next one."""

REASON: Final = "request is waiting for cluster resources become available"


_Level = Queue | QueueUsage
"""Object with a maximum or a limit."""

_Counted = tuple[Sum, tuple[_Level, ...]]
"""The total of the reported asks of an application that still wait, and the queues and the usages with limits for which
it counts.
"""


class OutstandingAsks:
    """The schedule of the reports of one partition, and what they depend on."""

    def __init__(self) -> None:
        self.deadline = NEVER
        """When `report` has something to do, in Unix seconds."""
        self.totals: dict[_Level, Sum] = {}
        """The total of the reported asks that wait below a queue, or count for the limit of a user or group."""
        self._counted: dict[int, _Counted] = {}
        """By the rank of the application; only of those with such asks."""
        self._unreported: dict[int, Application] = {}
        """Applications with unreported asks, by rank."""
        self._left: list[Application] = []
        """Those of them that this pass has not checked yet, the next one at the end."""

    def report(self, state: PartitionState) -> None:
        """Report outstanding asks to the RM."""
        readiness, opened = state.readiness, state.usage.opened
        for application in opened.values():
            readiness.note_changed_asks(application)
        opened.clear()
        for application in list(islice(readiness.changed_asks.values(), CHANGED_MAX)):
            del readiness.changed_asks[application.rank]
            application.has_changed_asks = False
            self.count(state, application)
        if readiness.changed_asks or readiness.reset_leaves:  # the latter are not sorted before something is decided
            self.deadline = state.now if readiness.changed_asks else state.now + REPORT_EVERY_S
            return
        if not self._left:
            self._left = list(reversed(self._unreported.values()))
        left = REPORTED_MAX
        for application in sorted(self._choose(), key=place_key):
            left -= self._report_application(state, application, left) if left else 0
        if not left:
            self._left.clear()
        elif not self._left:
            self.deadline = NEVER
            return
        self.deadline = state.now + REPORT_EVERY_S

    def count(self, state: PartitionState, application: Application) -> None:
        """Count the reported asks of an application again, which may be gone."""
        rank, asks = application.rank, application.asks
        self._add(self._counted.pop(rank, None), -1)
        is_here = state.applications.get(application.application_id) is application
        counted = count_reported(state, application) if is_here else None
        self._add(counted, 1)
        if counted is not None:
            self._counted[rank] = counted
        if is_here and asks.told < len(application.requests):
            self._unreported[rank] = application
        else:
            self._unreported.pop(rank, None)
        if rank in self._unreported or rank in self._counted:
            state.readiness.reported_asks[rank] = application
        else:
            state.readiness.reported_asks.pop(rank, None)

    def _add(self, counted: _Counted | None, times: int) -> None:
        told, levels = counted or ([], ())
        for level in levels:
            total = self.totals.setdefault(level, [])
            subtract_sum(total, [-times * value for value in told])
            if not any_of(total):
                del self.totals[level]

    def _choose(self) -> list[Application]:
        """Return the applications that this call checks."""
        chosen: list[Application] = []
        left, skipped = self._left, 0
        while left and len(chosen) < APPLICATIONS_MAX and skipped < SKIPPED_MAX:
            application = left.pop()
            leaf = application.queue
            if application.rank in self._unreported and leaf.leaf and leaf.find_stopped() is None:
                chosen.append(application)
            else:
                skipped += 1
        return chosen

    def _report_application(self, state: PartitionState, application: Application, most: int) -> int:
        """Report at most so many asks of an application; return how many."""
        room, left = self._find_room(application, state.usage.account(application)), most
        for group in islice(application.asks.groups, GROUPS_MAX):
            if not group.attempted or group.standing is Standing.HELD:
                continue
            amounts, fitting = group.shape.amounts, len(group) - group.told
            if fitting:
                counts = (max(0, room[kind]) // value for kind, value in amounts if value > 0 and kind in room)
                fitting = min([fitting, *counts])
                room = less(room, {kind: value * fitting for kind, value in amounts})
            if group.shape.required_node:
                continue
            for ask in list_unreported(group, min(fitting, left)):
                application.asks.tell(ask)
                left -= 1
                state.changes.allocations[ask.key] = ask
                state.emit(
                    UpdateContainerSchedulingState(
                        application_id=application.application_id,
                        allocation_key=ask.key,
                        state=SCHEDULING_FAILED,
                        reason=REASON,
                    )
                )
        if left < most:
            self.count(state, application)
        return most - left

    def _find_room(self, application: Application, account: UsageAccount) -> Limit:
        """Return what the queues, the user and the group of an application let it have."""
        queues = application.queue.ancestry()[:-1]  # the maximum of the root is the size of the cluster
        limits: list[tuple[_Level, Limit, Resources]] = [(one, one.maximum or {}, one.allocated) for one in queues]
        limits += [(one, one.allowance.resources, one.used) for one in account.limits if one.allowance is not None]
        totals = self.totals
        return tightest([less(less(limit, used), name_types(totals.get(one, []))) for one, limit, used in limits]) or {}


def count_reported(state: PartitionState, application: Application) -> _Counted | None:
    """Count the reported asks of an application that still wait; None if there are none."""
    told = application.asks.told_sum
    if not any_of(told):
        return None
    account = state.usage.find(application)
    return list(told), (*application.queue.ancestry(), *(() if account is None else account.limits))


def list_unreported(group: AskGroup, most: int) -> list[Allocation]:
    """Return the first unreported asks of a group, at most so many. Those that were reported mostly come first."""
    found = list(islice(group.iterate_from(group.told), most))
    if any(ask.scale_up_told for ask in found):
        found = list(islice((ask for ask in group if not ask.scale_up_told), most))
    return found
