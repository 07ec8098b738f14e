"""Nothing gets lost between the protobuf messages and ours."""

import pytest

from yunishard.common.messages.rm_messages import (
    AcceptedApplication,
    AcceptedNode,
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
    RejectedAllocation,
    RejectedApplication,
    RejectedNode,
    RemoveApplicationRequest,
    UpdatedApplication,
    UserGroupInformation,
)
from yunishard.common.messages.wire import BODY_BYTES_MAX, encode_body
from yunishard.rmproxy import grpc_conversion
from yunishard.rmproxy.grpc_conversion import REQUEST_ITEMS_MAX, RESPONSE_BYTES_MAX, split_request, split_response
from yunishard.rmproxy.grpc_streams import REQUEST_BYTES_MAX
from yunishard.rmproxy.si import scheduler_pb2 as pb

# From the RM --------------------------------------------------------------------------------------------------------


def resource(**quantities: int) -> pb.Resource:
    return pb.Resource(resources={kind: pb.Quantity(value=value) for kind, value in quantities.items()})


def test_a_registration_keeps_everything() -> None:
    request = pb.RegisterResourceManagerRequest(
        rmID="rm-1", version="1", policyGroup="queues", buildInfo={"a": "b"}, config="x: y", extraConfig={"c": "d"}
    )
    assert grpc_conversion.read_registration(request) == RegisterResourceManager(
        rm_id="rm-1", version="1", policy_group="queues", build_info={"a": "b"}, config="x: y", extra_config={"c": "d"}
    )


def test_a_node_keeps_everything() -> None:
    node = pb.NodeInfo(
        nodeID="n1",
        action=pb.NodeInfo.DECOMISSION,
        attributes={"si/rackname": "r"},
        schedulableResource=resource(vcore=2),
    )
    assert grpc_conversion.read_nodes(pb.NodeRequest(nodes=[node], rmID="rm-1")) == NodeRequest(
        nodes=[NodeInfo(node_id="n1", action=4, attributes={"si/rackname": "r"}, schedulable_resource={"vcore": 2})],
        rm_id="rm-1",
    )


def test_a_node_without_a_capacity_is_not_one_with_an_empty_capacity() -> None:
    without, empty = grpc_conversion.read_nodes(
        pb.NodeRequest(nodes=[pb.NodeInfo(), pb.NodeInfo(schedulableResource=pb.Resource())])
    ).nodes
    assert without.schedulable_resource is None
    assert empty.schedulable_resource == {}


def test_an_application_keeps_everything() -> None:
    application = pb.AddApplicationRequest(
        applicationID="app-1",
        queueName="root.a",
        partitionName="gpu",
        ugi=pb.UserGroupInformation(user="alice", groups=["dev", "ops"]),
        tags={"namespace": "x"},
        executionTimeoutMilliSeconds=2**40,
        placeholderAsk=resource(memory=5),
        gangSchedulingStyle="Hard",
    )
    removal = pb.RemoveApplicationRequest(applicationID="app-0", partitionName="gpu")
    assert grpc_conversion.read_applications(
        pb.ApplicationRequest(new=[application], remove=[removal], rmID="rm-1")
    ) == (
        ApplicationRequest(
            new=[
                AddApplicationRequest(
                    application_id="app-1",
                    queue_name="root.a",
                    partition_name="gpu",
                    ugi=UserGroupInformation(user="alice", groups=["dev", "ops"]),
                    tags={"namespace": "x"},
                    execution_timeout_milli_seconds=2**40,
                    placeholder_ask={"memory": 5},
                    gang_scheduling_style="Hard",
                )
            ],
            remove=[RemoveApplicationRequest(application_id="app-0", partition_name="gpu")],
            rm_id="rm-1",
        )
    )


def test_an_ask_and_a_release_keep_everything() -> None:
    ask = pb.Allocation(
        allocationKey="k1",
        applicationID="app-1",
        partitionName="gpu",
        resourcePerAlloc=resource(memory=2**62, vcore=-1),
        nodeID="n1",
        priority=-7,
        allocationTags={"creationTime": "1"},
        taskGroupName="tg",
        placeholder=True,
        originator=True,
        preemptionPolicy=pb.PreemptionPolicy(allowPreemptOther=True),
    )
    release = pb.AllocationRelease(
        partitionName="gpu", applicationID="app-1", allocationKey="k0", terminationType="TIMEOUT", message="late"
    )
    request = pb.AllocationRequest(
        allocations=[ask], releases=pb.AllocationReleasesRequest(allocationsToRelease=[release]), rmID="rm-1"
    )
    assert grpc_conversion.read_allocations(request) == AllocationRequest(
        allocations=[
            Allocation(
                allocation_key="k1",
                application_id="app-1",
                partition_name="gpu",
                resource_per_alloc={"memory": 2**62, "vcore": -1},
                node_id="n1",
                priority=-7,
                allocation_tags={"creationTime": "1"},
                task_group_name="tg",
                placeholder=True,
                originator=True,
                preemption_policy=PreemptionPolicy(allow_preempt_other=True),
            )
        ],
        releases=AllocationReleasesRequest(
            allocations_to_release=[
                AllocationRelease(
                    partition_name="gpu",
                    application_id="app-1",
                    allocation_key="k0",
                    termination_type=2,
                    message="late",
                )
            ]
        ),
        rm_id="rm-1",
    )


def test_absent_parts_become_defaults() -> None:
    assert grpc_conversion.read_allocations(pb.AllocationRequest(allocations=[pb.Allocation()])) == AllocationRequest(
        allocations=[Allocation()]
    )
    assert grpc_conversion.read_applications(
        pb.ApplicationRequest(new=[pb.AddApplicationRequest()])
    ) == ApplicationRequest(new=[AddApplicationRequest()])


def test_an_unknown_enum_number_stays_the_number_it_is() -> None:
    release = pb.AllocationRelease.FromString(b"\x20\x63")  # field 4 (terminationType) is 99
    request = pb.AllocationRequest(releases=pb.AllocationReleasesRequest(allocationsToRelease=[release]))
    assert grpc_conversion.read_allocations(request).releases.allocations_to_release[0].termination_type == 99
    node = pb.NodeInfo.FromString(b"\x10\x63")  # field 2 (action) is 99
    assert grpc_conversion.read_nodes(pb.NodeRequest(nodes=[node])).nodes[0].action == 99


# To the RM ----------------------------------------------------------------------------------------------------------


def test_a_new_allocation_says_what_the_reference_says_and_no_more() -> None:
    allocation = Allocation(
        allocation_key="k1",
        application_id="app-1",
        partition_name="rm-1_default",
        resource_per_alloc={"memory": 2**62},
        node_id="n1",
        priority=3,
        allocation_tags={"a": "b"},
        task_group_name="tg",
        placeholder=True,
        originator=True,
        preemption_policy=PreemptionPolicy(allow_preempt_self=True),
    )
    assert grpc_conversion.write_response(AllocationResponse(new=[allocation])).new[:] == [
        pb.Allocation(
            allocationKey="k1",
            applicationID="app-1",
            resourcePerAlloc=resource(memory=2**62),
            nodeID="n1",
            taskGroupName="tg",
            placeholder=True,
            originator=True,
            preemptionPolicy=pb.PreemptionPolicy(allowPreemptSelf=True),
        )
    ]


def test_a_new_allocation_always_has_a_preemption_policy() -> None:
    (item,) = grpc_conversion.write_response(AllocationResponse(new=[Allocation(allocation_key="k1")])).new
    assert item.HasField("preemptionPolicy")
    assert item.preemptionPolicy == pb.PreemptionPolicy()


def test_releases_and_refusals_keep_everything() -> None:
    news = AllocationResponse(
        released=[
            AllocationRelease(
                partition_name="rm-1_default",
                application_id="app-1",
                allocation_key="k1",
                termination_type=3,
                message="for others",
            )
        ],
        rejected_allocations=[RejectedAllocation(allocation_key="k2", application_id="app-1", reason="no")],
        cause=9,
    )
    assert grpc_conversion.write_response(news) == pb.AllocationResponse(
        released=[
            pb.AllocationRelease(
                partitionName="rm-1_default",
                applicationID="app-1",
                allocationKey="k1",
                terminationType="PREEMPTED_BY_SCHEDULER",
                message="for others",
            )
        ],
        rejectedAllocations=[pb.RejectedAllocation(allocationKey="k2", applicationID="app-1", reason="no")],
    )


def test_news_of_applications_keep_everything() -> None:
    news = ApplicationResponse(
        accepted=[AcceptedApplication(application_id="app-1")],
        rejected=[RejectedApplication(application_id="app-2", reason="no")],
        updated=[
            UpdatedApplication(application_id="app-3", state="Running", state_transition_timestamp=2**60, message="m")
        ],
        cause=1,
    )
    assert grpc_conversion.write_response(news) == pb.ApplicationResponse(
        accepted=[pb.AcceptedApplication(applicationID="app-1")],
        rejected=[pb.RejectedApplication(applicationID="app-2", reason="no")],
        updated=[
            pb.UpdatedApplication(applicationID="app-3", state="Running", stateTransitionTimestamp=2**60, message="m")
        ],
    )


def test_news_of_nodes_keep_everything() -> None:
    news = NodeResponse(
        accepted=[AcceptedNode(node_id="n1")], rejected=[RejectedNode(node_id="n2", reason="no")], cause=1
    )
    assert grpc_conversion.write_response(news) == pb.NodeResponse(
        accepted=[pb.AcceptedNode(nodeID="n1")], rejected=[pb.RejectedNode(nodeID="n2", reason="no")]
    )


def test_the_bytes_on_the_stream_are_the_message_of_its_sort() -> None:
    news = AllocationResponse(new=[Allocation(allocation_key="k")])
    [encoded] = split_response(news)
    assert pb.AllocationResponse.FromString(encoded) == grpc_conversion.write_response(news)


MANY = REQUEST_ITEMS_MAX + 5
LONG = "x" * 400


def test_a_request_of_ordinary_size_stays_as_it_is() -> None:
    request = NodeRequest(nodes=[NodeInfo(node_id="n")] * REQUEST_ITEMS_MAX, rm_id="rm")
    assert list(split_request(request)) == [request]


def test_nodes_go_on_in_their_order() -> None:
    nodes = [NodeInfo(node_id=str(n)) for n in range(MANY)]
    first, second = split_request(NodeRequest(nodes=nodes, rm_id="rm"))
    assert isinstance(first, NodeRequest)
    assert isinstance(second, NodeRequest)
    assert (len(first.nodes), first.rm_id, second.rm_id) == (REQUEST_ITEMS_MAX, "rm", "rm")
    assert [*first.nodes, *second.nodes] == nodes


def test_new_applications_still_come_before_removals() -> None:
    new = [AddApplicationRequest(application_id=str(n)) for n in range(MANY)]
    remove = [RemoveApplicationRequest(application_id=str(n)) for n in range(3)]
    pieces = list(split_request(ApplicationRequest(new=new, remove=remove)))
    assert [piece for piece in pieces if not isinstance(piece, ApplicationRequest)] == []
    kept = [piece for piece in pieces if isinstance(piece, ApplicationRequest)]
    assert [(len(piece.new), len(piece.remove)) for piece in kept] == [(REQUEST_ITEMS_MAX, 0), (5, 0), (0, 3)]


def test_asks_still_come_before_releases() -> None:
    asks = [Allocation(allocation_key=str(n)) for n in range(3)]
    releases = AllocationReleasesRequest(allocations_to_release=[AllocationRelease(allocation_key="k")] * MANY)
    pieces = list(split_request(AllocationRequest(allocations=asks, releases=releases)))
    kept = [piece for piece in pieces if isinstance(piece, AllocationRequest)]
    sizes = [(len(piece.allocations), len(piece.releases.allocations_to_release)) for piece in kept]
    assert sizes == [(3, 0), (0, REQUEST_ITEMS_MAX), (0, 5)]


def test_no_request_that_is_taken_becomes_too_large_inside() -> None:
    """The worst is one whose fields say next to nothing: inside, their names are written out."""
    worst = pb.Allocation(placeholder=True, originator=True)
    worst.preemptionPolicy.allowPreemptSelf = worst.preemptionPolicy.allowPreemptOther = True
    outside = worst.ByteSize() + 2
    [ask] = grpc_conversion.read_allocations(pb.AllocationRequest(allocations=[worst])).allocations
    inside = len(encode_body(AllocationRequest(allocations=[ask])))
    assert inside > 5 * outside
    assert REQUEST_ITEMS_MAX * inside + REQUEST_BYTES_MAX < BODY_BYTES_MAX


@pytest.mark.parametrize(
    "news",
    [
        NodeResponse(
            accepted=[AcceptedNode(node_id=f"a{n}{LONG}") for n in range(9000)],
            rejected=[RejectedNode(node_id=f"r{n}", reason=LONG) for n in range(9000)],
        ),
        ApplicationResponse(
            accepted=[AcceptedApplication(application_id=f"a{n}{LONG}") for n in range(6000)],
            rejected=[RejectedApplication(application_id=f"r{n}", reason=LONG) for n in range(6000)],
            updated=[UpdatedApplication(application_id=f"u{n}", state=LONG) for n in range(6000)],
        ),
        AllocationResponse(
            new=[Allocation(allocation_key=f"n{n}", node_id=LONG) for n in range(6000)],
            released=[AllocationRelease(allocation_key=f"g{n}", message=LONG) for n in range(6000)],
            rejected_allocations=[RejectedAllocation(allocation_key=f"r{n}", reason=LONG) for n in range(6000)],
        ),
    ],
    ids=["nodes", "applications", "allocations"],
)
def test_a_large_response_comes_in_pieces_that_clients_take(
    news: NodeResponse | ApplicationResponse | AllocationResponse,
) -> None:
    pieces = list(split_response(news))
    assert len(pieces) > 1
    assert max(map(len, pieces)) <= RESPONSE_BYTES_MAX
    match news:
        case NodeResponse():
            whole: pb.NodeResponse | pb.ApplicationResponse | pb.AllocationResponse = pb.NodeResponse()
        case ApplicationResponse():
            whole = pb.ApplicationResponse()
        case AllocationResponse():
            whole = pb.AllocationResponse()
    for piece in pieces:
        whole.MergeFromString(piece)
    assert whole == grpc_conversion.write_response(news)


def test_one_entry_is_never_cut() -> None:
    news = NodeResponse(rejected=[RejectedNode(node_id="n", reason="x" * (RESPONSE_BYTES_MAX + 1))])
    assert list(split_response(news)) == [grpc_conversion.write_response(news).SerializeToString()]
