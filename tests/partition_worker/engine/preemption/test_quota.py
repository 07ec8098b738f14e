"""Who has to go when a queue uses more than its lowered maximum."""

import pytest

from common.messages import Resources
from partition_worker.engine.preemption.quota import candidates, leaf_targets, target, victims
from partition_worker.engine.queues.headroom import charge, preempt
from tests.builders import apps, asks, nodes
from tests.trial import Trial


def using(queues: str, **used: Resources) -> Trial:
    """Queues and what is charged to their leaves, named without `root.` and with `_` for dots."""
    trial = Trial(queues)
    for name, amount in used.items():
        charge(trial.queue("root." + name.replace("_", ".")), amount)
    return trial


def running(*texts: str, maximum: str = "memory:10", at: str = "root.a") -> Trial:
    """Allocations of app-1 in a queue, which may exceed what its node and queue have."""
    trial = Trial(f"{at} max={maximum}").takes(nodes("n1 memory=10"), apps(f"app-1 {at}"))
    return trial.takes(asks(*(f"app-1 {text} on=n1" for text in texts)))


def order(trial: Trial, **wanted: int) -> list[str]:
    return [one.key for one in candidates(trial.queue("root.a"), wanted)]


# How much -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guarantee", "expected"), [("", 500), ("guaranteed=memory:1200", 300), ("guaranteed=memory:900", 500)]
)
def test_the_excess_goes_as_far_as_nothing_is_guaranteed_to_it(guarantee: str, expected: int) -> None:
    """Vector 16."""
    trial = using(f"root.p {guarantee}; root.p.a max=memory:1000", p_a={"memory": 1500})
    assert target(trial.queue("root.p.a")) == {"memory": expected}


def test_of_several_guarantees_the_one_that_is_exceeded_most_counts() -> None:
    queues = "root.p guaranteed=memory:1000; root.p.a max=memory:800 guaranteed=memory:1400"
    assert target(using(queues, p_a={"memory": 1500}).queue("root.p.a")) == {"memory": 500}


def test_what_was_asked_back_already_counts_as_gone() -> None:
    trial = using("root.a max=memory:10", a={"memory": 16})
    preempt(trial.queue("root.a"), {"memory": 4})
    assert target(trial.queue("root.a")) == {"memory": 2}
    preempt(trial.queue("root.a"), {"memory": 2})
    assert target(trial.queue("root.a")) == {}


def test_only_types_of_which_there_is_too_much_are_wanted() -> None:
    trial = using("root.a max=memory:10,gpu:2; root.b", a={"memory": 12, "gpu": 2, "vcore": 9}, b={"memory": 12})
    assert target(trial.queue("root.a")) == {"memory": 2}
    assert target(trial.queue("root.b")) == {}


# Which queues -------------------------------------------------------------------------------------------------------


def test_a_parent_divides_the_amount_by_what_its_children_use_beyond_their_guarantees() -> None:
    queues = "root.p max=memory:1; root.p.a guaranteed=memory:20; root.p.b; root.p.c guaranteed=memory:50; root.p.d"
    trial = using(queues, p_a={"memory": 50}, p_b={"memory": 60}, p_c={"memory": 50})
    divided = [(leaf.name, part) for leaf, part in leaf_targets(trial.queue("root.p"), {"memory": 31})]
    assert divided == [("a", {"memory": 10}), ("b", {"memory": 20})]


def test_the_amount_reaches_the_leaves_level_by_level() -> None:
    trial = using("root.p.q.a; root.p.q.b; root.p.c", p_q_a={"memory": 10}, p_q_b={"memory": 30}, p_c={"memory": 40})
    divided = [(leaf.path, part) for leaf, part in leaf_targets(trial.queue("root.p"), {"memory": 40})]
    assert divided == [("root.p.q.a", {"memory": 5}), ("root.p.q.b", {"memory": 15}), ("root.p.c", {"memory": 20})]


def test_each_type_is_divided_by_itself() -> None:
    trial = using("root.p.a; root.p.b", p_a={"memory": 10, "gpu": 1}, p_b={"memory": 10})
    divided = [(leaf.name, part) for leaf, part in leaf_targets(trial.queue("root.p"), {"memory": 4, "gpu": 1})]
    assert divided == [("a", {"memory": 2, "gpu": 1}), ("b", {"memory": 2})]


def test_a_parent_without_surplus_below_it_has_no_leaves_that_give() -> None:
    trial = using("root.p.a guaranteed=memory:10; root.p.b", p_a={"memory": 10})
    assert list(leaf_targets(trial.queue("root.p"), {"memory": 1})) == []


# Which allocations --------------------------------------------------------------------------------------------------


def test_those_who_did_not_agree_go_first_then_originators() -> None:
    """Vector 13."""
    trial = running("normal victim memory=1", "origin victim originator memory=1", "opted-out memory=1")
    assert order(trial, memory=3) == ["opted-out", "origin", "normal"]


def test_then_those_go_of_which_most_types_are_wanted() -> None:
    trial = running("third victim memory=1 vcore=1 gpu=1", "half victim memory=1 vcore=1", "all victim memory=1")
    assert order(trial, memory=3) == ["all", "half", "third"]


def test_then_the_lowest_priority_then_the_newest_hour_then_the_smallest_goes() -> None:
    trial = running(
        "high victim memory=1 priority=2 created=7200",
        "old victim memory=1 created=3599",
        "large victim memory=3 created=3600",
        "small victim memory=2 created=7199",
        "new victim memory=9 created=7200",
    )
    assert order(trial, memory=9) == ["new", "small", "large", "old", "high"]


def test_size_is_that_of_the_wanted_types_relative_to_the_maximum() -> None:
    trial = running(
        "much-gpu victim memory=10 gpu=3 vcore=1",
        "much-memory victim memory=50 gpu=1 vcore=9",
        maximum="memory:100,gpu:4",
    )
    assert order(trial, memory=1, gpu=1) == ["much-memory", "much-gpu"]


def test_what_has_to_run_on_its_node_or_goes_already_or_has_nothing_of_it_is_no_candidate() -> None:
    trial = running(
        "pinned victim memory=1 required=n1", "going victim memory=1", "gone victim memory=1", "other victim gpu=1"
    )
    trial.partition.allocations["going"].preempted = True
    trial.partition.allocations["gone"].released = True
    assert order(trial, memory=1) == []
    assert order(trial, gpu=1) == ["other"]


def test_applications_of_a_leaf_are_looked_at_together() -> None:
    trial = running("a1 victim memory=2", "a2 victim memory=4").takes(apps("app-2 root.a"))
    trial.takes(asks("app-2 b1 memory=3 victim on=n1"))
    assert order(trial, memory=9) == ["a1", "b1", "a2"]


def test_each_candidate_goes_that_leaves_the_sum_within_the_amount() -> None:
    """Vector 15."""
    trial = running(*(f"{size} victim memory={size}" for size in ("3", "4", "5", "6")))
    ordered = candidates(trial.queue("root.a"), {"memory": 8})
    assert [one.key for one in ordered] == ["3", "4", "5", "6"]
    assert [one.key for one in victims(ordered, {"memory": 8})] == ["3", "4"]
    assert [one.key for one in victims(ordered, {"memory": 5})] == ["3"]
    assert [one.key for one in victims(ordered[::-1], {"memory": 9})] == ["6", "3"]


def test_types_that_are_not_wanted_do_not_keep_a_candidate_from_going() -> None:
    trial = running("a1 victim memory=1 gpu=5")
    ordered = candidates(trial.queue("root.a"), {"memory": 1})
    assert [one.key for one in victims(ordered, {"memory": 1})] == ["a1"]
