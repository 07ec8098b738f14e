"""Submissions that wait until the groups of their user are known.

The engine waits for nothing: a submission whose user has to be looked up outside is put aside here, and goes on when
the answer comes. All of a user go on together, in the order in which they came, and what the RM said about an
application in the meantime follows it.

Not here: looking up (`partition_worker/groups.py`), and what a submission is (`updates/application_updates.py`).
"""

from collections.abc import Iterable, Iterator
from typing import Final

from common.rm_messages import AddApplicationRequest, Allocation, AllocationRelease

WAITING_MAX: Final = 10_000
"""Submissions of a partition that wait at once. The next one is treated as one whose look-up failed."""

HELD_MAX: Final = 100_000
"""Asks, allocations and releases that wait with their applications, in a partition. The next one is refused."""

Said = Allocation | AllocationRelease


class Waiting:
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
