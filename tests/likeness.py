"""Whether two partitions are alike in everything that they know, field by field; what may differ is named here.

So a field that is added to the engine and not to its memory is found. Not here: whether they do the same (`twins.py`).
"""

from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from typing import Final

import msgspec

from partition_worker.engine.allocation import SortedAsks
from partition_worker.engine.nodes.node_index import NodeIndex
from partition_worker.engine.order import Order
from partition_worker.engine.partition import Partition
from partition_worker.engine.state import Timers
from partition_worker.engine.unschedulable_asks import ClosedBuckets
from partition_worker.engine.user_resolution import User

FORGOTTEN: Final = frozenset(
    {
        *("Twins.other", "Twins.restorations", "Twins.auditor", "Twins._events", "Twins.placement"),
        *("Nodes._derived", "Nodes._costs", "Nodes._large_nodes", "Predicates.refused"),
        *("Predicates._cache", "Predicates.in_vain", "Predicates.complaints"),
        *("Verdicts.known", "Verdicts.requested", "Verdicts.question", "Verdicts.late", "Node.version"),
        *(
            "PendingAsks._last",
            "UnschedulableAsks.buckets_of",
            "WaitBucket.limits",
        ),
        "UnschedulableAsks.is_trying",
        *("Usage._record", "Predicates._predicates", "Predicates.plugins"),
        *("Twins.decided", "Preemptions.made", "Preemptions.victims", "Preemptions.held_back"),
        *("Verdicts.questions", "Verdicts.answers", "Verdicts.unanswered"),
        *("Twins.removed", "Twins.plan", "Twins.changes"),
    }
)
"""What makes a search short, what follows from the configuration or from who lies on a shelf, and verdicts, which name
nodes as they were; what a process counts since it began; and what is kept for a history that has read it long since.
"""

UNORDERED: Final = frozenset(
    {
        *("Twins.allocations", "Twins.foreign", "Tally._counts", "PendingAsks._created", "Tracker.accounts"),
        *("PreemptionCooldowns._by_loser", "Nodes.packs", "Readiness.ready", "Application.alarms", "PackIndex.counts"),
    }
)
"""Nobody goes through these in their order."""

_PLAIN = (str, bytes, int, float, bool, type(None), frozenset, User, msgspec.Struct)


def differences(left: Partition, right: Partition) -> Iterator[str]:
    """In what they are not alike, with the way to it."""
    seen: dict[int, tuple[object, object]] = {}
    todo: deque[tuple[object, object, str]] = deque([(left, right, "partition")])
    while todo:
        mine, other, where = todo.popleft()
        if isinstance(mine, _PLAIN):
            if mine != other:
                yield f"{where}: {mine!r}, {other!r}"
        elif id(mine) in seen:
            if seen[id(mine)][1] is not other and not isinstance(mine, Mapping | tuple):
                yield f"{where}: another {type(mine).__name__}"
        else:
            seen[id(mine)] = mine, other
            parts, others = dict(_parts(mine)), dict(_parts(other))
            if list(parts) == list(others):
                todo.extend((part, others[name], f"{where}.{name}") for name, part in parts.items())
            elif not (where.startswith("partition.ended") and where.endswith("fair_maximum")):  # its queue is gone
                yield f"{where}: {list(parts)}, {list(others)}"


def _parts(thing: object) -> Iterator[tuple[Hashable, object]]:
    match thing:
        case Order():
            yield from enumerate(thing.entries())
        case SortedAsks():
            yield from enumerate(thing)
        case NodeIndex():
            yield "places", dict(sorted(thing._keys.items()))
            yield "order", list(thing)
        case ClosedBuckets():
            yield "ranks", thing.ranks
            yield from ((rank, dict(sorted(shelves.items()))) for rank, shelves in sorted(thing.by_usage.items()))
        case Timers():
            yield "entries", [(one.at, one.rank, one.alarm, one.application) for one in thing]
            yield "last", thing.last
        case Mapping():
            yield from ((key, part) for key, part in thing.items() if not (isinstance(part, Order) and not len(part)))
        case list() | tuple() | deque():
            yield from enumerate(thing)
        case _:
            yield from _fields(thing)


def _fields(thing: object) -> Iterator[tuple[Hashable, object]]:
    kind = "Twins" if isinstance(thing, Partition) else type(thing).__name__
    names = [name for base in reversed(type(thing).__mro__) for name in getattr(base, "__slots__", ())]
    for name in (*names, *getattr(thing, "__dict__", ())):
        path = f"{kind}.{name}"
        if path not in FORGOTTEN and hasattr(thing, name):
            part = getattr(thing, name)
            yield name, dict(sorted(part.items(), key=lambda item: repr(item[0]))) if path in UNORDERED else part
