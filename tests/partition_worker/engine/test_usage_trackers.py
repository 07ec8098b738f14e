"""Trees of the queues in which a user or group has or is allowed something."""

import pytest

from common.config.validation import load
from partition_worker.engine.ask_shapes import amounts_of
from partition_worker.engine.order import Ranks
from partition_worker.engine.user_limits import Allowance, QueueUsage, Trackers, UsageAccount, group_of, limits_of
from tests.builders import apps, asks, config, nodes
from tests.trial import Trial

FIVE = Allowance({"memory": 5}, 0)
TWO = Allowance({}, 2)


def users() -> Trackers:
    return Trackers(Ranks(), each=True)


def names(trackers: Trackers) -> list[str]:
    return [tracker.name for tracker in trackers]


def test_a_level_exists_with_those_above_it_once_it_is_reached() -> None:
    trackers = users()
    leaf = trackers.track("bob", "root.p.a")
    assert list(trackers.levels("bob")) == ["root", "root.p", "root.p.a"]
    assert [level.path for level in leaf.upward] == ["root.p.a", "root.p", "root"]
    assert trackers.track("bob", "root.p.a") is leaf
    assert trackers.levels("eve") == {}


def test_what_is_charged_counts_there_and_above() -> None:
    trackers = users()
    a, b = trackers.track("bob", "root.a"), trackers.track("bob", "root.b")
    a.charge({"memory": 3})
    b.charge({"memory": 4})
    b.count_running("app-1")
    a.refund({"memory": 1})
    root = trackers.levels("bob")["root"]
    assert (a.used, b.used, root.used) == ({"memory": 2}, {"memory": 4}, {"memory": 6})
    assert (list(a.applications), list(root.applications)) == ([], ["app-1"])
    b.discount_running("app-1")
    assert not root.applications


def test_each_user_is_tracked_who_is_named_and_a_star_holds_for_each_who_is_not() -> None:
    trackers = users()
    trackers.set_allowances({"root": {"bob": FIVE, "*": TWO}, "root.a": {"eve": FIVE}})
    assert names(trackers) == ["bob", "eve"]
    assert [level.allowance for level in trackers.levels("bob").values()] == [FIVE]
    assert [level.allowance for level in trackers.levels("eve").values()] == [TWO, FIVE]
    assert trackers.track("joe", "root").allowance == TWO


def test_who_is_named_is_tracked_also_where_a_star_holds_for_them() -> None:
    trackers = users()
    trackers.set_allowances({"root.a": {"dave": FIVE}, "root.b": {"*": TWO}, "root.c": {"dave": FIVE, "*": TWO}})
    allowed = {path: level.allowance for path, level in trackers.levels("dave").items()}
    assert allowed == {"root": None, "root.a": FIVE, "root.b": TWO, "root.c": FIVE}
    trackers.set_allowances({"root.a": {"dave": FIVE}})
    assert list(trackers.levels("dave")) == ["root", "root.a"]


def test_the_star_among_groups_is_one_of_them() -> None:
    groups = Trackers(Ranks(), each=False)
    groups.set_allowances({"root": {"dev": FIVE, "*": TWO}, "root.a": {"*": FIVE}})
    assert names(groups) == ["dev", "*"]
    assert [level.allowance for level in groups.levels("*").values()] == [TWO, FIVE]
    assert groups.track("dev", "root.a").allowance is None


def test_what_is_no_longer_allowed_goes_unless_something_is_used_there() -> None:
    trackers = users()
    trackers.set_allowances({"root.p.a": {"bob": FIVE, "eve": FIVE}, "root.b": {"bob": FIVE}})
    trackers.track("bob", "root.b").charge({"memory": 9})
    trackers.set_allowances({"root": {"bob": TWO}})
    assert names(trackers) == ["bob"]
    assert {path: level.allowance for path, level in trackers.levels("bob").items()} == {"root": TWO, "root.b": None}
    assert trackers.levels("bob")["root"].used == {"memory": 9}


def test_a_user_who_loses_a_limit_falls_under_the_star_and_the_other_way() -> None:
    trackers = users()
    trackers.set_allowances({"root": {"bob": FIVE, "*": TWO}})
    trackers.track("joe", "root").charge({"memory": 1})
    trackers.track("bob", "root").charge({"memory": 1})
    trackers.set_allowances({"root": {"joe": FIVE, "*": TWO}})
    assert trackers.track("bob", "root").allowance == TWO
    assert trackers.track("joe", "root").allowance == FIVE
    trackers.set_allowances({"root": {"joe": FIVE}})
    assert trackers.track("bob", "root").allowance is None


# Room -----------------------------------------------------------------------------------------------------------------


def has_room(allowance: Allowance | None, used: dict[str, int], wanted: dict[str, int]) -> bool:
    return QueueUsage("root", 1, None, allowance, used).has_room(amounts_of(wanted))


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
    level = QueueUsage("root", 1, None)
    assert level.may_start()
    assert level.limits == ()


def test_as_many_applications_may_start_as_the_limit_says() -> None:
    level = QueueUsage("root", 1, None, TWO)
    level.count_running("app-1")
    assert level.may_start()
    level.count_running("app-2")
    assert not level.may_start()
    level.allowance = FIVE
    assert level.may_start()


ACCOUNT_TREE = """root limit.user.bob=memory:50,gpu:3 limit.user.*=apps:1 limit.group.dev=memory:40,apps:2;
root.a limit.user.bob=memory:20 limit.group.*=memory:1; root.b"""


def account(who: str = "user=bob groups=dev", leaf: str = "root.b") -> UsageAccount:
    """Of an application beside another of bob in group dev that has 15 memory and 1 gpu in root.a."""
    one = Trial(ACCOUNT_TREE).does(nodes("n1 memory=100 gpu=9"), apps("app-1 root.a user=bob groups=qa"))
    one.does(asks("app-1 a1 memory=15 gpu=1 on=n1"), apps("app-2 root.b user=eve groups=dev"))
    one.does(asks("app-2 b1 memory=30 on=n1"), apps(f"app-3 {leaf} {who}"))
    return one.partition.usage.account(one.app("app-3"))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"memory": 10}, True),
        ({"memory": 11}, False),  # the group has 30 of 40
        ({"memory": 1, "gpu": 2}, True),
        ({"memory": 1, "gpu": 3}, False),  # the user has 1 of 3
        ({"memory": 1, "disk": 99}, True),
    ],
)
def test_user_and_group_must_both_have_room(wanted: dict[str, int], expected: bool) -> None:
    assert account().has_room(amounts_of(wanted)) is expected


def test_every_level_of_the_path_must_have_room() -> None:
    one = account("user=bob groups=none", "root.a")
    assert one.group_name == "*"
    assert not one.has_room(amounts_of({"memory": 2}))
    assert one.has_room(amounts_of({"gpu": 2}))


def test_a_limit_of_another_group_does_not_bind() -> None:
    """Spec 5.2: a `*` further up or down does not apply to an application of a named group."""
    one = account("user=joe groups=dev", "root.a")
    assert one.group_name == "*", "the closest queue decides"
    assert account("user=joe groups=dev").has_room(amounts_of({"memory": 10}))


def test_a_named_entry_further_down_does_not_replace_the_star_further_up() -> None:
    """Spec 5.1: levels are independent."""
    tree = "root limit.user.*=memory:5; root.a limit.user.bob=memory:9"
    one = Trial(tree).does(apps("app-1 root.a user=bob"))
    bob = one.partition.usage.account(one.app("app-1"))
    assert bob.has_room(amounts_of({"memory": 5}))
    assert not bob.has_room(amounts_of({"memory": 6}))


def test_entries_of_one_queue_do_not_add_up() -> None:
    tree = "root.a limit.user.bob=memory:9 limit.user.*=memory:5"
    one = Trial(tree).does(apps("app-1 root.a user=bob"))
    assert one.partition.usage.account(one.app("app-1")).has_room(amounts_of({"memory": 9}))


def test_user_and_group_must_both_let_it_start() -> None:
    assert account("user=bob groups=dev").may_start(), "the group runs 1 of 2"
    assert not account("user=eve groups=none").may_start(), "eve runs 1 of 1"
    assert account("user=joe groups=none").may_start()


def test_what_counts_already_may_start_again() -> None:
    one = Trial("root.a limit.user.bob=apps:1").does(nodes("n1 memory=9"), apps("app-1 root.a"))
    one.does(asks("app-1 a1 memory=1"))
    assert one.partition.usage.account(one.app("app-1")).may_start()


def test_only_queues_with_limits_have_any() -> None:
    limits = limits_of(config("root.p.a limit.user.bob=memory:5,apps:2; root.b"))
    assert list(limits) == ["root.p.a"]
    assert limits["root.p.a"].users == {"bob": Allowance({"memory": 5}, 2)}
    assert limits["root.p.a"].groups == {}


def test_queues_are_named_in_lower_case_however_they_are_written() -> None:
    """Spec 10.3: limits of queues that are written with capitals hold."""
    assert list(limits_of(config("root.Team.Alpha limit.user.bob=apps:1"))) == ["root.team.alpha"]


def test_amounts_are_in_base_units_and_a_missing_type_is_unlimited() -> None:
    limits = limits_of(config("root limit.user.bob=vcore:1500,memory:7 limit.group.dev=apps:3"))
    assert limits["root"].users["bob"] == Allowance({"vcore": 1500, "memory": 7}, 0)
    assert limits["root"].groups["dev"] == Allowance({}, 3)


def test_zero_is_a_limit_unless_all_types_are_zero() -> None:
    """Spec 5.3: only limits that are not all zero count."""
    limits = limits_of(config("root limit.user.bob=memory:0,gpu:1 limit.user.eve=memory:0,apps:1"))
    assert limits["root"].users == {"bob": Allowance({"memory": 0, "gpu": 1}, 0), "eve": Allowance({}, 1)}


def test_each_name_of_an_entry_is_limited_and_limits_of_the_partition_are_those_of_the_root() -> None:
    text = """
partitions:
  - name: default
    limits:
      - {limit: "", users: [bob, eve], groups: [dev], maxresources: {memory: 1k}}
      - {limit: "", users: ["*"], groups: [qa, "*"], maxapplications: 2}
    queues: [{name: root}]
"""
    limits = limits_of(load(text).partitions[0])["root"]
    assert limits.users == {"bob": ({"memory": 1000}, 0), "eve": ({"memory": 1000}, 0), "*": ({}, 2)}
    assert list(limits.groups) == ["dev", "qa", "*"]


# Which group --------------------------------------------------------------------------------------------------------

TREE = """root limit.group.admin=apps:9 limit.group.*=apps:9; root.p limit.group.dev=apps:5 limit.group.qa=apps:5;
root.p.a limit.user.bob=apps:1; root.p.b limit.group.ops=apps:1 limit.group.*=apps:1"""


@pytest.mark.parametrize(
    ("leaf", "groups", "expected"),
    [
        ("root.p.a", ["qa", "dev"], "dev"),  # the order of the configuration counts, not that of the user
        ("root.p.a", ["admin", "qa"], "qa"),  # the queue that is closest to the leaf
        ("root.p.a", ["admin"], "admin"),
        ("root.p.a", ["other"], "*"),
        ("root.p.b", ["dev"], "*"),  # `*` of a closer queue, before a name further up
        ("root.p.b", ["dev", "ops"], "ops"),
        ("root.p.a", [], None),  # not even `*`
        ("root.p.a", ["*"], "*"),
    ],
)
def test_the_group_that_is_charged(leaf: str, groups: list[str], expected: str | None) -> None:
    assert group_of(limits_of(config(TREE)), groups, Trial(TREE).queue(leaf)) == expected


def test_without_a_match_up_to_the_root_no_group_is_charged() -> None:
    tree = "root.a limit.group.dev=apps:1; root.b limit.group.qa=apps:1"
    assert group_of(limits_of(config(tree)), ["dev"], Trial(tree).queue("root.b")) is None
