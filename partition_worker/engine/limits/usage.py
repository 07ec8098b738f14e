"""What each user has, at every queue of the paths they use.

An application counts as running for its user from its first allocation until it is forgotten, at its leaf and at each
queue above. Users without usage and applications are not kept. Not here: limits on usage.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from common.messages import Resources
from common.resources import add_to, is_zero, take_from
from partition_worker.engine.queues.queue import Queue


@dataclass(slots=True, eq=False)
class Level:
    """One user's use of one queue, with everything below it."""

    path: str
    used: Resources = field(default_factory=dict)
    applications: dict[str, None] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return not self.applications and is_zero(self.used)


class UserUsage:
    """The books of all users of a partition."""

    def __init__(self) -> None:
        self._users: dict[str, dict[str, Level]] = {}

    def __iter__(self) -> Iterator[str]:
        """Names of users that have something, in order of first use."""
        return iter(self._users)

    def levels(self, user: str) -> dict[str, Level]:
        """A user's levels by queue path, each parent before its children where both exist."""
        return self._users.get(user, {})

    def increase(self, user: str, leaf: Queue, application_id: str, amount: Resources) -> None:
        """Count an allocation (or the growth of one, where negative its shrinking)."""
        levels = self._users.setdefault(user, {})
        if leaf.path not in levels:
            for queue in reversed(tuple(leaf.ancestry())):
                levels.setdefault(queue.path, Level(queue.path))
        for queue in leaf.ancestry():
            level = levels[queue.path]
            add_to(level.used, amount)
            level.applications[application_id] = None

    def decrease(self, user: str, leaf: Queue, application_id: str, amount: Resources, *, forget: bool) -> None:
        """Take an allocation back; `forget` says that the application no longer counts as running."""
        levels = self._users.get(user)
        if levels is None or leaf.path not in levels:
            return
        for queue in leaf.ancestry():
            take_from(levels[queue.path].used, amount)
        if forget:
            self.forget(user, leaf, application_id)

    def forget(self, user: str, leaf: Queue, application_id: str) -> None:
        """The application no longer counts as running, if it did."""
        levels = self._users.get(user)
        if levels is None or leaf.path not in levels:
            return
        for queue in leaf.ancestry():
            level = levels[queue.path]
            level.applications.pop(application_id, None)
            if level.empty:
                del levels[queue.path]
        if not levels:
            del self._users[user]
