"""The history of events: asked for piece by piece, or followed as it goes on.

Each partition has a history of its own. Not here: keeping it (the workers do), following it (`streams/`).
"""

import uuid
from typing import Final

from common.query_messages import PartitionList, Query
from common.unsigned import UnsignedError, unsigned
from webservice.access import Access
from webservice.calls import ApiRoute, Call, Named, Reply, directory_of, document, named, registered
from webservice.errors import RequestError
from webservice.resolve import default_rm
from webservice.router import Route
from webservice.views import NoEventsView, encoded


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


ROUTES: Final[tuple[ApiRoute, ...]] = (
    Route("GET", "/ws/v1/events/batch", batch, Access.ADMINS),
    Route("GET", "/ws/v1/events/stream", stream, Access.ADMINS),
)
