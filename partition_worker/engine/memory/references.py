"""How things that are written refer to each other, and what many of them share.

Not here: the things themselves (a file for each area).
"""

from collections.abc import Mapping

from common.messages import Resources
from partition_worker.engine.applications.allocation import Allocation
from partition_worker.engine.applications.application import Application
from partition_worker.engine.limits.trackers import Level
from partition_worker.engine.memory.values import NOBODY, NeedMemory
from partition_worker.engine.needs import Need
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.predicates.constraint import Constraint
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.users import User


class Numbering:
    """While a partition is written."""

    def __init__(self, nodes: Mapping[str, int]) -> None:
        self.nodes = nodes
        """Rank by id."""
        self.places: dict[Allocation, int] = {}
        self.amounts: dict[tuple[tuple[str, int], ...], int] = {}
        self.submitters: dict[User, int] = {}
        self._known: dict[int, int] = {}  # by id() of amounts that many share, which all live as long as this
        self._sources: dict[Constraint, int] = {}

    def place(self, one: Allocation) -> None:
        """The next allocation that is written, foreign ones aside."""
        at = self.places[one] = len(self.places)
        if one.constraint is not None:
            self._sources.setdefault(one.constraint, at)

    def amount(self, resources: Resources) -> int:
        """The place of these amounts, in this order of their types, among all that are written."""
        at = self._known.get(id(resources))
        if at is None:
            at = self.amounts.setdefault(tuple(resources.items()), len(self.amounts))
            self._known[id(resources)] = at
        return at

    def submitter(self, user: User) -> int:
        return self.submitters.setdefault(user, len(self.submitters))

    def need(self, need: Need) -> NeedMemory | None:
        """What is needed; None if that takes a constraint that nobody has any more who could be asked for it."""
        source = NOBODY if need.constraint is None else self._sources.get(need.constraint)
        return None if source is None else (need.shape, need.required_node, source)


class Lookup:
    """While a partition is read."""

    def __init__(self) -> None:
        self.amounts: list[Resources] = []
        self.submitters: list[User] = []
        self.queues: dict[int, Queue] = {}
        self.nodes: dict[int, Node] = {}
        self.applications: dict[int, Application] = {}
        self.allocations: list[Allocation] = []
        self.levels: dict[int, Level] = {}
        self._needs: dict[NeedMemory, Need] = {}

    def need(self, memory: NeedMemory) -> Need:
        """What was needed, once for all who needed it."""
        known = self._needs.get(memory)
        if known is None:
            shape, required_node, source = memory
            constraint = None if source == NOBODY else self.allocations[source].constraint
            known = self._needs[memory] = Need(shape, required_node, constraint)
        return known

    def level(self, rank: int) -> Level:
        """What a user or group has in a queue; one that is gone has nothing, and nobody looks at it again."""
        return self.levels.get(rank) or Level("", rank, None)
