"""Headroom: quota accounting, gang fit, and the start of quota preemption."""

import pytest

from common.resources import Limit
from partition_worker.engine.ask_shapes import amounts_of
from partition_worker.engine.queues.headroom import (
    NO_QUOTA_PREEMPTION,
    QuotaTerms,
    add,
    gang_objection,
    has_room,
    headroom,
    quota_preemption_time,
    start_quota_timers,
    subtract,
)
from tests.builders import nodes
from tests.trial import Trial


def test_without_any_maximum_there_is_no_limit() -> None:
    leaf = Trial("root.p.a").queue("root.p.a")
    assert headroom(leaf) is None
    assert has_room(leaf, amounts_of({"memory": 10**18}))


def test_every_level_counts_and_the_tightest_decides() -> None:
    trial = Trial("root.p max=memory:10,gpu:1; root.p.a max=memory:8; root.p.b").takes(nodes("n1 memory=100 gpu=4"))
    a, b = trial.queue("root.p.a"), trial.queue("root.p.b")
    add(b, "allocated", {"memory": 5})
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
    add(leaf, "allocated", {"memory": 20})
    assert headroom(leaf) == {"memory": -12, "gpu": 1}
    assert not has_room(leaf, amounts_of({"memory": 1}))
    assert has_room(leaf, amounts_of({"memory": 0, "gpu": 1}))


def test_charges_and_expectations_go_up_to_the_root_and_come_back() -> None:
    trial = Trial("root.p.a; root.b")
    leaf, parent, root, other = (trial.queue(path) for path in ("root.p.a", "root.p", "root", "root.b"))
    add(leaf, "allocated", {"memory": 3})
    add(leaf, "pending", {"memory": 2})
    assert [queue.allocated for queue in (leaf, parent, root)] == [{"memory": 3}] * 3
    assert [queue.pending for queue in (leaf, parent, root)] == [{"memory": 2}] * 3
    assert (other.allocated, other.pending) == ({}, {})
    subtract(leaf, "allocated", {"memory": 3})
    subtract(leaf, "pending", {"memory": 2})
    assert [queue.allocated for queue in (leaf, parent, root)] == [{"memory": 0}] * 3
    assert [queue.pending for queue in (leaf, parent, root)] == [{"memory": 0}] * 3


def test_taking_back_more_than_was_charged_is_a_defect() -> None:
    leaf = Trial("root.a").queue("root.a")
    add(leaf, "allocated", {"memory": 3})
    with pytest.raises(AssertionError, match=r"root\.a"):
        subtract(leaf, "allocated", {"memory": 4})
    with pytest.raises(AssertionError, match=r"root\.a"):
        subtract(leaf, "pending", {"memory": 1})


# Gang -----------------------------------------------------------------------------------------------------------------


def objections(queues: str, **gang: int) -> str:
    return gang_objection(Trial(queues).queue("root.a.b"), "app-1", gang)


def test_without_placeholders_any_leaf_will_do() -> None:
    fair = "root.a.b application.sort.policy=fair max=memory:1"
    assert objections(fair) == ""
    assert objections(fair, memory=0) == ""
    assert objections(fair, memory=10, vcore=-1) == ""


def test_the_leaf_is_sorted_first_in_first_out() -> None:
    assert objections("root.a.b", memory=10) == ""
    assert objections("root.a.b application.sort.policy=stateaware", memory=10) == ""
    assert objections("root.a.b application.sort.policy=fair", memory=10) == (
        "queue root.a.b cannot run application app-1 with task group request: unsupported sort type"
    )


@pytest.mark.parametrize(
    ("queues", "most"),
    [
        ("root.a.b max=memory:9", "map[memory:9]"),
        ("root.a max=memory:9; root.a.b", "map[memory:9]"),
        ("root.a max=memory:9,gpu:4; root.a.b max=memory:20,gpu:5", "map[gpu:4 memory:9]"),
    ],
)
def test_it_fits_what_the_queues_of_the_path_may_ever_have(queues: str, most: str) -> None:
    assert objections(queues, memory=9, vcore=100) == ""
    assert objections(queues, memory=10, vcore=100) == (
        "queue root.a.b cannot fit application app-1: "
        f"task group request map[memory:10 vcore:100] larger than max queue allocation {most}"
    )


# Quota timing ---------------------------------------------------------------------------------------------------------


NOW = 1000.0


def at(before: QuotaTerms, after: QuotaTerms, used: int, was: float = NO_QUOTA_PREEMPTION) -> float:
    return quota_preemption_time(before, after, allocated={"memory": used}, at=was, now=NOW)


def terms(maximum: int | None, delay_s: float = 5.0) -> QuotaTerms:
    return QuotaTerms(None if maximum is None else {"memory": maximum}, delay_s)


# Vector 14 ----------------------------------------------------------------------------------------------------------


def test_a_first_maximum_below_what_is_used_sets_no_time() -> None:
    assert at(terms(None), terms(50), used=100) == NO_QUOTA_PREEMPTION


def test_a_lowered_maximum_sets_the_time_and_lowering_it_again_leaves_it() -> None:
    assert at(terms(100), terms(10), used=110) == NOW + 5
    assert at(terms(10), terms(5), used=110, was=990.0) == 990.0


def test_a_maximum_above_what_is_used_clears_the_time() -> None:
    assert at(terms(10), terms(100), used=90, was=990.0) == NO_QUOTA_PREEMPTION
    assert at(terms(10), terms(90), used=90, was=990.0) == NO_QUOTA_PREEMPTION


# The other rules ----------------------------------------------------------------------------------------------------


def test_without_a_delay_or_a_maximum_there_is_no_time() -> None:
    assert at(terms(100), terms(10, delay_s=0), used=110, was=990.0) == NO_QUOTA_PREEMPTION
    assert at(terms(100), terms(None), used=110, was=990.0) == NO_QUOTA_PREEMPTION


@pytest.mark.parametrize("maximum", [10, 5, 20])
def test_another_delay_moves_the_time_by_the_difference(maximum: int) -> None:
    assert at(terms(10), terms(maximum, delay_s=7), used=110, was=990.0) == 992.0
    assert at(terms(10), terms(maximum, delay_s=1), used=110, was=990.0) == 986.0


def test_the_same_maximum_sets_the_time_only_when_there_was_no_delay_before() -> None:
    assert at(terms(10, delay_s=0), terms(10), used=110) == NOW + 5
    assert at(terms(10, delay_s=3), terms(10), used=110) == NO_QUOTA_PREEMPTION


def test_a_raised_maximum_sets_no_time_even_if_more_is_used() -> None:
    assert at(terms(10, delay_s=0), terms(20), used=110) == NO_QUOTA_PREEMPTION


@pytest.mark.parametrize("was", [NO_QUOTA_PREEMPTION, 990.0])
def test_a_change_in_both_directions_changes_nothing(was: float) -> None:
    before, after = QuotaTerms({"memory": 100, "gpu": 1}, 5.0), QuotaTerms({"memory": 10, "gpu": 2}, 50.0)
    assert quota_preemption_time(before, after, allocated={"memory": 110}, at=was, now=NOW) == was


@pytest.mark.parametrize(
    ("maximum", "expected"),
    [
        ({"memory": 100}, NOW + 5),
        ({"memory": 100, "gpu": 1, "vcore": 1}, NO_QUOTA_PREEMPTION),
        ({"gpu": 0, "memory": 99}, NOW + 5),
    ],
)
def test_a_type_that_is_no_longer_limited_counts_as_lowered_to_nothing(maximum: Limit, expected: float) -> None:
    """Spec 5.4: maxima are compared with 0 for a missing type."""
    before = QuotaTerms({"memory": 100, "gpu": 1}, 5.0)
    assert (
        quota_preemption_time(
            before, QuotaTerms(maximum, 5.0), allocated={"memory": 101}, at=NO_QUOTA_PREEMPTION, now=NOW
        )
        == expected
    )


def test_what_grows_unchecked_sets_the_time_of_each_level_that_exceeds_its_maximum_now() -> None:
    queues = "root.p max=memory:9 quota.preemption.delay=5s; root.p.a max=memory:3; root.p.b max=memory:3"
    trial = Trial(queues).takes(nodes("n1 memory=100"))
    parent, a, root = trial.queue("root.p"), trial.queue("root.p.a"), trial.queue("root")
    add(a, "allocated", {"memory": 3})
    assert not start_quota_timers(a, NOW)
    add(a, "allocated", {"memory": 3})
    assert start_quota_timers(a, NOW)
    assert (a.quota_preemption_at, parent.quota_preemption_at, root.quota_preemption_at) == (
        NOW + 5,
        NO_QUOTA_PREEMPTION,
        NO_QUOTA_PREEMPTION,
    )
    add(a, "allocated", {"memory": 4})
    assert start_quota_timers(a, NOW + 1)
    assert (a.quota_preemption_at, parent.quota_preemption_at) == (NOW + 5, NOW + 6)
    assert not start_quota_timers(a, NOW + 2)


def test_what_grows_sets_no_time_without_a_delay_a_maximum_or_a_configured_queue() -> None:
    delay = "quota.preemption.delay=5s"
    trial = Trial(f"root.a max=memory:1; root.b {delay}; root.c max=memory:1 {delay}")
    trial.queue("root.c").managed = False
    for path in ("root.a", "root.b", "root.c"):
        add(trial.queue(path), "allocated", {"memory": 2})
        assert not start_quota_timers(trial.queue(path), NOW)
