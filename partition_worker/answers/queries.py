"""Read-only answers about a partition: which view of the engine's state a question gets.

The views themselves are in `common/rest/` (their shape), `sights.py` (how they are filled) and `cuts.py` (what is left
of them for one who may see a part). Nothing here changes the state.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from msgspec.json import encode
from msgspec.structs import asdict

from common.query_messages import TOO_LONG, Answer, Query
from common.rest_views import View, encoded
from partition_worker.answers import cuts, pages, preemption_views, rule_views, sights, utilisation
from partition_worker.answers.visibility import Right, Visibility
from partition_worker.engine.application import Application
from partition_worker.engine.partition import Partition
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.usage_trackers import Tracker

LISTED_MAX: Final = 200_000
"""Asks and allocations of one application in an answer. It takes a second to list them, in which the partition does
nothing else; who asks for more is told to look at the sums."""


_T = TypeVar("_T")


class _NotAnswered(Exception):
    """A question that has no answer: HTTP status and text."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question about a partition, and what whoever asks may see of it."""

    partition: Partition
    shown: sights.Shown
    args: Mapping[str, str]
    visible: Visibility


def answer(partition: Partition, rm: str, query: Query, *, journal_problem: str = "", poison: str = "") -> Answer:
    """The answer to a question: status 200 and a JSON document, or an error status and a text.

    `journal_problem`, why nothing becomes durable at present, and `poison`, why a message was set aside lately, are not
    the partition's to know.
    """
    visible = Visibility(partition, query.viewer)
    if query.what == "health":
        return Answer(status=200, body=_health(partition, journal_problem, poison))
    ask = _QUESTIONS.get(query.what)
    if ask is None:
        return Answer(status=400, body=f"unknown question {query.what!r}".encode())
    try:
        return ask(_Asked(partition, sights.Shown(rm=rm, name=query.name), query.args, visible))
    except _NotAnswered as error:
        return Answer(status=error.status, body=str(error).encode())
    except pages.TooLong as error:
        return Answer(status=TOO_LONG, body=str(error).encode())


def _told(view: View | Sequence[View], more: str = "") -> Answer:
    return Answer(status=200, body=encoded(view), next=more)


def _paged(asked: _Asked, listing: pages.Listing[_T], show: Callable[[_T], View]) -> Answer:
    found, more = pages.page(listing, pages.wanted(asked.args))
    return _told([show(one) for one in found], more)


# The partition as a whole -------------------------------------------------------------------------------------------


def _partition(asked: _Asked) -> Answer:
    return _told(sights.partition(asked.partition, asked.shown))


def _rules(asked: _Asked) -> Answer:
    return _told([rule_views.rule(one) for one in asked.partition.placement.described()])


def _preemptions(asked: _Asked) -> Answer:
    entries = preemption_views.by_moment(cuts.preemptions(asked.partition, asked.visible))
    return _paged(asked, pages.Listing(entries), preemption_views.preemption)


def _visible(asked: _Asked) -> Answer:
    """Where the rights of the viewer begin: by that others can filter what they keep about queues and applications."""
    highest = {name: sorted(asked.visible.highest(right)) for name, right in _RIGHTS.items()}
    return Answer(status=200, body=encode(highest))


def _health(partition: Partition, journal_problem: str, poison: str) -> bytes:
    """What the latest round found, and what is so now."""
    now = {"syncing": partition.report is not None, "journal_problem": journal_problem, "poison": poison}
    return encode({**asdict(partition.auditor.health), **now})


# Queues and applications --------------------------------------------------------------------------------------------


def _queues(asked: _Asked) -> Answer:
    root = asked.partition.tree.root
    return _told(cuts.queue(root, asked.visible, subtree=True, partition=asked.shown.name))


def _queue(asked: _Asked) -> Answer:
    return _told(cuts.queue(_queue_named(asked), asked.visible, subtree="subtree" in asked.args, partition=""))


def _queue_applications(asked: _Asked) -> Answer:
    return _listed(asked, _applications_in(asked))


def _queue_named(asked: _Asked) -> Queue:
    found = asked.partition.tree.find(asked.args.get("queue", ""))
    if found is None or not asked.visible.shows(found):
        raise _NotAnswered(404, "Queue not found")
    return found


def _applications_in(asked: _Asked) -> Mapping[str, Application]:
    """The applications of the queue that the question names."""
    alive = asked.partition.applications
    return {name: alive[name] for name in _queue_named(asked).applications}


def _applications(asked: _Asked) -> Answer:
    state, status = asked.args.get("state"), asked.args.get("status", "")
    if state == "completed":
        return _listed(asked, asked.partition.ended)
    if state == "rejected":
        refused = pages.Listing(asked.partition.rejections, asked.visible.rejection)
        return _paged(asked, refused, lambda one: sights.rejection(one, asked.shown))
    if state != "active":
        raise _NotAnswered(400, f"unknown state {state!r}, expected active, completed or rejected")
    among = _applications_in(asked) if "queue" in asked.args else asked.partition.applications
    return _listed(asked, among, status)


def _listed(asked: _Asked, among: Mapping[str, Application], status: str = "") -> Answer:
    """Those that have the status, if one is wanted."""

    def wanted(one: Application) -> bool:
        return (not status or one.state.lower() == status) and asked.visible.application(one)

    def show(one: Application) -> View:
        return _shown(one, asked.shown)

    return _paged(asked, pages.Listing(among, wanted, lambda one: 1 + _length(one)), show)


def _shown(one: Application, shown: sights.Shown) -> View:
    """An application with all it has, if that may be listed: that is what takes time."""
    found = _length(one)
    if found > LISTED_MAX:
        text = f"there are {found} asks and allocations, at most {LISTED_MAX} are listed at once: ask for its queue"
        raise _NotAnswered(503, f"{text}, which has the sums")
    return sights.application(one, shown)


def _length(one: Application) -> int:
    return len(one.requests) + len(one.allocations)


def _application(asked: _Asked) -> Answer:
    among = _applications_in(asked) if "queue" in asked.args else asked.partition.applications
    found = among.get(asked.args.get("application", ""))
    if found is None or not asked.visible.application(found):
        raise _NotAnswered(404, "Application not found")
    return _told(_shown(found, asked.shown))


# Nodes --------------------------------------------------------------------------------------------------------------


def _nodes(asked: _Asked) -> Answer:
    nodes = pages.by(lambda node: node.node_id, asked.partition.fleet)
    listing = pages.Listing(nodes, weight=lambda node: 1 + len(node.allocations) + len(node.foreign))
    return _paged(asked, listing, lambda node: cuts.node(node, asked.visible))


def _node(asked: _Asked) -> Answer:
    found = asked.partition.fleet.get(asked.args.get("node", ""))
    if found is None:
        raise _NotAnswered(404, "Node not found")
    return _told(cuts.node(found, asked.visible))


def _utilisation(asked: _Asked) -> Answer:
    shown = asked.shown
    return _told(utilisation.utilisation(asked.partition.fleet, rm=shown.rm, partition=shown.name))


# Users and groups ---------------------------------------------------------------------------------------------------


def _users(asked: _Asked) -> Answer:
    users = pages.by(_name, asked.partition.usage.users)
    listing = pages.Listing(users, lambda one: asked.visible.user(one.name))
    return _paged(asked, listing, lambda one: cuts.user(one, asked.visible))


def _user(asked: _Asked) -> Answer:
    found = asked.partition.usage.users.find(asked.args.get("user", ""))
    if found is None or not asked.visible.user(found.name):
        raise _NotAnswered(404, "User not found")
    return _told(cuts.user(found, asked.visible))


def _groups(asked: _Asked) -> Answer:
    groups = pages.by(_name, asked.partition.usage.groups)
    listing = pages.Listing(groups, lambda one: asked.visible.group(one.name))
    return _paged(asked, listing, lambda one: cuts.group(one, asked.visible))


def _group(asked: _Asked) -> Answer:
    found = asked.partition.usage.groups.find(asked.args.get("group", ""))
    if found is None or not asked.visible.group(found.name):
        raise _NotAnswered(404, "Group not found")
    return _told(cuts.group(found, asked.visible))


def _name(tracker: Tracker) -> str:
    return tracker.name


_RIGHTS: Final = {"submit": Right.SUBMIT, "admin": Right.ADMINISTER}

_QUESTIONS: Final[dict[str, Callable[[_Asked], Answer]]] = {
    "partition": _partition,
    "queues": _queues,
    "queue": _queue,
    "queue-applications": _queue_applications,
    "applications": _applications,
    "application": _application,
    "nodes": _nodes,
    "node": _node,
    "utilisation": _utilisation,
    "users": _users,
    "user": _user,
    "groups": _groups,
    "group": _group,
    "rules": _rules,
    "preemptions": _preemptions,
    "visible": _visible,
}

LASTING: Final = frozenset(_QUESTIONS)
"""Questions whose answers stay the same until something changes."""

FOR_VIEWERS: Final = LASTING | {"health"}
"""Questions whose answers are made for whoever asks."""
