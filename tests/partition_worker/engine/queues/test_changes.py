"""The plan of queue changes, and the changes that follow from it."""

import pytest

from partition_worker.engine.queues.tree import Tree, read_all_settings
from partition_worker.engine.reconfiguration import QueueChangePlan, compare_configs
from partition_worker.engine.user_resolution import User
from tests.builders import PROVIDED_CREATE, apps, config
from tests.trial import Trial

BOB = User("bob")


def plan(before: str, after: str, queues: Tree | None = None) -> QueueChangePlan:
    return compare_configs(queues or Tree(config(before)), config(before).root, config(after).root)


def test_the_same_configuration_is_no_change() -> None:
    text = "root.p template.maxapps=2 priority.offset=1; root.p.q parent; root.a max=memory:3"
    queues = Tree(config(text))
    queues.create("root.p.q.new.leaf", BOB)
    found = plan(text, text, queues)
    assert (found.wanted, found.unwanted) == ({}, set())


def test_only_what_differs_is_planned() -> None:
    before, after = "root.a; root.b max=memory:3; root.c", "root.a; root.b max=memory:4; root.d.e"
    found, settings = plan(before, after), read_all_settings(config(after).root)
    assert list(found.wanted.items()) == [(path, settings[path]) for path in ("root.b", "root.d", "root.d.e")]
    assert found.unwanted == {"root.c"}


def test_what_is_inherited_differs_too() -> None:
    assert list(plan("root.p; root.p.a", "root.p colour.of=red; root.p.a").wanted) == ["root.p", "root.p.a"]


def test_a_dynamic_queue_in_the_configuration_is_set_even_if_its_settings_are_the_same() -> None:
    queues = Tree(config("root.p parent"))
    queues.create("root.p.new", BOB)
    settings = read_all_settings(config("root.p.new").root)["root.p.new"]
    assert plan("root.p parent", "root.p.new", queues).wanted["root.p.new"] == settings


def test_a_queue_that_drains_is_set_if_it_is_wanted_and_else_left_draining() -> None:
    trial = Trial("root.a; root.b").does(apps("app-1 root.b")).reconfigures("root.a")
    since = trial.queue("root.b").draining_since_ns
    assert trial.waits(1).reconfigures("root.a").queue("root.b").draining_since_ns == since > 0
    assert trial.reconfigures("root.a; root.b").queue("root.b").state == "Active"


def test_dynamic_parents_pass_on_what_is_above_them() -> None:
    trial = Trial("root.p parent template.maxapps=2", rules=(PROVIDED_CREATE,)).does(apps("app-1 root.p.x.y.leaf"))
    trial.reconfigures("root.p parent template.maxapps=3")
    template = read_all_settings(trial.partition.config.root)["root.p"].template
    assert template is not None
    assert template.max_applications == 3
    assert [trial.queue(path).template for path in ("root.p", "root.p.x", "root.p.x.y")] == [template] * 3


def test_a_plan_changes_nothing() -> None:
    queues = Tree(config("root.a; root.b"))
    plan("root.a; root.b", "root.c", queues)
    assert [(queue.path, queue.state) for queue in queues] == [
        (path, "Active") for path in ("root", "root.a", "root.b")
    ]


def test_what_is_said_in_other_words_is_no_change() -> None:
    assert plan("root.a submitacl=bob", "root.a submitacl=bob,").wanted == {}


def test_only_what_two_configurations_say_differently_is_planned() -> None:
    before, after = "root.p.a; root.p.b; root.q.a", "root.p.a; root.p.b max=memory:1; root.q.a; root.r"
    assert list(plan(before, after).wanted) == ["root.p.b", "root.r"]


def test_a_queue_that_goes_takes_those_below_it_along() -> None:
    found = plan("root.a; root.p.b; root.p.c", "root.a")
    assert (found.wanted, found.unwanted) == ({}, {"root.p", "root.p.b", "root.p.c"})


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
    assert plan(before, after).limits is differ
