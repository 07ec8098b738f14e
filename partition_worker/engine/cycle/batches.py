"""Asks that go along when one like them gets a node, where the application or its queue wants that.

An application that is to get many equal nodes gets up to so many in one go, before others have their turn. Nothing else
is different: each goes to the next node with room in the application's order, and only as far as its user, its group
and its queues have room.

Not here: whose turn it is (`descent.py`). Asks for which a node or a placeholder is kept, and those that only one node
will do for, go one at a time.
"""

from collections.abc import Iterator

from common.config.properties import allocation_batch
from partition_worker.engine.applications.application import Application
from partition_worker.engine.applications.asks import Group, Standing
from partition_worker.engine.books import Books
from partition_worker.engine.decisions import Allocate
from partition_worker.engine.queues.headroom import has_room
from partition_worker.engine.queues.policies import ALLOCATION_BATCH


def more(books: Books, application: Application, group: Group, most: int) -> Iterator[Allocate]:
    """Up to so many that go along once an ask of this group has its node; each has to be carried out before the next is
    found.
    """
    need, account = group.need, books.usage.account(application)
    if group.kind.standing is not Standing.OPEN or need.required_node:
        return
    for _ in range(most):
        if not len(group.asks) or not account.has_room(need.shape) or not has_room(application.queue, need.shape):
            return
        node = books.fleet.node_for(need, application)
        if node is None:
            return
        yield Allocate(application, group.head, node)


def size(application: Application) -> int:
    """How many it may get in one go: as its tag says, else its queue."""
    tag = application.tags.get(ALLOCATION_BATCH)
    wanted = None if tag is None else allocation_batch(tag)
    return wanted or application.queue.policies.allocation_batch
