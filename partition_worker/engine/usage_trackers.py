"""Usage trackers of users and groups: for each, a tree of queues with usage, limits and running applications.

A level of the tree exists while something is used, limited, counted as running or charged there, and so do the levels
above it. Queue paths are in lower case. Account links one application to the levels that it is charged to.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from common.config.model import LimitConfig, PartitionConfig, QueueConfig, parse_amounts
from common.messages import Resources
from common.resources import Limit, is_zero, less, take_from, tighten
from partition_worker.engine.application import Application
from partition_worker.engine.ask_shapes import Amounts
from partition_worker.engine.order import Ranks
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
        most = parse_amounts(entry.max_resources)
        allowance = Allowance({} if is_zero(most) else most, entry.max_applications)
        here.users.update(dict.fromkeys(entry.users, allowance))
        here.groups.update(dict.fromkeys(entry.groups, allowance))
        here.names.update({("user", name): None for name in entry.users})
        here.names.update({("group", name): None for name in entry.groups})
    return here


Allowances = Mapping[str, Mapping[str, Allowance]]
"""By path of the queue and name."""


@dataclass(slots=True, eq=False)
class QueueUsage:
    """What one user or group has in one queue, with everything below it."""

    path: str
    rank: int
    """No two levels of a partition have the same."""
    above: "QueueUsage | None"
    """At the parent queue."""
    allowance: Allowance | None = None
    used: Resources = field(default_factory=dict)
    applications: dict[str, None] = field(default_factory=dict)
    """Ids of those that count as running."""
    children: "dict[str, QueueUsage]" = field(default_factory=dict)
    """By path."""
    charged: int = 0
    """Applications in this very queue whose use is charged here, whether or not they use anything."""
    _upward: "tuple[QueueUsage, ...]" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._upward = (self,) if self.above is None else (self, *self.above.upward())

    @property
    def empty(self) -> bool:
        return not (self.charged or self.children or self.allowance or self.applications or any(self.used.values()))

    def upward(self) -> "tuple[QueueUsage, ...]":
        """Itself, then each level up to the root's."""
        return self._upward

    @property
    def bounds(self) -> "tuple[QueueUsage, ...]":
        """The levels from here up that limit something."""
        return tuple(level for level in self.upward() if level.allowance is not None)

    def has_room(self, amounts: Amounts) -> bool:
        """Whether these amounts may be charged here. Where too much is used already, only nothing may."""
        if self.allowance is None:
            return True
        most, used = self.allowance.resources, self.used
        return not any(value > 0 and kind in most and used.get(kind, 0) + value > most[kind] for kind, value in amounts)

    @property
    def limits_applications(self) -> bool:
        return self.allowance is not None and self.allowance.applications > 0

    def may_start(self) -> bool:
        """Whether one more application may run here."""
        return self.allowance is None or not 0 < self.allowance.applications <= len(self.applications)

    def charge(self, amount: Resources) -> None:
        """Count as used, here and above."""
        parse_amounts = tuple(amount.items())
        for level in self._upward:
            used = level.used
            for kind, value in parse_amounts:
                used[kind] = used.get(kind, 0) + value

    def refund(self, amount: Resources) -> None:
        """Take back what `charge` counted."""
        for level in self.upward():
            take_from(level.used, amount)

    def count(self, application_id: str) -> None:
        """The application runs, here and above."""
        for level in self.upward():
            level.applications[application_id] = None

    def discount(self, application_id: str) -> None:
        """The application no longer counts as running."""
        for level in self.upward():
            level.applications.pop(application_id, None)


@dataclass(slots=True, eq=False)
class UsageAccount:
    """Kept from the first time that anybody asks what the application may have until it is forgotten."""

    application: Application
    user: QueueUsage = field(init=False)
    """Of the user, at the application's leaf."""
    group_name: str | None = None
    """The group that is charged; None if none is. Chosen once."""
    group: QueueUsage | None = None
    """Of that group, at the application's leaf."""
    counted: bool = False
    """Whether the application counts as running."""
    user_bounds: tuple[QueueUsage, ...] = ()
    """What limits its user, from the leaf up."""
    group_bounds: tuple[QueueUsage, ...] = ()
    """What limits its group, from the leaf up."""
    bounds: tuple[QueueUsage, ...] = ()
    """Both of them."""

    def bind(self) -> None:
        """Take note of the limits that there are now."""
        self.user_bounds = self.user.bounds
        self.group_bounds = () if self.group is None else self.group.bounds
        self.bounds = self.user_bounds + self.group_bounds

    def has_room(self, amounts: Amounts) -> bool:
        """Whether user and group may have these amounts more."""
        for level in self.bounds:  # noqa: SIM110 - for every ask that is tried, and mostly there is no bound
            if not level.has_room(amounts):
                return False
        return True

    def headroom(self) -> Limit | None:
        """What user and group may still have, per type; None is no limit."""
        room: Limit | None = None
        for level in self.bounds:
            if level.allowance is not None:
                room = tighten(room, less(level.allowance.resources, level.used))
        return room

    def may_start(self) -> bool:
        """Whether user and group may run this application too; one that counts already may."""
        return self.counted or all(level.may_start() for level in self.bounds)


@dataclass(slots=True, eq=False)
class Tracker:
    """One user or group."""

    name: str
    levels: dict[str, QueueUsage] = field(default_factory=dict)
    """By path, each parent before its children."""
    accounts: dict[int, UsageAccount] = field(default_factory=dict)
    """Those that are charged to it, by the rank of the application."""


class Trackers:
    """All users of a partition, or all its groups."""

    def __init__(self, ranks: Ranks, *, each: bool) -> None:
        self._ranks = ranks
        self._each = each
        """Whether what is allowed to `*` is allowed to each one that is not named; otherwise `*` is one of them."""
        self._allowances: Allowances = {}
        self._by_name: dict[str, Tracker] = {}

    def __iter__(self) -> Iterator[Tracker]:
        """In the order in which they came."""
        return iter(self._by_name.values())

    def find(self, name: str) -> Tracker | None:
        return self._by_name.get(name)

    def levels(self, name: str) -> Mapping[str, QueueUsage]:
        """The levels of this one by path, each parent before its children; nothing if it is not tracked."""
        tracker = self._by_name.get(name)
        return {} if tracker is None else tracker.levels

    def would_have(self, name: str, path: str) -> QueueUsage:
        """The level of this one at a queue if there is one, or else as it would begin; nothing changes."""
        found = self.levels(name).get(path)
        return QueueUsage(path, -1, None, self._allowance(name, path)) if found is None else found

    def reach(self, name: str, path: str) -> QueueUsage:
        """The level of this one at a queue, which from now on exists, as do those above it."""
        tracker = self._by_name.get(name)
        if tracker is None:
            tracker = self._by_name[name] = Tracker(name)
        return self._level(tracker, path)

    def open(self, name: str, path: str, account: UsageAccount) -> QueueUsage:
        """Let an application in this queue be charged to this one."""
        level = self.reach(name, path)
        level.charged += 1
        self._by_name[name].accounts[account.application.rank] = account
        return level

    def close(self, name: str, level: QueueUsage, account: UsageAccount) -> None:
        """The application is no longer charged; levels that this leaves empty go."""
        level.charged -= 1
        tracker = self._by_name[name]
        del tracker.accounts[account.application.rank]
        self._prune(tracker, level)

    def clear(self) -> None:
        """Nobody is tracked; what is allowed stays."""
        self._by_name.clear()

    def recall(self, name: str, path: str, rank: int) -> QueueUsage:
        """Add a level that is remembered (`engine/memory`), after the one above it."""
        tracker = self._by_name.get(name)
        if tracker is None:
            tracker = self._by_name[name] = Tracker(name)
        above = tracker.levels.get(path.rpartition(".")[0])
        level = tracker.levels[path] = QueueUsage(path, rank, above, self._allowance(name, path))
        if above is not None:
            above.children[path] = level
        return level

    def allow(self, allowances: Allowances) -> None:
        """From now on this is allowed, and nothing else.

        Whoever is named is tracked, at each queue that names them, and at those that have an entry for each user: the
        others are tracked there when they come.
        """
        self._allowances = allowances
        named = dict.fromkeys(name for here in allowances.values() for name in here if name != ANYONE or not self._each)
        for path, here in allowances.items():
            for name in named if self._each and ANYONE in here else here:
                self.reach(name, path)
        for tracker in tuple(self._by_name.values()):
            for level in tracker.levels.values():
                level.allowance = self._allowance(tracker.name, level.path)
            for level in reversed(tuple(tracker.levels.values())):
                self._prune(tracker, level)

    def drop(self, name: str) -> None:
        """Forget one to whom nothing is charged, whatever is allowed to it as to everyone."""
        del self._by_name[name]

    def _level(self, tracker: Tracker, path: str) -> QueueUsage:
        level = tracker.levels.get(path)
        if level is None:
            parent = path.rpartition(".")[0]
            above = self._level(tracker, parent) if parent else None
            level = QueueUsage(path, self._ranks.following(), above, self._allowance(tracker.name, path))
            tracker.levels[path] = level
            if above is not None:
                above.children[path] = level
        return level

    def _allowance(self, name: str, path: str) -> Allowance | None:
        here = self._allowances.get(path)
        if here is None:
            return None
        return here.get(name) or (here.get(ANYONE) if self._each else None)

    def _prune(self, tracker: Tracker, level: QueueUsage) -> None:
        for one in tuple(level.upward()):
            if not one.empty:
                return
            tracker.levels.pop(one.path, None)
            if one.above is not None:
                one.above.children.pop(one.path, None)
        if not tracker.levels:
            self._by_name.pop(tracker.name, None)
