"""What the limits of a configuration allow: to whom, at which queue.

Queues are named in lower case here, as they are everywhere in the engine, however the configuration writes them.

Not here: what is used (`usage.py`), and whether limits make sense together (`common/config/check_limits.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from common.config.model import LimitConfig, PartitionConfig, QueueConfig, amounts
from common.resources import Limit, is_zero
from partition_worker.engine.queues.queue import Queue

ANYONE: Final = "*"
"""Each user that has no limit of its own at a queue; all groups that have none, together."""


Whose = Literal["user", "group"]


class Allowance(NamedTuple):
    """The most that a user or group may have in a queue and all below it."""

    resources: Limit
    """A type that is missing is unlimited; one that is 0 cannot be had."""
    applications: int
    """How many may run at once; 0 is no limit."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """The limits at one queue: of users and of groups by name, in the order of the configuration, with `*` last."""

    users: dict[str, Allowance] = field(default_factory=dict)
    groups: dict[str, Allowance] = field(default_factory=dict)
    names: dict[tuple[Whose, str], None] = field(default_factory=dict)
    """All of them, limit by limit, in each the users first."""

    def group_of(self, wanted: frozenset[str]) -> str | None:
        """The first group here that is one of these, which include `*`."""
        return next((name for name in self.groups if name in wanted), None)


Limits = Mapping[str, QueueLimits]
"""By path; only queues that have limits."""


def limits_of(config: PartitionConfig) -> Limits:
    """The limits of a configuration that passed validation."""
    found: dict[str, QueueLimits] = {}
    _collect(config.root, config.root.name.lower(), found)
    return found


def group_of(limits: Limits, groups: Sequence[str], leaf: Queue) -> str | None:
    """To which group an application of this leaf is charged whose user is in these groups; None is to no group.

    The closest queue to the leaf decides that names one of them, or `*`. Nobody without groups is charged to one.
    """
    if not groups:
        return None
    wanted = frozenset((*groups, ANYONE))
    found = (limits[queue.path].group_of(wanted) for queue in leaf.ancestry() if queue.path in limits)
    return next((name for name in found if name is not None), None)


def _collect(queue: QueueConfig, path: str, found: dict[str, QueueLimits]) -> None:
    if queue.limits:
        found[path] = _of(queue.limits)
    for child in queue.queues:
        if child.limits or child.queues:  # thousands have neither
            _collect(child, f"{path}.{child.name.lower()}", found)


def _of(limits: Sequence[LimitConfig]) -> QueueLimits:
    here = QueueLimits()
    for entry in limits:
        most = amounts(entry.max_resources)
        allowance = Allowance({} if is_zero(most) else most, entry.max_applications)
        here.users.update(dict.fromkeys(entry.users, allowance))
        here.groups.update(dict.fromkeys(entry.groups, allowance))
        here.names.update({("user", name): None for name in entry.users})
        here.names.update({("group", name): None for name in entry.groups})
    return here
