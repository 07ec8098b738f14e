"""The samples of each queue, and the usage of each node, kept for as long as they are what they were.

Thousands of queues and nodes are told of every few seconds, and most are as they were the last time. To look through
all of them takes a tenth of a second, in which a worker does nothing else; to see what has changed a fraction of that.

Not here: the families that these are samples of (`figures.py`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from common.families import Sample, piece
from partition_worker.engine.application import Application
from partition_worker.engine.application_states import AppState
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.nodes.nodes import Fleet
from partition_worker.engine.queues.queue import Queue

_LIVE: Final = (
    AppState.NEW,
    AppState.ACCEPTED,
    AppState.STARTING,
    AppState.RUNNING,
    AppState.RESUMING,
    AppState.FAILING,
    AppState.COMPLETING,
)
ENDED: Final = (AppState.COMPLETED, AppState.FAILED, AppState.REJECTED)

RANGES: Final = ("[0,10%]", *(f"({tens}0%,{tens + 1}0%]" for tens in range(1, 10)))


class _Known:
    """What a queue has, as it was, and its samples, encoded."""

    __slots__ = ("_amounts", "_settings", "piece")

    def __init__(self, queue: Queue) -> None:
        self._amounts = dict(queue.allocated), dict(queue.pending), dict(queue.preempting)
        self._settings = _settings(queue)
        self.piece = piece(list(_resources_of(queue)))

    def holds(self, queue: Queue) -> bool:
        """Whether everything that the samples are made of is still so."""
        allocated, pending, preempting = self._amounts
        return (
            queue.pending == pending
            and queue.allocated == allocated
            and queue.preempting == preempting
            and _settings(queue) == self._settings
        )


def _settings(queue: Queue) -> tuple[object, ...]:
    """What only another configuration changes, or more nodes; limits are replaced as a whole then."""
    return (
        queue.guaranteed,
        queue.maximum,
        len(queue.once_guaranteed),
        len(queue.once_limited),
        _has_application_limit(queue),
        queue.max_applications,
    )


class _KnownApplications:
    """The same of the applications of a queue. One that enters a state is counted, so none has to be looked at."""

    __slots__ = ("_ids", "_reached", "piece")

    def __init__(self, queue: Queue, alive: Mapping[str, Application]) -> None:
        self._ids = list(queue.applications)
        self._reached = dict(queue.reached)
        self.piece = piece(list(_applications_of(queue, alive)))

    def holds(self, queue: Queue) -> bool:
        """Whether everything that the samples are made of is still so."""
        return list(queue.applications) == self._ids and dict(queue.reached) == self._reached


class Memo:
    """What was told of each queue and node the last time. Most are as they were, and are not looked through again: of
    thousands that takes a tenth of a second, in which nothing else is done.
    """

    def __init__(self) -> None:
        self._queues: dict[Queue, _Known] = {}
        self._applications: dict[Queue, _KnownApplications] = {}
        self._nodes: dict[Node, tuple[int, list[tuple[str, int]]]] = {}
        self._ranges: dict[str, list[int]] = defaultdict(lambda: [0] * len(RANGES))

    def resources(self, queues: Iterable[Queue]) -> list[bytes]:
        """The samples of each queue's resources, encoded."""
        before, self._queues = self._queues, {}
        for queue in queues:
            known = before.get(queue)
            self._queues[queue] = known if known is not None and known.holds(queue) else _Known(queue)
        return [known.piece for known in self._queues.values()]

    def applications(self, queues: Iterable[Queue], alive: Mapping[str, Application]) -> list[bytes]:
        """The samples of each queue's applications, encoded."""
        before, self._applications = self._applications, {}
        for queue in queues:
            known = before.get(queue)
            kept = known is not None and known.holds(queue)
            self._applications[queue] = known if known is not None and kept else _KnownApplications(queue, alive)
        return [known.piece for known in self._applications.values()]

    def ranges(self, nodes: Fleet) -> dict[str, list[int]]:
        """By type, how many nodes use how much of it; of types that no node has any more, none."""
        for node in nodes:
            known = self._nodes.get(node)
            if known is None or known[0] != node.version:
                used = node.allocated
                of_types = [(kind, _range(used.get(kind, 0), n)) for kind, n in node.capacity.items()]
                self._count([] if known is None else known[1], -1)
                self._count(of_types, 1)
                self._nodes[node] = node.version, of_types
        if len(self._nodes) > len(nodes):
            here = dict.fromkeys(nodes)
            for gone in [node for node in self._nodes if node not in here]:
                self._count(self._nodes.pop(gone)[1], -1)
        return {kind: counts for kind, counts in self._ranges.items() if any(counts)}

    def _count(self, of_types: Iterable[tuple[str, int]], more: int) -> None:
        for kind, place in of_types:
            self._ranges[kind][place] += more


def _applications_of(queue: Queue, alive: Mapping[str, Application]) -> Iterator[Sample]:
    reached = queue.reached
    if not reached and not queue.applications:  # those that were moved here entered their states elsewhere
        return
    now = Counter([alive[name].state for name in queue.applications])
    now[AppState.NEW] -= reached[AppState.REJECTED]
    for state in _LIVE:
        if reached[state] or now[state]:
            yield (queue.path, state.lower()), now[state]
    for state in ENDED:
        if reached[state]:
            yield (queue.path, state.lower()), reached[state]


def _resources_of(queue: Queue) -> Iterator[Sample]:
    for state, amounts in (
        ("guaranteed", {**dict.fromkeys(queue.once_guaranteed, 0), **(queue.guaranteed or {})}),
        ("max", {**dict.fromkeys(queue.once_limited, 0), **(queue.maximum or {})}),
        ("allocated", queue.allocated),
        ("pending", queue.pending),
        ("preempting", queue.preempting),
    ):
        for kind, amount in sorted(amounts.items()):
            yield (queue.path, state, kind), amount
    if _has_application_limit(queue):
        yield (queue.path, "maxRunningApps", "apps"), queue.max_applications


def _has_application_limit(queue: Queue) -> bool:
    """Whether somebody could say how many applications may run here, if only that any number may: the configuration,
    or the template that a dynamic leaf was made from.
    """
    if queue.managed or queue.max_applications:
        return True
    return queue.leaf and queue.parent is not None and queue.parent.template is not None


def _range(allocated: int, capacity: int) -> int:
    """The index of the range; the upper bound belongs to it, and more than everything is everything."""
    return min(max(-(-allocated * 10 // capacity) - 1, 0), len(RANGES) - 1)
