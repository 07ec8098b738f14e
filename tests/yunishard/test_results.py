from collections.abc import Callable

from common.rm_messages import (
    AcceptedApplication,
    AcceptedNode,
    Allocation,
    AllocationRelease,
    AllocationResponse,
    ApplicationResponse,
    Goodbye,
    NodeResponse,
    PartitionRestarted,
    Refused,
    RejectedAllocation,
    RejectedApplication,
    RejectedNode,
    ReleasesIgnored,
    SchedulingStateResponse,
    UpdateContainerSchedulingState,
    UpdatedApplication,
)
from yunishard.results import Callbacks, Result, Update

IGNORED = AllocationRelease(allocation_key="k5", message="application a9 is unknown")
ALLOCATION = Allocation(allocation_key="k1")
RELEASE = AllocationRelease(allocation_key="k2")
REJECTED_ALLOCATION = RejectedAllocation(allocation_key="k3")
ACCEPTED = AcceptedApplication(application_id="a1")
REJECTED = RejectedApplication(application_id="a2")
UPDATED = UpdatedApplication(application_id="a1", state="Running")
NODE, NO_NODE = AcceptedNode(node_id="n1"), RejectedNode(node_id="n2")
WAITING = UpdateContainerSchedulingState(application_id="a1", allocation_key="k4", state=4)
REFUSED = Refused(code="c", reason="r")
GOODBYE = Goodbye(reason="r")


NEWS: list[Update] = [
    AllocationResponse(new=[ALLOCATION]),
    AllocationResponse(released=[RELEASE]),
    AllocationResponse(rejected_allocations=[REJECTED_ALLOCATION]),
    ReleasesIgnored(ignored=[IGNORED], more=1),
    ApplicationResponse(accepted=[ACCEPTED], rejected=[REJECTED], updated=[UPDATED]),
    NodeResponse(accepted=[NODE], rejected=[NO_NODE]),
    PartitionRestarted(),
    SchedulingStateResponse(updated=[WAITING]),
    GOODBYE,
    REFUSED,
]


def noting(name: str, book: list[tuple[str, object]]) -> Callable[[object], None]:
    return lambda item: book.append((name, item))


def test_every_item_goes_to_its_function() -> None:
    book: list[tuple[str, object]] = []
    callbacks = Callbacks(
        allocated=noting("allocated", book),
        released=noting("released", book),
        allocation_rejected=noting("allocation_rejected", book),
        release_ignored=noting("release_ignored", book),
        application_accepted=noting("application_accepted", book),
        application_rejected=noting("application_rejected", book),
        application_updated=noting("application_updated", book),
        node_accepted=noting("node_accepted", book),
        node_rejected=noting("node_rejected", book),
        partition_restarted=noting("partition_restarted", book),
        scheduling_state_updated=noting("scheduling_state_updated", book),
        goodbye=noting("goodbye", book),
        refused=noting("refused", book),
    )
    for news in NEWS:
        assert set(callbacks.tell(Result("rm-1_p", news))) == {None}
    assert book == [
        ("allocated", ALLOCATION),
        ("released", RELEASE),
        ("allocation_rejected", REJECTED_ALLOCATION),
        ("release_ignored", IGNORED),
        ("application_accepted", ACCEPTED),
        ("application_rejected", REJECTED),
        ("application_updated", UPDATED),
        ("node_accepted", NODE),
        ("node_rejected", NO_NODE),
        ("partition_restarted", "rm-1_p"),
        ("scheduling_state_updated", WAITING),
        ("goodbye", GOODBYE),
        ("refused", REFUSED),
    ]


def test_what_nobody_wants_to_hear_is_not_told() -> None:
    assert [answer for news in NEWS for answer in Callbacks().tell(Result("rm-1_p", news))] == []
