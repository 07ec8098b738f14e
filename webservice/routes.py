"""The paths of the API, and for each the question that answers it.

The order of the checks in each function is part of the API: it decides which of several errors is told. Bodies about a
partition come from its worker and are passed on as they are. Not here: configurations (`config_routes.py`), what
changes something (`admin_routes.py`).
"""

import asyncio
import uuid
from collections.abc import Callable
from typing import Final

from common.config.check import load
from common.config.problems import ConfigError
from common.messages import PartitionEntry, Query
from webservice import admin_routes, config_routes, health, metrics
from webservice.calls import Call, Changing, Named, Reply, Respond, document, named, partition_of
from webservice.errors import RequestError
from webservice.parameters import (
    ACTIVE,
    PARTITION_STATES,
    active_status,
    application_state,
    group_name,
    limit,
    queue_path,
    user_name,
)
from webservice.resolve import Directory
from webservice.router import Route
from webservice.views import ClusterView, NoEventsView, VerdictView, encoded

CLUSTER_NAME: Final = "kubernetes"


# All partitions -----------------------------------------------------------------------------------------------------


async def clusters(call: Call) -> Reply:
    """One entry for each partition."""
    known = await call.link.partitions()
    builds = [{**build, "rmId": rm_id} for rm_id, build in sorted(known.build_information.items())]
    return Reply(
        encoded(
            [
                ClusterView(
                    start_time=known.started_ns, rm_build_information=builds, partition=name, cluster_name=CLUSTER_NAME
                )
                for name, _ in Directory(known.partitions).all()
            ]
        )
    )


async def partitions(call: Call) -> Reply:
    """What every worker says of its partition. All or nothing: a list that lacks one would be wrong."""
    bodies = await _ask_all(call, "partition")
    return Reply(b"[" + b",".join(body.strip() for _, body in bodies) + b"]\n")


async def all_metrics(call: Call) -> Reply:
    """The metrics of all partitions together; all or nothing too, for a counter that falls looks like a restart."""
    found = []
    for partition, body in await _ask_all(call, "metrics"):
        try:
            found.append(metrics.families(body))
        except ValueError as error:
            raise RequestError(503, f"Partition {partition} answered what cannot be read: {error}") from None
    return Reply(metrics.text(found), content_type=metrics.CONTENT_TYPE)


async def healthcheck(call: Call) -> Reply:
    """What the latest look at each partition found; all or nothing."""
    return Reply(encoded(health.view(await _ask_all(call, "health"))))


async def events(call: Call) -> Reply:
    """The history of a partition, which the parameter `partition` names: each has one of its own. While there is only
    one partition it need not be named, and before there is any nothing has happened.
    """
    known = await call.link.partitions()
    directory = Directory(known.partitions)
    name = call.query.get("partition", "")
    if name:
        found = named(directory, name)
        if found is None:
            raise RequestError(404, "Partition not found")
    else:
        everything = directory.all()
        if not everything:
            instance = uuid.uuid5(uuid.NAMESPACE_OID, str(known.started_ns))
            return Reply(encoded(NoEventsView(InstanceUUID=str(instance))))
        if len(everything) > 1:
            names = ", ".join(shown for shown, _ in everything)
            raise RequestError(409, f"There are several partitions, choose one with the parameter partition: {names}")
        ((shown, only),) = everything
        found = Named(only.full_name, shown)
    return await _ask(call, found, "events", start=call.query.get("start", ""), count=call.query.get("count", ""))


async def _ask_all(call: Call, what: str) -> list[tuple[str, bytes]]:
    directory = Directory((await call.link.partitions()).partitions)

    async def ask(shown: str, entry: PartitionEntry) -> tuple[str, bytes]:
        answer = await call.link.ask(entry.full_name, Query(what=what, name=shown))
        if answer.status != 200:
            told = answer.body.decode(errors="replace").strip()
            raise RequestError(503, f"Partition {entry.full_name} answered with status {answer.status}: {told}")
        return entry.full_name, answer.body

    return await asyncio.gather(*(ask(shown, entry) for shown, entry in directory.all()))


async def validate(call: Call) -> Reply:
    """Whether a configuration would be taken. Nothing changes."""
    body = await call.body()
    try:
        await asyncio.to_thread(load, body.decode())
    except UnicodeDecodeError as error:
        return Reply(encoded(VerdictView(allowed=False, reason=f"the text is not UTF-8: {error}")))
    except ConfigError as error:
        return Reply(encoded(VerdictView(allowed=False, reason=error.problems[0].message)))
    return Reply(encoded(VerdictView(allowed=True)))


# One partition ------------------------------------------------------------------------------------------------------


def about_partition(what: str) -> Respond:
    """Ask a partition for something that needs no further name."""

    async def respond(call: Call) -> Reply:
        return await _ask(call, await partition_of(call), what)

    return respond


def about_usage(what: str) -> Respond:
    """Ask for all usage: where there is no partition nobody uses anything, which is no error."""

    async def respond(call: Call) -> Reply:
        partition = await _tracked_by(call)
        return Reply(b"[]\n") if partition is None else await _ask(call, partition, what)

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
    directory = Directory((await call.link.partitions()).partitions)
    found = named(directory, call.parameters["partition"])
    if found is None and len(directory.all()) == 1:
        ((shown, only),) = directory.all()
        return Named(only.full_name, shown)
    return found


def about_named(what: str) -> Respond:
    """Ask for the node or application that the path names; names are used as they are."""

    async def respond(call: Call) -> Reply:
        return await _ask(call, await partition_of(call), what, **{what: call.parameters[what]})

    return respond


async def preemptions(call: Call) -> Reply:
    """Who had to go for whom, the newest first; with the query parameter `limit` so many at most."""
    wanted = {"limit": str(limit(call.query["limit"]))} if "limit" in call.query else {}
    return await _ask(call, await partition_of(call), "preemptions", **wanted)


async def queue(call: Call) -> Reply:
    """One queue; with the query parameter `subtree`, whatever its value, all below it too."""
    partition = await partition_of(call)
    path = queue_path(call.parameters["queue"])
    subtree = {"subtree": "true"} if "subtree" in call.query else {}
    return await _ask(call, partition, "queue", queue=path, **subtree)


async def queue_applications(call: Call) -> Reply:
    """The applications in a leaf."""
    path = queue_path(call.parameters["queue"])
    return await _ask(call, await partition_of(call), "queue-applications", queue=path)


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
    return {"state": state, "status": status} if status else {"state": state}


async def _ask(call: Call, partition: Named, what: str, **args: str) -> Reply:
    """Ask, and pass on the document."""
    return Reply(document(await call.link.ask(partition.full_name, Query(what=what, name=partition.shown, args=args))))


# The table ----------------------------------------------------------------------------------------------------------

_PARTITION: Final = "/ws/v1/partition/{partition}"

ROUTES: Final[tuple[Route[Respond | Changing], ...]] = (
    Route("GET", "/ws/v1/clusters", clusters),
    Route("GET", "/ws/v1/metrics", all_metrics),
    Route("GET", "/ws/v1/scheduler/healthcheck", healthcheck),
    Route("GET", "/ws/v1/events/batch", events),
    *config_routes.ROUTES,
    Route("POST", "/ws/v1/validate-conf", validate),
    Route("GET", "/ws/v1/partitions", partitions),
    Route("GET", f"{_PARTITION}/placementrules", about_partition("rules")),
    Route("GET", f"{_PARTITION}/queues", about_partition("queues")),
    Route("GET", f"{_PARTITION}/queue/{{queue}}", queue),
    Route("GET", f"{_PARTITION}/queue/{{queue}}/applications", queue_applications),
    Route("GET", f"{_PARTITION}/queue/{{queue}}/applications/{{state}}", queue_applications_by_state),
    Route("GET", f"{_PARTITION}/applications/{{state}}", applications_by_state),
    Route("GET", f"{_PARTITION}/application/{{application}}", about_named("application")),
    *admin_routes.ROUTES,
    Route("GET", f"{_PARTITION}/nodes", about_partition("nodes")),
    Route("GET", f"{_PARTITION}/node/{{node}}", about_named("node")),
    Route("GET", f"{_PARTITION}/preemptions", preemptions),
    Route("GET", f"{_PARTITION}/usage/users", about_usage("users")),
    Route("GET", f"{_PARTITION}/usage/user/{{user}}", about_usage_of("user", user_name, "User not found")),
    Route("GET", f"{_PARTITION}/usage/groups", about_usage("groups")),
    Route("GET", f"{_PARTITION}/usage/group/{{group}}", about_usage_of("group", group_name, "Group not found")),
)
