"""Taking away what an application has or asks for, one by one or all at once, with what follows for its state.

Not here: who says so, and who is told (`allocation_updates.py`, `node_updates.py`, `administration.py`...).
"""

from common.rm_messages import STOPPED_BY_RM
from partition_worker.engine import happenings, ledger, lifecycle, swaps
from partition_worker.engine.allocation import Allocation
from partition_worker.engine.application import Application
from partition_worker.engine.books import Books


def remove(
    books: Books, application: Application, allocation: Allocation, termination_type: int | None = STOPPED_BY_RM
) -> None:
    """Something no longer runs, because of a release of this type, or with its node if there is none. The ask that was
    about to take the place of a placeholder waits again.
    """
    if allocation.partner is not None:
        swaps.unwind(books, application, allocation.partner)
    told = books.told
    ledger.remove_allocation(books, application, allocation, termination_type)
    application.queue.released += 1
    gone = books.told
    if allocation.placeholder:
        lifecycle.placeholder_gone(books, application)
    else:
        lifecycle.allocation_gone(books, application)
    if not application.allocations or books.told > gone:  # most go without such consequences, and are told in order
        happenings.arrange(books, told, happenings.OF_ALLOCATION)


def take_back(books: Books, application: Application, ask: Allocation) -> None:
    """Something is no longer asked for. If it was about to take the place of a placeholder, that goes all the same."""
    if ask.key in application.swapping:
        ledger.undo_swap(books, application, ask)
    ledger.remove_ask(books, application, ask)
    lifecycle.ask_gone(books, application)


def empty(books: Books, application: Application, *, keeping_asks: bool = False) -> list[Allocation]:
    """Everything goes at once; what ran. What follows for the state is for the caller to say."""
    for ask in tuple(application.swapping.values()):
        swaps.unwind(books, application, ask) if keeping_asks else ledger.undo_swap(books, application, ask)
    if not keeping_asks:
        for ask in tuple(application.requests.values()):
            ledger.remove_ask(books, application, ask)
    ran = tuple(application.allocations.values())
    for allocation in ran:
        ledger.remove_allocation(books, application, allocation)
    return list(ran)
