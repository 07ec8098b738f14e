"""Build the tables of a partition for REST: rows of applications, asks, nodes, queues, users and groups, filtered,
sorted and cut.

Commands and the dashboard show a few hundred of many thousands of objects, so the worker selects: it looks at each
object once, sorts by one column, and makes only the rows of the answer. `common/rest/catalogue.py` has the filters and
the columns, most of them with the attribute that has the value; `redaction.py` decides what a viewer may see. Rows are
filtered and sorted by what the viewer sees, so the order reveals nothing else.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import nlargest, nsmallest
from itertools import chain
from operator import add, attrgetter
from typing import Final, NamedTuple, TypeVar

from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.reasons import Reason
from yunishard.common.resources import NOTHING
from yunishard.common.rest.catalogue import LIVE_STATES, ROWS_MAX, TABLES, SortOrder, TableName, parse_sort
from yunishard.common.rest.columns import Kind
from yunishard.common.rest.views import Cell, TableView
from yunishard.partition_worker.engine.administration import NotDone
from yunishard.partition_worker.engine.allocation import Allocation, AskGroup, Standing
from yunishard.partition_worker.engine.application import Application, AppState
from yunishard.partition_worker.engine.attempt_log import find_latest
from yunishard.partition_worker.engine.durable_records import RejectionRecord
from yunishard.partition_worker.engine.explain.causes import DescribeCause
from yunishard.partition_worker.engine.explain.checks import ReasonFinder
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.queues.queue import NOTHING_PENDING, Queue
from yunishard.partition_worker.engine.user_limits import QueueUsage, Tracker
from yunishard.partition_worker.explanations import make_describer
from yunishard.partition_worker.redaction import Right, Visibility
from yunishard.partition_worker.views import describe_node_state, drop_zeros_saturated

_T = TypeVar("_T")

EXAMINED_MAX: Final = 200_000
"""Objects that one table examines: finding, filtering and sorting them takes a worker up to a fifth of a second, during
which it does not schedule. A table with more is refused: the caller narrows it with a filter.
"""

REASONS_MAX: Final = 30_000
"""Rows that are sorted by why they wait. Each reason or text costs about 10 microseconds, so more are refused."""

PARTIAL_SORT: Final = 8
"""If the table has this many times the rows up to the last one of the answer, only those are sorted."""


@dataclass(frozen=True, slots=True)
class TableRequest:
    """A query for one table."""

    partition: Partition
    name: str
    """The partition's name in the query."""
    args: Mapping[str, str]
    visible: Visibility


def build_table(name: TableName, request: TableRequest) -> TableView:
    """Build a table.

    Raises:
        NotDone: an argument is wrong, or too many objects have to be examined.
    """
    return _BUILDERS[name](request)


Getter = Callable[[_T], Cell]
"""The value of a column: an amount is as the engine has it, and null is what is missing or hidden."""


def _bind(name: TableName, *later: str, **computed: Getter[_T]) -> Mapping[str, Getter[_T]]:
    """Return how the columns of a table are read: by their attributes, or computed. The columns named as `later` depend
    on the request, so the builder of the table adds them.
    """
    getters: dict[str, Getter[_T]] = {one.name: attrgetter(one.source) for one in TABLES[name].columns if one.source}
    names = [*getters, *computed, *later]
    assert sorted(names) == sorted(one.name for one in TABLES[name].columns), f"{name}: not each column has one value"
    return {**getters, **computed}


def _answer(name: TableName, request: TableRequest, found: list[_T], getters: Mapping[str, Getter[_T]]) -> TableView:
    """The rows of an answer, of all that were found in their default order."""
    args, columns = request.args, TABLES[name].columns
    offset = int(args.get("offset", "0"))
    end = offset + min(int(args.get("limit", ROWS_MAX)), ROWS_MAX)
    try:
        order = parse_sort(name, args["sort"]) if args.get("sort") else None
    except ValueError as error:
        raise NotDone(400, str(error)) from None
    scales = _find_scales(request.partition)
    if order is None:
        chosen = found[offset:end]
    else:
        if order.column.name in ("reason", "message"):
            _check_number(len(found), "application, queue or user", REASONS_MAX)
        key = _make_key(getters[order.column.name], order, scales)
        chosen = _sort(found, key, end, is_descending=order.is_descending)[offset:]
    values = [list(map(getters[column.name], chosen)) for column in columns]  # by column
    kinds = dict.fromkeys(scales)
    for place, column in enumerate(columns):
        if column.has_amounts:
            values[place] = [drop_zeros_saturated(one) if isinstance(one, dict) else one for one in values[place]]
        if column.kind is Kind.LIMITS:  # they may name types that the partition does not have
            kinds.update((kind, None) for one in values[place] if isinstance(one, dict) for kind in one)
    rows = list(map(list, zip(*values, strict=True)))
    return TableView(columns=[one.name for one in columns], rows=rows, total=len(found), resources=sorted(kinds))


def _find_scales(partition: Partition) -> Resources:
    """The amount of each resource type that is a share of 1: the cluster has it, or without any, everything that is
    allocated and asked for.
    """
    root, total = partition.tree.root, partition.nodes.total
    scales = {kind: amount for kind, amount in total.items() if amount > 0}
    for amounts in (root.allocated, root.pending):
        for kind, amount in amounts.items():
            if amount > 0 and kind not in total:
                scales[kind] = scales.get(kind, 0) + amount
    return scales


# Order ----------------------------------------------------------------------------------------------------------------

SortValue = str | float | int | bool | None


def _make_key(getter: Getter[_T], order: SortOrder, scales: Resources) -> Callable[[_T], SortValue]:
    """The value that a row is sorted by; null sorts last in both directions."""
    if order.column.link == "queue":
        return lambda one: _make_path_key(str(getter(one)))
    if not order.column.has_amounts:
        return getter  # type: ignore[return-value]  # other columns have single values
    if order.resource:
        kind = order.resource
        return lambda one: amounts.get(kind, 0) if isinstance(amounts := getter(one), dict) else None

    weigh = {kind: 1 / most for kind, most in scales.items()}.get

    def share(one: _T) -> float | None:
        """The largest share of the cluster."""
        amounts = getter(one)
        if not isinstance(amounts, dict):
            return None
        largest = 0.0
        for kind, amount in amounts.items():
            found = amount * weigh(kind, 0.0)
            if found > largest:
                largest = found
        return largest

    return share


def _make_path_key(path: str) -> str:
    """The sort key of a queue, by which a queue comes before those below it, and those before the next one."""
    return path.replace(".", "\0")


def _sort(found: list[_T], key: Callable[[_T], SortValue], end: int, *, is_descending: bool) -> list[_T]:
    """The first rows up to `end` in order. Equal ones stay in their default order."""
    keys = list(map(key, found))
    places: Iterable[int] = range(len(found))
    missing: list[int] = []
    if None in keys:
        missing = [place for place in places if keys[place] is None]
        places = [place for place in places if keys[place] is not None]
    value = keys.__getitem__
    if end * PARTIAL_SORT < len(found):
        choose = nlargest if is_descending else nsmallest
        chosen = choose(end, places, key=value)  # type: ignore[arg-type]  # keys of one column can be compared
    else:
        chosen = sorted(places, key=value, reverse=is_descending)  # type: ignore[arg-type]
    return [found[place] for place in chain(chosen, missing)][:end]


# Filters --------------------------------------------------------------------------------------------------------------


def _check_number(number: int, advice: str, most: int | None = None) -> None:
    most = EXAMINED_MAX if most is None else most
    if number > most:
        raise NotDone(503, f"the table has more than {most} rows to choose from: narrow it with {advice}")


def _make_text_filter(request: TableRequest) -> Callable[[str], bool] | None:
    """Whether a name contains the text; None without this filter."""
    text = request.args.get("text", "").lower()
    return (lambda name: text in name.lower()) if text else None


def _make_queue_filter(request: TableRequest) -> Callable[[str], bool] | None:
    """Whether a path is the queue or, with `subtree`, below it; None without this filter."""
    path = request.args.get("queue", "").lower()
    if not path:
        return None
    if request.args.get("subtree") != "true":
        return lambda one: one == path
    above = f"{path}."
    return lambda one: one == path or one.startswith(above)


def _require_queue(request: TableRequest, found: list[_T]) -> list[_T]:
    """The rows found. If there are none, because no such queue exists or is visible, this is an error: it is likely
    misspelt. Ended applications may be of queues that no longer exist.
    """
    path = request.args.get("queue", "")
    if found or not path:
        return found
    queue = request.partition.tree.find(path)
    if queue is None or not request.visible.shows_queue(queue):
        raise NotDone(404, f"Queue not found: {path}")
    return found


# Applications ---------------------------------------------------------------------------------------------------------

_STATES: Final[Mapping[AppState, str]] = {state: state.lower() for state in AppState}

_APPLICATION: Final[Mapping[str, Getter[Application]]] = _bind(
    "applications",
    "reason",
    state=lambda one: _STATES[one.state],
    groups=lambda one: list(one.user.groups),
    asks=lambda one: len(one.requests),
    allocations=lambda one: len(one.allocations),
    priority=lambda one: None if one.asks.priority is None else one.priority,
    message=lambda _: "",
)

_REJECTION: Final[Mapping[str, Getter[RejectionRecord]]] = {
    "application": lambda one: one.application_id,
    "state": lambda one: _STATES[AppState.REJECTED],
    "queue": lambda one: one.queue_name,
    "user": lambda one: one.user,
    "groups": lambda one: list(one.groups),
    "pending": lambda one: {},
    "asks": lambda one: 0,
    "used": lambda one: {},
    "allocations": lambda one: 0,
    "submitted": lambda one: one.at_ns,
    "started": lambda one: 0,
    "finished": lambda one: one.at_ns,
    "priority": lambda one: None,
    "reason": lambda one: Reason.PLACEMENT_REJECTED,
    "message": lambda one: one.reason,
}


def _make_application_getters(partition: Partition) -> dict[str, Getter[Application]]:
    finder = ReasonFinder(partition, partition.now)

    def find_first_reason(one: Application) -> str:
        """Why the asks wait that are tried first; empty without asks."""
        first = one.asks.first_group
        return "" if first is None else finder.find(one, first)

    return {**_APPLICATION, "reason": find_first_reason}


def _either(accepted: Getter[Application], rejected: Getter[RejectionRecord]) -> Getter[Application | RejectionRecord]:
    return lambda one: accepted(one) if isinstance(one, Application) else rejected(one)


def _build_applications(request: TableRequest) -> TableView:
    state = request.args.get("state", "")
    found: list[Application] = []
    if state in ("", "all", *LIVE_STATES):
        found += _find_live(request)
    if state in ("completed", "failed", "ended", "all"):
        ended = request.partition.ended
        _check_number(len(ended), "state")
        found += _filter_applications(request, ended.values())
    if state not in ("", "all", "ended"):
        found = [one for one in found if _STATES[one.state] == state]
    found.sort(key=lambda one: one.application_id)
    getters = _make_application_getters(request.partition)
    if state not in ("rejected", "ended", "all"):
        return _answer("applications", request, _require_queue(request, found), getters)
    both: list[Application | RejectionRecord] = [*found, *_find_rejections(request)]
    both.sort(key=lambda one: one.application_id)
    _check_number(len(both), "state or queue")
    either = {column: _either(getter, _REJECTION[column]) for column, getter in getters.items()}
    return _answer("applications", request, _require_queue(request, both), either)


def _find_live(request: TableRequest) -> list[Application]:
    """The applications that have not ended and match the filters, but for their state."""
    partition, node_id = request.partition, request.args.get("node", "")
    live: Iterable[Application] = partition.applications.values()
    if node_id:
        node = partition.nodes.get(node_id)
        if node is None:
            raise NotDone(404, f"Node not found: {node_id}")
        names = dict.fromkeys(one.application_id for one in node.allocations.values())
        live = [partition.applications[name] for name in names if name in partition.applications]
    return _filter_applications(request, live)


def _filter_applications(request: TableRequest, those: Iterable[Application]) -> list[Application]:
    """The visible ones that match the filters, but for state and node."""
    visible, user, name = request.visible, request.args.get("user", ""), request.args.get("application", "")
    in_queue, has_text = _make_queue_filter(request), _make_text_filter(request)
    found = [one for one in those if one.user.name == user] if user else list(those)
    if name:
        found = [one for one in found if one.application_id == name]
    if in_queue is not None:
        found = [one for one in found if in_queue(one.queue.path)]
    if has_text is not None:
        found = [one for one in found if has_text(one.application_id)]
    return found if visible.everything else [one for one in found if visible.shows_application(one)]


def _find_rejections(request: TableRequest) -> Iterator[RejectionRecord]:
    """The visible rejections that match the filters. They have no node."""
    visible, user, name = request.visible, request.args.get("user", ""), request.args.get("application", "")
    in_queue, has_text = _make_queue_filter(request), _make_text_filter(request)
    if request.args.get("node"):
        return
    for one in request.partition.rejections.values():
        if (
            (not user or one.user == user)
            and (not name or one.application_id == name)
            and (in_queue is None or in_queue(one.queue_name.lower()))
            and (has_text is None or has_text(one.application_id))
            and visible.shows_of(one.user, one.queue_name)
        ):
            yield one


# Asks -----------------------------------------------------------------------------------------------------------------


class _AskRow(NamedTuple):
    """Equal asks of one application."""

    application: Application
    group: AskGroup
    head: Allocation
    """The first ask."""
    describe: DescribeCause


def _describe_failure(one: _AskRow) -> str:
    """Why the last attempt to place one of the asks failed; empty if none failed."""
    latest = find_latest(one.group.log)
    return latest if isinstance(latest, str) else one.describe(one.group, latest).text


_STANDINGS: Final[Mapping[Standing, str]] = {
    Standing.OPEN: "pending",
    Standing.RESERVED: "reserved",
    Standing.HELD: "held",
}

_ASK: Final[Mapping[str, Getter[_AskRow]]] = _bind(
    "asks",
    "reason",
    state=lambda one: _STANDINGS[one.group.standing],
    count=lambda one: len(one.group),
    message=_describe_failure,
)


def _build_asks(request: TableRequest) -> TableView:
    """In the order of applications, and of their asks."""
    args, partition = request.args, request.partition
    name, key_filter = args.get("application", ""), _make_text_filter(request)
    if name:
        only = partition.applications.get(name)
        if only is None or not request.visible.shows_application(only):
            raise NotDone(404, f"Application not found: {name}")
    of = (partition.applications[name],) if name else partition.applications.values()
    narrowed = _drop_text(request)
    applications = [one for one in _filter_applications(narrowed, of) if one.requests]
    applications.sort(key=lambda one: one.application_id)
    _check_number(sum(len(one.asks.groups_by_key) for one in applications), "application or queue")
    describe = make_describer(partition, request.visible)
    found = [_AskRow(one, group, group.head, describe) for one in applications for group in one.asks.groups]
    if key_filter is not None:
        found = [one for one in found if key_filter(one.head.key)]
    finder = ReasonFinder(partition, partition.now)
    getters = {**_ASK, "reason": lambda one: finder.find(one.application, one.group)}
    return _answer("asks", request, _require_queue(request, found), getters)


def _drop_text(request: TableRequest) -> TableRequest:
    """The request without its filter `text`, which is about other names."""
    args = {name: value for name, value in request.args.items() if name != "text"}
    return TableRequest(request.partition, request.name, args, request.visible)


# Nodes ----------------------------------------------------------------------------------------------------------------


def _utilization(used: Resources, limit: Resources, more: Resources = NOTHING) -> float:
    """The largest percentage of any resource type that both amounts use, with one decimal; 0 without a limit."""
    largest = 0.0
    for kind, most in limit.items():
        amount = used.get(kind, 0) + more.get(kind, 0)
        if amount > largest * most:
            largest = amount / most if most > 0 else max(largest, 1.0)
    return round(100 * largest, 1)


_NODE: Final[Mapping[str, Getter[Node]]] = _bind(
    "nodes",
    "partition",
    state=describe_node_state,
    host=lambda one: one.attribute("hostname"),
    rack=lambda one: one.attribute("rackname"),
    instanceType=lambda one: one.attributes.get("si/instance-type", ""),
    allocations=lambda one: len(one.allocations),
    reserved=lambda one: bool(one.reservations),
    utilization=lambda one: _utilization(one.allocated, one.capacity, one.occupied),
)


def _build_nodes(request: TableRequest) -> TableView:
    """In the order of their IDs. Names and totals of nodes are visible to every viewer."""
    state, name, has_text = request.args.get("state", ""), request.args.get("node", ""), _make_text_filter(request)
    attribute, _, value = request.args.get("attribute", "").partition("=")
    only = request.partition.nodes.get(name)
    if name and only is None:
        raise NotDone(404, f"Node not found: {name}")
    found = list(request.partition.nodes) if only is None else [only]
    if state == "reserved":
        found = [one for one in found if one.reservations]
    elif state:
        found = [one for one in found if _NODE["state"](one) == state]
    if attribute:
        found = [one for one in found if one.attributes.get(attribute) == value]
    if has_text is not None:
        found = [one for one in found if has_text(one.node_id)]
    found.sort(key=lambda one: one.node_id)
    return _answer("nodes", request, found, {**_NODE, "partition": lambda _: request.name})


# Queues ---------------------------------------------------------------------------------------------------------------

_QUEUE: Final[Mapping[str, Getter[Queue]]] = _bind(
    "queues",
    "applications",
    "lastAllocation",
    state=lambda one: one.status.lower(),
    maxApplications=lambda one: one.max_applications or None,
    headroom=lambda one: one.compute_headroom(),
    priority=lambda one: None if one.priority == NOTHING_PENDING else one.priority,
)


def _build_queues(request: TableRequest) -> TableView:
    """Each queue before those below it."""
    visible, state = request.visible, request.args.get("state", "")
    in_queue, has_text = _make_queue_filter(request), _make_text_filter(request)
    found = visible.list_queues()
    if in_queue is not None:
        found = [one for one in found if in_queue(one.path)]
    if has_text is not None:
        found = [one for one in found if has_text(one.path)]
    if state:
        found = [one for one in found if one.status.lower() == state]
    if request.args.get("waiting") == "true":
        found = [one for one in found if visible.find_right(one) is not Right.NOTHING and any(one.pending_sum)]
    found.sort(key=lambda one: _make_path_key(one.path))
    getters: dict[str, Getter[Queue]] = {
        **_QUEUE,
        "applications": _sum_up(request.partition, lambda one: len(one.applications), add).__getitem__,
        "lastAllocation": _sum_up(request.partition, lambda one: one.last_bound_ns, max).__getitem__,
    }
    if not visible.everything:
        for column in TABLES["queues"].columns:
            if not column.is_public:
                getters[column.name] = _hide(getters[column.name], visible)
    return _answer("queues", request, _require_queue(request, found), getters)


def _hide(getter: Getter[Queue], visible: Visibility) -> Getter[Queue]:
    """Null for a queue in which the viewer has no right."""
    return lambda one: None if visible.find_right(one) is Right.NOTHING else getter(one)


def _sum_up(partition: Partition, read: Callable[[Queue], int], combine: Callable[[int, int], int]) -> dict[Queue, int]:
    """Return a number of each queue, combined with those of all queues below it."""
    found: dict[Queue, int] = {}
    for queue in reversed(tuple(partition.tree)):  # parents after their children
        number = found[queue] = combine(found.get(queue, 0), read(queue))
        if queue.parent is not None:
            found[queue.parent] = combine(found.get(queue.parent, 0), number)
    return found


# Users and groups -----------------------------------------------------------------------------------------------------


class _UsageRow(NamedTuple):
    """The usage of a user or group in one queue and below."""

    name: str
    usage: QueueUsage

    @property
    def maximum(self) -> Resources | None:
        allowance = self.usage.allowance
        return allowance.resources or None if allowance else None

    @property
    def max_applications(self) -> int | None:
        allowance = self.usage.allowance
        return allowance.applications or None if allowance else None

    @property
    def utilization(self) -> float | None:
        """The percentage of the limit that is used, of resources or running applications; null without a limit."""
        if self.maximum is None and self.max_applications is None:
            return None
        running, most = len(self.usage.applications), self.max_applications
        of_applications = round(100 * running / most, 1) if most else 0.0
        return max(_utilization(self.usage.used, self.maximum or {}), of_applications)


_USAGE: Final[Mapping[TableName, Mapping[str, Getter[_UsageRow]]]] = {
    name: _bind(name, runningApplications=lambda one: len(one.usage.applications)) for name in ("users", "groups")
}


def _build_users(request: TableRequest) -> TableView:
    trackers, shows = request.partition.usage.users.by_name, request.visible.shows_user
    return _build_usage("users", request, [one for one in trackers.values() if shows(one.name)])


def _build_groups(request: TableRequest) -> TableView:
    trackers, shows = request.partition.usage.groups.by_name, request.visible.shows_group
    return _build_usage("groups", request, [one for one in trackers.values() if shows(one.name)])


def _build_usage(name: TableName, request: TableRequest, trackers: list[Tracker]) -> TableView:
    """In the order of names, for each name each queue before those below it."""
    in_queue, has_text = _make_queue_filter(request), _make_text_filter(request)
    limited = request.args.get("limited") == "true"
    if has_text is not None:
        trackers = [one for one in trackers if has_text(one.name)]
    _check_number(sum(len(one.levels) for one in trackers), "text")
    found = []
    for tracker in sorted(trackers, key=lambda one: one.name):
        levels = list(request.visible.list_usage(tracker))
        if in_queue is not None:
            levels = [one for one in levels if in_queue(one.path)]
        if limited:
            levels = [one for one in levels if one.allowance is not None]
        levels.sort(key=lambda one: _make_path_key(one.path))
        found += [_UsageRow(tracker.name, one) for one in levels]
    return _answer(name, request, _require_queue(request, found), _USAGE[name])


_BUILDERS: Final[Mapping[TableName, Callable[[TableRequest], TableView]]] = {
    "applications": _build_applications,
    "asks": _build_asks,
    "nodes": _build_nodes,
    "queues": _build_queues,
    "users": _build_users,
    "groups": _build_groups,
}
