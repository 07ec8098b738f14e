"""Which leaves can take an application that wants its first tasks all at once, a gang.

Placeholders hold what they got until the last of them has its node, so the leaf must serve applications in the order
in which they came, or two gangs could keep each other from ever being complete; and a gang must fit the leaf at all.

Not here: placeholders themselves.
"""

from common.messages import Resources
from common.resources import Limit, admits, is_positive, text, tightened
from partition_worker.engine.queues.queue import Queue


def objection(leaf: Queue, application_id: str, gang: Resources) -> str:
    """Why the leaf cannot take an application with these placeholders in total; empty when it can, or when there are
    none. The size of the cluster does not count, it may grow.
    """
    if not is_positive(gang):
        return ""
    if leaf.policies.application_sort == "fair":
        return (
            f"queue {leaf.path} cannot run application {application_id} with task group request: unsupported sort type"
        )
    maximum: Limit | None = None
    for level in leaf.ancestry():
        if level.parent is not None:
            maximum = tightened(maximum, level.maximum)
    if maximum is None or admits(maximum, gang):
        return ""
    return (
        f"queue {leaf.path} cannot fit application {application_id}: "
        f"task group request {text(gang)} larger than max queue allocation {text(maximum)}"
    )
