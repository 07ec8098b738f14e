"""What users and groups have, at every queue of the paths they use, in a partition."""

import pytest

from tests.builders import apps, asks, config, gone, nodes, released
from tests.trial import Trial
from yunishard.common.config.validation import load
from yunishard.common.messages.kinds import Resources
from yunishard.partition_worker.engine import user_limits
from yunishard.partition_worker.engine.administration import NotDone
from yunishard.partition_worker.engine.amounts import amounts_of
from yunishard.partition_worker.engine.sorted_items import Ranks
from yunishard.partition_worker.engine.user_limits import (
    Allowance,
    QueueUsage,
    Trackers,
    UsageAccount,
    group_of,
    limits_of,
)

P1_AND_P2 = ("p1 on n1", "p2 on n1")


def cluster(queues: str = "root.p.a; root.p.b") -> Trial:
    return Trial(queues).does(nodes("n1 memory=100 gpu=10"))


def used(trackers: Trackers, name: str) -> dict[str, Resources]:
    return {path: level.used for path, level in trackers.levels(name).items()}


def users(one: Trial) -> list[str]:
    return [tracker.name for tracker in one.partition.usage.users.by_name.values()]


def groups(one: Trial) -> list[str]:
    return [tracker.name for tracker in one.partition.usage.groups.by_name.values()]


def group_name(one: Trial, application_id: str) -> str | None:
    account = one.partition.usage.accounts.get(one.app(application_id).rank)
    assert account is not None
    return account.group_name


# What counts ----------------------------------------------------------------------------------------------------------


def test_use_counts_at_the_leaf_and_above() -> None:
    one = cluster().does(apps("app-1 root.p.a", "app-2 root.p.b"), asks("app-1 a1 memory=3"), asks("app-2 b1 memory=4"))
    assert used(one.partition.usage.users, "bob") == {
        "root": {"memory": 7},
        "root.p": {"memory": 7},
        "root.p.a": {"memory": 3},
        "root.p.b": {"memory": 4},
    }
    assert list(one.partition.usage.users.levels("bob")["root"].applications) == ["app-1", "app-2"]
    assert list(one.partition.usage.users.levels("bob")["root.p.b"].applications) == ["app-2"]


def test_users_are_kept_apart() -> None:
    one = cluster().does(apps("app-1 root.p.a", "app-2 root.p.a user=eve"))
    one.does(asks("app-1 a1 memory=3"), asks("app-2 b1 memory=4"))
    assert users(one) == ["bob", "eve"]
    assert one.partition.usage.users.levels("eve")["root"].used == {"memory": 4}
    assert one.partition.usage.users.levels("mallory") == {}


def test_what_the_rm_placed_counts_and_what_waits_does_not() -> None:
    one = cluster().does(apps("app-1 root.p.a"), asks("app-1 a1 memory=3 on=n1", "app-1 a2 memory=500"))
    assert one.partition.usage.users.levels("bob")["root"].used == {"memory": 3}


def test_growing_and_shrinking_in_place_change_the_use() -> None:
    one = cluster().does(apps("app-1 root.p.a"), asks("app-1 a1 memory=3"), asks("app-1 a1 memory=2"))
    assert one.partition.usage.users.levels("bob")["root"].used == {"memory": 2}
    assert one.does(asks("app-1 a1 memory=9")).partition.usage.users.levels("bob")["root"].used == {"memory": 9}


def test_an_application_that_still_waits_keeps_counting_for_its_user() -> None:
    one = cluster().does(apps("app-1 root.p.a"), asks("app-1 a1 memory=4"), asks("app-1 a2 memory=500"))
    one.does(released("app-1 a1"))
    assert list(one.partition.usage.users.levels("bob")["root.p.a"].applications) == ["app-1"]


def test_an_application_that_has_nothing_any_more_is_forgotten_at_once() -> None:
    one = cluster().does(apps("app-1 root.p.a", "app-2 root.p.b"), asks("app-1 a1 memory=4"), asks("app-2 b1 memory=4"))
    one.does(released("app-1 a1"))
    assert list(one.partition.usage.users.levels("bob")) == ["root", "root.p", "root.p.b"]
    assert users(one.does(released("app-2 b1"))) == []


def with_placeholders_only(queues: str, app: str = "user=bob") -> Trial:
    """An application that runs with placeholders and lost its last real allocation."""
    one = Trial(queues).does(nodes("n1 memory=100"), apps(f"app-1 root.a {app} gang=memory:20"))
    one.does(asks(*(f"app-1 p{number} memory=10 placeholder group=g" for number in (1, 2)), "app-1 a1 memory=5"))
    return one.does(released("app-1 a1"))


def test_an_application_that_has_nothing_but_placeholders_counts_no_longer_and_is_charged_for_them() -> None:
    """Spec 2, rule 6."""
    one = with_placeholders_only("root.a limit.user.bob=apps:1")
    assert one.does(apps("app-2 root.a user=bob"), asks("app-2 b1 memory=7")).running == ["b1 on n1", *P1_AND_P2]
    assert one.partition.usage.users.levels("bob")["root.a"].used == {"memory": 27}
    one.does(asks("app-1 a2 memory=5"))
    assert list(one.partition.usage.users.levels("bob")["root.a"].applications) == ["app-2", "app-1"], "it counts again"
    one.does(gone("app-1", "app-2"))
    assert one.partition.usage.users.levels("bob")["root.a"].used == {}


def test_who_waits_begins_when_another_has_nothing_but_placeholders() -> None:
    one = with_placeholders_only("root.a limit.user.bob=apps:1")
    one.does(asks("app-1 a2 memory=5"), apps("app-2 root.a user=bob"), asks("app-2 b1 memory=7"))
    assert one.does(released("app-1 a2")).running == ["b1 on n1", *P1_AND_P2]


def test_placeholders_of_an_application_that_does_not_count_go_with_it_to_another_group_and_queue() -> None:
    one = with_placeholders_only("root.a limit.group.dev=memory:50; root.b", "user=bob groups=dev,qa")
    one.reconfigures("root.a limit.group.qa=memory:50; root.b")
    assert used(one.partition.usage.groups, "qa") == {"root": {"memory": 20}, "root.a": {"memory": 20}}
    one.moves("app-1", "root.b")
    assert one.partition.usage.users.levels("bob")["root.b"].used == {"memory": 20}
    assert not one.partition.usage.users.levels("bob")["root.b"].applications


def test_what_an_application_has_that_does_not_count_is_not_moved_beyond_a_limit() -> None:
    one = with_placeholders_only("root.a; root.b limit.user.bob=memory:15")
    with pytest.raises(NotDone, match=r"user bob would exceed the limit at queue root\.b"):
        one.moves("app-1", "root.b")


def test_an_application_that_completes_without_having_run_again_is_forgotten() -> None:
    """Spec 2: on the terminated move the tracked usage is dropped."""
    one = cluster().does(apps("app-1 root.p.a"), asks("app-1 a1 memory=4"), asks("app-1 a2 memory=500"))
    one.does(released("app-1 a1"), released("app-1 a2")).waits(31)
    assert "app-1 Completed" in one.told()
    assert users(one) == []


def test_an_application_that_is_removed_is_forgotten() -> None:
    one = cluster().does(apps("app-1 root.p.a"), asks("app-1 a1 memory=4", "app-1 a2 memory=500"), gone("app-1"))
    assert users(one) == []


# Who is tracked -------------------------------------------------------------------------------------------------------


def test_a_user_is_tracked_from_the_first_attempt_on() -> None:
    one = cluster().takes(apps("app-1 root.p.a"), asks("app-1 a1 memory=500"))
    assert users(one) == []
    one.settles()
    assert used(one.partition.usage.users, "bob") == {"root": {}, "root.p": {}, "root.p.a": {}}
    assert users(one.does(gone("app-1"))) == []


def test_users_and_groups_are_tracked_that_have_a_limit_of_their_own() -> None:
    one = cluster("root limit.user.bob=apps:1 limit.user.*=apps:2 limit.group.dev=apps:1 limit.group.*=apps:3; root.a")
    assert (users(one), groups(one)) == (["bob"], ["dev", "*"])


def test_users_under_the_star_stay_and_the_longest_idle_of_too_many_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = cluster("root limit.user.*=apps:1 limit.user.ann=apps:1; root.a")
    for number in range(4):
        one.does(apps(f"app-{number} root.a user=u-{number}"), asks(f"app-{number} a{number} memory=1"))
    monkeypatch.setattr(user_limits, "IDLE_MAX", 2)
    one.does(gone("app-2", "app-0"))
    assert users(one) == ["ann", "u-0", "u-1", "u-2", "u-3"]
    assert list(one.partition.usage.users.levels("u-0")) == ["root"]
    one.does(gone("app-1"))
    assert users(one) == ["ann", "u-0", "u-1", "u-3"]
    one.does(apps("app-4 root.a user=u-0"), asks("app-4 a4 memory=1"), gone("app-3"))
    assert users(one) == ["ann", "u-0", "u-1", "u-3"]


# The group ------------------------------------------------------------------------------------------------------------

DEV = "root limit.group.dev=memory:50,apps:9 limit.group.qa=memory:50; root.p.a limit.group.dev=memory:20; root.p.b"


def test_use_is_charged_to_the_group_of_the_application_on_the_whole_path() -> None:
    one = cluster(DEV).does(apps("app-1 root.p.a user=bob groups=qa,dev", "app-2 root.p.b user=eve groups=dev"))
    one.does(asks("app-1 a1 memory=3"), asks("app-2 b1 memory=4"))
    assert used(one.partition.usage.groups, "dev") == {
        "root": {"memory": 7},
        "root.p": {"memory": 7},
        "root.p.a": {"memory": 3},
        "root.p.b": {"memory": 4},
    }
    assert list(one.partition.usage.groups.levels("dev")["root"].applications) == ["app-1", "app-2"]
    assert used(one.partition.usage.groups, "qa") == {"root": {}}


def test_a_group_gets_the_applications_for_which_its_new_limit_is_the_better_match() -> None:
    one = cluster("root limit.group.qa=apps:9; root.a").does(apps("app-1 root.a groups=dev,qa"))
    one.does(asks("app-1 a1 memory=3")).reconfigures("root limit.group.qa=apps:9; root.a limit.group.dev=apps:1")
    assert group_name(one, "app-1") == "dev"
    assert used(one.partition.usage.groups, "qa") == {"root": {}}
    one.does(apps("app-2 root.a groups=dev,qa"), asks("app-2 b1 memory=1"))
    assert group_name(one, "app-2") == "dev"
    assert one.placed() == ["a1 on n1"]


def test_a_limit_that_is_set_later_counts_what_its_group_uses_already() -> None:
    one = cluster("root.a").does(apps("app-1 root.a groups=dev", "app-2 root.a user=eve groups=dev"))
    one.does(asks("app-1 a1 memory=3"))
    one.reconfigures("root.a limit.group.dev=memory:6,apps:1")
    assert used(one.partition.usage.groups, "dev") == {"root": {"memory": 3}, "root.a": {"memory": 3}}
    one.does(asks("app-1 a2 memory=4"), asks("app-1 a3 memory=2"), asks("app-2 b1 memory=1"))
    assert one.placed() == ["a1 on n1", "a3 on n1"]
    one.reconfigures("root.a")
    assert one.placed() == ["a2 on n1", "b1 on n1"]
    assert (group_name(one, "app-1"), groups(one)) == (None, [])


def test_an_application_that_moves_gets_its_group_anew() -> None:
    one = cluster("root.a limit.group.qa=apps:9; root.b limit.group.dev=apps:9")
    one.does(apps("app-1 root.a groups=dev,qa")).does(asks("app-1 a1 memory=3", "app-1 a2 memory=500")).moves(
        "app-1", "root.b"
    )
    assert group_name(one, "app-1") == "dev"
    assert used(one.partition.usage.groups, "qa") == {"root": {}, "root.a": {}}
    assert used(one.partition.usage.groups, "dev")["root.b"] == {"memory": 3}


# Other limits ---------------------------------------------------------------------------------------------------------


def allowances(one: Trial, user: str) -> dict[str, Allowance | None]:
    return {path: level.allowance for path, level in one.partition.usage.users.levels(user).items()}


def test_after_a_change_limits_are_those_of_the_new_text_and_use_is_kept() -> None:
    one = cluster("root limit.user.bob=memory:50; root.a").does(apps("app-1 root.a"), asks("app-1 a1 memory=3"))
    one.reconfigures("root.a limit.user.bob=memory:2 limit.user.eve=apps:1")
    assert allowances(one, "bob") == {"root": None, "root.a": Allowance({"memory": 2}, 0)}
    assert one.partition.usage.users.levels("bob")["root.a"].used == {"memory": 3}
    assert list(one.partition.usage.users.levels("bob")["root"].applications) == ["app-1"]
    assert allowances(one, "eve") == {"root": None, "root.a": Allowance({}, 1)}


def test_losing_the_entry_of_an_upper_queue_leaves_those_below() -> None:
    """Bug (a) of the reference: what is still configured below must not be lost."""
    one = cluster(
        "root limit.user.bob=memory:9 limit.group.dev=memory:9; root.a limit.user.bob=memory:5 limit.group.dev=memory:5"
    )
    one.reconfigures("root.a limit.user.bob=memory:5 limit.group.dev=memory:5")
    assert allowances(one, "bob") == {"root": None, "root.a": Allowance({"memory": 5}, 0)}
    one.does(apps("app-1 root.a user=eve groups=dev"), asks("app-1 a1 memory=6"))
    assert one.placed() == []
    assert group_name(one, "app-1") == "dev"


def test_a_group_that_loses_an_entry_keeps_what_other_branches_use() -> None:
    """Bug (b) of the reference: only the applications at or below that queue leave, with what they use."""
    one = cluster("root.a limit.group.dev=memory:50; root.b limit.group.dev=memory:50 limit.group.*=memory:60")
    one.does(apps("app-1 root.a groups=dev", "app-2 root.b user=eve groups=dev"))
    one.does(asks("app-1 a1 memory=3"), asks("app-2 b1 memory=4"))
    one.reconfigures("root.a limit.group.dev=memory:50; root.b limit.group.qa=memory:1 limit.group.*=memory:60")
    assert (group_name(one, "app-1"), group_name(one, "app-2")) == ("dev", "*")
    assert used(one.partition.usage.groups, "dev")["root"] == {"memory": 3}
    assert used(one.partition.usage.groups, "*") == {"root": {"memory": 4}, "root.b": {"memory": 4}}
    assert list(one.partition.usage.groups.levels("*")["root.b"].applications) == ["app-2"]


def test_the_star_loses_its_applications_like_any_group() -> None:
    one = cluster("root limit.group.qa=apps:1 limit.group.*=memory:60; root.a")
    one.does(apps("app-1 root.a groups=dev"), asks("app-1 a1 memory=3"))
    assert group_name(one, "app-1") == "*"
    one.reconfigures("root limit.group.qa=apps:1; root.a")
    assert (group_name(one, "app-1"), groups(one)) == (None, ["qa"])


def test_removing_the_star_frees_those_who_were_under_it() -> None:
    """Bug (c) of the reference: named entries before and after must not keep it alive."""
    one = cluster("root.a limit.user.bob=memory:5 limit.user.*=memory:1")
    one.does(apps("app-1 root.a user=eve"), asks("app-1 a1 memory=4"))
    assert one.placed() == []
    one.reconfigures("root.a limit.user.bob=memory:5")
    assert one.placed() == ["a1 on n1"]
    assert allowances(one, "eve") == {"root": None, "root.a": None}


def test_partitions_have_limits_of_their_own() -> None:
    """Spec 10.3: those of one partition do not overwrite those of another."""
    strict, generous = cluster("root.a limit.user.bob=memory:1"), cluster("root.a limit.user.bob=memory:9")
    for one in (strict, generous):
        one.does(apps("app-1 root.a"), asks("app-1 a1 memory=5"))
    assert (strict.placed(), generous.placed()) == ([], ["a1 on n1"])


# Trackers ------------------------------------------------------------------------------------------------------------

FIVE = Allowance({"memory": 5}, 0)
TWO = Allowance({}, 2)


def user_trackers() -> Trackers:
    return Trackers(Ranks(), each=True)


def names(trackers: Trackers) -> list[str]:
    return list(trackers.by_name)


def test_a_level_exists_with_those_above_it_once_it_is_reached() -> None:
    trackers = user_trackers()
    leaf = trackers.track("bob", "root.p.a")
    assert list(trackers.levels("bob")) == ["root", "root.p", "root.p.a"]
    assert [level.path for level in leaf.upward] == ["root.p.a", "root.p", "root"]
    assert trackers.track("bob", "root.p.a") is leaf
    assert trackers.levels("eve") == {}


def test_what_is_charged_counts_there_and_above() -> None:
    trackers = user_trackers()
    a, b = trackers.track("bob", "root.a"), trackers.track("bob", "root.b")
    a.charge(amounts_of({"memory": 3}))
    b.charge(amounts_of({"memory": 4}))
    b.count_running("app-1")
    a.refund(amounts_of({"memory": 1}))
    root = trackers.levels("bob")["root"]
    assert (a.used, b.used, root.used) == ({"memory": 2}, {"memory": 4}, {"memory": 6})
    assert (list(a.applications), list(root.applications)) == ([], ["app-1"])
    b.discount_running("app-1")
    assert not root.applications


def test_each_user_is_tracked_who_is_named_and_a_star_holds_for_each_who_is_not() -> None:
    trackers = user_trackers()
    trackers.set_allowances({"root": {"bob": FIVE, "*": TWO}, "root.a": {"eve": FIVE}})
    assert names(trackers) == ["bob", "eve"]
    assert [level.allowance for level in trackers.levels("bob").values()] == [FIVE]
    assert [level.allowance for level in trackers.levels("eve").values()] == [TWO, FIVE]
    assert trackers.track("joe", "root").allowance == TWO


def test_who_is_named_is_tracked_also_where_a_star_holds_for_them() -> None:
    trackers = user_trackers()
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
    trackers = user_trackers()
    trackers.set_allowances({"root.p.a": {"bob": FIVE, "eve": FIVE}, "root.b": {"bob": FIVE}})
    trackers.track("bob", "root.b").charge(amounts_of({"memory": 9}))
    trackers.set_allowances({"root": {"bob": TWO}})
    assert names(trackers) == ["bob"]
    assert {path: level.allowance for path, level in trackers.levels("bob").items()} == {"root": TWO, "root.b": None}
    assert trackers.levels("bob")["root"].used == {"memory": 9}


def test_a_user_who_loses_a_limit_falls_under_the_star_and_the_other_way() -> None:
    trackers = user_trackers()
    trackers.set_allowances({"root": {"bob": FIVE, "*": TWO}})
    trackers.track("joe", "root").charge(amounts_of({"memory": 1}))
    trackers.track("bob", "root").charge(amounts_of({"memory": 1}))
    trackers.set_allowances({"root": {"joe": FIVE, "*": TWO}})
    assert trackers.track("bob", "root").allowance == TWO
    assert trackers.track("joe", "root").allowance == FIVE
    trackers.set_allowances({"root": {"joe": FIVE}})
    assert trackers.track("bob", "root").allowance is None


# Room -----------------------------------------------------------------------------------------------------------------


def has_room(allowance: Allowance | None, used: dict[str, int], wanted: dict[str, int]) -> bool:
    level = QueueUsage("root", 1, None, allowance)
    level.charge(amounts_of(used))
    return level.has_room(amounts_of(wanted))


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


def test_an_application_that_runs_without_an_allocation_is_counted_for_its_user_after_a_move() -> None:
    one = Trial("root limit.user.bob=apps:1; root.a; root.b").does(nodes("n1 memory=9"), apps("app-1 root.a"))
    one.does(apps("app-2 root.b"), asks("app-1 a1 memory=3"), asks("app-1 a2 memory=500"), asks("app-2 b1 memory=3"))
    one.does(released("app-1 a1")).moves("app-1", "root.b").settles()
    assert one.running == []
