"""Read-only answers about a partition: which view of the engine's state a question gets.

The views themselves are in `views.py` (their shape) and `sights.py` (how they are filled). Nothing here changes the
state.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import Final

from msgspec.json import encode
from msgspec.structs import asdict

from common.messages import Answer, Query
from common.rest.partition import encoded
from partition_worker import figures, preemption_views, rule_views, sights
from partition_worker.engine.applications.application import Application
from partition_worker.engine.partition import Partition
from partition_worker.engine.queues.queue import Queue
from partition_worker.histogram import Histogram

LISTED_MAX: Final = 200_000
"""Asks and allocations in one answer. It takes a second to list them, in which the partition does nothing else; who
asks for more is told to ask for a part of it."""


class _NotAnswered(Exception):
    """A question that has no answer: HTTP status and text."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def answer(
    partition: Partition,
    rm: str,
    query: Query,
    now: float,
    cycles: Histogram | None = None,
    *,
    journal_problem: str = "",
) -> Answer:
    """The answer to a question: status 200 and a JSON document, or an error status and a text.

    How long scheduling cycles took is not the partition's to know: it has no clock. Nor is `journal_problem`, why
    nothing becomes durable at present.
    """
    if query.what == "metrics":
        body = figures.document(partition, cycles or Histogram(), now, kept=not journal_problem)
        return Answer(status=200, body=body)
    if query.what == "health":
        return Answer(status=200, body=_health(partition, journal_problem))
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
    return _listed(_queue_named(partition, args).applications.values(), shown)


def _queue_named(partition: Partition, args: Mapping[str, str]) -> Queue:
    found = partition.tree.find(args.get("queue", ""))
    if found is None:
        raise _NotAnswered(404, "Queue not found")
    return found


def _applications(partition: Partition, shown: sights.Shown, args: Mapping[str, str]) -> bytes:
    state, status = args.get("state"), args.get("status", "")
    if state == "completed":
        return _listed(partition.ended.values(), shown)
    if state == "rejected":
        return encoded([sights.rejection(one, shown) for one in partition.rejections.values()])
    if state != "active":
        raise _NotAnswered(400, f"unknown state {state!r}, expected active, completed or rejected")
    among = partition.applications
    if "queue" in args:
        among = _queue_named(partition, args).applications
    return _listed([one for one in among.values() if not status or one.state.lower() == status], shown)


def _listed(applications: Collection[Application], shown: sights.Shown) -> bytes:
    _check_length(applications, "a queue or an application")
    return encoded([sights.application(one, shown) for one in applications])


def _check_length(applications: Iterable[Application], part: str) -> None:
    """Raises before anything is listed, for listing is what takes time."""
    found = sum(len(one.requests) + len(one.allocations) for one in applications)
    if found > LISTED_MAX:
        text = f"there are {found} asks and allocations, at most {LISTED_MAX} are listed at once: ask for {part}"
        raise _NotAnswered(503, text)


def _application(partition: Partition, shown: sights.Shown, args: Mapping[str, str]) -> bytes:
    among = _queue_named(partition, args).applications if "queue" in args else partition.applications
    found = among.get(args.get("application", ""))
    if found is None:
        raise _NotAnswered(404, "Application not found")
    _check_length([found], "its queue, which has the sums")
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


def _health(partition: Partition, journal_problem: str) -> bytes:
    """What the latest round found, and what is so now."""
    now = {"syncing": partition.report is not None, "journal_problem": journal_problem}
    return encode({**asdict(partition.auditor.health), **now})


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
    "preemptions": _preemptions,
}
