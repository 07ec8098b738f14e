"""What an RM's word about nodes does."""

import pytest

from tests.builders import PARTITION, apps, asks, foreign, nodes, released
from tests.trial import Trial
from yunishard.common.messages.rm_messages import (
    NODE_CREATE_DRAIN,
    NODE_DECOMMISSION,
    NODE_DRAIN,
    NODE_DRAIN_TO_SCHEDULABLE,
    NODE_UPDATE,
    NodeInfo,
    NodeRequest,
)
from yunishard.partition_worker.engine.state import TEXT_MAX

DUPLICATE = f"""failure while adding new node, node rejected with error: 
failed to add node n1 to partition {PARTITION}, error: partition {PARTITION} has an existing node n1, node name must be unique"""  # noqa: E501, W291 - the reference's text


def test_a_node_joins_and_the_cluster_grows() -> None:
    one = Trial().does(nodes("n1 memory=10 gpu=0", "n2 memory=5"))
    assert one.told() == ["node n1 accepted", "node n2 accepted"]
    assert one.queue("root").maximum == {"memory": 15}


def test_a_node_may_join_draining() -> None:
    one = Trial().does(nodes("n1 memory=10", action=NODE_CREATE_DRAIN), apps("app-1 root.a"))
    assert not one.node("n1").schedulable
    assert one.does(asks("app-1 a1 memory=1")).placed() == []


def test_the_partition_of_a_node_is_the_one_it_joined() -> None:
    one = Trial().does(nodes("n1 memory=1 tag.si/node-partition=[rm]x tag.si/hostname=h"))
    assert one.node("n1").attributes == {"si/node-partition": PARTITION, "si/hostname": "h"}


def test_a_node_of_a_known_id_is_rejected_and_the_first_one_stays() -> None:
    one = Trial().does(nodes("n1 memory=10"), nodes("n1 memory=20"))
    assert one.told() == ["node n1 accepted", f"node n1 rejected: {DUPLICATE}"]
    assert one.queue("root").maximum == {"memory": 10}


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        (NodeInfo(action=1, schedulable_resource={"memory": 1}), "node  rejected: invalid node: it has no id"),
        (
            NodeInfo(node_id="n1", action=1, schedulable_resource={"vcore": -1, "memory": -1, "gpu": 1}),
            "node n1 rejected: invalid node: negative resources for memory, vcore",
        ),
    ],
)
def test_a_node_that_cannot_be_is_rejected(info: NodeInfo, reason: str) -> None:
    assert Trial().does(NodeRequest(nodes=[info])).told() == [reason]


def test_a_node_without_resources_joins_with_nothing() -> None:
    one = Trial().does(nodes("n1"))
    assert one.told() == ["node n1 accepted"]
    assert one.node("n1").capacity == {}


def test_every_node_of_a_request_counts_by_itself() -> None:
    one = Trial().does(nodes("n1 memory=1", "n1 memory=2", "n2 memory=3"))
    assert [line.split(":")[0] for line in one.told()] == ["node n1 accepted", "node n1 rejected", "node n2 accepted"]


@pytest.mark.parametrize("action", [NODE_UPDATE, NODE_DRAIN, NODE_DRAIN_TO_SCHEDULABLE, NODE_DECOMMISSION, 0, 99])
def test_what_is_about_an_unknown_node_is_only_noted(action: int) -> None:
    """Spec 7: other actions need a known node, otherwise only logged, no response."""
    assert Trial().does(nodes("n1 memory=1", action=action)).told() == [
        f"note: node n1: unknown, action {action} has no effect"
    ]


def test_an_unknown_action_is_only_noted() -> None:
    one = Trial().does(nodes("n1 memory=1"))
    one.told()
    assert one.does(nodes("n1", action=99)).told() == ["note: node n1: unknown action 99 has no effect"]


def test_an_update_of_the_capacity_changes_nothing_else() -> None:
    one = Trial().does(nodes("n1 memory=10 tag.rack=r1"), apps("app-1 root.a"), asks("app-1 a1 memory=4"))
    one.does(nodes("n1 memory=3", action=NODE_UPDATE))
    assert one.node("n1").available == {"memory": -1}
    assert one.node("n1").attributes["rack"] == "r1"
    assert one.queue("root").maximum == {"memory": 3}
    assert one.running == ["a1 on n1"]


def test_an_update_without_resources_changes_nothing() -> None:
    one = Trial().does(nodes("n1 memory=10"), nodes("n1", action=NODE_UPDATE))
    assert one.node("n1").capacity == {"memory": 10}


def test_an_update_to_less_than_nothing_is_only_noted() -> None:
    one = Trial().does(nodes("n1 memory=10"), nodes("n1 memory=-1", action=NODE_UPDATE))
    assert one.told()[1:] == [
        "note: node n1: the new capacity has no effect: invalid node: negative resources for memory"
    ]


def test_a_draining_node_keeps_what_it_has_and_its_capacity() -> None:
    one = Trial().does(nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=4"))
    one.does(nodes("n1", action=NODE_DRAIN))
    assert one.running == ["a1 on n1"]
    assert one.queue("root").maximum == {"memory": 10}


# A node with other attributes ---------------------------------------------------------------------------------------

SELECTOR, TAINTS, TOLERATIONS = "tag.yunishard/nodeSelector", "tag.yunishard/taints", "tag.yunishard/tolerations"


def test_an_update_with_attributes_replaces_them_all_and_one_without_leaves_them() -> None:
    one = Trial().does(nodes("n1 memory=10 tag.zone=a tag.disk=ssd"))
    one.does(nodes("n1 tag.zone=b", action=NODE_UPDATE), nodes("n1 memory=8", action=NODE_UPDATE))
    one.does(nodes("n1 tag.si/node-partition=x", action=NODE_UPDATE))
    assert one.node("n1").attributes == {"zone": "b", "si/node-partition": PARTITION}
    assert one.node("n1").capacity == {"memory": 8}


@pytest.mark.parametrize("action", [NODE_DRAIN, NODE_DRAIN_TO_SCHEDULABLE])
def test_other_actions_do_not_change_attributes(action: int) -> None:
    one = Trial().does(nodes("n1 memory=10 tag.zone=a"), nodes("n1 tag.zone=b", action=action))
    assert one.node("n1").attributes["zone"] == "a"


def test_asks_that_wait_for_a_label_get_the_node_that_receives_it() -> None:
    one = Trial().does(nodes("n1 memory=10", "n2 memory=10 tag.zone=a"), apps("app-1 root.a"))
    one.does(asks(f"app-1 a1 memory=9 {SELECTOR}=zone=b", f"app-1 a2 memory=9 {SELECTOR}=zone=b")).waits(60)
    assert one.placed() == []
    assert one.does(nodes("n1 tag.zone=b", action=NODE_UPDATE)).placed() == ["a1 on n1"]
    assert one.does(nodes("n2 tag.zone=b", action=NODE_UPDATE)).placed() == ["a2 on n2"]


def test_a_taint_keeps_new_asks_away_while_allocations_stay_and_its_removal_lets_them_in() -> None:
    one = Trial().does(nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=1"))
    one.does(nodes(f"n1 {TAINTS}=gpu:NoSchedule", action=NODE_UPDATE))
    one.does(asks("app-1 a2 memory=1", f"app-1 a3 memory=1 {TOLERATIONS}=gpu"))
    assert one.running == ["a1 on n1", "a3 on n1"]
    one.does(nodes("n1 tag.si/hostname=h", action=NODE_UPDATE))
    assert one.running == ["a1 on n1", "a2 on n1", "a3 on n1"]


def test_a_label_on_one_of_many_nodes_is_found_although_searches_skip_the_others() -> None:
    """The nodes that accept an ask are in an index once many nodes have refused it; it must learn of the label."""
    one = Trial().does(nodes(*(f"n{number} memory=10" for number in range(40))), apps("app-1 root.a"))
    one.does(*(asks(f"app-1 a{number} memory=1 {SELECTOR}=zone=b") for number in range(5)))
    one.does(nodes("n17 tag.zone=b", action=NODE_UPDATE))
    assert one.running == [f"a{number} on n17" for number in range(5)]
    one.does(nodes("n17 tag.zone=c", action=NODE_UPDATE), asks(f"app-1 late memory=1 {SELECTOR}=zone=b"))
    assert "late on n17" not in one.running


def reserving(demand: str = "") -> Trial:
    """Two nodes without room for an ask with this demand, of which the first is reserved for it."""
    one = Trial().does(nodes("n1 memory=10 tag.zone=a", "n2 memory=12"), apps("app-1 root.a"))
    one.does(asks("app-1 s1 memory=6 on=n1", "app-1 s2 memory=8 on=n2", f"app-1 big memory=6 {demand}")).waits(3)
    assert list(one.node("n1").reservations) == ["big"]
    return one


def test_a_reservation_ends_if_the_node_no_longer_matches_and_another_node_is_reserved() -> None:
    one = reserving(f"{SELECTOR}=zone=a")
    one.does(nodes("n1 tag.zone=b", action=NODE_UPDATE))
    assert one.partition.reservation_index.by_rank == {}
    one.does(nodes("n2 tag.zone=a", action=NODE_UPDATE))
    assert list(one.node("n2").reservations) == ["big"]
    assert one.does(released("app-1 s2")).running == ["big on n2", "s1 on n1"]


def test_a_reservation_ends_if_the_node_is_tainted_unless_its_ask_tolerates_it() -> None:
    tainted = nodes(f"n1 {TAINTS}=gpu:NoSchedule", action=NODE_UPDATE)
    assert list(reserving().does(tainted).node("n2").reservations) == ["big"]
    assert list(reserving(f"{TOLERATIONS}=gpu").does(tainted).node("n1").reservations) == ["big"]


def test_the_node_that_an_ask_requires_is_not_reserved_for_it_while_it_refuses_the_ask() -> None:
    one = Trial().does(nodes("n1 memory=10", "n2 memory=9"), apps("app-1 root.a"))
    one.does(asks("app-1 s1 memory=10 originator on=n1"))
    one.does(asks("app-1 daemon memory=5 required=n1"), nodes(f"n1 {TAINTS}=x:NoSchedule", action=NODE_UPDATE))
    assert list(one.node("n1").reservations) == []
    one.does(released("app-1 s1"))
    assert one.running == []
    assert one.does(nodes("n1 tag.si/hostname=h", action=NODE_UPDATE)).running == ["daemon on n1"]


def test_a_member_of_a_gang_replaces_its_placeholder_once_its_node_has_the_label() -> None:
    one = Trial().does(nodes("n1 memory=10"), apps("app-1 root.a gang=memory:5"))
    one.does(asks("app-1 p1 memory=5 group=g placeholder"))
    one.does(asks(f"app-1 m1 memory=5 group=g {SELECTOR}=zone=a"))
    one.told()
    one.does(nodes("n1 tag.zone=a", action=NODE_UPDATE))
    assert one.told() == ["p1 released (PLACEHOLDER_REPLACED: replacing allocationKey: m1)"]


def test_attributes_beyond_the_limit_are_only_noted() -> None:
    one = Trial().does(nodes("n1 memory=10 tag.zone=a"))
    one.does(nodes(f"n1 tag.zone={'x' * TEXT_MAX}", action=NODE_UPDATE))
    assert one.told()[1].startswith("note: node n1: its new attributes have no effect: its texts have 5243")
    assert one.node("n1").attributes["zone"] == "a"


def test_the_same_attributes_change_nothing() -> None:
    one = Trial().does(nodes("n1 memory=10 tag.zone=a"))
    version, retried = one.node("n1").version, one.partition.readiness.retry_round
    one.does(nodes("n1 memory=10 tag.zone=a", action=NODE_UPDATE))
    assert (one.node("n1").version, one.partition.readiness.retry_round) == (version, retried)


# A node that goes -----------------------------------------------------------------------------------------------------


def with_two_applications() -> Trial:
    one = Trial().does(nodes("n1 memory=10"), apps("app-1 root.a", "app-2 root.a"))
    one.does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1"))
    one.told()
    return one


def test_what_ran_on_a_node_that_goes_is_released_and_the_cluster_shrinks() -> None:
    one = with_two_applications().does(nodes("n1", action=NODE_DECOMMISSION))
    assert "a1 released (STOPPED_BY_RM: Node n1 Removed)" in one.told()
    assert one.queue("root").maximum is None
    assert one.partition.allocations == {}
    assert one.partition.counters.decommissioned == 1


def test_the_releases_of_a_node_that_goes_are_one_list() -> None:
    """Spec 7: RM gets one release list; spec 8.7: states that it causes come before it."""
    assert with_two_applications().does(nodes("n1", action=NODE_DECOMMISSION)).told() == [
        "app-1 Completing",
        "app-2 Completing",
        "a1 released (STOPPED_BY_RM: Node n1 Removed)",
        "b1 released (STOPPED_BY_RM: Node n1 Removed)",
    ]


def test_asks_go_to_other_nodes_when_their_node_goes() -> None:
    one = Trial().does(nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=9"))
    one.does(asks("app-1 a2 memory=9"), nodes("n1", action=NODE_DECOMMISSION), nodes("n2 memory=10"))
    assert one.placed() == ["a1 on n1", "a2 on n2"]


def test_an_id_may_come_back() -> None:
    one = with_two_applications().does(nodes("n1", action=NODE_DECOMMISSION), nodes("n1 memory=5"))
    assert one.queue("root").maximum == {"memory": 5}
    assert one.node("n1").allocations == {}


def test_foreign_allocations_go_with_their_node() -> None:
    one = Trial().does(nodes("n1 memory=10"), foreign("f1 n1 memory=1"), nodes("n1", action=NODE_DECOMMISSION))
    one.does(nodes("n1 memory=10"), released("- f1"))
    assert one.node("n1").available == {"memory": 10}
