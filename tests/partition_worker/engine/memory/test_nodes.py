import pytest

from common.rm_messages import NODE_CREATE_DRAIN, NODE_DECOMMISSION, NODE_DRAIN_TO_SCHEDULABLE, NODE_UPDATE
from tests.builders import apps, asks, foreign, nodes, released
from tests.trial import Trial
from tests.twins import Twins, remember, twin


@pytest.mark.parametrize("policy", ["fair", "binpacking"])
def test_nodes_are_tried_in_the_same_order(policy: str) -> None:
    """Also one on which something foreign came or went: it has not moved."""
    one = Trial(nodes=policy, made=Twins).does(
        nodes("n1 memory=20", "n2 memory=20", "n3 memory=20"), apps("app-1 root.a")
    )
    one.does(asks("app-1 a1 memory=6", "app-1 a2 memory=3"), foreign("f1 n3 memory=15", "f2 n2 memory=2"))
    remember(one).does(*(asks(f"app-1 b{number} memory=2") for number in range(4)))
    remember(one).does(released("- f1"), *(asks(f"app-1 c{number} memory=2") for number in range(4)))
    assert len(one.running) == 10


def test_what_is_foreign_keeps_its_room_until_it_goes() -> None:
    one = Trial(made=Twins).does(nodes("n1 memory=10"), apps("app-1 root.a"), foreign("f1 n1 memory=8"))
    remember(one).does(asks("app-1 a1 memory=4"))
    assert one.running == []
    assert one.does(released("- f1")).running == ["a1 on n1"]


def test_nodes_drain_shrink_and_go_afterwards() -> None:
    one = Trial(made=Twins).does(nodes("n1 memory=10", "n2 memory=10"), nodes("n3 memory=10", action=NODE_CREATE_DRAIN))
    one.does(apps("app-1 root.a"), asks("app-1 a1 memory=8", "app-1 a2 memory=8", "app-1 a3 memory=8"))
    remember(one).does(nodes("n1", action=NODE_DECOMMISSION), nodes("n2 memory=9", action=NODE_UPDATE))
    remember(one).does(nodes("n3", action=NODE_DRAIN_TO_SCHEDULABLE))
    assert one.running == ["a2 on n2", "a3 on n3"]


def test_the_next_node_has_the_next_rank() -> None:
    one = Trial(made=Twins).does(nodes("n1 memory=10", "n2 memory=10"), nodes("n2", action=NODE_DECOMMISSION))
    remember(one).does(nodes("n3 memory=10"))
    node = twin(one).fleet.get("n3")
    assert node is not None
    assert node.rank == 2


def test_what_a_node_says_of_itself_is_known() -> None:
    one = Trial(made=Twins).does(nodes("n1 memory=10 tag.si/instance-type=large tag.yunishard/taints=gpu:NoSchedule"))
    remember(one).does(apps("app-1 root.a"), asks("app-1 a1 memory=4"))
    assert one.running == []
    one.does(asks("app-1 a2 memory=4 tag.yunishard/tolerations=gpu"))
    assert one.running == ["a2 on n1"]
