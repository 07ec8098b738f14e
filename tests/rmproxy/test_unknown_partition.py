import pytest
from msgspec.structs import replace

from yunishard.common.messages.kinds import Command
from yunishard.common.messages.rm_messages import (
    RELEASES_IGNORED_MAX,
    Ack,
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
    Received,
    RejectedAllocation,
    RejectedApplication,
    RejectedNode,
    ReleasesIgnored,
    RemoveApplicationRequest,
)
from yunishard.rmproxy.proxy import refuse_items, report_ignored_releases

CREATE, UPDATE, DRAIN, DECOMMISSION, CREATE_DRAIN = 1, 2, 3, 4, 6


def test_new_nodes_are_refused_and_changes_of_nodes_ignored() -> None:
    actions = (CREATE, UPDATE, DRAIN, DECOMMISSION, CREATE_DRAIN, 0, 99)
    request = NodeRequest(nodes=[NodeInfo(node_id=f"n{action}", action=action) for action in actions])
    assert refuse_items(request, "rm1_zzz") == NodeResponse(
        rejected=[
            RejectedNode(node_id="n1", reason="failed to find partition rm1_zzz for new node n1"),
            RejectedNode(node_id="n6", reason="failed to find partition rm1_zzz for new node n6"),
        ]
    )


def test_new_applications_are_refused_and_removals_ignored() -> None:
    request = ApplicationRequest(
        new=[AddApplicationRequest(application_id="a")], remove=[RemoveApplicationRequest(application_id="b")]
    )
    reason = "Failed to add application a to partition rm1_zzz, partition doesn't exist"
    assert refuse_items(request, "rm1_zzz") == ApplicationResponse(
        rejected=[RejectedApplication(application_id="a", reason=reason)]
    )


def test_asks_are_refused_and_releases_ignored() -> None:
    request = AllocationRequest(
        allocations=[Allocation(allocation_key="k", application_id="a")],
        releases=AllocationReleasesRequest(allocations_to_release=[AllocationRelease(allocation_key="r")]),
    )
    reason = "Failed to find partition rm1_zzz, for application a and allocation k"
    assert refuse_items(request, "rm1_zzz") == AllocationResponse(
        rejected_allocations=[RejectedAllocation(allocation_key="k", application_id="a", reason=reason)]
    )


@pytest.mark.parametrize(
    "command",
    [
        NodeRequest(nodes=[NodeInfo(node_id="n", action=UPDATE)]),
        ApplicationRequest(remove=[RemoveApplicationRequest(application_id="a")]),
        AllocationRequest(releases=AllocationReleasesRequest(allocations_to_release=[AllocationRelease()])),
        Ack(),
    ],
)
def test_what_a_partition_would_ignore_gets_an_answer_without_anything_in_it(command: Command) -> None:
    assert refuse_items(command, "rm1_zzz") == Received()


def test_releases_are_reported_as_without_effect_up_to_a_bound() -> None:
    one = AllocationRelease(application_id="a", allocation_key="k")
    releases = AllocationReleasesRequest(allocations_to_release=[one] * (RELEASES_IGNORED_MAX + 2))
    told = report_ignored_releases(AllocationRequest(releases=releases), "rm1_zzz")
    assert told == ReleasesIgnored(
        ignored=[replace(one, message="partition rm1_zzz does not exist")] * RELEASES_IGNORED_MAX, more=2
    )


@pytest.mark.parametrize("command", [AllocationRequest(), NodeRequest(), Ack()])
def test_without_releases_there_is_nothing_to_report(command: Command) -> None:
    assert report_ignored_releases(command, "rm1_zzz") is None
