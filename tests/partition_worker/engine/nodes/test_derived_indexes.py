"""Orders of their own for demands that keep coming: made when they pay, and always right."""

import random
from collections.abc import Iterable

from yunishard.partition_worker.engine.allocation import AskShape
from yunishard.partition_worker.engine.amounts import amounts_of
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.nodes.nodes import DERIVED_INDEXES_MAX, Nodes
from yunishard.partition_worker.engine.predicates.evaluation import Predicates
from yunishard.partition_worker.engine.predicates.verdicts import NODES_MAX

ONE = amounts_of({"memory": 1})


def zoned_nodes(zones: Iterable[str]) -> Nodes:
    cluster = Nodes("fair", {"memory": 1.0}, Predicates())
    for number, zone in enumerate(zones):
        cluster.add(f"n{number:02}", {"memory": 10}, {"zone": zone}, schedulable=True)
    return cluster


def wants(cluster: Nodes, selector: str) -> AskShape:
    return AskShape(ONE, constraint=cluster.predicates.read_constraint({"yunishard/nodeSelector": selector}, "a1"))


def plainly(cluster: Nodes, zone: str) -> Node | None:
    return next((one for one in cluster.index if one.attributes["zone"] == zone and one.has_room(ONE)), None)


def test_an_order_is_made_once_as_many_looks_were_lost_as_there_are_nodes() -> None:
    cluster = zoned_nodes("bbbbba")
    for made in (0, 1, 1):
        assert cluster.node_for(wants(cluster, "zone=a")) is cluster.get("n05")
        assert len(cluster._derived) == made


def test_whoever_finds_a_node_at_once_needs_no_order() -> None:
    cluster = zoned_nodes("abbbbb")
    for _ in range(20):
        assert cluster.node_for(wants(cluster, "zone=a")) is cluster.get("n00")
    assert not cluster._derived


def test_only_so_many_orders_are_kept() -> None:
    zones = [f"z{number}" for number in range(DERIVED_INDEXES_MAX + 4)]
    cluster = zoned_nodes(zones)
    for zone in zones:
        for _ in range(30):
            cluster.node_for(wants(cluster, f"zone={zone}"))
    assert len(cluster._derived) == DERIVED_INDEXES_MAX


def test_amounts_that_no_accepting_node_can_hold_cost_neither_an_index_nor_work() -> None:
    cluster = zoned_nodes("bbbbba")
    node = cluster.get("n05")
    assert node is not None
    cluster.resize(node, {"memory": 1})
    constraint = cluster.predicates.read_constraint({"yunishard/nodeSelector": "zone=a"}, "a1")
    assert constraint is not None
    assert all(cluster.predicates.meets(constraint.demands, one) is (one is node) for one in cluster)
    spent = cluster.predicates.table.spent
    for memory in range(2, 11):
        assert cluster.best_to_reserve(AskShape(amounts_of({"memory": memory}), constraint=constraint)) is None
    assert cluster.predicates.table.spent == spent
    assert not cluster._derived
    assert cluster.best_to_reserve(AskShape(ONE, constraint=constraint)) is node


def test_the_rm_is_asked_about_the_nodes_on_which_a_reservation_wastes_least() -> None:
    predicates = Predicates()
    predicates.asks_manager = True
    cluster = Nodes("fair", {"memory": 1.0}, predicates)
    for number in range(2 * NODES_MAX):
        cluster.add(f"n{number:02}", {"memory": 100 - number}, {}, schedulable=True)
    constraint = predicates.read_constraint({}, "a1")
    assert cluster.best_to_reserve(AskShape(amounts_of({"memory": 10}), constraint=constraint)) is None
    question = predicates.verdicts.next_question(0.0)
    assert question is not None
    smallest = [f"n{number:02}" for number in reversed(range(NODES_MAX, 2 * NODES_MAX))]
    assert [pair.node_id for pair in question[0].pairs] == smallest


def test_an_order_that_nobody_needs_any_more_is_given_up() -> None:
    cluster = zoned_nodes("bbbbba")
    for _ in range(2):
        cluster.node_for(wants(cluster, "zone=a"))
    assert cluster._derived
    for number in range(20):
        node = cluster.add(f"x{number}", {"memory": 10}, {"zone": "b"}, schedulable=True)
        cluster.remove(node)
    assert not cluster._derived


def test_with_an_order_the_same_node_is_found_as_without_whatever_changes() -> None:
    rng = random.Random(5)
    cluster = zoned_nodes("".join(rng.choice("abc") for _ in range(30)))
    found_with_orders = 0
    for step in range(2000):
        node = rng.choice(list(cluster))
        match rng.randrange(7) if step % 300 else 3:
            case 0:
                cluster.set_schedulable(node, schedulable=rng.random() < 0.7)
            case 1:
                cluster.resize(node, {"memory": rng.randint(0, 12)})
            case 2:
                cluster.remove(node)
                cluster.add(f"m{step}", {"memory": 10}, {"zone": rng.choice("abc")}, schedulable=True)
            case 3 if step % 300 == 0:
                cluster.set_policy(rng.choice(["fair", "binpacking"]), {"memory": 1.0})
            case _:
                node.resize_allocation(amounts_of({"memory": rng.choice([-2, 1, 2])}))
                cluster.reindex(node)
        zone = rng.choice("abc")
        found_with_orders += len(cluster._derived) > 0
        assert cluster.node_for(wants(cluster, f"zone={zone}")) is plainly(cluster, zone)
    assert found_with_orders > 500
