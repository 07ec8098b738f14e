"""Shared values of the snapshot codec: references between objects, and integers beyond 64 bits.

A requested amount has 64 bits, but sums of amounts, and sort keys made of sums, may have more. MessagePack has no such
integers, so they are encoded as text.
"""

from collections.abc import Mapping

from common.messages import INT64_MAX, INT64_MIN, Resources
from partition_worker.engine.allocation import Allocation
from partition_worker.engine.application import Application
from partition_worker.engine.ask_shapes import AskShape, Constraint
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.order import Key
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.snapshot.format import NO_RANK, EncodedAmounts, EncodedSortKey, NeedSnapshot
from partition_worker.engine.usage_trackers import QueueUsage
from partition_worker.engine.user_resolution import User


def encode_amounts(amounts: Mapping[str, int]) -> EncodedAmounts:
    """Encode summed amounts."""
    for n in amounts.values():
        if not INT64_MIN <= n <= INT64_MAX:
            return {kind: n if INT64_MIN <= n <= INT64_MAX else str(n) for kind, n in amounts.items()}
    return amounts


def decode_amounts(written: EncodedAmounts) -> Resources:
    """Decode summed amounts."""
    return {kind: int(n) for kind, n in written.items()}


def encode_sort_key(place: Key) -> EncodedSortKey:
    """Encode a sort key."""
    return tuple(str(part) if isinstance(part, int) and not INT64_MIN <= part <= INT64_MAX else part for part in place)


def decode_sort_key(written: EncodedSortKey) -> Key:
    """Decode a sort key. A text is an integer: no encoded sort key holds text of its own."""
    return tuple(int(part) if isinstance(part, str) else part for part in written)


class ReferenceEncoder:
    """Numbers the objects of a partition while it is encoded."""

    def __init__(self, nodes: Mapping[str, int]) -> None:
        self.nodes = nodes
        """Node ranks by node ID."""
        self.places: dict[Allocation, int] = {}
        self.amounts: dict[tuple[tuple[str, int], ...], int] = {}
        self.submitters: dict[User, int] = {}
        self._known: dict[int, int] = {}  # by id() of shared amounts, which outlive this encoder
        self._sources: dict[Constraint, int] = {}

    def place(self, one: Allocation) -> None:
        """Assign the next position to an allocation (foreign allocations have none)."""
        at = self.places[one] = len(self.places)
        if one.constraint is not None:
            self._sources.setdefault(one.constraint, at)

    def amount(self, resources: Resources) -> int:
        """The index of these amounts, whose order of types matters, among all encoded amounts."""
        at = self._known.get(id(resources))
        if at is None:
            at = self.amounts.setdefault(tuple(resources.items()), len(self.amounts))
            self._known[id(resources)] = at
        return at

    def submitter(self, user: User) -> int:
        return self.submitters.setdefault(user, len(self.submitters))

    def shape(self, shape: AskShape) -> NeedSnapshot | None:
        """Encode an ask shape; None if no encoded allocation has its constraint any more."""
        source = NO_RANK if shape.constraint is None else self._sources.get(shape.constraint)
        return None if source is None else (shape.amounts, shape.required_node, source)


class ReferenceDecoder:
    """Resolves references while a partition is decoded."""

    def __init__(self) -> None:
        self.amounts: list[Resources] = []
        self.submitters: list[User] = []
        self.queues: dict[int, Queue] = {}
        self.nodes: dict[int, Node] = {}
        self.applications: dict[int, Application] = {}
        self.allocations: list[Allocation] = []
        self.levels: dict[int, QueueUsage] = {}
        self._needs: dict[NeedSnapshot, AskShape] = {}

    def shape(self, memory: NeedSnapshot) -> AskShape:
        """Decode an ask shape; equal ones share one object."""
        known = self._needs.get(memory)
        if known is None:
            amounts, required_node, source = memory
            constraint = None if source == NO_RANK else self.allocations[source].constraint
            known = self._needs[memory] = AskShape(amounts, required_node, constraint)
        return known

    def level(self, rank: int) -> QueueUsage:
        """The usage level of this rank, or an empty one if it was removed: nothing reads that again."""
        return self.levels.get(rank) or QueueUsage("", rank, None)
