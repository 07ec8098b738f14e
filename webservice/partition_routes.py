"""What is asked about one partition: its queues, applications, nodes, users and groups.

The order of the checks in each function is part of the API: it decides which of several errors is told. Bodies come
from the partition's worker and are passed on as they are. Not here: what is about all partitions (`overall.py`).
"""

from collections.abc import Callable
from typing import Final

from common.query_messages import Query
from webservice.access import Access
from webservice.calls import ApiRoute, Call, Named, Reply, Respond, directory_of, named, partition_of, registered
from webservice.errors import RequestError
from webservice.lasting import lasting
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
from webservice.router import Route

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
)
