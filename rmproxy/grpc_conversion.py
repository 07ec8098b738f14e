"""Converts the scheduler interface's protobuf messages to our own and back, and splits large ones.

Both directions are on the hot path (5,000 asks in a request, thousands of allocations a second), so these are plain
loops over the fields in use, without reflection. The conversion validates nothing: an unknown enum number stays as it
is, an absent part becomes the default of our struct, and comments name what is left out on purpose.

Not here: streams (`grpc_scheduler_service.py`), sessions (`grpc_manager.py`), partition names (`common/session.py`).
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from common.messages import Resources
from common.rm_messages import (
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    AllocationResponse,
    ApplicationRequest,
    ApplicationResponse,
    NodeInfo,
    NodeRequest,
    NodeResponse,
    PreemptionPolicy,
    RegisterResourceManager,
    RemoveApplicationRequest,
    UserGroupInformation,
)
from rmproxy.si import scheduler_pb2 as pb

_NO_RELEASES: Final = AllocationReleasesRequest()


# From the RM --------------------------------------------------------------------------------------------------------


def read_registration(request: pb.RegisterResourceManagerRequest) -> RegisterResourceManager:
    """Read a registration."""
    return RegisterResourceManager(
        rm_id=request.rmID,
        version=request.version,
        policy_group=request.policyGroup,
        build_info=dict(request.buildInfo),
        config=request.config,
        extra_config=dict(request.extraConfig),
    )


def read_nodes(request: pb.NodeRequest) -> NodeRequest:
    """Read new, changed and removed nodes."""
    return NodeRequest(
        nodes=[
            NodeInfo(
                node_id=node.nodeID,
                action=node.action,
                attributes=dict(node.attributes),
                schedulable_resource=(
                    _resources_from(node.schedulableResource) if node.HasField("schedulableResource") else None
                ),
            )
            for node in request.nodes
        ],
        rm_id=request.rmID,
    )


def read_applications(request: pb.ApplicationRequest) -> ApplicationRequest:
    """Read new and removed applications."""
    return ApplicationRequest(
        new=[_application_from(item) for item in request.new],
        remove=[
            RemoveApplicationRequest(application_id=item.applicationID, partition_name=item.partitionName)
            for item in request.remove
        ],
        rm_id=request.rmID,
    )


def read_allocations(request: pb.AllocationRequest) -> AllocationRequest:
    """Read asks, running allocations and releases."""
    releases = _NO_RELEASES
    if request.HasField("releases"):
        releases = AllocationReleasesRequest(
            allocations_to_release=[_release_from(item) for item in request.releases.allocationsToRelease]
        )
    amounts: dict[bytes, Resources] = {}
    allocations = [_allocation_from(item, amounts) for item in request.allocations]
    return AllocationRequest(allocations=allocations, releases=releases, rm_id=request.rmID)


def _application_from(item: pb.AddApplicationRequest) -> AddApplicationRequest:
    return AddApplicationRequest(
        application_id=item.applicationID,
        queue_name=item.queueName,
        partition_name=item.partitionName,
        ugi=UserGroupInformation(user=item.ugi.user, groups=list(item.ugi.groups)),
        tags=dict(item.tags),
        execution_timeout_milli_seconds=item.executionTimeoutMilliSeconds,
        placeholder_ask=_resources_from(item.placeholderAsk),
        gang_scheduling_style=item.gangSchedulingStyle,
    )


def _allocation_from(item: pb.Allocation, amounts: dict[bytes, Resources]) -> Allocation:
    """Read an ask or allocation. Asks of one request mostly have equal resources: encoding the map and looking it up
    takes a third of the time of reading it.
    """
    encoded = item.resourcePerAlloc.SerializeToString()
    resources = amounts.get(encoded)
    if resources is None:
        resources = amounts[encoded] = _resources_from(item.resourcePerAlloc)
    tags = item.allocationTags
    return Allocation(
        allocation_key=item.allocationKey,
        application_id=item.applicationID,
        partition_name=item.partitionName,
        resource_per_alloc=resources,
        node_id=item.nodeID,
        priority=item.priority,
        allocation_tags=dict(tags) if tags else {},
        task_group_name=item.taskGroupName,
        placeholder=item.placeholder,
        originator=item.originator,
        preemption_policy=_policy_from(item.preemptionPolicy) if item.HasField("preemptionPolicy") else None,
    )


def _policy_from(policy: pb.PreemptionPolicy) -> PreemptionPolicy:
    return PreemptionPolicy(allow_preempt_self=policy.allowPreemptSelf, allow_preempt_other=policy.allowPreemptOther)


def _release_from(item: pb.AllocationRelease) -> AllocationRelease:
    return AllocationRelease(
        partition_name=item.partitionName,
        application_id=item.applicationID,
        allocation_key=item.allocationKey,
        termination_type=item.terminationType,
        message=item.message,
    )


def _resources_from(resource: pb.Resource) -> Resources:
    quantities = resource.resources
    return {kind: quantities[kind].value for kind in quantities}  # items() of a protobuf map takes half as long again


# To the RM ----------------------------------------------------------------------------------------------------------


def write_response(news: NodeResponse | ApplicationResponse | AllocationResponse) -> bytes:
    """Encode a partition's reply as protobuf."""
    match news:
        case AllocationResponse():
            return write_allocations(news).SerializeToString()
        case ApplicationResponse():
            return write_applications(news).SerializeToString()
        case NodeResponse():
            return write_nodes(news).SerializeToString()


def write_nodes(news: NodeResponse) -> pb.NodeResponse:
    """Write which nodes were accepted and rejected."""
    response = pb.NodeResponse()
    for accepted in news.accepted:
        response.accepted.add(nodeID=accepted.node_id)
    for rejected in news.rejected:
        response.rejected.add(nodeID=rejected.node_id, reason=rejected.reason)
    return response


def write_applications(news: ApplicationResponse) -> pb.ApplicationResponse:
    """Write which applications were accepted and rejected, and their new states."""
    response = pb.ApplicationResponse()
    for accepted in news.accepted:
        response.accepted.add(applicationID=accepted.application_id)
    for rejected in news.rejected:
        response.rejected.add(applicationID=rejected.application_id, reason=rejected.reason)
    for updated in news.updated:
        response.updated.add(
            applicationID=updated.application_id,
            state=updated.state,
            stateTransitionTimestamp=updated.state_transition_timestamp,
            message=updated.message,
        )
    return response


def write_allocations(news: AllocationResponse) -> pb.AllocationResponse:
    """Write new allocations, releases and rejected asks."""
    response = pb.AllocationResponse()
    add = response.new.add
    for allocation in news.new:
        _fill(add(), allocation)
    for release in news.released:
        response.released.add(
            partitionName=release.partition_name,
            applicationID=release.application_id,
            allocationKey=release.allocation_key,
            terminationType=release.termination_type,
            message=release.message,
        )
    for refusal in news.rejected_allocations:
        response.rejectedAllocations.add(
            allocationKey=refusal.allocation_key, applicationID=refusal.application_id, reason=refusal.reason
        )
    return response


def _fill(item: pb.Allocation, allocation: Allocation) -> None:
    """Write the fields that the reference writes: the RM has partition, priority and tags itself.

    Assigning field by field takes half as long as passing keywords to `add`.
    """
    item.allocationKey = allocation.allocation_key
    item.applicationID = allocation.application_id
    item.nodeID = allocation.node_id
    quantities = item.resourcePerAlloc.resources
    for kind, value in allocation.resource_per_alloc.items():
        quantities[kind].value = value
    if allocation.task_group_name:
        item.taskGroupName = allocation.task_group_name
    if allocation.placeholder:
        item.placeholder = True
    if allocation.originator:
        item.originator = True
    policy = allocation.preemption_policy
    if policy is None or not (policy.allow_preempt_self or policy.allow_preempt_other):
        item.preemptionPolicy.SetInParent()
    else:
        item.preemptionPolicy.allowPreemptSelf = policy.allow_preempt_self
        item.preemptionPolicy.allowPreemptOther = policy.allow_preempt_other


# Splitting -----------------------------------------------------------------------------------------------------------
#
# A request may be longer in our encoding than in protobuf, because ours has the names of the fields; and a gRPC client
# refuses more than 4 MiB by default, which would end the stream. Items keep their order; a single item is never split.

REQUEST_ITEMS_MAX: Final = 10_000
"""Items in a request; the names of their fields then take at most 4 MiB."""

RESPONSE_BYTES_MAX: Final = 3 << 20
"""Size of an encoded response that has more than one entry."""

Update = NodeRequest | ApplicationRequest | AllocationRequest
Response = NodeResponse | ApplicationResponse | AllocationResponse
_T = TypeVar("_T")


def split_request(update: Update) -> Iterator[Update]:
    """Split an update that has too many items; items keep the order in which a partition handles them."""
    match update:
        case NodeRequest(nodes=nodes) if len(nodes) > REQUEST_ITEMS_MAX:
            yield from (NodeRequest(nodes=part, rm_id=update.rm_id) for part in _parts(nodes))
        case ApplicationRequest(new=new, remove=remove) if len(new) + len(remove) > REQUEST_ITEMS_MAX:
            yield from (ApplicationRequest(new=part, rm_id=update.rm_id) for part in _parts(new))
            yield from (ApplicationRequest(remove=part, rm_id=update.rm_id) for part in _parts(remove))
        case AllocationRequest(allocations=asks) if (
            len(asks) + len(update.releases.allocations_to_release) > REQUEST_ITEMS_MAX
        ):
            yield from (AllocationRequest(allocations=part, rm_id=update.rm_id) for part in _parts(asks))
            for part in _parts(update.releases.allocations_to_release):
                releases = AllocationReleasesRequest(allocations_to_release=part)
                yield AllocationRequest(releases=releases, rm_id=update.rm_id)
        case _:
            yield update


def split_response(news: Response) -> Iterator[bytes]:
    """Encode a response, as several if it is too large."""
    encoded = write_response(news)
    if len(encoded) <= RESPONSE_BYTES_MAX:
        yield encoded
        return
    middle = _entries(news) // 2
    if not middle:
        yield encoded
        return
    for half in _halves(news, middle):
        yield from split_response(half)


def _parts(items: Sequence[_T]) -> Iterator[list[_T]]:
    for start in range(0, len(items), REQUEST_ITEMS_MAX):
        yield list(items[start : start + REQUEST_ITEMS_MAX])


def _entries(news: Response) -> int:
    match news:
        case NodeResponse():
            return len(news.accepted) + len(news.rejected)
        case ApplicationResponse():
            return len(news.accepted) + len(news.rejected) + len(news.updated)
        case AllocationResponse():
            return len(news.new) + len(news.released) + len(news.rejected_allocations)


def _halves(news: Response, middle: int) -> tuple[Response, Response]:
    """Return a response with the first `middle` entries, and one with the others."""
    match news:
        case NodeResponse(accepted=accepted, rejected=rejected):
            a, r = _cuts(middle, accepted, rejected)
            return (
                NodeResponse(accepted=accepted[:a], rejected=rejected[:r]),
                NodeResponse(accepted=accepted[a:], rejected=rejected[r:]),
            )
        case ApplicationResponse(accepted=accepted, rejected=rejected, updated=updated):
            a, r, u = _cuts(middle, accepted, rejected, updated)
            return (
                ApplicationResponse(accepted=accepted[:a], rejected=rejected[:r], updated=updated[:u]),
                ApplicationResponse(accepted=accepted[a:], rejected=rejected[r:], updated=updated[u:]),
            )
        case AllocationResponse(new=new, released=released, rejected_allocations=rejected):
            n, g, r = _cuts(middle, new, released, rejected)
            return (
                AllocationResponse(new=new[:n], released=released[:g], rejected_allocations=rejected[:r]),
                AllocationResponse(new=new[n:], released=released[g:], rejected_allocations=rejected[r:]),
            )


def _cuts(middle: int, *lists: Sequence[object]) -> list[int]:
    """Return where to cut each list so that `middle` entries are before the cuts, those of the first lists first."""
    cuts: list[int] = []
    for one in lists:
        cuts.append(min(len(one), middle - sum(cuts)))
    return cuts
