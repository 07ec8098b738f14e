"""The history of events: asked for piece by piece, or followed as it goes on.

Each partition has a history of its own. Not here: keeping it (the workers do).
"""

import uuid
from typing import Final

from common.messages import Query
from webservice.access import Access
from webservice.calls import ApiRoute, Call, Named, Reply, document, named
from webservice.errors import RequestError
from webservice.resolve import Directory
from webservice.router import Route
from webservice.views import NoEventsView, encoded


async def batch(call: Call) -> Reply:
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
    args = {"start": call.query.get("start", ""), "count": call.query.get("count", "")}
    query = Query(what="events", name=found.shown, args=args)
    return Reply(document(await call.link.ask(found.full_name, query)))


ROUTES: Final[tuple[ApiRoute, ...]] = (Route("GET", "/ws/v1/events/batch", batch, Access.ADMINS),)
