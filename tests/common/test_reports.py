import pytest

from common.messages import Command
from common.rm_messages import (
    NODE_CREATE,
    NODE_CREATE_DRAIN,
    AllocationRequest,
    ApplicationRequest,
    NodeInfo,
    NodeRequest,
    RemoveApplicationRequest,
    SyncBegin,
    SyncEnd,
    add_counts,
    count_reported,
)
from tests.builders import apps, asks, foreign, released


def nodes(*actions: int) -> NodeRequest:
    return NodeRequest(nodes=[NodeInfo(node_id="n", action=action) for action in actions])


@pytest.mark.parametrize(
    ("command", "counts"),
    [
        (nodes(NODE_CREATE, NODE_CREATE_DRAIN), SyncEnd(nodes=2)),
        (nodes(0, 2, 3, 4, 5, 99), SyncEnd()),
        (apps("a root.q", "b root.q"), SyncEnd(applications=2)),
        (ApplicationRequest(remove=[RemoveApplicationRequest(application_id="a")]), SyncEnd()),
        (asks("a k1 memory=1", "a k1 memory=1", "a k2 memory=1 on=n"), SyncEnd(allocations=3)),
        (foreign("f n memory=1"), SyncEnd(allocations=1)),
        (released("a k1"), SyncEnd()),
        (AllocationRequest(), SyncEnd()),
        (SyncBegin(), SyncEnd()),
    ],
)
def test_what_comes_or_is_there_counts_each_time_it_is_said_and_what_goes_does_not(
    command: Command, counts: SyncEnd
) -> None:
    assert count_reported(command) == counts


def test_sums_are_by_sort() -> None:
    one, other = SyncEnd(nodes=1, applications=2, allocations=3), SyncEnd(nodes=10, applications=20, allocations=30)
    assert add_counts(one, other) == SyncEnd(nodes=11, applications=22, allocations=33)
