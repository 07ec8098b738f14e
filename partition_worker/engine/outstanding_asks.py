"""Asks that only a larger cluster would help: the RM is told of each once, so that it can add nodes.

An ask is one of them if it was tried in vain although its queues and its user would let it have what it asks for. The
size of the cluster does not count as a limit here. The RM hears of it a second after something changed, at the
earliest.

Asks of one group are the same to nodes and quotas, so they are looked at together, and an application that has nothing
to tell costs one comparison.

    1. Queues in the order in which they deserve something, then their applications, then the groups of their asks.
    2. As many of a group as still fit into what its queues and its user may have; the next groups of this application
       see what is left after them, told already or not.
    3. What is told newly is taken off the room that applications and queues after it see.

Not here: trying (`cycle/descent.py`), and what becomes of the message (`partition_worker/outgoing_messages.py`).
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from common.messages import Resources
from common.resources import Limit, add_to, is_positive, less, tighten
from common.rm_messages import SCHEDULING_FAILED, UpdateContainerSchedulingState
from common.wire import NEVER
from partition_worker.engine.allocation import Allocation, Standing
from partition_worker.engine.application import Application
from partition_worker.engine.ask_shapes import Amounts
from partition_worker.engine.queues.fair_share import queue_key
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.readiness import application_key
from partition_worker.engine.state import PartitionState

REPORT_EVERY_S: Final = 1.0

APPLICATIONS_MAX: Final = 500
"""Applications that are looked at in one call. If there are more with something to tell, the next call goes on."""

GROUPS_MAX: Final = 50
"""Groups of asks of one application that are looked at, the first ones in its order."""

TOLD_MAX: Final = 1000
"""Asks that the RM is told of in one call; the others follow a second later."""

REASON: Final = "request is waiting for cluster resources become available"


class OutstandingAsks:
    """When to look, in one partition."""

    def __init__(self) -> None:
        self.deadline = NEVER
        """When `report` has something to do, in Unix seconds."""
        self.seen = 0
        """Applications that were looked at before, by calls that had too many."""

    def expect(self, state: PartitionState) -> None:
        """Something may have changed: look a second later, if anything waits then."""
        if self.deadline == NEVER and is_positive(state.tree.root.pending):
            self.deadline = state.now + REPORT_EVERY_S

    def report(self, state: PartitionState) -> None:
        """Tell the RM of the asks that it has not been told of."""
        chosen = list(islice(_candidates(state), self.seen, self.seen + APPLICATIONS_MAX))
        look = _Look(state, chosen)
        look.below(state.tree.root, None)
        full = look.told >= TOLD_MAX
        self.seen = 0 if full or len(chosen) < APPLICATIONS_MAX else self.seen + APPLICATIONS_MAX
        self.deadline = state.now + REPORT_EVERY_S if full or self.seen else NEVER


def _candidates(state: PartitionState) -> Iterator[Application]:
    """Applications with asks that the RM has not been told of."""
    for leaf in state.tree:
        if leaf.leaf and is_positive(leaf.pending):
            for application in [state.applications[name] for name in leaf.applications]:
                if application.asks.told < len(application.asks):
                    yield application


class _Look:
    """One call: what it looks at, and how many asks it told of."""

    def __init__(self, state: PartitionState, applications: Iterable[Application]) -> None:
        self.told = 0
        self._books = state
        self._applications: dict[int, list[Application]] = {}
        """By the rank of the leaf."""
        self._on_the_way: dict[int, None] = {}
        """Ranks of the queues that lead to them."""
        for application in applications:
            self._applications.setdefault(application.queue.rank, []).append(application)
        for application, *_ in self._applications.values():
            self._on_the_way.update((level.rank, None) for level in application.queue.ancestry())

    def below(self, queue: Queue, room: Limit | None) -> Resources:
        """What was told of in this queue, which has this much room."""
        told: Resources = {}
        children = [one for one in queue.children.values() if one.rank in self._on_the_way and one.state != "Stopped"]
        for child in sorted(children, key=lambda one: (queue_key(one), one.rank)):
            own = None if child.maximum is None else less(child.maximum, child.allocated)
            add_to(told, self.below(child, tighten(own, _after(room, told))))
        applications = self._applications.get(queue.rank, [])
        for application in sorted(applications, key=lambda one: (application_key(one), one.rank)):
            if self.told >= TOLD_MAX:
                break
            add_to(told, self._of(application, _after(room, told)))
        return told

    def _of(self, application: Application, room: Limit | None) -> Resources:
        room = tighten(room, self._books.usage.account(application).headroom())
        told: Resources = {}
        for group in islice(application.asks.groups, GROUPS_MAX):
            if not group.attempted or group.kind.standing is Standing.HELD:
                continue
            amounts = group.shape.amounts
            fitting = _how_many(room, amounts, len(group.asks))
            if fitting and room is not None:
                room = less(room, _times(amounts, fitting))
            if group.told < fitting and not group.shape.required_node:
                news = [ask for ask in islice(group.asks, fitting) if not ask.scale_up_told][: TOLD_MAX - self.told]
                for ask in news:
                    self._tell(application, ask)
                add_to(told, _times(amounts, len(news)))
        return told

    def _tell(self, application: Application, ask: Allocation) -> None:
        application.asks.tell(ask)
        self.told += 1
        self._books.emit(
            UpdateContainerSchedulingState(
                application_id=application.application_id,
                allocation_key=ask.key,
                state=SCHEDULING_FAILED,
                reason=REASON,
            )
        )


def _how_many(room: Limit | None, amounts: Amounts, most: int) -> int:
    """How many times these amounts fit, up to a number."""
    if room is None:
        return most
    return min([most, *(max(0, room[kind]) // value for kind, value in amounts if value > 0 and kind in room)])


def _times(amounts: Amounts, count: int) -> Resources:
    return {kind: value * count for kind, value in amounts}


def _after(room: Limit | None, told: Resources) -> Limit | None:
    return less(room, told) if room is not None and told else room
