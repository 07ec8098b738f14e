"""Answer read-only queries about a partition: dispatch by query name, pagination, and answer versions.

Each query gets a view (`views.py`), redacted for the viewer (`redaction.py`), or events (`events.py`) or metrics
(`metrics.py`). Queries change nothing.

A page holds entries in the order of their keys, beginning after one key. Entries may be added and removed between two
pages: each entry that exists all the time is on exactly one page. A page that would take long to compute ends early; a
complete list that would is refused.

The RM's state dump is requested when a query asks for it:

    Query(what="rm-state") --StateDumpAsked--> waits --StateDumpAnswered, or STATE_DUMP_MAX_S--> Answer

This changes nothing in the partition, so the journal has no record of it: if the worker ends, the broker answers the
queries. Requests have numbers of their own, and an answer without a waiting query is ignored.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Final, Literal, TypeVar

from msgspec import DecodeError, Raw
from msgspec.json import decode, encode
from msgspec.structs import replace

from yunishard.common.messages import query_messages, rm_messages
from yunishard.common.messages.query_messages import NOT_MODIFIED, TOO_LONG, Answer, ProcessHealth, Query
from yunishard.common.messages.reasons import Reason
from yunishard.common.messages.wire import (
    BODY_BYTES_MAX,
    NEVER,
    Incoming,
    Outgoing,
    WireError,
    decode_body,
    encode_body,
)
from yunishard.common.rest.catalogue import TABLE_NAMES, TableName
from yunishard.common.rest.views import View, encode_view
from yunishard.common.text_formats import UnsignedError
from yunishard.partition_worker import event_ring_buffer, explanations, placement_views, redaction, tables, views
from yunishard.partition_worker.engine.administration import NotDone
from yunishard.partition_worker.engine.application import Application
from yunishard.partition_worker.engine.explain.causes import DescribeCause
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.user_limits import Tracker
from yunishard.partition_worker.partition_host import PartitionHost
from yunishard.partition_worker.redaction import Right, Visibility

_T = TypeVar("_T")

OK: Final = 200

ANSWER_BYTES_MAX: Final = BODY_BYTES_MAX - 1024
"""Upper limit of the document in an answer, so that the message stays within its own."""


LARGE_MIN: Final = 1_000
"""Asks and allocations of applications from which on an answer takes several turns; each encodes so many, in about 3
ms.
"""


_MARK: Final = b"the document"
_MARKED: Final = encode_body(Answer(status=OK, body=_MARK)).partition(_MARK)[0][-2:] + _MARK
"""The encoded mark with its length; in place of it the message has the document, with a length of four bytes."""


class LargeAnswer:
    """An answer that is encoded in several turns. It has what each application had when its own turn began.

    The message grows in place: to copy a document of 64 MiB into it at the end would take 80 ms.
    """

    def __init__(self, pieces: Iterator[tuple[bytes, int]], more: str) -> None:
        self._pieces = pieces
        self._more = more
        self._message = bytearray(encode_body(Answer(status=OK, body=_MARK)).partition(_MARKED)[0]) + b"\xc6" + bytes(4)
        self._begin = len(self._message)
        """Where the document begins."""

    @property
    def size(self) -> int:
        """Bytes of the document so far."""
        return len(self._message) - self._begin

    def advance(self) -> bool:
        """Encode the next part; return whether that was the last one, or the document is too large."""
        cost = 0
        for piece, part in self._pieces:
            self._message += piece
            cost += part
            if self.size > ANSWER_BYTES_MAX:
                return True
            if cost >= LARGE_MIN:
                return False
        return True

    def finish(self, host: PartitionHost, ref: str, head: Answer) -> Outgoing:
        """Return the complete message, with the version and the duration of `head`."""
        if self.size > ANSWER_BYTES_MAX:
            return host.make_reply(replace(head, status=503, body=_refuse_size(self.size), version=""), ref=ref)
        size = self.size.to_bytes(4, "big")
        reply = host.make_reply(replace(head, body=_MARK, next=self._more), ref=ref)
        before, _, after = reply.body.partition(_MARKED)
        self._message[: self._begin] = before + b"\xc6" + size
        self._message += after
        return replace(reply, body=self._message)


def answer_query(
    host: PartitionHost,
    query: Query,
    now: float,
    *,
    journal_problem: str = "",
    stalls: Sequence[Reason] = (),
    report_health: Callable[[], ProcessHealth] = ProcessHealth,
    encode_metrics: Callable[[Partition], bytes],
    large: list[LargeAnswer] | None = None,
) -> Answer:
    """Answer a query. `journal_problem` is the reason while nothing becomes durable; `stalls` are the reasons why
    nothing is decided now; `report_health` returns the problems of the process. If `large` is a list, a large answer is
    appended to it, and what is returned is only its status and its version.
    """
    partition = host.partition
    if partition is None:
        return Answer(status=503, body=b"the partition is starting")
    if query.what not in REDACTED and not Visibility(partition, query.viewer).everything:
        return Answer(status=403, body=f"who may not see everything may not ask for {query.what}".encode())
    version = _version(host, query)
    if version and query.known == version:
        return Answer(status=NOT_MODIFIED, body=b"", version=version)
    ring, rm, poison = host.events, host.channel.rm, host.recent_poison(now)
    try:
        match query.what:
            case "events":
                found = event_ring_buffer.answer_events(ring, host.extra, query.args, bytes_max=ANSWER_BYTES_MAX)
            case query_messages.EVENT_LINES:
                found = event_ring_buffer.answer_event_lines(ring, host.extra, query.args, bytes_max=ANSWER_BYTES_MAX)
            case "account":
                found = event_ring_buffer.answer_account(partition, ring, query.args)
            case "metrics":
                found = Answer(status=OK, body=encode_metrics(partition))
            case "health":
                found = answer_health(partition, now, journal_problem, poison, report_health())
            case _ if query.what in explanations.QUERIES:
                found = explanations.answer_explanation(partition, query, now, stalls)
            case _:
                found = answer_partition_query(partition, rm, query, large)
    except UnsignedError as error:
        return Answer(status=400, body=str(error).encode(errors="replace"))
    if len(found.body) > ANSWER_BYTES_MAX:
        return Answer(status=503, body=_refuse_size(len(found.body)))
    return replace(found, version=version if found.status in (OK, TOO_LONG) else "")


def _refuse_size(size: int) -> bytes:
    text = f"the answer has {size} bytes, at most {ANSWER_BYTES_MAX} can be sent: ask for a part of it"
    return f"{text}, a list with limit".encode()


def _version(host: PartitionHost, query: Query) -> str:
    """Identify the state and the query that an answer depends on; empty if the answer also depends on the time.

    It contains the time of the last change, as each process counts its changes from 0.
    """
    if query.what not in CACHEABLE:
        return ""
    who = query.viewer
    key = (query.what, query.name, sorted(query.args.items()), who and (who.user, who.groups, who.scheduler_admin))
    digest = blake2b(repr(key).encode(), digest_size=8).hexdigest()
    return f"{host.epoch:x}-{host.changes:x}-{int(host.changed_at * 1e6):x}-{digest}"


# Pagination -----------------------------------------------------------------------------------------------------------

WEIGHT_MAX: Final = 10_000
"""Upper limit of objects in one answer with several entries, including asks and allocations in the entries. Encoding
them takes a tenth of a second, during which the worker does not schedule.
"""


def select_page(
    entries: Mapping[str, _T],
    args: Mapping[str, str],
    *,
    shows: Callable[[_T], bool] = lambda _: True,
    weigh: Callable[[_T], int] = lambda _: 1,
) -> tuple[list[_T], str]:
    """Return the visible entries of a page, and the key to continue after; the key is empty if there are no more.

    `entries` are by key. The arguments of the query are `limit` (default: all entries) and `after` (the last key of the
    page before). `weigh` counts the objects in an entry. No more entries are read than the page needs.

    Raises:
        NotDone: all entries are wanted, and these are too many.
    """
    if "limit" not in args:
        everything = {key: entry for key, entry in entries.items() if shows(entry)}
        if len(everything) > 1 and sum(map(weigh, everything.values())) > WEIGHT_MAX:
            text = (
                f"the list has more than {WEIGHT_MAX} entries, asks and allocations, so many are listed at once at most"
            )
            raise NotDone(TOO_LONG, f"{text}: ask for pages of it with limit")
        return [everything[key] for key in sorted(everything)], ""
    limit, after = int(args["limit"]), args.get("after", "")
    found: list[_T] = []
    last, weight = "", 0
    for key in sorted(key for key in entries if key > after):
        entry = entries[key]
        if not shows(entry):
            continue
        weight += weigh(entry)
        if len(found) == limit or (found and weight > WEIGHT_MAX):
            return found, last
        found.append(entry)
        last = key
    return found, ""


# Queries about the partition ------------------------------------------------------------------------------------------

LISTED_MAX: Final = 200_000
"""Upper limit of asks and allocations of one application in an answer. Encoding them takes half a second, in 200 turns;
the caller is referred to the sums of the queue.
"""


@dataclass(frozen=True, slots=True)
class _Request:
    """A query about a partition, and what its viewer may see."""

    partition: Partition
    rm: str
    name: str
    """The partition's name in the query, which its views have."""
    args: Mapping[str, str]
    visible: Visibility
    large: list[LargeAnswer] | None = None
    """Gets the answer if it is large and may take several turns."""


def answer_health(
    partition: Partition, now: float, journal_problem: str, poison: str, process: ProcessHealth
) -> Answer:
    """Answer the query `health`; `poison` is the reason of a recently quarantined message."""
    health = replace(
        partition.auditor.health,
        rm_errors=partition.counters.errors.count_recent(now),
        syncing=partition.report is not None,
        journal_problem=journal_problem,
        poison=poison,
        process=process,
    )
    return Answer(status=OK, body=encode(health))


def answer_partition_query(
    partition: Partition, rm: str, query: Query, large: list[LargeAnswer] | None = None
) -> Answer:
    """Answer a query: status 200 and a JSON document, or an error status and a text; `large` as for `answer_query`."""
    if query.what == "health":
        return answer_health(partition, partition.now, "", "", ProcessHealth())
    answer = _QUERIES.get(query.what)
    if answer is None:
        return Answer(status=400, body=f"unknown question {query.what!r}".encode())
    visible = Visibility(partition, query.viewer)
    try:
        return answer(_Request(partition, rm, query.name, query.args, visible, large))
    except NotDone as error:
        return Answer(status=error.status, body=str(error).encode())


def _encode(view: View | Sequence[View], more: str = "") -> Answer:
    return Answer(status=200, body=encode_view(view), next=more)


def _encode_page(
    request: _Request,
    entries: Mapping[str, _T],
    render: Callable[[_T], View],
    shows: Callable[[_T], bool] = lambda _: True,
    weigh: Callable[[_T], int] = lambda _: 1,
) -> Answer:
    found, more = select_page(entries, request.args, shows=shows, weigh=weigh)
    return _encode([render(one) for one in found], more)


def _answer_preemptions(request: _Request) -> Answer:
    entries = views.index_preemptions(redaction.redact_preemptions(request.partition, request.visible))
    return _encode_page(request, entries, views.build_preemption_view)


def _answer_visible(request: _Request) -> Answer:
    """The highest queues in which the viewer has each right; the web service filters stored histories by them."""
    rights = {"submit": Right.SUBMIT, "admin": Right.ADMINISTER}
    highest = {name: sorted(request.visible.find_highest(right)) for name, right in rights.items()}
    return Answer(status=200, body=encode(highest))


# Queues and applications --------------------------------------------------------------------------------------------


def _find_queue(request: _Request) -> Queue:
    found = request.partition.tree.find(request.args.get("queue", ""))
    if found is None or not request.visible.shows_queue(found):
        raise NotDone(404, "Queue not found")
    return found


def _find_applications(request: _Request) -> Mapping[str, Application]:
    """The running applications of the queue that the query names, or of the partition."""
    alive = request.partition.applications
    return {name: alive[name] for name in _find_queue(request).applications} if "queue" in request.args else alive


def _answer_applications(request: _Request) -> Answer:
    state = request.args.get("state")
    if state == "completed":
        return _list_applications(request, request.partition.ended)
    if state == "active":
        return _list_applications(request, _find_applications(request), request.args.get("status", ""))
    if state != "rejected":
        raise NotDone(400, f"unknown state {state!r}, expected active, completed or rejected")
    return _encode_page(
        request,
        request.partition.rejections,
        lambda one: views.build_rejection_view(one, request.name),
        lambda one: request.visible.shows_of(one.user, one.queue_name),
    )


def _list_applications(request: _Request, among: Mapping[str, Application], status: str = "") -> Answer:
    """List applications; with a status, only those that have it."""

    def shows(one: Application) -> bool:
        return (not status or one.state.lower() == status) and request.visible.shows_application(one)

    found, more = select_page(among, request.args, shows=shows, weigh=lambda one: 1 + _count_listed(one))
    return _encode_applications(found, request, more, is_list=True)


def _count_listed(one: Application) -> int:
    return len(one.requests) + len(one.allocations)


def _encode_applications(found: list[Application], request: _Request, more: str = "", *, is_list: bool) -> Answer:
    """Encode applications at once, or in several turns if they have many asks and allocations."""
    counts = [_count_listed(one) for one in found]
    if any(count > LISTED_MAX for count in counts):
        text = (
            f"there are {max(counts)} asks and allocations, at most {LISTED_MAX} are listed at once: ask for its queue"
        )
        raise NotDone(503, f"{text}, which has the sums")
    describe = explanations.make_describer(request.partition, request.visible)
    if request.large is not None and sum(counts) >= LARGE_MIN:
        pieces = _encode_in_pieces(found, request.name, describe, is_list=is_list)
        request.large.append(LargeAnswer(pieces, more))
        return Answer(status=OK, body=b"")
    built = [views.build_application_view(one, request.name, describe) for one in found]
    return _encode(built, more) if is_list else _encode(built[0])


def _encode_in_pieces(
    found: list[Application], name: str, describe: DescribeCause, *, is_list: bool
) -> Iterator[tuple[bytes, int]]:
    for number, one in enumerate(found):
        if is_list:
            yield (b"," if number else b"["), 0
        yield from views.encode_application(one, name, describe)
    yield (b"]\n" if is_list else b"\n"), 0


def _answer_application(request: _Request) -> Answer:
    found = _find_applications(request).get(request.args.get("application", ""))
    if found is None or not request.visible.shows_application(found):
        raise NotDone(404, "Application not found")
    return _encode_applications([found], request, is_list=False)


# Nodes, users and groups --------------------------------------------------------------------------------------------


def _answer_nodes(request: _Request) -> Answer:
    return _encode_page(
        request,
        {node.node_id: node for node in request.partition.nodes},
        lambda node: redaction.redact_node(node, request.visible),
        weigh=lambda node: 1 + len(node.allocations) + len(node.foreign),
    )


def _answer_node(request: _Request) -> Answer:
    found = request.partition.nodes.get(request.args.get("node", ""))
    if found is None:
        raise NotDone(404, "Node not found")
    return _encode(redaction.redact_node(found, request.visible))


def _answer_usage(request: _Request, what: Literal["user", "group"], *, is_list: bool) -> Answer:
    """The usage of all users or groups, or of the one that the query names."""
    usage, visible = request.partition.usage, request.visible
    trackers, shows = (usage.users, visible.shows_user) if what == "user" else (usage.groups, visible.shows_group)

    def render(tracker: Tracker) -> View:
        redact = redaction.redact_user if what == "user" else redaction.redact_group
        return redact(tracker, visible)

    if is_list:
        return _encode_page(request, trackers.by_name, render, lambda one: shows(one.name))
    found = trackers.by_name.get(request.args.get(what, ""))
    if found is None or not shows(found.name):
        raise NotDone(404, f"{what.capitalize()} not found")
    return _encode(render(found))


def _answer_table(request: _Request, name: TableName) -> Answer:
    wanted = tables.TableRequest(request.partition, request.name, request.args, request.visible)
    return _encode(tables.build_table(name, wanted))


_QUERIES: Final[dict[str, Callable[[_Request], Answer]]] = {
    "partition": lambda request: _encode(views.build_partition_view(request.partition, request.rm, request.name)),
    "queues": lambda request: _encode(
        redaction.redact_queue(request.partition.tree.root, request.visible, subtree=True, partition=request.name)
    ),
    "queue": lambda request: _encode(
        redaction.redact_queue(_find_queue(request), request.visible, subtree="subtree" in request.args, partition="")
    ),
    "queue-applications": lambda request: _list_applications(request, _find_applications(request)),
    "applications": _answer_applications,
    "application": _answer_application,
    "nodes": _answer_nodes,
    "node": _answer_node,
    "utilisation": lambda request: _encode(
        views.build_utilisation_view(request.partition.nodes, request.rm, request.name)
    ),
    "users": lambda request: _answer_usage(request, "user", is_list=True),
    "user": lambda request: _answer_usage(request, "user", is_list=False),
    "groups": lambda request: _answer_usage(request, "group", is_list=True),
    "group": lambda request: _answer_usage(request, "group", is_list=False),
    "rules": lambda request: _encode(request.partition.placement.describe()),
    "preemptions": _answer_preemptions,
    "visible": _answer_visible,
    **{f"table-{name}": partial(_answer_table, name=name) for name in TABLE_NAMES},
    "placement": lambda request: _encode(
        placement_views.answer_placement(request.partition, request.args, request.visible)
    ),
}

CACHEABLE: Final = frozenset(_QUERIES) - {"placement"}
"""Queries whose answers stay the same until something changes. That of a placement also depends on the age of cached
groups.
"""

REDACTED: Final = frozenset(_QUERIES) | explanations.QUERIES.keys() | {"health"}
"""Queries whose answers are redacted for their viewer."""


# State dumps ----------------------------------------------------------------------------------------------------------

STATE_DUMP_MAX_S: Final = 2.0
"""Seconds after which the RM's answer is no longer awaited."""

STATE_DUMPS_MAX: Final = 8
"""Queries that wait for the RM at once; the next one fails."""


class StateDumpRequests:
    """The queries that wait for the RM's state dump."""

    def __init__(self) -> None:
        self._last = 0
        """The number of the latest request."""
        self._waiting: dict[int, tuple[float, str]] = {}
        """By number of the request: its deadline and the `ref` of the query, oldest first."""
        self.deadline = NEVER
        """The time at which the oldest query fails."""

    def request(self, host: PartitionHost, ref: str, now: float, *, obstacle: str) -> Outgoing:
        """Return the request to the RM; or the answer at once, if the RM has no such capability, there is an
        `obstacle`, or too many queries wait.
        """
        if rm_messages.STATE_DUMP not in host.session.capabilities:  # YuniKorn's text
            text = encode({"empty": "Resource Manager did not register callback"})
            return host.make_reply(Answer(status=OK, body=text), ref=ref)
        if not obstacle and len(self._waiting) >= STATE_DUMPS_MAX:
            obstacle = f"{STATE_DUMPS_MAX} others wait for the resource manager's answer already"
        if obstacle:
            return host.make_reply(Answer(status=OK, body=encode({"Error": obstacle})), ref=ref)
        self._last += 1
        self._waiting[self._last] = (now + STATE_DUMP_MAX_S, ref)
        self.deadline = min(self.deadline, now + STATE_DUMP_MAX_S)
        milli_seconds = int(STATE_DUMP_MAX_S * 1000)
        return host.channel.send_unnumbered(
            rm_messages.StateDumpAsked(question=self._last, deadline_milli_seconds=milli_seconds)
        )

    def handle_answer(self, host: PartitionHost, incoming: Incoming) -> list[Outgoing]:
        """Answer the query that waits for this answer of the RM."""
        header, channel = incoming.header, host.channel
        if header.life != channel.life or not channel.accept(header):
            return []
        try:
            answered = decode_body(rm_messages.StateDumpAnswered, incoming.body)
        except WireError as error:
            return [channel.refuse(header, "malformed", str(error))]
        if answered.question not in self._waiting:
            return []
        text, problem = answered.text.encode(), answered.problem
        if not problem and len(text) > rm_messages.STATE_DUMP_BYTES_MAX:
            most = rm_messages.STATE_DUMP_BYTES_MAX
            problem = f"the resource manager's answer has {len(text)} bytes, at most {most} are taken"
        if not problem:
            try:
                decode(text, type=dict[str, Raw])
            except (DecodeError, RecursionError) as error:
                problem = f"the resource manager's answer is no JSON object: {error}"
        return [self._answer(host, answered.question, encode({"Error": problem}) if problem else text)]

    def expire(self, host: PartitionHost, now: float) -> list[Outgoing]:
        """Answer the queries that have waited too long."""
        late = [number for number, (deadline, _) in self._waiting.items() if deadline <= now]
        error = encode({"Error": f"the resource manager did not answer within {STATE_DUMP_MAX_S:g} s"})
        return [self._answer(host, number, error) for number in late]

    def _answer(self, host: PartitionHost, number: int, document: bytes) -> Outgoing:
        _, ref = self._waiting.pop(number)
        self.deadline = min((deadline for deadline, _ in self._waiting.values()), default=NEVER)
        return host.make_reply(Answer(status=OK, body=document), ref=ref)
