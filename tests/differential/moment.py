"""What both systems have decided by one record of a trace, and what the trace has asked for by then.

Not here: which decisions are meant to differ (`known.py`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import yaml

from tests.conformance.items import Item
from tests.conformance.state import Json
from tests.differential.shrinking import RECORDS

PREEMPTED: Final = " PREEMPTED_BY_SCHEDULER"
REQUIRED: Final = "yunikorn.apache.org/requiredNode"


@dataclass(frozen=True)
class Side:
    """What one system records, with the names of allocations and their nodes."""

    running: dict[str, str]
    """Nodes by the keys of the allocations."""
    reserved: dict[str, str]
    """Nodes by the keys of the asks that reserved them."""
    released: Counter[str]
    allocated: dict[str, dict[str, int]]
    """Amounts by queue."""
    capacity: dict[str, int]
    """That of the cluster."""
    sizes: dict[str, dict[str, int]]
    """The capacities of the nodes."""
    free: dict[str, dict[str, int]]
    """What is available on the nodes."""

    @property
    def preempted(self) -> Counter[str]:
        """The keys of all allocations that were preempted so far."""
        return Counter({one.removesuffix(PREEMPTED): n for one, n in self.released.items() if one.endswith(PREEMPTED)})


class Moment:
    """One record, of both systems."""

    def __init__(self, steps: list[Item], number: int, theirs: Json, mine: Json) -> None:
        """`theirs` and `mine` are the records up to this one, the last."""
        ends = [index for index, step in enumerate(steps) if next(iter(step)) in (*RECORDS, "documents")]
        self._steps = steps[: ends[number]]
        self.theirs, self.mine = _side(theirs[number]), _side(mine[number])
        earlier = [one for one in theirs[:number] if _has_placement(one)]
        self.sides = [self.theirs, *map(_side, earlier[-1:])]
        """What the reference records, and what both recorded before."""
        self.asks: dict[str, Item] = {}
        self.leaf_of: dict[str, str] = {}
        """Queues by application."""
        self.queues: dict[str, Item] = {}
        """As configured, by path."""
        for step in self._steps:
            [(name, body)] = step.items()
            self._read(name, body)

    def _read(self, name: str, body: Item) -> None:
        if name in ("register", "config"):
            [partition] = yaml.safe_load(body["config"])["partitions"]
            self.queues = {path: queue for queue in partition["queues"] for path, queue in _paths(queue, "")}
        elif name == "apps":
            self.leaf_of |= {app["id"]: app["queue"] for app in body.get("add", [])}
        elif name == "asks":
            own = [item for item in body["items"] if item["app"] in self.leaf_of]  # foreign allocations have none
            self.asks |= {item["key"]: {**self.asks.get(item["key"], {}), **item} for item in own}

    # Asks -----------------------------------------------------------------------------------------------------------

    def leaf(self, key: str) -> str:
        return self.leaf_of[self.asks[key]["app"]]

    def amounts(self, key: str) -> dict[str, int]:
        found: dict[str, int] = self.asks[key]["resources"]
        return found

    def required_node(self, key: str) -> str | None:
        found: str | None = self.asks[key].get("tags", {}).get(REQUIRED)
        return found

    def priority(self, key: str) -> int:
        found: int = self.asks[key].get("priority", 0)
        return found

    def total(self, keys: Iterable[str]) -> int:
        """The sum of all amounts of asks or allocations."""
        return sum(sum(self.amounts(key).values()) for key in keys)

    def may_lose(self, key: str) -> bool:
        """Whether the queue of an allocation has more than its guarantee."""
        remaining = self.remaining(self.theirs, self.leaf(key))
        return remaining is None or any(amount < 0 for amount in remaining.values())

    def lacks_room(self, key: str, side: Side) -> bool:
        """Whether a cluster has no room for an ask."""
        used = side.allocated["root"]
        return any(used.get(kind, 0) + n > side.capacity.get(kind, 0) for kind, n in self.amounts(key).items())

    def lacks_queue_room(self, key: str) -> bool:
        """Whether the cluster or a queue of the reference has no room for an ask."""
        wanted = self.amounts(key)
        for path in _ancestry(self.leaf(key)):
            most, used = self.queues[path].get("resources", {}).get("max", {}), self.theirs.allocated.get(path, {})
            if any(used.get(kind, 0) + wanted.get(kind, 0) > int(amount) for kind, amount in most.items()):
                return True
        return self.lacks_room(key, self.theirs)

    def is_large_enough(self, node: str, key: str) -> bool:
        return all(self.theirs.sizes[node].get(kind, 0) >= n for kind, n in self.amounts(key).items())

    def outranks(self, key: str, other: str) -> bool:
        """Whether an ask has a higher priority than another, as the lowest queue above both sees them."""
        seen = dict(self._priorities(other))
        return next(priority > seen[path] for path, priority in self._priorities(key) if path in seen)

    def _priorities(self, key: str) -> Iterator[tuple[str, int]]:
        """The priority of an ask as each queue on its path sees it, from the leaf up."""
        priority = self.asks[key].get("priority", 0)
        for path in _ancestry(self.leaf(key)):
            yield path, priority
            properties = self.queues[path].get("properties", {})
            offset = int(properties.get("priority.offset", 0))
            priority = offset if properties.get("priority.policy") == "fence" else priority + offset

    # Decisions ------------------------------------------------------------------------------------------------------

    def gained(self) -> dict[str, str]:
        """The nodes of the asks that only this system placed there, or reserved them for, by key."""
        running = {key: node for key, node in self.mine.running.items() if self.theirs.running.get(key) != node}
        theirs = self.theirs.reserved | self.theirs.running
        reserved = {key: node for key, node in self.mine.reserved.items() if theirs.get(key) != node}
        return {key: node for key, node in (reserved | running).items() if key in self.asks}

    def gained_or_lost(self) -> dict[str, str]:
        """The nodes of all asks that this system placed, or reserved them for, and the required nodes of the asks that
        only this system placed and that are gone, for example with their node.
        """
        left = [one.partition(" ")[0] for one in self.mine.released - self.theirs.released]
        required = {key: self.required_node(key) for key in left if key in self.asks}
        lost = {key: node for key, node in required.items() if node is not None}
        return lost | {k: n for k, n in (self.mine.reserved | self.mine.running).items() if k in self.asks}

    def candidates(self, key: str, node: str) -> list[str]:
        """The allocations on a node of the reference that an ask may preempt, in the order in which they are tried."""
        there = [one for one, other in self.theirs.running.items() if other == node and one in self.asks]
        others = [one for one in there if self.leaf(one) != self.leaf(key) and self.may_lose(one)]
        return sorted((one for one in others if not self.outranks(one, key)), key=self._turn)

    def _turn(self, key: str) -> tuple[bool, bool, int]:
        """The place of a candidate: by class, then the newest first."""
        ask = self.asks[key]
        created = int(ask.get("tags", {}).get("creationTime", 0))
        return not ask.get("preemptSelf", False), ask.get("originator", False), -created

    def ran_on(self, key: str, node: str) -> bool:
        """Whether an allocation runs on a node in the reference, now or at the record before."""
        return any(side.running.get(key) == node for side in self.sides)

    def reserved_for(self, node: str) -> set[str]:
        """The asks that the reference reserves a node for, now or at the record before, and has not placed there."""
        found = {
            key for side in self.sides for key, other in side.reserved.items() if other == node and key in self.asks
        }
        return {key for key in found if self.theirs.running.get(key) != node}

    def remaining(self, side: Side, leaf: str) -> dict[str, int] | None:
        """What remains of the guarantee of a leaf, or of the first queue above it with one; None without any."""
        for path in _ancestry(leaf):
            guaranteed = self.queues[path].get("resources", {}).get("guaranteed")
            if guaranteed:
                used = side.allocated.get(path, {})
                return {kind: int(amount) - used.get(kind, 0) for kind, amount in guaranteed.items()}
        return None

    def remaining_for(self, key: str) -> dict[str, int] | None:
        """What remains of a guarantee in the reference for an ask, which it may have placed on another node."""
        remaining = self.remaining(self.theirs, self.leaf(key))
        own = self.amounts(key) if key in self.theirs.running else {}
        return None if remaining is None else {kind: n + own.get(kind, 0) for kind, n in remaining.items()}


def moment_of(steps: list[Item], number: int, theirs: Json, mine: Json) -> Moment | None:
    """The moment of a record; None if it does not name allocations."""
    is_named = all(_has_placement(record) for record in (theirs[number], mine[number]))
    return Moment(steps, number, theirs[: number + 1], mine[: number + 1]) if is_named else None


def _has_placement(record: Json) -> bool:
    if "rms" not in record or "rm-1" not in record["rms"]:
        return False
    return all(isinstance(node, str) for node in record["rms"]["rm-1"]["running"].values())


def _side(record: Json) -> Side:
    partition, manager = record["partitions"]["default"], record["rms"]["rm-1"]
    nodes = partition.get("nodes", {})
    return Side(
        running=manager["running"],
        reserved={key: name for name, node in nodes.items() for key in node["reservations"]},
        released=Counter(manager["released"]),
        allocated={path: queue["allocated"] for path, queue in partition["queues"].items()},
        capacity=partition["capacity"] or {},
        sizes={name: node["capacity"] for name, node in nodes.items()},
        free={name: node["available"] for name, node in nodes.items()},
    )


def _paths(queue: Item, above: str) -> Iterator[tuple[str, Item]]:
    path = f"{above}{queue['name']}"
    yield path, queue
    for child in queue.get("queues", []):
        yield from _paths(child, f"{path}.")


def _ancestry(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition(".")[0]
