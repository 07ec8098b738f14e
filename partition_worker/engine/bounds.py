"""How much a partition keeps at most, whatever its RM sends. What would be one more is refused, and the reason says
which bound is met; what is there already is never touched.

Whatever is counted by something of these (the queues of applications, the task groups of asks, users and their groups)
is bounded with it. Not here: what is only remembered (`books.py`), and how much may be on its way (`common/outbox.py`).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from common.rm_messages import AddApplicationRequest, Allocation, NodeInfo
from partition_worker.engine.books import Books

APPLICATIONS_MAX: Final = 200_000
"""Applications of a partition that have not ended. One takes a few kilobytes."""

NODES_MAX: Final = 100_000
"""Nodes of a partition. The reference is not known to have been run with a tenth of them."""

TEXT_MAX: Final = 512 << 10
"""Characters of everything that one ask, application or node says of itself: names, tags, attributes, groups. Twice
what Kubernetes lets a pod have in annotations.
"""


def ask_objection(books: Books, ask: Allocation) -> str:
    """Why there is no room for one more ask or allocation, a foreign one too; empty if there is."""
    if len(books.allocations) + len(books.foreign) >= books.tuning.asks_max:
        return f"the partition has {books.tuning.asks_max} asks and allocations, the setting asks-max allows no more"
    size = len(ask.allocation_key) + len(ask.application_id) + len(ask.task_group_name)
    return _too_much(size + _text(ask.allocation_tags) + _lengths(ask.resource_per_alloc))


def application_objection(books: Books, new: AddApplicationRequest) -> str:
    """The same for an application."""
    if len(books.applications) + len(books.waiting) >= APPLICATIONS_MAX:
        return f"the partition has {APPLICATIONS_MAX} applications, it takes no more"
    names = (new.application_id, new.queue_name, new.ugi.user, *new.ugi.groups, *new.placeholder_ask)
    return _too_much(_text(new.tags) + _lengths(names))


def node_objection(books: Books, info: NodeInfo) -> str:
    """The same for a node."""
    if len(books.fleet) >= NODES_MAX:
        return f"the partition has {NODES_MAX} nodes, it takes no more"
    return _too_much(len(info.node_id) + _text(info.attributes) + _lengths(info.schedulable_resource or {}))


def _too_much(size: int) -> str:
    return f"it says {size} characters of itself, at most {TEXT_MAX} are kept" if size > TEXT_MAX else ""


def _text(tags: Mapping[str, str]) -> int:
    return _lengths(tags) + _lengths(tags.values()) if tags else 0


def _lengths(texts: Iterable[str]) -> int:
    return sum(map(len, texts))
