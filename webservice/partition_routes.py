"""What is asked about one partition: its queues, applications, nodes, users and groups.

The order of the checks in each function is part of the API: it decides which of several errors is told. Bodies come
from the partition's worker and are passed on as they are. Not here: what is about all partitions (`overall.py`).
"""

import re
import uuid
from collections.abc import Callable
from typing import Final

from common.query_messages import STEPS_MAX, Actor, KillApplication, MoveApplication, PartitionList, Query, Schedule
from common.unsigned import UnsignedError, unsigned
from webservice.access import Access
from webservice.calls import (
    ApiRoute,
    Call,
    Change,
    Changing,
    Named,
    Reply,
    Respond,
    directory_of,
    document,
    lasting,
    named,
    partition_of,
    registered,
)
from webservice.parameters import (
    ACTIVE,
    PARTITION_STATES,
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
from webservice.router import Route
from webservice.views import NoEventsView, RequestError, encoded

_PARTITION: Final = "/ws/v1/partition/{partition}"


def about_partition(what: str) -> Respond:
    """Ask a partition for something that needs no further name."""

    async def respond(call: Call) -> Reply:
        return await _ask(call, await partition_of(call), what)

    return respond


def about_usage(what: str) -> Respond:
    """Ask for all usage: where there is no partition nobody uses anything, which is no error."""

    async def respond(call: Call) -> Reply:
        part, partition = page(call.query), await _tracked_by(call)
        return Reply(b"[]\n") if partition is None else await _ask(call, partition, what, **part)

    return respond


def about_usage_of(what: str, name_of: Callable[[str], str], missing: str) -> Respond:
    """Ask for the usage of the user or group that the path names."""

    async def respond(call: Call) -> Reply:
        name = name_of(call.parameters[what])
        partition = await _tracked_by(call)
        if partition is None:
            raise RequestError(404, missing)
        return await _ask(call, partition, what, **{what: name})

    return respond


async def _tracked_by(call: Call) -> Named | None:
    """The partition whose usage is meant. While there is one it is meant by any name, for usage was never asked for by
    partition; None if there is none to mean.
    """
    directory = directory_of(call, await registered(call))
    name, everything = call.parameters["partition"], directory.all()
    if directory.find(name) is not None:
        return named(directory, name)
    return named(directory, everything[0][0]) if len(everything) == 1 else None


def about_named(what: str) -> Respond:
    """Ask for the node or application that the path names; names are used as they are."""

    async def respond(call: Call) -> Reply:
        return await _ask(call, await partition_of(call), what, **{what: call.parameters[what]})

    return respond


async def preemptions(call: Call) -> Reply:
    """Who had to go for whom, the newest first."""
    part = page(call.query)
    return await _ask(call, await partition_of(call), "preemptions", **part)


async def nodes(call: Call) -> Reply:
    """All nodes with what runs on them."""
    part = page(call.query)
    return await _ask(call, await partition_of(call), "nodes", **part)


async def queue(call: Call) -> Reply:
    """One queue; with the query parameter `subtree`, whatever its value, all below it too."""
    partition = await partition_of(call)
    path = queue_path(call.parameters["queue"])
    subtree = {"subtree": "true"} if "subtree" in call.query else {}
    return await _ask(call, partition, "queue", queue=path, **subtree)


async def queue_applications(call: Call) -> Reply:
    """The applications in a leaf."""
    path, part = queue_path(call.parameters["queue"]), page(call.query)
    return await _ask(call, await partition_of(call), "queue-applications", queue=path, **part)


async def queue_application(call: Call) -> Reply:
    """One active application of a leaf."""
    text = decoded(call.parameters["queue"])
    partition = await partition_of(call)
    return await _ask(
        call, partition, "application", queue=queue_name(text), application=call.parameters["application"]
    )


async def queue_applications_by_state(call: Call) -> Reply:
    """The applications in a leaf that are active, and of these those with a status."""
    partition = await partition_of(call)
    path = queue_path(call.parameters["queue"])
    try:
        wanted = _wanted(call, (ACTIVE,))
    except RequestError:
        await _ask(call, partition, "queue", queue=path)  # a queue that is missing is told first
        raise
    return await _ask(call, partition, "applications", queue=path, **wanted)


async def applications_by_state(call: Call) -> Reply:
    """The applications of a partition that are active (and of these those with a status), rejected or completed."""
    partition = await partition_of(call)
    return await _ask(call, partition, "applications", **_wanted(call, PARTITION_STATES))


def _wanted(call: Call, states: tuple[str, ...]) -> dict[str, str]:
    state = application_state(call.parameters["state"], states)
    status = active_status(call.query.get("status", "")) if state == ACTIVE else ""
    return {"state": state, **({"status": status} if status else {}), **page(call.query)}


async def _ask(call: Call, partition: Named, what: str, **args: str) -> Reply:
    """Ask, and pass on the document."""
    query = Query(what=what, name=partition.shown, args=args, viewer=call.viewer)
    return lasting(call, await call.shelf.answer(partition.full_name, query, partition.generation))


_USER: Final = about_usage_of("user", user_name, "User not found")
_GROUP: Final = about_usage_of("group", group_name, "Group not found")


async def batch(call: Call) -> Reply:
    """A piece of the history. Before there is any partition nothing has happened."""
    known = await registered(call)
    found = _meant(call, known)
    args = {"start": call.query.get("start", ""), "count": call.query.get("count", "")}
    if found is None:
        _check(args["count"], args["start"])
        instance = uuid.uuid5(uuid.NAMESPACE_OID, str(known.started_ns))
        return Reply(encoded(NoEventsView(InstanceUUID=str(instance))))
    query = Query(what="events", name=found.shown, args=args)
    return Reply(document(await call.shelf.fresh(found.full_name, query)))


async def stream(call: Call) -> Reply:
    """The history as it goes on, one event in a line."""
    found = _meant(call, await registered(call))
    if found is None:
        raise RequestError(503, "There is no partition yet whose events could be followed, try again later")
    host, count = call.headers.get("host", ""), call.query.get("count", "")
    return Reply(await call.streams.begin(found.full_name, found.rm_id, host=host, count=count))


def _meant(call: Call, known: PartitionList) -> Named | None:
    """The partition that the parameter `partition` names, or the only one of the default RM; None while there is none.

    Raises:
        RequestError: there is none of that name, or the RM has several.
    """
    directory = directory_of(call, known)
    name = call.query.get("partition", "")
    if name:
        return named(directory, name)
    rm_id = default_rm(known, call.startup.default_rm)
    names = [shown for shown, entry in directory.all() if entry.rm_id == rm_id]
    if len(names) > 1:
        listed = ", ".join(names)
        raise RequestError(409, f"There are several partitions, choose one with the parameter partition: {listed}")
    return named(directory, names[0]) if names else None


def _check(count: str, start: str) -> None:
    """Refuse what a partition would refuse, while there is none.

    Raises:
        RequestError: 400, as it would say it.
    """
    try:
        if unsigned(count) == 0:
            raise RequestError(400, '0 is not a valid value for "count"')
        unsigned(start)
    except UnsignedError as error:
        raise RequestError(400, str(error)) from None


_APPLICATION: Final = f"{_PARTITION}/application/{{application}}"


async def kill(call: Call, actor: Actor) -> Reply:
    """Fail an application and release all it has."""
    partition = await partition_of(call)
    wanted = KillApplication(
        application_id=call.parameters["application"],
        actor=actor,
        seen_only=call.viewer is not None,
        name=partition.shown,
    )
    return await _change(call, partition, wanted)


async def move(call: Call, actor: Actor) -> Reply:
    """Let an application go on in another leaf."""
    partition = await partition_of(call)
    if not call.query.get("queue"):
        raise RequestError(400, "Say where to with ?queue=PATH, the full path of a leaf such as root.a")
    queue = queue_name(call.query["queue"])
    wanted = MoveApplication(
        application_id=call.parameters["application"],
        queue=queue,
        actor=actor,
        seen_only=call.viewer is not None,
        name=partition.shown,
    )
    return await _change(call, partition, wanted)


async def schedule(call: Call, actor: Actor) -> Reply:
    """Make `?steps=N` decisions (one if it is not said) in a partition that decides only when asked to."""
    partition = await partition_of(call)
    wanted = Schedule(steps=_steps(call.query.get("steps", "1")), name=partition.shown)
    return await _change(call, partition, wanted)


def _steps(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= STEPS_MAX:
        raise RequestError(400, f"Say how many with ?steps=N, a whole number from 1 to {STEPS_MAX}, not {text[:32]!r}")
    return int(text)


async def _change(call: Call, partition: Named, wanted: Change) -> Reply:
    return Reply(document(await call.link.change(wanted, partition=partition.full_name)).strip() + b"\n")


ROUTES: Final[tuple[ApiRoute, ...]] = (
    Route("GET", f"{_PARTITION}/placementrules", about_partition("rules"), Access.KNOWN),
    Route("GET", f"{_PARTITION}/queues", about_partition("queues"), Access.SEEN),
    Route("GET", f"{_PARTITION}/queue/{{queue}}", queue, Access.SEEN),
    Route("GET", f"{_PARTITION}/queue/{{queue}}/applications", queue_applications, Access.SEEN),
    Route("GET", f"{_PARTITION}/queue/{{queue}}/applications/{{state}}", queue_applications_by_state, Access.SEEN),
    Route("GET", f"{_PARTITION}/queue/{{queue}}/application/{{application}}", queue_application, Access.SEEN),
    Route("GET", f"{_PARTITION}/applications/{{state}}", applications_by_state, Access.SEEN),
    Route("GET", f"{_PARTITION}/application/{{application}}", about_named("application"), Access.SEEN),
    Route("GET", f"{_PARTITION}/nodes", nodes, Access.SEEN),
    Route("GET", f"{_PARTITION}/node/{{node}}", about_named("node"), Access.SEEN),
    Route("GET", f"{_PARTITION}/preemptions", preemptions, Access.SEEN),
    Route("GET", f"{_PARTITION}/usage/users", about_usage("users"), Access.SEEN),
    Route("GET", f"{_PARTITION}/usage/user/{{user}}", _USER, Access.SEEN),
    Route("GET", f"{_PARTITION}/usage/groups", about_usage("groups"), Access.SEEN),
    Route("GET", f"{_PARTITION}/usage/group/{{group}}", _GROUP, Access.SEEN),
    Route("GET", "/ws/v1/events/batch", batch, Access.ADMINS),
    Route("GET", "/ws/v1/events/stream", stream, Access.ADMINS),
    Route("POST", f"{_APPLICATION}/kill", Changing(kill), Access.OWN),
    Route("POST", f"{_APPLICATION}/move", Changing(move), Access.OWN),
    Route("POST", f"{_PARTITION}/schedule", Changing(schedule), Access.ADMINS),
)
