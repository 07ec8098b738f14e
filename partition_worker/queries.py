"""Answer read-only queries about a partition: dispatch by query name, pagination, and answer versions.

Each query gets a view (`views.py`), redacted for the viewer (`redaction.py`), or events (`events.py`) or metrics
(`metrics.py`). Queries change nothing.

A page holds entries in the order of their keys, beginning after one key. Entries may be added and removed between two
pages: each entry that exists all the time is on exactly one page. A page that would take long to compute ends early; a
complete list that would is refused.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Generic, NamedTuple, TypeVar

from msgspec.json import encode
from msgspec.structs import asdict, replace

from common.history_records import EVENT_LINES
from common.metrics import Family, Histogram, encode_families
from common.query_messages import NOT_MODIFIED, TOO_LONG, Answer, Query
from common.rest_views import View, encode_view
from common.wire import BODY_BYTES_MAX
from partition_worker import events, metrics, redaction, views
from partition_worker.engine.application import Application
from partition_worker.engine.partition import Partition
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.usage_trackers import Tracker
from partition_worker.metrics import SampleCache
from partition_worker.outbox_barrier import OutboxBarrier
from partition_worker.partition_host import PartitionHost
from partition_worker.redaction import Right, Visibility

_T = TypeVar("_T")

OK: Final = 200

ANSWER_BYTES_MAX: Final = BODY_BYTES_MAX - 1024
"""The document in an answer, so that the message stays within its limit."""


def answer_query(
    host: PartitionHost,
    query: Query,
    now: float,
    *,
    cycles: Histogram,
    barrier: OutboxBarrier | None = None,
    around: Callable[[], list[Family]] = list,
    memo: SampleCache | None = None,
) -> Answer:
    """The answer, or why there is none; nothing changes. `around` tells the figures of the process and its journal."""
    if host.partition is None:
        return Answer(status=503, body=b"the partition is starting")
    if query.what not in REDACTED and not Visibility(host.partition, query.viewer).everything:
        return Answer(status=403, body=f"who may not see everything may not ask for {query.what}".encode())
    if query.what == "events":
        return events.answer_events(host.events, host.extra, query.args, bytes_max=ANSWER_BYTES_MAX)
    if query.what == EVENT_LINES:
        return events.answer_event_lines(host.events, host.extra, query.args, bytes_max=ANSWER_BYTES_MAX)
    problem = barrier.problem if barrier is not None else ""
    if query.what == "metrics":
        told = metrics.yunikorn_families(host.partition, cycles, memo)
        own = metrics.worker_families(host, host.partition, cycles, barrier, now)
        found = Answer(status=200, body=encode_families([*told, *own, *around()]))
    elif query.what == "account":
        found = events.answer_account(host.partition, host.events, query.args)
    else:
        version = _version(host, query)
        if version and query.known == version:
            return Answer(status=NOT_MODIFIED, body=b"", version=version)
        found = answer_partition_query(
            host.partition, host.channel.rm, query, journal_problem=problem, poison=host.recent_poison(now)
        )
        found = replace(found, version=version if found.status in (OK, TOO_LONG) else "")
    if len(found.body) > ANSWER_BYTES_MAX:
        text = f"the answer has {len(found.body)} bytes, at most {ANSWER_BYTES_MAX} can be sent: ask for a part of it"
        return Answer(status=503, body=f"{text}, a list with limit".encode())
    return found


def _version(host: PartitionHost, query: Query) -> str:
    """What the answer to this question is the answer of, or nothing for one that changes with time as well.

    With the time of the last change, as another process under the same lease counts its changes from 0 again.
    """
    if query.what not in CACHEABLE:
        return ""
    who = query.viewer
    asked = (query.what, query.name, sorted(query.args.items()), who and (who.user, who.groups, who.scheduler_admin))
    digest = blake2b(repr(asked).encode(), digest_size=8).hexdigest()
    return f"{host.epoch:x}-{host.changes:x}-{int(host.changed_at * 1e6):x}-{digest}"


# Pagination -----------------------------------------------------------------------------------------------------------

WEIGHT_MAX: Final = 10_000
"""Objects in one answer that has several entries, asks and allocations in them too. It takes a tenth of a second to
list them, in which the partition does nothing else."""


class ListTooLong(Exception):
    """A list that has to be asked for page by page."""

    def __init__(self) -> None:
        super().__init__(
            f"the list has more than {WEIGHT_MAX} entries, asks and allocations, so many are listed at once at most: "
            "ask for pages of it with limit"
        )


class PageRequest(NamedTuple):
    """The part that is asked for."""

    limit: int | None
    """At most so many entries; None is all there are."""
    after: str
    """The key after which it begins; empty for the first."""


def parse_page(args: Mapping[str, str]) -> PageRequest:
    """What the arguments of a question ask for."""
    return PageRequest(int(args["limit"]) if "limit" in args else None, args.get("after", ""))


@dataclass(frozen=True, slots=True)
class Listing(Generic[_T]):
    """What is listed."""

    entries: Mapping[str, _T]
    """By key."""
    shows: Callable[[_T], bool] = lambda _: True
    """Whether an entry is in the list."""
    weight: Callable[[_T], int] = lambda _: 1
    """Objects in an entry."""


def select_page(listing: Listing[_T], part: PageRequest) -> tuple[list[_T], str]:
    """The entries of the part that are shown, and the key to go on after; empty if there are no more.

    Entries come in the order of their keys, which are at most some ten thousand and mostly in order. Of a part it looks
    at no more entries than it takes until that is full.

    Raises:
        ListTooLong: everything is wanted, and that is too much.
    """
    entries, shows = listing.entries, listing.shows
    if part.limit is None:
        everything = {key: entry for key, entry in entries.items() if shows(entry)}
        if len(everything) > 1 and sum(map(listing.weight, everything.values())) > WEIGHT_MAX:
            raise ListTooLong
        return [everything[key] for key in sorted(everything)], ""
    found: list[_T] = []
    last, weight = "", 0
    for key in sorted(key for key in entries if key > part.after):
        entry = entries[key]
        if not shows(entry):
            continue
        weight += listing.weight(entry)
        if len(found) == part.limit or (found and weight > WEIGHT_MAX):
            return found, last
        found.append(entry)
        last = key
    return found, ""


def index_by(key: Callable[[_T], str], entries: Iterable[_T]) -> dict[str, _T]:
    """The entries by their keys."""
    return {key(entry): entry for entry in entries}


# Queries about the partition ------------------------------------------------------------------------------------------

LISTED_MAX: Final = 200_000
"""Asks and allocations of one application in an answer. It takes a second to list them, in which the partition does
nothing else; who asks for more is told to look at the sums."""


class _QueryFailed(Exception):
    """A question that has no answer: HTTP status and text."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class _Request:
    """A question about a partition, and what whoever asks may see of it."""

    partition: Partition
    shown: views.Shown
    args: Mapping[str, str]
    visible: Visibility


def answer_partition_query(
    partition: Partition, rm: str, query: Query, *, journal_problem: str = "", poison: str = ""
) -> Answer:
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
        return ask(_Request(partition, views.Shown(rm=rm, name=query.name), query.args, visible))
    except _QueryFailed as error:
        return Answer(status=error.status, body=str(error).encode())
    except ListTooLong as error:
        return Answer(status=TOO_LONG, body=str(error).encode())


def _json_answer(view: View | Sequence[View], more: str = "") -> Answer:
    return Answer(status=200, body=encode_view(view), next=more)


def _page_answer(asked: _Request, listing: Listing[_T], show: Callable[[_T], View]) -> Answer:
    found, more = select_page(listing, parse_page(asked.args))
    return _json_answer([show(one) for one in found], more)


# The partition as a whole -------------------------------------------------------------------------------------------


def _partition(asked: _Request) -> Answer:
    return _json_answer(views.partition_view(asked.partition, asked.shown))


def _rules(asked: _Request) -> Answer:
    return _json_answer([views.rule_view(one) for one in asked.partition.placement.describe()])


def _preemptions(asked: _Request) -> Answer:
    entries = views.index_preemptions(redaction.redact_preemptions(asked.partition, asked.visible))
    return _page_answer(asked, Listing(entries), views.preemption_view)


def _visible(asked: _Request) -> Answer:
    """Where the rights of the viewer begin: by that others can filter what they keep about queues and applications."""
    highest = {name: sorted(asked.visible.highest(right)) for name, right in _RIGHTS.items()}
    return Answer(status=200, body=encode(highest))


def _health(partition: Partition, journal_problem: str, poison: str) -> bytes:
    """What the latest round found, and what is so now."""
    now = {"syncing": partition.report is not None, "journal_problem": journal_problem, "poison": poison}
    return encode({**asdict(partition.auditor.health), **now})


# Queues and applications --------------------------------------------------------------------------------------------


def _queues(asked: _Request) -> Answer:
    root = asked.partition.tree.root
    return _json_answer(redaction.redact_queue(root, asked.visible, subtree=True, partition=asked.shown.name))


def _queue(asked: _Request) -> Answer:
    return _json_answer(
        redaction.redact_queue(_queue_named(asked), asked.visible, subtree="subtree" in asked.args, partition="")
    )


def _queue_applications(asked: _Request) -> Answer:
    return _list_applications(asked, _applications_in(asked))


def _applications_in(asked: _Request) -> Mapping[str, Application]:
    """The applications of the queue that the query names."""
    alive = asked.partition.applications
    return {name: alive[name] for name in _queue_named(asked).applications}


def _queue_named(asked: _Request) -> Queue:
    found = asked.partition.tree.find(asked.args.get("queue", ""))
    if found is None or not asked.visible.shows(found):
        raise _QueryFailed(404, "Queue not found")
    return found


def _applications(asked: _Request) -> Answer:
    state, status = asked.args.get("state"), asked.args.get("status", "")
    if state == "completed":
        return _list_applications(asked, asked.partition.ended)
    if state == "rejected":
        refused = Listing(asked.partition.rejections, asked.visible.rejection)
        return _page_answer(asked, refused, lambda one: views.rejection_view(one, asked.shown))
    if state != "active":
        raise _QueryFailed(400, f"unknown state {state!r}, expected active, completed or rejected")
    among = _applications_in(asked) if "queue" in asked.args else asked.partition.applications
    return _list_applications(asked, among, status)


def _list_applications(asked: _Request, among: Mapping[str, Application], status: str = "") -> Answer:
    """Those that have the status, if one is wanted."""

    def wanted(one: Application) -> bool:
        return (not status or one.state.lower() == status) and asked.visible.application(one)

    def show(one: Application) -> View:
        return _application_view(one, asked.shown)

    return _page_answer(asked, Listing(among, wanted, lambda one: 1 + _length(one)), show)


def _application_view(one: Application, shown: views.Shown) -> View:
    """An application with all it has, if that may be listed: that is what takes time."""
    found = _length(one)
    if found > LISTED_MAX:
        text = f"there are {found} asks and allocations, at most {LISTED_MAX} are listed at once: ask for its queue"
        raise _QueryFailed(503, f"{text}, which has the sums")
    return views.application_view(one, shown)


def _length(one: Application) -> int:
    return len(one.requests) + len(one.allocations)


def _application(asked: _Request) -> Answer:
    among = _applications_in(asked) if "queue" in asked.args else asked.partition.applications
    found = among.get(asked.args.get("application", ""))
    if found is None or not asked.visible.application(found):
        raise _QueryFailed(404, "Application not found")
    return _json_answer(_application_view(found, asked.shown))


# Nodes --------------------------------------------------------------------------------------------------------------


def _nodes(asked: _Request) -> Answer:
    nodes = index_by(lambda node: node.node_id, asked.partition.nodes)
    listing = Listing(nodes, weight=lambda node: 1 + len(node.allocations) + len(node.foreign))
    return _page_answer(asked, listing, lambda node: redaction.redact_node(node, asked.visible))


def _node(asked: _Request) -> Answer:
    found = asked.partition.nodes.get(asked.args.get("node", ""))
    if found is None:
        raise _QueryFailed(404, "Node not found")
    return _json_answer(redaction.redact_node(found, asked.visible))


def _utilisation(asked: _Request) -> Answer:
    shown = asked.shown
    return _json_answer(views.utilisation_view(asked.partition.nodes, rm=shown.rm, partition=shown.name))


# Users and groups ---------------------------------------------------------------------------------------------------


def _users(asked: _Request) -> Answer:
    users = index_by(_name, asked.partition.usage.users)
    listing = Listing(users, lambda one: asked.visible.user(one.name))
    return _page_answer(asked, listing, lambda one: redaction.redact_user(one, asked.visible))


def _user(asked: _Request) -> Answer:
    found = asked.partition.usage.users.find(asked.args.get("user", ""))
    if found is None or not asked.visible.user(found.name):
        raise _QueryFailed(404, "User not found")
    return _json_answer(redaction.redact_user(found, asked.visible))


def _groups(asked: _Request) -> Answer:
    groups = index_by(_name, asked.partition.usage.groups)
    listing = Listing(groups, lambda one: asked.visible.group(one.name))
    return _page_answer(asked, listing, lambda one: redaction.redact_group(one, asked.visible))


def _group(asked: _Request) -> Answer:
    found = asked.partition.usage.groups.find(asked.args.get("group", ""))
    if found is None or not asked.visible.group(found.name):
        raise _QueryFailed(404, "Group not found")
    return _json_answer(redaction.redact_group(found, asked.visible))


def _name(tracker: Tracker) -> str:
    return tracker.name


_RIGHTS: Final = {"submit": Right.SUBMIT, "admin": Right.ADMINISTER}

_QUESTIONS: Final[dict[str, Callable[[_Request], Answer]]] = {
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

CACHEABLE: Final = frozenset(_QUESTIONS)
"""Questions whose answers stay the same until something changes."""

REDACTED: Final = CACHEABLE | {"health"}
"""Questions whose answers are made for whoever asks."""
