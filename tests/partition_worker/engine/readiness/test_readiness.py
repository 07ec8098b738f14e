"""What is set aside when it cannot be placed, and what brings it back."""

import pytest

from partition_worker.engine.cycle.descent import Attempt
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
