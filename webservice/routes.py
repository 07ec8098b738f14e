"""The paths of the API, and for each the question that answers it.

The order of the checks in each function is part of the API: it decides which of several errors is told. Bodies about a
partition come from its worker and are passed on as they are.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from common.config.check import load
from common.config.problems import ConfigError
from common.messages import Answer, PartitionEntry, PartitionList, Query
from webservice import metrics
from webservice.errors import RequestError
from webservice.parameters import ACTIVE, PARTITION_STATES, active_status, application_state, queue_path
from webservice.resolve import AmbiguityError, Directory
from webservice.router import Route
from webservice.views import ClusterView, VerdictView, encoded

CLUSTER_NAME: Final = "kubernetes"
JSON: Final = "application/json; charset=UTF-8"


class Link(Protocol):
    """Whoever knows the partitions and can ask them (`broker_link.py`)."""

    async def ask(self, partition: str, query: Query) -> Answer: ...

    async def partitions(self) -> PartitionList: ...


@dataclass(frozen=True, slots=True)
class Call:
    """A request for a known path: its named segments, its query, and a way to read its body."""

    link: Link
    parameters: dict[str, str]
    query: dict[str, str]
    body: Callable[[], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Reply:
    """What to send back."""

    body: bytes
    status: int = 200
    content_type: str = JSON


@dataclass(frozen=True, slots=True)
class Named:
    """A partition, and the name by which the answer shows it."""

    full_name: str
    shown: str


Respond = Callable[[Call], Awaitable[Reply]]


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
        return await _ask(call, await _partition(call), what)

    return respond


def about_usage(what: str) -> Respond:
    """Ask for usage: nobody uses anything in a partition that does not exist, which is no error."""

    async def respond(call: Call) -> Reply:
        partition = await _partition_if_any(call)
        return Reply(b"[]\n") if partition is None else await _ask(call, partition, what)

    return respond


def about_named(what: str) -> Respond:
    """Ask for the node or application that the path names; names are used as they are."""

    async def respond(call: Call) -> Reply:
        return await _ask(call, await _partition(call), what, **{what: call.parameters[what]})

    return respond


async def queue(call: Call) -> Reply:
    """One queue; with the query parameter `subtree`, whatever its value, all below it too."""
    partition = await _partition(call)
    path = queue_path(call.parameters["queue"])
    subtree = {"subtree": "true"} if "subtree" in call.query else {}
    return await _ask(call, partition, "queue", queue=path, **subtree)


async def queue_applications(call: Call) -> Reply:
    """The applications in a leaf."""
    path = queue_path(call.parameters["queue"])
    return await _ask(call, await _partition(call), "queue-applications", queue=path)


async def queue_applications_by_state(call: Call) -> Reply:
    """The applications in a leaf that are active, and of these those with a status."""
    partition = await _partition(call)
    path = queue_path(call.parameters["queue"])
    try:
        wanted = _wanted(call, (ACTIVE,))
    except RequestError:
        await _ask(call, partition, "queue", queue=path)  # a queue that is missing is told first
        raise
    return await _ask(call, partition, "applications", queue=path, **wanted)


async def applications_by_state(call: Call) -> Reply:
    """The applications of a partition that are active (and of these those with a status), rejected or completed."""
    partition = await _partition(call)
    return await _ask(call, partition, "applications", **_wanted(call, PARTITION_STATES))


def _wanted(call: Call, states: tuple[str, ...]) -> dict[str, str]:
    state = application_state(call.parameters["state"], states)
    status = active_status(call.query.get("status", "")) if state == ACTIVE else ""
    return {"state": state, "status": status} if status else {"state": state}


async def _partition(call: Call) -> Named:
    partition = await _partition_if_any(call)
    if partition is None:
        raise RequestError(404, "Partition not found")
    return partition


async def _partition_if_any(call: Call) -> Named | None:
    directory = Directory((await call.link.partitions()).partitions)
    try:
        entry = directory.find(call.parameters["partition"])
    except AmbiguityError as error:
        raise RequestError(409, str(error)) from None
    return None if entry is None else Named(entry.full_name, directory.shown(entry))


async def _ask(call: Call, partition: Named, what: str, **args: str) -> Reply:
    """Ask, and pass on the document. An answer with another status than 200 is a text that says why there is none."""
    answer = await call.link.ask(partition.full_name, Query(what=what, name=partition.shown, args=args))
    if answer.status != 200:
        raise RequestError(answer.status, answer.body.decode(errors="replace"))
    return Reply(answer.body)


# The table ----------------------------------------------------------------------------------------------------------

_PARTITION: Final = "/ws/v1/partition/{partition}"

ROUTES: Final[tuple[Route[Respond], ...]] = (
    Route("GET", "/ws/v1/clusters", clusters),
    Route("GET", "/ws/v1/metrics", all_metrics),
    Route("POST", "/ws/v1/validate-conf", validate),
    Route("GET", "/ws/v1/partitions", partitions),
    Route("GET", f"{_PARTITION}/queues", about_partition("queues")),
    Route("GET", f"{_PARTITION}/queue/{{queue}}", queue),
    Route("GET", f"{_PARTITION}/queue/{{queue}}/applications", queue_applications),
    Route("GET", f"{_PARTITION}/queue/{{queue}}/applications/{{state}}", queue_applications_by_state),
    Route("GET", f"{_PARTITION}/applications/{{state}}", applications_by_state),
    Route("GET", f"{_PARTITION}/application/{{application}}", about_named("application")),
    Route("GET", f"{_PARTITION}/nodes", about_partition("nodes")),
    Route("GET", f"{_PARTITION}/node/{{node}}", about_named("node")),
    Route("GET", f"{_PARTITION}/usage/users", about_usage("users")),
    Route("GET", f"{_PARTITION}/usage/groups", about_usage("groups")),
)
