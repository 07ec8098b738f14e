"""REST routes about one partition: its queues, applications, nodes, usage and events, and changes to applications.

The order of the checks in each handler is part of the API: it decides which of several errors the caller sees. The
worker of the partition makes the bodies and decides about changes.
"""

import re
import uuid
from collections.abc import Callable
from typing import Final

from common.query_messages import STEPS_MAX, Actor, KillApplication, MoveApplication, PartitionList, Query, Schedule
from common.rest_records import BatchView, KilledView, MovedView, StepsView
from common.rest_views import ApplicationView, GroupView, NodeView, PreemptionView, QueueView, RuleView, UserView
from common.text_formats import UINT_MAX, UnsignedError, parse_unsigned
from webservice.calls import (
    Call,
    Change,
    NamedPartition,
    Reply,
    Respond,
    ask_partition,
    document,
    named,
    names_of,
    partition_of,
    registered,
)
from webservice.parameters import (
    ACTIVE,
    AFTER,
    IF_NONE_MATCH,
    LIMIT,
    LINK,
    PARTITION_STATES,
    RM,
    STATUS,
    UNCHANGED,
    Parameter,
    Schema,
    active_status,
    application_state,
    decoded,
    group_name,
    page,
    queue_name,
    queue_path,
    user_name,
)
from webservice.partition_names import default_rm
from webservice.router import ANY_OBJECT, Access, RouteGroup
from webservice.views import NoEventsView, RequestError, encoded

PARTITION: Final = RouteGroup("partition", "One partition: its queues, applications, nodes, users and groups.")
EVENTS: Final = RouteGroup("events", "Events. Each partition has its own sequence.")
CHANGES: Final = RouteGroup("changes", "Changes to applications by administrators, and scheduling step by step.")

_PARTITION: Final = "/ws/v1/partition/{partition}"
_TAG: Final = {"ETag": "Stays the same while nothing in the partition changes."}


def _query(
    path: str,
    access: Access,
    answer: type[object],
    *parameters: Parameter,
    has_pages: bool = False,
    segments: dict[str, Schema] | None = None,
) -> Callable[[Respond], Respond]:
    """Declare a query to the worker; `has_pages` for a list that the caller may read page by page."""
    return PARTITION.route(
        "GET",
        f"{_PARTITION}{path}",
        access,
        answer,
        parameters=(*parameters, *((LIMIT, AFTER) if has_pages else ()), RM, IF_NONE_MATCH),
        segments=segments,
        statuses=UNCHANGED,
        headers={**_TAG, **({"Link": LINK} if has_pages else {})},
    )


# Queues and applications ----------------------------------------------------------------------------------------------


@_query("/placementrules", Access.KNOWN, list[RuleView])
async def placement_rules(call: Call) -> Reply:
    """The placement rules, in the order in which they are tried."""
    return await ask_partition(call, await partition_of(call), "rules")


@_query("/queues", Access.SEEN, QueueView)
async def queues(call: Call) -> Reply:
    """All queues, as a tree from the root."""
    return await ask_partition(call, await partition_of(call), "queues")


@_query("/queue/{queue}", Access.SEEN, QueueView, Parameter("subtree", "With any value: with all queues below."))
async def queue(call: Call) -> Reply:
    """One queue."""
    partition = await partition_of(call)
    path = queue_path(call.segments["queue"])
    subtree = {"subtree": "true"} if "subtree" in call.query else {}
    return await ask_partition(call, partition, "queue", queue=path, **subtree)


@_query("/queue/{queue}/applications", Access.SEEN, list[ApplicationView], has_pages=True)
async def queue_applications(call: Call) -> Reply:
    """The applications in a queue.

    Empty for a queue that has child queues.
    """
    path, part = queue_path(call.segments["queue"]), page(call.query)
    return await ask_partition(call, await partition_of(call), "queue-applications", queue=path, **part)


@_query(
    "/queue/{queue}/applications/{state}",
    Access.SEEN,
    list[ApplicationView],
    STATUS,
    has_pages=True,
    segments={"state": {"type": "string", "enum": [ACTIVE]}},
)
async def queue_applications_by_state(call: Call) -> Reply:
    """The active applications in a queue."""
    partition = await partition_of(call)
    path = queue_path(call.segments["queue"])
    try:
        selection = _by_state(call, (ACTIVE,))
    except RequestError:
        await ask_partition(call, partition, "queue", queue=path)  # a missing queue is the first error
        raise
    return await ask_partition(call, partition, "applications", queue=path, **selection)


@_query("/queue/{queue}/application/{application}", Access.SEEN, ApplicationView)
async def queue_application(call: Call) -> Reply:
    """One active application of a queue."""
    text = decoded(call.segments["queue"])
    partition = await partition_of(call)
    application = call.segments["application"]
    return await ask_partition(call, partition, "application", queue=queue_name(text), application=application)


@_query(
    "/applications/{state}",
    Access.SEEN,
    list[ApplicationView],
    Parameter(STATUS.name, f"{STATUS.description} Ignored for other states."),
    has_pages=True,
)
async def applications_by_state(call: Call) -> Reply:
    """The applications that are active, rejected or completed."""
    partition = await partition_of(call)
    return await ask_partition(call, partition, "applications", **_by_state(call, PARTITION_STATES))


def _by_state(call: Call, states: tuple[str, ...]) -> dict[str, str]:
    state = application_state(call.segments["state"], states)
    status = active_status(call.query.get("status", "")) if state == ACTIVE else ""
    return {"state": state, **({"status": status} if status else {}), **page(call.query)}


@_query("/application/{application}", Access.SEEN, ApplicationView)
async def application(call: Call) -> Reply:
    """One active application."""
    partition = await partition_of(call)
    return await ask_partition(call, partition, "application", application=call.segments["application"])


# Nodes and preemptions ------------------------------------------------------------------------------------------------


@_query("/nodes", Access.SEEN, list[NodeView], has_pages=True)
async def nodes(call: Call) -> Reply:
    """All nodes with their allocations."""
    part = page(call.query)
    return await ask_partition(call, await partition_of(call), "nodes", **part)


@_query("/node/{node}", Access.SEEN, NodeView)
async def node(call: Call) -> Reply:
    """One node with its allocations."""
    return await ask_partition(call, await partition_of(call), "node", node=call.segments["node"])


@_query("/preemptions", Access.SEEN, list[PreemptionView], has_pages=True)
async def preemptions(call: Call) -> Reply:
    """The latest preemptions with their victims, newest first."""
    part = page(call.query)
    return await ask_partition(call, await partition_of(call), "preemptions", **part)


# Usage ----------------------------------------------------------------------------------------------------------------


@_query("/usage/users", Access.SEEN, list[UserView], has_pages=True)
async def users(call: Call) -> Reply:
    """The usage and limits of all users.

    While there is only one partition, any name means it.
    """
    return await _usage(call, "users")


@_query("/usage/groups", Access.SEEN, list[GroupView], has_pages=True)
async def groups(call: Call) -> Reply:
    """The usage and limits of all groups.

    While there is only one partition, any name means it.
    """
    return await _usage(call, "groups")


@_query("/usage/user/{user}", Access.SEEN, UserView)
async def user(call: Call) -> Reply:
    """The usage and limits of one user.

    While there is only one partition, any name means it.
    """
    name = user_name(call.segments["user"])
    partition = await _usage_partition(call)
    if partition is None:
        raise RequestError(404, "User not found")
    return await ask_partition(call, partition, "user", user=name)


@_query("/usage/group/{group}", Access.SEEN, GroupView)
async def group(call: Call) -> Reply:
    """The usage and limits of one group.

    While there is only one partition, any name means it.
    """
    name = group_name(call.segments["group"])
    partition = await _usage_partition(call)
    if partition is None:
        raise RequestError(404, "Group not found")
    return await ask_partition(call, partition, "group", group=name)


async def _usage(call: Call, what: str) -> Reply:
    """All usage. Without the partition nothing is used, which is not an error."""
    part, partition = page(call.query), await _usage_partition(call)
    return Reply(b"[]\n") if partition is None else await ask_partition(call, partition, what, **part)


async def _usage_partition(call: Call) -> NamedPartition | None:
    """The partition whose usage is requested; None if there is none of that name. In YuniKorn usage is not kept by
    partition, so while there is only one partition any name means it.
    """
    names = names_of(call, await registered(call))
    name, everything = call.segments["partition"], names.all()
    if names.find(name) is not None:
        return named(names, name)
    return named(names, everything[0][0]) if len(everything) == 1 else None


# Events ---------------------------------------------------------------------------------------------------------------

_UNSET: Final[Schema] = {"const": ""}
_NUMBER: Final[Schema] = {"anyOf": [{"type": "integer", "minimum": 0, "maximum": UINT_MAX}, _UNSET]}
_AT_LEAST_ONE: Final[Schema] = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": UINT_MAX}, _UNSET]}
_EVENTS_OF: Final = Parameter("partition", "Whose events. Optional if the RM has one partition.")
_EVENT_STATUSES: Final = {
    409: "The RM has several partitions and the request names none.",
    500: "Event tracking is off.",
}


@EVENTS.route(
    "GET",
    "/ws/v1/events/batch",
    Access.ADMINS,
    BatchView,
    parameters=(
        Parameter("start", "The number of the first event; 0 if not set.", _NUMBER),
        Parameter("count", "How many at most.", _AT_LEAST_ONE),
        _EVENTS_OF,
        RM,
    ),
    statuses=_EVENT_STATUSES,
)
async def event_batch(call: Call) -> Reply:
    """Events from a number on.

    The n-th record has the number `start` + n: continue there, or at `LowestID` if that event is gone. `EventRecords`
    is `null` if there is no such event.
    """
    known = await registered(call)
    found = _events_partition(call, known)
    args = {"start": call.query.get("start", ""), "count": call.query.get("count", "")}
    if found is None:
        _check_range(args["count"], args["start"])
        instance = uuid.uuid5(uuid.NAMESPACE_OID, str(known.started_ns))
        return Reply(encoded(NoEventsView(InstanceUUID=str(instance))))
    query = Query(what="events", name=found.shown, args=args)
    return Reply(document(await call.cache.uncached(found.full_name, query)))


@EVENTS.route(
    "GET",
    "/ws/v1/events/stream",
    Access.ADMINS,
    ANY_OBJECT,
    parameters=(
        Parameter("count", "How many past events come first; none if not set.", _NUMBER),
        _EVENTS_OF,
        RM,
    ),
    statuses=_EVENT_STATUSES,
    streams=True,
)
async def event_stream(call: Call) -> Reply:
    """Events as they happen, one per line.

    The first line has `InstanceUUID`, each further line is an event. The server disconnects a client that reads too
    slowly; the last line is then an error.
    """
    found = _events_partition(call, await registered(call))
    if found is None:
        raise RequestError(503, "There is no partition yet whose events could be followed, try again later")
    host, count = call.headers.get("host", ""), call.query.get("count", "")
    return Reply(await call.streams.open_stream(found.full_name, found.rm_id, host=host, count=count))


def _events_partition(call: Call, known: PartitionList) -> NamedPartition | None:
    """The partition that the parameter `partition` names, or the only one of the default RM; None while there is none.

    Raises:
        RequestError: there is none of that name, or the RM has several.
    """
    names = names_of(call, known)
    name = call.query.get("partition", "")
    if name:
        return named(names, name)
    rm_id = default_rm(known, call.startup.default_rm)
    candidates = [shown for shown, entry in names.all() if entry.rm_id == rm_id]
    if len(candidates) > 1:
        listed = ", ".join(candidates)
        raise RequestError(409, f"There are several partitions, choose one with the parameter partition: {listed}")
    return named(names, candidates[0]) if candidates else None


def _check_range(count: str, start: str) -> None:
    """Check the parameters as a worker does, while there is no partition.

    Raises:
        RequestError: 400, with the worker's text.
    """
    try:
        if parse_unsigned(count) == 0:
            raise RequestError(400, '0 is not a valid value for "count"')
        parse_unsigned(start)
    except UnsignedError as error:
        raise RequestError(400, str(error)) from None


# Changes --------------------------------------------------------------------------------------------------------------

_CHANGE_STATUSES: Final = {409: "It is not possible now.", 413: "The body is too large."}


def _change(path: str, access: Access, answer: type[object], *parameters: Parameter) -> Callable[[Respond], Respond]:
    return CHANGES.route(
        "POST",
        f"{_PARTITION}{path}",
        access,
        answer,
        parameters=(*parameters, RM),
        statuses=_CHANGE_STATUSES,
        changes=True,
    )


@_change("/application/{application}/kill", Access.OWN, KilledView)
async def kill(call: Call) -> Reply:
    """Fail an application and release its allocations."""
    partition = await partition_of(call)
    wanted = KillApplication(
        application_id=call.segments["application"],
        actor=_requester(call),
        seen_only=call.viewer is not None,
        name=partition.shown,
    )
    return await _send_change(call, partition, wanted)


@_change(
    "/application/{application}/move",
    Access.OWN,
    MovedView,
    Parameter("queue", "The full path of the leaf queue to move to.", required=True),
)
async def move(call: Call) -> Reply:
    """Move an application to another queue."""
    partition = await partition_of(call)
    if not call.query.get("queue"):
        raise RequestError(400, "Say where to with ?queue=PATH, the full path of a leaf such as root.a")
    queue = queue_name(call.query["queue"])
    wanted = MoveApplication(
        application_id=call.segments["application"],
        queue=queue,
        actor=_requester(call),
        seen_only=call.viewer is not None,
        name=partition.shown,
    )
    return await _send_change(call, partition, wanted)


@_change(
    "/schedule",
    Access.ADMINS,
    StepsView,
    Parameter("steps", "How many; one if not set.", {"type": "integer", "minimum": 1, "maximum": STEPS_MAX}),
)
async def schedule(call: Call) -> Reply:
    """Make scheduling decisions, in a system that schedules only on request."""
    partition = await partition_of(call)
    wanted = Schedule(steps=_steps(call.query.get("steps", "1")), name=partition.shown)
    return await _send_change(call, partition, wanted)


def _steps(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= STEPS_MAX:
        raise RequestError(400, f"Say how many with ?steps=N, a whole number from 1 to {STEPS_MAX}, not {text[:32]!r}")
    return int(text)


def _requester(call: Call) -> Actor:
    assert call.requester is not None, "the caller of a route that changes something is known"
    return call.requester


async def _send_change(call: Call, partition: NamedPartition, wanted: Change) -> Reply:
    return Reply(document(await call.broker.change(wanted, partition=partition.full_name)).strip() + b"\n")
