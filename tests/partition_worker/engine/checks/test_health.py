"""What the checks of a partition find (spec 11)."""

from partition_worker.engine.auditor import LISTED_MAX, Health
from tests.builders import apps, asks, foreign, nodes
from tests.trial import Trial


def trial() -> Trial:
    return Trial().does(
        nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=4"), foreign("f1 n1 memory=1")
    )


def found(one: Trial) -> Health:
    health = Health()
    for application in one.partition.applications.values():
        health.check_application(one.partition, application)
    for node in one.partition.nodes:
        health.check_node(one.partition, node)
    health.check_partition(one.partition)
    return health


def test_of_a_sound_partition_only_sizes_are_told() -> None:
    assert found(trial()) == Health(nodes=1)


def test_reservations_are_counted() -> None:
    one = trial().takes(nodes("n2 memory=4")).does(asks("app-1 a2 memory=6 required=n2", "app-1 a3 memory=6"))
    assert found(one).reservations == len(one.partition.reservation_index)


def test_errors_of_updates_are_counted() -> None:
    assert found(trial().does(asks("app-9 a1 memory=1"))).scheduling_errors == 1


def test_negative_amounts_of_a_partition_are_counted() -> None:
    one = trial()
    one.queue("root").allocated["memory"] = -1
    one.partition.nodes.total["memory"] = -1
    assert found(one).negative == 2


def test_a_node_is_listed_once_for_each_negative_amount() -> None:
    one = trial()
    one.node("n1").allocated["memory"] = -5
    one.node("n1").occupied["memory"] = -1
    assert found(one).negative_nodes == ["n1", "n1"]


def test_a_partition_has_what_its_nodes_have() -> None:
    one = trial()
    one.partition.nodes.total["memory"] = 11
    assert found(one).inconsistent


def test_the_parts_of_a_node_add_up() -> None:
    one = trial()
    one.node("n1").available["memory"] = 6
    assert found(one).inconsistent_nodes == ["n1"]


def test_an_allocation_that_its_application_does_not_know_is_an_orphan() -> None:
    one = trial()
    one.app("app-1").allocations.clear()
    told = "allocationKey a1, applicationID app-1, Resource map[memory:4], Allocated true"
    assert found(one).orphans_on_nodes == [told]
    assert found(one).orphans_of_applications == []


def test_an_allocation_that_its_node_does_not_know_is_an_orphan() -> None:
    one = trial()
    one.node("n1").allocations.clear()
    told = "allocationKey a1, applicationID app-1, Resource map[memory:4], Allocated true"
    assert found(one).orphans_of_applications == [told]


def test_no_more_is_listed_than_the_bound_allows() -> None:
    one = trial().does(nodes(f"n2 memory={LISTED_MAX + 1}"))
    one.does(asks(*(f"app-1 b{number} memory=1" for number in range(LISTED_MAX + 1))))
    one.app("app-1").allocations.clear()
    assert len(found(one).orphans_on_nodes) == LISTED_MAX
