"""Submissions that wait until the groups of their user are known.

The engine waits for nothing: a submission whose user has to be looked up outside is put aside here, and goes on when
the answer comes. All of a user go on together, in the order in which they came.

Not here: looking up (`partition_worker/groups.py`), and what a submission is (`application_updates.py`).
"""

from typing import Final

from common.messages import AddApplicationRequest

WAITING_MAX: Final = 10_000
"""Submissions of a partition that wait at once. The next one is treated as one whose look-up failed."""


class Waiting:
    """Submissions by user. Always: no user without any, no application twice."""

    def __init__(self) -> None:
        self._by_user: dict[str, dict[str, AddApplicationRequest]] = {}
        self._users: dict[str, str] = {}  # of each application that waits

    def __len__(self) -> int:
        return len(self._users)

    def __contains__(self, application_id: str) -> bool:
        return application_id in self._users

    @property
    def full(self) -> bool:
        return len(self._users) >= WAITING_MAX

    def has_user(self, user: str) -> bool:
        """Whether somebody is being looked up already."""
        return user in self._by_user

    def put(self, submission: AddApplicationRequest) -> None:
        """Let a submission wait, of an application that does not yet."""
        user, application_id = submission.ugi.user, submission.application_id
        assert application_id not in self._users, application_id
        self._users[application_id] = user
        self._by_user.setdefault(user, {})[application_id] = submission

    def drop(self, application_id: str) -> bool:
        """Forget a submission; whether it waited."""
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
