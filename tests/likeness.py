"""Whether a recovered partition is like the one that was recorded, field by field; the fields that may differ are named
here. A field that is added to the engine, and is neither recorded nor derived, is found.
"""

from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from typing import Final

import msgspec

from yunishard.common.config.acl import Acl
from yunishard.common.resources import drop_zeros
from yunishard.partition_worker.engine.allocation import AskGroup, AskShape
from yunishard.partition_worker.engine.amounts import Amounts, name_types
from yunishard.partition_worker.engine.application import ENDED, Application
from yunishard.partition_worker.engine.durable_records import Template
from yunishard.partition_worker.engine.nodes.node_index import NodeIndex
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.queues.queue import Policies
from yunishard.partition_worker.engine.sorted_items import Order, SortedItems
from yunishard.partition_worker.engine.state import Timers
from yunishard.partition_worker.engine.user_limits import Trackers, Usage
from yunishard.partition_worker.engine.user_resolution import User

LOST: Final = frozenset(
    {
        # the step in progress, and what only the process that runs it has
        *("Partition.image", "Partition.restorations", "Partition.changes", "Partition._events", "Partition._effects"),
        *("Partition.auditor", "Partition.tracking", "Partition.plan", "Partition.idle", "Partition.step_number"),
        "Partition.work_of_step",
        # counters since the process started, and the latest removed applications, for the history collector
        *("Partition.counters", "Partition.decided", "Partition.removed", "Queue.reached", "Queue.bound"),
        "Queue.last_bound_ns",  # also of allocations that have ended
        *("Queue.released", "Preemptions.made", "Preemptions.victims", "Preemptions.held_back", "Predicates.refused"),
        # failed attempts and their pauses: all asks count as not tried
        *("AskGroup.attempted", "AskGroup.log", "Queue.preemption_window"),
        *("Queue.preemption_attempts", "Queue.preemption_tried", "Preemptions.pause_until"),
        *("Preemptions.paused_for", "Preemptions.turned_away"),
        *("Partition.readiness", "SwapCandidates.checked_round", "SwapCandidates.parked", "SwapCandidates.offered"),
        *("ReservationIndex.checked_round", "ReservationIndex.candidates", "ReservationIndex.has_candidates"),
        *("ReservationIndex.grown", "ReservationIndex.charged", "ReservationIndex.has_new_limits"),
        *("ReservationIndex.share_max", "Application.reserves_anew_at"),
        *("Queue.ready_children", "Queue.ready_applications", "Predicates.in_vain"),
        # verdicts of the RM, which it is asked for again
        "Predicates.verdicts",
        # events and log lines that are repeated at most once
        *("Allocation.unschedulable_told_at", "Allocation.lacks_queue_room"),
        *("Allocation.lacks_quota", "Application.held_by_queue", "Application.held_by_quota"),
        *("Queue.draining_told_ns", "Predicates.complained", "Predicates.complaints"),
        "Queue.reported_excess",
        # metric series of resource types that a queue no longer names
        *("Queue.once_limited", "Queue.once_guaranteed"),
        # caches, and figures that make a search short
        *(
            "Users.learned",
            "PendingSubmissions._last_number",
            "Nodes.indexes",
            "Nodes.reserved",
            "Nodes._derived",
            "Nodes._costs",
            "Nodes._large_nodes",
            "Nodes.packs",
            "Application.pack",
        ),
        *("AskGroup._asks", "AskGroup._first", "PendingAsks._amounts", "PendingAsks._recent", "Queue._entitlements"),
        *(f"{kind}.key_{part}" for kind in ("AskGroup", "Application", "Queue") for part in range(1, 6)),
        *(f"{kind}.{name}" for kind in ("AskGroup", "Application", "Queue") for name in ("is_sorted", "is_touched")),
        *(
            "Queue.allocated_types",
            "Queue.pending_types",
            "Queue.is_parked",
            "PendingAsks._amounts",
            "Application.account",
            "Application.has_changed_asks",
            "Nodes.index",
            "Partition.now_ns",
        ),
        *("Node.version", "Predicates.table", "PendingAsks._last", "Nodes.ever_guarded"),
        # orders that follow from the order of start or from scores at another time
        *("QueueUsage.rank", "Ranks.last", "Timer.rank", "Timers.last", "Partition.latest_stamp_ns"),
        *("Partition.application_ranks", "Nodes.ranks", "ReservationIndex.ranks", "PendingAsks.lowest_rank"),
        *("PendingAsks.highest_rank", "Tree.next_rank", "NodeIndex._keys"),
        # timers that are started again
        *("Partition.cleanup_at", "Partition.quota_check_at", "Partition.outstanding"),
        # users that use nothing, and accounts that a report of outstanding asks has not counted
        *("Usage.idle", "Usage.opened"),
        # a report that is not complete: the RM reports again
        "Partition.report",
        # it follows from the configuration
        "Partition.placement",
    }
)
"""What may differ."""

ORDERED: Final = frozenset(
    {
        *("Partition.ended", "Partition.rejections", "PendingSubmissions.submissions", "PendingSubmissions.updates"),
    }
)
"""Dictionaries in which the order counts."""

_PLAIN = (
    *(str, bytes, int, float, bool, type(None), frozenset),
    *(Acl, Amounts, AskShape, Policies, Template, User, msgspec.Struct),
)


def differences(left: Partition, right: Partition) -> Iterator[str]:
    """The fields in which they differ, with the way to each."""
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
            if parts.keys() == others.keys():
                todo.extend((part, others[name], f"{where}.{name}") for name, part in parts.items())
            else:
                yield f"{where}: {list(parts)}, {list(others)}"


def _parts(thing: object) -> Iterator[tuple[Hashable, object]]:
    match thing:
        case Order() | SortedItems():
            yield from enumerate(thing)
        case Application():
            for name, part in _fields(thing):
                has_gone = name == "queue" and thing.state in ENDED  # its queue may have gone
                yield name, thing.queue.path if has_gone else part
        case AskGroup():
            yield "asks", list(thing)
            yield from _fields(thing)
        case NodeIndex():
            yield "nodes", {node.node_id: node for node in thing}
        case Timers():
            found = sorted((one.at, one.application.rank, one.alarm) for one in thing if one.alarm != "look")
            yield "entries", found
        case Usage():
            yield "users", _used(thing.users)
            yield "groups", _used(thing.groups)
            for rank, one in thing.accounts.items():
                if one.counted or one.application.allocations:
                    yield rank, (one.application, one.group_name, one.counted)
        case Mapping():
            yield from ((key, part) for key, part in thing.items() if part != 0 or isinstance(part, bool))
        case list() | tuple() | deque():
            yield from enumerate(thing)
        case _:
            yield from _fields(thing)


def _fields(thing: object) -> Iterator[tuple[Hashable, object]]:
    kind = "Partition" if isinstance(thing, Partition) else type(thing).__name__
    names = [name for base in reversed(type(thing).__mro__) for name in getattr(base, "__slots__", ())]
    for name in (*names, *getattr(thing, "__dict__", ())):
        path = f"{kind}.{name}"
        if path in LOST or not hasattr(thing, name):
            continue
        part = getattr(thing, name)
        if path == "Application.alarms":
            part = {alarm: timer for alarm, timer in part.items() if alarm != "look"}
        yield name, name_types(part) if name.endswith("_sum") else part
        if path == "PreemptionCooldowns.wins":
            yield "times in order", [win.at for win in part.values()]
        if path in ORDERED:
            yield f"{name} in order", list(part)


def _used(trackers: Trackers) -> dict[str, object]:
    """What each user or group uses in each queue."""
    return {
        f"{name} in {path}": (drop_zeros(level.used), sorted(level.applications), level.allowance)
        for name, tracker in trackers.by_name.items()
        for path, level in tracker.levels.items()
        if any(level.used.values()) or level.applications
    }
