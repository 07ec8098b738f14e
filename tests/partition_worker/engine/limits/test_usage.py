"""What each user has, at every queue of the paths they use."""

from partition_worker.engine.limits.usage import UserUsage
from tests.builders import apps, asks, gone, nodes, released
from tests.trial import Trial

QUEUES = Trial("root.p.a; root.p.b")
A, B = QUEUES.queue("root.p.a"), QUEUES.queue("root.p.b")


def test_use_counts_at_the_leaf_and_above() -> None:
    usage = UserUsage()
    usage.increase("bob", A, "app-1", {"memory": 3})
    usage.increase("bob", B, "app-2", {"memory": 4})
    levels = usage.levels("bob")
    assert {path: level.used for path, level in levels.items()} == {
        "root": {"memory": 7},
        "root.p": {"memory": 7},
        "root.p.a": {"memory": 3},
        "root.p.b": {"memory": 4},
    }
    assert list(levels["root"].applications) == ["app-1", "app-2"]
    assert list(levels["root.p.b"].applications) == ["app-2"]


def test_users_are_kept_apart() -> None:
    usage = UserUsage()
    usage.increase("bob", A, "app-1", {"memory": 3})
    usage.increase("eve", A, "app-2", {"memory": 4})
    assert list(usage) == ["bob", "eve"]
    assert usage.levels("eve")["root"].used == {"memory": 4}
    assert usage.levels("mallory") == {}


def test_growing_and_shrinking_in_place_change_the_use() -> None:
    usage = UserUsage()
    usage.increase("bob", A, "app-1", {"memory": 3})
    usage.increase("bob", A, "app-1", {"memory": -1})
    assert usage.levels("bob")["root"].used == {"memory": 2}


def test_an_application_counts_as_running_until_it_is_forgotten() -> None:
    usage = UserUsage()
    usage.increase("bob", A, "app-1", {"memory": 3})
    usage.decrease("bob", A, "app-1", {"memory": 3}, forget=False)
    assert list(usage.levels("bob")["root.p"].applications) == ["app-1"]
    usage.increase("bob", A, "app-1", {"memory": 3})
    usage.decrease("bob", A, "app-1", {"memory": 3}, forget=True)
    assert list(usage) == []


def test_levels_without_use_and_applications_are_not_kept() -> None:
    usage = UserUsage()
    usage.increase("bob", A, "app-1", {"memory": 3})
    usage.increase("bob", B, "app-2", {"memory": 4})
    usage.decrease("bob", A, "app-1", {"memory": 3}, forget=True)
    assert list(usage.levels("bob")) == ["root", "root.p", "root.p.b"]


def test_taking_back_from_a_user_who_has_nothing_changes_nothing() -> None:
    usage = UserUsage()
    usage.decrease("bob", A, "app-1", {"memory": 3}, forget=True)
    assert list(usage) == []


# In a partition -------------------------------------------------------------------------------------------------------


def trial() -> Trial:
    """An application that has had something and waits for more than there is."""
    one = Trial().does(nodes("n1 memory=10"), apps("app-1 root.a user=bob"), asks("app-1 a1 memory=4"))
    return one.does(asks("app-1 a2 memory=20"), released("app-1 a1"))


def test_an_application_that_still_waits_keeps_counting_for_its_user() -> None:
    assert list(trial().partition.usage.levels("bob")["root.a"].applications) == ["app-1"]


def test_an_application_that_completes_without_having_run_again_is_forgotten() -> None:
    """Spec 2: on the terminated move the tracked usage is dropped."""
    one = trial().does(released("app-1 a2")).waits(31)
    assert "app-1 Completed" in one.told()
    assert list(one.partition.usage) == []


def test_an_application_that_is_removed_is_forgotten() -> None:
    """Spec 8.6: the user's tracker forgets the application."""
    assert list(trial().does(gone("app-1")).partition.usage) == []
