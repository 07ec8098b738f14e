"""Victim candidates: how far an ask may reach for victims (fences), and which allocations in reach are unprotected.

A partition may have thousands of candidates, so each one is checked once; the guarantee of a queue is computed once
for all its allocations. `victim_choice.py` decides which of them help.
"""

from collections.abc import Container, Iterator, Mapping
from itertools import chain
from math import inf
from typing import NamedTuple

from common.messages import Resources
from common.resources import Limit, plus, tighten
from partition_worker.engine.allocation import Allocation
from partition_worker.engine.application import Application
from partition_worker.engine.preemption.guarantees import Giver, Guarantees, Share
from partition_worker.engine.queues.queue import Queue


class Reach(NamedTuple):
    """Victims are looked for below the fence."""

    fence: Queue
    priorities: dict[Queue, int]
    """The priority of the ask at the queues from its own up to the fence. Not cut to 32 bits: offsets add up."""


class Area(NamedTuple):
    """A queue within reach whose own allocations may go."""

    queue: Queue
    priority: int | None
    """The highest that a victim in it may have; None if any may go."""


def reach_of(leaf: Queue, wanted: Resources, priority: int) -> Reach:
    """The lowest queue on the way up from which on only victims below it help: the first that would have more than its
    maximum, that is a fence by its policy, or the root.
    """
    tightest = _tightest(leaf)
    priorities: dict[Queue, int] = {}
    queue = leaf
    while True:
        policies = queue.policies
        priority = policies.priority_offset if policies.priority_fence else priority + policies.priority_offset
        priorities[queue] = priority
        full = not _covers(tightest[queue], plus(queue.allocated, wanted))
        if queue.parent is None or policies.preemption == "fence" or full:
            return Reach(queue, priorities)
        queue = queue.parent


def areas(within: Reach) -> Iterator[Area]:
    """The queues below the fence where an ask may look for victims, in the order of the tree; never its own."""
    (leaf, *_), fence = within.priorities, within.fence
    pending = [(fence, within.priorities[fence], False)]
    while pending:
        queue, priority, anyone = pending.pop()
        if queue.applications and queue is not leaf:
            yield Area(queue, None if anyone else priority)
        below: list[tuple[Queue, int, bool]] = []
        for child in queue.children.values():
            own, policies = within.priorities.get(child), child.policies
            if own is not None:  # against what is beside it there, the ask also has the offsets of the queues above
                below.append((child, own, anyone))
            elif not policies.priority_fence:
                below.append((child, priority - policies.priority_offset, anyone))
            elif policies.priority_offset <= priority:
                below.append((child, priority, True))
        pending.extend(reversed(below))


def _tightest(leaf: Queue) -> dict[Queue, Limit | None]:
    """For each queue on the way up the maximum that it has by itself and by those above it."""
    tightest: dict[Queue, Limit | None] = {}
    limit: Limit | None = None
    for queue in reversed(list(leaf.ancestry())):
        limit = tightest[queue] = tighten(limit, queue.maximum)
    return tightest


def _covers(limit: Limit | None, amount: Resources) -> bool:
    return not limit or all(limit.get(kind, value) >= value for kind, value in amount.items())


Candidate = tuple[Allocation, Giver]
"""An allocation that may be chosen, and whoever would give it."""

_Grades = tuple[list[Candidate], list[Candidate], list[Candidate], list[Candidate]]
"""Those who agreed to be preempted, originators who did, others, originators among those."""


def find_victim_candidates(
    applications: Mapping[str, Application],
    within: Reach,
    guarantees: Guarantees,
    wanted: Resources,
    protected: Container[str],
) -> list[Candidate]:
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
            _collect(applications, area, giver, wanted, grades)
    for grade in grades:
        grade.sort(key=_created_ns, reverse=True)
    return list(chain.from_iterable(grades))


def _collect(
    applications: Mapping[str, Application], area: Area, giver: Giver, wanted: Resources, grades: _Grades
) -> None:
    highest, kinds = inf if area.priority is None else area.priority, wanted.keys()
    shape, counts = None, False
    for application_id in area.queue.applications:
        for one in applications[application_id].allocations.values():
            if one.released or one.preempted or one.priority > highest:
                continue
            if one.shape is not shape:  # those that come one after the other often have the same
                shape = one.shape
                counts = not shape.required_node and not kinds.isdisjoint(one.resources)
            if counts:
                grades[2 * (not one.may_be_victim) + one.originator].append((one, giver))


def _created_ns(candidate: Candidate) -> int:
    return candidate[0].created_ns
