"""What queues lack of what is guaranteed to them because it was taken from them: so far did preemptions push them below
their guarantees.

An ask may be entitled to victims for two reasons: its queue was pushed below its guarantee, or it has less for a reason
of its own, such as that its work ended and begins again. Only the former can go on for ever (`truces.py`).

Counted is, for each queue that guarantees something, by how much others made it fall short when they took from it or
below it, and no more than it fell short then: what it has won back, or had in excess, is no setback.

Not here: who takes from whom (`preemption/`).
"""

from collections.abc import Iterable

from common.messages import Resources
from common.resources import add_to, pruned
from partition_worker.engine.applications.allocation import Allocation
from partition_worker.engine.queues.queue import Queue


def suffer(victims: Iterable[Allocation]) -> None:
    """These are about to be taken from their queues, and are not marked yet."""
    taken: dict[Queue, Resources] = {}
    for victim in victims:
        assert victim.application is not None, victim.key
        for level in victim.application.queue.ancestry():
            if level.guaranteed:
                add_to(taken.setdefault(level, {}), victim.resources)
    for level, amounts in taken.items():
        lacking: Resources = {}
        for kind, room in _room(level).items():
            amount = amounts.get(kind, 0)
            lacking[kind] = max(0, min(level.lacking.get(kind, 0), room) + amount)
        level.lacking = pruned(lacking)


def explain(leaf: Queue, wanted: Resources) -> bool:
    """Whether an ask for this would not fit what is guaranteed to its queue, had nothing been taken from it."""
    fits_somewhere = False
    for level in leaf.ancestry():
        for kind, room in _room(level).items():
            if amount := wanted.get(kind, 0):
                lacking = level.lacking.get(kind, 0)
                fits = amount <= room - lacking
                if lacking and not fits:
                    return True
                fits_somewhere = fits_somewhere or fits
    return not fits_somewhere


def _room(level: Queue) -> Resources:
    """What is left of the guarantee of a queue; what was asked back already counts as gone."""
    allocated, preempting = level.allocated, level.preempting
    return {
        kind: most - allocated.get(kind, 0) + preempting.get(kind, 0) for kind, most in (level.guaranteed or {}).items()
    }
