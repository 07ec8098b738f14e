"""Counts waiting asks by reason, for explanations of queues, metrics and plans, and finds single reasons for tables.

The reasons are those of `find_reason`, which costs several microseconds. In a large partition most asks of a queue have
the same few shapes and wait for the same, so the reason is looked up once for each queue and shape, where nothing about
the application itself can make a difference.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from yunishard.common.messages.reasons import Reason
from yunishard.partition_worker.engine.allocation import AskGroup, AskShape
from yunishard.partition_worker.engine.application import Application, AppState
from yunishard.partition_worker.engine.explain.checks import find_reason
from yunishard.partition_worker.engine.state import PartitionState
from yunishard.partition_worker.engine.user_limits import UsageAccount

GROUPS_MAX: Final = 20_000
"""Groups of equal asks that the metrics look at, some 50 ms; the asks of further ones count as `UNCOUNTED`."""

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
        account = self._state.usage.find(application)
        if not group.is_plain or not _is_plain(application, account, self._now):
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


@dataclass(slots=True)
class WaitingAsks:
    """The asks that wait, by reason."""

    asks: int = 0
    applications: int = 0
    counted: int = 0
    """The asks of which the reason was found; fewer than all beyond a number of groups."""
    reasons: Counter[str] = field(default_factory=Counter)
    oldest: dict[str, tuple[int, int, Application, AskGroup]] = field(default_factory=dict)
    """By reason, the group that has waited longest: creation time, rank of the application, and both."""

    @property
    def main_reason(self) -> str:
        """The reason of most asks; empty if nothing waits."""
        return max(self.reasons, key=lambda code: self.reasons[code], default="")

    @property
    def sorted_reasons(self) -> dict[str, int]:
        return {code: self.reasons[code] for code in sorted(self.reasons)}


def survey_waiting(
    state: PartitionState, applications: Iterable[Application], now: float, groups_max: int
) -> WaitingAsks:
    """Count the asks of applications that wait, by reason, without a look at nodes; up to so many groups of them."""
    found, finder, left = WaitingAsks(), ReasonFinder(state, now), groups_max
    for application in applications:
        if not application.requests:
            continue
        found.asks += len(application.requests)
        found.applications += 1
        for group in application.asks.groups if left else ():
            left -= 1
            reason, number = finder.find(application, group), len(group)
            found.reasons[reason] += number
            found.counted += number
            place = group.head.created_ns, application.rank
            if reason not in found.oldest or place < found.oldest[reason][:2]:
                found.oldest[reason] = (*place, application, group)
            if not left:
                break
    return found


def count_waiting_asks(state: PartitionState, now: float, *, groups_max: int = GROUPS_MAX) -> Counter[str]:
    """Return the number of asks by reason code, in the order of the applications' arrival."""
    found, finder, left = Counter[str](), ReasonFinder(state, now), groups_max
    for application in state.applications.values():
        for group in application.asks.groups_by_key.values() if application.requests else ():
            if left:
                left -= 1
                found[finder.find(application, group)] += len(group)
            else:
                found[UNCOUNTED] += len(group)
    return found
