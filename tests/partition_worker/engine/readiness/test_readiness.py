"""What is set aside when it cannot be placed, and what brings it back."""

import pytest

from common.rm_messages import NODE_CREATE_DRAIN, NODE_DRAIN_TO_SCHEDULABLE
from partition_worker.engine.applications.application import Application
from partition_worker.engine.cycle.descent import Attempt
from partition_worker.engine.needs import Need, Shape
from partition_worker.engine.nodes.fleet import Fleet
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.readiness.aside import Wait
from tests.builders import apps, asks, nodes, released
from tests.trial import Trial


def full(queues: str = "root.a", *, applications: int = 3) -> Trial:
    """A node of 2, taken by app-0, and applications that wait for 2 each."""
    one = Trial(queues).does(nodes("n1 memory=2"), apps("app-0 root.a"), asks("app-0 first memory=2"))
    for number in range(1, applications + 1):
        one.does(apps(f"app-{number} root.a"), asks(f"app-{number} a{number} memory=2"))
    one.told()
    return one


def tried(one: Trial, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the applications that are tried from now on."""
    seen: list[str] = []
    decide = Attempt.decide

    def noted(attempt: Attempt) -> object:
        seen.append(attempt.application.application_id)
        return decide(attempt)

    monkeypatch.setattr(Attempt, "decide", noted)
    return seen


def test_of_those_that_wait_for_the_same_only_the_first_is_tried_when_something_is_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = full(applications=60)
    seen = tried(one, monkeypatch)
    one.does(released("app-0 first"))
    assert one.placed() == ["a1 on n1"]
    assert len(seen) <= 2


def test_the_next_one_comes_back_when_the_first_got_something() -> None:
    one = full(applications=3).does(nodes("n2 memory=4"))
    assert one.placed() == ["a1 on n2", "a2 on n2"]


def test_nothing_is_tried_when_what_was_freed_helps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    one = full()
    seen = tried(one, monkeypatch)
    one.does(nodes("n2 memory=1"))
    assert (one.placed(), seen) == ([], [])


def test_a_new_ask_is_tried_beside_those_that_wait() -> None:
    one = full().does(nodes("n2 memory=1"), asks("app-3 small memory=1"))
    assert one.placed() == ["small on n2"]


def test_an_application_is_found_under_each_of_its_needs() -> None:
    one = full().does(asks("app-1 big memory=9"))
    assert one.placed() == []
    one.does(nodes("n2 memory=9"))
    assert one.placed() == ["a1 on n2", "a2 on n2", "a3 on n2"]
    one.does(released("app-1 a1"), released("app-2 a2"), released("app-3 a3"))
    assert one.placed() == ["big on n2"]


def test_room_in_the_queue_brings_back_what_waited_for_it() -> None:
    one = Trial("root.a max=memory:2; root.b").does(nodes("n1 memory=9"), apps("app-1 root.a", "app-2 root.a"))
    one.does(asks("app-1 a1 memory=2"), asks("app-2 b1 memory=2"))
    assert one.placed() == ["a1 on n1"]
    one.does(released("app-1 a1"))
    assert one.placed() == ["b1 on n1"]


def test_those_held_by_the_number_of_applications_start_one_by_one_in_order() -> None:
    one = Trial("root.a maxapps=1").does(nodes("n1 memory=9"), apps("app-1 root.a", "app-2 root.a", "app-3 root.a"))
    one.does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1"), asks("app-3 c1 memory=1 priority=5"))
    assert one.placed() == ["a1 on n1"]
    one.does(released("app-1 a1"))
    assert one.placed() == ["c1 on n1"]
    one.does(released("app-3 c1"))
    assert one.placed() == ["b1 on n1"]


def test_what_is_held_does_not_stand_in_the_way_of_what_runs_already() -> None:
    one = Trial("root.a maxapps=1").does(nodes("n1 memory=9"), apps("app-1 root.a", "app-2 root.a"))
    one.does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1 priority=9"), asks("app-1 a2 memory=1"))
    assert one.placed() == ["a1 on n1", "a2 on n1"]


def test_whoever_was_brought_back_and_is_set_aside_again_waits_for_the_next_relief() -> None:
    """Whatever an attempt and the readiness should ever disagree about, the cycle comes to an end."""
    one = full(applications=2).takes(released("app-0 first"))
    readiness, leaf = one.partition.readiness, one.queue("root.a")
    readiness.refresh()
    application = readiness.next_application(leaf)
    assert application is one.app("app-1")
    account, need = one.partition.usage.account(application), application.requests["a1"].need
    readiness.park_application(application, account, [Wait(need)])
    assert readiness.next_application(leaf) is None
    readiness.relieve()
    assert readiness.next_application(leaf) is application


def test_a_need_that_nothing_has_room_for_costs_one_look_after_a_release_however_much_is_placed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Trial().does(nodes("n1 memory=20", "n2 memory=10", "n3 memory=100", action=NODE_CREATE_DRAIN))
    one.does(nodes("n1", "n2", action=NODE_DRAIN_TO_SCHEDULABLE))
    one.does(apps("app-0 root.a"), asks("app-0 first memory=19 on=n1", "app-0 second memory=9 on=n2"))
    for number in range(40):
        one.does(apps(f"app-{number + 1} root.a"), asks(f"app-{number + 1} large{number} memory={30 + number}"))
    for number in range(15):
        one.does(apps(f"small-{number} root.a"), asks(f"small-{number} s{number} memory={2 + number % 2}"))
    looks: list[Shape] = []
    node_for = Fleet.node_for

    def noted(fleet: Fleet, need: Need, application: Application | None = None) -> Node | None:
        looks.append(need.shape)
        return node_for(fleet, need, application)

    monkeypatch.setattr(Fleet, "node_for", noted)
    one.takes(released("app-0 first"))
    while not one.partition.idle:
        one.partition.schedule(one.now, 100)
    assert sum(key.startswith("s") and " on n1" in key for key in one.running) >= 6
    large = [shape for shape in looks if dict(shape)["memory"] >= 30]
    assert len(large) <= 2 * 40
