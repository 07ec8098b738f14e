"""The second turn of the cycle: real asks take the places of placeholders of their task group.

    1. The most deserving application that has both (`readiness/swappable.py`), and of its asks the first whose group
       has a placeholder.
    2. Placeholders that are smaller than the ask are of no use to it: they are let go.
    3. The ask takes the place of the first that is large enough, on the same node; if that node does not admit it, it
       gets another one.

The RM is asked to let the placeholder go and nothing else changes until it confirms that, so a swap needs no room with
queues, users and groups: they are charged for the placeholder already.

Not here: booking a swap (`ledger.py`), and who waits for a placeholder (`placeholders.py`).
"""

from collections.abc import Iterable
from typing import Final

from common.resources import fits
from common.rm_messages import PLACEHOLDER_REPLACED
from partition_worker.engine import happenings, ledger, lifecycle, placeholders
from partition_worker.engine.allocation import Allocation
from partition_worker.engine.application import Application
from partition_worker.engine.application_states import AppEvent, AppState
from partition_worker.engine.books import Books
from partition_worker.engine.decisions import Release, Replace

REFUSED_MAX: Final = 64
"""Kinds of asks of one application for which no node of a placeholder would do, after which no others are looked at."""


def decide(books: Books) -> Replace | Release | None:
    """The next decision about placeholders, or None. Changes nothing but what is set aside."""
    while (application := books.swappable.first(books.readiness.reliefs)) is not None:
        decision = _from_application(books, application)
        if decision is not None:
            return decision
        if placeholders.may_swap(application):
            books.swappable.set_aside(application)
        else:
            books.swappable.drop(application)
    return None


def _from_application(books: Books, application: Application) -> Replace | Release | None:
    """What to do about its first ask for which anything can be done. Of those for which no node of a placeholder
    would do only the first may get another node.
    """
    refused: list[tuple[Allocation, Allocation]] = []
    for group in application.asks.groups:
        if group.kind.task_group:
            free = application.task_groups[group.kind.task_group].free
            decision, placeholder = _in_place(books, application, group.head, free.values())
            if decision is not None:
                return decision
            if placeholder is not None:
                refused.append((group.head, placeholder))
        if len(refused) == REFUSED_MAX:
            break
    for ask, placeholder in refused[:1]:
        node = books.fleet.node_for(ask.need, application)
        if node is not None:
            return Replace(application, ask, placeholder, node)
    return None


def _in_place(
    books: Books, application: Application, ask: Allocation, free: Iterable[Allocation]
) -> tuple[Replace | Release | None, Allocation | None]:
    """What to do about an ask, up to the first placeholder whose place it can take on its node; without one, the first
    that is large enough.
    """
    small: list[Allocation] = []
    tried: dict[str, None] = {}
    large = replace = None
    for placeholder in free:
        if not fits(placeholder.resources, ask.resources):
            small.append(placeholder)
            continue
        large = large or placeholder
        if placeholder.node_id in tried:
            continue
        tried[placeholder.node_id] = None
        node = books.fleet.get(placeholder.node_id)
        assert node is not None, (placeholder.key, placeholder.node_id)
        if books.fleet.admits(ask.need, node, allocate=False):
            replace = Replace(application, ask, placeholder, node)
            break
    return (Release(application, ask, tuple(small)) if small else replace), large


def commit(books: Books, decision: Replace | Release) -> None:
    """Carry a decision out: the RM is asked, and its answer is waited for."""
    match decision:
        case Replace(application, ask, placeholder, node):
            ledger.begin_swap(books, application, ask, placeholder, node)
            books.emit(placeholder.release(books.name, f"replacing allocationKey: {ask.key}", PLACEHOLDER_REPLACED))
        case Release(application, ask, small):
            for placeholder in small:
                happenings.not_matching(books, ask, placeholder)
            placeholders.let_go(books, application, list(small), "cancel placeholder: resource incompatible")


def confirm(books: Books, application: Application, placeholder: Allocation) -> Allocation:
    """The RM let the placeholder go: what takes its place runs, and the RM is to be told so."""
    ask = placeholder.partner
    assert ask is not None, placeholder.key
    ledger.end_swap(books, application, ask)
    return ask


def unwind(books: Books, application: Application, ask: Allocation) -> None:
    """The ask can no longer take the place of its placeholder: it waits again."""
    ledger.undo_swap(books, application, ask)
    if application.state is AppState.COMPLETING:
        lifecycle.fire(books, application, AppEvent.RUN)
