"""What one viewer may see of a partition: by the access control lists of its queues, and by whose an application is.

Queues that they may submit to or administer, with all below; on the way to those, the names of the queues above.
Applications that are theirs, and all those in queues that they administer. Who administers the root sees everything, as
do scheduler administrators. A queue that has gone counts as the nearest one above it that is there.

Made for one question, top-down, and never kept: the lists may change with the next message. Not here: what is left of a
view of something that may be seen in part only (`cuts.py`).
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import Final

from common.names import RECOVERY_QUEUE
from common.query_messages import Actor
from partition_worker.engine.application import Application
from partition_worker.engine.books import Books
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.rejection import Rejection
from partition_worker.engine.user_resolution import User


class Right(IntEnum):
    """What somebody may do in a queue; each includes those before it."""

    NOTHING = 0
    SUBMIT = 1
    ADMINISTER = 2


class Visibility:
    """What a viewer may see at this moment; everything if there is none."""

    def __init__(self, books: Books, viewer: Actor | None) -> None:
        self._books: Final = books
        viewer = viewer or Actor(user="", scheduler_admin=True)
        self._user: Final = User(viewer.user, tuple(viewer.groups))
        self._rights: dict[Queue, Right] = {}
        self._rights_at: dict[str, Right] = {}
        self._leads: dict[Queue, bool] = {}
        self.everything: Final = viewer.scheduler_admin or books.tree.root.admits_administration(self._user)

    # Queues ---------------------------------------------------------------------------------------------------------

    def right(self, queue: Queue) -> Right:
        """What the viewer may do in a queue of the tree."""
        if self.everything:
            return Right.ADMINISTER
        found = self._rights.get(queue)
        if found is None:
            found = self._rights[queue] = self._found(queue)
        return found

    def _found(self, queue: Queue) -> Right:
        """As `Queue.admits_administration` and `Queue.admits_submission` say: what holds above holds for all below."""
        user, above = self._user, Right.NOTHING if queue.parent is None else self.right(queue.parent)
        if above is Right.ADMINISTER or queue.admin_acl.allows(user.name, user.groups):
            return Right.ADMINISTER
        if queue.path == RECOVERY_QUEUE:
            return Right.NOTHING
        if above is Right.SUBMIT or queue.submit_acl.allows(user.name, user.groups):
            return Right.SUBMIT
        return Right.NOTHING

    def right_at(self, path: str) -> Right:
        """What they may do at a path, at which there may be no queue, or none any more."""
        found = self._rights_at.get(path)
        if found is None:
            queue = self._nearest(path)
            found = self._rights_at[path] = Right.NOTHING if queue is None else self.right(queue)
        return found

    def _nearest(self, path: str) -> Queue | None:
        """The lowest queue on the way to the path; None if it does not even begin at the root."""
        first, *names = path.lower().split(".")
        queue = self._books.tree.root
        if first != queue.path:
            return None
        for name in names:
            below = queue.children.get(name)
            if below is None:
                break
            queue = below
        return queue

    def shows(self, queue: Queue) -> bool:
        """Whether the queue is there for the viewer, if only by its name. The root always is."""
        return queue.parent is None or self.right(queue) is not Right.NOTHING or self._leads_on(queue)

    def _leads_on(self, queue: Queue) -> bool:
        """Whether something below it may be seen."""
        found = self._leads.get(queue)
        if found is None:
            found = self._leads[queue] = any(self.shows(child) for child in queue.children.values())
        return found

    def highest(self, wanted: Right) -> Iterator[str]:
        """The paths where this right begins: it holds for all below each of them."""
        waiting = [self._books.tree.root]
        while waiting:
            queue = waiting.pop()
            if self.right(queue) >= wanted:
                yield queue.path
            else:
                waiting += queue.children.values()

    # Applications ---------------------------------------------------------------------------------------------------

    def application(self, application: Application) -> bool:
        """Whether an application may be seen, also one that has ended."""
        return self.everything or self._work(application.user.name, application.queue.path)

    def rejection(self, rejection: Rejection) -> bool:
        """Whether an application that was refused may be seen."""
        return self.everything or self._work(rejection.user, rejection.queue_name)

    def application_named(self, application_id: str) -> bool:
        """Whether the application of this name that has not ended may be seen."""
        found = self._books.applications.get(application_id)
        return self.everything or (found is not None and self.application(found))

    def _work(self, user: str, path: str) -> bool:
        return self.user(user) or self.right_at(path) is Right.ADMINISTER

    # Users and groups -----------------------------------------------------------------------------------------------

    def user(self, name: str) -> bool:
        """Whether what a user has and may have may be seen: it is the viewer."""
        return self.everything or (bool(name) and name == self._user.name)

    def group(self, name: str) -> bool:
        """Whether what a group has and may have may be seen: the viewer is in it."""
        return self.everything or name in self._user.groups
