"""Results of the predicates in this process: what each answered about each node, and the work that they cost.

The results of equal demands are one byte for each node (`Results`). Predicates that only read some attributes are
evaluated once for each *class*: the nodes with equal values of these attributes.

A turn of the scheduler has a limit of *work*: each node that a search examines costs some, and an evaluation as much as
it compares. A search that may not continue raises `WorkSpent`; its demands join the backlog. Each turn first continues
with the backlog, the demands that have cost least so far first, so that expensive ones delay no cheap one. Once the
demands are evaluated for every node, their asks are tried again, and find the same node as without a limit.

    results of some nodes --WorkSpent--> backlog --evaluate_backlog--> results of all nodes; the asks are tried again

Work is counted and never timed, so decisions can be repeated. Outside of turns there is no limit.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from yunishard.common.messages.kinds import Resources
from yunishard.partition_worker.engine.allocation import AskGroup, Demands
from yunishard.partition_worker.engine.predicates.predicate import NodeView, Predicate
from yunishard.partition_worker.engine.sorted_items import Order

if TYPE_CHECKING:
    from yunishard.partition_worker.engine.nodes.node_index import Node

TURN_WORK: Final = 30_000
"""Work of the searches of one turn; further ones wait for the next turn."""

BACKLOG_WORK: Final = 30_000
"""Work of one turn for demands in the backlog; then the turn continues without them."""

SEARCH_WORK: Final = 6_000
"""Work of the evaluations of one search; then its demands join the backlog."""

SLICE_WORK: Final = 7_500
"""Work of the backlog for one demand; then the one that has cost less is next."""

NODE_WORK: Final = 4
"""Work of a search for each node that it examines; a comparison in an evaluation costs 1, about a third of a
microsecond.
"""

CLASS_WORK: Final = 10
"""Work of finding the class of a node, and 1 for each of its attributes that are read and for each CHARS_PER_UNIT in
them.
"""

CHARS_PER_UNIT: Final = 16
"""Characters of an attribute that are read, as taints are, for a unit of work."""

PLUGIN_WORK: Final = 60
"""Work of an evaluation by predicates that state no other."""

RESULTS_MAX: Final = 10_000
"""Different demands with results; beyond it those that were used longest ago are evaluated again when needed."""

RESULTS_BYTES_MAX: Final = 64 << 20
"""Bytes of all results, likewise."""

CLASSES_MAX: Final = 256
"""Classes that are kept for one demand; with more, each node is evaluated by itself."""

REASONS_MAX: Final = 250  # a code is a byte
"""Different reasons that are kept for one demand; with more, nodes are refused for the last one."""

UNKNOWN: Final = 0
ACCEPTS: Final = 1
"""The code of a result; greater ones are refusals."""

Reason = tuple[str, str]
"""The name of the predicate that refuses, and why; both empty if none does (NO_REASON)."""

NO_REASON: Final = ("", "")

STALE_MAX: Final = 10_000
"""Versions of nodes that are gone, and still have places; beyond it all nodes are evaluated again when needed."""

_FIRST_BYTES: Final = 1_000
_CLASS_BYTES: Final = 400


class WorkSpent(Exception):
    """A search may do no more work in this turn, and continues in a later one."""

    def __init__(self, results: "Results") -> None:
        super().__init__()
        self.results = results


class Results:
    """The results for equal demands."""

    def __init__(self, demands: Demands, rank: int, attributes: frozenset[str] | None, work: int) -> None:
        """`attributes` are those that the predicates read; None if they read anything. `work` is that of one
        evaluation.
        """
        self.demands, self.rank, self.attributes, self.work = demands, rank, attributes, work
        self.codes = bytearray()
        """By the place of a node."""
        self.accepting = 0
        """Number of places of nodes that accept, or did until they changed."""
        self.reasons: list[Reason] = [NO_REASON, NO_REASON]
        """By code."""
        self.code_of: dict[Reason, int] = {NO_REASON: ACCEPTS}
        self.classes: dict[Hashable, int] | None = None if attributes is None else {}
        """The code of each class; None if each node is evaluated by itself."""
        self.size = _FIRST_BYTES
        """Bytes, roughly."""
        self.spent = 0
        """Work that it has cost."""
        self.is_deadly = False
        """Whether their evaluation has ended too many workers."""
        self.next_place = 0
        """All nodes at the places before this one have a result."""
        self.waiting: dict[int, tuple[str, AskGroup]] = {}
        """The asks whose search waits for the backlog, with the id of their application, by id() of the group."""

    def class_of(self, attributes: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """Return the attributes that the predicates read, as a value."""
        wanted = self.attributes or frozenset()
        if len(attributes) < len(wanted):
            return tuple([one for one in attributes.items() if one[0] in wanted])
        return tuple([(name, attributes[name]) for name in wanted if name in attributes])

    def code_at(self, place: int) -> int:
        """Return the code of the result about the node at a place."""
        return self.codes[place] if place < len(self.codes) else UNKNOWN

    def store(self, place: int, code: int) -> None:
        """Store the code of the result about the node at a place."""
        codes = self.codes
        if place >= len(codes):
            self.size += place + 1 - len(codes)
            codes.extend(bytes(place + 1 - len(codes)))
        codes[place] = code
        self.accepting += code == ACCEPTS

    def forget_nodes(self) -> None:
        """Drop the results about all nodes, but not those of classes."""
        self.size -= len(self.codes)
        self.codes.clear()
        self.accepting = self.next_place = 0

    def store_class(self, key: Hashable, code: int) -> None:
        """Store the code of a class; of too many classes, none is kept."""
        assert self.classes is not None, "each node is evaluated by itself"
        self.classes[key] = code
        self.size += _CLASS_BYTES
        if len(self.classes) > CLASSES_MAX:
            self.size -= len(self.classes) * _CLASS_BYTES
            self.classes = None

    def encode(self, reason: Reason) -> int:
        """Return the code of a reason, for which there may be a new one."""
        code = self.code_of.get(reason)
        if code is None:
            code = len(self.reasons)
            if code > REASONS_MAX:
                return REASONS_MAX
            self.code_of[reason] = code
            self.reasons.append(reason)
            self.size += len(reason[1]) + _CLASS_BYTES
        return code


Evaluate = Callable[[Demands, NodeView], Reason]

Watch = Callable[[AskGroup | None, Results | None], bool]
"""Records the asks of which an attempt begins, or an evaluation with these results, so that they are known if it ends
the worker; None when it has ended. Returns whether they must not be tried, as they have ended too many workers, or asks
with equal demands have.
"""


class ResultTable:
    """The results for all demands that were needed lately, and the backlog."""

    def __init__(self, predicates: Sequence[Predicate], evaluate: Evaluate) -> None:
        """`evaluate` asks the predicates."""
        self._predicates, self._evaluate = predicates, evaluate
        self._results: dict[Demands, Results] = {}
        """Used longest ago first."""
        self._size = 0
        self._ranks = 0
        self._nodes: list[Node | None] = []
        """Nodes that were evaluated, by place; None if the node has changed since, or is gone."""
        self._places: dict[int, tuple[int, Resources]] = {}
        """By the rank of a node, its place and its capacity at the last evaluation. Each change of capacity or
        attributes makes another object of the capacity (`Nodes.set_attributes`): its identity is the node's version. A
        changed node gets a new place, so no results have to be corrected.
        """
        self.backlog: Order[Results] = Order()
        """Demands that are to be evaluated for all nodes, those that have cost least first."""
        self._resumed: list[str] = []
        """Applications of which asks are to be tried again."""
        self.watch: Watch | None = None
        """Set during a turn of the worker."""
        self.subject: AskGroup | None = None
        """The asks of the search in progress, as far as they are known."""
        self.is_cautious = self.is_attempt_watched = False
        """Whether each attempt is watched, not only evaluations, as an earlier turn has ended the worker; whether one
        is in progress.
        """
        self.spent = 0
        """Work of all searches and evaluations since the process started."""
        self.limit = inf
        """At which `spent` the searches of this turn end."""

    def find(self, demands: Demands) -> Results:
        """Return the results for demands; new ones if there are none."""
        results = self._results.pop(demands, None)
        if results is None:
            results = self._create(demands)
        self._results[demands] = results  # at the end, as those at the front are dropped first
        return results

    def peek(self, demands: Demands, node: "Node") -> Reason | None:
        """Return the result about a node, if it is known."""
        results, place = self._results.get(demands), self._places.get(node.rank)
        if results is None or place is None or place[1] is not node.capacity:
            return None
        code = results.code_at(place[0])
        return results.reasons[code] if code else None

    def is_hopeless(self, results: Results) -> bool:
        """Whether every node is known to refuse."""
        return not results.accepting and bool(self._nodes) and self._is_complete(results)

    def find_accepting(self, demands: Demands) -> "Iterator[Node] | None":
        """Return the nodes that accept, in no particular order; None while some have no result."""
        results = self._results.get(demands)
        if results is None or not self._nodes or not self._is_complete(results):
            return None
        return self._iterate_accepting(results)

    def _iterate_accepting(self, results: Results) -> "Iterator[Node]":
        # Mostly the first one will do, of up to a hundred thousand.
        at = results.codes.find(ACCEPTS)
        while at >= 0:
            node = self._nodes[at]
            if node is not None:
                yield node
            at = results.codes.find(ACCEPTS, at + 1)

    def code(self, results: Results, node: "Node", limit: float = inf) -> int:
        """Return the code of the result about a node.

        Raises WorkSpent if it takes an evaluation and the work has reached the limit.
        """
        place = self._places.get(node.rank)
        at = self._enter(node) if place is None or place[1] is not node.capacity else place[0]
        return results.code_at(at) or self._find_code(results, node, at, limit)

    def remove(self, node: "Node") -> None:
        """Drop the results about a node that was removed."""
        place = self._places.pop(node.rank, None)
        if place is not None:
            self._nodes[place[0]] = None

    # Turns ----------------------------------------------------------------------------------------------------------

    def begin_search(self, results: Results) -> float:
        """Return the limit for the evaluations of a search. Raises WorkSpent if the turn may search no more."""
        if self.spent >= self.limit:
            raise WorkSpent(results)
        return self.search_limit

    @property
    def search_limit(self) -> float:
        """The limit for the evaluations of a search that begins now."""
        return min(self.limit, self.spent + SEARCH_WORK) if self.limit < inf else inf

    def begin_turn(self) -> list[str]:
        """Set the limit of a turn, and continue with the backlog; return as `evaluate_backlog`."""
        resumed = self.evaluate_backlog() if len(self.backlog) or self._resumed else []
        self.limit = float(self.spent + TURN_WORK)
        return resumed

    def end_turn(self) -> None:
        """Set no limit until the next turn."""
        self.limit = inf

    @property
    def has_backlog(self) -> bool:
        """Whether the next turn has something to continue."""
        return bool(len(self.backlog) or self._resumed)

    def postpone(self, results: Results, application_id: str, group: AskGroup) -> None:
        """Let asks wait until their demands are evaluated for all nodes."""
        results.waiting[id(group)] = application_id, group
        self.backlog.put(results, (results.spent,))

    def evaluate_backlog(self) -> list[str]:
        """Evaluate the demands in the backlog, up to BACKLOG_WORK; return the ids of the applications of which asks are
        to be tried again. Demands of asks that are gone are dropped.
        """
        end = self.spent + BACKLOG_WORK
        while (results := self.backlog.first()) is not None:
            waiting = [one for one in results.waiting.values() if len(one[1])]
            if waiting and not self._is_complete(results):
                if self.spent >= end:
                    break
                self.subject = waiting[0][1]
                with suppress(WorkSpent):
                    self.evaluate_further(results, min(end, self.spent + SLICE_WORK))
            if waiting and not self._is_complete(results):
                self.backlog.put(results, (results.spent,))
            else:
                self.backlog.drop(results)
                results.waiting.clear()
                self._resumed += [application_id for application_id, _ in waiting]
        resumed, self._resumed = self._resumed, []
        return list(dict.fromkeys(resumed))

    def evaluate_further(self, results: Results, limit: float) -> bool:
        """Evaluate demands for further nodes, up to the limit; return whether all nodes have a result."""
        while not self._is_complete(results) and self.spent < limit:
            node = self._nodes[results.next_place]
            if node is not None:
                self._find_code(results, node, results.next_place, inf)
        return self._is_complete(results)

    # Private --------------------------------------------------------------------------------------------------------

    def _create(self, demands: Demands) -> Results:
        read: frozenset[str] | None = frozenset()
        work = 1
        for predicate, demand in zip(self._predicates, demands, strict=True):
            list_attributes = getattr(predicate, "list_attributes", None)
            more = None if list_attributes is None else list_attributes(demand)
            read = None if read is None or more is None else read | more
            work += PLUGIN_WORK if list_attributes is None else getattr(demand, "work", 1)
        self._ranks += 1
        results = Results(demands, self._ranks, read, work)
        self._size += results.size
        while self._results and (len(self._results) >= RESULTS_MAX or self._size > RESULTS_BYTES_MAX):
            self._drop(next(iter(self._results.values())))
        return results

    def _drop(self, results: Results) -> None:
        """Drop results; asks that wait for them are tried again."""
        del self._results[results.demands]
        self._size -= results.size
        self.backlog.drop(results)
        self._resumed += [application_id for application_id, _ in results.waiting.values()]

    def _enter(self, node: "Node") -> int:
        """Return the place of a node that is new, or changed since it was last evaluated."""
        self.remove(node)
        if len(self._nodes) - len(self._places) > STALE_MAX:
            nodes = [one for one in self._nodes if one is not None]
            self._nodes = [*nodes]
            self._places = {one.rank: (at, self._places[one.rank][1]) for at, one in enumerate(nodes)}
            for results in self._results.values():
                self._size -= len(results.codes)
                results.forget_nodes()
        self._places[node.rank] = len(self._nodes), node.capacity
        self._nodes.append(node)
        return len(self._nodes) - 1

    def _is_complete(self, results: Results) -> bool:
        """Whether all nodes have a result."""
        nodes, at = self._nodes, results.next_place
        while at < len(nodes) and (nodes[at] is None or results.code_at(at)):
            at += 1
        results.next_place = at
        return at >= len(nodes)

    def _find_code(self, results: Results, node: "Node", place: int, limit: float) -> int:
        spent, size, key, code = self.spent, results.size, None, UNKNOWN
        if results.classes is not None:
            key = results.class_of(node.attributes)
            self.spent += CLASS_WORK + len(key) + sum([len(value) for _, value in key]) // CHARS_PER_UNIT
            code = results.classes.get(key, UNKNOWN)
        if not code:
            if self.spent >= limit:
                raise WorkSpent(results)
            self.spent += results.work
            code = results.encode(self._evaluate_watched(results, node))
            if results.classes is not None:
                results.store_class(key, code)
        results.store(place, code)
        results.spent += self.spent - spent
        self._size += results.size - size
        return code

    def _evaluate_watched(self, results: Results, node: "Node") -> Reason:
        watch, subject = self.watch, self.subject
        if watch is None or subject is None or self.is_attempt_watched:
            return self._evaluate(results.demands, view_of(node))
        results.is_deadly = watch(subject, results)
        if results.is_deadly:
            raise WorkSpent(results)
        reason = self._evaluate(results.demands, view_of(node))
        watch(None, None)
        return reason


def view_of(node: "Node") -> NodeView:
    """Return what predicates see of a node."""
    return NodeView(node.node_id, MappingProxyType(node.attributes), MappingProxyType(node.capacity))
