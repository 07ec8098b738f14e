"""What users and groups have at which queue, and to whom each application is charged.

What they may have follows from the configuration. Not here: who waits for it (`readiness.py`).
"""

from partition_worker.engine.limits.account import Account
from partition_worker.engine.limits.trackers import Trackers
from partition_worker.engine.limits.usage import Usage
from partition_worker.engine.memory.amounts import amounts_of, sums
from partition_worker.engine.memory.model import LevelMemory, UsageMemory
from partition_worker.engine.memory.references import Lookup


def written(usage: Usage) -> UsageMemory:
    """All of it."""
    return UsageMemory(
        users=_trackers(usage.users),
        groups=_trackers(usage.groups),
        accounts=[(one.application.rank, one.group_name, one.counted) for one in usage.accounts],
        idle=list(usage.idle),
        ranks=usage.ranks.last,
    )


def _trackers(trackers: Trackers) -> list[tuple[str, list[LevelMemory]]]:
    return [
        (
            tracker.name,
            [
                LevelMemory(level.path, level.rank, sums(level.used), list(level.applications))
                for level in tracker.levels.values()
            ],
        )
        for tracker in trackers
    ]


def restore(usage: Usage, found: UsageMemory, lookup: Lookup) -> None:
    """Let them have what they had."""
    _restore(usage.users, found.users, lookup)
    _restore(usage.groups, found.groups, lookup)
    accounts = []
    for rank, group, counted in found.accounts:
        application = lookup.applications[rank]
        account, path = Account(application, group_name=group, counted=counted), application.queue.path
        account.user = usage.users.open(application.user.name, path, account)
        if group is not None:
            account.group = usage.groups.open(group, path, account)
        account.bind()
        accounts.append(account)
    usage.recall(accounts, idle=found.idle, ranks=found.ranks)


def _restore(trackers: Trackers, found: list[tuple[str, list[LevelMemory]]], lookup: Lookup) -> None:
    trackers.clear()
    for name, levels in found:
        for memory in levels:
            level = trackers.recall(name, memory.path, memory.rank)
            level.used = amounts_of(memory.used)
            level.applications = dict.fromkeys(memory.applications)
            lookup.levels[level.rank] = level
