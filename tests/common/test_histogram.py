"""Durations are counted in buckets."""

import pytest

from common.metrics import BOUNDS_S, Histogram


def test_a_histogram_begins_empty() -> None:
    assert (Histogram().counts, Histogram().sum_s) == ([0] * 9, 0.0)


@pytest.mark.parametrize(("index", "bound"), list(enumerate(BOUNDS_S)))
def test_a_bound_belongs_to_its_bucket(index: int, bound: float) -> None:
    histogram = Histogram()
    histogram.observe(bound)
    histogram.observe(bound * 1.01)
    assert (histogram.counts[index], histogram.counts[index + 1], sum(histogram.counts)) == (1, 1, 2)


def test_what_takes_no_time_is_in_the_first_bucket_and_what_takes_for_ever_in_the_last() -> None:
    histogram = Histogram()
    histogram.observe(0.0)
    histogram.observe(1e6)
    assert (histogram.counts[0], histogram.counts[-1], histogram.sum_s) == (1, 1, 1e6)
