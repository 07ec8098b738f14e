"""Whatever changes is booked with everyone whom it concerns; `check` says so after every step of a trial."""

from tests.builders import apps, asks, nodes, released
from tests.trial import Trial


def trial(queues: str = "root.p.a") -> Trial:
    one = Trial(queues).does(nodes("n1 memory=10"), apps("app-1 root.p.a user=bob"))
    one.told()
    return one


def figures(one: Trial) -> tuple[dict[str, int], dict[str, int], dict[str, int], dict[str, int]]:
    """What the root, the application, the node and the user say is allocated."""
    level = one.partition.usage.users.levels("bob").get("root")
    return (
        one.queue("root").allocated,
        one.app("app-1").allocated,
        one.node("n1").allocated,
        level.used if level else {},
    )


def test_an_ask_is_pending_everywhere_and_allocated_nowhere() -> None:
    one = trial().takes(asks("app-1 a1 memory=4"))
    assert [one.queue(path).pending for path in ("root", "root.p", "root.p.a")] == [{"memory": 4}] * 3
    assert figures(one) == ({}, {}, {}, {})
    assert one.partition.running_allocations == 0


def test_a_decision_moves_an_ask_from_pending_to_allocated() -> None:
    one = trial().does(asks("app-1 a1 memory=4"))
    assert one.queue("root").pending == {}
    assert figures(one) == ({"memory": 4},) * 4
    assert one.node("n1").available == {"memory": 6}
    assert one.partition.running_allocations == 1


def test_a_release_takes_everything_back() -> None:
    one = trial().does(asks("app-1 a1 memory=4"), released("app-1 a1"))
    assert figures(one)[:3] == ({},) * 3
    assert one.partition.usage.users.by_name == {}
    assert (one.partition.running_allocations, one.partition.allocations) == (0, {})


def test_resizing_what_runs_is_booked_everywhere() -> None:
    one = trial().does(asks("app-1 a1 memory=4"), asks("app-1 a1 memory=6"))
    assert figures(one) == ({"memory": 6},) * 4
    one.does(asks("app-1 a1 memory=1 gpu=1"))
    assert figures(one) == ({"memory": 1, "gpu": 1},) * 4
    assert one.app("app-1").max_allocated == {"memory": 6, "gpu": 1}


def test_resizing_what_waits_changes_what_is_pending_only() -> None:
    one = trial().does(asks("app-1 a1 memory=40"), asks("app-1 a1 memory=30"))
    assert one.queue("root").pending == {"memory": 30}
    assert figures(one) == ({}, {}, {}, {})


def test_an_ask_that_becomes_smaller_is_tried_again() -> None:
    one = trial().does(asks("app-1 a1 memory=40"), asks("app-1 a1 memory=10"))
    assert one.placed() == ["a1 on n1"]


def test_a_resized_ask_keeps_its_place_among_its_equals() -> None:
    """Spec 8.2.3: nothing else of an ask changes. Times are whole seconds, so equals are usual."""
    one = trial().takes(asks("app-1 first memory=4 created=5", "app-1 second memory=4 created=5"))
    one.takes(asks("app-1 first memory=5"))
    assert one.decides() == ["first on n1"]


def test_a_resized_ask_keeps_its_place_before_younger_ones() -> None:
    one = trial().takes(asks("app-1 first memory=4", "app-1 second memory=4"), asks("app-1 first memory=5"))
    assert one.decides() == ["first on n1"]


def test_the_time_of_binding_is_the_time_of_the_decision() -> None:
    one = trial().takes(asks("app-1 a1 memory=4 created=5"))
    one.waits(100)
    (allocation,) = one.app("app-1").allocations.values()
    assert allocation.bound_ns >= int(one.now * 1e9)
    assert allocation.created_ns == 5 * 10**9
