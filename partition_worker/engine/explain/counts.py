"""Finds the reasons of all waiting asks of a partition, for tables, and counts the asks by reason, for the metrics.

The reasons are those of `find_reason`, which costs several microseconds. In a large partition most asks of a queue have
the same few shapes and wait for the same, so the reason is looked up once for each queue and shape, where nothing about
the application itself can make a difference.
"""

from collections import Counter
from typing import Final

from yunishard.common.messages.reasons import Reason
from yunishard.partition_worker.engine.allocation import AskGroup, AskShape
from yunishard.partition_worker.engine.application import Application, AppState
from yunishard.partition_worker.engine.explain.checks import find_reason
from yunishard.partition_worker.engine.state import PartitionState
from yunishard.partition_worker.engine.user_limits import UsageAccount

GROUPS_MAX: Final = 20_000
"""Groups of equal asks that one count looks at, some 50 ms; the asks of further ones count as `UNCOUNTED`."""

UNCOUNTED: Final = "uncounted"
"""In place of a reason: asks beyond `GROUPS_MAX`."""

_Alike = tuple[int, AskShape, bool, bool]
"""Leaf, shape, whether the application has to start first, whether the group was tried."""


class ReasonFinder:
    """Finds why asks wait, for many of them at one moment."""

    def __init__(self, state: PartitionState, now: float) -> None:
        self._state = state
        self._now = now
        self._known: dict[_Alike, Reason] = {}

    def find(self, application: Application, group: AskGroup) -> Reason:
        """The reason of `find_reason`."""
        account = self._state.usage.accounts.get(application.rank)
        if not group.plain or not _is_plain(application, account, self._now):
            return find_reason(self._state, application, group, self._now, account)
        leaf = application.queue
        starts = application.state is AppState.ACCEPTED and application.application_id not in leaf.allocating
        key = (leaf.rank, group.shape, starts, group.attempted)
        reason = self._known.get(key)
        if reason is None:
            reason = self._known[key] = find_reason(self._state, application, group, self._now, account)
        return reason


def _is_plain(application: Application, account: UsageAccount | None, now: float) -> bool:
    """Whether asks of this application wait for the same as equal ones of others in its queue."""
    is_unlimited = account is not None and not account.limits
    return is_unlimited and now >= application.back_off_until and not application.queue.state_aware


def count_waiting_asks(state: PartitionState, now: float, *, groups_max: int = GROUPS_MAX) -> Counter[str]:
    """Return the number of asks by reason code, in the order of the applications' arrival."""
    found, finder, left = Counter[str](), ReasonFinder(state, now), groups_max
    for application in state.applications.values():
        for group in application.asks.groups_by_kind.values() if application.requests else ():
            if left:
                left -= 1
                found[finder.find(application, group)] += len(group.asks)
            else:
                found[UNCOUNTED] += len(group.asks)
    return found
