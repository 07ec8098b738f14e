"""Decide what a viewer may see of a partition, and remove the rest from its views.

A viewer sees the queues that the viewer may submit to or administer, with all queues below, and the names of their
ancestors. A viewer sees the viewer's own applications, and all applications in queues that the viewer administers. An
administrator of the root queue sees everything, as does a scheduler administrator. A removed queue counts as its
nearest existing ancestor. Sums and cluster sizes are not redacted.

Visibility is computed for one query and never cached: access control lists may change with the next message.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import Final

from msgspec.structs import replace

from yunishard.common.messages.query_messages import Actor
from yunishard.common.resources import Limit, less, saturate, tighten
from yunishard.common.rest.views import (
    PRIORITY_NONE,
    GroupView,
    NodeView,
    QueueView,
    UsageView,
    UserView,
    format_duration,
)
from yunishard.partition_worker import views
from yunishard.partition_worker.engine.application import Application
from yunishard.partition_worker.engine.durable_records import PreemptionRecord
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.state import PartitionState
from yunishard.partition_worker.engine.user_limits import QueueUsage, Tracker
from yunishard.partition_worker.engine.user_resolution import User


class Right(IntEnum):
    """A viewer's right in a queue; each includes those before it."""

    NOTHING = 0
    SUBMIT = 1
    ADMINISTER = 2


class Visibility:
    """The visible parts of a partition for one viewer; everything without a viewer."""

    def __init__(self, state: PartitionState, viewer: Actor | None) -> None:
        self._state: Final = state
        viewer = viewer or Actor(user="", scheduler_admin=True)
        self._user: Final = User(viewer.user, tuple(viewer.groups))
        self._rights: dict[Queue, Right] = {}
        self.everything: Final = viewer.scheduler_admin or state.tree.root.admits_administration(self._user)

    # Queues ---------------------------------------------------------------------------------------------------------

    def find_right(self, queue: Queue) -> Right:
        """The viewer's right in a queue of the tree."""
        if self.everything:
            return Right.ADMINISTER
        right = self._rights.get(queue)
        if right is None:
            may_submit = Right.SUBMIT if queue.admits_submission(self._user) else Right.NOTHING
            right = Right.ADMINISTER if queue.admits_administration(self._user) else may_submit
            self._rights[queue] = right
        return right

    def find_right_at(self, path: str) -> Right:
        """The viewer's right at a path, where a queue may be missing."""
        if self.everything:
            return Right.ADMINISTER
        queue = self._state.tree.find_nearest(path)
        return Right.NOTHING if queue is None else self.find_right(queue)

    def shows_queue(self, queue: Queue) -> bool:
        """Whether the queue is visible, if only its name. The root always is."""
        if queue.parent is None or self.find_right(queue) is not Right.NOTHING:
            return True
        return any(self.shows_queue(child) for child in queue.children.values())

    def find_highest(self, wanted: Right) -> Iterator[str]:
        """The paths of the highest queues with this right; it holds for all queues below them."""
        waiting = [self._state.tree.root]
        while waiting:
            queue = waiting.pop()
            if self.find_right(queue) >= wanted:
                yield queue.path
            else:
                waiting += queue.children.values()

    def list_queues(self) -> list[Queue]:
        """The visible queues, also those of which only the name is."""
        if self.everything:
            return list(self._state.tree)
        having = [one for one in self._state.tree if self.find_right(one) is not Right.NOTHING]
        shown = dict.fromkeys((self._state.tree.root, *(level for one in having for level in one.ancestry())))
        return list(shown)

    # Applications ---------------------------------------------------------------------------------------------------

    def shows_application(self, application: Application) -> bool:
        """Whether an application is visible, also one that has ended."""
        return self.shows_of(application.user.name, application.queue.path)

    def shows_application_id(self, application_id: str) -> bool:
        """Whether the running application of this ID is visible."""
        found = self._state.applications.get(application_id)
        return self.everything or (found is not None and self.shows_application(found))

    def shows_of(self, user: str, path: str) -> bool:
        """Whether applications of this user in the queue of this path are visible."""
        return self.shows_user(user) or self.find_right_at(path) is Right.ADMINISTER

    # Users and groups -----------------------------------------------------------------------------------------------

    def shows_user(self, name: str) -> bool:
        """Whether the usage of a user is visible: only the viewer's own."""
        return self.everything or (bool(name) and name == self._user.name)

    def shows_group(self, name: str) -> bool:
        """Whether the usage of a group is visible: only of the viewer's groups."""
        return self.everything or name in self._user.groups

    def list_usage(self, tracker: Tracker) -> Iterable[QueueUsage]:
        """The visible usages of a visible user or group: where the viewer has a right or an application, and above."""
        if self.everything:
            return tracker.levels.values()
        mine = (one.application for one in tracker.accounts.values())
        paths = {one.queue.path for one in mine if self.shows_application(one)}
        shown = [
            one
            for one in tracker.levels.values()
            if one.path in paths or self.find_right_at(one.path) is not Right.NOTHING
        ]
        return dict.fromkeys(level for one in shown for level in one.upward)


# Queues -------------------------------------------------------------------------------------------------------------


def redact_queue(one: Queue, visible: Visibility, *, subtree: bool, partition: str) -> QueueView:
    """A visible queue; only its name and position if the viewer has no right in it but in a queue below."""
    above = None if one.parent is None else one.parent.compute_headroom()
    return _redact_queue(one, above, visible, subtree=subtree, partition=partition)


def _redact_queue(one: Queue, above: Limit | None, visible: Visibility, *, subtree: bool, partition: str) -> QueueView:
    """A queue whose parent has the headroom `above`."""
    room = above if one.maximum is None else tighten(less(one.maximum, one.allocated), above)
    right = visible.find_right(one)
    children = [child for child in one.children.values() if visible.shows_queue(child)] if one.children else []
    children.sort(key=lambda one: one.path)
    below = [_redact_queue(child, room, visible, subtree=True, partition="") for child in (children if subtree else ())]
    if right is Right.NOTHING:
        return _name_only(one, children, below, partition)
    allocating = [
        name for name in sorted(one.allocating) if right is Right.ADMINISTER or visible.shows_application_id(name)
    ]
    view = views.build_queue_view(one, room, children, below, allocating=allocating, partition=partition)
    if view.stopped is not None and right is not Right.ADMINISTER:
        return replace(view, stopped=replace(view.stopped, user=""))
    return view


def _name_only(one: Queue, children: list[Queue], below: list[QueueView], partition: str) -> QueueView:
    """A queue above a visible one: its position, and defaults."""
    return QueueView(
        queuename=one.path,
        status=one.status,
        partition=partition,
        is_leaf=one.leaf,
        is_managed=one.managed,
        parent=one.parent.path if one.parent else "",
        children=below,
        child_names=[child.path for child in children],
        current_priority=PRIORITY_NONE,
        sorting_policy="",
        priority_sorting=False,
        preemption_enabled=False,
        is_preemption_fence=False,
        preemption_delay=format_duration(0),
        quota_preemption_delay=format_duration(0),
        is_priority_fence=False,
    )


# Nodes --------------------------------------------------------------------------------------------------------------


def redact_node(one: Node, visible: Visibility) -> NodeView:
    """A node with its visible allocations and reservations, and foreign allocations without tags."""
    view = views.build_node_view(one)
    if visible.everything:
        return view
    kept_for = [
        name for name, kept in one.reservations.items() if visible.shows_application_id(kept.ask.application_id)
    ]
    return replace(
        view,
        allocations=[each for each in view.allocations if visible.shows_application_id(each.application_id)],
        foreign_allocations=[replace(each, allocation_tags={}) for each in view.foreign_allocations],
        reservations=sorted(kept_for),
        cordoned=None if view.cordoned is None else replace(view.cordoned, user=""),
    )


# Users and groups ---------------------------------------------------------------------------------------------------


def redact_user(tracker: Tracker, visible: Visibility) -> UserView:
    """The usage and limits of a user, without queues where the viewer has no right and the user no visible usage."""
    charged = (account for account in tracker.accounts.values() if account.group_name is not None)
    groups = {account.application.application_id: account.group_name or "" for account in charged}
    usage = _redact_usage(tracker, visible)
    return UserView(user_name=tracker.name, groups=dict(sorted(groups.items())), queues=usage)


def redact_group(tracker: Tracker, visible: Visibility) -> GroupView:
    """The usage and limits of a group, and the visible applications that are charged to it; others' only in sums."""
    counted = (one.application for one in tracker.accounts.values() if one.counted)
    names = sorted(one.application_id for one in counted if visible.shows_application_id(one.application_id))
    return GroupView(group_name=tracker.name, applications=names, queues=_redact_usage(tracker, visible))


def _redact_usage(tracker: Tracker, visible: Visibility) -> UsageView | None:
    root = next((level for level in tracker.levels.values() if level.above is None), None)
    charged = [one.application for one in tracker.accounts.values() if visible.shows_application(one.application)]
    paths, names = {one.queue.path for one in charged}, {one.application_id for one in charged}
    return None if root is None else _redact_level(root, visible, paths=paths, names=names)


def _redact_level(level: QueueUsage, visible: Visibility, *, paths: set[str], names: set[str]) -> UsageView | None:
    """The usage in one queue and below, if any of it is visible."""
    below = (_redact_level(level.children[path], visible, paths=paths, names=names) for path in sorted(level.children))
    children = [child for child in below if child is not None]
    if not (children or level.path in paths or visible.find_right_at(level.path) is not Right.NOTHING):
        return None
    allowance = level.allowance
    return UsageView(
        queue_path=level.path,
        resource_usage=views.drop_zeros_saturated(level.used),
        running_applications=sorted(name for name in level.applications if visible.everything or name in names),
        max_resources=saturate(allowance.resources) if allowance else {},
        max_applications=allowance.applications if allowance else 0,
        children=children,
    )


# Preemptions --------------------------------------------------------------------------------------------------------


def redact_preemptions(partition: Partition, visible: Visibility) -> list[PreemptionRecord]:
    """Preemptions of visible applications, newest first, without the names of others.

    An application is identified by its ID, which may be used again after the application has ended: if not all
    applications with an ID are visible, none is. Administrators see the preemptions in their queues.
    """
    if visible.everything:
        return list(partition.preemptions.entries)
    named = {entry.application_id for entry in partition.preemptions.entries}
    named.update(victim.application_id for entry in partition.preemptions.entries for victim in entry.victims)
    known = [
        one for one in (*partition.applications.values(), *partition.ended.values()) if one.application_id in named
    ]
    hidden = {one.application_id for one in known if not visible.shows_application(one)}
    seen = {one.application_id for one in known} - hidden

    def shows(application_id: str, path: str) -> bool:
        return application_id in seen or visible.find_right_at(path) is Right.ADMINISTER

    return [cut for entry in partition.preemptions.entries if (cut := _redact_preemption(entry, shows)) is not None]


def _redact_preemption(entry: PreemptionRecord, shows: Callable[[str, str], bool]) -> PreemptionRecord | None:
    victims = tuple(one for one in entry.victims if shows(one.application_id, one.queue))
    if shows(entry.application_id, entry.queue):
        return replace(entry, victims=victims)
    if not victims:
        return None
    return replace(entry, victims=victims, queue="", application_id="", ask_key="", node_id="")
