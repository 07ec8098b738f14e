"""Answers to updates for partitions that do not exist.

No worker receives such an update, so the proxy answers each item as a partition would. Items whose failure a partition
does not report (removals, changes of nodes) are ignored here too; releases are reported without a number, as a
partition reports releases without effect.

Not here: finding out whether a partition exists (`proxy.py`).
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


def refuse_items(command: Command, partition: str) -> News:
    """Return the answer to an update for a partition that does not exist."""
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


def report_ignored_releases(command: Command, partition: str) -> ReleasesIgnored | None:
    """Return the report about the releases of an update for a partition that does not exist; None if it has none."""
    releases = command.releases.allocations_to_release if isinstance(command, AllocationRequest) else []
    if not releases:
        return None
    reason = f"partition {partition} does not exist"
    listed = [replace(one, message=reason) for one in releases[:RELEASES_IGNORED_MAX]]
    return ReleasesIgnored(ignored=listed, more=len(releases) - len(listed))


def has_content(news: News) -> bool:
    """Return whether an answer has more than the acknowledgement in its header."""
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
