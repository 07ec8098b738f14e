from typing import Any

from tests.kubernetes_shim.shim_builders import make_node, make_pod
from tests.kubernetes_shim.shim_world import World, with_nodes
from yunishard.common.messages import rm_messages
from yunishard.common.messages.rm_messages import Allocation
from yunishard.kubernetes_shim.actions import SendAllocations, SendNodes
from yunishard.kubernetes_shim.nodes import read_node

LABEL = "node.kubernetes.io/instance-type"


def sent(world: World, **changes: object) -> list[rm_messages.NodeInfo]:
    """What the core receives when the node n1 changes."""
    world.shim.handle_object("modified", make_node("n1", **changes), 0)  # type: ignore[arg-type]
    return [node for one in world.shim.take_actions() if isinstance(one, SendNodes) for node in one.nodes]


def test_a_node_has_labels_host_rack_and_instance_type_as_attributes() -> None:
    record = read_node(make_node(labels={"zone": "a", LABEL: "large", "si/node-partition": "other"}), LABEL)
    expected = {"zone": "a", "si.io/hostname": "n1", "si.io/rackname": "/rack-default", "si/instance-type": "large"}
    assert record.attributes.items() >= expected.items()
    assert "si/node-partition" not in record.attributes
    assert record.resources == {"vcore": 8000, "memory": 16 << 30, "pods": 110}


def test_a_node_that_is_cordoned_or_not_ready_takes_no_new_pods() -> None:
    for node, schedulable in [
        (make_node(), True),
        (make_node(ready=""), True),
        (make_node(unschedulable=True), False),
        (make_node(ready="False"), False),
        (make_node(ready="Unknown"), False),
    ]:
        assert read_node(node, LABEL).is_schedulable is schedulable


def test_a_node_joins_drained_then_its_pods_are_reported_then_it_takes_new_ones() -> None:
    world = with_nodes("n1")
    world.api.set_pod(make_pod("f1", scheduler="other", node="n2", phase="Running"))
    world.settle()
    assert world.core.foreign == {}
    world.shim.handle_object("added", make_node("n2"), 0)
    first, second, third = world.shim.take_actions()
    assert isinstance(first, SendNodes)
    assert isinstance(third, SendNodes)
    assert [one.action for one in first.nodes] == [rm_messages.NODE_CREATE_DRAIN]
    assert [one.allocation_key for one in second.allocations] == ["uid-f1"]  # type: ignore[union-attr]
    assert [one.action for one in third.nodes] == [rm_messages.NODE_DRAIN_TO_SCHEDULABLE]


def test_only_changes_of_a_node_are_sent() -> None:
    world = with_nodes("n1")
    assert sent(world) == []
    (capacity,) = sent(world, cpu="4")
    assert (capacity.action, capacity.attributes) == (rm_messages.NODE_UPDATE, {})
    assert capacity.schedulable_resource == {"vcore": 4000, "memory": 16 << 30, "pods": 110}
    (label,) = sent(world, cpu="4", labels={"zone": "b"})
    assert label.schedulable_resource is None
    assert label.attributes["zone"] == "b"
    assert label.attributes["si.io/hostname"] == "n1"


def test_cordon_and_uncordon_drain_the_node() -> None:
    world = with_nodes("n1")
    assert [one.action for one in sent(world, unschedulable=True)] == [rm_messages.NODE_DRAIN]
    assert [one.action for one in sent(world)] == [rm_messages.NODE_DRAIN_TO_SCHEDULABLE]


def test_a_pod_of_a_daemon_set_runs_on_its_cordoned_node() -> None:
    world = with_nodes("n1")
    world.api.set_node(make_node("n1", unschedulable=True))
    world.settle()
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    tolerated = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}  # as its controller adds
    daemon = make_pod(
        labels={"queue": "root.a"},
        owners=[{"kind": "DaemonSet"}],
        spec={"affinity": {"nodeAffinity": required}, "tolerations": [tolerated]},
    )
    world.api.set_pod(daemon)
    world.api.set_pod(make_pod("p2", labels={"queue": "root.a"}))
    world.settle()
    world.check()
    assert world.bound == {"p1": "n1"}


def test_a_node_that_goes_and_returns_gets_its_pods_reported_again() -> None:
    world = with_nodes("n1")
    world.api.set_pod(make_pod("p1", labels={"queue": "root.a"}))
    world.api.set_pod(make_pod("f1", scheduler="other", node="n1"))
    world.settle()
    world.api.remove_node("n1")
    world.settle()
    world.check()
    assert not world.core.allocations
    world.api.set_node(make_node("n1"))
    world.settle()
    world.check()
    assert set(world.core.allocations) == {"uid-p1"}
    assert set(world.core.foreign) == {"uid-f1"}
    assert world.actions_of_events("n1") == ["NodeAccepted", "NodeDeleted", "NodeAccepted"]


def test_a_node_that_goes_during_a_report_causes_one_release_of_each_pod() -> None:
    world = with_nodes("n1")
    world.api.set_pod(make_pod("p1", labels={"queue": "root.a"}))
    world.settle()
    world.register()
    while world.to_core:
        world.step_to_core()  # the core confirms the pod
    world.api.remove_node("n1")
    world.step_watch("nodes")
    world.settle()
    assert world.state.tasks["uid-p1"].releases_due == 0
    world.check()


def test_a_foreign_pod_counts_from_its_node_to_its_end() -> None:
    world = with_nodes("n1")
    world.api.set_pod(make_pod("f1", scheduler="other"))
    world.settle()
    assert world.core.foreign == {}
    world.api.change_pod("uid-f1", node="n1")
    world.settle()
    world.check()
    world.api.change_pod("uid-f1", phase="Succeeded")
    world.settle()
    world.check()
    assert world.core.foreign == {}


def test_a_foreign_pod_has_its_amounts_its_priority_and_its_tags_and_is_sent_again_when_its_amounts_change() -> None:
    world = with_nodes("n1")

    def send(cpu: str, **more: Any) -> list[Allocation]:
        pod = make_pod("f1", scheduler="other", node="n1", requests={"cpu": cpu}, owners=[{"kind": "Node"}], **more)
        world.shim.handle_object("modified", pod, 0)
        sent = [one for one in world.shim.take_actions() if isinstance(one, SendAllocations)]
        return [allocation for one in sent for allocation in one.allocations]

    (found,) = send("1", spec={"priority": 7}, labels={"a": "b"})
    assert (found.allocation_key, found.application_id, found.node_id, found.priority) == ("uid-f1", "", "n1", 7)
    assert found.resource_per_alloc == {"vcore": 1000, "pods": 1}
    assert (found.allocation_tags["foreign"], found.allocation_tags["kubernetes.io/label/a"]) == ("static", "b")
    assert send("1") == []
    assert [one.resource_per_alloc["vcore"] for one in send("2")] == [2000]


def test_nothing_is_kept_of_pods_on_unknown_nodes_that_are_gone() -> None:
    world = with_nodes("n1")
    world.api.set_pod(make_pod("f1", scheduler="other", node="n2"))
    world.api.set_pod(make_pod("p1", node="n3", labels={"queue": "root.a"}))
    world.settle()
    assert world.state.list_orphans() == ["uid-f1", "uid-p1"]
    world.api.remove_pod("uid-f1")
    world.api.remove_pod("uid-p1")
    world.settle()
    assert world.state.list_orphans() == []
    assert set(world.state.cluster.nodes) == {"n1"}
