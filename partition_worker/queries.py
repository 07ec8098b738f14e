"""Read-only answers about a partition: which view of the engine's state a question gets.

The views themselves are in `views.py` (their shape) and `sights.py` (how they are filled). Nothing here changes the
state.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

from msgspec.json import encode

from common.messages import Answer, Query
from partition_worker import figures, preemption_views, rule_views, sights
from partition_worker.engine.partition import Partition
from partition_worker.engine.queues.queue import Queue
from partition_worker.histogram import Histogram
from partition_worker.views import encoded


class _NotAnswered(Exception):
    """A question that has no answer: HTTP status and text."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def answer(partition: Partition, rm: str, query: Query, now: float, cycles: Histogram | None = None) -> Answer:
    """The answer to a question: status 200 and a JSON document, or an error status and a text.

    How long scheduling cycles took is not the partition's to know: it has no clock.
    """
    if query.what == "metrics":
        return Answer(status=200, body=figures.document(partition, cycles or Histogram(), now))
    ask = _QUESTIONS.get(query.what)
    if ask is None:
        return Answer(status=400, body=f"unknown question {query.what!r}".encode())
    try:
        return Answer(status=200, body=ask(partition, sights.Shown(rm=rm, name=query.name), query.args))
    except _NotAnswered as error:
        return Answer(status=error.status, body=str(error).encode())


def _partition(partition: Partition, shown: sights.Shown, args: Mapping[str, str]) -> bytes:
    return encoded(sights.partition(partition, shown))


def _queues(partition: Partition, shown: sights.Shown, args: Mapping[str, str]) -> bytes:
    return encoded(sights.queue(partition.tree.root, subtree=True, partition=shown.name))


def _queue(partition: Partition, shown: sights.Shown, args: Mapping[str, str]) -> bytes:
    return encoded(sights.queue(_queue_named(partition, args), subtree="subtree" in args, partition=""))


def _queue_applications(partition: Partition, shown: sights.Shown, args: Mapping[str, str]) -> bytes:
    return encoded([sights.application(one, shown) for one in _queue_named(partition, args).applications.values()])


def _queue_named(partition: Partition, args: Mapping[str, str]) -> Queue:
    found = partition.tree.find(args.get("queue", ""))
    if found is None:
        raise _NotAnswered(404, "Queue not found")
    return found


def _applications(partition: Partition, shown: sights.Shown, args: Mapping[str, str]) -> bytes:
    state, status = args.get("state"), args.get("status", "")
    if state == "completed":
        return encoded([sights.application(one, shown) for one in partition.ended.values()])
    if state == "rejected":
        return encoded([sights.rejection(one, shown) for one in partition.rejections.values()])
    if state != "active":
        raise _NotAnswered(400, f"unknown state {state!r}, expected active, completed or rejected")
    among = partition.applications
    if "queue" in args:
        among = _queue_named(partition, args).applications
    return encoded(
        [sights.application(one, shown) for one in among.values() if not status or one.state.lower() == status]
    )


def _application(partition: Partition, shown: sights.Shown, args: Mapping[str, str]) -> bytes:
    among = _queue_named(partition, args).applications if "queue" in args else partition.applications
    found = among.get(args.get("application", ""))
    if found is None:
        raise _NotAnswered(404, "Application not found")
    return encoded(sights.application(found, shown))


def _nodes(partition: Partition, shown: sights.Shown, args: Mapping[str, str]) -> bytes:
    return encoded([sights.node(one) for one in partition.fleet])


def _node(partition: Partition, shown: sights.Shown, args: Mapping[str, str]) -> bytes:
    found = partition.fleet.get(args.get("node", ""))
    if found is None:
        raise _NotAnswered(404, "Node not found")
    return encoded(sights.node(found))


def _users(partition: Partition, shown: sights.Shown, args: Mapping[str, str]) -> bytes:
    return encoded([sights.user(one) for one in partition.usage.users])


def _user(partition: Partition, shown: sights.Shown, args: Mapping[str, str]) -> bytes:
    found = partition.usage.users.find(args.get("user", ""))
    if found is None:
        raise _NotAnswered(404, "User not found")
    return encoded(sights.user(found))


def _groups(partition: Partition, shown: sights.Shown, args: Mapping[str, str]) -> bytes:
    return encoded([sights.group(one) for one in partition.usage.groups])


def _group(partition: Partition, shown: sights.Shown, args: Mapping[str, str]) -> bytes:
    found = partition.usage.groups.find(args.get("group", ""))
    if found is None:
        raise _NotAnswered(404, "Group not found")
    return encoded(sights.group(found))


def _rules(partition: Partition, shown: sights.Shown, args: Mapping[str, str]) -> bytes:
    return encoded([rule_views.rule(one) for one in partition.placement.described()])


def _preemptions(partition: Partition, shown: sights.Shown, args: Mapping[str, str]) -> bytes:
    latest = islice(partition.preemptions, int(args["limit"]) if "limit" in args else None)
    return encoded([preemption_views.preemption(one) for one in latest])


def _health(partition: Partition, shown: sights.Shown, args: Mapping[str, str]) -> bytes:
    return encode(partition.auditor.health)


_QUESTIONS: Final[dict[str, Callable[[Partition, sights.Shown, Mapping[str, str]], bytes]]] = {
    "partition": _partition,
    "queues": _queues,
    "queue": _queue,
    "queue-applications": _queue_applications,
    "applications": _applications,
    "application": _application,
    "nodes": _nodes,
    "node": _node,
    "users": _users,
    "user": _user,
    "groups": _groups,
    "group": _group,
    "rules": _rules,
    "health": _health,
    "preemptions": _preemptions,
}
