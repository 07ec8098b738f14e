"""Plain decisions in a row: the same ones that `descent.py` would make, each for a third of the cost.

Mostly all there is to decide is which application that runs gets which node for an ask that wants nothing but room.
Nothing is set aside then, nobody makes others go, no state changes and no limit of a user is near; so a decision looks
at little, and much of its booking can wait for the end of the stretch (`engine/tab.py`).

A stretch ends before the first decision that is not plain, or where nothing can be placed: that one is for `cycle.py`.

Not here: what a decision is in general (`descent.py`).
"""

from partition_worker.engine.applications.application import Application
from partition_worker.engine.applications.states import AppState
from partition_worker.engine.books import Books
from partition_worker.engine.cycle import batches
from partition_worker.engine.queues.headroom import has_room
from partition_worker.engine.tab import Tab


def run(books: Books, budget: int) -> int:
    """Make up to so many decisions, as long as they are plain; how many were made."""
    if books.tree.root.maximum is None:
        return 0
    readiness = books.readiness
    readiness.refresh()
    if books.reserved.worth_a_look(readiness.reliefs) or books.swappable.first(readiness.reliefs) is not None:
        return 0
    tab, made = Tab(books), 0
    plain: dict[int, bool] = {}
    while made < budget:
        application = _next(books)
        if application is None:
            break
        if application.rank not in plain:
            plain[application.rank] = _plain(books, application)
        group = application.asks.first_group
        ask, need = group.head, group.need
        if not (plain[application.rank] and group.plain) or ask.placeholder or ask.lacks_quota or ask.lacks_queue_room:
            break
        node = books.fleet.first_fit(need, application) if has_room(application.queue, need.shape) else None
        if node is None:
            break
        tab.place(application, ask, node)
        made += 1
    tab.settle()
    return made


def _next(books: Books) -> Application | None:
    """Whose turn it is."""
    readiness, queue = books.readiness, books.tree.root
    while (child := readiness.next_child(queue)) is not None:
        queue = child
    return readiness.next_application(queue) if queue.leaf else None


def _plain(books: Books, application: Application) -> bool:
    """Whether the application runs, no limit binds it, and its asks get their nodes one at a time."""
    if application.state is not AppState.RUNNING or books.now < application.back_off_until:
        return False
    account = books.usage.account(application)
    return account.counted and not account.bounds and batches.size(application) == 1
