"""User and group limits: what users and groups use in each queue, and what their limits allow.

    usage.account(application)    what the application is charged to, with the room that is left
    usage.increase / decrease     an allocation was placed, grew, shrank or was released
    usage.discount(application)   only placeholders of it are left
    usage.remove(application)     it has no allocations left
    usage.reconfigure(config)     the limits changed

A user or group has a tracker: a tree of queues with usage, limits and running applications. A queue is in the tree
while something is used, limited, counted as running or charged there or below. Queue paths are in lower case.

An application counts as running for its user and group, in its leaf and all queues above, from its first allocation
until it is removed from here; but not while only placeholders are left. Its group is that which the limits in force
name: it is chosen at the first call of `account`, and again when limits change, so that a new limit counts what its
group uses already.

The scheduling cycle checks the limits; `unschedulable_asks.py` parks applications that wait for them.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from yunishard.common.config.model import PartitionConfig, QueueConfig, parse_amounts
from yunishard.common.messages import event_codes
from yunishard.common.messages.kinds import Resources
from yunishard.common.resources import NOTHING, Limit, is_zero, less, tightest
from yunishard.partition_worker.engine.amounts import (
    Amounts,
    Sum,
    add,
    amounts_of,
    find_excess,
    limit_list,
    name_types,
    subtract,
)
from yunishard.partition_worker.engine.application import Application
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.sorted_items import Ranks
from yunishard.partition_worker.engine.user_resolution import User

ANYONE: Final = "*"
"""Each user without a limit of its own at a queue; all groups without one, together."""

IDLE_MAX: Final = 10_000
"""Users that use nothing, have no limit but that of `*`, and are listed all the same. Beyond it those that have used
nothing for longest are dropped until they use something again.
"""


class Allowance(NamedTuple):
    """The limit of a user or group in a queue and everything below it."""

    resources: Limit
    """A missing type is unlimited; none of a type with 0 is allowed."""
    applications: int
    """Applications that may run at once; 0 is no limit."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """The limits at one queue: of users and of groups by name, in the order of the configuration, with `*` last."""

    users: dict[str, Allowance] = field(default_factory=dict)
    groups: dict[str, Allowance] = field(default_factory=dict)
    names: dict[tuple[Literal["user", "group"], str], None] = field(default_factory=dict)
    """All of them, limit by limit, users first in each."""


Limits = Mapping[str, QueueLimits]
"""By path; only queues that have limits."""

Allowances = Mapping[str, Mapping[str, Allowance]]
"""By path of the queue and name."""


def limits_of(config: PartitionConfig) -> Limits:
    """Return the limits of a valid configuration."""
    found: dict[str, QueueLimits] = {}
    _collect_limits(config.root, config.root.name.lower(), found)
    return found


def _collect_limits(queue: QueueConfig, path: str, found: dict[str, QueueLimits]) -> None:
    if queue.limits:
        here = found[path] = QueueLimits()
        for entry in queue.limits:
            most = parse_amounts(entry.max_resources)
            allowance = Allowance({} if is_zero(most) else most, entry.max_applications)
            here.users.update(dict.fromkeys(entry.users, allowance))
            here.groups.update(dict.fromkeys(entry.groups, allowance))
            here.names.update({("user", name): None for name in entry.users})
            here.names.update({("group", name): None for name in entry.groups})
    for child in queue.queues:
        if child.limits or child.queues:  # thousands have neither
            _collect_limits(child, f"{path}.{child.name.lower()}", found)


def group_of(limits: Limits, groups: Sequence[str], leaf: Queue) -> str | None:
    """Return the group that an application of this leaf is charged to, if its user is in these groups; None for none.

    The queue closest to the leaf with a limit for one of them, or for `*`, decides.
    """
    wanted = frozenset((*groups, ANYONE) if groups else ())
    here = (limits[queue.path].groups for queue in leaf.ancestry() if queue.path in limits)
    return next((name for names in here for name in names if name in wanted), None)


class QueueUsage:
    """The usage of one user or group in one queue and everything below it, and its limit there."""

    def __init__(self, path: str, rank: int, above: "QueueUsage | None", allowance: Allowance | None = None) -> None:
        self.path = path
        self.rank = rank
        """Unique in a partition."""
        self.above = above
        """The usage of the parent queue."""
        self.used_sum: Sum = []
        self.applications: dict[str, None] = {}
        """Ids of the applications that count as running."""
        self.children: dict[str, QueueUsage] = {}
        """By path."""
        self.charged: int = 0
        """Number of applications in this very queue that are charged here, whether or not they use anything."""
        self.upward: tuple[QueueUsage, ...] = (self,) if above is None else (self, *above.upward)
        """This usage, then that of each queue above, up to the root."""
        self.set_allowance(allowance)

    def set_allowance(self, allowance: Allowance | None) -> None:
        """Replace the limit here; None is no limit."""
        self.allowance = allowance
        self.maximums = None if allowance is None else limit_list(allowance.resources)
        """The amounts that the limit allows, by type."""

    @property
    def used(self) -> Resources:
        return name_types(self.used_sum)

    @property
    def is_empty(self) -> bool:
        return not (self.charged or self.children or self.allowance or self.applications or any(self.used_sum))

    def leave(self) -> None:
        """Discard the usages around one that is dropped: they refer to each other, and a worker never frees cycles."""
        self.upward, self.above = (), None
        self.children.clear()

    @property
    def limits(self) -> "tuple[QueueUsage, ...]":
        """The usages from here up that have a limit."""
        return tuple(level for level in self.upward if level.allowance is not None)

    def has_room(self, amounts: Amounts) -> bool:
        """Whether the limit here allows these amounts."""
        return self.maximums is None or find_excess(self.used_sum, amounts, self.maximums) < 0

    def may_start(self) -> bool:
        """Whether the limit here allows one more running application."""
        return self.allowance is None or not 0 < self.allowance.applications <= len(self.applications)

    def charge(self, amounts: Amounts) -> None:
        """Count amounts as used, here and above."""
        for level in self.upward:
            add(level.used_sum, amounts)

    def refund(self, amounts: Amounts) -> None:
        """Undo `charge`."""
        for level in self.upward:
            subtract(level.used_sum, amounts)

    def count_running(self, application_id: str) -> None:
        """Count an application as running, here and above."""
        for level in self.upward:
            level.applications[application_id] = None

    def discount_running(self, application_id: str) -> None:
        """Undo `count_running`."""
        for level in self.upward:
            level.applications.pop(application_id, None)


class UsageAccount:
    """The user and group that one application is charged to."""

    def __init__(self, application: Application, user: QueueUsage) -> None:
        self.application = application
        self.user = user
        """The usage of its user at its leaf."""
        self.counted = False
        """Whether the application counts as running."""
        self.limits: tuple[QueueUsage, ...] = ()
        """The usages of its user and of its group, from the leaf up, that have a limit."""
        self.set_group(None, None)

    def set_group(self, name: str | None, group: QueueUsage | None) -> None:
        """Replace the group that is charged, and its usage at the leaf; None if none is."""
        self.group_name, self.group = name, group
        self.charged = (self.user,) if group is None else (self.user, group)
        """The usages at its leaf: of its user, and of its group if it has one."""

    def count_running(self) -> None:
        """Count the application as running for its user and group."""
        self.counted = True
        for level in self.charged:
            level.count_running(self.application.application_id)

    def update_limits(self) -> None:
        """Look up which usages have limits now."""
        self.limits = self.user.limits if self.group is None else self.user.limits + self.group.limits

    def has_room(self, amounts: Amounts) -> bool:
        """Whether the limits of user and group allow these amounts."""
        return self.find_full(amounts) is None

    def find_full(self, amounts: Amounts) -> QueueUsage | None:
        """Return the first usage of the user, or else of the group, of which the limit does not allow these amounts."""
        for level in self.limits:
            if not level.has_room(amounts):
                return level
        return None

    def headroom(self) -> Limit | None:
        """Return what user and group may still use, per type; None is no limit."""
        return tightest([less(one.allowance.resources, one.used) for one in self.limits if one.allowance is not None])

    def may_start(self) -> bool:
        """Whether user and group may run this application; one that counts already may."""
        return self.counted or all(level.may_start() for level in self.limits)


@dataclass(slots=True, eq=False)
class Tracker:
    """The usage of one user or group."""

    name: str
    levels: dict[str, QueueUsage] = field(default_factory=dict)
    """By path, each parent before its children."""
    accounts: dict[int, UsageAccount] = field(default_factory=dict)
    """The accounts charged to it, by the rank of the application."""


class Trackers:
    """The trackers of all users of a partition, or of all its groups, in order of creation."""

    def __init__(self, ranks: Ranks, *, each: bool) -> None:
        self._ranks = ranks
        self._each = each
        """Whether the limit of `*` holds for each name without a limit of its own; otherwise `*` is itself a name."""
        self._allowances: Allowances = {}
        self.by_name: dict[str, Tracker] = {}

    def levels(self, name: str) -> Mapping[str, QueueUsage]:
        """Return the usages of a user or group by path, each parent before its children; empty if it is not tracked."""
        tracker = self.by_name.get(name)
        return {} if tracker is None else tracker.levels

    def preview(self, name: str, leaf: Queue) -> QueueUsage:
        """Return the usage at a leaf, or what it would be if it is not tracked, with all levels above."""
        level: QueueUsage | None = None
        for queue in reversed(leaf.ancestry()):
            known = self.levels(name).get(queue.path)
            level = known or QueueUsage(queue.path, -1, level, self._allowance(name, queue.path))
        assert level is not None, leaf.path
        return level

    def limited_name(self, name: str, path: str) -> str:
        """Return the name in the limit that binds this one at a queue: its own, or `*`."""
        return name if name in self._allowances.get(path, {}) else ANYONE

    def track(self, name: str, path: str) -> QueueUsage:
        """Return the usage at a queue; track it and those above it if they are not tracked."""
        tracker = self.by_name.setdefault(name, Tracker(name))
        level = tracker.levels.get(path)
        if level is None:
            parent = path.rpartition(".")[0]
            above = self.track(name, parent) if parent else None
            level = QueueUsage(path, self._ranks.following(), above, self._allowance(name, path))
            tracker.levels[path] = level
            if above is not None:
                above.children[path] = level
        return level

    def forget(self, name: str) -> None:
        """Drop a name with all its usages."""
        for level in self.by_name.pop(name).levels.values():
            level.leave()

    def link_account(self, name: str, level: QueueUsage, account: UsageAccount) -> None:
        """Charge an application to this name at this usage of it."""
        level.charged += 1
        self.by_name[name].accounts[account.application.rank] = account

    def unlink_account(self, name: str, level: QueueUsage, account: UsageAccount) -> None:
        """Undo `link_account`, and drop the usages that this leaves empty."""
        level.charged -= 1
        tracker = self.by_name[name]
        del tracker.accounts[account.application.rank]
        self._prune(tracker, level)

    def set_allowances(self, allowances: Allowances) -> None:
        """Replace all limits.

        A name with a limit is tracked at each queue with a limit for it, and at those with one for each user; other
        names are tracked there when an application of theirs is charged.
        """
        self._allowances = allowances
        named = dict.fromkeys(name for here in allowances.values() for name in here if name != ANYONE or not self._each)
        for path, here in allowances.items():
            for name in named if self._each and ANYONE in here else here:
                self.track(name, path)
        for tracker in tuple(self.by_name.values()):
            for level in tracker.levels.values():
                level.set_allowance(self._allowance(tracker.name, level.path))
            for level in reversed(tuple(tracker.levels.values())):
                self._prune(tracker, level)

    def _allowance(self, name: str, path: str) -> Allowance | None:
        here = self._allowances.get(path, {})
        return here.get(name) or (here.get(ANYONE) if self._each else None)

    def _prune(self, tracker: Tracker, level: QueueUsage) -> None:
        """Drop this usage and those above it, as far as they are empty."""
        for one in level.upward:
            if not one.is_empty:
                return
            tracker.levels.pop(one.path, None)
            if one.above is not None:
                one.above.children.pop(one.path, None)
            one.leave()
        if not tracker.levels:
            self.by_name.pop(tracker.name, None)


RecordEvent = Callable[[int, str, int, int, str, Resources], None]
"""`PartitionState.record_event`."""


class Usage:
    """The usage of all users and groups of a partition."""

    def __init__(self, config: PartitionConfig, record: RecordEvent) -> None:
        self._record = record
        self.ranks = Ranks()
        """Of queue usages."""
        self.users = Trackers(self.ranks, each=True)
        self.groups = Trackers(self.ranks, each=False)
        self._limits: Limits = {}
        self._named: frozenset[str] = frozenset()
        """Users with a limit of their own somewhere."""
        self.accounts: dict[int, UsageAccount] = {}
        """By the rank of the application."""
        self.idle: OrderedDict[str, None] = OrderedDict()
        """Users that use nothing, longest first."""
        self.opened: dict[int, Application] = {}
        """Applications with asks that were reported as outstanding before they had an account, after a recovery or a
        move; by rank. The next report counts them for their user and group.
        """
        self.reconfigure(config)

    def find(self, application: Application) -> UsageAccount | None:
        """Return the account of the application; None if it has none."""
        account = application.account
        return account if isinstance(account, UsageAccount) else None

    def account(self, application: Application) -> UsageAccount:
        """Return the account of the application. The first call creates it and chooses the group."""
        account = self.find(application)
        if account is None:
            account = self._open(application)
            self.idle.pop(application.user.name, None)
            self._join_group(account)
            account.update_limits()
            if application.asks.told:
                self.opened[application.rank] = application
        return account

    def _open(self, application: Application) -> UsageAccount:
        name = application.user.name
        account = UsageAccount(application, self.users.track(name, application.queue.path))
        self.accounts[application.rank] = application.account = account
        self.users.link_account(name, account.user, account)
        return account

    def preview(self, application: Application) -> UsageAccount:
        """Return what `account` would create for an application without one; creates and chooses nothing."""
        (_, _, user), *groups = self._preview_charged(application.user, application.queue)
        account = UsageAccount(application, user)
        for _, name, group in groups:
            account.set_group(name, group)
        account.update_limits()
        return account

    def restore(self, application: Application, *, group: str | None, counted: bool) -> None:
        """Charge an application with everything that it has, to this group, without events."""
        account = self._open(application)
        if group is not None:
            self._link_group(account, group)
        account.update_limits()
        for level in account.charged:
            level.charge(amounts_of(application.charged))
        if counted:
            account.count_running()

    def increase(self, application: Application, amounts: Amounts) -> UsageAccount:
        """Count an allocation, or an amount by which one grew (negative: shrank); return what it is charged to."""
        account = self.account(application)
        for level in account.charged:
            level.charge(amounts)
        if not account.counted:
            account.count_running()
        return account

    def decrease(self, application: Application, amounts: Amounts) -> UsageAccount:
        """Subtract an allocation; return what it was charged to."""
        account = self.account(application)
        for level in account.charged:
            level.refund(amounts)
        return account

    def discount(self, application: Application) -> None:
        """Stop counting the application as running until something of it is placed again. Its usage stays charged."""
        account = self.account(application)
        account.counted = False
        for level in account.charged:
            level.discount_running(application.application_id)

    def remove(self, application: Application) -> None:
        """Drop the account of an application that uses nothing any more."""
        account = self.find(application)
        if account is None:
            return
        application.account = None
        del self.accounts[application.rank]
        name = application.user.name
        self._leave_group(account)
        account.user.discount_running(application.application_id)
        self.users.unlink_account(name, account.user, account)
        user = self.users.by_name.get(name)
        if user is not None and not user.accounts and name not in self._named:
            self.idle[name] = None
            if len(self.idle) > IDLE_MAX:
                self.users.forget(self.idle.popitem(last=False)[0])

    def find_limits(self, user: User, leaf: Queue) -> list[tuple[Literal["user", "group"], str, QueueUsage]]:
        """Return the usages with a limit that a new application in this leaf would be charged to, with the name of the
        user or group: from the leaf up, those of the user first.
        """
        charged = self._preview_charged(user, leaf)
        return [(who, name, one) for who, name, usage in charged for one in usage.limits]

    def _preview_charged(self, user: User, leaf: Queue) -> list[tuple[Literal["user", "group"], str, QueueUsage]]:
        found: list[tuple[Literal["user", "group"], str, QueueUsage]]
        found = [("user", user.name, self.users.preview(user.name, leaf))]
        group = group_of(self._limits, user.groups, leaf)
        if group is not None:
            found.append(("group", group, self.groups.preview(group, leaf)))
        return found

    def objection(self, application: Application, leaf: Queue) -> str:
        """Return which limit the application would exceed in another leaf; empty if none.

        Only queues count in which the usage of its user or group would grow.
        """
        account = self.find(application)
        if account is None or not (account.counted or application.allocations):
            return ""
        shared = {queue.path for queue in application.queue.ancestry()}
        for who, name, usage in self._preview_charged(application.user, leaf):
            is_charged = who == "user" or name == account.group_name
            for level in usage.upward:
                if is_charged and level.path in shared:
                    break
                if not level.has_room(amounts_of(application.charged)) or not level.may_start():
                    return f"{who} {name} would exceed the limit at queue {level.path}"
        return ""

    def reconfigure(self, config: PartitionConfig) -> list[Application]:
        """Apply the limits of a configuration; return the applications whose group was chosen again. Usage and counts
        stay.

        The caller retries applications that wait for a limit.
        """
        limits = limits_of(config)
        if limits == self._limits:
            return []
        before, self._limits = self._limits, limits
        self._record_limits(before)
        self._named = frozenset(name for here in limits.values() for name in here.users)
        accounts = self.accounts.values()
        regrouped = [one for one in accounts if one.group_name != self._find_group(one.application)]
        for account in regrouped:
            if account.group is not None:
                account.group.refund(amounts_of(account.application.charged))
            self._leave_group(account)
        self.users.set_allowances({path: here.users for path, here in limits.items()})
        self.groups.set_allowances({path: here.groups for path, here in limits.items()})
        for account in regrouped:
            self._join_group(account)
            if account.group is not None:
                account.group.charge(amounts_of(account.application.charged))
                if account.counted:
                    account.group.count_running(account.application.application_id)
        for account in accounts:
            account.update_limits()
        for name in tuple(self.idle):
            if name in self._named or self.users.by_name.get(name) is None:
                del self.idle[name]
        return [account.application for account in regrouped]

    # Groups ---------------------------------------------------------------------------------------------------------

    def _find_group(self, application: Application) -> str | None:
        """Return the group that the limits in force name for an application."""
        return group_of(self._limits, application.user.groups, application.queue)

    def _join_group(self, account: UsageAccount) -> None:
        name = self._find_group(account.application)
        if name is not None:
            self._link_group(account, name)
            self._record_link(account.application, name, event_codes.SET)

    def _link_group(self, account: UsageAccount, name: str) -> None:
        group = self.groups.track(name, account.application.queue.path)
        account.set_group(name, group)
        self.groups.link_account(name, group, account)

    def _leave_group(self, account: UsageAccount) -> None:
        name, level, application = account.group_name, account.group, account.application
        if name is not None and level is not None:
            self._record_link(application, name, event_codes.REMOVE)
            account.set_group(None, None)
            level.discount_running(application.application_id)
            self.groups.unlink_account(name, level, account)

    # Events ---------------------------------------------------------------------------------------------------------

    def _record_link(self, application: Application, group: str, change: int) -> None:
        detail = event_codes.UG_APP_LINK
        self._record(event_codes.USERGROUP, group, change, detail, application.application_id, NOTHING)

    def _record_limits(self, before: Limits) -> None:
        """Record each limit that was set or removed, except that of each user without one."""
        for change, those, others in ((event_codes.SET, self._limits, {}), (event_codes.REMOVE, before, self._limits)):
            for path, here in those.items():
                still = others.get(path, QueueLimits()).names
                for whose, name in here.names:
                    if (whose, name) not in still and (whose, name) != ("user", ANYONE):
                        detail = event_codes.UG_USER_LIMIT if whose == "user" else event_codes.UG_GROUP_LIMIT
                        self._record(event_codes.USERGROUP, name, change, detail, path, NOTHING)
