"""Shares, and the keys by which queues and applications are ordered."""

import itertools

import pytest

from tests.builders import nodes
from tests.properties.plain_scheduler import compared, shares
from tests.trial import Trial
from yunishard.common.messages.kinds import Resources
from yunishard.partition_worker.engine.amounts import limit_list, sum_of
from yunishard.partition_worker.engine.queues.queue import (
    descending_shares,
    queue_key,
    refresh_fair_maximum,
    share,
)

SMALL: list[Resources] = [
    {kind: amount for kind, amount in zip(("memory", "gpu"), amounts, strict=True) if amount is not None}
    for amounts in itertools.product((None, 0, 1, 2), repeat=2)
]


def share_of(used: Resources, guaranteed: Resources | None, fair_maximum: Resources) -> float:
    queue = Trial("root.a").queue("root.a")
    queue.guaranteed, queue.fair_maximum = guaranteed, fair_maximum
    return share(sum_of(used), queue.entitlements)


def test_vector_19_the_share_is_that_of_the_dominant_type() -> None:
    used = {"mem": 50, "cpu": 2}
    assert share_of(used, {"mem": 100}, {"mem": 1000, "cpu": 8}) == 0.5
    assert share_of(used, {"mem": 0}, {"mem": 1000, "cpu": 8}) == 1.0


@pytest.mark.parametrize(
    ("allocated", "guaranteed", "fair_maximum", "expected"),
    [
        ({}, None, {"mem": 10}, 0.0),
        ({"mem": 5}, None, {}, 0.0),  # no entitlement to compare with
        ({"mem": 5}, None, {"mem": 10}, 0.5),
        ({"mem": 5}, {"cpu": 1}, {"mem": 10}, 0.5),
        ({"mem": 30}, {"mem": 10}, {"mem": 100}, 3.0),
        ({"mem": 0}, {"mem": 0}, {}, 0.0),
        ({"mem": 1}, None, {"mem": 0}, 1.0),
        ({"mem": -1}, {"mem": 10}, {}, 0.0),
    ],
)
def test_shares(allocated: Resources, guaranteed: Resources | None, fair_maximum: Resources, expected: float) -> None:
    assert share_of(allocated, guaranteed, fair_maximum) == expected


def test_each_maximum_on_the_way_overrides_the_size_of_the_cluster() -> None:
    trial = Trial("root.p max=memory:50; root.p.a max=gpu:1; root.p.b max=memory:70").takes(nodes("n1 memory=90 gpu=4"))
    assert trial.queue("root").fair_maximum == {"memory": 90, "gpu": 4}
    assert trial.queue("root.p").fair_maximum == {"memory": 50, "gpu": 4}
    assert trial.queue("root.p.a").fair_maximum == {"memory": 50, "gpu": 1}
    assert trial.queue("root.p.b").fair_maximum == {"memory": 70, "gpu": 4}


def test_without_a_cluster_there_is_nothing_to_relate_shares_to() -> None:
    trial = Trial("root.a max=memory:50")
    refresh_fair_maximum(trial.queue("root"))
    assert trial.queue("root.a").fair_maximum == {}


def test_priority_comes_before_share_unless_the_parent_turns_it_off() -> None:
    for switch, first in (("enabled", "root.b"), ("disabled", "root.a")):
        trial = Trial(f"root application.sort.priority={switch}; root.a; root.b guaranteed=memory:10")
        a, b = trial.queue("root.a"), trial.queue("root.b")
        a.priorities.exchange(None, 1)
        b.priorities.exchange(None, 2)
        b.allocated_sum = sum_of({"memory": 5})
        assert min((a, b), key=queue_key).path == first


def test_of_equal_queues_the_one_that_waits_for_more_goes_first() -> None:
    trial = Trial("root.a; root.b")
    a, b = trial.queue("root.a"), trial.queue("root.b")
    for mine, other in itertools.product(SMALL, repeat=2):
        a.pending_sum, b.pending_sum = sum_of(mine), sum_of(other)
        differences = [mine.get(kind, 0) - other.get(kind, 0) for kind in ("memory", "gpu")]
        if any(differences) and min(differences) >= 0:
            assert queue_key(a) < queue_key(b), (mine, other)


def test_shares_of_applications_compare_from_the_largest_down() -> None:
    for total in ({}, {"memory": 4}, {"memory": 0, "gpu": 2}):
        for left, right in itertools.product(SMALL, repeat=2):
            expected = compared(shares(left, total), shares(right, total))
            guarantees = limit_list(total)
            mine = descending_shares(sum_of(left), guarantees)
            other = descending_shares(sum_of(right), guarantees)
            assert (mine > other) - (mine < other) == expected, (left, right, total)


def test_without_a_guarantee_applications_compare_by_plain_amounts() -> None:
    assert descending_shares(sum_of({"memory": 3, "gpu": 0, "vcore": 7}), []) == (7.0, 3.0)
