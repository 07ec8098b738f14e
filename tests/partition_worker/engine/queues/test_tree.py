"""Lookup, queues that come and go, and what is worth an attempt."""

import pytest

from partition_worker.engine.queues.tree import QueueError, Tree
from partition_worker.engine.user_resolution import User
from tests.builders import PROVIDED_CREATE, apps, asks, config, gone, nodes, released
from tests.trial import Trial

BOB = User("bob")


def tree(text: str) -> Tree:
    return Tree(config(text))


def test_queues_are_found_in_any_case() -> None:
    found = tree("root.Batch.a").find("ROOT.batch.A")
    assert found is not None
    assert found.path == "root.batch.a"
    assert tree("root.a").find("root.b") is None
    assert tree("root.a").find("") is None


def test_parents_come_before_their_children() -> None:
    paths = [queue.path for queue in tree("root.p.a; root.p.b; root.x")]
    assert paths == ["root", "root.p", "root.p.a", "root.p.b", "root.x"]


def test_a_path_is_created_with_every_level_that_is_missing() -> None:
    queues = tree("root.p parent")
    leaf = queues.create("root.P.New.Leaf", BOB)
    assert [(one.path, one.leaf, one.managed) for one in leaf.ancestry()][:3] == [
        ("root.p.new.leaf", True, False),
        ("root.p.new", False, False),
        ("root.p", False, True),
    ]
    assert queues.create("root.p.new.leaf", BOB) is leaf


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("root.a.new", "creation of queue root.a.new failed parent is already a leaf: root.a"),
        ("root.closed.new", "submit access to queue root.closed denied during create of: root.closed.new"),
        ("root.open.draining.new", "cannot add a child queue when queue is marked for deletion: root.open.draining"),
        ("root.open.no good", "invalid queue name, max 64 characters consisting of"),
        ("root.open.@recovery@", "dynamic queue cannot be root.@recovery@"),
        ("elsewhere.a", "queue elsewhere is not below root"),
    ],
)
def test_a_queue_that_cannot_be_created_says_why_and_leaves_nothing_behind(path: str, reason: str) -> None:
    queues = tree(
        "root submitacl=eve; root.a submitacl=*; root.closed parent; root.open submitacl=*; root.open.draining parent"
    )
    draining = queues.find("root.open.draining")
    assert draining is not None
    draining.state = "Draining"
    before = [queue.path for queue in queues]
    with pytest.raises(QueueError) as refused:
        queues.create(path, BOB)
    assert str(refused.value).startswith(reason)
    assert [queue.path for queue in queues] == before


def test_the_recovery_queue_needs_no_access() -> None:
    queues = tree("root submitacl=eve")
    assert queues.create("root.@recovery@", BOB) is queues.create("root.@recovery@", BOB)


def test_empty_dynamic_and_draining_queues_are_removed_children_first() -> None:
    queues = tree("root.a; root.p parent; root.d")
    queues.create("root.p.x.y", BOB)
    draining = queues.find("root.d")
    assert draining is not None
    draining.state = "Draining"
    assert queues.has_temporary()
    assert [queue.path for queue in queues.remove_empty()] == ["root.p.x.y", "root.p.x", "root.d"]
    assert [queue.path for queue in queues] == ["root", "root.a", "root.p"]
    assert not queues.has_temporary()
    assert list(queues.remove_empty()) == []


def test_a_queue_with_an_application_stays_with_all_above_it() -> None:
    trial = Trial("root.p parent", rules=(PROVIDED_CREATE,)).does(apps("app-1 root.p.x.y"))
    assert list(trial.partition.tree.remove_empty()) == []
    trial.does(gone("app-1"))
    assert len(list(trial.partition.tree.remove_empty())) == 2


def test_the_size_of_the_cluster_is_the_maximum_of_the_root() -> None:
    trial = Trial("root.a").does(nodes("n1 memory=10", "n2 memory=5 gpu=1"))
    assert trial.queue("root").maximum == {"memory": 15, "gpu": 1}


def test_without_a_cluster_the_root_has_no_maximum() -> None:
    assert Trial("root.a").does(nodes("n1")).queue("root").maximum is None


# What is worth an attempt: seen from outside, an ask that could be placed is placed -----------------------------------


def test_a_stopped_queue_is_passed_over() -> None:
    trial = Trial("root.a; root.b").takes(nodes("n1 memory=10"), apps("app-1 root.a", "app-2 root.b"))
    trial.queue("root.a").state = "Stopped"
    trial.does(asks("app-1 a1 memory=1", "app-2 b1 memory=1"))
    assert trial.placed() == ["b1 on n1"]


def test_a_draining_queue_is_still_scheduled() -> None:
    trial = Trial("root.a").takes(nodes("n1 memory=10"), apps("app-1 root.a")).reconfigures("root.b")
    assert trial.queue("root.a").draining
    assert trial.does(asks("app-1 a1 memory=1")).placed() == ["a1 on n1"]


def test_what_could_not_be_placed_does_not_hold_up_its_neighbours() -> None:
    trial = Trial("root.a max=memory:1; root.b").does(nodes("n1 memory=10"), apps("app-1 root.a", "app-2 root.b"))
    trial.does(asks("app-1 a1 memory=5 priority=9"), asks("app-2 b1 memory=5"))
    assert trial.placed() == ["b1 on n1"]


def test_room_that_one_queue_frees_is_used_by_another() -> None:
    trial = Trial("root.p max=memory:5; root.p.a; root.p.b; root.x").does(nodes("n1 memory=50"))
    trial.does(apps("app-1 root.p.a", "app-2 root.p.b"), asks("app-1 a1 memory=5"), asks("app-2 b1 memory=5"))
    assert trial.placed() == ["a1 on n1"]
    assert trial.does(released("app-1 a1")).placed() == ["b1 on n1"]
