"""How much of a full report a command carries: the RM that reports and the partition that checks count alike.

Not here: what becomes of what was not reported.
"""

from common.messages import Command
from common.rm_messages import (
    NODE_CREATE,
    NODE_CREATE_DRAIN,
    AllocationRequest,
    ApplicationRequest,
    NodeRequest,
    SyncEnd,
)


def reported(command: Command) -> SyncEnd:
    """The nodes that are created, the applications that are new, and every allocation; what goes counts for nothing."""
    match command:
        case NodeRequest(nodes=nodes):
            return SyncEnd(nodes=sum(one.action in (NODE_CREATE, NODE_CREATE_DRAIN) for one in nodes))
        case ApplicationRequest(new=new):
            return SyncEnd(applications=len(new))
        case AllocationRequest(allocations=allocations):
            return SyncEnd(allocations=len(allocations))
    return SyncEnd()


def both(one: SyncEnd, other: SyncEnd) -> SyncEnd:
    """The sums."""
    return SyncEnd(
        nodes=one.nodes + other.nodes,
        applications=one.applications + other.applications,
        allocations=one.allocations + other.allocations,
    )
