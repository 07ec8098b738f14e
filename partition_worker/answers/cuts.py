"""What is left of views for one who may see a part of what they show: without a name of what they may not see.

Sums and sizes of the cluster are no secret. Not here: who may see what (`visibility.py`), whole views (`sights.py`).
"""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from common.resources import Limit
from common.rest_views import PRIORITY_NONE, GroupView, NodeView, QueueView, UsageView, UserView, duration
from partition_worker.answers import sights
from partition_worker.answers.visibility import Right, Visibility
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.partition import Partition
from partition_worker.engine.preemption_log import Preemption
from partition_worker.engine.queues.headroom import headroom
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.usage_trackers import Tracker

# Queues -------------------------------------------------------------------------------------------------------------


def queue(one: Queue, visible: Visibility, *, subtree: bool, partition: str) -> QueueView:
    """A queue that is there for the viewer: only its name and its place where it but leads to what they may see."""
    return _queue(one, headroom(one), visible, subtree=subtree, partition=partition)


def _queue(one: Queue, room: Limit | None, visible: Visibility, *, subtree: bool, partition: str) -> QueueView:
    right = visible.right(one)
    if right is Right.ADMINISTER:
        return sights.whole(one, room, subtree=subtree, partition=partition)
    children = sights.by_path([child for child in one.children.values() if visible.shows(child)])
    below = [
        _queue(child, sights.room_in(child, room), visible, subtree=True, partition="")
        for child in (children if subtree else ())
    ]
    if right is Right.NOTHING:
        return _bare(one, children, below, partition)
    allocating = [name for name in sorted(one.allocating) if visible.application_named(name)]
    return sights.with_children(one, room, children, below, allocating=allocating, partition=partition)


def _bare(one: Queue, children: list[Queue], below: list[QueueView], partition: str) -> QueueView:
    """A queue above one that may be seen. What it has to show besides its place is nothing or off."""
    return QueueView(
        queuename=one.path,
        status=one.state,
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
        preemption_delay=duration(0),
        quota_preemption_delay=duration(0),
        is_priority_fence=False,
    )


# Nodes --------------------------------------------------------------------------------------------------------------


def node(one: Node, visible: Visibility) -> NodeView:
    """A node: of what runs there, and of what it is kept for, only what may be seen; of others' pods no tags."""
    view = sights.node(one)
    if visible.everything:
        return view
    kept_for = [name for name, kept in one.reservations.items() if visible.application_named(kept.ask.application_id)]
    return replace(
        view,
        allocations=[each for each in view.allocations if visible.application_named(each.application_id)],
        foreign_allocations=[replace(each, allocation_tags={}) for each in view.foreign_allocations],
        reservations=sorted(kept_for),
    )


# Users and groups ---------------------------------------------------------------------------------------------------


def user(tracker: Tracker, visible: Visibility) -> UserView:
    """What the viewer uses: without queues where they may do nothing and have nothing, whatever they are allowed."""
    view = sights.user(tracker)
    return view if visible.everything else replace(view, queues=_usage(view.queues, tracker, visible))


def group(tracker: Tracker, visible: Visibility) -> GroupView:
    """What a group of the viewer uses: of others' applications only the sums."""
    view = sights.group(tracker)
    if visible.everything:
        return view
    counted = [name for name in view.applications if visible.application_named(name)]
    return replace(view, applications=counted, queues=_usage(view.queues, tracker, visible))


def _usage(view: UsageView | None, tracker: Tracker, visible: Visibility) -> UsageView | None:
    charged = [one.application for one in tracker.accounts.values() if visible.application(one.application)]
    if view is None:
        return None
    names = {one.application_id for one in charged}
    return _level(view, visible, paths={one.queue.path for one in charged}, names=names)


def _level(view: UsageView, visible: Visibility, *, paths: set[str], names: set[str]) -> UsageView | None:
    """A level, if it may be seen or leads to one that may."""
    below = (_level(child, visible, paths=paths, names=names) for child in view.children)
    children = [child for child in below if child is not None]
    if not (children or view.queue_path in paths or visible.right_at(view.queue_path) is not Right.NOTHING):
        return None
    running = [name for name in view.running_applications if name in names]
    return replace(view, running_applications=running, children=children)


# Preemptions --------------------------------------------------------------------------------------------------------


def preemptions(partition: Partition, visible: Visibility) -> list[Preemption]:
    """Those that touch applications that may be seen, the newest first, each without the names of others.

    One that may be seen as its user's is known by its id, and an id may be used again when its application has ended:
    where not all that are known by it may be seen, none is. Administrators see what happened in their queues.
    """
    if visible.everything:
        return list(partition.preemptions)
    named = dict.fromkeys(name for entry in partition.preemptions for name in _names(entry))
    live = [partition.applications[name] for name in named if name in partition.applications]
    known = (*live, *(one for one in partition.ended.values() if one.application_id in named))
    hidden = {one.application_id for one in known if not visible.application(one)}
    seen = {one.application_id for one in known} - hidden

    def shows(application_id: str, path: str) -> bool:
        return application_id in seen or visible.right_at(path) is Right.ADMINISTER

    return [cut for entry in partition.preemptions if (cut := _preemption(entry, shows)) is not None]


def _names(entry: Preemption) -> Iterator[str]:
    yield entry.application_id
    for victim in entry.victims:
        yield victim.application_id


def _preemption(entry: Preemption, shows: Callable[[str, str], bool]) -> Preemption | None:
    victims = tuple(one for one in entry.victims if shows(one.application_id, one.queue))
    if shows(entry.application_id, entry.queue):
        return entry._replace(victims=victims)
    if not victims:
        return None
    return entry._replace(victims=victims, queue="", application_id="", ask_key="", node_id="")
