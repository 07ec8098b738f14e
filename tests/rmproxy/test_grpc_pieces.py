"""Nothing is cut, lost or moved when a message goes on in pieces."""

import pytest

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
    RejectedAllocation,
    RejectedApplication,
    RejectedNode,
    RemoveApplicationRequest,
    UpdatedApplication,
)
from common.wire import BODY_BYTES_MAX, body_of
from rmproxy import convert
from rmproxy.grpc_pieces import REQUEST_ITEMS_MAX, RESPONSE_BYTES_MAX, requests, responses
from rmproxy.grpc_requests import REQUEST_BYTES_MAX
from rmproxy.si import scheduler_pb2 as pb

MANY = REQUEST_ITEMS_MAX + 5
LONG = "x" * 400


def test_a_request_of_ordinary_size_stays_as_it_is() -> None:
    request = NodeRequest(nodes=[NodeInfo(node_id="n")] * REQUEST_ITEMS_MAX, rm_id="rm")
    assert list(requests(request)) == [request]


def test_nodes_go_on_in_their_order() -> None:
    nodes = [NodeInfo(node_id=str(n)) for n in range(MANY)]
    first, second = requests(NodeRequest(nodes=nodes, rm_id="rm"))
    assert isinstance(first, NodeRequest)
    assert isinstance(second, NodeRequest)
    assert (len(first.nodes), first.rm_id, second.rm_id) == (REQUEST_ITEMS_MAX, "rm", "rm")
    assert [*first.nodes, *second.nodes] == nodes


def test_new_applications_still_come_before_removals() -> None:
    new = [AddApplicationRequest(application_id=str(n)) for n in range(MANY)]
    remove = [RemoveApplicationRequest(application_id=str(n)) for n in range(3)]
    pieces = list(requests(ApplicationRequest(new=new, remove=remove)))
    assert [piece for piece in pieces if not isinstance(piece, ApplicationRequest)] == []
    kept = [piece for piece in pieces if isinstance(piece, ApplicationRequest)]
    assert [(len(piece.new), len(piece.remove)) for piece in kept] == [(REQUEST_ITEMS_MAX, 0), (5, 0), (0, 3)]


def test_asks_still_come_before_releases() -> None:
    asks = [Allocation(allocation_key=str(n)) for n in range(3)]
    releases = AllocationReleasesRequest(allocations_to_release=[AllocationRelease(allocation_key="k")] * MANY)
    pieces = list(requests(AllocationRequest(allocations=asks, releases=releases)))
    kept = [piece for piece in pieces if isinstance(piece, AllocationRequest)]
    sizes = [(len(piece.allocations), len(piece.releases.allocations_to_release)) for piece in kept]
    assert sizes == [(3, 0), (0, REQUEST_ITEMS_MAX), (0, 5)]


def test_no_request_that_is_taken_becomes_too_large_inside() -> None:
    """The worst is one whose fields say next to nothing: inside, their names are written out."""
    worst = pb.Allocation(placeholder=True, originator=True)
    worst.preemptionPolicy.allowPreemptSelf = worst.preemptionPolicy.allowPreemptOther = True
    outside = worst.ByteSize() + 2
    [ask] = convert.allocations_from(pb.AllocationRequest(allocations=[worst])).allocations
    inside = len(body_of(AllocationRequest(allocations=[ask])))
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
    pieces = list(responses(news))
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
    assert whole.SerializeToString(deterministic=True) == type(whole).FromString(
        convert.response_to(news)
    ).SerializeToString(deterministic=True)


def test_one_entry_is_never_cut() -> None:
    news = NodeResponse(rejected=[RejectedNode(node_id="n", reason="x" * (RESPONSE_BYTES_MAX + 1))])
    assert list(responses(news)) == [convert.response_to(news)]
