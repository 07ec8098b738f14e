"""What may be charged where."""

import pytest

from partition_worker.engine.ask_shapes import amounts_of
from partition_worker.engine.queues.headroom import charge, expect, has_room, headroom, no_longer_expect, refund
from tests.builders import nodes
from tests.trial import Trial


def test_without_any_maximum_there_is_no_limit() -> None:
    leaf = Trial("root.p.a").queue("root.p.a")
    assert headroom(leaf) is None
    assert has_room(leaf, amounts_of({"memory": 10**18}))


def test_every_level_counts_and_the_tightest_decides() -> None:
    trial = Trial("root.p max=memory:10,gpu:1; root.p.a max=memory:8; root.p.b").takes(nodes("n1 memory=100 gpu=4"))
    a, b = trial.queue("root.p.a"), trial.queue("root.p.b")
    charge(b, {"memory": 5})
    assert headroom(a) == {"memory": 5, "gpu": 1}
    assert has_room(a, amounts_of({"memory": 5, "gpu": 1}))
    assert not has_room(a, amounts_of({"memory": 6}))
    assert not has_room(a, amounts_of({"gpu": 2}))


def test_a_type_that_no_maximum_names_is_unlimited() -> None:
    leaf = Trial("root.a max=memory:8").queue("root.a")
    assert has_room(leaf, amounts_of({"vcore": 10**9}))


def test_a_type_that_the_cluster_lacks_has_no_room_in_the_root() -> None:
    """Spec 1.3: at the root a type unknown to the cluster is refused."""
    trial = Trial("root.a").does(nodes("n1 memory=10"))
    assert headroom(trial.queue("root.a")) == {"memory": 10}


def test_negative_room_is_no_room_but_nothing_always_fits() -> None:
    leaf = Trial("root.a max=memory:8,gpu:1").queue("root.a")
    charge(leaf, {"memory": 20})
    assert headroom(leaf) == {"memory": -12, "gpu": 1}
    assert not has_room(leaf, amounts_of({"memory": 1}))
    assert has_room(leaf, amounts_of({"memory": 0, "gpu": 1}))


def test_charges_and_expectations_go_up_to_the_root_and_come_back() -> None:
    trial = Trial("root.p.a; root.b")
    leaf, parent, root, other = (trial.queue(path) for path in ("root.p.a", "root.p", "root", "root.b"))
    charge(leaf, {"memory": 3})
    expect(leaf, {"memory": 2})
    assert [queue.allocated for queue in (leaf, parent, root)] == [{"memory": 3}] * 3
    assert [queue.pending for queue in (leaf, parent, root)] == [{"memory": 2}] * 3
    assert (other.allocated, other.pending) == ({}, {})
    refund(leaf, {"memory": 3})
    no_longer_expect(leaf, {"memory": 2})
    assert [queue.allocated for queue in (leaf, parent, root)] == [{"memory": 0}] * 3
    assert [queue.pending for queue in (leaf, parent, root)] == [{"memory": 0}] * 3


def test_taking_back_more_than_was_charged_is_a_defect() -> None:
    leaf = Trial("root.a").queue("root.a")
    charge(leaf, {"memory": 3})
    with pytest.raises(AssertionError, match=r"root\.a"):
        refund(leaf, {"memory": 4})
    with pytest.raises(AssertionError, match=r"root\.a"):
        no_longer_expect(leaf, {"memory": 1})
