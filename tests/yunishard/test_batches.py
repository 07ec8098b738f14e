import pytest

from common.messages import Command
from common.rm_messages import AllocationReleasesRequest, AllocationRequest
from common.wire import WireError, body_of
from yunishard.batches import pieces
from yunishard.manager import _allocation_request
from yunishard.parts import ask, release

ASKS = [ask(f"k{number}", "app", {"vcore": 1}) for number in range(10)]
RELEASES = [release("app", f"r{number}") for number in range(5)]


def items(command: Command) -> list[str]:
    assert isinstance(command, AllocationRequest)
    asks = [item.allocation_key for item in command.allocations]
    return asks + [item.allocation_key for item in command.releases.allocations_to_release]


def test_what_fits_stays_one_message() -> None:
    assert list(pieces(_allocation_request, ASKS, RELEASES)) == [
        AllocationRequest(allocations=ASKS, releases=AllocationReleasesRequest(allocations_to_release=RELEASES))
    ]


@pytest.mark.parametrize("bytes_max", [100, 150, 200, 400])
def test_what_does_not_fit_is_cut_in_order(bytes_max: int) -> None:
    cut = list(pieces(_allocation_request, ASKS, RELEASES, bytes_max=bytes_max))
    assert len(cut) > 1
    assert all(len(body_of(command)) <= bytes_max for command in cut)
    assert [key for command in cut for key in items(command)] == [
        *(f"k{number}" for number in range(10)),
        *(f"r{number}" for number in range(5)),
    ]


def test_no_piece_has_more_items_than_a_partition_should_take_at_once() -> None:
    cut = list(pieces(_allocation_request, ASKS, RELEASES, items_max=4))
    assert [len(items(command)) for command in cut] == [3, 4, 4, 4]
    assert [key for command in cut for key in items(command)] == [
        *(f"k{number}" for number in range(10)),
        *(f"r{number}" for number in range(5)),
    ]


def test_a_single_item_over_the_limit_is_refused_with_its_size() -> None:
    huge = ask("k", "app", {"vcore": 1}, tags={"blob": "x" * 1000})
    with pytest.raises(WireError, match=r"1\d\d\d bytes, at most 200"):
        list(pieces(_allocation_request, [*ASKS, huge], bytes_max=200))
