"""Converts the scheduler interface's protobuf messages to our own and back, and splits large ones.

Both directions are on the hot path (5,000 asks in a request, thousands of allocations a second), so these are plain
loops over the fields in use, without reflection. The conversion validates nothing: an unknown enum number stays as it
is, an absent part becomes the default of our struct, and comments name what is left out on purpose.

Not here: streams (`grpc_scheduler_service.py`), sessions (`grpc_manager.py`), partition names
(`common/messages/session.py`).
"""

from collections.abc import Iterator
from typing import Final, TypeVar

from google.protobuf.json_format import MessageToDict
from msgspec import convert, to_builtins
from msgspec.structs import asdict, replace

from yunishard.common.messages import rm_messages
from yunishard.common.messages.kinds import Resources
from yunishard.rmproxy.admin import admin_pb2 as admin_pb
from yunishard.rmproxy.si import scheduler_pb2 as pb

Update = rm_messages.NodeRequest | rm_messages.ApplicationRequest | rm_messages.AllocationRequest
Response = rm_messages.NodeResponse | rm_messages.ApplicationResponse | rm_messages.AllocationResponse
_T = TypeVar("_T")

# From the RM --------------------------------------------------------------------------------------------------------


def read_registration(request: pb.RegisterResourceManagerRequest) -> rm_messages.RegisterResourceManager:
    """Read a registration. The encoded names of our fields are those of the scheduler interface."""
    return convert(MessageToDict(request), rm_messages.RegisterResourceManager)


def read_nodes(request: pb.NodeRequest) -> rm_messages.NodeRequest:
    """Read new, changed and removed nodes."""
    return rm_messages.NodeRequest(
        nodes=[
            rm_messages.NodeInfo(
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


def read_applications(request: pb.ApplicationRequest) -> rm_messages.ApplicationRequest:
    """Read new and removed applications."""
    return rm_messages.ApplicationRequest(
        new=[
            rm_messages.AddApplicationRequest(
                application_id=item.applicationID,
                queue_name=item.queueName,
                partition_name=item.partitionName,
                ugi=rm_messages.UserGroupInformation(user=item.ugi.user, groups=list(item.ugi.groups)),
                tags=dict(item.tags),
                execution_timeout_milli_seconds=item.executionTimeoutMilliSeconds,
                placeholder_ask=_resources_from(item.placeholderAsk),
                gang_scheduling_style=item.gangSchedulingStyle,
            )
            for item in request.new
        ],
        remove=[
            rm_messages.RemoveApplicationRequest(application_id=item.applicationID, partition_name=item.partitionName)
            for item in request.remove
        ],
        rm_id=request.rmID,
    )


def read_allocations(request: pb.AllocationRequest) -> rm_messages.AllocationRequest:
    """Read asks, running allocations and releases."""
    releases = rm_messages.AllocationReleasesRequest(
        allocations_to_release=[
            rm_messages.AllocationRelease(
                partition_name=item.partitionName,
                application_id=item.applicationID,
                allocation_key=item.allocationKey,
                termination_type=item.terminationType,
                message=item.message,
            )
            for item in request.releases.allocationsToRelease
        ]
    )
    amounts: dict[bytes, Resources] = {}
    allocations = [_allocation_from(item, amounts) for item in request.allocations]
    return rm_messages.AllocationRequest(allocations=allocations, releases=releases, rm_id=request.rmID)


def _allocation_from(item: pb.Allocation, amounts: dict[bytes, Resources]) -> rm_messages.Allocation:
    """Read an ask or allocation. Asks of one request mostly have equal resources: encoding the map and looking it up
    takes a third of the time of reading it.
    """
    encoded = item.resourcePerAlloc.SerializeToString()
    resources = amounts.get(encoded)
    if resources is None:
        resources = amounts[encoded] = _resources_from(item.resourcePerAlloc)
    tags, policy = item.allocationTags, None
    if item.HasField("preemptionPolicy"):
        policy = rm_messages.PreemptionPolicy(
            allow_preempt_self=item.preemptionPolicy.allowPreemptSelf,
            allow_preempt_other=item.preemptionPolicy.allowPreemptOther,
        )
    return rm_messages.Allocation(
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
        preemption_policy=policy,
    )


def read_predicates(answer: admin_pb.PredicatesAnswer) -> rm_messages.PredicatesAnswered:
    """Read the answer to a question about predicates."""
    return rm_messages.PredicatesAnswered(
        question=answer.question,
        verdicts=[
            rm_messages.Verdict(
                allocation_key=one.allocation_key, node_id=one.node_id, allocate=one.allocate, refusal=one.refusal
            )
            for one in answer.verdicts
        ],
        preemptions=[
            rm_messages.PreemptionVerdict(
                allocation_key=one.allocation_key, node_id=one.node_id, index=one.index, refusal=one.refusal
            )
            for one in answer.preemptions
        ],
    )


def _resources_from(resource: pb.Resource) -> Resources:
    quantities = resource.resources
    return {kind: quantities[kind].value for kind in quantities}  # items() of a protobuf map takes half as long again


# To the RM ----------------------------------------------------------------------------------------------------------


def write_response(response: Response) -> pb.NodeResponse | pb.ApplicationResponse | pb.AllocationResponse:
    """Write a partition's reply as protobuf. The encoded names of our fields are those of the scheduler interface."""
    if isinstance(response, rm_messages.AllocationResponse):
        written = pb.AllocationResponse(**to_builtins(replace(response, cause=0, new=[])))
        for allocation in response.new:
            _fill(written.new.add(), allocation)
        return written
    kind = pb.NodeResponse if isinstance(response, rm_messages.NodeResponse) else pb.ApplicationResponse
    return kind(**to_builtins(replace(response, cause=0)))


def write_question(partition: str, asked: rm_messages.PredicatesAsked) -> bytes:
    """Encode a question about predicates."""
    written = admin_pb.PredicatesQuestion(
        partition=partition,
        question=asked.question,
        deadline_ms=asked.deadline_milli_seconds,
        asked=to_builtins(asked.asked),
        preemptions=to_builtins(asked.preemptions),
    )
    return written.SerializeToString()


def write_scheduling_states(partition: str, response: rm_messages.SchedulingStateResponse) -> bytes:
    """Encode the scheduling states of asks."""
    updated = to_builtins(response.updated)
    return admin_pb.SchedulingStatesResponse(partition=partition, updated=updated).SerializeToString()


def _fill(item: pb.Allocation, allocation: rm_messages.Allocation) -> None:
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


def split_request(update: Update) -> Iterator[Update]:
    """Split an update that has too many items; items keep the order in which a partition handles them."""
    lists = {name: value for name, value in asdict(update).items() if isinstance(value, list)}
    if isinstance(update, rm_messages.AllocationRequest):
        lists["releases"] = update.releases.allocations_to_release
    if sum(map(len, lists.values())) <= REQUEST_ITEMS_MAX:
        yield update
        return
    for name, items in lists.items():
        for start in range(0, len(items), REQUEST_ITEMS_MAX):
            part = items[start : start + REQUEST_ITEMS_MAX]
            value = rm_messages.AllocationReleasesRequest(allocations_to_release=part) if name == "releases" else part
            yield replace(type(update)(rm_id=update.rm_id), **{name: value})


def split_response(response: Response) -> Iterator[bytes]:
    """Encode a response, as several if it is too large: the first half of its entries, those of the first lists first,
    and the others.
    """
    encoded = write_response(response).SerializeToString()
    lists = {name: value for name, value in asdict(response).items() if isinstance(value, list)}
    middle = sum(map(len, lists.values())) // 2
    if len(encoded) <= RESPONSE_BYTES_MAX or not middle:
        yield encoded
        return
    cuts: dict[str, int] = {}
    for name, entries in lists.items():
        cuts[name] = min(len(entries), middle - sum(cuts.values()))
    yield from split_response(replace(response, **{name: lists[name][:cut] for name, cut in cuts.items()}))
    yield from split_response(replace(response, **{name: lists[name][cut:] for name, cut in cuts.items()}))
