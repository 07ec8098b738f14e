"""In which order nodes are tried, and what changes it. Seen from outside: where the next ask goes."""

import pytest

from tests.builders import apps, asks, foreign, gone, nodes, released
from tests.trial import Trial
from yunishard.common.messages.kinds import Command
from yunishard.common.messages.rm_messages import NODE_DECOMMISSION, NODE_DRAIN, NODE_DRAIN_TO_SCHEDULABLE, NODE_UPDATE
from yunishard.partition_worker.engine.allocation import AskShape
from yunishard.partition_worker.engine.amounts import amounts_of
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.nodes.nodes import DERIVED_INDEXES_MAX, LARGE_NODES_MAX, Nodes
from yunishard.partition_worker.engine.reservations import cancel_on_node, reserve


def trial(policy: str = "fair", **weights: float) -> Trial:
    """Two nodes alike, and an application."""
    one = Trial(nodes=policy, weights=weights).does(nodes("n1 memory=10", "n2 memory=10"), apps("app-1 root.a"))
    one.told()
    return one


def next_node(one: Trial) -> str:
    """Where one more small ask goes."""
    one.told()
    (placed,) = one.does(asks("app-1 probe memory=1")).placed()
    one.does(released("app-1 probe"))
    return placed.removeprefix("probe on ")


def test_of_equal_nodes_the_smaller_id_is_tried_first() -> None:
    assert next_node(trial()) == "n1"


def test_fair_tries_the_least_used_and_binpacking_the_most_used_first() -> None:
    assert next_node(trial("fair").does(asks("app-1 a1 memory=2 on=n1"))) == "n2"
    assert next_node(trial("binpacking").does(asks("app-1 a1 memory=2 on=n2"))) == "n2"


def test_weights_decide_which_types_count() -> None:
    one = Trial(weights={"gpu": 1.0}).does(nodes("n1 memory=9 gpu=1", "n2 memory=9 gpu=1"), apps("app-1 root.a"))
    assert next_node(one.does(asks("app-1 a1 memory=5 on=n1"))) == "n1"
    assert next_node(one.does(asks("app-1 a2 gpu=1 on=n1"))) == "n2"


def test_a_draining_node_is_not_tried_until_it_is_schedulable_again() -> None:
    one = trial().does(nodes("n1", action=NODE_DRAIN))
    assert next_node(one) == "n2"
    assert next_node(one.does(nodes("n1", action=NODE_DRAIN_TO_SCHEDULABLE))) == "n1"


def test_a_node_that_left_is_not_tried() -> None:
    assert next_node(trial().does(nodes("n1", action=NODE_DECOMMISSION))) == "n2"


def test_a_release_moves_a_node() -> None:
    one = trial().does(asks("app-1 a1 memory=2 on=n1", "app-1 a2 memory=1 on=n2"))
    assert next_node(one) == "n2"
    assert next_node(one.does(released("app-1 a1"))) == "n1"


def test_another_capacity_moves_a_node() -> None:
    one = trial().does(asks("app-1 a1 memory=2 on=n1", "app-1 a2 memory=1 on=n2"))
    assert next_node(one.does(nodes("n1 memory=100", action=NODE_UPDATE))) == "n1"


# Spec 4.6: scores are not refreshed on foreign changes nor on in-place updates ----------------------------------------


def test_foreign_allocations_do_not_move_a_node() -> None:
    one = trial().does(foreign("f1 n1 memory=5"))
    one.told()
    assert one.does(asks("app-1 a1 memory=1")).placed() == ["a1 on n1"]


@pytest.mark.parametrize("amount", [1, 8])
def test_resizing_in_place_does_not_move_a_node(amount: int) -> None:
    one = trial().does(asks("app-1 a1 memory=3 on=n1", "app-1 a2 memory=2 on=n2"))
    one.told()
    resized = one.does(asks(f"app-1 a1 memory={amount}"))
    assert resized.does(asks("app-1 a3 memory=1")).placed() == ["a3 on n2"]


@pytest.mark.parametrize(("words", "action"), [("n1", NODE_DRAIN_TO_SCHEDULABLE), ("n1 memory=10", NODE_UPDATE)])
def test_an_update_that_changes_nothing_does_not_move_a_node(words: str, action: int) -> None:
    """Spec 7: unchanged capacity is ignored, the flag is flipped if different. Nothing is scored anew then."""
    one = trial().does(foreign("f1 n1 memory=5"), nodes(words, action=action))
    one.told()
    assert one.does(asks("app-1 a1 memory=1")).placed() == ["a1 on n1"]


# What failed is remembered only as long as it would fail again --------------------------------------------------------


@pytest.mark.parametrize(
    "relief",
    [
        nodes("n3 memory=9"),
        nodes("n1 memory=20", action=NODE_UPDATE),
        released("app-1 a1"),
        released("- f1"),
        asks("app-1 a1 memory=1"),
        foreign("f1 n2 memory=1"),
        foreign("f1 n1 memory=6"),
        nodes("n9", action=NODE_DRAIN_TO_SCHEDULABLE),
    ],
    ids=[
        "new node",
        "larger node",
        "release",
        "foreign release",
        "shrink",
        "foreign shrink",
        "foreign move",
        "undrain",
    ],
)
def test_what_found_no_node_is_tried_again_when_one_gains_room(relief: Command) -> None:
    one = trial().does(asks("app-1 a1 memory=6 on=n1"), foreign("f1 n2 memory=6"), nodes("n9 memory=9"))
    one.does(nodes("n9", action=NODE_DRAIN), asks("app-1 waits memory=9"))
    assert not [line for line in one.placed() if line.startswith("waits")]
    assert [line.split()[0] for line in one.does(relief).placed()] == ["waits"]


def test_a_large_ask_that_found_no_node_does_not_hold_up_a_small_one() -> None:
    one = trial().does(asks("app-1 big memory=11 priority=1"))
    assert one.does(asks("app-1 small memory=10")).placed() == ["small on n1"]


def test_the_total_counts_draining_nodes_and_no_zeros() -> None:
    one = trial().does(nodes("n1", action=NODE_DRAIN))
    assert one.partition.nodes.total == {"memory": 20}
    one.does(nodes("n1", action=NODE_DECOMMISSION), nodes("n2", action=NODE_DECOMMISSION))
    assert one.partition.nodes.total == {}
    assert len(one.partition.nodes) == 0


# Another policy -------------------------------------------------------------------------------------------------------


@pytest.mark.tampers
def test_another_policy_orders_the_nodes_anew_but_for_those_that_drain() -> None:
    one = trial("fair").does(asks("app-1 a1 memory=2 on=n2"), nodes("n3 memory=10"), nodes("n3", action=NODE_DRAIN))
    assert next_node(one) == "n1"
    one.partition.nodes.set_policy("binpacking", one.partition.nodes.weights)
    assert next_node(one) == "n2"


@pytest.mark.tampers
def test_other_weights_order_the_nodes_anew() -> None:
    one = Trial(weights={"memory": 1.0}).does(nodes("n1 memory=9 gpu=3", "n2 memory=9 gpu=3"), apps("app-1 root.a"))
    one.does(asks("app-1 a1 memory=1 gpu=2 on=n1"), asks("app-1 a2 memory=2 gpu=1 on=n2"))
    assert next_node(one) == "n1"
    one.partition.nodes.set_policy("fair", {"gpu": 1.0})
    assert next_node(one) == "n2"


# A required node ------------------------------------------------------------------------------------------------------


def need(required: str = "", **amounts: int) -> AskShape:
    return AskShape(amounts_of(amounts), required)


def keep(one: Trial, node_id: str, key: str, required: str = "") -> Node:
    """Keep a node for an ask that waits, whether or not anybody would."""
    one.takes(asks(f"app-1 {key} memory=99" + (f" required={required}" if required else "")))
    node, app = one.node(node_id), one.app("app-1")
    reserve(one.partition, app, app.requests[key], node)
    return node


def test_a_required_node_will_do_although_it_drains_if_it_has_room() -> None:
    cluster = trial().does(nodes("n1", action=NODE_DRAIN)).partition.nodes
    node = cluster.node_for(need("n1", memory=10))
    assert node is not None
    assert node.node_id == "n1"
    assert cluster.node_for(need("n1", memory=11)) is None
    assert cluster.node_for(need("n9", memory=1)) is None


def test_a_required_node_may_be_kept_for_asks_that_need_it_too_and_for_nobody_else() -> None:
    one = trial()
    cluster = one.partition.nodes
    keep(one, "n1", "k1", required="n1")
    assert cluster.node_for(need("n1", memory=1)) is one.node("n1")
    keep(one, "n2", "k2")
    assert cluster.node_for(need("n2", memory=1)) is None


# Nodes that are kept for somebody -------------------------------------------------------------------------------------


def test_a_node_that_is_kept_is_found_by_nobody_until_it_is_kept_no_longer() -> None:
    one = trial()
    node, cluster = keep(one, "n1", "k1"), one.partition.nodes
    assert cluster.node_for(need(memory=1)) is one.node("n2")
    keep(one, "n2", "k2")
    assert cluster.node_for(need(memory=1)) is None
    assert not cluster.may_reserve(need(memory=1))
    cancel_on_node(one.partition, node)
    assert cluster.node_for(need(memory=1)) is node
    assert cluster.may_reserve(need(memory=1))


def test_a_node_that_is_kept_stays_so_when_it_changes() -> None:
    one = trial()
    keep(one, "n1", "k1")
    cluster = one.does(asks("app-1 a1 memory=2 on=n1"), nodes("n1 memory=100", action=NODE_UPDATE)).partition.nodes
    assert list(cluster.index) == [one.node("n2")]
    assert cluster.best_to_reserve(need(memory=40)) is None


def test_a_node_that_became_too_small_is_kept_no_longer() -> None:
    one = trial()
    keep(one, "n1", "k1")
    cluster = one.does(nodes("n1 memory=98", action=NODE_UPDATE)).partition.nodes
    assert len(cluster.index) == 2
    assert not one.app("app-1").reservations


# The node to keep for an ask ------------------------------------------------------------------------------------------


def nodes_of(**available: dict[str, int]) -> Nodes:
    """Nodes that are large and of which this much is left."""
    cluster = Nodes("fair", {"vcore": 1.0, "memory": 1.0})
    for name, left in available.items():
        capacity = dict.fromkeys(("vcore", "memory", "gpu"), 64)
        node = cluster.add(name, capacity, {}, schedulable=True)
        node.resize_allocation(amounts_of({kind: 64 - left.get(kind, 0) for kind in capacity}))
        cluster.reindex(node)
    return cluster


def best(cluster: Nodes, **amounts: int) -> str | None:
    node = cluster.best_to_reserve(need(**amounts))
    return None if node is None else node.node_id


def test_vector_17_the_node_on_which_the_least_is_left_over_is_kept() -> None:
    cluster = nodes_of(C={"memory": 4, "gpu": 1}, B={"vcore": 3, "memory": 32}, A={"vcore": 3, "memory": 6})
    assert best(cluster, vcore=4, memory=8) == "A"
    cluster.set_schedulable(_node(cluster, "A"), schedulable=False)
    assert best(cluster, vcore=4, memory=8) == "B"
    cluster.set_schedulable(_node(cluster, "B"), schedulable=False)
    assert best(cluster, vcore=4, memory=8) == "C"


def test_of_nodes_that_leave_the_same_over_the_first_in_order_is_kept() -> None:
    cluster = nodes_of(A={"vcore": 1}, B={"vcore": 2}, C={"vcore": 2})
    assert best(cluster, vcore=4) == "B"  # fair: more is available


def test_a_node_that_could_never_take_the_ask_is_not_kept_for_it() -> None:
    cluster = nodes_of(A={}, B={})
    cluster.resize(_node(cluster, "A"), {"vcore": 3, "memory": 64})
    assert best(cluster, vcore=4) == "B"
    assert not cluster.may_reserve(need(vcore=65))
    assert best(cluster, vcore=65) is None
    assert best(cluster, disk=1) is None


def test_the_best_node_is_found_anew_when_nodes_change() -> None:
    cluster = nodes_of(A={"vcore": 3}, B={"vcore": 3, "memory": 4}, C={"vcore": 2, "gpu": 8})
    assert best(cluster, vcore=4) == "A"
    a, b = _node(cluster, "A"), _node(cluster, "B")
    a.resize_allocation(amounts_of({"gpu": -3}))
    cluster.note_room(a)
    b.resize_allocation(amounts_of({"memory": 4}))
    cluster.note_room(b)
    assert best(cluster, vcore=4) == "B"
    cluster.remove(b)
    assert best(cluster, vcore=4) == "A"
    cluster.set_policy("binpacking", cluster.weights)
    assert best(cluster, vcore=4) == "C"


def test_no_node_but_the_required_one_is_kept_for_an_ask_that_has_one() -> None:
    cluster = nodes_of(A={})
    assert not cluster.may_reserve(need("A", vcore=1))
    assert cluster.best_to_reserve(need("A", vcore=1)) is None


@pytest.mark.parametrize("opening", ["a node comes", "a node grows", "a node opens"])
def test_that_no_node_may_be_kept_is_remembered_until_one_may(opening: str) -> None:
    cluster = nodes_of(A={}, B={})
    cluster.resize(_node(cluster, "B"), {"vcore": 70})
    cluster.set_schedulable(_node(cluster, "B"), schedulable=False)
    for _ in range(2):
        assert not cluster.may_reserve(need(vcore=65))
    match opening:
        case "a node comes":
            cluster.add("C", {"vcore": 65}, {}, schedulable=True)
        case "a node grows":
            cluster.resize(_node(cluster, "A"), {"vcore": 65})
        case "a node opens":
            cluster.set_schedulable(_node(cluster, "B"), schedulable=True)
    assert cluster.may_reserve(need(vcore=65))
    assert best(cluster, vcore=65) is not None


def test_that_a_node_may_be_kept_is_not_believed_once_it_may_not() -> None:
    cluster = nodes_of(A={}, B={})
    assert cluster.may_reserve(need(vcore=60))
    cluster.resize(_node(cluster, "A"), {"vcore": 59})
    assert cluster.may_reserve(need(vcore=60))
    cluster.remove(_node(cluster, "B"))
    assert not cluster.may_reserve(need(vcore=60))


def test_not_more_than_so_many_shapes_are_remembered() -> None:
    cluster = nodes_of(A={"vcore": 1}, B={"vcore": 2})
    for amount in range(2 * LARGE_NODES_MAX):
        cluster.may_reserve(need(memory=amount))
        assert amount > 2 * DERIVED_INDEXES_MAX or best(cluster, memory=amount) == "B"
    assert len(cluster._large_nodes) <= LARGE_NODES_MAX
    assert len(cluster._derived) <= DERIVED_INDEXES_MAX


def test_indexes_that_nobody_asks_for_are_forgotten_when_nodes_come_and_go() -> None:
    cluster = nodes_of(A={})
    assert best(cluster, vcore=1) == "A"
    for number in range(9):
        cluster.remove(cluster.add(f"n{number}", {"vcore": 1}, {}, schedulable=True))
    assert not cluster._derived


def _node(cluster: Nodes, node_id: str) -> Node:
    node = cluster.get(node_id)
    assert node is not None
    return node


def used_trial() -> Trial:
    """Three nodes of which others use different amounts; the order is fair: n3, n2, n1."""
    one = Trial("root.a").does(nodes("n1 memory=10", "n2 memory=10", "n3 memory=10"))
    one.does(apps("app-1 root.a tag.node.sort.policy=pack", "other root.a"))
    one.does(asks("other o1 memory=5 on=n1", "other o2 memory=3 on=n2"))
    one.told()
    return one


def goes(one: Trial, key: str, memory: int = 1, tag: str = "") -> str:
    """Where the next ask goes."""
    one.told()
    (placed,) = one.does(asks(f"app-1 {key} memory={memory} {tag}")).placed()
    return placed.removeprefix(f"{key} on ")


def test_nodes_on_which_the_application_runs_come_first_then_the_order_of_the_partition() -> None:
    one = used_trial()
    assert goes(one, "a1", memory=6) == "n3"
    assert goes(one, "a2", memory=3) == "n3"  # n2 is less used by now
    assert goes(one, "a3", memory=3) == "n2"  # n3 is full


def test_among_its_own_nodes_the_order_is_that_of_the_partition() -> None:
    one = used_trial().does(asks("app-1 a1 memory=1 on=n1", "app-1 a2 memory=1 on=n2"))
    assert goes(one, "a3") == "n2"
    one.does(released("other o1"))
    assert goes(one, "a4") == "n1"


def test_what_ran_before_anybody_asked_for_a_node_counts() -> None:
    one = used_trial().does(asks("app-1 a1 memory=1 on=n1"))
    assert goes(one, "a2") == "n1"


def test_a_node_is_its_own_as_long_as_something_of_it_runs_there() -> None:
    one = used_trial().does(asks("app-1 a1 memory=1 on=n1", "app-1 a2 memory=1 on=n1"))
    assert goes(one, "a3") == "n1"
    one.does(released("app-1 a1"), released("app-1 a3"))
    assert goes(one, "a4") == "n1"
    one.does(released("app-1 a2"), released("app-1 a4"))
    assert goes(one, "a5") == "n3"
    assert one.node("n1").rank not in one.partition.nodes.packs


def test_what_others_run_does_not_make_a_node_its_own() -> None:
    one = used_trial()
    one.does(apps("app-2 root.a tag.node.sort.policy=pack"), asks("app-2 b1 memory=1 on=n1"))
    assert goes(one, "a1") == "n3"
    one.told()
    assert one.does(asks("app-2 b2 memory=1")).placed() == ["b2 on n1"]


def test_an_ask_that_its_own_nodes_refuse_goes_to_another() -> None:
    one = used_trial().does(asks("app-1 a1 memory=1 on=n1"))
    assert goes(one, "a2", tag="tag.yunishard/forbiddenNodes=n1") == "n3"


def test_a_draining_node_of_its_own_is_passed_over_until_it_is_open_again() -> None:
    one = used_trial().does(asks("app-1 a1 memory=1 on=n1"))
    assert goes(one, "a2") == "n1"
    one.does(nodes("n1", action=NODE_DRAIN))
    assert goes(one, "a3") == "n3"
    one.does(released("app-1 a3"), nodes("n1", action=NODE_DRAIN_TO_SCHEDULABLE))
    assert goes(one, "a4") == "n1"


def test_a_node_of_its_own_that_left_is_forgotten() -> None:
    one = used_trial().does(asks("app-1 a1 memory=1 on=n1"))
    assert goes(one, "a2") == "n1"
    one.does(nodes("n1", action=NODE_DECOMMISSION))
    assert goes(one, "a3") == "n3"
    pack = one.app("app-1").pack
    assert pack is not None
    assert list(pack.refresh(one.partition.nodes.index)) == [one.node("n3")]


def test_a_node_of_its_own_that_something_foreign_left_is_found_again() -> None:
    one = used_trial().does(asks("app-1 a1 memory=1 on=n1"))
    assert goes(one, "a2") == "n1"
    one.does(foreign("f1 n1 memory=3"))
    assert goes(one, "a3") == "n3"
    one.does(asks("other o3 memory=9 on=n3"), released("- f1"))
    assert goes(one, "a4") == "n1"


def test_of_an_application_that_left_nothing_stays_at_the_nodes() -> None:
    one = used_trial()
    goes(one, "a1")
    one.does(gone("app-1"))
    assert one.partition.nodes.packs == {}


@pytest.mark.tampers
def test_another_order_of_the_partition_is_that_of_its_own_nodes_too() -> None:
    one = used_trial().does(asks("app-1 a1 memory=1 on=n1", "app-1 a2 memory=1 on=n2"))
    assert goes(one, "a3") == "n2"
    one.partition.nodes.set_policy("binpacking", one.partition.nodes.weights)
    assert goes(one, "a4") == "n1"
