"""REST routes of the hosts of a cluster: list them, drain or remove one, and spread the partitions evenly.

The leading broker decides about each request, and every web service answers alike. Not here: which host a partition
gets (`broker/placement.py`).
"""

from typing import Final

from yunishard.common.messages.query_messages import ChangeHosts, HostAction, ReadHosts
from yunishard.common.names import HOST_NAME
from yunishard.common.rest.records import HostsView
from yunishard.webservice.broker_client import read_document
from yunishard.webservice.calls import RM_SHOWN_MAX, Call, Reply
from yunishard.webservice.router import Access, Route, RouteGroup
from yunishard.webservice.views import RequestError

HOSTS: Final = RouteGroup("hosts", "The hosts of a cluster, and moves of partitions between them.")

_CONFLICT: Final = {409: "It is not possible now: no other host can take the partitions, or a host to remove runs."}


def _change_route(path: str) -> Route:
    """Declare a change, which begins with the answer."""
    return Route(HOSTS, "POST", f"/ws/v1/hosts/{path}", Access.ADMINS, (HostsView,), statuses=_CONFLICT)


@Route(HOSTS, "GET", "/ws/v1/hosts", Access.ADMINS, (HostsView,), is_private=True)
async def hosts(call: Call) -> Reply:
    """All hosts with their state and the number of their partitions.

    A host is `ready`, `draining` while it has partitions that move to others, `drained`, or `lost` while it is silent.
    """
    return Reply(read_document(await call.services.broker.read("", ReadHosts())).strip() + b"\n")


@_change_route("rebalance")
async def rebalance(call: Call) -> Reply:
    """Spread the partitions evenly over the hosts, a few at a time.

    Nothing else moves a partition from a host that can run it. `rebalancing` is true until it is done.
    """
    return await _change(call, "rebalance")


@_change_route("{host}/drain")
async def drain(call: Call) -> Reply:
    """Move all partitions of a host to others, a few at a time, and give it no more.

    The host is empty once its state is `drained`. It stays so over restarts until it is undrained.
    """
    return await _change(call, "drain")


@_change_route("{host}/undrain")
async def undrain(call: Call) -> Reply:
    """Let a host get partitions again.

    Those that have moved stay where they are; see `rebalance`.
    """
    return await _change(call, "undrain")


@_change_route("{host}/remove")
async def remove(call: Call) -> Reply:
    """Discard a host that has been stopped permanently, or does not return.

    It is not listed and not counted as lost any more. If it is started again, it is a host again.
    """
    return await _change(call, "remove")


async def _change(call: Call, action: HostAction) -> Reply:
    host = call.segments.get("host", "")
    if action != "rebalance" and not HOST_NAME.fullmatch(host):  # perhaps too long for a message
        raise RequestError(404, f"there is no host {host[:RM_SHOWN_MAX]!r}")
    answer = await call.services.broker.change(ChangeHosts(action=action, host=host))
    return Reply(read_document(answer).strip() + b"\n")
