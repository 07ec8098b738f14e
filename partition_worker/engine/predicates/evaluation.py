"""Who asks the predicates: what an ask demands, and whether a node meets it.

Answers of predicates in this process are remembered for each demand and node, those of the resource manager are
`verdicts.py`'s. An ask that demands nothing has no constraint, and then nothing here is asked: only a *guarded* node,
which refuses some such asks, is looked at more closely.

A predicate that raises has refused, with the text of what it raised; the first time is told as a warning.

Not here: the predicates, and loading those of plug-ins (`partition_worker/bootstrap.py`).
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from common.messages import Resources
from partition_worker.engine.ask_shapes import Constraint, Demands
from partition_worker.engine.predicates.built_in import ForbiddenNodes, NodeSelector, Tolerations
from partition_worker.engine.predicates.predicate import NodeView, Predicate
from partition_worker.engine.predicates.rm_verdicts import Verdicts

if TYPE_CHECKING:
    from partition_worker.engine.ask_shapes import AskShape
    from partition_worker.engine.nodes.node import Node

BUILT_IN: Final[tuple[Predicate, ...]] = (NodeSelector(), ForbiddenNodes(), Tolerations())

REMEMBERED_MAX: Final = 100_000
"""Pairs of demands and node whose answer is remembered; with more all are forgotten, and asked once more."""

IN_VAIN_MAX: Final = 256
"""Needs that are remembered to fit no node; each costs a look whenever a node changes. With more all are forgotten."""

REASON_LENGTH_MAX: Final = 256
"""Characters of a reason that are kept."""

WAITING: Final = "waits for the verdict of the resource manager"


class Predicates:
    """The predicates of a partition, and what they have answered."""

    def __init__(self, plugins: Sequence[Predicate] = ()) -> None:
        self.verdicts = Verdicts()
        self.asks_manager = False
        """Whether the resource manager has a say: then each of its asks is one of a kind."""
        self.plugins = tuple(plugins)
        self._predicates = (*BUILT_IN, *plugins)
        self._nothing: Demands = (None,) * len(self._predicates)
        self._answers: dict[Demands, dict[int, tuple[Resources, str]]] = {}  # then by the rank of the node
        self._remembered = 0
        self.in_vain: dict[tuple[AskShape, bool], None] = {}
        """Needs for which no node has room that admits them (or could be kept for them), since a node changed last."""
        self.complained: dict[str, None] = {}
        self._complaints: list[str] = []

    def read(self, tags: Mapping[str, str], key: str) -> Constraint | None:
        """What the ask of this key demands, by its tags.

        Raises:
            ValueError: the tags are wrong; the text says what would be right.
        """
        demands = self.demanded(tags)
        if self.asks_manager:
            return Constraint(demands, key)
        return None if demands == self._nothing else Constraint(demands)

    def demanded(self, tags: Mapping[str, str]) -> Demands:
        """What each of the predicates here reads in these tags.

        Raises:
            ValueError: as `read`.
        """
        return tuple(self._read(predicate, tags) for predicate in self._predicates) if tags else self._nothing

    # The search -----------------------------------------------------------------------------------------------------

    def demands(self, shape: "AskShape") -> Demands:
        """What each of the predicates here is asked about such an ask."""
        return self._nothing if shape.constraint is None else shape.constraint.demands

    def meets(self, demands: Demands, node: "Node") -> bool:
        """Whether the node meets these demands, whatever the resource manager says."""
        return not self._answered(demands, node)

    def guards(self, node: "Node") -> bool:
        """Whether the node refuses asks that demand nothing of it."""
        return bool(self._answered(self._nothing, node))

    def problem(self, shape: "AskShape", node: "Node", *, allocate: bool = True) -> str:
        """Why an ask with this need may not run on the node, room aside; empty if it may. `allocate` is False where
        the node is only to be kept for it, or it has a placeholder there.
        """
        constraint = shape.constraint
        if constraint is None:
            return self._answered(self._nothing, node) if node.guarded else ""
        refusal = self._answered(constraint.demands, node)
        if refusal or not constraint.asked:
            return refusal
        verdict = self.verdicts.of(constraint.asked, node, allocate=allocate)
        if verdict is None:
            return WAITING if self.asks_manager else ""
        return verdict

    def admits(self, shape: "AskShape", node: "Node", *, allocate: bool = True) -> bool:
        """Whether an ask with this need may run on the node, room aside. Where the resource manager has not said so
        yet, it may not now, and will be asked.
        """
        problem = self.problem(shape, node, allocate=allocate)
        if problem is WAITING and shape.constraint is not None:
            self.verdicts.want(shape.constraint.asked, node, allocate=allocate)
        return not problem

    def first(
        self, shape: "AskShape", nodes: Iterable["Node"], *, all_nodes: bool, allocate: bool = True
    ) -> "Node | None":
        """The first of the nodes with room (without `allocate`, of those that may be kept for it) that admits such an
        ask; `all_nodes` says that there are no others.

        Whether there is one does not depend on their order. Where none can be, as the resource manager has named none
        with room, the search ends with the room in its next question: more will be looked at when that is answered.
        """
        if (shape, allocate) in self.in_vain:
            return None
        asked = "" if shape.constraint is None else shape.constraint.asked
        wanting = bool(asked)
        for node in nodes:
            problem = self.problem(shape, node, allocate=allocate)
            if not problem:
                return node
            if wanting and problem is WAITING:
                wanting = self.verdicts.want(asked, node, allocate=allocate)
                if not wanting and not self._is_hopeful(shape, allocate=allocate):
                    return None
        if all_nodes:
            if len(self.in_vain) >= IN_VAIN_MAX:
                self.in_vain.clear()
            self.in_vain[shape, allocate] = None
        return None

    def refusals(self, shape: "AskShape", nodes: Iterable["Node"]) -> dict[str, int]:
        """On how many of these nodes an ask with this need is refused for which reason, in the order of the reasons.
        Only those count that come before the first of which the resource manager has not said anything yet.
        """
        problems = (self.problem(shape, node) for node in nodes)
        found = Counter(takewhile(lambda problem: problem is not WAITING, problems))
        return {reason: found[reason] for reason in sorted(found) if reason}

    # What changed ---------------------------------------------------------------------------------------------------

    def changed(self, node: "Node") -> None:
        """A node may take something now that it could not take before."""
        if self.in_vain:
            self.in_vain = {sought: None for sought in self.in_vain if self._refused(*sought, node)}

    def heard(self, keys: Mapping[str, None]) -> None:
        """The resource manager has said something new about these asks."""
        if self.in_vain:
            self.in_vain = {
                (shape, allocate): None
                for shape, allocate in self.in_vain
                if shape.constraint is None or shape.constraint.asked not in keys
            }

    def taken_complaints(self) -> list[str]:
        """What is wrong with predicates and was not told yet, once."""
        complaints, self._complaints = self._complaints, []
        return complaints

    # Private --------------------------------------------------------------------------------------------------------

    def _is_hopeful(self, shape: "AskShape", *, allocate: bool) -> bool:
        """Whether the resource manager admits the ask to a node that has room for it."""
        assert shape.constraint is not None
        admitting = self.verdicts.admitting(shape.constraint.asked)
        return any(
            node.has_room(shape.amounts) if allocate else node.is_large_enough(shape.amounts) for node in admitting
        )

    def _refused(self, shape: "AskShape", allocate: bool, node: "Node") -> bool:  # noqa: FBT001 - half of what was sought
        """Whether the node is no reason to look for one again."""
        if not (node.has_room(shape.amounts) if allocate else node.is_large_enough(shape.amounts)):
            return True
        problem = self.problem(shape, node, allocate=allocate)
        return bool(problem) and problem is not WAITING

    def _read(self, predicate: Predicate, tags: Mapping[str, str]) -> Hashable | None:
        try:
            demand = predicate.read(tags)
            hash(demand)
        except ValueError as error:
            raise ValueError(_cut(str(error))) from None
        except Exception as error:  # of a plug-in: the ask is refused, the worker lives on
            raise ValueError(self._failed(predicate, error)) from error
        return demand

    def _answered(self, demands: Demands, node: "Node") -> str:
        answers = self._answers.get(demands)
        if answers is None:
            answers = self._answers[demands] = {}
        known = answers.get(node.rank)
        if known is not None and known[0] is node.capacity:  # a node that is resized gets another one
            return known[1]
        view = NodeView(node.node_id, MappingProxyType(node.attributes), MappingProxyType(node.capacity))
        reason = next(filter(None, map(self._asked, self._predicates, demands, (view,) * len(demands))), "")
        if self._remembered >= REMEMBERED_MAX:
            self._answers, self._remembered = {demands: answers}, 0
            answers.clear()
        self._remembered += known is None
        answers[node.rank] = (node.capacity, reason)
        return reason

    def _asked(self, predicate: Predicate, demand: Hashable | None, view: NodeView) -> str:
        try:
            reason = predicate.refuses(demand, view)
            if not isinstance(reason, str):
                raise TypeError(f"its answer is {type(reason).__name__}, not text")
        except Exception as error:  # of a plug-in: the node is refused, the worker lives on
            return self._failed(predicate, error)
        return _cut(reason)

    def _failed(self, predicate: Predicate, error: Exception) -> str:
        text = _cut(f"predicate {predicate.name} failed: {type(error).__name__}: {error}")
        if predicate.name not in self.complained:
            self.complained[predicate.name] = None
            self._complaints.append(f"{text}; this counts as a refusal, and is told once")
        return text


def _cut(text: str) -> str:
    """As it can be sent: halves of characters fit into no message."""
    return text[:REASON_LENGTH_MAX].encode(errors="replace").decode()
