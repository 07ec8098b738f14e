"""User resolution: the user and groups of a submission, as it names them or as they are looked up.

The resolver of the configuration returns the groups of a user. If the operating system has to be asked, which takes
time, the submission is held until the result arrives (`partition_worker/group_lookup.py` does the look-up).
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from math import inf
from typing import Final

from yunishard.common.messages.rm_messages import AddApplicationRequest, Allocation, AllocationRelease
from yunishard.common.names import USER

FORCED_TAG: Final = "application.create.force"
TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
"""The spellings of true in a tag."""

NOBODY: Final = "nobody"
NO_GROUP: Final = "nogroup"

REMEMBERED_S: Final = 300.0
"""How long the groups of a user are cached."""

FAILURE_REMEMBERED_S: Final = 30.0
"""How long a failed look-up is cached."""

REMEMBERED_MAX: Final = 10_000
"""Users that are cached; beyond it the oldest are dropped, and looked up again."""

GROUPS_MAX: Final = 65_536
"""Groups that a submission may name, the maximum of Linux. Rules and limits check each of them."""

OPERATING_SYSTEM: Final = "os"
"""The type of resolver that asks the operating system."""

LDAP: Final = "ldap"
"""A type of resolver that YuniKorn has as a preview, and this engine does not have."""


class UserError(ValueError):
    """A submission without a valid user; the text is the reason that the RM receives."""


@dataclass(frozen=True, slots=True)
class User:
    """A user with all groups, in their order."""

    name: str
    groups: tuple[str, ...] = ()


def tag_value(tags: Mapping[str, str], name: str) -> str:
    """Return the value of a tag, whose name ignores case; empty if there is none."""
    wanted = name.lower()
    return next((value for tag, value in tags.items() if tag.lower() == wanted), "")


def is_forced(tags: Mapping[str, str]) -> bool:
    """Whether the RM forces the acceptance of this application."""
    return tag_value(tags, FORCED_TAG) in TRUE


_TEST_USERS: Final[Mapping[str, tuple[str, ...]]] = {
    "testuser1": ("group1000", "group1001"),
    "testuser2": ("100", "group1001", "group1002"),
    "testuser3": ("group1001", "group1002", "group1003", "group1004"),
    "testuser4": ("901", "902"),
}


class GroupsUnknown(Exception):
    """The groups of this user have to be looked up outside of the engine."""


def find_groups(resolver: str, user: str) -> tuple[str, ...]:
    """Return the groups of a user, the primary one first, by the type of resolver in a configuration. An unknown type
    is the default, one group with the name of the user; `test` has four fixed users, for test configurations.

    Raises UserError if there is no such user, and for LDAP: wrong groups would open the wrong queues. Raises
    GroupsUnknown if the groups are looked up outside of the engine.
    """
    if resolver == OPERATING_SYSTEM:
        raise GroupsUnknown(user)
    if resolver == LDAP:
        raise UserError(f"groups are not looked up by LDAP: the submission must name the groups of user {user}")
    if resolver != "test":
        return (user,)
    if user not in _TEST_USERS:
        raise UserError(f"lookup failed for user: {user}")
    return _TEST_USERS[user]


class Users:
    """Resolves the users of submissions, and caches their groups."""

    def __init__(self, resolver: str = "") -> None:
        self.resolver = resolver
        """The type of resolver, fixed for the lifetime of the partition."""
        self.learned: OrderedDict[str, tuple[User | None, float]] = OrderedDict()
        """By name, with the Unix time of the look-up, oldest first. None: it failed."""

    def resolve(self, name: str, groups: Sequence[str], *, forced: bool, now: float) -> User:
        """Return the user of a submission. Raises UserError, and GroupsUnknown if they are looked up outside.

        A forced submission fails only for an invalid name, not for a missing name or missing groups. The name of a user
        who is looked up is not checked: as in YuniKorn, the resolver decides which names are valid.
        """
        if not name:
            if not forced:
                raise UserError("empty user cannot resolve")
            name, groups = NOBODY, (NO_GROUP,)
        if not groups:
            try:
                return self._look_up(name, now)
            except UserError:
                if not forced:
                    raise
                groups = (NO_GROUP,)
        if not USER.fullmatch(name):
            raise UserError("invalid username, it contains invalid characters")
        if len(groups) > GROUPS_MAX:
            raise UserError(f"user {name} cannot be in {len(groups)} groups, at most {GROUPS_MAX} may be named")
        user = User(name, tuple(groups))
        self.learn(name, user, now)
        return user

    def learn(self, name: str, user: User | None, now: float) -> None:
        """Cache the result of a look-up; None if it failed."""
        self.learned[name] = (user, now)
        self.learned.move_to_end(name)  # the oldest look-up is dropped first, not the oldest name
        if len(self.learned) > REMEMBERED_MAX:
            self.learned.popitem(last=False)

    def _look_up(self, name: str, now: float) -> User:
        """Return the user with the cached groups, or else those of the resolver."""
        user, learned_at = self.learned.get(name, (None, -inf))
        if user is not None and now < learned_at + REMEMBERED_S:
            return user
        if user is None and now < learned_at + FAILURE_REMEMBERED_S:
            moment = datetime.fromtimestamp(int(learned_at), UTC).strftime("%Y-%m-%d %H:%M:%S +0000 UTC")
            raise UserError(f"user resolution failed, cached data returned: {moment}")
        try:
            user = User(name, find_groups(self.resolver, name))
        except UserError:
            self.learn(name, None, now)
            raise
        self.learn(name, user, now)
        return user


WAITING_MAX: Final = 10_000
"""Submissions of a partition that wait at once. The look-up of the next one counts as failed."""

HELD_MAX: Final = 100_000
"""Asks, allocations and releases of a partition that wait with their applications. The next one is rejected."""

HeldUpdate = Allocation | AllocationRelease


class PendingSubmissions:
    """Submissions that wait for the groups of their users, and updates that arrived for their applications."""

    def __init__(self) -> None:
        self.submissions: dict[str, AddApplicationRequest] = {}
        """By application, in order of arrival."""
        self.by_user: dict[str, dict[str, None]] = {}
        """The ids of the applications by user, in the order of their look-ups. No user is without any."""
        self.updates: dict[int, HeldUpdate] = {}
        """Held updates by number, in order of arrival."""
        self._numbers: dict[str, dict[str, list[int]]] = {}
        """Their numbers, by application and allocation key."""
        self.running_count = self._last_number = 0
        """`running_count`: held updates with a node, for what runs already."""

    def __len__(self) -> int:
        return len(self.submissions)

    def __contains__(self, application_id: str) -> bool:
        return application_id in self.submissions

    def insert(self, submission: AddApplicationRequest) -> None:
        """Add the submission of an application that does not wait yet."""
        application_id = submission.application_id
        assert application_id not in self.submissions, application_id
        self.submissions[application_id] = submission
        self.by_user.setdefault(submission.ugi.user, {})[application_id] = None

    def hold_update(self, update: HeldUpdate, number: int = 0) -> int:
        """Hold an update for an application that waits, and return its number: this one or the next, 0 without room."""
        application_id = update.application_id
        assert application_id in self.submissions, application_id
        if len(self.updates) >= HELD_MAX:
            return 0
        number = self._last_number = number or self._last_number + 1
        self.updates[number] = update
        self._numbers.setdefault(application_id, {}).setdefault(update.allocation_key, []).append(number)
        self.running_count += _is_running(update)
        return number

    def take_updates(self, application_id: str, key: str = "") -> dict[int, HeldUpdate]:
        """Remove and return the updates for an application by number, in order; with a key only those for it."""
        keys = self._numbers.get(application_id, {})
        found = [keys.pop(key, [])] if key else self._numbers.pop(application_id, {}).values()
        taken = {number: self.updates.pop(number) for number in sorted(chain.from_iterable(found))}
        self.running_count -= sum(map(_is_running, taken.values()))
        return taken

    def remove(self, application_id: str) -> None:
        """Remove a submission, if it waits."""
        submission = self.submissions.pop(application_id, None)
        if submission is not None:
            user = submission.ugi.user
            del self.by_user[user][application_id]
            if not self.by_user[user]:
                del self.by_user[user]

    def take_submissions(self, user: str) -> list[AddApplicationRequest]:
        """Remove and return all submissions of a user, in order; the updates stay."""
        return [self.submissions.pop(application_id) for application_id in self.by_user.pop(user, {})]


def _is_running(update: HeldUpdate) -> bool:
    return isinstance(update, Allocation) and bool(update.node_id)
