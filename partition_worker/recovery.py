"""A worker's state again from what its journal has: a snapshot, and the steps since, each played once more.

Not here: files (`journal/`), what a snapshot contains (`remembered.py`), what follows a recovery (`worker.py`).
"""

from collections.abc import Iterable

from common.journal_messages import TICK, Step
from common.machine import Delivery
from partition_worker import remembered
from partition_worker.recorder import Diverged
from partition_worker.replica import Replica


def recover(replica: Replica, snapshot: bytes | None, steps: Iterable[Step]) -> int:
    """Let an empty replica be as the one was that wrote this; the number of the last step, 0 if there was nothing.

    Raises:
        Diverged: the steps do not follow each other, or did not lead to what they say was told.
        remembered.RememberedWronglyError: the snapshot cannot be read.
    """
    last = 0 if snapshot is None else remembered.restore(replica, snapshot)
    for step in steps:
        if last and step.number != last + 1:
            raise Diverged(f"step {step.number} comes after step {last}")
        _play(replica, step)
        last = step.number
    replica.began_from = None
    return last


def _play(replica: Replica, step: Step) -> None:
    """Let a step have its effect once more."""
    replica.lane.outbox.acknowledge(step.acknowledged)
    if step.header.kind != TICK:
        replica.take(Delivery(step.source, step.header, step.body), step.at)
    elif replica.partition is None:
        raise Diverged(f"in step {step.number} time passes in a partition that has not begun")
    else:
        replica.pass_by(step.at, step.budget)
    if replica.lane.taken() != step.told:
        raise Diverged(
            f"step {step.number} ({step.header.kind}) leads to other words than it did: "
            "another release or other settings wrote it, or it is damaged"
        )
