"""An example of every message that a resource manager says or hears: the data of the reference in docs/protocol.md."""

from typing import Final

from yunishard.common.messages import event_codes
from yunishard.common.messages.kinds import Header, Message
from yunishard.common.messages.rm_messages import (
    NODE_CREATE,
    PREDICATES,
    PREEMPTED_BY_SCHEDULER,
    SCHEDULING_FAILED,
    STATE_DUMP,
    STOPPED_BY_RM,
    AcceptedApplication,
    AcceptedNode,
    Ack,
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    AllocationResponse,
    ApplicationRequest,
    ApplicationResponse,
    ConfigurationUpdated,
    EventRecord,
    EventResponse,
    Goodbye,
    Heartbeat,
    Leave,
    Left,
    NodeInfo,
    NodeRequest,
    NodeResponse,
    PartitionRestarted,
    PredicatesAnswered,
    PredicatesArgs,
    PredicatesAsked,
    PreemptionPolicy,
    PreemptionPredicatesArgs,
    PreemptionVerdict,
    Received,
    Refused,
    Registered,
    RegisterResourceManager,
    RejectedAllocation,
    RejectedApplication,
    RejectedNode,
    ReleasesIgnored,
    RemoveApplicationRequest,
    Resume,
    ResumeWanted,
    SchedulingStateResponse,
    StateDumpAnswered,
    StateDumpAsked,
    SyncBegin,
    SyncDone,
    SyncEnd,
    UpdateConfiguration,
    UpdateContainerSchedulingState,
    UpdatedApplication,
    UserGroupInformation,
    Verdict,
)

RM: Final = "rm-1"
PARTITION: Final = "rm-1_default"
SESSION: Final = "6f1c0a52"
CHECKSUM: Final = "2C26B46B68FFC68FF99B453C1D30413413422D706483BFA0F98A5E886266E7AE"
QUEUES: Final = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: batch}]}]}]"
SIZE: Final = {"memory": 8 << 30, "vcore": 4000}
NEED: Final = {"memory": 1 << 30, "vcore": 500}


def of_session(message: Message, ref: str = "") -> tuple[Header, Message]:
    """About the session as a whole."""
    return Header(kind=type(message).__name__, rm=RM, session=SESSION, ref=ref), message


def of_partition(message: Message, seq: int = 0, ack: int = 0, life: int = 0) -> tuple[Header, Message]:
    """In the lanes of one partition."""
    header = Header(
        kind=type(message).__name__, rm=RM, partition=PARTITION, session=SESSION, seq=seq, ack=ack, life=life
    )
    return header, message


SAID: Final = (
    of_session(
        RegisterResourceManager(
            rm_id=RM,
            version="1.0",
            policy_group="queues",
            build_info={"buildVersion": "7.1"},
            config=QUEUES,
            extra_config={"event.trackingEnabled": "true"},
            capabilities=[PREDICATES, STATE_DUMP],
        ),
        ref="register",
    ),
    of_session(Resume(received={PARTITION: 12, "rm-1_gpu": 3}, lives={"rm-1_gpu": 2}), ref="resume-1"),
    of_session(UpdateConfiguration(rm_id=RM, policy_group="queues", config=QUEUES), ref="configuration-1"),
    of_session(Leave(reason="the cluster is taken down"), ref="leave"),
    of_session(Heartbeat()),
    of_partition(
        NodeRequest(
            nodes=[
                NodeInfo(
                    node_id="node-1", action=NODE_CREATE, attributes={"zone": "a"}, schedulable_resource=dict(SIZE)
                )
            ]
        ),
        seq=1,
    ),
    of_partition(
        ApplicationRequest(
            new=[
                AddApplicationRequest(
                    application_id="app-1",
                    queue_name="root.batch",
                    ugi=UserGroupInformation(user="alice", groups=["dev"]),
                )
            ],
            remove=[RemoveApplicationRequest(application_id="app-0")],
        ),
        seq=2,
        ack=1,
    ),
    of_partition(
        AllocationRequest(
            allocations=[
                Allocation(
                    allocation_key="task-1",
                    application_id="app-1",
                    resource_per_alloc=dict(NEED),
                    priority=10,
                    preemption_policy=PreemptionPolicy(allow_preempt_self=True),
                )
            ],
            releases=AllocationReleasesRequest(
                allocations_to_release=[
                    AllocationRelease(
                        application_id="app-1", allocation_key="task-0", termination_type=PREEMPTED_BY_SCHEDULER
                    )
                ]
            ),
        ),
        seq=3,
        ack=4,
    ),
    of_partition(SyncBegin(reason="PartitionRestarted"), seq=1, life=1),
    of_partition(SyncEnd(nodes=1, applications=1, allocations=300), seq=5, life=1),
    of_partition(Ack(), ack=12),
    of_partition(
        PredicatesAnswered(
            question=7,
            verdicts=[
                Verdict(allocation_key="task-1", node_id="node-1", allocate=True),
                Verdict(allocation_key="task-1", node_id="node-2", allocate=True, refusal="image is not there"),
            ],
            preemptions=[PreemptionVerdict(allocation_key="task-9", node_id="node-1", index=1)],
        )
    ),
    of_partition(StateDumpAnswered(question=3, text='{"pods":12,"watching":true}')),
)
"""By a resource manager."""

HEARD: Final = (
    of_session(
        Registered(
            partitions=[PARTITION, "rm-1_gpu"],
            checksum=CHECKSUM,
            lives={"rm-1_gpu": 2},
            heartbeat_milli_seconds=1000,
            silence_milli_seconds=3000,
            window_messages=1024,
            window_bytes=16 << 20,
        ),
        ref="register",
    ),
    of_session(
        ConfigurationUpdated(checksum=CHECKSUM, partitions=[PARTITION, "rm-1_new"], lives={"rm-1_new": 1}),
        ref="configuration-1",
    ),
    of_session(ResumeWanted(reason="the core began anew")),
    of_session(Goodbye(reason="the core is stopping", retry_after_milli_seconds=1000)),
    of_session(Left(), ref="leave"),
    of_session(
        Refused(code="busy", reason="another configuration of RM 'rm-1' is under way, try again when it is done"),
        ref="configuration-1",
    ),
    of_partition(
        NodeResponse(
            accepted=[AcceptedNode(node_id="node-1")],
            rejected=[RejectedNode(node_id="node-2", reason="invalid node: negative resources for memory")],
            cause=1,
        ),
        seq=1,
        ack=1,
    ),
    of_partition(
        ApplicationResponse(
            accepted=[AcceptedApplication(application_id="app-1")],
            rejected=[RejectedApplication(application_id="app-2", reason="application rejected: no queue")],
            cause=2,
        ),
        seq=2,
        ack=2,
    ),
    of_partition(
        ApplicationResponse(
            updated=[
                UpdatedApplication(
                    application_id="app-1",
                    state="Running",
                    state_transition_timestamp=1_795_000_000_000_000_000,
                    message="runApplication",
                )
            ],
            cause=4,
        ),
        seq=3,
        ack=3,
    ),
    of_partition(
        AllocationResponse(
            new=[
                Allocation(
                    allocation_key="task-1",
                    application_id="app-1",
                    resource_per_alloc=dict(NEED),
                    node_id="node-1",
                )
            ],
            cause=4,
        ),
        seq=4,
        ack=3,
    ),
    of_partition(
        AllocationResponse(
            released=[
                AllocationRelease(
                    partition_name=PARTITION,
                    application_id="app-1",
                    allocation_key="task-1",
                    termination_type=STOPPED_BY_RM,
                    message="allocation remove as per RM request",
                )
            ],
            cause=5,
        ),
        seq=5,
        ack=4,
    ),
    of_partition(
        AllocationResponse(
            rejected_allocations=[
                RejectedAllocation(
                    allocation_key="task-9", application_id="app-9", reason="failed to find application app-9"
                )
            ],
            cause=6,
        ),
        seq=6,
        ack=5,
    ),
    of_partition(
        SchedulingStateResponse(
            updated=[
                UpdateContainerSchedulingState(
                    application_id="app-1",
                    allocation_key="task-2",
                    state=SCHEDULING_FAILED,
                    reason="request is waiting for cluster resources become available",
                )
            ],
            cause=8,
        ),
        seq=7,
        ack=5,
    ),
    of_partition(
        EventResponse(
            events=[
                EventRecord(
                    type=event_codes.QUEUE,
                    object_id="root.batch",
                    message="queue is draining",
                    timestamp_nano=1_795_000_000_000_000_000,
                    event_change_type=event_codes.SET,
                    reference_id="app-1",
                )
            ],
            cause=9,
        ),
        ack=5,
    ),
    of_partition(
        ReleasesIgnored(
            ignored=[
                AllocationRelease(
                    application_id="app-1",
                    allocation_key="task-8",
                    termination_type=STOPPED_BY_RM,
                    message="unknown to application app-1",
                )
            ]
        ),
        ack=6,
    ),
    of_partition(SyncDone(nodes=["node-3"], allocations=["task-7"], cause=12), seq=8, ack=5, life=1),
    of_partition(PartitionRestarted(reason="the journal is damaged"), life=1),
    of_partition(Received(), ack=6),
    of_partition(
        PredicatesAsked(
            question=7,
            deadline_milli_seconds=200,
            asked=[
                PredicatesArgs(allocation_key="task-1", node_id="node-1", allocate=True),
                PredicatesArgs(allocation_key="task-1", node_id="node-2", allocate=True),
            ],
            preemptions=[
                PreemptionPredicatesArgs(
                    allocation_key="task-9", node_id="node-1", preempt_allocation_keys=["task-3", "task-2", "task-4"]
                )
            ],
        ),
        ack=6,
    ),
    of_partition(StateDumpAsked(question=3, deadline_milli_seconds=2000), ack=6),
    of_session(Heartbeat()),
)
"""By a resource manager, from the core."""
