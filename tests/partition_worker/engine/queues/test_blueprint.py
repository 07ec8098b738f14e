"""From configuration to queues."""

import pytest

from partition_worker.engine.queues.queue import Queue, Template
from partition_worker.engine.queues.tree import build_queues, from_template, read_all_settings, settings_of
from partition_worker.engine.user_resolution import User
from tests.builders import config


def built(text: str) -> dict[str, Queue]:
    return build_queues(config(text).root)


def test_paths_are_lower_case_and_ranks_follow_the_file() -> None:
    queues = built("root.Batch; root.Dev.Eve; root.ad-hoc")
    assert list(queues) == ["root", "root.batch", "root.dev", "root.dev.eve", "root.ad-hoc"]
    assert sorted(queues, key=lambda path: queues[path].rank) == list(queues)
    assert list(queues["root"].children) == ["batch", "dev", "ad-hoc"]


def test_a_queue_is_a_leaf_without_children_and_without_the_flag() -> None:
    queues = built("root.a; root.b parent; root.c.d")
    assert {path: queue.leaf for path, queue in queues.items()} == {
        "root": False,
        "root.a": True,
        "root.b": False,
        "root.c": False,
        "root.c.d": True,
    }
    assert all(queue.managed for queue in queues.values())


def test_a_root_without_children_is_no_leaf() -> None:
    assert not built("")["root"].leaf


def test_settings_are_taken_over() -> None:
    queue = built("root.a max=memory:10,vcore:2000 guaranteed=memory:5 maxapps=3 priority.offset=2")["root.a"]
    assert (queue.maximum, queue.guaranteed) == ({"memory": 10, "vcore": 2000}, {"memory": 5})
    assert (queue.max_applications, queue.policies.priority_offset) == (3, 2)


@pytest.mark.parametrize("amount", ["memory:0", "memory:0,vcore:0"])
def test_amounts_without_anything_positive_are_as_if_not_written(amount: str) -> None:
    queue = built(f"root.a max={amount} guaranteed={amount}")["root.a"]
    assert (queue.maximum, queue.guaranteed) == (None, None)


def test_a_zero_beside_something_positive_stays() -> None:
    assert built("root.a max=memory:10,gpu:0")["root.a"].maximum == {"memory": 10, "gpu": 0}


def test_the_resources_of_the_root_are_those_of_the_cluster() -> None:
    root = built("root max=memory:10 guaranteed=memory:5 maxapps=4")["root"]
    assert (root.maximum, root.guaranteed, root.max_applications) == (None, None, 4)


def test_children_inherit_properties_as_far_as_they_are_passed_on() -> None:
    queues = built("root.p application.sort.policy=fair priority.offset=7; root.p.a preemption.delay=1m; root.p.b")
    assert queues["root.p.a"].policies.application_sort == "fair"
    assert queues["root.p.a"].policies.preemption_delay_s == 60.0
    assert queues["root.p.b"].policies.priority_offset == 0


def test_access_lists_are_parsed() -> None:
    queue = built("root submitacl=eve; root.a submitacl=bob")["root.a"]
    assert queue.admits_submission(User("bob"))
    assert queue.admits_submission(User("eve"))
    assert not queue.admits_submission(User("mallory"))


def test_a_parent_without_a_template_takes_the_one_above_it() -> None:
    queues = built("root.p template.maxapps=2; root.p.q parent; root.p.q.r template.maxapps=5 parent; root.x parent")
    assert [queues[path].template for path in ("root.p.q", "root.x")] == [Template(2, {}, None, None), None]
    assert queues["root.p.q.r"].template == Template(5, {}, None, None)


def test_a_leaf_has_no_template() -> None:
    assert built("root.p template.maxapps=2; root.p.a")["root.p.a"].template is None


def test_a_dynamic_leaf_starts_with_what_the_template_says() -> None:
    parent = built("root.p parent template.max=memory:4 template.guaranteed=memory:1 template.maxapps=3")["root.p"]
    leaf = from_template(parent, "new", rank=9, leaf=True)
    assert (leaf.path, leaf.rank, leaf.leaf, leaf.managed) == ("root.p.new", 9, True, False)
    assert (leaf.maximum, leaf.guaranteed, leaf.max_applications) == ({"memory": 4}, {"memory": 1}, 3)
    assert leaf.parent is parent


def test_a_dynamic_leaf_takes_properties_from_the_template_only() -> None:
    text = "root.p parent application.sort.policy=fair template.priority.offset=3"
    leaf = from_template(built(text)["root.p"], "new", rank=9, leaf=True)
    assert leaf.properties == {"priority.offset": "3"}
    assert leaf.policies.application_sort == "fifo"


def test_a_dynamic_parent_hands_the_template_on_and_is_not_limited_by_it() -> None:
    parent = built("root.p parent template.max=memory:4")["root.p"]
    middle = from_template(parent, "new", rank=9, leaf=False)
    assert (middle.maximum, middle.template) == (None, parent.template)


def test_the_recovery_queue_is_fifo_whatever_the_template_says() -> None:
    root = built("root template.application.sort.policy=fair")["root"]
    assert from_template(root, "@recovery@", rank=9, leaf=True).policies.application_sort == "fifo"


def test_a_queue_shows_the_settings_it_was_given() -> None:
    text = "root maxapps=9; root.p template.max=memory:3 guaranteed=memory:1 adminacl=ann; root.p.q parent; root.p.a"
    settings = read_all_settings(config(text).root)
    assert {path: settings_of(queue) for path, queue in built(text).items()} == settings
    assert settings["root.p"].admin_text == "ann"


def test_the_settings_of_the_root_have_no_resources() -> None:
    root = read_all_settings(config("root max=memory:4 guaranteed=memory:4").root)["root"]
    assert (root.maximum, root.guaranteed) == (None, None)
