"""What the resource manager's say about nodes does to the partition: what it is asked, and who is tried again then.

Not here: what it said (`predicates/verdicts.py`).
"""

from typing import Final

from common.rm_messages import PredicatesAnswered, PredicatesArgs, PredicatesAsked
from partition_worker.engine.allocation import Allocation
from partition_worker.engine.books import Books
from partition_worker.engine.predicates.rm_verdicts import DEADLINE_S, Pair, Woken

NOT_STARTED: Final = "the resource manager could not start it on this node"


def elapse(books: Books) -> None:
    """Give up on answers that are too late, forget verdicts that are too old, and ask what may be asked now."""
    verdicts = books.fleet.predicates.verdicts
    _wake(books, verdicts.elapse(books.now))
    question = verdicts.question(books.now)
    if question is not None:
        number, pairs, woken = question
        asked = [PredicatesArgs(allocation_key=key, node_id=node, allocate=allocate) for key, node, allocate in pairs]
        books.emit(PredicatesAsked(question=number, deadline_milli_seconds=int(DEADLINE_S * 1000), asked=asked))
        _wake(books, woken)


def take(books: Books, answered: PredicatesAnswered) -> None:
    """The resource manager has answered; too late, or a question that nobody put, and nothing happens."""
    refusals = {
        Pair(verdict.allocation_key, verdict.node_id, verdict.allocate): verdict.refusal
        for verdict in answered.verdicts
    }
    _wake(books, books.fleet.predicates.verdicts.answer(answered.question, refusals, books.now))


def not_started(books: Books, allocation: Allocation) -> None:
    """The resource manager could not start something on its node; where it has a say, that is one."""
    predicates = books.fleet.predicates
    if predicates.asks_manager:
        predicates.verdicts.cool_down(allocation.key, allocation.node_id, NOT_STARTED, books.now)


def _wake(books: Books, woken: Woken) -> None:
    """Try these asks again, as far as they still wait."""
    books.fleet.predicates.heard(woken.keys)
    for key in woken.keys:
        ask = books.allocations.get(key)
        if ask is None or ask.group is None:
            continue
        application = books.applications[ask.application_id]
        books.readiness.touch_application(application)
        if ask.held:
            books.swappable.offer(application)
        if ask.reserved:
            books.reserved.nudge(application.reservations[key].node)
        if ask.reserved or ask.task_group:
            books.readiness.relieve()  # these are not tried with the others of their application
