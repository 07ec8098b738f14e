"""REST routes that explain why an application, an ask, a queue or a node waits, and what would help.

The worker of the partition makes the explanations, with the present state and time, so they are not cached.
"""

from typing import Final

from yunishard.common.rest.explain import ExplanationView
from yunishard.webservice import parameters
from yunishard.webservice.calls import Call, Reply, ask_partition, find_partition
from yunishard.webservice.parameters import RM
from yunishard.webservice.router import Access, Route, RouteGroup

EXPLANATIONS: Final = RouteGroup(
    "explanations",
    "Why asks wait: the checks of the scheduler in order, and the smallest changes that would help.",
)


def _explain_route(path: str) -> Route:
    path = f"/ws/v1/partition/{{partition}}{path}/explain"
    return Route(EXPLANATIONS, "GET", path, Access.SEEN, (ExplanationView,), parameters=(RM,))


@_explain_route("/application/{application}")
async def explain_application(call: Call) -> Reply:
    """Why the asks of an application wait.

    The checks of the application itself, the number of its asks by reason, and an explanation of its first ask groups.
    """
    partition, name = await find_partition(call), call.segments["application"]
    return await ask_partition(call, partition, "explain-application", application=name)


@_explain_route("/application/{application}/ask/{ask}")
async def explain_ask(call: Call) -> Reply:
    """Why an ask waits, and the smallest changes that would let it run.

    A remedy holds if nothing else arrives. Asks that are tried before this one (`ahead`) may get what the change frees.
    """
    partition, name, key = await find_partition(call), call.segments["application"], call.segments["ask"]
    return await ask_partition(call, partition, "explain-ask", application=name, ask=key)


@_explain_route("/queue/{queue}")
async def explain_queue(call: Call) -> Reply:
    """Why asks wait in a queue and below it.

    The number of asks by reason, how full each level is, and an explanation of the asks that have waited longest.
    """
    partition = await find_partition(call)
    return await ask_partition(call, partition, "explain-queue", queue=parameters.queue_path(call.segments["queue"]))


@_explain_route("/node/{node}")
async def explain_node(call: Call) -> Reply:
    """Why waiting asks do not get a node.

    The number of waiting asks by reason; asks that require another node do not count.
    """
    return await ask_partition(call, await find_partition(call), "explain-node", node=call.segments["node"])
