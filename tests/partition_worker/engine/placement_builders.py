"""Submissions and queue trees that show only what a test is about."""

from collections.abc import Mapping
from dataclasses import dataclass

from yunishard.common.config.model import FilterConfig, PlacementRuleConfig
from yunishard.common.messages.rm_messages import AddApplicationRequest
from yunishard.partition_worker.engine.durable_records import OperatorMark
from yunishard.partition_worker.engine.placement import Submission
from yunishard.partition_worker.engine.queues.tree import Tree
from yunishard.partition_worker.engine.user_resolution import FORCED_TAG, User

BOB = User("bob", ("dev",))


@dataclass
class FakeQueue:
    path: str
    leaf: bool = True
    draining: bool = False
    open: bool = True

    def admits_submission(self, user: User) -> bool:
        return self.open


class FakeTree:
    """The root and the queues that are given."""

    def __init__(self, *queues: FakeQueue, root_open: bool = True) -> None:
        root = FakeQueue("root", leaf=False, open=root_open)
        self._queues: dict[str, FakeQueue] = {queue.path: queue for queue in (root, *queues)}
        self.stops: dict[str, OperatorMark] = {}

    def find(self, path: str) -> FakeQueue | None:
        return self._queues.get(path.lower())

    find_nearest = Tree.find_nearest
    find_stop = Tree.find_stop


def leaf(path: str, *, is_open: bool = True, draining: bool = False) -> FakeQueue:
    return FakeQueue(path, open=is_open, draining=draining)


def parent(path: str, *, is_open: bool = True) -> FakeQueue:
    return FakeQueue(path, leaf=False, open=is_open)


NOWHERE = FakeTree()


def submission(
    queue_name: str = "", *, user: User = BOB, tags: Mapping[str, str] | None = None, forced: bool = False
) -> Submission:
    force = {FORCED_TAG: "true"} if forced else {}
    return Submission(AddApplicationRequest("app-1", queue_name, tags={**(tags or {}), **force}), user)


def rule(
    name: str,
    *,
    value: str = "",
    create: bool = False,
    parent: PlacementRuleConfig | None = None,
    only: str = "",
) -> PlacementRuleConfig:
    """A rule, for `only` this user if one is given."""
    return PlacementRuleConfig(
        name=name, value=value, create=create, parent=parent, filter=FilterConfig(users=(only,) if only else ())
    )
