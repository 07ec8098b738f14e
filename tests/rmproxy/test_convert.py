"""Nothing gets lost between the protobuf messages and ours."""

from common.rm_messages import (
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
from rmproxy import convert
from rmproxy.si import scheduler_pb2 as pb

# From the RM --------------------------------------------------------------------------------------------------------


def resource(**quantities: int) -> pb.Resource:
    return pb.Resource(resources={kind: pb.Quantity(value=value) for kind, value in quantities.items()})


def test_a_registration_keeps_everything() -> None:
    request = pb.RegisterResourceManagerRequest(
        rmID="rm-1", version="1", policyGroup="queues", buildInfo={"a": "b"}, config="x: y", extraConfig={"c": "d"}
    )
    assert convert.registration_from(request) == RegisterResourceManager(
        rm_id="rm-1", version="1", policy_group="queues", build_info={"a": "b"}, config="x: y", extra_config={"c": "d"}
    )


def test_a_node_keeps_everything() -> None:
    node = pb.NodeInfo(
        nodeID="n1",
        action=pb.NodeInfo.DECOMISSION,
        attributes={"si/rackname": "r"},
        schedulableResource=resource(vcore=2),
    )
    assert convert.nodes_from(pb.NodeRequest(nodes=[node], rmID="rm-1")) == NodeRequest(
        nodes=[NodeInfo(node_id="n1", action=4, attributes={"si/rackname": "r"}, schedulable_resource={"vcore": 2})],
        rm_id="rm-1",
    )


def test_a_node_without_a_capacity_is_not_one_with_an_empty_capacity() -> None:
    without, empty = convert.nodes_from(
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
    assert convert.applications_from(pb.ApplicationRequest(new=[application], remove=[removal], rmID="rm-1")) == (
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
    assert convert.allocations_from(request) == AllocationRequest(
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
    assert convert.allocations_from(pb.AllocationRequest(allocations=[pb.Allocation()])) == AllocationRequest(
        allocations=[Allocation()]
    )
    assert convert.applications_from(pb.ApplicationRequest(new=[pb.AddApplicationRequest()])) == ApplicationRequest(
        new=[AddApplicationRequest()]
    )


def test_an_unknown_enum_number_stays_the_number_it_is() -> None:
    release = pb.AllocationRelease.FromString(b"\x20\x63")  # field 4 (terminationType) is 99
    request = pb.AllocationRequest(releases=pb.AllocationReleasesRequest(allocationsToRelease=[release]))
    assert convert.allocations_from(request).releases.allocations_to_release[0].termination_type == 99
    node = pb.NodeInfo.FromString(b"\x10\x63")  # field 2 (action) is 99
    assert convert.nodes_from(pb.NodeRequest(nodes=[node])).nodes[0].action == 99


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
    assert convert.allocations_to(AllocationResponse(new=[allocation])).new[:] == [
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
    (item,) = convert.allocations_to(AllocationResponse(new=[Allocation(allocation_key="k1")])).new
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
    assert convert.allocations_to(news) == pb.AllocationResponse(
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
    assert convert.applications_to(news) == pb.ApplicationResponse(
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
    assert convert.nodes_to(news) == pb.NodeResponse(
        accepted=[pb.AcceptedNode(nodeID="n1")], rejected=[pb.RejectedNode(nodeID="n2", reason="no")]
    )


def test_the_bytes_on_the_stream_are_the_message_of_its_sort() -> None:
    assert pb.NodeResponse.FromString(
        convert.response_to(NodeResponse(accepted=[AcceptedNode(node_id="n1")]))
    ).accepted == [pb.AcceptedNode(nodeID="n1")]
    assert pb.ApplicationResponse.FromString(
        convert.response_to(ApplicationResponse(accepted=[AcceptedApplication(application_id="a")]))
    ).accepted == [pb.AcceptedApplication(applicationID="a")]
    assert (
        pb.AllocationResponse.FromString(convert.response_to(AllocationResponse(new=[Allocation(allocation_key="k")])))
        .new[0]
        .allocationKey
        == "k"
    )
