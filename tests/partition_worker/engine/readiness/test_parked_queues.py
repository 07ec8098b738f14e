"""Queues below which nothing can be placed, and what brings them back."""

import pytest

from partition_worker.engine.application import Application
from partition_worker.engine.ask_shapes import AskShape
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.nodes.nodes import Nodes
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.readiness import Readiness
from partition_worker.engine.unschedulable_asks import ParkedQueues
from tests.builders import apps, asks, gone, nodes, released
from tests.trial import Trial

LEAVES = 40


def crowd(settings: str = "", *, memory: int = 2) -> Trial:
    """An application in each of many leaves, which asks for twice 2 on a node of this size."""
    one = Trial("root.p; " + "; ".join(f"root.p.q{number} {settings}" for number in range(LEAVES)))
    one.does(nodes(f"n1 memory={memory}"))
    for number in range(LEAVES):
        one.does(
            apps(f"app-{number} root.p.q{number}"),
            asks(f"app-{number} a{number} memory=2", f"app-{number} b{number} memory=2"),
        )
    one.told()
    return one


def looks_at_nodes(monkeypatch: pytest.MonkeyPatch) -> list[AskShape]:
    """The needs for which a node is sought from now on."""
    seen: list[AskShape] = []
    node_for = Nodes.node_for

    def noted(fleet: Nodes, need: AskShape, application: Application | None = None) -> Node | None:
        seen.append(need)
        return node_for(fleet, need, application)

    monkeypatch.setattr(Nodes, "node_for", noted)
    return seen


def looks_at_queues(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queues that are looked at from now on because something was freed."""
    seen: list[str] = []
    worth_a_look = Readiness._may_place_below

    def noted(readiness: Readiness, queue: Queue) -> bool:
        seen.append(queue.path)
        return worth_a_look(readiness, queue)

    monkeypatch.setattr(Readiness, "_may_place_below", noted)
    return seen


def test_a_release_in_a_full_cluster_costs_no_look_at_each_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    one = crowd()
    nodes_sought, queues = looks_at_nodes(monkeypatch), looks_at_queues(monkeypatch)
    one.does(released("app-0 a0"))
    assert one.placed() == ["a1 on n1"]
    assert len(nodes_sought) < 12
    assert len(queues) < 12


def test_the_most_deserving_queue_comes_back_and_then_the_next() -> None:
    one = crowd(memory=6)
    assert one.running == ["a0 on n1", "a1 on n1", "b0 on n1"]
    one.does(released("app-1 a1"), released("app-0 a0"))
    assert one.placed() == ["a2 on n1", "a3 on n1"], "of those that have nothing these wait for more than root.p.q1"


def test_what_is_freed_goes_to_the_most_deserving_of_those_that_rest_and_those_that_are_ready() -> None:
    one = crowd()
    late = f"root.p.q{LEAVES - 1}"
    one.does(asks(f"app-{LEAVES - 1} small memory=1 priority=3"), released("app-0 a0"))
    assert one.placed() == ["small on n1"]
    one.does(released(f"app-{LEAVES - 1} small"))
    assert one.placed() == ["a1 on n1"]
    assert one.queue(late).allocated == {"memory": 0}


def test_a_queue_at_its_maximum_is_not_looked_at_when_others_free_something(monkeypatch: pytest.MonkeyPatch) -> None:
    one = crowd("max=memory:2", memory=1000)
    assert len(one.running) == LEAVES
    seen = looks_at_queues(monkeypatch)
    one.does(released("app-7 a7"))
    assert one.placed() == ["b7 on n1"]
    assert len(seen) < 6


def test_a_queue_above_at_its_maximum_lets_one_in_when_something_below_it_is_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Trial("root.p max=memory:2; " + "; ".join(f"root.p.q{number}" for number in range(LEAVES)))
    one.does(nodes("n1 memory=1000"))
    for number in range(LEAVES):
        one.does(apps(f"app-{number} root.p.q{number}"), asks(f"app-{number} a{number} memory=2"))
    one.told()
    seen = looks_at_queues(monkeypatch)
    for number in range(3):
        one.does(released(f"app-{number} a{number}"))
        assert one.placed() == [f"a{number + 1} on n1"]
    assert len(seen) < 30


def test_a_higher_maximum_brings_back_what_waited_for_it() -> None:
    one = Trial("root.a max=memory:2").does(
        nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=2", "app-1 a2 memory=2")
    )
    one.told()
    one.reconfigures("root.a max=memory:4")
    assert one.placed() == ["a2 on n1"]


def test_nothing_rests_once_everything_is_gone() -> None:
    one = crowd()
    parked_queues = one.partition.readiness.parked_queues
    assert parked_queues.children
    for number in range(LEAVES):
        one.does(gone(f"app-{number}"))
    assert not parked_queues.children
    assert not parked_queues.waits


def test_a_queue_where_nothing_waits_does_not_rest() -> None:
    one = crowd()
    parked_queues, leaf = ParkedQueues(), one.queue("root.p.q0")
    parent = one.queue("root.p")
    parent.ready_children.put(leaf, (0,))
    parked_queues.park(leaf, 0)
    assert not parked_queues.children
    assert leaf not in parent.ready_children
