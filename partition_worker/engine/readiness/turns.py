"""Leaves whose order is aware of states: one application at a time begins to run, so that a new one shows what it
needs before the next one begins.

Those that run already are served in the order of their submission, as in any leaf with `fifo`. Of those that wait to
begin one has its turn, and only while nobody is Starting, whether or not that one still asks for something. It is the
first of those that are Accepted and ask: one that got something already (a placeholder, or a node that is kept for
it) before all others, so that two gangs cannot hold each other up, and then in the leaf's order. The turn passes on
when

    * the last one that is Starting enters another state or leaves (an allocation more, five minutes, a kill, ...),
    * the one that had the turn is no longer Accepted, asks for nothing any more, or leaves,
    * another one comes to stand before it.

A look at it costs O(log n) in the applications of the leaf.

Not here: the order itself (`engine/readiness/readiness.py`), what Starting means (`engine/lifecycle.py`).
"""

from dataclasses import dataclass, field

from common.resources import is_positive
from partition_worker.engine.applications.application import Application
from partition_worker.engine.applications.states import AppState
from partition_worker.engine.order import Key, Order
from partition_worker.engine.queues.queue import Queue


@dataclass(slots=True, eq=False)
class Line:
    """Of one leaf, who begins to run and who waits for that."""

    starting: dict[int, Application] = field(default_factory=dict)
    """By rank. Normally one; more only when an RM reports what runs already, or they were moved here."""
    accepted: Order[Application] = field(default_factory=Order)
    """Those that ask for something."""
    turn: Application | None = None


class Turns:
    """Whose turn it is to begin, in every leaf of a partition that is aware of states."""

    def __init__(self) -> None:
        self.lines: dict[int, Line] = {}  # by the rank of the leaf

    def has(self, application: Application) -> bool:
        """Whether an application of such a leaf may be given something: it has begun, or it is its turn."""
        if application.state is not AppState.ACCEPTED:
            return True
        line = self.lines.get(application.queue.rank)
        return line is not None and line.turn is application

    def changed(self, application: Application, key: Key) -> list[Application]:
        """Its state, its place in the leaf or what it asks for may be another; whose turn has come or gone thereby."""
        leaf, rank = application.queue, application.rank
        line = self.lines.get(leaf.rank)
        if line is None:
            line = self.lines[leaf.rank] = Line()
        if application.state is AppState.STARTING:
            line.starting[rank] = application
        else:
            line.starting.pop(rank, None)
        if application.state is AppState.ACCEPTED and is_positive(application.pending):
            line.accepted.put(application, (application.application_id not in leaf.allocating, *key))
        else:
            line.accepted.drop(application)
        return self._passed_on(leaf, line)

    def left(self, application: Application) -> list[Application]:
        """It is gone from its leaf; whose turn has come or gone thereby."""
        line = self.lines.get(application.queue.rank)
        if line is None:
            return []
        line.starting.pop(application.rank, None)
        line.accepted.drop(application)
        return [one for one in self._passed_on(application.queue, line) if one is not application]

    def dissolve(self, queue: Queue) -> None:
        """Nothing is known of this queue any more: it is gone, or all of its applications are looked at again."""
        self.lines.pop(queue.rank, None)

    def _passed_on(self, leaf: Queue, line: Line) -> list[Application]:
        before, line.turn = line.turn, None if line.starting else line.accepted.first()
        if not line.starting and not len(line.accepted):
            del self.lines[leaf.rank]
        return [one for one in (before, line.turn) if one is not None] if before is not line.turn else []
