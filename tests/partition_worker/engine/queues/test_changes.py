"""What a configuration changes in a tree, as values."""

import pytest

from partition_worker.engine.queues.configuration import wanted
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.queues.tree import Tree
from partition_worker.engine.reconfiguration import (
    AddQueue,
    Change,
    DrainQueue,
    SetQueue,
    SetTemplate,
    compare_configs,
    list_changes,
)
from partition_worker.engine.user_resolution import User
from tests.builders import config

BOB = User("bob")


def tree(text: str) -> Tree:
    return Tree(config(text))


def between(queues: Tree, before: str, after: str) -> list[Change]:
    """What changes in queues that are as one configuration says, if another one is to count."""
    return list_changes(queues, compare_configs(queues, config(before).root, config(after).root))


def found(queues: Tree, path: str) -> Queue:
    queue = queues.find(path)
    assert queue is not None
    return queue


def test_the_same_configuration_is_no_change() -> None:
    text = "root.p template.maxapps=2 priority.offset=1; root.p.q parent; root.a max=memory:3"
    queues = tree(text)
    queues.create("root.p.q.new.leaf", BOB)
    assert between(queues, text, text) == []


def test_only_what_differs_is_a_change() -> None:
    before, after = "root.a; root.b max=memory:3; root.c", "root.a; root.b max=memory:4; root.d.e"
    queues, settings = tree(before), wanted(config(after).root)
    assert between(queues, before, after) == [
        SetQueue(found(queues, "root.b"), settings["root.b"]),
        AddQueue("root.d", settings["root.d"]),
        AddQueue("root.d.e", settings["root.d.e"]),
        DrainQueue(found(queues, "root.c")),
    ]


def test_what_is_inherited_differs_too() -> None:
    before = "root.p; root.p.a"
    assert [type(one) for one in between(tree(before), before, "root.p colour.of=red; root.p.a")] == [
        SetQueue,
        SetQueue,
    ]


def test_a_dynamic_queue_in_the_configuration_is_set_even_if_its_settings_are_the_same() -> None:
    queues = tree("root.p parent")
    leaf = queues.create("root.p.new", BOB)
    assert SetQueue(leaf, wanted(config("root.p.new").root)["root.p.new"]) in between(
        queues, "root.p parent", "root.p.new"
    )


def test_a_queue_that_drains_is_set_if_it_is_wanted_and_else_left_draining() -> None:
    queues = tree("root.a; root.b")
    found(queues, "root.b").state = "Draining"
    assert between(queues, "root.a", "root.a") == []
    (change,) = between(queues, "root.a", "root.a; root.b")
    assert isinstance(change, SetQueue)


def test_dynamic_parents_pass_on_what_is_above_them() -> None:
    before, after = "root.p parent template.maxapps=2", "root.p parent template.maxapps=3"
    queues = tree(before)
    queues.create("root.p.x.y.leaf", BOB)
    template = wanted(config(after).root)["root.p"].template
    assert between(queues, before, after)[1:] == [
        SetTemplate(found(queues, "root.p.x"), template),
        SetTemplate(found(queues, "root.p.x.y"), template),
    ]


def test_looking_changes_nothing() -> None:
    queues = tree("root.a; root.b")
    between(queues, "root.a; root.b", "root.c")
    assert [queue.path for queue in queues] == ["root", "root.a", "root.b"]
    assert not found(queues, "root.a").draining


def test_what_is_said_in_other_words_is_no_change() -> None:
    before, after = "root.a submitacl=bob", "root.a submitacl=bob,"
    assert between(tree(before), before, after) == []


def test_only_what_two_configurations_say_differently_is_planned() -> None:
    before, after = "root.p.a; root.p.b; root.q.a", "root.p.a; root.p.b max=memory:1; root.q.a; root.r"
    assert list(compare_configs(tree(before), config(before).root, config(after).root).wanted) == ["root.p.b", "root.r"]


def test_a_queue_that_goes_takes_those_below_it_along() -> None:
    before = "root.a; root.p.b; root.p.c"
    queues = tree(before)
    assert between(queues, before, "root.a") == [
        DrainQueue(found(queues, path)) for path in ("root.p", "root.p.b", "root.p.c")
    ]


@pytest.mark.parametrize(
    ("before", "after", "differ"),
    [
        ("root.a", "root.a limit.user.bob=apps:1", True),
        ("root.a limit.user.bob=apps:1", "root.a", True),
        ("root.a; root.b limit.user.bob=apps:1", "root.a", True),
        ("root.a", "root.a; root.b limit.user.bob=apps:1", True),
        ("root.a limit.user.bob=apps:1; root.b", "root.a limit.user.bob=apps:1; root.c max=memory:1", False),
    ],
)
def test_a_plan_says_whether_limits_may_be_others(before: str, after: str, *, differ: bool) -> None:
    assert compare_configs(tree(before), config(before).root, config(after).root).limits is differ
