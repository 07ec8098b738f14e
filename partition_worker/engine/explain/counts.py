"""Counts the waiting asks of a partition by reason, for the metrics.

The reasons are those of `find_reason`, which costs several microseconds. In a large partition most asks of a queue have
the same few shapes and wait for the same, so the reason is looked up once for each queue and shape, where nothing about
the application itself can make a difference.
"""

from collections import Counter
from typing import Final

from common.reasons import Reason
from partition_worker.engine.allocation import AskGroup, AskShape
from partition_worker.engine.application import Application, AppState
from partition_worker.engine.explain.checks import find_reason
from partition_worker.engine.state import PartitionState
from partition_worker.engine.user_limits import UsageAccount

GROUPS_MAX: Final = 20_000
"""Groups of equal asks that one count looks at, some 50 ms; the asks of further ones count as `UNCOUNTED`."""

UNCOUNTED: Final = "uncounted"
"""In place of a reason: asks beyond `GROUPS_MAX`."""

_Alike = tuple[int, AskShape, bool, bool]
"""Leaf, shape, whether the application has to start first, whether the group was tried."""


def count_waiting_asks(state: PartitionState, now: float, *, groups_max: int = GROUPS_MAX) -> Counter[str]:
    """Return the number of asks by reason code, in the order of the applications' arrival."""
    found = Counter[str]()
    known: dict[_Alike, Reason] = {}
    left = groups_max
    for application in state.applications.values():
        if not application.requests:
            continue
        account = state.usage.accounts.get(application.rank)
        is_plain = _is_plain(application, account, now)
        for group in application.asks.groups_by_kind.values():
            if not left:
                found[UNCOUNTED] += len(group.asks)
                continue
            left -= 1
            if is_plain and group.plain:
                reason = _find_alike(state, application, group, now, known)
            else:
                reason = find_reason(state, application, group, now, account)
            found[reason] += len(group.asks)
    return found


def _is_plain(application: Application, account: UsageAccount | None, now: float) -> bool:
    """Whether asks of this application wait for the same as equal ones of others in its queue."""
    is_unlimited = account is not None and not account.limits
    return is_unlimited and now >= application.back_off_until and not application.queue.state_aware


def _find_alike(
    state: PartitionState, application: Application, group: AskGroup, now: float, known: dict[_Alike, Reason]
) -> Reason:
    leaf = application.queue
    starts = application.state is AppState.ACCEPTED and application.application_id not in leaf.allocating
    key = (leaf.rank, group.shape, starts, group.attempted)
    reason = known.get(key)
    if reason is None:
        reason = known[key] = find_reason(state, application, group, now)
    return reason
