"""REST routes about one partition: its queues, applications, nodes, usage and events.

The order of the checks in each handler is part of the API: it decides which of several errors the caller sees. The
worker of the partition makes the bodies and decides about changes.
"""

import uuid
from typing import Final

from yunishard.common.messages.query_messages import STEPS_MAX, PartitionList, Query, Schedule
from yunishard.common.rest.records import BatchView, StepsView
from yunishard.common.rest.views import (
    ApplicationView,
    GroupView,
    NodeView,
    PreemptionView,
    QueueView,
    RuleView,
    UserView,
)
from yunishard.common.text_formats import UINT_MAX, UnsignedError, parse_unsigned
from yunishard.webservice import calls, parameters
from yunishard.webservice.broker_client import read_document
from yunishard.webservice.calls import Call, NamedPartition, Reply, ask_partition, find_partition
from yunishard.webservice.parameters import RM, Parameter, Schema
from yunishard.webservice.router import ANY_OBJECT, Access, Route, RouteGroup
from yunishard.webservice.views import RequestError, encode

PARTITION: Final = RouteGroup("partition", "One partition: its queues, applications, nodes, users and groups.")
EVENTS: Final = RouteGroup("events", "Events. Each partition has its own sequence.")
STEPS: Final = RouteGroup("steps", "Scheduling step by step.")

_PARTITION: Final = "/ws/v1/partition/{partition}"
_PAGE: Final = (parameters.LIMIT, parameters.AFTER)
_BY_STATE: Final = (parameters.STATUS, *_PAGE)
_ACTIVE: Final[dict[str, Schema]] = {"state": {"type": "string", "enum": [parameters.ACTIVE]}}
_STATUS: Final = Parameter("status", f"{parameters.STATUS.description} Ignored for other states.")


def _query_route(
    path: str, access: Access, answer: type[object], *more: Parameter, segments: dict[str, Schema] | None = None
) -> Route:
    """Declare a query to the worker."""
    shared = (*more, RM, parameters.IF_NONE_MATCH)
    path = f"{_PARTITION}{path}"
    return Route(PARTITION, "GET", path, access, (answer,), parameters=shared, segments=segments or {})


# Queues and applications ----------------------------------------------------------------------------------------------


@_query_route("/placementrules", Access.KNOWN, list[RuleView])
async def placement_rules(call: Call) -> Reply:
    """The placement rules, in the order in which they are tried."""
    return await ask_partition(call, await find_partition(call), "rules")


@_query_route("/queues", Access.SEEN, QueueView)
async def queues(call: Call) -> Reply:
    """All queues, as a tree from the root."""
    return await ask_partition(call, await find_partition(call), "queues")


@_query_route("/queue/{queue}", Access.SEEN, QueueView, Parameter("subtree", "With any value: with all queues below."))
async def queue(call: Call) -> Reply:
    """One queue."""
    partition = await find_partition(call)
    path = parameters.queue_path(call.segments["queue"])
    subtree = {"subtree": "true"} if "subtree" in call.query else {}
    return await ask_partition(call, partition, "queue", queue=path, **subtree)


@_query_route("/queue/{queue}/applications", Access.SEEN, list[ApplicationView], *_PAGE)
async def queue_applications(call: Call) -> Reply:
    """The applications in a queue.

    Empty for a queue that has child queues.
    """
    path, part = parameters.queue_path(call.segments["queue"]), parameters.page(call.query)
    return await ask_partition(call, await find_partition(call), "queue-applications", queue=path, **part)


@_query_route("/queue/{queue}/applications/{state}", Access.SEEN, list[ApplicationView], *_BY_STATE, segments=_ACTIVE)
async def queue_applications_by_state(call: Call) -> Reply:
    """The active applications in a queue."""
    partition = await find_partition(call)
    path = parameters.queue_path(call.segments["queue"])
    try:
        selection = _parse_selection(call, (parameters.ACTIVE,))
    except RequestError:
        await ask_partition(call, partition, "queue", queue=path)  # a missing queue is the first error
        raise
    return await ask_partition(call, partition, "applications", queue=path, **selection)


@_query_route("/queue/{queue}/application/{application}", Access.SEEN, ApplicationView)
async def queue_application(call: Call) -> Reply:
    """One active application of a queue."""
    text = parameters.decode_segment(call.segments["queue"])
    partition = await find_partition(call)
    path, application = parameters.queue_name(text), call.segments["application"]
    return await ask_partition(call, partition, "application", queue=path, application=application)


@_query_route("/applications/{state}", Access.SEEN, list[ApplicationView], _STATUS, *_PAGE)
async def applications_by_state(call: Call) -> Reply:
    """The applications that are active, rejected or completed."""
    partition = await find_partition(call)
    return await ask_partition(call, partition, "applications", **_parse_selection(call, parameters.PARTITION_STATES))


def _parse_selection(call: Call, states: tuple[str, ...]) -> dict[str, str]:
    state = parameters.application_state(call.segments["state"], states)
    status = parameters.active_status(call.query.get("status", "")) if state == parameters.ACTIVE else ""
    return {"state": state, **({"status": status} if status else {}), **parameters.page(call.query)}


@_query_route("/application/{application}", Access.SEEN, ApplicationView)
async def application(call: Call) -> Reply:
    """One active application."""
    partition = await find_partition(call)
    return await ask_partition(call, partition, "application", application=call.segments["application"])


# Nodes and preemptions ------------------------------------------------------------------------------------------------


@_query_route("/nodes", Access.SEEN, list[NodeView], *_PAGE)
async def nodes(call: Call) -> Reply:
    """All nodes with their allocations."""
    part = parameters.page(call.query)
    return await ask_partition(call, await find_partition(call), "nodes", **part)


@_query_route("/node/{node}", Access.SEEN, NodeView)
async def node(call: Call) -> Reply:
    """One node with its allocations."""
    return await ask_partition(call, await find_partition(call), "node", node=call.segments["node"])


@_query_route("/preemptions", Access.SEEN, list[PreemptionView], *_PAGE)
async def preemptions(call: Call) -> Reply:
    """The latest preemptions with their victims, newest first."""
    part = parameters.page(call.query)
    return await ask_partition(call, await find_partition(call), "preemptions", **part)


# Usage ----------------------------------------------------------------------------------------------------------------


@_query_route("/usage/users", Access.SEEN, list[UserView], *_PAGE)
async def users(call: Call) -> Reply:
    """The usage and limits of all users.

    While there is only one partition, any name means it.
    """
    return await _ask_usage(call, "users", **parameters.page(call.query))


@_query_route("/usage/groups", Access.SEEN, list[GroupView], *_PAGE)
async def groups(call: Call) -> Reply:
    """The usage and limits of all groups.

    While there is only one partition, any name means it.
    """
    return await _ask_usage(call, "groups", **parameters.page(call.query))


@_query_route("/usage/user/{user}", Access.SEEN, UserView)
async def user(call: Call) -> Reply:
    """The usage and limits of one user.

    While there is only one partition, any name means it.
    """
    return await _ask_usage(call, "user", user=parameters.principal_name("user", call.segments["user"]))


@_query_route("/usage/group/{group}", Access.SEEN, GroupView)
async def group(call: Call) -> Reply:
    """The usage and limits of one group.

    While there is only one partition, any name means it.
    """
    return await _ask_usage(call, "group", group=parameters.principal_name("group", call.segments["group"]))


async def _ask_usage(call: Call, what: str, **args: str) -> Reply:
    """The usage in the partition of the path. Without such a partition nothing is used: all usage is an empty list.

    In YuniKorn usage is not recorded by partition, so while there is only one partition any name means it.
    """
    names = calls.partition_names(call, await calls.read_registry(call))
    entry, everything = names.find(call.segments["partition"]), names.all()
    if entry is not None or len(everything) == 1:
        return await ask_partition(call, names.show(entry) if entry else everything[0], what, **args)
    if what in ("user", "group"):
        raise RequestError(404, f"{what.title()} not found")
    return Reply(b"[]\n")


# Events ---------------------------------------------------------------------------------------------------------------

_UNSET: Final[Schema] = {"const": ""}
_NUMBER: Final[Schema] = {"anyOf": [{"type": "integer", "minimum": 0, "maximum": UINT_MAX}, _UNSET]}
_AT_LEAST_ONE: Final[Schema] = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": UINT_MAX}, _UNSET]}


def _event_route(path: str, answer: Schema | type[object], *more: Parameter, streams: bool = False) -> Route:
    """Declare a route of events."""
    partition = Parameter("partition", "The partition of the events. Optional if the RM has one partition.")
    statuses = {409: "The RM has several partitions and the request names none.", 500: "Event tracking is off."}
    path, shared = f"/ws/v1/events/{path}", (*more, partition, RM)
    return Route(EVENTS, "GET", path, Access.ADMINS, (answer,), parameters=shared, statuses=statuses, streams=streams)


_START: Final = Parameter("start", "The number of the first event; 0 if not set.", _NUMBER)
_COUNT: Final = Parameter("count", "How many at most.", _AT_LEAST_ONE)


@_event_route("batch", BatchView, _START, _COUNT)
async def event_batch(call: Call) -> Reply:
    """Events from a number on.

    The n-th record has the number `start` + n: continue there, or at `LowestID` if that event is gone. `EventRecords`
    is `null` if there is no such event.
    """
    known = await calls.read_registry(call)
    found = _find_events_partition(call, known)
    args = {"start": call.query.get("start", ""), "count": call.query.get("count", "")}
    if found is None:
        try:  # checked as by a worker
            if parse_unsigned(args["count"]) == 0:
                raise UnsignedError('0 is not a valid value for "count"')
            parse_unsigned(args["start"])
        except UnsignedError as error:
            raise RequestError(400, str(error)) from None
        instance = uuid.uuid5(uuid.NAMESPACE_OID, str(known.started_ns))
        return Reply(encode(BatchView(InstanceUUID=str(instance), LowestID=0, HighestID=0, EventRecords=None)))
    query = Query(what="events", name=found.shown, args=args)
    return Reply(read_document(await call.services.cache.answer_now(found.entry.full_name, query)))


_PAST: Final = Parameter("count", "How many past events come first; none if not set.", _NUMBER)
_FROM: Final = Parameter("start", "The number of the first event, to continue a stream; overrides `count`.", _NUMBER)


@_event_route("stream", ANY_OBJECT, _PAST, _FROM, streams=True)
async def event_stream(call: Call) -> Reply:
    """Events as they happen, one per line.

    The first line has `InstanceUUID`, each further line is an event. The server disconnects a client that reads too
    slowly; the last line is then an error. With `start`, the first line also has `FirstID`, the number of the first
    event: it is higher than `start` if earlier events are gone.
    """
    found = _find_events_partition(call, await calls.read_registry(call))
    if found is None:
        raise RequestError(503, "There is no partition yet whose events could be followed, try again later")
    host, count = call.headers.get("host", ""), call.query.get("count", "")
    streams, partition, start = call.services.streams, found.entry, call.query.get("start", "")
    return Reply(await streams.open_stream(partition.full_name, partition.rm_id, host=host, count=count, start=start))


def _find_events_partition(call: Call, known: PartitionList) -> NamedPartition | None:
    """The partition that the parameter `partition` names, or the only one of the default RM; None while there is none.

    Raises:
        RequestError: there is none of that name, or the RM has several.
    """
    names = calls.partition_names(call, known)
    if call.query.get("partition"):
        return names.require(call.query["partition"])
    rm_id = calls.default_rm(known, call.services.settings.default_rm)
    candidates = [one for one in names.all() if one.entry.rm_id == rm_id]
    if len(candidates) > 1:
        listed = ", ".join(one.shown for one in candidates)
        raise RequestError(409, f"There are several partitions, choose one with the parameter partition: {listed}")
    return candidates[0] if candidates else None


# Scheduling step by step ----------------------------------------------------------------------------------------------


_STEPS: Final = Parameter("steps", "How many; one if not set.", {"type": "integer", "minimum": 1, "maximum": STEPS_MAX})


@Route(
    STEPS,
    "POST",
    f"{_PARTITION}/schedule",
    Access.ADMINS,
    (StepsView,),
    parameters=(_STEPS, RM),
    statuses={409: "The system schedules by itself."},
)
async def schedule(call: Call) -> Reply:
    """Make scheduling decisions, in a system that schedules only on request."""
    partition = await find_partition(call)
    steps = call.query.get("steps", "1")
    error = f"Say how many with ?steps=N, a whole number from 1 to {STEPS_MAX}, not {steps[:32]!r}"
    number = parameters.whole_number(steps, STEPS_MAX, error)
    wanted = Schedule(steps=number, name=partition.shown)
    answer = await call.services.broker.change(wanted, partition=partition.entry.full_name)
    return Reply(read_document(answer).strip() + b"\n")
