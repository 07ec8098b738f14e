"""The highest priority travels up, as far as it changes anything."""

from partition_worker.engine.queues.queue import NOTHING_PENDING, Policies, priority_settings_changed
from tests.builders import apps, asks, gone, nodes, released
from tests.trial import Trial


def shown(trial: Trial) -> list[int]:
    return [trial.queue(path).priority for path in ("root.p.a", "root.p", "root")]


def test_the_highest_below_is_shown_above() -> None:
    trial = Trial("root.p.a; root.p.b").does(apps("app-1 root.p.a", "app-2 root.p.b"))
    trial.does(asks("app-1 a1 memory=1 priority=3", "app-2 b1 memory=1 priority=5"))
    assert shown(trial) == [3, 5, 5]
    trial.does(released("app-2 b1"))
    assert shown(trial) == [3, 3, 3]


def test_each_level_adds_its_offset() -> None:
    trial = Trial("root.p priority.offset=10; root.p.a priority.offset=-2").does(apps("app-1 root.p.a"))
    trial.does(asks("app-1 a1 memory=1 priority=3"))
    assert shown(trial) == [1, 11, 11]


def test_a_fence_hides_what_is_asked_for_below_it() -> None:
    trial = Trial("root.p priority.policy=fence priority.offset=4; root.p.a").does(apps("app-1 root.p.a"))
    trial.does(asks("app-1 a1 memory=1 priority=3"))
    assert shown(trial) == [3, 4, 4]
    trial.does(asks("app-1 a2 memory=1 priority=900"))
    assert shown(trial) == [900, 4, 4]


def test_nothing_is_left_when_the_last_ask_goes() -> None:
    trial = Trial("root.p.a").does(apps("app-1 root.p.a"), asks("app-1 a1 memory=1 priority=3"))
    trial.does(gone("app-1"))
    assert shown(trial) == [NOTHING_PENDING] * 3


def test_an_ask_of_the_lowest_priority_is_legal() -> None:
    """Nothing pending is shown by the same number (spec 0); the state must still be consistent."""
    Trial("root.a").does(apps("app-1 root.a"), asks(f"app-1 a1 memory=1 priority={NOTHING_PENDING}"))


def test_an_offset_may_take_a_priority_to_the_lowest_number() -> None:
    trial = Trial(f"root.a priority.offset={NOTHING_PENDING}")
    trial.does(apps("app-1 root.a"), asks("app-1 a1 memory=1 priority=-5"))
    assert trial.queue("root.a").priority == NOTHING_PENDING


def test_what_a_queue_shows_may_change_with_its_policies() -> None:
    one = Trial("root.p.a").takes(apps("app-1 root.p.a"), asks("app-1 a1 memory=1 priority=3"))
    leaf = one.queue("root.p.a")
    before, leaf.policies = leaf.priority, Policies(priority_offset=4)
    priority_settings_changed(leaf, before)
    assert (one.queue("root.p").priority, one.queue("root").priority) == (7, 7)


def test_a_queue_that_waits_for_nothing_shows_nothing_before_and_after() -> None:
    leaf = Trial("root.p.a").queue("root.p.a")
    before, leaf.policies = leaf.priority, Policies(priority_offset=4)
    priority_settings_changed(leaf, before)
    assert leaf.parent is not None
    assert leaf.parent.child_priorities.highest is None


def test_a_parent_shows_what_is_in_its_children_not_what_it_has_from_when_it_was_a_leaf() -> None:
    one = Trial("root.a; root.b")
    one.does(
        apps("app-1 root.a", "app-3 root.b"), asks("app-1 a1 memory=10 priority=100", "app-3 b1 memory=10 priority=5")
    )
    assert one.queue("root.a").priority == 100
    one.reconfigures("root.a.x; root.b").does(apps("app-2 root.a.x"), asks("app-2 x1 memory=10 priority=1"))
    assert one.queue("root.a").priority == 1
    one.does(nodes("n1 memory=10"))
    assert one.running == ["b1 on n1"]
    one.reconfigures("root.a; root.b")
    assert one.queue("root.a").priority == 100
