"""Which ask gets which node next."""

import pytest

from tests.builders import apps, asks, foreign, nodes, released
from tests.trial import Trial
from yunishard.common.messages.rm_messages import NODE_CREATE_DRAIN
from yunishard.partition_worker.engine import queue_traversal
from yunishard.partition_worker.engine.state import Allocate


def trial(queues: str = "root.a") -> Trial:
    one = Trial(queues).takes(nodes("n1 memory=10"), apps("app-1 root.a", "app-2 root.a"))
    one.told()
    return one


def test_without_nodes_nothing_is_decided() -> None:
    one = Trial().takes(apps("app-1 root.a"), asks("app-1 a1 memory=1"))
    assert one.decides() == []
    assert one.partition.idle


def test_a_decision_alone_changes_nothing() -> None:
    one = trial().takes(asks("app-1 a1 memory=1"))
    decision = queue_traversal.decide(one.partition)
    assert decision is not None
    assert (decision.application.application_id, decision.ask.key, decision.node.node_id) == ("app-1", "a1", "n1")
    assert one.app("app-1").allocations == {}
    again = queue_traversal.decide(one.partition)
    assert isinstance(again, Allocate)
    assert (again.application, again.ask, again.node) == (decision.application, decision.ask, decision.node)


def test_no_more_decisions_are_made_than_the_budget_allows() -> None:
    one = trial().takes(asks(*(f"app-1 a{number} memory=1" for number in range(5))))
    assert one.partition.step(one.now, 0) == []
    effects = one.partition.step(one.now, 3)
    assert len(effects) == 4  # with the state that the application entered
    assert not one.partition.idle
    one.partition.step(one.now, 3)
    assert one.partition.idle


def test_the_first_ask_that_fits_is_taken_whatever_comes_before_it() -> None:
    one = trial().takes(asks("app-1 big memory=11 priority=5", "app-1 small memory=2"))
    assert one.decides() == ["small on n1"]


def test_the_next_application_gets_its_turn_when_the_first_cannot_be_helped() -> None:
    one = trial().takes(asks("app-1 big memory=11"), asks("app-2 small memory=2"))
    assert one.decides() == ["small on n1"]


def test_each_decision_sees_the_one_before() -> None:
    one = trial().takes(asks("app-1 a1 memory=6", "app-1 a2 memory=6", "app-1 a3 memory=4"))
    one.settles()
    assert one.placed() == ["a1 on n1", "a3 on n1"]


def test_an_application_that_may_not_start_is_passed_over_and_tried_when_it_may() -> None:
    one = trial("root.a maxapps=1").does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1 priority=9"))
    assert one.placed() == ["a1 on n1"]
    assert one.does(released("app-1 a1")).placed() == ["b1 on n1"]


def test_the_limit_of_applications_counts_on_every_level() -> None:
    one = Trial("root.p maxapps=1; root.p.a; root.p.b; root.x").takes(nodes("n1 memory=10"))
    one.takes(apps("app-1 root.p.a", "app-2 root.p.b", "app-3 root.x"))
    one.does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1"), asks("app-3 c1 memory=1"))
    assert one.placed() == ["a1 on n1", "c1 on n1"]


# Required nodes (spec 4.7) --------------------------------------------------------------------------------------------


def test_a_required_node_may_be_draining_but_must_have_room() -> None:
    one = trial().takes(nodes("n2 memory=10", action=NODE_CREATE_DRAIN), foreign("f1 n2 memory=9"))
    one.does(asks("app-1 a1 memory=4 required=n2"))
    assert one.placed() == []
    assert one.does(released("- f1")).placed() == ["a1 on n2"]


def test_an_unknown_required_node_is_waited_for() -> None:
    one = trial().does(asks("app-1 a1 memory=4 required=n2"), asks("app-1 a2 memory=4"))
    assert one.placed() == ["a2 on n1"]
    assert one.does(nodes("n2 memory=4")).placed() == ["a1 on n2"]


def test_asks_for_different_nodes_do_not_stand_in_each_others_way() -> None:
    one = trial().does(asks("app-1 a1 memory=40 required=n1", "app-1 a2 memory=4 required=n1", "app-1 a3 memory=4"))
    assert one.placed() == ["a2 on n1", "a3 on n1"]


@pytest.mark.parametrize("required", ["", " required=n1"])
def test_a_required_node_does_not_lift_the_limits_of_queues(required: str) -> None:
    one = trial("root.a max=memory:3").does(asks(f"app-1 a1 memory=4{required}"))
    assert one.placed() == []
