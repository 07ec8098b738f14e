"""Restart delays."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from yunishard.common.restart_delay import FIRST_S, LONGEST_S, STEADY_S, RestartDelay


def test_pauses_double_up_to_the_longest() -> None:
    restarts = RestartDelay()
    pauses = [restarts.next_delay(lifetime_s=1.0) for _ in range(10)]
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


def test_a_process_that_lived_long_enough_starts_at_once_and_is_well_again() -> None:
    restarts = RestartDelay()
    for _ in range(5):
        restarts.next_delay(lifetime_s=STEADY_S - 0.1)
    assert restarts.next_delay(lifetime_s=STEADY_S) == 0.0
    assert restarts.next_delay(lifetime_s=1.0) == FIRST_S
    assert restarts.next_delay(lifetime_s=1.0) == 2 * FIRST_S


@given(st.lists(st.floats(min_value=0, max_value=1e9)))
def test_every_pause_is_between_the_bounds_and_none_shrinks_without_a_long_life(lives: list[float]) -> None:
    restarts = RestartDelay()
    pauses = [restarts.next_delay(life) for life in lives]
    for life, pause in zip(lives, pauses, strict=True):
        assert pause == 0.0 if life >= STEADY_S else FIRST_S <= pause <= LONGEST_S
    for (before, after), life in zip(itertools.pairwise(pauses), lives[1:], strict=False):
        assert after >= before or life >= STEADY_S
