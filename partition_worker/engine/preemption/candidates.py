"""Who might have to go for an ask: the allocations within its reach that nothing protects, the best ones first.

Not here: whether it helps if they go (`nodes.py`, `guaranteed.py`), who is protected for a while because their queue
took from that of the ask (`truces.py`).
"""

from collections.abc import Container
from typing import NamedTuple

from common.messages import Resources
from partition_worker.engine.applications.allocation import Allocation
from partition_worker.engine.needs import Shape
from partition_worker.engine.preemption.fence import Area, Reach, areas
from partition_worker.engine.preemption.guarantees import Guarantees, Transfer


class Candidate(NamedTuple):
    """An allocation that may be chosen."""

    allocation: Allocation
    transfer: Transfer
    """The same for all of one queue that have equal amounts."""


def candidates(within: Reach, guarantees: Guarantees, wanted: Resources, protected: Container[str]) -> list[Candidate]:
    """All of them: those that agreed to be preempted before others, originators last, of equals the newest first.

    `protected` are the paths of queues that lose nothing to this ask.
    """
    found: list[Candidate] = []
    for area in areas(within):
        queue = area.queue
        share = guarantees.share(queue)
        if queue.policies.preemption != "disabled" and not share.within() and queue.path not in protected:
            _collect(area, guarantees, wanted, found)
    found.sort(key=_reluctance)
    return found


def _collect(area: Area, guarantees: Guarantees, wanted: Resources, found: list[Candidate]) -> None:
    giver, highest = guarantees.share(area.queue), area.priority
    transfers: dict[Shape, Transfer] = {}
    for application in area.queue.applications.values():
        for allocation in application.allocations.values():
            if allocation.released or allocation.preempted or allocation.need.required_node:
                continue
            if (highest is not None and allocation.priority > highest) or wanted.keys().isdisjoint(
                allocation.resources
            ):
                continue
            shape = allocation.need.shape
            transfer = transfers.get(shape)
            if transfer is None:
                transfer = transfers[shape] = Transfer(giver, guarantees.taker, shape, wanted)
            found.append(Candidate(allocation, transfer))


def _reluctance(candidate: Candidate) -> tuple[bool, bool, int]:
    allocation = candidate.allocation
    return (not allocation.may_be_victim, allocation.originator, -allocation.created_ns)
