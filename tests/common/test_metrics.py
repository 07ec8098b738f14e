"""What one process tells is what another reads."""

import pytest

from yunishard.common.process.metrics import (
    BOUNDS_S,
    Histogram,
    counter,
    decode_families,
    distribution,
    encode_families,
    gauge,
)


def test_what_is_told_is_read_again() -> None:
    took = Histogram((0.5, 1.0))
    took.observe(0.7)
    told = [
        counter("a_total", "About a.", ("state",), [(("on",), 3.0)]),
        gauge("b", "About b.", (), [((), 0.5)]),
        distribution("c_seconds", "About c.", ("what",), [(("x",), took)]),
        distribution("d_seconds", "Nothing yet.", (), []),
    ]
    assert decode_families(encode_families(told)) == told
    assert (told[2].bounds, told[2].distributions) == ((0.5, 1.0), [(("x",), [0, 1, 0], 0.7)])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'[{"name":"a","kind":"summary","help":"","labels":[],"samples":[]}]',
        b'[{"name":"a","kind":"gauge","help":"","labels":["x"],"samples":[[[],1]]}]',
        b'[{"name":"a","kind":"histogram","help":"","labels":[],"samples":[],"distributions":[[["x"],[1],1]]}]',
        b'[{"name":"a","kind":"histogram","help":"","labels":[],"samples":[],"distributions":[[[],[1,2],1]]}]',
    ],
)
def test_what_is_no_list_of_families_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the text is msgspec's
        decode_families(body)


# Durations are counted in buckets -------------------------------------------------------------------------------------


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
