"""Who might have to go for an ask: the allocations within its reach that nothing protects, the best ones first.

There may be thousands, so each costs a look and no more: what is asked about guarantees is the same for all of a queue.

Not here: whether it helps if they go (`nodes.py`, `guaranteed.py`), who is protected for a while because their queue
took from that of the ask (`truces.py`).
"""

from collections.abc import Container
from itertools import chain
from math import inf

from common.messages import Resources
from partition_worker.engine.applications.allocation import Allocation
from partition_worker.engine.preemption.fence import Area, Reach, areas
from partition_worker.engine.preemption.guarantees import Giver, Guarantees, Share

Candidate = tuple[Allocation, Giver]
"""An allocation that may be chosen, and whoever would give it."""

_Grades = tuple[list[Candidate], list[Candidate], list[Candidate], list[Candidate]]
"""Those who agreed to be preempted, originators who did, others, originators among those."""


def candidates(within: Reach, guarantees: Guarantees, wanted: Resources, protected: Container[str]) -> list[Candidate]:
    """All of them: those that agreed to be preempted before others, originators last, of equals the newest first.

    `protected` are the paths of queues that lose nothing to this ask.
    """
    grades: _Grades = ([], [], [], [])
    givers: dict[Share, Giver | None] = {}
    for area in areas(within):
        queue = area.queue
        if queue.policies.preemption == "disabled" or queue.path in protected:
            continue
        share = guarantees.share(queue)
        if share not in givers:
            givers[share] = None if share.within() else Giver(share, guarantees.taker, wanted)
        giver = givers[share]
        if giver is not None:
            _collect(area, giver, wanted, grades)
    for grade in grades:
        grade.sort(key=_created_ns, reverse=True)
    return list(chain.from_iterable(grades))


def _collect(area: Area, giver: Giver, wanted: Resources, grades: _Grades) -> None:
    highest, kinds = inf if area.priority is None else area.priority, wanted.keys()
    need, counts = None, False
    for application in area.queue.applications.values():
        for one in application.allocations.values():
            if one.released or one.preempted or one.priority > highest:
                continue
            if one.need is not need:  # those that come one after the other often have the same
                need = one.need
                counts = not need.required_node and not kinds.isdisjoint(one.resources)
            if counts:
                grades[2 * (not one.may_be_victim) + one.originator].append((one, giver))


def _created_ns(candidate: Candidate) -> int:
    return candidate[0].created_ns
