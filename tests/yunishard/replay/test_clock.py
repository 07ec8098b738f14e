"""Log time stands until it is started and then runs at its speed; rates are over the last seconds only."""

from yunishard.replay.clock import Clock, Rate


def test_the_clock_stands_at_zero_until_it_is_started_once() -> None:
    clock = Clock(speed=100.0)
    assert clock.log_s(50.0) == 0.0
    clock.start(50.0)
    clock.start(52.0)
    assert clock.elapsed_s(53.0) == 3.0
    assert clock.log_s(53.0) == 300.0


def test_a_rate_forgets_what_is_long_ago() -> None:
    rate = Rate()
    assert rate.per_second(0.0, 0) == 0.0
    assert rate.per_second(1.0, 100) == 100.0
    for second in range(2, 10):
        steady = rate.per_second(float(second), 100 + 10 * (second - 1))
    assert steady == 10.0
