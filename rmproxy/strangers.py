"""Refusals of updates for partitions that do not exist.

Such an update reaches no worker, so the proxy itself says of each item what a partition would have said. Items that a
partition would ignore in silence (removals, changes of nodes) are ignored here too; releases are reported without a
number, as a partition reports those that have no effect.

Not here: finding out whether a partition exists (`front.py`).
"""

from msgspec.structs import replace

from common.messages import Command, News
from common.rm_messages import (
    NODE_CREATE,
    NODE_CREATE_DRAIN,
    RELEASES_IGNORED_MAX,
    AllocationRequest,
    AllocationResponse,
    ApplicationRequest,
    ApplicationResponse,
    NodeRequest,
    NodeResponse,
    Received,
    RejectedAllocation,
    RejectedApplication,
    RejectedNode,
    ReleasesIgnored,
    SyncDone,
    SyncEnd,
)


def refusal(command: Command, partition: str) -> News:
    """The answer to an update for a partition of this name that nobody has."""
    match command:
        case NodeRequest(nodes=nodes):
            return NodeResponse(
                rejected=[
                    RejectedNode(
                        node_id=node.node_id,
                        reason=f"failed to find partition {partition} for new node {node.node_id}",
                    )
                    for node in nodes
                    if node.action in (NODE_CREATE, NODE_CREATE_DRAIN)
                ]
            )
        case ApplicationRequest(new=new):
            return ApplicationResponse(
                rejected=[
                    RejectedApplication(
                        application_id=one.application_id,
                        reason=f"Failed to add application {one.application_id} to partition {partition}, "
                        "partition doesn't exist",
                    )
                    for one in new
                ]
            )
        case AllocationRequest(allocations=allocations):
            return AllocationResponse(
                rejected_allocations=[
                    RejectedAllocation(
                        allocation_key=one.allocation_key,
                        application_id=one.application_id,
                        reason=f"Failed to find partition {partition}, for application {one.application_id} "
                        f"and allocation {one.allocation_key}",
                    )
                    for one in allocations
                ]
            )
        case SyncEnd():
            return SyncDone(problem=f"failed to find partition {partition}")
    return Received()


def ignored_releases(command: Command, partition: str) -> ReleasesIgnored | None:
    """The report about the releases in an update for a partition of this name that nobody has; None if it has none."""
    releases = command.releases.allocations_to_release if isinstance(command, AllocationRequest) else []
    if not releases:
        return None
    reason = f"partition {partition} does not exist"
    listed = [replace(one, message=reason) for one in releases[:RELEASES_IGNORED_MAX]]
    return ReleasesIgnored(ignored=listed, more=len(releases) - len(listed))


def says_something(news: News) -> bool:
    """Whether an answer has anything in it besides the acknowledgement that its header carries."""
    match news:
        case NodeResponse(rejected=rejected):
            return bool(rejected)
        case ApplicationResponse(rejected=rejected):
            return bool(rejected)
        case AllocationResponse(rejected_allocations=rejected):
            return bool(rejected)
        case SyncDone():
            return True
    return False
