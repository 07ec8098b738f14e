import pytest

from common.quantity import QuantityError
from common.rm_messages import (
    NODE_DRAIN,
    STOPPED_BY_RM,
    TIMEOUT,
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    NodeInfo,
    UserGroupInformation,
)
from yunishard.parts import application, ask, node, release


def test_a_node_names_its_partition_in_its_attributes() -> None:
    built = node("n1", {"vcore": "4", "memory": "2Gi"}, partition="gpu", attributes={"si/rackname": "r1"})
    assert built == NodeInfo(
        node_id="n1",
        action=1,
        attributes={"si/rackname": "r1", "si/node-partition": "gpu"},
        schedulable_resource={"vcore": 4000, "memory": 2 << 30},
    )


def test_a_node_that_only_changes_needs_no_resources() -> None:
    assert node("n1", action=NODE_DRAIN) == NodeInfo(node_id="n1", action=NODE_DRAIN)


def test_an_application_has_a_user() -> None:
    assert application(
        "app", "root.a", user="alice", groups=("dev",), tags={"namespace": "n"}
    ) == AddApplicationRequest(
        application_id="app",
        queue_name="root.a",
        ugi=UserGroupInformation(user="alice", groups=["dev"]),
        tags={"namespace": "n"},
    )


def test_an_ask_with_a_node_is_an_allocation_that_already_runs() -> None:
    assert ask("k1", "app", {"vcore": "500m"}, priority=3) == Allocation(
        allocation_key="k1", application_id="app", resource_per_alloc={"vcore": 500}, priority=3
    )
    assert ask("k1", "app", {"vcore": 500}, node_id="n1").node_id == "n1"


def test_a_gang_says_what_its_placeholders_need_and_what_becomes_of_it() -> None:
    assert application(
        "app", "root.a", user="alice", gang={"vcore": "4"}, gang_style="Hard", gang_timeout_s=60
    ) == AddApplicationRequest(
        application_id="app",
        queue_name="root.a",
        ugi=UserGroupInformation(user="alice"),
        placeholder_ask={"vcore": 4000},
        gang_scheduling_style="Hard",
        execution_timeout_milli_seconds=60_000,
    )
    assert ask("p1", "app", {"vcore": 500}, task_group="workers", placeholder=True) == Allocation(
        allocation_key="p1",
        application_id="app",
        resource_per_alloc={"vcore": 500},
        task_group_name="workers",
        placeholder=True,
    )


def test_a_release_is_the_managers_own_unless_it_confirms() -> None:
    assert release("app") == AllocationRelease(application_id="app", termination_type=STOPPED_BY_RM)
    assert release("app", "k1", termination_type=TIMEOUT).termination_type == TIMEOUT


def test_text_that_is_no_amount_is_named() -> None:
    with pytest.raises(QuantityError, match=r"memory: '4 apples'"):
        ask("k1", "app", {"memory": "4 apples"})
