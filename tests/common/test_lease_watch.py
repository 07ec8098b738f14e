"""Watching a lease: it ends by the elapsed time of the process that watches."""

import pytest

from common.lease_watch import LEFT_MAX, RELEASED, LeaseWatch

DURATION_S = 6.0
HOUR_S = 3600.0


def watch(*observations: tuple[float, float, float]) -> LeaseWatch:
    """After observations at these times: `expires`, and what is left by the clock of the database."""
    found = LeaseWatch(DURATION_S)
    for at, expires, left_s in observations:
        found.observe(expires, left_s, at - 0.5, at)
    return found


@pytest.mark.parametrize(
    ("observations", "ends"),
    [
        pytest.param([(100.0, 1.0, 5.0)], 106.0, id="seen first: the clock of the database decides nothing"),
        pytest.param([(100.0, 1.0, 5.0), (102.0, 1.0, 3.0)], 106.0, id="not renewed"),
        pytest.param([(100.0, 1.0, 5.0), (102.0, 2.0, 5.5)], 107.5, id="renewed half a second ago"),
        pytest.param([(100.0, 1.0, 5.0), (102.0, 2.0, -HOUR_S)], 105.5, id="renewed, and the clock jumps forwards"),
        pytest.param(
            [(100.0, 1.0, 5.0), (102.0, 2.0, HOUR_S)],
            102.0 + LEFT_MAX * DURATION_S,
            id="renewed, and the clock jumps backwards",
        ),
        pytest.param([(100.0, 1.0, 5.0), (102.0, 2.0, 20.0)], 122.0, id="the holder's lease is longer than ours"),
        pytest.param([(100.0, 1.0, 5.0), (103.0, 1.0, -HOUR_S)], 106.0, id="the clock jumps without a renewal"),
        pytest.param([(100.0, 1.0, 5.0), (103.0, RELEASED, -HOUR_S)], 103.0, id="released"),
        pytest.param([(100.0, RELEASED, -HOUR_S)], 100.0, id="never held"),
        pytest.param([(100.0, RELEASED, -HOUR_S), (102.0, 1.0, 6.0)], 108.0, id="acquired after a release"),
    ],
)
def test_a_lease_ends_a_duration_after_its_renewal(observations: list[tuple[float, float, float]], ends: float) -> None:
    found = watch(*observations)
    assert found.ends == pytest.approx(ends)
    assert found.find_ended(ends - 0.01) is None
    assert found.find_ended(ends + 0.01) == observations[-1][1]


def test_a_lease_that_was_not_seen_has_not_ended() -> None:
    assert LeaseWatch(DURATION_S).find_ended(1e9) is None


def test_only_a_renewal_between_two_looks_proves_that_the_holder_lives() -> None:
    looks = [(100.0, 1.0, 5.0), (102.0, 1.0, 3.0), (104.0, 2.0, 5.0)]
    assert [watch(*looks[:count]).is_renewed for count in (1, 2, 3)] == [False, False, True]
    assert not watch((100.0, RELEASED, 0.0), (102.0, 1.0, 6.0)).is_renewed, "it was acquired, and not renewed yet"
