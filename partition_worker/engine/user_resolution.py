"""Who submits an application: user and groups as a submission names them, or as they are looked up when it does not.

The groups of a user come from a `Resolver`, a plain function, or from outside: asking the operating system takes time,
and nothing in the engine waits, so then a submission is put aside until somebody says what was found.

Not here: asking (`partition_worker/group_lookup.py`), and what a user may do (`common/acl.py`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from common.names import USER
from common.rm_messages import AddApplicationRequest, Allocation, AllocationRelease
from partition_worker.engine.bounds import Work

FORCED_TAG: Final = "application.create.force"
TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
"""The spellings of true in a tag."""

NOBODY: Final = "nobody"
NO_GROUP: Final = "nogroup"

REMEMBERED_S: Final = 300.0
"""How long the groups of a user are taken from memory."""
FAILURE_REMEMBERED_S: Final = 30.0
"""How long a user whose groups could not be found is not looked up again."""
REMEMBERED_MAX: Final = 10_000
"""Users whose groups are remembered; the one that was learned first is forgotten first, and looked up again."""

GROUPS_MAX: Final = 65_536
"""Groups that a submission may name: as many as Linux lets a user have. Rules and limits look at each of them."""

OPERATING_SYSTEM: Final = "os"
"""The type of resolver that asks the operating system."""

LDAP: Final = "ldap"
"""A type of resolver that YuniKorn has as a preview, and we do not have."""

Resolver = Callable[[str], tuple[str, ...]]
"""From the name of a user to the groups, the primary one first. Raises UserError when there is no such user."""


class UserError(ValueError):
    """A submission whose user cannot be established; the text is the reason for the resource manager."""


@dataclass(frozen=True, slots=True)
class User:
    """A user with all groups, in the order in which they were given."""

    name: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What placement may look at of a new application."""

    application_id: str
    user: User
    queue_name: str = ""
    tags: Mapping[str, str]
    forced: bool = False
    """The application runs already, in all likelihood, and must find a queue again: `is_forced(tags)`."""
    work: Work = field(default_factory=Work)
    """What placement may still do for the update that it came with."""


def tag_value(tags: Mapping[str, str], name: str) -> str:
    """Return the value of a tag, whose name may be written in any case; empty when there is none."""
    wanted = name.lower()
    return next((value for tag, value in tags.items() if tag.lower() == wanted), "")


def is_forced(tags: Mapping[str, str]) -> bool:
    """Whether the resource manager insists that this application is accepted."""
    return tag_value(tags, FORCED_TAG) in TRUE


def own_name(user: str) -> tuple[str, ...]:
    """Resolve to one group with the name of the user: the default."""
    return (user,)


_TEST_USERS: Final[Mapping[str, tuple[str, ...]]] = {
    "testuser1": ("group1000", "group1001"),
    "testuser2": ("100", "group1001", "group1002"),
    "testuser3": ("group1001", "group1002", "group1003", "group1004"),
    "testuser4": ("901", "902"),
}


def trial_users(user: str) -> tuple[str, ...]:
    """Resolve four fixed users, for configurations that try things out: the type `test`."""
    if user not in _TEST_USERS:
        raise UserError(f"lookup failed for user: {user}")
    return _TEST_USERS[user]


def unsupported(user: str) -> tuple[str, ...]:
    """Resolve nobody: for a type that YuniKorn has and we do not. Wrong groups would open the wrong queues."""
    raise UserError(f"groups are not looked up by LDAP: the submission must name the groups of user {user}")


_RESOLVERS: Final[Mapping[str, Resolver]] = {"test": trial_users, LDAP: unsupported}


class GroupsUnknown(Exception):
    """The groups of this user have to be looked up outside before it can be said who they are."""


def resolver_of(kind: str) -> Resolver | None:
    """Return the resolver that a configuration names by its type, an unknown type meaning the default; None for the
    types that are looked up outside.
    """
    return None if kind == OPERATING_SYSTEM else _RESOLVERS.get(kind, own_name)


class Users:
    """Turns what submissions say about their users into users, and remembers their groups for a while."""

    def __init__(self, resolver: Resolver | None = own_name) -> None:
        self._resolver = resolver
        self.learned: dict[str, tuple[User | None, float]] = {}
        """By name, with the time it was learned, oldest first. None: the look-up failed."""

    @property
    def looks_up_outside(self) -> bool:
        """Whether groups come from `found` and `failed`, because looking them up takes time."""
        return self._resolver is None

    def resolve(self, name: str, groups: Sequence[str], *, forced: bool, now: float) -> User:
        """Return the user of a submission. Raises UserError, and GroupsUnknown when they are looked up outside.

        A forced submission never fails for want of a name or of groups, only for a name that cannot be one. The name of
        a user who was looked up is not checked: as YuniKorn, we leave it to the resolver which names there are.
        """
        if not name:
            if not forced:
                raise UserError("empty user cannot resolve")
            name, groups = NOBODY, (NO_GROUP,)
        if not groups:
            try:
                return self._looked_up(name, now)
            except UserError:
                if not forced:
                    raise
                groups = (NO_GROUP,)
        if not USER.fullmatch(name):
            raise UserError("invalid username, it contains invalid characters")
        if len(groups) > GROUPS_MAX:
            raise UserError(f"user {name} cannot be in {len(groups)} groups, at most {GROUPS_MAX} may be named")
        return self._learn(User(name, tuple(groups)), now)

    def found(self, name: str, groups: Sequence[str], now: float) -> None:
        """Remember the groups that a look-up outside found."""
        self._learn(User(name, tuple(groups)), now)

    def failed(self, name: str, now: float) -> None:
        """Remember that a look-up failed, so that it is not tried again at once."""
        self._remember(name, None, now)

    def _looked_up(self, name: str, now: float) -> User:
        """Return the user with the groups of the last submission that named them, or else of the resolver."""
        if name in self.learned:
            user, learned_at = self.learned[name]
            if user is not None and now < learned_at + REMEMBERED_S:
                return user
            if user is None and now < learned_at + FAILURE_REMEMBERED_S:
                raise UserError(f"user resolution failed, cached data returned: {_moment(learned_at)}")
        if self._resolver is None:
            raise GroupsUnknown(name)
        try:
            return self._learn(User(name, self._resolver(name)), now)
        except UserError:
            self.failed(name, now)
            raise

    def _learn(self, user: User, now: float) -> User:
        self._remember(user.name, user, now)
        return user

    def _remember(self, name: str, user: User | None, now: float) -> None:
        self.learned.pop(name, None)
        self.learned[name] = (user, now)
        if len(self.learned) > REMEMBERED_MAX:
            del self.learned[next(iter(self.learned))]


def _moment(unix_s: float) -> str:
    return datetime.fromtimestamp(int(unix_s), UTC).strftime("%Y-%m-%d %H:%M:%S +0000 UTC")


WAITING_MAX: Final = 10_000
"""Submissions of a partition that wait at once. The next one is treated as one whose look-up failed."""

HELD_MAX: Final = 100_000
"""Asks, allocations and releases that wait with their applications, in a partition. The next one is refused."""

Said = Allocation | AllocationRelease


class PendingSubmissions:
    """Submissions by user. Always: no user without any, no application twice."""

    def __init__(self) -> None:
        self.held: dict[str, list[Said]] = {}  # by application
        self._holding = 0
        self._by_user: dict[str, dict[str, AddApplicationRequest]] = {}
        self._users: dict[str, str] = {}  # of each application that waits

    def __len__(self) -> int:
        return len(self._users)

    def __contains__(self, application_id: str) -> bool:
        return application_id in self._users

    @property
    def full(self) -> bool:
        return len(self._users) >= WAITING_MAX

    @property
    def running(self) -> bool:
        """Whether something waits that runs already."""
        return any(isinstance(one, Allocation) and one.node_id for said in self.held.values() for one in said)

    def has_user(self, user: str) -> bool:
        """Whether somebody is being looked up already."""
        return user in self._by_user

    def users(self) -> tuple[str, ...]:
        """Who is being looked up, the first one first."""
        return tuple(self._by_user)

    def applications(self) -> tuple[str, ...]:
        """Who waits, the first one first."""
        return tuple(self._users)

    def submissions(self) -> Iterator[AddApplicationRequest]:
        """What waits, the first one first."""
        for application_id, user in self._users.items():
            yield self._by_user[user][application_id]

    def recall(self, users: Iterable[str], submissions: Iterable[AddApplicationRequest]) -> None:
        """Go on where one was that is remembered (`engine/memory`), users in the order of their look-ups."""
        self._by_user = {user: {} for user in users}
        for submission in submissions:
            self.put(submission)

    def put(self, submission: AddApplicationRequest) -> None:
        """Let a submission wait, of an application that does not yet."""
        user, application_id = submission.ugi.user, submission.application_id
        assert application_id not in self._users, application_id
        self._users[application_id] = user
        self._by_user.setdefault(user, {})[application_id] = submission

    def hold(self, application_id: str, said: Said) -> bool:
        """Let something that was said about an application that waits follow it; whether there was room for that."""
        assert application_id in self._users, application_id
        if self._holding >= HELD_MAX:
            return False
        self.held.setdefault(application_id, []).append(said)
        self._holding += 1
        return True

    def withdraw(self, application_id: str, key: str) -> None:
        """Forget what was said under this key, or everything if it is empty: a release for which there is no room."""
        kept = [one for one in self.said(application_id) if key and one.allocation_key != key]
        if kept:
            self.held[application_id] = kept
            self._holding += len(kept)

    def said(self, application_id: str) -> list[Said]:
        """Take out what was said about an application, in order."""
        held = self.held.pop(application_id, [])
        self._holding -= len(held)
        return held

    def drop(self, application_id: str) -> bool:
        """Forget a submission and what was said about it; whether it waited."""
        self.said(application_id)
        user = self._users.pop(application_id, None)
        if user is None:
            return False
        del self._by_user[user][application_id]
        if not self._by_user[user]:
            del self._by_user[user]
        return True

    def take_all(self) -> list[AddApplicationRequest]:
        """Take out all submissions, user by user."""
        return [submission for user in tuple(self._by_user) for submission in self.take(user)]

    def take(self, user: str) -> list[AddApplicationRequest]:
        """Take out all submissions of a user, the first one first."""
        taken = list(self._by_user.pop(user, {}).values())
        for submission in taken:
            del self._users[submission.application_id]
        return taken
