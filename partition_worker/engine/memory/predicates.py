"""What the resource manager said about asks and nodes, and what it is asked.

What a verdict is about may have changed since, or be gone; then all that counts is that it does not hold. Written too
is what was sought in vain of nodes that the resource manager may know more about: looking again asks it again. What
predicates here have answered is asked again, they always answer the same.
"""

from collections.abc import Mapping
from typing import Final

from partition_worker.engine.memory.model import PairMemory, PredicatesMemory, QuestionMemory, VerdictsMemory
from partition_worker.engine.memory.references import Lookup, Numbering
from partition_worker.engine.memory.values import NOBODY
from partition_worker.engine.nodes.fleet import Fleet
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.predicates.predicates import Predicates
from partition_worker.engine.predicates.verdicts import Pair, Question, Said, Stamp, Verdicts

_OUTDATED: Final = Stamp(Node("", NOBODY, {}, {}), NOBODY)


def written(fleet: Fleet, numbering: Numbering) -> PredicatesMemory:
    """All of it."""
    predicates = fleet.predicates
    asked = ((need, allocate) for need, allocate in predicates.in_vain if need.constraint and need.constraint.asked)
    in_vain = [(numbering.need(need), allocate) for need, allocate in asked]
    return PredicatesMemory(
        asks_manager=predicates.asks_manager,
        complained=list(predicates.complained),
        in_vain=[(need, allocate) for need, allocate in in_vain if need is not None],
        verdicts=_verdicts(predicates.verdicts, fleet),
    )


def _verdicts(verdicts: Verdicts, fleet: Fleet) -> VerdictsMemory:
    return VerdictsMemory(
        deadline=verdicts.deadline,
        said=[
            (
                key,
                [
                    (node_id, allocate, refusal, None if stamp is None else _rank(stamp, fleet), number)
                    for (node_id, allocate), (refusal, stamp, number) in places.items()
                ],
            )
            for key, places in verdicts.said.items()
        ],
        wanted=[(key, _pairs(pairs, fleet)) for key, pairs in verdicts.wanted.items()],
        turned_away=list(verdicts.turned_away),
        question=_question(verdicts.asked, fleet),
        late=_question(verdicts.late, fleet),
        numbers=verdicts.numbers,
        silences=verdicts.silences,
        paused_until=verdicts.paused_until,
        forget=verdicts.forget,
    )


def _rank(stamp: Stamp, fleet: Fleet) -> int:
    return stamp.node.rank if stamp.holds and fleet.get(stamp.node.node_id) is stamp.node else NOBODY


def _pairs(pairs: Mapping[Pair, Stamp], fleet: Fleet) -> list[tuple[PairMemory, int]]:
    return [(pair, _rank(stamp, fleet)) for pair, stamp in pairs.items()]


def _question(question: Question | None, fleet: Fleet) -> QuestionMemory | None:
    return None if question is None else (question.number, _pairs(question.pairs, fleet), question.deadline)


# Reading ------------------------------------------------------------------------------------------------------------


def restore(predicates: Predicates, found: PredicatesMemory, lookup: Lookup) -> None:
    """Let it be known again; nodes and allocations are where they were."""
    predicates.asks_manager = found.asks_manager
    predicates.complained = dict.fromkeys(found.complained)
    predicates.in_vain = {(lookup.need(need), allocate): None for need, allocate in found.in_vain}
    verdicts, memory = predicates.verdicts, found.verdicts
    verdicts.deadline = memory.deadline
    for key, places in memory.said:
        verdicts.said[key] = {
            (node_id, allocate): Said(refusal, None if rank is None else _stamp_of(rank, lookup), number)
            for node_id, allocate, refusal, rank, number in places
        }
    for key, pairs in memory.wanted:
        verdicts.wanted[key] = _pairs_of(pairs, lookup)
    verdicts.turned_away = dict.fromkeys(memory.turned_away)
    verdicts.asked, verdicts.late = _question_of(memory.question, lookup), _question_of(memory.late, lookup)
    verdicts.numbers, verdicts.silences = memory.numbers, memory.silences
    verdicts.paused_until, verdicts.forget = memory.paused_until, memory.forget


def _stamp_of(rank: int, lookup: Lookup) -> Stamp:
    return _OUTDATED if rank == NOBODY else Stamp(lookup.nodes[rank], lookup.nodes[rank].version)


def _pairs_of(pairs: list[tuple[PairMemory, int]], lookup: Lookup) -> dict[Pair, Stamp]:
    return {Pair(*pair): _stamp_of(rank, lookup) for pair, rank in pairs}


def _question_of(memory: QuestionMemory | None, lookup: Lookup) -> Question | None:
    return None if memory is None else Question(memory[0], _pairs_of(memory[1], lookup), memory[2])
