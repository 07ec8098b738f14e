"""When a queue is brought down to its maximum."""

import pytest

from common.resources import Limit
from partition_worker.engine.queues.headroom import (
    NO_QUOTA_PREEMPTION,
    QuotaTerms,
    charge,
    quota_preemption_time,
    start_quota_timers,
)
from tests.builders import nodes
from tests.trial import Trial

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
    charge(a, {"memory": 3})
    assert not start_quota_timers(a, NOW)
    charge(a, {"memory": 3})
    assert start_quota_timers(a, NOW)
    assert (a.quota_preemption_at, parent.quota_preemption_at, root.quota_preemption_at) == (
        NOW + 5,
        NO_QUOTA_PREEMPTION,
        NO_QUOTA_PREEMPTION,
    )
    charge(a, {"memory": 4})
    assert start_quota_timers(a, NOW + 1)
    assert (a.quota_preemption_at, parent.quota_preemption_at) == (NOW + 5, NOW + 6)
    assert not start_quota_timers(a, NOW + 2)


def test_what_grows_sets_no_time_without_a_delay_a_maximum_or_a_configured_queue() -> None:
    delay = "quota.preemption.delay=5s"
    trial = Trial(f"root.a max=memory:1; root.b {delay}; root.c max=memory:1 {delay}")
    trial.queue("root.c").managed = False
    for path in ("root.a", "root.b", "root.c"):
        charge(trial.queue(path), {"memory": 2})
        assert not start_quota_timers(trial.queue(path), NOW)
