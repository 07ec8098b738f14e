"""In which order an application wants nodes to be tried: as its tag says, else its queue, else its partition.

A tag that says nothing known is as good as none. Not here: the orders (`fleet.py`).
"""

from typing import TYPE_CHECKING

from partition_worker.engine.queues.policies import NODE_SORT, NodeChoice, node_choice

if TYPE_CHECKING:
    from partition_worker.engine.applications.application import Application


def choice_of(application: "Application") -> NodeChoice | None:
    """What the application or its queue says; None if neither does."""
    tag = application.tags.get(NODE_SORT)
    wanted = None if tag is None else node_choice(tag)
    return wanted or application.queue.policies.node_sort
