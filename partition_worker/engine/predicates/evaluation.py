"""Evaluation of predicates: what an ask demands, whether a node meets it, and what the RM answers.

Results of the predicates in this process are kept for each demand and node (`results.py`). An ask without demands has
no constraint, and no predicate is evaluated for it, except on a *guarded* node, which refuses some such asks. A
predicate that raises an exception refuses, with the text of the exception; the first time is reported as a warning.

An RM may evaluate predicates, too: `verdicts.py` asks it, and keeps its answers.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import inf
from typing import TYPE_CHECKING, Final

from yunishard.partition_worker.engine.allocation import AskShape, Constraint, Demands
from yunishard.partition_worker.engine.attempt_log import WAITING
from yunishard.partition_worker.engine.predicates.predicate import (
    ForbiddenNodes,
    NodeSelector,
    NodeView,
    Predicate,
    Tolerations,
)
from yunishard.partition_worker.engine.predicates.results import ACCEPTS, NO_REASON, NODE_WORK, ResultTable, view_of
from yunishard.partition_worker.engine.predicates.verdicts import Verdicts

if TYPE_CHECKING:
    from yunishard.partition_worker.engine.nodes.node_index import Node

BUILT_IN: Final[tuple[Predicate, ...]] = (NodeSelector(), ForbiddenNodes(), Tolerations())

IN_VAIN_MAX: Final = 256
"""Ask shapes that fit no node; each costs a check when a node changes. Beyond it all are dropped."""

REASON_LENGTH_MAX: Final = 256
"""Characters of a reason that are kept."""


SCOPE: Final = "yunishard/predicateScope"
"""The tag of an ask with the scope of the RM's verdicts about it: `node`, the default, `partition`, or `none` if the RM
need not be asked about it.
"""

NODE_SCOPE: Final = "node"
PARTITION_SCOPE: Final = "partition"
NO_SCOPE: Final = "none"

RM_PREDICATES: Final = "rm"
"""The name of the predicates of the RM, where predicates are named."""


@dataclass(frozen=True)
class UnreadableTags:
    """The demand of a recovered ask whose tags a predicate cannot read: no node meets it."""

    reason: str


class Predicates:
    """The predicates of a partition, and their results."""

    def __init__(self, plugins: Sequence[Predicate] = ()) -> None:
        self.verdicts = Verdicts()
        self.asks_manager = False
        """Whether the RM evaluates predicates; then each of its asks has a constraint of its own."""
        self.asks_about_victims = False
        """Whether the RM also decides whether an ask would run on a node without the victims there."""
        self.plugins = tuple(plugins)
        self._predicates = (*BUILT_IN, *plugins)
        self.no_demands: Demands = (None,) * len(self._predicates)
        self.table = ResultTable(self._predicates, self._evaluate)
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
        demands = tuple(self._read(one, tags) for one in self._predicates) if tags else self.no_demands
        if self.asks_manager and (scope := tags.get(SCOPE, NODE_SCOPE)) != NO_SCOPE:
            if scope not in (NODE_SCOPE, PARTITION_SCOPE):
                raise ValueError(f"{SCOPE}: expected node, partition or none, got {_cut(repr(scope))}")
            return Constraint(demands, key, scope == PARTITION_SCOPE)
        return None if demands == self.no_demands else Constraint(demands)

    def restore_demands(self, tags: Mapping[str, str], *, is_placed: bool) -> Demands:
        """Return what each predicate reads in the tags of a recovered ask or allocation. It was accepted when there may
        have been other plug-ins: with tags that one of them cannot read, an ask waits, and what is placed stays.
        """
        demands = tuple(self._read_again(one, tags) for one in self._predicates) if tags else self.no_demands
        is_readable = not any(isinstance(one, UnreadableTags) for one in demands)
        return demands if is_readable or not is_placed else self.no_demands

    # Searches for a node --------------------------------------------------------------------------------------------

    def meets(self, demands: Demands, node: "Node", limit: float = inf) -> bool:
        """Whether the node meets these demands; the verdicts of the RM do not count. Raises WorkSpent at the limit of
        the work.
        """
        return self.table.code(self.table.find(demands), node, limit) == ACCEPTS

    def begin_search(self, shape: AskShape) -> float:
        """Return the limit of the work of a search for such an ask. Raises WorkSpent, as `is_accepted` with it."""
        return inf if shape.constraint is None else self.table.begin_search(self.table.find(shape.constraint.demands))

    def prepare_all(self, demands: Demands) -> bool:
        """Evaluate demands for further nodes, up to the limit of a search; return whether all have a result."""
        return self.table.evaluate_further(self.table.find(demands), self.table.search_limit)

    def refusal(self, shape: AskShape, node: "Node", *, allocate: bool = True, limit: float = inf) -> str:
        """Return why the node refuses such an ask, apart from room; empty if it does not. `allocate` is False for a
        reservation, and if the ask has its placeholder there. Raises WorkSpent at the limit of the work.
        """
        constraint, table = shape.constraint, self.table
        if constraint is None and not node.guarded:
            return ""
        results = table.find(self.no_demands if constraint is None else constraint.demands)
        reason = results.reasons[table.code(results, node, limit)][1]
        if reason or constraint is None or not constraint.asked:
            return reason
        return self._verdict(constraint.asked, node, allocate=allocate)

    def _verdict(self, asked: str, node: "Node", *, allocate: bool) -> str:
        """Return why the RM refuses an ask on a node; WAITING without a verdict, and empty if it does not refuse."""
        verdict = self.verdicts.refusal(asked, node, allocate=allocate)
        if verdict is None:
            return WAITING if self.asks_manager else ""
        return verdict

    def explain_refusal(self, shape: AskShape, node: "Node", *, allocate: bool = True) -> tuple[str, str]:
        """Return the name of the predicate that refuses such an ask on the node, and its reason; empty if none does.

        As `refusal`, for explanations: it caches no result and reports no exception. `RM_PREDICATES` is the name if the
        RM refuses or has not answered.
        """
        constraint = shape.constraint
        if constraint is None and not node.guarded:
            return "", ""
        demands = self.no_demands if constraint is None else constraint.demands
        found = self.table.peek(demands, node) or self.find_refusal_of(demands, view_of(node))
        if found[0] or constraint is None or not constraint.asked:
            return found
        refusal = self._verdict(constraint.asked, node, allocate=allocate)
        return (RM_PREDICATES, refusal) if refusal else NO_REASON

    def find_refusal_of(self, demands: Demands, view: NodeView) -> tuple[str, str]:
        """Return the name of the first predicate that refuses asks with these demands on such a node, and its reason;
        empty if none does. Caches nothing and reports no exception.
        """
        return self._evaluate(demands, view, reports=False)

    def is_accepted(self, shape: AskShape, node: "Node", *, allocate: bool = True, limit: float = inf) -> bool:
        """Whether the node accepts such an ask, apart from room. Without a verdict of the RM it does not accept it now,
        and the verdict is requested. Raises WorkSpent at the limit of the work.
        """
        reason = self.refusal(shape, node, allocate=allocate, limit=limit)
        if reason is WAITING and shape.constraint is not None:
            self.verdicts.request(shape.constraint.asked, node, allocate=allocate, is_wide=shape.constraint.is_wide)
        return not reason

    def refuses_reservation(self, shape: AskShape, node: "Node", *, explains: bool) -> bool:
        """Whether the node does not meet the demands of such an ask, or it is known that the RM does not want it to be
        reserved for it. `explains`: as `explain_refusal`.
        """
        if explains:
            return self.explain_refusal(shape, node, allocate=False)[1] not in ("", WAITING)
        return self.refusal(shape, node, allocate=False) not in ("", WAITING)

    def first(
        self, shape: AskShape, nodes: Iterable["Node"], *, all_nodes: bool, allocate: bool = True
    ) -> "Node | None":
        """Return the first of these nodes that accepts such an ask. The caller passes nodes with room (without
        `allocate`, nodes that may be reserved); with `all_nodes` there are no others.

        Whether there is one does not depend on the order of the nodes. If there can be none, because the RM has
        accepted none with room, the search ends when its next question is full; more nodes follow after the answer.

        Raises WorkSpent at the limit of the work of a turn.
        """
        if (shape, allocate) in self.in_vain:
            return None
        table, constraint = self.table, shape.constraint
        results = table.find(self.no_demands if constraint is None else constraint.demands)
        if constraint is not None and table.is_hopeless(results):
            return None
        limit = inf if constraint is None else table.begin_search(results)
        asked, is_wide = ("", False) if constraint is None else (constraint.asked, constraint.is_wide)
        has_question_room = bool(asked)
        for node in nodes:
            table.spent += NODE_WORK
            if (constraint is None and not node.guarded) or table.code(results, node, limit) == ACCEPTS:
                reason = self._verdict(asked, node, allocate=allocate) if asked else ""
                if not reason:
                    return node
                if has_question_room and reason is WAITING:
                    has_question_room = self.verdicts.request(asked, node, allocate=allocate, is_wide=is_wide)
                    accepting = self.verdicts.accepting(asked)
                    if not has_question_room and not any(_fits(shape, one, allocate=allocate) for one in accepting):
                        return None
            self.refused += 1
        if all_nodes:
            if len(self.in_vain) >= IN_VAIN_MAX:
                self.in_vain.clear()
            self.in_vain[shape, allocate] = None
        return None

    def refusals(self, shape: AskShape, nodes: Iterable["Node"]) -> dict[str, int]:
        """Return how many of these nodes refuse such an ask, by reason, in the order of the reasons. Only nodes before
        the first one without a verdict of the RM count.
        """
        reasons = (self.refusal(shape, node) for node in nodes)
        found = Counter(takewhile(lambda reason: reason is not WAITING, reasons))
        self.table.spent += NODE_WORK * found.total()
        return {reason: found[reason] for reason in sorted(found) if reason}

    # Changes --------------------------------------------------------------------------------------------------------

    def recheck_node(self, node: "Node") -> None:
        """Retry the failed ask shapes that a changed node may accept."""
        self.in_vain = {
            (shape, allocate): None
            for shape, allocate in self.in_vain
            if not (_fits(shape, node, allocate=allocate) and self._may_accept(shape, node, allocate=allocate))
        }

    def _may_accept(self, shape: AskShape, node: "Node", *, allocate: bool) -> bool:
        """Whether a node is not known to refuse such an ask; evaluates nothing."""
        constraint = shape.constraint
        if constraint is None and not node.guarded:
            return True
        known = self.table.peek(self.no_demands if constraint is None else constraint.demands, node) or NO_REASON
        if known[0] or constraint is None or not constraint.asked:
            return not known[0]
        return self._verdict(constraint.asked, node, allocate=allocate) in ("", WAITING)

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

    def _read_again(self, predicate: Predicate, tags: Mapping[str, str]) -> Hashable | None:
        try:
            return self._read(predicate, tags)
        except ValueError as error:
            return UnreadableTags(str(error))

    def _evaluate(self, demands: Demands, view: NodeView, *, reports: bool = True) -> tuple[str, str]:
        """Return the name of the first predicate that refuses asks with these demands on the node, and its reason."""
        for predicate, demand in zip(self._predicates, demands, strict=True):
            if isinstance(demand, UnreadableTags):
                return predicate.name, demand.reason
            try:
                reason = predicate.refuses(demand, view)
                if not isinstance(reason, str):
                    raise TypeError(f"its answer is {type(reason).__name__}, not text")
            except Exception as error:  # of a plug-in: the node is refused, the worker continues
                reason = self._complain(predicate, error, reports=reports)
            if reason:
                return predicate.name, _cut(reason)
        return NO_REASON

    def _complain(self, predicate: Predicate, error: Exception, *, reports: bool = True) -> str:
        text = _cut(f"predicate {predicate.name} failed: {type(error).__name__}: {error}")
        if reports and predicate.name not in self.complained:
            self.complained[predicate.name] = None
            self.complaints.append(f"{text}; this counts as a refusal, and is reported once")
        return text


def _fits(shape: AskShape, node: "Node", *, allocate: bool) -> bool:
    return node.has_room(shape.amounts) if allocate else node.is_large_enough(shape.amounts)


def _cut(text: str) -> str:
    """Return a text that a message can hold: not too long, without halves of characters."""
    return text[:REASON_LENGTH_MAX].encode(errors="replace").decode()
