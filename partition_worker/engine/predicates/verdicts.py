"""Verdicts of the RM: whether an ask may run on a node, if the RM evaluates predicates (RM protocol, "predicates").

A search for a node does not wait for the RM: a pair of ask and node without a verdict counts as refused for now, and is
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
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from common.wire import NEVER

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
