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

A question also has the *removals* that a search for victims needs verdicts about: an ask, a node, and the allocations
that would go for it (RM protocol, "preemption-predicates"; `preemption/node_choice.py`).
"""

import heapq
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from yunishard.common.messages.wire import NEVER

if TYPE_CHECKING:
    from yunishard.partition_worker.engine.nodes.node_index import Node

ASKS_MAX: Final = 64
"""Asks in one question."""

NODES_MAX: Final = 16
"""Nodes in one question for each ask: the first that have room, in the order in which they are tried."""

WIDE_PAIRS_MIN: Final = 16
WIDE_PAIRS_MAX: Final = ASKS_MAX * NODES_MAX
"""Pairs in one question of asks with the scope `partition`: at first, and at most. Each placement ends all verdicts
about such asks, so one answer places one of them, and more pairs would have no effect. After an answer that accepts
none, the next question may have four times as many; after one that accepts half of them, a quarter. One ask gets at
most half of them, so that one that fits nowhere does not delay all others.
"""

WIDE_SHARE: Final = 4
"""Pairs per deferred ask of this kind that is tried again for the next question, as some have no node with room."""

VICTIMS_MAX: Final = 20_000
"""Victims in the removals of one question, together; asks that need more are tried again for the next one."""

DEADLINE_S: Final = 0.2
"""Maximum time for an answer."""

FRESH_S: Final = 30.0
"""How long a verdict holds on a node that does not change. The RM may have changed by then."""

WIDE_RETRY_S: Final = 0.2
"""Seconds between two attempts to place asks with wide verdicts that wait, while allocations begin and end."""

COOL_DOWN_S: Final = 30.0
"""How long an ask is refused by a node on which the RM could not start it, also if the RM evaluates no predicates. Then
the node is an option again.
"""

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


class Removal(NamedTuple):
    """An ask, a node, and the allocations there that would be preempted for the ask, in this order. Those up to the
    index `start` have to go in any case, so that there is room. A search may need verdicts about two for each node.
    """

    key: str
    node_id: str
    victims: tuple[str, ...]
    start: int
    are_larger: bool = False
    """Whether victims may be larger than what remains of the guarantee."""


Place = tuple[str, type[Pair] | type[Removal], bool]
"""A node, and `allocate` of a pair or `are_larger` of a removal. Only the verdict about the latest removal counts."""


def _place_of(about: Pair | Removal) -> Place:
    if isinstance(about, Pair):
        return about.node_id, Pair, about.allocate
    return about.node_id, Removal, about.are_larger


class Stamp(NamedTuple):
    """A version of a node and, for a wide verdict, of everything that is placed."""

    node: "Node"
    version: int
    moment: int = -1
    """`Verdicts.moment`; -1 for a verdict that depends on its node alone."""


class Verdict(NamedTuple):
    """Whether an ask may run on a node."""

    refusal: str
    """The reason; empty if it may."""
    stamp: Stamp | None
    """The version of the node for which the verdict holds; None if it holds for all."""
    round: int
    """Verdicts of one round expire together."""
    removal: Removal | None = None
    """The removal that it is about; None if it is about a pair."""
    last: int = -1
    """The index of the last victim that has to go."""


class Question(NamedTuple):
    """A question to the RM."""

    number: int
    pairs: dict[Pair, Stamp]
    removals: dict[Removal, Stamp]
    deadline: float


class Verdicts:
    """Verdicts and questions of one RM. Methods that return keys return the asks that are worth another attempt."""

    def __init__(self) -> None:
        self.known: dict[str, dict[Place, Verdict]] = {}
        """By the key of the ask, then by what they are about."""
        self.requested: dict[str, dict[Pair, Stamp]] = {}
        """By the key of the ask."""
        self.removals: dict[str, dict[str, tuple[Removal, Stamp]]] = {}
        """Requested, by the key of the ask, then by node."""
        self.removal_keys = 0
        """Victims in them, together."""
        self.searching: Keys = {}
        """Asks whose search for victims waits for the next answer."""
        self.deferred: Keys = {}
        """Asks for which the next question has no room."""
        self.deferred_wide: Keys = {}
        """Those of them that have wide verdicts."""
        self.wide_pairs = 0
        """Pairs in `requested` of asks with wide verdicts."""
        self.wide_pairs_max = WIDE_PAIRS_MIN
        """Beyond it, no more such asks are requested."""
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
        self.moment = 0
        """Counts the changes of nodes and of what is placed on them."""
        self.wide: Keys = {}
        """Asks with wide verdicts: these hold until the next change."""
        self.wide_moment = 0
        """The moment of the last attempt to place those that wait."""
        self.wide_at = 0.0
        """When the next one may be made."""

    @property
    def deadline(self) -> float:
        """When `elapse` or `next_question` has something to do, in Unix seconds."""
        answer = NEVER if self.question is None else self.question.deadline
        send = self.paused_until if self.has_requests and self.question is None else NEVER
        again = self.wide_at if self.wide and self.moment != self.wide_moment else NEVER
        return min(answer, send, again, self.expiries[0][0] if self.expiries else NEVER)

    @property
    def has_requests(self) -> bool:
        """Whether there is something to ask, or to try again when the RM is asked."""
        return bool(self.requested or self.removals or self.deferred or self.deferred_wide)

    # Searches for a node --------------------------------------------------------------------------------------------

    def refusal(self, key: str, node: "Node", *, allocate: bool) -> str | None:
        """Return why the ask may not run on the node: empty if it may, None if there is no verdict."""
        verdict = self.known.get(key, {}).get((node.node_id, Pair, allocate))
        if verdict is None:
            return None
        stamp = verdict.stamp
        return verdict.refusal if stamp is None or (stamp.node is node and self._is_current(stamp)) else None

    def _is_current(self, stamp: Stamp) -> bool:
        return stamp.node.version == stamp.version and stamp.moment in (-1, self.moment)

    def accepting(self, key: str) -> Iterator["Node"]:
        """Yield the unchanged nodes that the ask may run on or reserve."""
        for verdict in self.known.get(key, {}).values():
            if (
                not verdict.refusal
                and verdict.removal is None
                and verdict.stamp is not None
                and self._is_current(verdict.stamp)
            ):
                yield verdict.stamp.node

    def request(self, key: str, node: "Node", *, allocate: bool, is_wide: bool = False) -> bool:
        """Request a verdict; return whether the next question has room for one more node of this ask."""
        pair = Pair(key, node.node_id, allocate)
        stamp = Stamp(node, node.version, self.moment if is_wide else -1)
        if self.question is not None and pair in self.question.pairs:
            return True  # if the node has changed since, it is requested again after the answer
        if key not in self.requested:
            if not self._has_room_for_ask(is_wide=is_wide):
                self._deferred_of(is_wide=is_wide)[key] = None
                return False
            self._deferred_of(is_wide=is_wide).pop(key, None)
        pairs = self.requested.setdefault(key, {})
        nodes_max = NODES_MAX
        if is_wide:
            nodes_max = max(NODES_MAX, self.wide_pairs_max // 2)
            self.wide_pairs += pair not in pairs and len(pairs) < nodes_max
        if pair in pairs or len(pairs) < nodes_max:
            pairs[pair] = stamp
        return len(pairs) < nodes_max

    def _has_room_for_ask(self, *, is_wide: bool) -> bool:
        """Whether the next question has room for one more ask."""
        return len(self.requested) < ASKS_MAX and not (is_wide and self.wide_pairs >= self.wide_pairs_max)

    def defer(self, key: str, *, is_wide: bool = False) -> bool:
        """Whether there is no verdict about this ask and the next question has no room for it. Then no node takes it
        now, and it is tried again when the question after the next has room.
        """
        if self._has_room_for_ask(is_wide=is_wide) or key in self.requested or key in self.known:
            return False
        self._deferred_of(is_wide=is_wide)[key] = None
        return True

    def _deferred_of(self, *, is_wide: bool) -> Keys:
        return self.deferred_wide if is_wide else self.deferred

    # Searches for victims -------------------------------------------------------------------------------------------

    def find_removal(self, removal: Removal, node: "Node") -> Verdict | None:
        """Return the verdict about a removal, if there is one that holds."""
        verdict = self.known.get(removal.key, {}).get(_place_of(removal))
        if verdict is None or verdict.stamp is None:  # a silent RM refuses the node, whatever the victims are
            return verdict
        is_current = verdict.stamp.node is node and self._is_current(verdict.stamp)
        return verdict if is_current and verdict.removal == removal else None

    def request_removal(self, removal: Removal, node: "Node") -> bool:
        """Request the verdict about a removal, in place of an earlier one of this ask on the node; return whether the
        next question has room for more.
        """
        if self.question is not None and removal in self.question.removals:
            return True
        requested = self.removals.setdefault(removal.key, {})
        before = requested.pop(removal.node_id, None)
        self.removal_keys += len(removal.victims) - (0 if before is None else len(before[0].victims))
        if self.removal_keys > VICTIMS_MAX:
            self.removal_keys -= len(removal.victims)
            self.deferred[removal.key] = None
            if not requested:
                del self.removals[removal.key]
            return False
        requested[removal.node_id] = removal, Stamp(node, node.version)
        return True

    # Questions and answers ------------------------------------------------------------------------------------------

    def next_question(self, now: float) -> tuple[Question, Keys] | None:
        """Return the next question, if it may be sent now, and the asks for which the one after it has room.

        With wide pairs the caller has made all decisions before: each placement ends the verdicts about them.
        """
        if not (self.requested or self.removals) or self.question is not None or now < self.paused_until:
            return None
        self.numbers += 1
        self.questions += 1
        pairs = {
            pair: stamp if stamp.moment < 0 else Stamp(stamp.node, stamp.node.version, self.moment)
            for requested in self.requested.values()
            for pair, stamp in requested.items()
        }  # the RM has everything that was placed until now, so a wide verdict holds from here
        removals = dict(one for requested in self.removals.values() for one in requested.values())
        self.question, self.late = Question(self.numbers, pairs, removals, now + DEADLINE_S), None
        self.requested, self.removals, self.removal_keys, self.wide_pairs = {}, {}, 0, 0
        return self.question, self._undefer()

    def apply_answer(
        self,
        number: int,
        refusals: Mapping[Pair, str],
        now: float,
        removals: Mapping[tuple[str, str], tuple[str, int]] | None = None,
    ) -> Keys:
        """Apply the answer to a question. Pairs and removals that it leaves out are refused. `removals` has the refusal
        and the index of the last victim, by the key of the ask and the node.
        """
        question = self.question or self.late
        if question is None or question.number != number:
            return {}
        self.answers += 1
        self.question, self.late, self.silences, self.paused_until = None, None, 0, 0.0
        learned: dict[Pair | Removal, Verdict] = {}
        wide = wide_accepted = 0
        for pair, stamp in question.pairs.items():
            learned[pair] = verdict = Verdict(refusals.get(pair, NO_ANSWER), stamp, 0)
            if stamp.moment >= 0:
                self.wide[pair.key] = None
                wide, wide_accepted = wide + 1, wide_accepted + (not verdict.refusal)
        if wide and not wide_accepted:
            self.wide_pairs_max = min(self.wide_pairs_max * 4, WIDE_PAIRS_MAX)
        elif wide_accepted * 2 > wide:
            self.wide_pairs_max = max(self.wide_pairs_max // 4, WIDE_PAIRS_MIN)
        for removal, stamp in question.removals.items():
            refusal, last = (removals or {}).get((removal.key, removal.node_id), (NO_ANSWER, -1))
            if not refusal and not removal.start <= last < len(removal.victims):
                right = f"{removal.start} to {len(removal.victims) - 1}"
                refusal = f"the resource manager named victim {last}, which is not one of {right}"
            learned[removal] = Verdict(refusal, stamp, 0, removal, last)
        return self._learn(learned, now + FRESH_S)

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
            unknown: dict[Pair | Removal, Verdict] = {pair: Verdict(NO_ANSWER, None, 0) for pair in question.pairs}
            for removal in question.removals:
                for are_larger in (False, True):
                    unknown[removal._replace(are_larger=are_larger)] = Verdict(NO_ANSWER, None, 0, removal)
            retried |= self._learn(unknown, now + pause)
        while self.expiries and self.expiries[0][0] <= now:
            _, number, keys = heapq.heappop(self.expiries)
            retried |= {key: None for key in keys if self._expire(key, number)}
        if self.wide and self.moment != self.wide_moment and self.wide_at <= now:
            self.wide_moment, self.wide_at = self.moment, now + WIDE_RETRY_S
            retried |= self.wide
            self.wide = {}
        if self.question is None and not (self.requested or self.removals) and self.paused_until <= now:
            retried |= self._undefer()  # all asks before them are gone
        return retried

    def refuse(self, key: str, node_id: str, reason: str, now: float) -> None:
        """Refuse an ask on a node for a while: the RM could not start it there. It does not reserve the node either."""
        pairs = (Pair(key, node_id, allocate=True), Pair(key, node_id, allocate=False))
        self._learn(dict.fromkeys(pairs, Verdict(reason, None, 0)), now + COOL_DOWN_S)

    def drop(self, key: str) -> None:
        """Drop an ask that is gone or has its node; refusals that hold for all versions of a node stay."""
        lasting = {place: verdict for place, verdict in self.known.pop(key, {}).items() if verdict.stamp is None}
        if lasting:
            self.known[key] = lasting
        self.wide_pairs -= sum(stamp.moment >= 0 for stamp in self.requested.pop(key, {}).values())
        self.wide.pop(key, None)
        for removal, _ in self.removals.pop(key, {}).values():
            self.removal_keys -= len(removal.victims)
        self.deferred.pop(key, None)
        self.deferred_wide.pop(key, None)
        self.searching.pop(key, None)

    def _learn(self, verdicts: Mapping[Pair | Removal, Verdict], until: float) -> Keys:
        """Store verdicts until this time, as those of one round; return the keys of their asks."""
        self.numbers += 1
        for about, verdict in verdicts.items():
            self.known.setdefault(about.key, {})[_place_of(about)] = verdict._replace(round=self.numbers)
        keys = dict.fromkeys(about.key for about in verdicts)
        for key in keys:
            self.searching.pop(key, None)
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
        keys: Keys = {}
        for deferred, count in ((self.deferred, ASKS_MAX), (self.deferred_wide, self.wide_pairs_max // WIDE_SHARE)):
            for key in tuple(islice(deferred, count)):
                del deferred[key]
                self.searching.pop(key, None)
                keys[key] = None
        return keys
