"""Watching a lease: it ends by the elapsed time of the process that watches."""

import pytest

from yunishard.common.lease_watch import LEFT_MAX, RELEASED, LeaseWatch

DURATION_S = HOLDERS_S = 6.0
HOUR_S = 3600.0


def watch(*observations: tuple[float, float], jumps_s: float = 0.0) -> LeaseWatch:
    """After observations at these times of a lease that was last renewed at those times, or released at RELEASED. The
    clock of the database has jumped before the last one.
    """
    found = LeaseWatch(DURATION_S)
    for number, (at, renewed_at) in enumerate(observations, 1):
        jump_s = jumps_s if number == len(observations) else 0.0
        expires = renewed_at and renewed_at + HOLDERS_S
        found.observe(expires, expires - (at + jump_s), at - 0.5, at)
    return found


@pytest.mark.parametrize(
    ("observations", "jumps_s", "left_s"),
    [
        pytest.param([(100, 99)], 0, 6, id="seen first: the clock of the database decides nothing"),
        pytest.param([(100, 99), (102, 99)], 0, 4, id="not renewed"),
        pytest.param([(100, 99), (102, 101.5)], 0, 5.5, id="renewed half a second ago"),
        pytest.param([(100, 99), (112, 111)], 0, 5, id="renewed, and looked at late"),
        pytest.param([(100, 99), (102, 101)], HOUR_S, 6, id="renewed, and the clock jumps forwards"),
        pytest.param([(100, 99), (112, 111)], 8, 6, id="renewed, looked at late, and another server has the clock"),
        pytest.param([(100, 99), (102, 101)], -HOUR_S, LEFT_MAX * 6, id="renewed, and the clock jumps backwards"),
        pytest.param([(100, 99), (102, 101 - HOUR_S)], 0, 6, id="renewed while the clock was an hour behind"),
        pytest.param([(100, 99), (102, 115)], 0, 19, id="the holder's lease is longer than ours"),
        pytest.param([(100, 99), (103, 99)], HOUR_S, 3, id="the clock jumps without a renewal"),
        pytest.param([(100, 99), (103, RELEASED)], HOUR_S, 0, id="released"),
        pytest.param([(100, RELEASED)], 0, 0, id="never held"),
        pytest.param([(100, RELEASED), (102, 101)], 0, 6, id="acquired after a release"),
    ],
)
def test_a_lease_ends_a_duration_after_its_renewal(
    observations: list[tuple[float, float]], jumps_s: float, left_s: float
) -> None:
    found = watch(*observations, jumps_s=jumps_s)
    ends = observations[-1][0] + left_s
    assert found.ends == pytest.approx(ends)
    assert found.find_ended(ends - 0.01) is None
    assert found.find_ended(ends + 0.01) is not None


def test_a_lease_that_was_not_seen_has_not_ended() -> None:
    assert LeaseWatch(DURATION_S).find_ended(1e9) is None


def test_only_a_renewal_between_two_looks_proves_that_the_holder_lives() -> None:
    looks = [(100, 99), (102, 99), (104, 103)]
    assert [watch(*looks[:count]).is_renewed for count in (1, 2, 3)] == [False, False, True]
    assert not watch((100, RELEASED), (102, 101)).is_renewed, "it was acquired, and not renewed yet"
