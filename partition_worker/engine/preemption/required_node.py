"""Victims for an ask that can run on one node only, as those of daemon sets.

Only that node counts: neither guarantees nor queues nor fences protect anybody, and a switched-off preemption does not
either. Such an ask is never a victim itself, so nobody can strike back, and no truce is kept.

Pure: nothing is changed. Not here: when such an ask looks for victims, and carrying it out (`cycle/preempting.py`).
"""

from common.messages import Resources
from common.resources import add_to, minus, plus
from partition_worker.engine.applications.allocation import Allocation
from partition_worker.engine.nodes.node import Node

NO_HELP = "No fit on required node, preemption does not help"


def victims(node: Node, ask: Allocation) -> list[Allocation]:
    """Who goes, the one to be asked first in front; nobody if all who may are not enough.

    Taken are as many as cover the whole ask, or else all of them if together with the room on the node they do.
    """
    wanted = ask.resources
    among = sorted((one for one in node.allocations.values() if _may_go(one, ask)), key=_reluctance)
    chosen: list[Allocation] = []
    total: Resources = {}
    for one in among:
        if _covers(total, wanted):
            break
        chosen.append(one)
        add_to(total, one.resources)
    return chosen if _covers(plus(total, node.available), wanted) else []


def _may_go(one: Allocation, ask: Allocation) -> bool:
    return (
        not one.need.required_node
        and not one.released
        and not one.preempted
        and one.priority <= ask.priority
        and not one.resources.keys().isdisjoint(ask.resources)
    )


def _reluctance(one: Allocation) -> tuple[int, int, int, int]:
    """Those who agreed to be preempted first, then others, then originators; of equals the least important, the
    newest, the smallest.
    """
    sort = 2 if one.originator else 0 if one.may_be_victim else 1
    return (sort, one.priority, -one.created_ns, sum(one.resources.values()))


def _covers(amount: Resources, wanted: Resources) -> bool:
    """Of every type at least as much, and of no other type less than nothing."""
    return all(value >= 0 for value in minus(amount, wanted).values())
