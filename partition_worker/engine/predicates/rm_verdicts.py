"""What the resource manager says about pairs of an ask and a node, where it has a say (interface, "predicates").

The engine waits for nobody: a pair without a verdict counts as refused for the moment, and is noted as wanted. What is
wanted goes out as one *question* at a time, about up to ASKS_MAX asks with NODES_MAX nodes each, and the asks in it are
tried again when it is answered, or when its deadline passes:

    wanted --put--> asked --answered--> admitted or refused until FRESH_S have passed, or the node changes
                      |----deadline---> refused for PAUSE_S (twice that after each further silence, at most
                                        PAUSE_MAX_S); nothing is asked meanwhile

So a resource manager that is slow or dead costs a question now and then, and its other asks go on. An answer that is
late still counts, unless another question was put. Verdicts of an ask that is gone are forgotten with it.

Not here: who is woken (`engine/updates/verdict_updates.py`), messages (`partition_worker/worker.py`).
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from common.wire import NEVER

if TYPE_CHECKING:
    from partition_worker.engine.nodes.node import Node

ASKS_MAX: Final = 64
"""Asks in one question."""

NODES_MAX: Final = 16
"""Nodes in one question for each of them: the first that have room, in the order in which they are tried."""

DEADLINE_S: Final = 0.2
"""How long an answer may take."""

FRESH_S: Final = 30.0
"""How long a verdict holds on a node that does not change. The resource manager may know more by then."""

COOL_DOWN_S: Final = 30.0
"""How long an ask is kept from a node on which the resource manager could not start it."""

PAUSE_S: Final = 1.0
PAUSE_MAX_S: Final = 30.0
"""How long nothing is asked after a silence: at first, and at most."""

NO_ANSWER: Final = "the resource manager did not answer"


class Pair(NamedTuple):
    """An ask and a node. `allocate` is False where the node is only to be kept for the ask, or has its place there."""

    key: str
    node_id: str
    allocate: bool


class Stamp(NamedTuple):
    """A node as it was."""

    node: "Node"
    version: int

    @property
    def holds(self) -> bool:
        """Whether it still is."""
        return self.node.version == self.version


class Said(NamedTuple):
    """A verdict."""

    refusal: str
    """Empty if the ask may run there."""
    stamp: Stamp | None
    """The verdict holds as long as the node is as it was; None if that does not matter."""
    round: int
    """With which others it will be forgotten."""


@dataclass(slots=True)
class Question:
    """What is asked at once."""

    number: int
    pairs: dict[Pair, Stamp]
    deadline: float


@dataclass(slots=True)
class Woken:
    """Asks, by key, that may be given something now which they could not be given before."""

    keys: dict[str, None] = field(default_factory=dict)

    def add(self, keys: Iterable[str]) -> None:
        self.keys.update(dict.fromkeys(keys))


class Verdicts:
    """All that one resource manager has said, is asked, and will be asked."""

    def __init__(self) -> None:
        self.deadline = NEVER
        """When `elapse` has something to do, or `question` something to say."""
        self.said: dict[str, dict[tuple[str, bool], Said]] = {}  # by ask, then node
        self.wanted: dict[str, dict[Pair, Stamp]] = {}  # by ask
        self.turned_away: dict[str, None] = {}  # asks for which the next question had no room
        self.asked: Question | None = None
        self.late: Question | None = None
        """The last question if nobody answered it, until there is another."""
        self.numbers = 0
        self.silences = 0
        self.questions = self.answers = self.unanswered = 0
        """Since this process began."""
        self.paused_until = 0.0
        self.forget: list[tuple[float, int, tuple[str, ...]]] = []  # heap of (when, round, asks)

    # The search ------------------------------------------------------------------------------------------------------

    def of(self, key: str, node: "Node", *, allocate: bool) -> str | None:
        """Why the ask may not run on the node: empty if it may, None if that is not known."""
        said = self.said.get(key, {}).get((node.node_id, allocate))
        if said is None or (said.stamp is not None and (said.stamp.node is not node or not said.stamp.holds)):
            return None
        return said.refusal

    def admitting(self, key: str) -> Iterator["Node"]:
        """The nodes on which the ask may run, or for which it may wait, as far as they have not changed."""
        for said in self.said.get(key, {}).values():
            if not said.refusal and said.stamp is not None and said.stamp.holds:
                yield said.stamp.node

    def want(self, key: str, node: "Node", *, allocate: bool) -> bool:
        """Note that a verdict is wanted; whether there is room for one more of this ask."""
        pair, stamp = Pair(key, node.node_id, allocate), Stamp(node, node.version)
        if self.asked is not None and pair in self.asked.pairs:
            return True  # asked just now; if the node has changed, it is asked again after that
        pairs = self.wanted.get(key)
        if pairs is None:
            if len(self.wanted) >= ASKS_MAX:
                self.turned_away[key] = None
                return False
            pairs = self.wanted[key] = {}
            self.turned_away.pop(key, None)
        if pair in pairs or len(pairs) < NODES_MAX:
            pairs[pair] = stamp
        self._settle()
        return len(pairs) < NODES_MAX

    def turns_away(self, key: str) -> bool:
        """Whether nothing was said about this ask yet and the next question has no room for it: then no node takes it
        now, and it is tried again when there is room in the one after.
        """
        if len(self.wanted) < ASKS_MAX or key in self.wanted or key in self.said:
            return False
        self.turned_away[key] = None
        return True

    # What happens ----------------------------------------------------------------------------------------------------

    def question(self, now: float) -> tuple[int, tuple[Pair, ...], Woken] | None:
        """The next question: its number, the pairs, and the asks for which there is room in the one after; None if
        there is nothing to ask, or nothing may be asked now.
        """
        if not self.wanted or self.asked is not None or now < self.paused_until:
            return None
        self.numbers += 1
        self.questions += 1
        pairs = {pair: stamp for wanted in self.wanted.values() for pair, stamp in wanted.items()}
        self.asked, self.late, self.wanted = Question(self.numbers, pairs, now + DEADLINE_S), None, {}
        woken = self._called_back()
        self._settle()
        return self.numbers, tuple(pairs), woken

    def answer(self, number: int, refusals: dict[Pair, str], now: float) -> Woken:
        """The answer to a question. What it leaves out is refused, as is everything nobody answers."""
        woken = Woken()
        question = self.asked or self.late
        if question is None or question.number != number:
            return woken
        self.answers += 1
        self.asked, self.late, self.silences, self.paused_until = None, None, 0, 0.0
        said = {pair: (refusals.get(pair, NO_ANSWER), stamp) for pair, stamp in question.pairs.items()}
        self._learn(said, now + FRESH_S)
        woken.add(pair.key for pair in question.pairs)
        self._settle()
        return woken

    def elapse(self, now: float) -> Woken:
        """Give up on an answer that is too late; forget what is no longer fresh."""
        woken = Woken()
        question = self.asked
        if question is not None and question.deadline <= now:
            pause = min(PAUSE_S * 2**self.silences, PAUSE_MAX_S)
            self.silences = min(self.silences + 1, 16)
            self.paused_until = now + pause
            self.asked, self.late = None, question
            self.unanswered += 1
            self._learn(dict.fromkeys(question.pairs, (NO_ANSWER, None)), now + pause)
            woken.add(pair.key for pair in question.pairs)
        while self.forget and self.forget[0][0] <= now:
            _, number, keys = heapq.heappop(self.forget)
            woken.add(key for key in keys if self._forgotten(key, number))
        if self.asked is None and not self.wanted and self.paused_until <= now:
            woken.add(self._called_back().keys)  # all that were to be asked before them are gone
        self._settle()
        return woken

    def cool_down(self, key: str, node_id: str, reason: str, now: float) -> None:
        """The ask could not be started on this node: keep it from there for a while."""
        self._learn({Pair(key, node_id, allocate=True): (reason, None)}, now + COOL_DOWN_S)
        self._settle()

    def drop(self, key: str) -> None:
        """The ask is gone, or has its node. Where it cannot be started is remembered all the same."""
        lasting = {place: said for place, said in self.said.pop(key, {}).items() if said.stamp is None}
        if lasting:
            self.said[key] = lasting
        self.wanted.pop(key, None)
        self.turned_away.pop(key, None)
        self._settle()

    # Private --------------------------------------------------------------------------------------------------------

    def _learn(self, verdicts: Mapping[Pair, tuple[str, Stamp | None]], until: float) -> None:
        self.numbers += 1
        for pair, (refusal, stamp) in verdicts.items():
            self.said.setdefault(pair.key, {})[pair.node_id, pair.allocate] = Said(refusal, stamp, self.numbers)
        heapq.heappush(self.forget, (until, self.numbers, tuple(dict.fromkeys(pair.key for pair in verdicts))))

    def _forgotten(self, key: str, number: int) -> bool:
        """Forget what was said in this round; whether the ask may have waited for that."""
        known = self.said.get(key, {})
        old = [place for place, said in known.items() if said.round == number]
        gone = [known.pop(place) for place in old]
        if not known:
            self.said.pop(key, None)
        return any(said.refusal for said in gone)

    def _called_back(self) -> Woken:
        """As many of those that were turned away as the next question has room for."""
        woken = Woken()
        woken.add(islice(self.turned_away, ASKS_MAX))
        for key in woken.keys:
            del self.turned_away[key]
        return woken

    def _settle(self) -> None:
        asked = NEVER if self.asked is None else self.asked.deadline
        waiting = self.wanted or self.turned_away
        asking = self.paused_until if waiting and self.asked is None else NEVER
        self.deadline = min(asked, asking, self.forget[0][0] if self.forget else NEVER)
