"""The views show what the API promises: these keys, in this order, these left out when empty."""

import doctest
import json

import msgspec
import pytest

from yunishard.common.rest import views
from yunishard.common.rest.views import (
    NEVER_MS,
    PRIORITY_NONE,
    AllocationView,
    ApplicationView,
    AskView,
    CapacityView,
    ForeignAllocationView,
    HistoryView,
    NodeSortingView,
    NodeView,
    PartitionView,
    QueueView,
    UsageView,
    UserView,
    View,
    encode_view,
    format_duration,
    format_rfc3339,
    percentages,
)

BARE_QUEUE = QueueView(
    queuename="root",
    status="Active",
    partition="",
    is_leaf=False,
    is_managed=False,
    current_priority=0,
    sorting_policy="fair",
    priority_sorting=False,
    preemption_enabled=False,
    is_preemption_fence=False,
    preemption_delay="30s",
    quota_preemption_delay="0s",
    is_priority_fence=False,
)

# One body of each kind as the reference sent it: what is decoded from it must encode to the same bytes.
PARTITIONS = (
    b'[{"clusterId":"rm-golden","name":"default","capacity":{"capacity":{"memory":86000000000,"vcore":43000},'
    b'"usedCapacity":{"memory":35300000000,"pods":3},"utilization":{"memory":41}},'
    b'"nodeSortingPolicy":{"type":"binpacking","resourceWeights":{"memory":1,"vcore":2.5}},"preemptionEnabled":true,'
    b'"quotaPreemptionEnabled":true,"totalNodes":4,"applications":{"Accepted":6,"total":6},"totalContainers":18,'
    b'"state":"Active","lastStateTransitionTime":1795249356863467714}]\n'
)
NODE = (
    b'{"nodeID":"node-3","hostName":"node-3.example","rackName":"rack-b","attributes":{"si/hostname":"node-3.example"},'
    b'"capacity":{"memory":16000000000},"allocated":{"memory":1000000000},"available":{"memory":15000000000},'
    b'"utilized":{"memory":6},"allocations":[{"allocationKey":"dae-1","allocationTags":{"creationTime":"1700000120"},'
    b'"requestTime":1700000120000000000,"allocationTime":1700000120000000000,"resource":{"memory":1000000000},'
    b'"priority":"0","nodeId":"node-3","applicationId":"app-daemon"}],"schedulable":false,"isReserved":true,'
    b'"reservations":["dae-2"]}\n'
)
USER = (
    b'{"userName":"bart","groups":{"app-backoff":"*"},"queues":{"queuePath":"root","maxResources":{"vcore":60000},'
    b'"maxApplications":50,"children":[{"queuePath":"root.backoff"}]}}\n'
)
APPLICATION = (
    b'{"applicationID":"app-1","pendingResource":{"vcore":1},"partition":"default","queueName":"root.a",'
    b'"submissionTime":1700000002000000000,"requests":[{"allocationKey":"ask-1","requestTime":1700000002000000000,'
    b'"resource":{"vcore":1},"priority":"7","applicationId":"app-1","allocationLog":[{"message":"Not enough quota",'
    b'"lastOccurrence":1700000003000000000,"count":2}],"schedulingAttempted":true}],"applicationState":"Accepted",'
    b'"user":"eve","groups":["dev"],"stateLog":[{"time":1700000002000000000,"applicationState":"Accepted"}],'
    b'"placeholderData":[{"taskGroupName":"tg-a","count":1,"minResource":{"vcore":1}}],"maxRequestPriority":7,'
    b'"startTime":-62135596800000,"resourceHistory":{}}\n'
)


def keys(view: View) -> list[str]:
    return list(json.loads(encode_view(view)))


@pytest.mark.parametrize(
    ("body", "kind"),
    [(PARTITIONS, list[PartitionView]), (NODE, NodeView), (USER, UserView), (APPLICATION, ApplicationView)],
)
def test_a_body_of_the_reference_is_shown_in_the_same_bytes(body: bytes, kind: type[View]) -> None:
    assert encode_view(msgspec.json.decode(body, type=kind)) == body


def test_a_queue_without_anything_shows_what_is_always_shown() -> None:
    assert json.loads(encode_view(BARE_QUEUE)) == {
        "queuename": "root",
        "status": "Active",
        "partition": "",
        "isLeaf": False,
        "isManaged": False,
        "currentPriority": 0,
        "sortingPolicy": "fair",
        "prioritySorting": False,
        "preemptionEnabled": False,
        "isPreemptionFence": False,
        "preemptionDelay": "30s",
        "quotaPreemptionDelay": "0s",
        "isPriorityFence": False,
    }


def test_keys_come_in_the_order_of_the_api() -> None:
    queue = msgspec.structs.replace(BARE_QUEUE, child_names=["root.a"], headroom={"vcore": 1}, priority_offset=-1)
    assert keys(queue)[3:6] == ["headroom", "isLeaf", "isManaged"]
    assert keys(queue)[6] == "childNames"
    assert keys(queue)[-1] == "priorityOffset"


def test_maps_come_in_the_order_of_their_keys_and_keep_their_zeros() -> None:
    queue = msgspec.structs.replace(BARE_QUEUE, max_resource={"vcore": 0, "memory": 1})
    assert b'"maxResource":{"memory":1,"vcore":0}' in encode_view(queue)


def test_an_empty_partition_still_shows_its_capacity_its_policy_and_its_applications() -> None:
    partition = PartitionView(
        cluster_id="rm",
        name="default",
        capacity=CapacityView(),
        node_sorting_policy=NodeSortingView(type="fair", resource_weights={"vcore": 1}),
        preemption_enabled=False,
        quota_preemption_enabled=False,
        applications={"total": 0},
        state="Active",
        last_state_transition_time=0,
    )
    assert json.loads(encode_view(partition)) == {
        "clusterId": "rm",
        "name": "default",
        "capacity": {},
        "nodeSortingPolicy": {"type": "fair", "resourceWeights": {"vcore": 1}},
        "preemptionEnabled": False,
        "quotaPreemptionEnabled": False,
        "applications": {"total": 0},
        "state": "Active",
        "lastStateTransitionTime": 0,
    }


def test_an_application_without_anything_shows_its_start_and_its_history() -> None:
    view = ApplicationView(
        application_id="a",
        partition="default",
        queue_name="",
        application_state="New",
        max_request_priority=PRIORITY_NONE,
        start_time=NEVER_MS,
        resource_history=HistoryView(),
    )
    shown = ["applicationID", "partition", "queueName", "applicationState", "maxRequestPriority", "startTime"]
    assert keys(view) == [*shown, "resourceHistory"]


def test_asks_and_allocations_always_show_key_and_priority() -> None:
    assert keys(AskView(allocation_key="k", priority="0")) == ["allocationKey", "priority"]
    assert keys(AllocationView(allocation_key="k", priority="0")) == ["allocationKey", "priority"]
    assert keys(ForeignAllocationView(allocation_key="k", priority="0")) == ["allocationKey", "priority"]


def test_a_list_is_shown_as_one_line() -> None:
    assert encode_view([]) == b"[]\n"
    assert encode_view([UserView(user_name="u", queues=UsageView(queue_path="root"))]).count(b"\n") == 1


@pytest.mark.parametrize(
    ("used", "capacity", "shown"),
    [
        ({"vcore": 29}, {"vcore": 100}, {"vcore": 28}),  # as the reference computes it
        ({"vcore": 150}, {"vcore": 100}, {"vcore": 150}),
        ({"vcore": -1}, {"vcore": 100}, {"vcore": 0}),
        ({"vcore": 0}, {"vcore": 0}, {"vcore": 0}),
        ({"vcore": 1}, {"vcore": 0}, {"vcore": 100}),
        ({"vcore": 2**62}, {"vcore": 1}, {"vcore": 2**31 - 1}),
        ({"vcore": 1}, {"memory": 1}, {}),
        ({"vcore": 1}, {}, {}),
    ],
)
def test_a_percentage_needs_both_sides(used: dict[str, int], capacity: dict[str, int], shown: dict[str, int]) -> None:
    assert percentages(used, capacity) == shown


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_100, "1.1µs"),
        (999_999_999, "999.999999ms"),
        (20 * 10**9, "20s"),
        (90 * 10**9, "1m30s"),
        (60 * 10**9, "1m0s"),
        (3600 * 10**9, "1h0m0s"),
        (100 * 3600 * 10**9 + 1, "100h0m0.000000001s"),
        (-1_500_000_000, "-1.5s"),
    ],
)
def test_durations_are_written_as_go_writes_them(nanoseconds: int, text: str) -> None:
    assert format_duration(nanoseconds) == text


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (1_700_000_000 * 10**9, "2023-11-14T22:13:20Z"),
        (1_700_000_000 * 10**9 + 1, "2023-11-14T22:13:20.000000001Z"),
        (1_700_000_000 * 10**9 + 500_000_000, "2023-11-14T22:13:20.5Z"),
    ],
)
def test_moments_have_as_many_decimals_as_they_need(nanoseconds: int, text: str) -> None:
    assert format_rfc3339(nanoseconds) == text


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(views).failed == 0
