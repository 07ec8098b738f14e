"""User and group limits: what users and groups use in each queue, and what their limits allow.

    usage.account(application)    the levels that the application is charged to, with the room they have left
    usage.increase / decrease     an allocation was placed, grew, shrank or was released
    usage.discount(application)   only placeholders of it are left
    usage.forget(application)     it has no allocations left
    usage.reconfigure(config)     the limits changed

An application counts as running for its user and group, in its leaf and all queues above, from its first allocation
until it is removed from here; but not while only placeholders are left. Its group is chosen at the first call of
`account` and stays until the application is removed or the group loses its limit on the path of the leaf; then it is
chosen again.

The scheduling cycle checks the limits; `readiness/` parks applications that wait for them.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from common import event_codes
from common.config.model import PartitionConfig
from common.messages import Resources
from common.resources import NOTHING
from partition_worker.engine.application import Application
from partition_worker.engine.ask_shapes import amounts_of
from partition_worker.engine.order import Ranks
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.usage_trackers import (
    ANYONE,
    Limits,
    QueueLimits,
    Trackers,
    UsageAccount,
    group_of,
    limits_of,
)

IDLE_MAX: Final = 10_000
"""Users that have nothing, and no limit but that of `*`, and are shown all the same. Beyond it those that have had
nothing for longest are forgotten until they have something again.
"""


class Tell(Protocol):
    """Where to say what happens, for the history (`PartitionState.record_event`)."""

    def __call__(
        self, kind: int, object_id: str, change: int, detail: int, reference: str = "", resource: Resources = NOTHING
    ) -> None: ...


class Usage:
    """The usage trackers of all users and groups of a partition."""

    def __init__(self, config: PartitionConfig, tell: Tell) -> None:
        self._tell = tell
        self.ranks = Ranks()
        """Of levels."""
        self.users = Trackers(self.ranks, each=True)
        self.groups = Trackers(self.ranks, each=False)
        self._limits: Limits = {}
        self._named: frozenset[str] = frozenset()
        """Users with a limit of their own somewhere."""
        self._accounts: dict[int, UsageAccount] = {}
        """By the rank of the application."""
        self.idle: dict[str, None] = {}
        """Users with nothing, in the order in which they came to have nothing."""
        self.reconfigure(config)

    def account(self, application: Application) -> UsageAccount:
        """To whom this application is charged. The first call decides its group."""
        account = self._accounts.get(application.rank)
        return self._open(application) if account is None else account

    def known(self, application: Application) -> UsageAccount | None:
        """The same without making contact."""
        return self._accounts.get(application.rank)

    @property
    def accounts(self) -> Iterable[UsageAccount]:
        """All of them, in the order of their first contact."""
        return self._accounts.values()

    def recall(self, accounts: Iterable[UsageAccount], *, idle: Iterable[str], ranks: int) -> None:
        """Go on where one was that is remembered (`engine/memory`); trackers have these accounts already."""
        self._accounts = {account.application.rank: account for account in accounts}
        self.idle = dict.fromkeys(idle)
        self.ranks.last = ranks

    def increase(self, application: Application, amount: Resources) -> None:
        """Count an allocation (or the growth of one, where negative its shrinking)."""
        account = self.account(application)
        self.charge(application, amount)
        self._changed(account, event_codes.ADD, amount)
        if not account.counted:
            self._count(account)

    def charge(self, application: Application, amount: Resources) -> None:
        """The part of `increase` that nobody hears of, for an application that is known."""
        account = self._accounts[application.rank]
        account.user.charge(amount)
        if account.group is not None:
            account.group.charge(amount)

    def tell_increase(self, application: Application, amount: Resources) -> None:
        """The part of `increase` that is told."""
        self._changed(self._accounts[application.rank], event_codes.ADD, amount)

    def decrease(self, application: Application, amount: Resources) -> None:
        """Take an allocation back."""
        account = self._accounts[application.rank]
        account.user.refund(amount)
        if account.group is not None:
            account.group.refund(amount)
        self._changed(account, event_codes.REMOVE, amount)

    def discount(self, application: Application) -> None:
        """The application counts no longer, until something of it is placed again. It stays charged for what it has."""
        account = self._accounts[application.rank]
        account.counted = False
        for level in (account.user, account.group):
            if level is not None:
                level.discount(application.application_id)

    def forget(self, application: Application) -> None:
        """The application, to which nothing is charged any more, counts no longer; its group is no longer settled."""
        account = self._accounts.pop(application.rank, None)
        if account is None:
            return
        name = application.user.name
        self._leave_group(account)
        account.user.discount(application.application_id)
        self.users.close(name, account.user, account)
        user = self.users.find(name)
        if user is not None and not user.accounts and name not in self._named:
            self._rest(name)

    def objection(self, application: Application, leaf: Queue) -> str:
        """Which limit the application would exceed in another leaf, with what it has; empty if none.

        Only levels count at which its user or group would have more than now.
        """
        account = self.known(application)
        if account is None or not (account.counted or application.allocations):
            return ""
        shared = {queue.path for queue in application.queue.ancestry()}
        user, group = application.user.name, group_of(self._limits, application.user.groups, leaf)
        entered = [(f"user {user}", self.users, user, shared)]
        if group is not None:
            entered.append((f"group {group}", self.groups, group, shared if group == account.group_name else set()))
        for who, trackers, name, has in entered:
            for queue in leaf.ancestry():
                if queue.path in has:
                    break
                level = trackers.would_have(name, queue.path)
                if not level.has_room(amounts_of(application.charged)) or not level.may_start():
                    return f"{who} would exceed the limit at queue {queue.path}"
        return ""

    def reconfigure(self, config: PartitionConfig) -> bool:
        """Let the limits of this configuration hold from now on; whether they are others than before.

        Nothing that is used or counted is lost. Whoever is held back by a limit has to be looked at again then.
        """
        limits = limits_of(config)
        if limits == self._limits:
            return False
        before, self._limits = self._limits, limits
        self._limits_changed(before)
        self._named = frozenset(name for here in limits.values() for name in here.users)
        homeless = [account for account in self._accounts.values() if self._lost_group(account, before)]
        for account in homeless:
            if account.group is not None:
                account.group.refund(account.application.charged)
            self._leave_group(account)
        self.users.allow({path: here.users for path, here in limits.items()})
        self.groups.allow({path: here.groups for path, here in limits.items()})
        for account in homeless:
            self._join_group(account)
            if account.group is not None:
                account.group.charge(account.application.charged)
                if account.counted:
                    account.group.count(account.application.application_id)
        for account in self._accounts.values():
            account.bind()
        for name in tuple(self.idle):
            if name in self._named or self.users.find(name) is None:
                del self.idle[name]
        return True

    # Private --------------------------------------------------------------------------------------------------------

    def _changed(self, account: UsageAccount, change: int, amount: Resources) -> None:
        """Tell that the use of an application became more or less."""
        path = account.application.queue.path
        user, detail = account.application.user.name, event_codes.UG_USER_RESOURCE
        self._tell(event_codes.USERGROUP, user, change, detail, reference=path, resource=amount)
        if account.group_name is not None:
            group, detail = account.group_name, event_codes.UG_GROUP_RESOURCE
            self._tell(event_codes.USERGROUP, group, change, detail, reference=path, resource=amount)

    def _limits_changed(self, before: Limits) -> None:
        """Tell of each limit of one user or group; what is allowed to each user without one is told of nobody."""
        for change, those, others in (
            (event_codes.SET, self._limits, {}),
            (event_codes.REMOVE, before, self._limits),
        ):
            for path, here in those.items():
                still = others.get(path, QueueLimits()).names
                for whose, name in here.names:
                    if (whose, name) not in still and (whose, name) != ("user", ANYONE):
                        detail = event_codes.UG_USER_LIMIT if whose == "user" else event_codes.UG_GROUP_LIMIT
                        self._tell(event_codes.USERGROUP, name, change, detail, reference=path)

    def _linked(self, account: UsageAccount, change: int) -> None:
        if account.group_name is not None:
            application_id = account.application.application_id
            group, detail = account.group_name, event_codes.UG_APP_LINK
            self._tell(event_codes.USERGROUP, group, change, detail, reference=application_id)

    def _open(self, application: Application) -> UsageAccount:
        name = application.user.name
        account = self._accounts[application.rank] = UsageAccount(application)
        account.user = self.users.open(name, application.queue.path, account)
        self.idle.pop(name, None)
        self._join_group(account)
        account.bind()
        return account

    def _count(self, account: UsageAccount) -> None:
        account.counted = True
        account.user.count(account.application.application_id)
        if account.group is not None:
            account.group.count(account.application.application_id)

    def _join_group(self, account: UsageAccount) -> None:
        """Decide the group."""
        application = account.application
        name = group_of(self._limits, application.user.groups, application.queue)
        if name is None:
            return
        account.group_name = name
        account.group = self.groups.open(name, application.queue.path, account)
        self._linked(account, event_codes.SET)

    def _leave_group(self, account: UsageAccount) -> None:
        name, level = account.group_name, account.group
        if name is None or level is None:
            return
        self._linked(account, event_codes.REMOVE)
        account.group_name = account.group = None
        level.discount(account.application.application_id)
        self.groups.close(name, level, account)

    def _lost_group(self, account: UsageAccount, before: Limits) -> bool:
        """Whether the group of the account had a limit on its path that it no longer has."""
        name = account.group_name
        return name is not None and any(
            queue.path in before
            and name in before[queue.path].groups
            and (queue.path not in self._limits or name not in self._limits[queue.path].groups)
            for queue in account.application.queue.ancestry()
        )

    def _rest(self, user: str) -> None:
        self.idle[user] = None
        if len(self.idle) > IDLE_MAX:
            oldest = next(iter(self.idle))
            del self.idle[oldest]
            self.users.drop(oldest)
