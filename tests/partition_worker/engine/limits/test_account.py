"""What an application may have for its user and its group, taken together."""

import pytest

from partition_worker.engine.limits.account import Account
from partition_worker.engine.needs import shape_of
from tests.builders import apps, asks, nodes
from tests.trial import Trial

TREE = """root limit.user.bob=memory:50,gpu:3 limit.user.*=apps:1 limit.group.dev=memory:40,apps:2;
root.a limit.user.bob=memory:20 limit.group.*=memory:1; root.b"""


def account(who: str = "user=bob groups=dev", leaf: str = "root.b") -> Account:
    """Of an application beside another of bob in group dev that has 15 memory and 1 gpu in root.a."""
    one = Trial(TREE).does(nodes("n1 memory=100 gpu=9"), apps("app-1 root.a user=bob groups=qa"))
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
    assert account().has_room(shape_of(wanted)) is expected


def test_every_level_of_the_path_must_have_room() -> None:
    one = account("user=bob groups=none", "root.a")
    assert one.group_name == "*"
    assert not one.has_room(shape_of({"memory": 2}))
    assert one.has_room(shape_of({"gpu": 2}))


def test_a_limit_of_another_group_does_not_bind() -> None:
    """Spec 5.2: a `*` further up or down does not apply to an application of a named group."""
    one = account("user=joe groups=dev", "root.a")
    assert one.group_name == "*", "the closest queue decides"
    assert account("user=joe groups=dev").has_room(shape_of({"memory": 10}))


def test_a_named_entry_further_down_does_not_replace_the_star_further_up() -> None:
    """Spec 5.1: levels are independent."""
    tree = "root limit.user.*=memory:5; root.a limit.user.bob=memory:9"
    one = Trial(tree).does(apps("app-1 root.a user=bob"))
    bob = one.partition.usage.account(one.app("app-1"))
    assert bob.has_room(shape_of({"memory": 5}))
    assert not bob.has_room(shape_of({"memory": 6}))


def test_entries_of_one_queue_do_not_add_up() -> None:
    tree = "root.a limit.user.bob=memory:9 limit.user.*=memory:5"
    one = Trial(tree).does(apps("app-1 root.a user=bob"))
    assert one.partition.usage.account(one.app("app-1")).has_room(shape_of({"memory": 9}))


def test_user_and_group_must_both_let_it_start() -> None:
    assert account("user=bob groups=dev").may_start(), "the group runs 1 of 2"
    assert not account("user=eve groups=none").may_start(), "eve runs 1 of 1"
    assert account("user=joe groups=none").may_start()


def test_what_counts_already_may_start_again() -> None:
    one = Trial("root.a limit.user.bob=apps:1").does(nodes("n1 memory=9"), apps("app-1 root.a"))
    one.does(asks("app-1 a1 memory=1"))
    assert one.partition.usage.account(one.app("app-1")).may_start()
