"""Evaluation of predicates: what an ask demands, and whether a node meets it.

Results of the predicates in this process are cached for each demand and node; those of the RM are in `rm_verdicts.py`.
An ask without demands has no constraint, and no predicate is evaluated for it, except on a *guarded* node, which
refuses some such asks.

A predicate that raises an exception refuses, with the text of the exception; the first time is reported as a warning.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from common.messages import Resources
from partition_worker.engine.allocation import Constraint, Demands
from partition_worker.engine.predicates.predicate import ForbiddenNodes, NodeSelector, NodeView, Predicate, Tolerations
from partition_worker.engine.predicates.rm_verdicts import Verdicts

if TYPE_CHECKING:
    from partition_worker.engine.allocation import AskShape
    from partition_worker.engine.nodes.node_index import Node

BUILT_IN: Final[tuple[Predicate, ...]] = (NodeSelector(), ForbiddenNodes(), Tolerations())

CACHED_MAX: Final = 100_000
"""Cached results, one for each pair of demands and node; beyond it all are dropped, and evaluated once more."""

IN_VAIN_MAX: Final = 256
"""Ask shapes that fit no node; each costs a check when a node changes. Beyond it all are dropped."""

REASON_LENGTH_MAX: Final = 256
"""Characters of a reason that are kept."""

WAITING: Final = "waits for the verdict of the resource manager"


class Predicates:
    """The predicates of a partition, and their results."""

    def __init__(self, plugins: Sequence[Predicate] = ()) -> None:
        self.verdicts = Verdicts()
        self.asks_manager = False
        """Whether the RM evaluates predicates; then each of its asks has a constraint of its own."""
        self.plugins = tuple(plugins)
        self._predicates = (*BUILT_IN, *plugins)
        self.no_demands: Demands = (None,) * len(self._predicates)
        self._cache: dict[Demands, dict[int, tuple[Resources, str]]] = {}
        """By demands and the rank of the node: its capacity at the evaluation, and the reason for a refusal."""
        self._cached = 0
        self.in_vain: dict[tuple[AskShape, bool], None] = {}
        """Ask shapes, with `allocate`, that no node accepts, and that no node could accept since it changed."""
        self.refused = 0
        """Nodes that refused in searches for a node."""
        self.complained: dict[str, None] = {}
        """Names of the predicates that have raised exceptions."""
        self.complaints: list[str] = []
        """Warnings about predicates, which the caller takes out."""

    def read_constraint(self, tags: Mapping[str, str], key: str) -> Constraint | None:
        """Return the constraint of an ask with these tags and this key.

        Raises ValueError if the tags are wrong; the text explains the right form.
        """
        demands = self.read_demands(tags)
        if self.asks_manager:
            return Constraint(demands, key)
        return None if demands == self.no_demands else Constraint(demands)

    def read_demands(self, tags: Mapping[str, str]) -> Demands:
        """Return what each predicate reads in these tags. Raises ValueError as `read_constraint`."""
        return tuple(self._read(predicate, tags) for predicate in self._predicates) if tags else self.no_demands

    # Searches for a node --------------------------------------------------------------------------------------------

    def meets(self, demands: Demands, node: "Node") -> bool:
        """Whether the node meets these demands; the verdicts of the RM do not count."""
        return not self._evaluate(demands, node)

    def refusal(self, shape: "AskShape", node: "Node", *, allocate: bool = True) -> str:
        """Return why the node refuses such an ask, apart from room; empty if it does not. `allocate` is False for a
        reservation, and if the ask has its placeholder there.
        """
        constraint = shape.constraint
        if constraint is None:
            return self._evaluate(self.no_demands, node) if node.guarded else ""
        reason = self._evaluate(constraint.demands, node)
        if reason or not constraint.asked:
            return reason
        verdict = self.verdicts.refusal(constraint.asked, node, allocate=allocate)
        if verdict is None:
            return WAITING if self.asks_manager else ""
        return verdict

    def is_accepted(self, shape: "AskShape", node: "Node", *, allocate: bool = True) -> bool:
        """Whether the node accepts such an ask, apart from room. Without a verdict of the RM it does not accept it now,
        and the verdict is requested.
        """
        reason = self.refusal(shape, node, allocate=allocate)
        if reason is WAITING and shape.constraint is not None:
            self.verdicts.request(shape.constraint.asked, node, allocate=allocate)
        return not reason

    def first(
        self, shape: "AskShape", nodes: Iterable["Node"], *, all_nodes: bool, allocate: bool = True
    ) -> "Node | None":
        """Return the first of these nodes that accepts such an ask. The caller passes nodes with room (without
        `allocate`, nodes that may be reserved); with `all_nodes` there are no others.

        Whether there is one does not depend on the order of the nodes. If there can be none, because the RM has
        accepted none with room, the search ends when its next question is full; more nodes follow after the answer.
        """
        if (shape, allocate) in self.in_vain:
            return None
        asked = "" if shape.constraint is None else shape.constraint.asked
        has_question_room = bool(asked)
        for node in nodes:
            reason = self.refusal(shape, node, allocate=allocate)
            if not reason:
                return node
            self.refused += 1
            if has_question_room and reason is WAITING:
                has_question_room = self.verdicts.request(asked, node, allocate=allocate)
                accepting = self.verdicts.accepting(asked)
                if not has_question_room and not any(_fits(shape, one, allocate=allocate) for one in accepting):
                    return None
        if all_nodes:
            if len(self.in_vain) >= IN_VAIN_MAX:
                self.in_vain.clear()
            self.in_vain[shape, allocate] = None
        return None

    def refusals(self, shape: "AskShape", nodes: Iterable["Node"]) -> dict[str, int]:
        """Return how many of these nodes refuse such an ask, by reason, in the order of the reasons. Only nodes before
        the first one without a verdict of the RM count.
        """
        reasons = (self.refusal(shape, node) for node in nodes)
        found = Counter(takewhile(lambda reason: reason is not WAITING, reasons))
        return {reason: found[reason] for reason in sorted(found) if reason}

    # Changes --------------------------------------------------------------------------------------------------------

    def recheck_node(self, node: "Node") -> None:
        """Retry the failed ask shapes that a changed node may accept."""
        self.in_vain = {
            (shape, allocate): None
            for shape, allocate in self.in_vain
            if not _fits(shape, node, allocate=allocate)
            or self.refusal(shape, node, allocate=allocate) not in ("", WAITING)
        }

    def recheck_asks(self, keys: Mapping[str, None]) -> None:
        """Retry asks about which the verdicts of the RM changed."""
        self.in_vain = {
            (shape, allocate): None
            for shape, allocate in self.in_vain
            if shape.constraint is None or shape.constraint.asked not in keys
        }

    # Private --------------------------------------------------------------------------------------------------------

    def _read(self, predicate: Predicate, tags: Mapping[str, str]) -> Hashable | None:
        try:
            demand = predicate.read(tags)
            hash(demand)
        except ValueError as error:
            raise ValueError(_cut(str(error))) from None
        except Exception as error:  # of a plug-in: the ask is refused, the worker continues
            raise ValueError(self._complain(predicate, error)) from error
        return demand

    def _evaluate(self, demands: Demands, node: "Node") -> str:
        """Return why a predicate refuses asks with these demands on the node; empty if none does."""
        cache = self._cache.get(demands)
        if cache is None:
            cache = self._cache[demands] = {}
        known = cache.get(node.rank)
        if known is not None and known[0] is node.capacity:  # a resized node gets another object
            return known[1]
        view = NodeView(node.node_id, MappingProxyType(node.attributes), MappingProxyType(node.capacity))
        results = (self._ask(one, demand, view) for one, demand in zip(self._predicates, demands, strict=True))
        reason = next(filter(None, results), "")
        if self._cached >= CACHED_MAX:
            self._cache, self._cached = {demands: cache}, 0
            cache.clear()
        self._cached += known is None
        cache[node.rank] = (node.capacity, reason)
        return reason

    def _ask(self, predicate: Predicate, demand: Hashable | None, view: NodeView) -> str:
        try:
            reason = predicate.refuses(demand, view)
            if not isinstance(reason, str):
                raise TypeError(f"its answer is {type(reason).__name__}, not text")
        except Exception as error:  # of a plug-in: the node is refused, the worker continues
            return self._complain(predicate, error)
        return _cut(reason)

    def _complain(self, predicate: Predicate, error: Exception) -> str:
        text = _cut(f"predicate {predicate.name} failed: {type(error).__name__}: {error}")
        if predicate.name not in self.complained:
            self.complained[predicate.name] = None
            self.complaints.append(f"{text}; this counts as a refusal, and is reported once")
        return text


def _fits(shape: "AskShape", node: "Node", *, allocate: bool) -> bool:
    return node.has_room(shape.amounts) if allocate else node.is_large_enough(shape.amounts)


def _cut(text: str) -> str:
    """Return a text that a message can hold: not too long, without halves of characters."""
    return text[:REASON_LENGTH_MAX].encode(errors="replace").decode()
