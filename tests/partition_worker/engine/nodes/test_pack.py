"""Applications that want to stay together: nodes on which they run come first."""

from common.rm_messages import NODE_DECOMMISSION, NODE_DRAIN, NODE_DRAIN_TO_SCHEDULABLE
from tests.builders import apps, asks, foreign, gone, nodes, released
from tests.trial import Trial


def trial() -> Trial:
    """Three nodes of which others use different amounts; the order is fair: n3, n2, n1."""
    one = Trial("root.a").does(nodes("n1 memory=10", "n2 memory=10", "n3 memory=10"))
    one.does(apps("app-1 root.a tag.node.sort.policy=pack", "other root.a"))
    one.does(asks("other o1 memory=5 on=n1", "other o2 memory=3 on=n2"))
    one.told()
    return one


def goes(one: Trial, key: str, memory: int = 1) -> str:
    """Where the next ask goes."""
    one.told()
    (placed,) = one.does(asks(f"app-1 {key} memory={memory}")).placed()
    return placed.removeprefix(f"{key} on ")


def test_nodes_on_which_the_application_runs_come_first_then_the_order_of_the_partition() -> None:
    one = trial()
    assert goes(one, "a1", memory=6) == "n3"
    assert goes(one, "a2", memory=3) == "n3"  # n2 is less used by now
    assert goes(one, "a3", memory=3) == "n2"  # n3 is full


def test_among_its_own_nodes_the_order_is_that_of_the_partition() -> None:
    one = trial().does(asks("app-1 a1 memory=1 on=n1", "app-1 a2 memory=1 on=n2"))
    assert goes(one, "a3") == "n2"
    one.does(released("other o1"))
    assert goes(one, "a4") == "n1"


def test_what_ran_before_anybody_asked_for_a_node_counts() -> None:
    one = trial().does(asks("app-1 a1 memory=1 on=n1"))
    assert goes(one, "a2") == "n1"


def test_a_node_is_its_own_as_long_as_something_of_it_runs_there() -> None:
    one = trial().does(asks("app-1 a1 memory=1 on=n1", "app-1 a2 memory=1 on=n1"))
    assert goes(one, "a3") == "n1"
    one.does(released("app-1 a1"), released("app-1 a3"))
    assert goes(one, "a4") == "n1"
    one.does(released("app-1 a2"), released("app-1 a4"))
    assert goes(one, "a5") == "n3"
    assert list(one.node("n1").packs) == []


def test_what_others_run_does_not_make_a_node_its_own() -> None:
    one = trial()
    one.does(apps("app-2 root.a tag.node.sort.policy=pack"), asks("app-2 b1 memory=1 on=n1"))
    assert goes(one, "a1") == "n3"
    one.told()
    assert one.does(asks("app-2 b2 memory=1")).placed() == ["b2 on n1"]


def test_a_draining_node_of_its_own_is_passed_over_until_it_is_open_again() -> None:
    one = trial().does(asks("app-1 a1 memory=1 on=n1"))
    assert goes(one, "a2") == "n1"
    one.does(nodes("n1", action=NODE_DRAIN))
    assert goes(one, "a3") == "n3"
    one.does(released("app-1 a3"), nodes("n1", action=NODE_DRAIN_TO_SCHEDULABLE))
    assert goes(one, "a4") == "n1"


def test_a_node_of_its_own_that_left_is_forgotten() -> None:
    one = trial().does(asks("app-1 a1 memory=1 on=n1"))
    assert goes(one, "a2") == "n1"
    one.does(nodes("n1", action=NODE_DECOMMISSION))
    assert goes(one, "a3") == "n3"
    pack = one.app("app-1").pack
    assert pack is not None
    assert len(pack.lineup) == 1


def test_a_node_of_its_own_that_something_foreign_left_is_found_again() -> None:
    one = trial().does(asks("app-1 a1 memory=1 on=n1"))
    assert goes(one, "a2") == "n1"
    one.does(foreign("f1 n1 memory=3"))
    assert goes(one, "a3") == "n3"
    one.does(asks("other o3 memory=9 on=n3"), released("- f1"))
    assert goes(one, "a4") == "n1"


def test_of_an_application_that_left_nothing_stays_at_the_nodes() -> None:
    one = trial()
    goes(one, "a1")
    one.does(gone("app-1"))
    assert [list(node.packs) for node in one.partition.fleet] == [[], [], []]


def test_another_order_of_the_partition_is_that_of_its_own_nodes_too() -> None:
    one = trial().does(asks("app-1 a1 memory=1 on=n1", "app-1 a2 memory=1 on=n2"))
    assert goes(one, "a3") == "n2"
    one.partition.fleet.reorder("binpacking", one.partition.fleet.weights)
    assert goes(one, "a4") == "n1"
