"""The catalogue of a partition, declared once. Each table has its columns, filters and orders here.

From it follow the rows of the worker (`partition_worker/tables.py`), the routes with their parameters and the OpenAPI
document (`yunishard/webservice/table_routes.py`), the lists of the commands with their options, `yunishard top`, the
tables and detail pages of the dashboard, which requests it as JSON, and the reference in the documentation. A new
column is a `Column` here, and a function in the worker if no attribute has its value.

Commands and the dashboard read rows by the names of the columns, so a new column may be added anywhere.
"""

from collections.abc import Mapping
from itertools import chain
from typing import Final, Literal, NamedTuple, get_args

from yunishard.common.rest.columns import FLAG, Action, Argument, Bars, Column, Filter, Kind, Table, View

TableName = Literal["applications", "asks", "nodes", "queues", "users", "groups"]

TABLE_NAMES: Final[tuple[TableName, ...]] = get_args(TableName)

ROWS_MAX: Final = 10_000
"""Rows of one answer, also without the parameter `limit`. Making them takes a worker about a tenth of a second, during
which it does not schedule; the next rows are requested with `offset`.
"""

OFFSET_MAX: Final = 100_000_000
"""The largest `offset`; there are not so many rows."""


_LIST, _DETAIL, _BOARD = View.LIST, View.DETAIL, View.BOARD
_TOP, _TOP_WIDE = View.TOP, View.TOP_WIDE
_EVERYWHERE: Final = _LIST | _TOP | _BOARD | _DETAIL

REASON: Final = Argument("reason", "Why, for other operators; part of events and of the state.", "Reason")

# Filters of several tables --------------------------------------------------------------------------------------------

_IN_QUEUE: Final = (
    Filter("queue", "Only in this queue.", "Queue"),
    Filter("subtree", "`true`: also in all queues below `queue`.", choices=FLAG),
)
_OF_USER: Final = Filter("user", "Only of this user.", "User")


def _has_text(what: str) -> Filter:
    return Filter("text", f"Only {what} that contain this text; case does not matter.", "Name")


# Queues ---------------------------------------------------------------------------------------------------------------

QUEUES: Final = Table(
    key="queue",
    noun="queue",
    summary="The queues, one row for each",
    columns=(
        Column("queue", Kind.TEXT, "Full path.", "path", _EVERYWHERE, link="queue", is_public=True),
        Column("state", Kind.STATE, "Active, stopped or draining.", views=_EVERYWHERE, is_public=True),
        Column("leaf", Kind.FLAG, "Whether applications may be in it.", "leaf", is_public=True),
        Column("managed", Kind.FLAG, "Whether the configuration defines it.", "managed", is_public=True),
        Column(
            "used", Kind.AMOUNTS, "The amounts that allocations in it and below it use.", "allocated", _LIST | _DETAIL
        ),
        Column(
            "guaranteed",
            Kind.LIMITS,
            "The amounts that other queues cannot keep from it for long.",
            "guaranteed",
            _LIST | _TOP_WIDE | _DETAIL,
        ),
        Column("maximum", Kind.LIMITS, "The amounts that it may use at most.", "maximum", _LIST | _DETAIL),
        Column(
            "pending",
            Kind.AMOUNTS,
            "The amounts that asks in it and below it wait for.",
            "pending",
            _LIST | _TOP | _DETAIL,
        ),
        Column("headroom", Kind.LIMITS, "The amounts that may still be placed in it.", views=_DETAIL),
        Column(
            "runningApplications",
            Kind.NUMBER,
            "Applications that run in it and below it.",
            "running",
            _EVERYWHERE,
            heading="running",
            of="maxApplications",
        ),
        Column("maxApplications", Kind.NUMBER, "The number that may run; null is unlimited.", heading="max apps"),
        Column(
            "applications",
            Kind.NUMBER,
            "Applications in it and below it that have not ended.",
            views=_DETAIL,
            heading="apps",
        ),
        Column("priority", Kind.NUMBER, "The highest priority of its asks, as its parent sees it; null without asks."),
        Column(
            "lastAllocation",
            Kind.TIME,
            "The start of the latest allocation in it and below it; after a recovery, of the latest that still runs.",
            views=_TOP_WIDE | _BOARD | _DETAIL,
            heading="last alloc",
        ),
    ),
    filters=(
        _has_text("paths"),
        Filter("state", "Only in this state.", "State", ("active", "stopped", "draining")),
        Filter("waiting", "`true`: only queues where asks wait, or below which they do.", "Waiting", FLAG),
        Filter("queue", "Only this queue."),
        _IN_QUEUE[1],
    ),
    sorts=("queue", "-used", "-pending", "-runningApplications"),
    argument="queue",
    bars=Bars(("used",), "maximum", "guaranteed", "pending"),
    is_tree=True,
    actions=(
        Action(
            "stop",
            "Stop the queue",
            "stop a queue and those below it: no new applications, and nothing new for those in it",
            "Its allocations run on. Restarts and other configurations leave it stopped, until it is started.",
            (REASON,),
            is_for_admins=False,
            is_dangerous=True,
            states=("active", "draining"),
        ),
        Action(
            "start",
            "Start the queue",
            "start a queue that was stopped",
            "Applications in it and below it are scheduled again, unless a queue above it is stopped.",
            is_for_admins=False,
            states=("stopped", "draining"),
        ),
    ),
)

# Applications and asks ------------------------------------------------------------------------------------------------

LIVE_STATES: Final = ("new", "accepted", "starting", "running", "resuming", "completing", "failing")
"""States of applications that have not ended."""

APPLICATIONS: Final = Table(
    key="application",
    noun="application",
    summary="The applications, one row for each",
    columns=(
        Column("application", Kind.TEXT, "Its ID.", "application_id", _EVERYWHERE, link="application"),
        Column("state", Kind.STATE, "Its state.", views=_EVERYWHERE),
        Column("queue", Kind.TEXT, "Its leaf queue.", "queue.path", _EVERYWHERE, link="queue"),
        Column(
            "user",
            Kind.TEXT,
            "The user that submitted it.",
            "user.name",
            _LIST | _TOP_WIDE | _BOARD | _DETAIL,
            link="user",
        ),
        Column("groups", Kind.TEXTS, "The groups of its user.", views=_DETAIL, is_sortable=False),
        Column("pending", Kind.AMOUNTS, "The amounts that its asks wait for.", "pending", _EVERYWHERE),
        Column("asks", Kind.NUMBER, "Its pending asks.", views=_LIST | _TOP_WIDE | _BOARD | _DETAIL),
        Column(
            "used", Kind.AMOUNTS, "The amounts that its allocations use, with placeholders.", "charged", _EVERYWHERE
        ),
        Column("allocations", Kind.NUMBER, "Its allocations.", views=_LIST | _BOARD | _DETAIL, heading="allocs"),
        Column(
            "submitted", Kind.TIME, "The time of its submission.", "submitted_ns", _LIST | _TOP_WIDE | _BOARD | _DETAIL
        ),
        Column("started", Kind.TIME, "The time when it last began to run.", "started_ns", _DETAIL),
        Column("finished", Kind.TIME, "The time when it ended.", "finished_ns", _DETAIL),
        Column("priority", Kind.NUMBER, "The highest priority of its asks; null without asks."),
        Column(
            "reason",
            Kind.CODE,
            "The reason why the asks wait that are tried first; empty without asks.",
            views=_LIST | _TOP_WIDE | _BOARD,
        ),
        Column("message", Kind.TEXT, "The reason why it was rejected.", views=_DETAIL),
    ),
    filters=(
        _has_text("IDs"),
        Filter(
            "state",
            "Only in this state. If empty: all that have not ended; `ended`: all that have; `all`: both.",
            "State",
            (*LIVE_STATES, "completed", "failed", "rejected", "ended", "all"),
            unset="not ended",
        ),
        *_IN_QUEUE,
        _OF_USER,
        Filter("node", "Only with an allocation on this node.", "Node"),
        Filter("application", "Only this application."),
    ),
    sorts=("-pending", "-used", "-submitted", "application", "queue", "user"),
    actions=(
        Action(
            "move",
            "Move to another queue",
            "move an application to another queue; it continues to run",
            "The application, with what it runs and asks for, is charged to the other queue from now on.",
            (Argument("queue", "The full path of the leaf queue to move to.", "To", is_required=True),),
            is_for_admins=False,
            states=LIVE_STATES,
        ),
        Action(
            "kill",
            "Kill",
            "fail an application and release everything it has",
            "Its allocations are released, and its asks are removed. This cannot be undone.",
            is_for_admins=False,
            is_dangerous=True,
            states=LIVE_STATES,
        ),
    ),
)

ASKS: Final = Table(
    key="key",
    noun="ask",
    summary="The pending asks, one row for equal asks of an application",
    columns=(
        Column("key", Kind.TEXT, "The key of the first of them.", "head.key", _LIST | _BOARD, heading="ask"),
        Column("application", Kind.TEXT, "Their application.", "application.application_id", _LIST, link="application"),
        Column("queue", Kind.TEXT, "The queue of the application.", "application.queue.path", _LIST, link="queue"),
        Column(
            "user", Kind.TEXT, "The user that submitted the application.", "application.user.name", _LIST, link="user"
        ),
        Column(
            "state",
            Kind.STATE,
            "`pending`; `reserved`: a node is reserved for the first; `held`: they wait for a placeholder.",
            views=_LIST | _BOARD,
        ),
        Column("count", Kind.NUMBER, "The number of them.", views=_LIST | _BOARD),
        Column("resource", Kind.AMOUNTS, "The amounts that each of them asks for.", "head.resources", _LIST | _BOARD),
        Column("priority", Kind.NUMBER, "Their priority.", "group.priority", _LIST | _BOARD),
        Column("created", Kind.TIME, "The time when the first of them was created.", "head.created_ns", _LIST | _BOARD),
        Column("placeholder", Kind.FLAG, "Whether they are placeholders of a gang.", "head.placeholder"),
        Column("taskGroup", Kind.TEXT, "Their group in the gang.", "head.task_group"),
        Column(
            "requiredNode",
            Kind.TEXT,
            "The only node that they may run on.",
            "group.shape.required_node",
            link="node",
        ),
        Column("reason", Kind.CODE, "The reason why they wait.", views=_LIST | _BOARD),
        Column(
            "message",
            Kind.TEXT,
            "The reason why the last attempt failed.",
            views=_BOARD,
            heading="last attempt",
        ),
    ),
    filters=(
        Filter("text", "Only with this text in the key of the first ask; case does not matter.", "Name"),
        Filter("application", "Only of this application.", "Application", option="--app", metavar="APP"),
        *_IN_QUEUE,
        _OF_USER,
    ),
    sorts=("application", "-count", "-resource", "created"),
)

# Nodes ----------------------------------------------------------------------------------------------------------------

NODES: Final = Table(
    key="node",
    noun="node",
    summary="The nodes, one row for each",
    columns=(
        Column("node", Kind.TEXT, "Its ID.", "node_id", _EVERYWHERE, link="node"),
        Column("state", Kind.STATE, "Schedulable, unschedulable or cordoned.", views=_EVERYWHERE, also="reserved"),
        Column("host", Kind.TEXT, "The host name.", views=_DETAIL),
        Column("rack", Kind.TEXT, "The rack.", views=_TOP_WIDE | _BOARD | _DETAIL),
        Column("instanceType", Kind.TEXT, "The instance type.", views=_DETAIL),
        Column("partition", Kind.TEXT, "Its partition."),
        Column("capacity", Kind.AMOUNTS, "Its size.", "capacity", _LIST | _DETAIL),
        Column(
            "used", Kind.AMOUNTS, "The amounts that allocations of the partition use.", "allocated", _LIST | _DETAIL
        ),
        Column(
            "foreign",
            Kind.AMOUNTS,
            "The amounts that allocations of other schedulers use.",
            "occupied",
            _LIST | _DETAIL,
        ),
        Column("available", Kind.AMOUNTS, "The amounts that are left.", "available", _LIST | _TOP | _DETAIL),
        Column("allocations", Kind.NUMBER, "Allocations of the partition.", views=_EVERYWHERE, heading="allocs"),
        Column("reserved", Kind.FLAG, "Whether it is reserved for an ask."),
        Column(
            "utilization", Kind.PERCENT, "The largest used share of any resource type.", views=_LIST, heading="used%"
        ),
    ),
    filters=(
        _has_text("IDs"),
        Filter(
            "state",
            "Only in this state; `reserved`: only those that are reserved for an ask.",
            "State",
            ("schedulable", "unschedulable", "cordoned", "reserved"),
        ),
        Filter("node", "Only this node."),
        Filter("attribute", "Only with this attribute: `NAME=VALUE`.", "Attribute", metavar="NAME=VALUE"),
    ),
    sorts=("node", "-utilization", "-available", "-allocations", "state"),
    bars=Bars(("used", "foreign"), "capacity", sort="available"),
    actions=(
        Action(
            "cordon",
            "Cordon",
            "keep new allocations from a node; what runs there continues",
            "It stays cordoned, also if it is registered again, until it is uncordoned.",
            (REASON,),
            states=("schedulable", "unschedulable"),
        ),
        Action(
            "uncordon",
            "Uncordon",
            "let a node take allocations again",
            "If its resource manager drains it, it still takes none.",
            states=("cordoned",),
        ),
        Action(
            "drain",
            "Drain",
            "cordon a node, and have what runs there released",
            "The resource manager is asked to release everything that runs there, except for allocations that require "
            "this node. The request may be repeated, for what came there since.",
            (REASON,),
            is_dangerous=True,
        ),
    ),
)

# Users and groups -----------------------------------------------------------------------------------------------------


def _declare_usage(of: str) -> Table:
    """Return the table of the users or of the groups."""
    board = _LIST | _BOARD
    return Table(
        key="name",
        noun=of,
        summary=f"The usage and limits of {of}s, one row for each {of} and queue",
        columns=(
            Column("name", Kind.TEXT, f"The {of}.", "name", board, heading=of, link="user" if of == "user" else ""),
            Column("queue", Kind.TEXT, "The queue, with those below it.", "usage.path", board, link="queue"),
            Column("used", Kind.AMOUNTS, f"The amounts that the {of} uses there.", "usage.used", board),
            Column(
                "maximum", Kind.LIMITS, f"The amounts that the {of} may use there.", "maximum", board, heading="limit"
            ),
            Column(
                "utilization",
                Kind.SHARE,
                "The largest used share of any limit, of resources or applications; null without a limit.",
                "utilization",
                board,
                heading="of limit",
            ),
            Column(
                "runningApplications",
                Kind.NUMBER,
                f"Running applications of the {of} there.",
                views=board,
                heading="running",
                of="maxApplications",
            ),
            Column(
                "maxApplications",
                Kind.NUMBER,
                "The number that may run; null is unlimited.",
                "max_applications",
                heading="max apps",
            ),
        ),
        filters=(
            _has_text("names"),
            *_IN_QUEUE,
            Filter("limited", "`true`: only queues where a limit applies.", "With a limit", FLAG),
        ),
        sorts=("name", "-utilization", "-used"),
    )


# Hosts and resource managers ------------------------------------------------------------------------------------------

HOSTS: Final = Table(
    key="name",
    noun="host",
    summary="The hosts of a cluster, one row for each",
    columns=(
        Column("name", Kind.TEXT, "Its name.", views=_LIST | _BOARD, heading="host"),
        Column("state", Kind.STATE, "Ready, draining, drained or lost.", views=_LIST | _BOARD),
        Column("leader", Kind.FLAG, "Whether its broker leads.", views=_LIST | _BOARD),
        Column("partitions", Kind.NUMBER, "The partitions that it has now.", views=_LIST | _BOARD),
        Column("leaving", Kind.NUMBER, "Partitions that move to another host.", views=_LIST | _BOARD),
        Column("cores", Kind.NUMBER, "Its cores.", views=_LIST | _BOARD),
        Column("memory", Kind.BYTES, "Its memory.", views=_LIST | _BOARD),
        Column("release", Kind.TEXT, "The release that it runs.", views=_LIST | _BOARD),
        Column("address", Kind.TEXT, "Where other hosts reach its broker.", views=_LIST),
    ),
    filters=(),
    sorts=("name",),
)

RMS: Final = Table(
    key="rm",
    noun="resource manager",
    summary="The registered resource managers, one row for each",
    columns=(
        Column("rm", Kind.TEXT, "Its ID.", views=_LIST | _BOARD),
        Column("state", Kind.STATE, "Connected or away. Nothing is placed for one that is away.", views=_LIST | _BOARD),
        Column("awaySince", Kind.TIME, "The time since when it is away.", views=_LIST | _BOARD),
        Column("partitions", Kind.TEXTS, "Its partitions.", views=_LIST | _BOARD),
        Column("build", Kind.PAIRS, "Its report about its build.", views=_LIST | _BOARD),
    ),
    filters=(),
    sorts=("rm",),
)

DOCUMENTS: Final[Mapping[str, Table]] = {"hosts": HOSTS, "rms": RMS}
"""Tables of the system, whose rows come from other documents than `/table/...`."""

TABLES: Final[Mapping[TableName, Table]] = {
    "applications": APPLICATIONS,
    "asks": ASKS,
    "nodes": NODES,
    "queues": QUEUES,
    "users": _declare_usage("user"),
    "groups": _declare_usage("group"),
}


# Orders ---------------------------------------------------------------------------------------------------------------


class SortOrder(NamedTuple):
    """The column that rows are sorted by."""

    column: Column
    resource: str = ""
    """The resource type of a column with amounts; empty for the largest share of any type."""
    is_descending: bool = False


def parse_sort(name: TableName, text: str) -> SortOrder:
    """Parse the parameter `sort` of a table: `COLUMN` or `COLUMN.TYPE`, with `-` in front for descending order.

    Raises:
        ValueError: the table has no such column; the text names those it has.
    """
    table = TABLES[name]
    wanted, dot, resource = text.removeprefix("-").partition(".")
    column = table.find_column(wanted)
    if column is None or not column.is_sortable:
        raise ValueError(f"{name} cannot be sorted by {wanted[:64]!r}, but by {', '.join(table.sortable)}")
    if dot and not (column.has_amounts and resource):
        amounts = ", ".join(f"{one.name}.TYPE" for one in table.columns if one.has_amounts)
        raise ValueError(f"{text[:64]!r} is no order of {name}: a resource type may follow in {amounts}")
    return SortOrder(column, resource, text.startswith("-"))


def describe_tables() -> dict[str, object]:
    """Return the catalogue as a JSON object, for the dashboard and other programs."""
    return {
        name: {
            "key": table.key,
            "noun": table.noun,
            "summary": table.summary,
            "columns": [
                {
                    "name": one.name,
                    "kind": one.kind,
                    "heading": one.title,
                    "words": one.words,
                    "meaning": one.meaning,
                    "of": one.of,
                    "also": one.also,
                    "link": one.link,
                    "views": [str(view.name).lower() for view in one.views],
                    "isSortable": one.is_sortable,
                }
                for one in table.columns
            ],
            "filters": [
                {
                    "name": one.name,
                    "label": one.label,
                    "meaning": one.meaning,
                    "choices": list(one.choices),
                    "unset": one.unset,
                }
                for one in table.filters
            ],
            "sorts": list(table.sorts),
            "bars": table.bars and table.bars._asdict(),
            "isTree": table.is_tree,
            "actions": [
                {
                    "name": one.name,
                    "label": one.label,
                    "text": f"{one.about[0].upper()}{one.about[1:]}. {one.more}",
                    "arguments": [{"name": each.name, "label": each.label} for each in one.arguments],
                    "isDangerous": one.is_dangerous,
                    "states": list(one.states),
                }
                for one in table.actions
            ],
        }
        for name, table in chain(TABLES.items(), DOCUMENTS.items())
    }
