import pytest

from common.names import NODE_PARTITION
from common.rm_messages import (
    Ack,
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    ApplicationRequest,
    NodeInfo,
    NodeRequest,
    RemoveApplicationRequest,
)
from common.session import split_by_partition


def node(name: str, partition: str | None = None) -> NodeInfo:
    return NodeInfo(node_id=name, attributes={} if partition is None else {NODE_PARTITION: partition})


def ask(key: str, partition: str) -> Allocation:
    return Allocation(allocation_key=key, partition_name=partition)


def releases(*items: AllocationRelease) -> AllocationReleasesRequest:
    return AllocationReleasesRequest(allocations_to_release=list(items))


def test_nodes_go_by_their_attribute_and_without_one_to_default() -> None:
    first, second, third = node("n1"), node("n2", "gpu"), node("n3", "")
    assert split_by_partition("rm", NodeRequest(nodes=[first, second, third], rm_id="rm")) == {
        "rm_default": NodeRequest(nodes=[first, third], rm_id="rm"),
        "rm_gpu": NodeRequest(nodes=[second], rm_id="rm"),
    }


def test_applications_that_come_and_go_stay_together_by_partition() -> None:
    come = [AddApplicationRequest(application_id=name, partition_name=name[0]) for name in ("b1", "a1", "b2")]
    go = [RemoveApplicationRequest(application_id=name, partition_name=name[0]) for name in ("c1", "a2")]
    parts = split_by_partition("rm", ApplicationRequest(new=come, remove=go))
    assert parts == {
        "rm_b": ApplicationRequest(new=[come[0], come[2]]),
        "rm_a": ApplicationRequest(new=[come[1]], remove=[go[1]]),
        "rm_c": ApplicationRequest(remove=[go[0]]),
    }
    assert list(parts) == ["rm_b", "rm_a", "rm_c"]


def test_asks_and_releases_stay_together_by_partition_and_in_order() -> None:
    asks = [ask("1", "gpu"), ask("2", ""), ask("3", "gpu")]
    gone = [AllocationRelease(allocation_key="4", partition_name="rm_gpu"), AllocationRelease(allocation_key="5")]
    assert split_by_partition("rm", AllocationRequest(allocations=asks, releases=releases(*gone))) == {
        "rm_gpu": AllocationRequest(allocations=[asks[0], asks[2]], releases=releases(gone[0])),
        "rm_default": AllocationRequest(allocations=[asks[1]], releases=releases(gone[1])),
    }


def test_all_spellings_of_a_partition_are_one() -> None:
    asks = [ask(str(number), name) for number, name in enumerate(("gpu", "rm_gpu", "[rm]gpu", "gpu"))]
    assert split_by_partition("rm", AllocationRequest(allocations=asks)) == {
        "rm_gpu": AllocationRequest(allocations=asks)
    }


def test_a_name_in_the_form_of_another_rm_stays_with_the_sender() -> None:
    assert list(
        split_by_partition("rm", AllocationRequest(allocations=[ask("1", "[other]gpu"), ask("2", "other_gpu")]))
    ) == [
        "rm_[other]gpu",
        "rm_other_gpu",
    ]


@pytest.mark.parametrize("nothing", [NodeRequest(), ApplicationRequest(), AllocationRequest()])
def test_an_update_without_items_has_no_parts(nothing: NodeRequest | ApplicationRequest | AllocationRequest) -> None:
    assert split_by_partition("rm", nothing) == {}


def test_what_carries_no_items_cannot_be_split() -> None:
    with pytest.raises(TypeError):
        split_by_partition("rm", Ack())
