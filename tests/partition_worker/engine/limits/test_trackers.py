"""Trees of the queues in which a user or group has or is allowed something."""

from partition_worker.engine.limits.limit import Allowance
from partition_worker.engine.limits.trackers import Level, Trackers
from partition_worker.engine.needs import shape_of
from partition_worker.engine.order import Ranks

FIVE = Allowance({"memory": 5}, 0)
TWO = Allowance({}, 2)


def users() -> Trackers:
    return Trackers(Ranks(), each=True)


def names(trackers: Trackers) -> list[str]:
    return [tracker.name for tracker in trackers]


def test_a_level_exists_with_those_above_it_once_it_is_reached() -> None:
    trackers = users()
    leaf = trackers.reach("bob", "root.p.a")
    assert list(trackers.levels("bob")) == ["root", "root.p", "root.p.a"]
    assert [level.path for level in leaf.upward()] == ["root.p.a", "root.p", "root"]
    assert trackers.reach("bob", "root.p.a") is leaf
    assert trackers.levels("eve") == {}


def test_what_is_charged_counts_there_and_above() -> None:
    trackers = users()
    a, b = trackers.reach("bob", "root.a"), trackers.reach("bob", "root.b")
    a.charge({"memory": 3})
    b.charge({"memory": 4})
    b.count("app-1")
    a.refund({"memory": 1})
    root = trackers.levels("bob")["root"]
    assert (a.used, b.used, root.used) == ({"memory": 2}, {"memory": 4}, {"memory": 6})
    assert (list(a.applications), list(root.applications)) == ([], ["app-1"])
    b.discount("app-1")
    assert not root.applications


def test_each_user_is_tracked_who_is_named_and_a_star_holds_for_each_who_is_not() -> None:
    trackers = users()
    trackers.allow({"root": {"bob": FIVE, "*": TWO}, "root.a": {"eve": FIVE}})
    assert names(trackers) == ["bob", "eve"]
    assert [level.allowance for level in trackers.levels("bob").values()] == [FIVE]
    assert [level.allowance for level in trackers.levels("eve").values()] == [TWO, FIVE]
    assert trackers.reach("joe", "root").allowance == TWO


def test_who_is_named_is_tracked_also_where_a_star_holds_for_them() -> None:
    trackers = users()
    trackers.allow({"root.a": {"dave": FIVE}, "root.b": {"*": TWO}, "root.c": {"dave": FIVE, "*": TWO}})
    allowed = {path: level.allowance for path, level in trackers.levels("dave").items()}
    assert allowed == {"root": None, "root.a": FIVE, "root.b": TWO, "root.c": FIVE}
    trackers.allow({"root.a": {"dave": FIVE}})
    assert list(trackers.levels("dave")) == ["root", "root.a"]


def test_the_star_among_groups_is_one_of_them() -> None:
    groups = Trackers(Ranks(), each=False)
    groups.allow({"root": {"dev": FIVE, "*": TWO}, "root.a": {"*": FIVE}})
    assert names(groups) == ["dev", "*"]
    assert [level.allowance for level in groups.levels("*").values()] == [TWO, FIVE]
    assert groups.reach("dev", "root.a").allowance is None


def test_what_is_no_longer_allowed_goes_unless_something_is_used_there() -> None:
    trackers = users()
    trackers.allow({"root.p.a": {"bob": FIVE, "eve": FIVE}, "root.b": {"bob": FIVE}})
    trackers.reach("bob", "root.b").charge({"memory": 9})
    trackers.allow({"root": {"bob": TWO}})
    assert names(trackers) == ["bob"]
    assert {path: level.allowance for path, level in trackers.levels("bob").items()} == {"root": TWO, "root.b": None}
    assert trackers.levels("bob")["root"].used == {"memory": 9}


def test_a_user_who_loses_a_limit_falls_under_the_star_and_the_other_way() -> None:
    trackers = users()
    trackers.allow({"root": {"bob": FIVE, "*": TWO}})
    trackers.reach("joe", "root").charge({"memory": 1})
    trackers.reach("bob", "root").charge({"memory": 1})
    trackers.allow({"root": {"joe": FIVE, "*": TWO}})
    assert trackers.reach("bob", "root").allowance == TWO
    assert trackers.reach("joe", "root").allowance == FIVE
    trackers.allow({"root": {"joe": FIVE}})
    assert trackers.reach("bob", "root").allowance is None


# Room -----------------------------------------------------------------------------------------------------------------


def has_room(allowance: Allowance | None, used: dict[str, int], wanted: dict[str, int]) -> bool:
    return Level("root", 1, None, allowance, used).has_room(shape_of(wanted))


def test_up_to_the_limit_there_is_room() -> None:
    assert has_room(FIVE, {"memory": 2}, {"memory": 3})
    assert not has_room(FIVE, {"memory": 2}, {"memory": 4})


def test_a_type_that_the_limit_does_not_name_is_unlimited_and_one_that_is_zero_cannot_be_had() -> None:
    assert has_room(FIVE, {}, {"memory": 5, "gpu": 99})
    assert not has_room(Allowance({"memory": 5, "gpu": 0}, 0), {}, {"memory": 1, "gpu": 1})
    assert has_room(Allowance({"memory": 5, "gpu": 0}, 0), {}, {"memory": 1, "gpu": 0})


def test_where_too_much_is_used_nothing_more_of_that_type_fits() -> None:
    """Spec 5.3: headroom below zero is none."""
    assert not has_room(FIVE, {"memory": 9}, {"memory": 1})
    assert has_room(FIVE, {"memory": 9}, {"memory": 0, "gpu": 1})


def test_no_limit_is_no_bound() -> None:
    assert has_room(None, {"memory": 9}, {"memory": 10**18})
    level = Level("root", 1, None)
    assert level.may_start()
    assert level.bounds == ()


def test_as_many_applications_may_start_as_the_limit_says() -> None:
    level = Level("root", 1, None, TWO)
    level.count("app-1")
    assert level.may_start()
    level.count("app-2")
    assert not level.may_start()
    level.allowance = FIVE
    assert level.may_start()
