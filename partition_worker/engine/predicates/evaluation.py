"""Evaluation of predicates: what an ask demands, whether a node meets it, and what the RM answers.

Results of the predicates in this process are cached for each demand and node. An ask without demands has no constraint,
and no predicate is evaluated for it, except on a *guarded* node, which refuses some such asks. A predicate that raises
an exception refuses, with the text of the exception; the first time is reported as a warning.

Verdicts of the RM: whether an ask may run on a node, if the RM evaluates predicates (RM protocol, "predicates"). A
search for a node does not wait for the RM: a pair of ask and node without a verdict counts as refused for now, and is
requested. Requests go out as one *question* at a time, about up to ASKS_MAX asks with NODES_MAX nodes each. The asks in
it are tried again when it is answered, or when its deadline passes:

    requested --send--> asked --answer--> accepted or refused until FRESH_S have passed, or the node changes
                          |--deadline---> refused for PAUSE_S (twice that after each further deadline, at most
                                          PAUSE_MAX_S); no question is sent meanwhile

So a slow or dead RM costs a question from time to time, and its other asks continue. A late answer still counts, unless
another question was sent. The verdicts about an ask are dropped with it. `allocation_updates.py` sends the questions
and retries the asks.
"""

import heapq
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from common.messages import Resources
from common.wire import NEVER
from partition_worker.engine.allocation import AskShape, Constraint, Demands
from partition_worker.engine.predicates.predicate import ForbiddenNodes, NodeSelector, NodeView, Predicate, Tolerations

if TYPE_CHECKING:
    from partition_worker.engine.nodes.node_index import Node

ASKS_MAX: Final = 64
"""Asks in one question."""

NODES_MAX: Final = 16
"""Nodes in one question for each ask: the first that have room, in the order in which they are tried."""

DEADLINE_S: Final = 0.2
"""Maximum time for an answer."""

FRESH_S: Final = 30.0
"""How long a verdict holds on a node that does not change. The RM may have changed by then."""

COOL_DOWN_S: Final = 30.0
"""How long an ask is refused by a node on which the RM could not start it."""

PAUSE_S: Final = 1.0
PAUSE_MAX_S: Final = 30.0
"""Pause after an unanswered question: at first, and at most."""

NO_ANSWER: Final = "the resource manager did not answer"

Keys = dict[str, None]
"""Keys of asks, in order."""


class Pair(NamedTuple):
    """An ask and a node. `allocate` is False for a reservation, and if the ask has its placeholder there."""

    key: str
    node_id: str
    allocate: bool


class Stamp(NamedTuple):
    """A version of a node."""

    node: "Node"
    version: int

    @property
    def is_current(self) -> bool:
        return self.node.version == self.version


class Verdict(NamedTuple):
    """Whether an ask may run on a node."""

    refusal: str
    """The reason; empty if it may."""
    stamp: Stamp | None
    """The version of the node for which the verdict holds; None if it holds for all."""
    round: int
    """Verdicts of one round expire together."""


class Question(NamedTuple):
    """A question to the RM."""

    number: int
    pairs: dict[Pair, Stamp]
    deadline: float


class Verdicts:
    """Verdicts and questions of one RM. Methods that return keys return the asks that are worth another attempt."""

    def __init__(self) -> None:
        self.known: dict[str, dict[tuple[str, bool], Verdict]] = {}
        """By the key of the ask, then by node and `allocate`."""
        self.requested: dict[str, dict[Pair, Stamp]] = {}
        """By the key of the ask."""
        self.deferred: Keys = {}
        """Asks for which the next question has no room."""
        self.question: Question | None = None
        """The question that waits for its answer."""
        self.late: Question | None = None
        """The last question if it was not answered in time, until the next one."""
        self.numbers = 0
        """Number of the latest question or round."""
        self.silences = 0
        """Number of unanswered questions since the last answer."""
        self.questions = self.answers = self.unanswered = 0
        """Counters since the process started."""
        self.paused_until = 0.0
        self.expiries: list[tuple[float, int, tuple[str, ...]]] = []
        """A heap of Unix time, round and keys."""

    @property
    def deadline(self) -> float:
        """When `elapse` or `next_question` has something to do, in Unix seconds."""
        answer = NEVER if self.question is None else self.question.deadline
        send = self.paused_until if (self.requested or self.deferred) and self.question is None else NEVER
        return min(answer, send, self.expiries[0][0] if self.expiries else NEVER)

    # Searches for a node --------------------------------------------------------------------------------------------

    def refusal(self, key: str, node: "Node", *, allocate: bool) -> str | None:
        """Return why the ask may not run on the node: empty if it may, None if there is no verdict."""
        verdict = self.known.get(key, {}).get((node.node_id, allocate))
        if verdict is None:
            return None
        stamp = verdict.stamp
        return verdict.refusal if stamp is None or (stamp.node is node and stamp.is_current) else None

    def accepting(self, key: str) -> Iterator["Node"]:
        """Yield the unchanged nodes that the ask may run on or reserve."""
        for verdict in self.known.get(key, {}).values():
            if not verdict.refusal and verdict.stamp is not None and verdict.stamp.is_current:
                yield verdict.stamp.node

    def request(self, key: str, node: "Node", *, allocate: bool) -> bool:
        """Request a verdict; return whether the next question has room for one more node of this ask."""
        pair, stamp = Pair(key, node.node_id, allocate), Stamp(node, node.version)
        if self.question is not None and pair in self.question.pairs:
            return True  # if the node has changed since, it is requested again after the answer
        if key not in self.requested:
            if len(self.requested) >= ASKS_MAX:
                self.deferred[key] = None
                return False
            self.deferred.pop(key, None)
        pairs = self.requested.setdefault(key, {})
        if pair in pairs or len(pairs) < NODES_MAX:
            pairs[pair] = stamp
        return len(pairs) < NODES_MAX

    def defer(self, key: str) -> bool:
        """Whether there is no verdict about this ask and the next question has no room for it. Then no node takes it
        now, and it is tried again when the question after the next has room.
        """
        if len(self.requested) < ASKS_MAX or key in self.requested or key in self.known:
            return False
        self.deferred[key] = None
        return True

    # Questions and answers ------------------------------------------------------------------------------------------

    def next_question(self, now: float) -> tuple[Question, Keys] | None:
        """Return the next question, if it may be sent now, and the asks for which the one after it has room."""
        if not self.requested or self.question is not None or now < self.paused_until:
            return None
        self.numbers += 1
        self.questions += 1
        pairs = {pair: stamp for requested in self.requested.values() for pair, stamp in requested.items()}
        self.question, self.late, self.requested = Question(self.numbers, pairs, now + DEADLINE_S), None, {}
        return self.question, self._undefer()

    def apply_answer(self, number: int, refusals: Mapping[Pair, str], now: float) -> Keys:
        """Apply the answer to a question. Pairs that it leaves out are refused."""
        question = self.question or self.late
        if question is None or question.number != number:
            return {}
        self.answers += 1
        self.question, self.late, self.silences, self.paused_until = None, None, 0, 0.0
        found = {pair: (refusals.get(pair, NO_ANSWER), stamp) for pair, stamp in question.pairs.items()}
        return self._learn(found, now + FRESH_S)

    def elapse(self, now: float) -> Keys:
        """Give up a late question, and drop verdicts that are no longer fresh."""
        retried: Keys = {}
        question = self.question
        if question is not None and question.deadline <= now:
            pause = min(PAUSE_S * 2**self.silences, PAUSE_MAX_S)
            self.silences = min(self.silences + 1, 16)
            self.paused_until = now + pause
            self.question, self.late = None, question
            self.unanswered += 1
            retried |= self._learn(dict.fromkeys(question.pairs, (NO_ANSWER, None)), now + pause)
        while self.expiries and self.expiries[0][0] <= now:
            _, number, keys = heapq.heappop(self.expiries)
            retried |= {key: None for key in keys if self._expire(key, number)}
        if self.question is None and not self.requested and self.paused_until <= now:
            retried |= self._undefer()  # all asks before them are gone
        return retried

    def refuse(self, key: str, node_id: str, reason: str, now: float) -> None:
        """Refuse an ask on a node for a while: the RM could not start it there."""
        self._learn({Pair(key, node_id, allocate=True): (reason, None)}, now + COOL_DOWN_S)

    def drop(self, key: str) -> None:
        """Drop an ask that is gone or has its node; refusals that hold for all versions of a node stay."""
        lasting = {place: verdict for place, verdict in self.known.pop(key, {}).items() if verdict.stamp is None}
        if lasting:
            self.known[key] = lasting
        self.requested.pop(key, None)
        self.deferred.pop(key, None)

    def _learn(self, verdicts: Mapping[Pair, tuple[str, Stamp | None]], until: float) -> Keys:
        """Store verdicts until this time; return the keys of their asks."""
        self.numbers += 1
        for pair, (refusal, stamp) in verdicts.items():
            self.known.setdefault(pair.key, {})[pair.node_id, pair.allocate] = Verdict(refusal, stamp, self.numbers)
        keys = dict.fromkeys(pair.key for pair in verdicts)
        heapq.heappush(self.expiries, (until, self.numbers, tuple(keys)))
        return keys

    def _expire(self, key: str, number: int) -> bool:
        """Drop the verdicts of this round; return whether the ask may have waited for that."""
        known = self.known.get(key, {})
        expired = [known.pop(place) for place, verdict in tuple(known.items()) if verdict.round == number]
        if not known:
            self.known.pop(key, None)
        return any(verdict.refusal for verdict in expired)

    def _undefer(self) -> Keys:
        """Return as many deferred asks as the next question has room for."""
        keys = dict.fromkeys(islice(self.deferred, ASKS_MAX))
        for key in keys:
            del self.deferred[key]
        return keys


# Predicates -----------------------------------------------------------------------------------------------------------

BUILT_IN: Final[tuple[Predicate, ...]] = (NodeSelector(), ForbiddenNodes(), Tolerations())

CACHED_MAX: Final = 100_000
"""Cached results, one for each pair of demands and node; beyond it all are dropped, and evaluated once more."""

IN_VAIN_MAX: Final = 256
"""Ask shapes that fit no node; each costs a check when a node changes. Beyond it all are dropped."""

REASON_LENGTH_MAX: Final = 256
"""Characters of a reason that are kept."""

WAITING: Final = "waits for the verdict of the resource manager"

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
        self.plugins = tuple(plugins)
        self._predicates = (*BUILT_IN, *plugins)
        self.no_demands: Demands = (None,) * len(self._predicates)
        self._cache: dict[tuple[Demands, int], tuple[Resources, str]] = {}
        """By demands and the rank of the node: its capacity at the evaluation, and the reason for a refusal."""
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
        if self.asks_manager:
            return Constraint(demands, key)
        return None if demands == self.no_demands else Constraint(demands)

    def restore_demands(self, tags: Mapping[str, str], *, is_placed: bool) -> Demands:
        """Return what each predicate reads in the tags of a recovered ask or allocation. It was accepted when there may
        have been other plug-ins: with tags that one of them cannot read, an ask waits, and what is placed stays.
        """
        demands = tuple(self._read_again(one, tags) for one in self._predicates) if tags else self.no_demands
        is_readable = not any(isinstance(one, UnreadableTags) for one in demands)
        return demands if is_readable or not is_placed else self.no_demands

    # Searches for a node --------------------------------------------------------------------------------------------

    def meets(self, demands: Demands, node: "Node") -> bool:
        """Whether the node meets these demands; the verdicts of the RM do not count."""
        return not self._evaluate(demands, node)

    def refusal(self, shape: AskShape, node: "Node", *, allocate: bool = True) -> str:
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

    def explain_refusal(self, shape: AskShape, node: "Node", *, allocate: bool = True) -> tuple[str, str]:
        """Return the name of the predicate that refuses such an ask on the node, and its reason; empty if none does.

        As `refusal`, for explanations: it caches no result and reports no exception. `RM_PREDICATES` is the name if the
        RM refuses or has not answered.
        """
        constraint = shape.constraint
        if constraint is None and not node.guarded:
            return "", ""
        demands = self.no_demands if constraint is None else constraint.demands
        known = self._cache.get((demands, node.rank))
        if known is None or known[0] is not node.capacity or known[1]:
            found = self._find_refusal(demands, node)
            if found[0]:
                return found
        if constraint is None or not constraint.asked:
            return "", ""
        verdict = self.verdicts.refusal(constraint.asked, node, allocate=allocate)
        refusal = (WAITING if self.asks_manager else "") if verdict is None else verdict
        return (RM_PREDICATES, refusal) if refusal else ("", "")

    def find_refusal_of(self, demands: Demands, view: NodeView) -> tuple[str, str]:
        """Return the name of the first predicate that refuses asks with these demands on such a node, and its reason;
        empty if none does. Caches nothing and reports no exception.
        """
        for predicate, demand in zip(self._predicates, demands, strict=True):
            if isinstance(demand, UnreadableTags):
                return predicate.name, demand.reason
            try:
                reason = predicate.refuses(demand, view)
            except Exception as error:  # of a plug-in: as in `_ask`, the node is refused
                reason = _describe_failure(predicate, error)
            if reason:
                return predicate.name, _cut(str(reason))
        return "", ""

    def _find_refusal(self, demands: Demands, node: "Node") -> tuple[str, str]:
        return self.find_refusal_of(demands, view_of(node))

    def is_accepted(self, shape: AskShape, node: "Node", *, allocate: bool = True) -> bool:
        """Whether the node accepts such an ask, apart from room. Without a verdict of the RM it does not accept it now,
        and the verdict is requested.
        """
        reason = self.refusal(shape, node, allocate=allocate)
        if reason is WAITING and shape.constraint is not None:
            self.verdicts.request(shape.constraint.asked, node, allocate=allocate)
        return not reason

    def first(
        self, shape: AskShape, nodes: Iterable["Node"], *, all_nodes: bool, allocate: bool = True
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

    def refusals(self, shape: AskShape, nodes: Iterable["Node"]) -> dict[str, int]:
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

    def _read_again(self, predicate: Predicate, tags: Mapping[str, str]) -> Hashable | None:
        try:
            return self._read(predicate, tags)
        except ValueError as error:
            return UnreadableTags(str(error))

    def _evaluate(self, demands: Demands, node: "Node") -> str:
        """Return why a predicate refuses asks with these demands on the node; empty if none does."""
        key = demands, node.rank
        known = self._cache.get(key)
        if known is not None and known[0] is node.capacity:  # a changed node gets another object
            return known[1]
        view = view_of(node)
        results = (self._ask(one, demand, view) for one, demand in zip(self._predicates, demands, strict=True))
        reason = next(filter(None, results), "")
        if len(self._cache) >= CACHED_MAX:
            self._cache.clear()
        self._cache[key] = node.capacity, reason
        return reason

    def _ask(self, predicate: Predicate, demand: Hashable | None, view: NodeView) -> str:
        if isinstance(demand, UnreadableTags):
            return demand.reason
        try:
            reason = predicate.refuses(demand, view)
            if not isinstance(reason, str):
                raise TypeError(f"its answer is {type(reason).__name__}, not text")
        except Exception as error:  # of a plug-in: the node is refused, the worker continues
            return self._complain(predicate, error)
        return _cut(reason)

    def _complain(self, predicate: Predicate, error: Exception) -> str:
        text = _describe_failure(predicate, error)
        if predicate.name not in self.complained:
            self.complained[predicate.name] = None
            self.complaints.append(f"{text}; this counts as a refusal, and is reported once")
        return text


def _fits(shape: AskShape, node: "Node", *, allocate: bool) -> bool:
    return node.has_room(shape.amounts) if allocate else node.is_large_enough(shape.amounts)


def view_of(node: "Node") -> NodeView:
    """Return what predicates see of a node."""
    return NodeView(node.node_id, MappingProxyType(node.attributes), MappingProxyType(node.capacity))


def _describe_failure(predicate: Predicate, error: Exception) -> str:
    return _cut(f"predicate {predicate.name} failed: {type(error).__name__}: {error}")


def _cut(text: str) -> str:
    """Return a text that a message can hold: not too long, without halves of characters."""
    return text[:REASON_LENGTH_MAX].encode(errors="replace").decode()
