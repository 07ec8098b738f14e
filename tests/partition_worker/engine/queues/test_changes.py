"""What a configuration changes in a tree, as values."""

from partition_worker.engine.queues.blueprint import wanted
from partition_worker.engine.queues.changes import Add, Drain, PassOn, Set, changes
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.queues.tree import Tree
from partition_worker.engine.users import User
from tests.builders import config

BOB = User("bob")


def tree(text: str) -> Tree:
    return Tree(config(text))


def found(queues: Tree, path: str) -> Queue:
    queue = queues.find(path)
    assert queue is not None
    return queue


def test_the_same_configuration_is_no_change() -> None:
    text = "root.p template.maxapps=2 priority.offset=1; root.p.q parent; root.a max=memory:3"
    queues = tree(text)
    queues.create("root.p.q.new.leaf", BOB)
    assert changes(queues, config(text).root) == []


def test_only_what_differs_is_a_change() -> None:
    queues, then = tree("root.a; root.b max=memory:3; root.c"), config("root.a; root.b max=memory:4; root.d.e").root
    settings = wanted(then)
    assert changes(queues, then) == [
        Set(found(queues, "root.b"), settings["root.b"]),
        Add("root.d", settings["root.d"]),
        Add("root.d.e", settings["root.d.e"]),
        Drain(found(queues, "root.c")),
    ]


def test_what_is_inherited_differs_too() -> None:
    queues = tree("root.p; root.p.a")
    then = config("root.p colour.of=red; root.p.a").root
    assert [type(change) for change in changes(queues, then)] == [Set, Set]


def test_a_dynamic_queue_in_the_configuration_is_set_even_if_its_settings_are_the_same() -> None:
    queues = tree("root.p parent")
    leaf = queues.create("root.p.new", BOB)
    then = config("root.p.new").root
    assert Set(leaf, wanted(then)["root.p.new"]) in changes(queues, then)


def test_a_queue_that_drains_is_set_if_it_is_wanted_and_else_left_draining() -> None:
    queues = tree("root.a; root.b")
    found(queues, "root.b").state = "Draining"
    assert changes(queues, config("root.a").root) == []
    (change,) = changes(queues, config("root.a; root.b").root)
    assert isinstance(change, Set)


def test_dynamic_parents_pass_on_what_is_above_them() -> None:
    queues = tree("root.p parent template.maxapps=2")
    queues.create("root.p.x.y.leaf", BOB)
    then = config("root.p parent template.maxapps=3").root
    template = wanted(then)["root.p"].template
    assert changes(queues, then)[1:] == [
        PassOn(found(queues, "root.p.x"), template),
        PassOn(found(queues, "root.p.x.y"), template),
    ]


def test_looking_changes_nothing() -> None:
    queues = tree("root.a; root.b")
    changes(queues, config("root.c").root)
    assert [queue.path for queue in queues] == ["root", "root.a", "root.b"]
    assert not found(queues, "root.a").draining
