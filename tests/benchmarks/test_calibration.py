"""The loop is always the same, and leaves the interpreter as it was."""

import gc

from benchmarks.calibration import as_in_a_worker, loop, unit_s
from common.garbage import YOUNG_OBJECTS


def test_the_loop_is_the_one_with_which_the_committed_figures_were_made() -> None:
    """If this fails, the loop was changed, and every figure has to be measured again."""
    assert loop(2_000) == loop(2_000) == 20_221


def test_a_step_takes_some_time() -> None:
    assert 0 < unit_s() < 1e-3


def test_garbage_is_collected_as_in_a_worker_and_then_as_before() -> None:
    before = gc.get_threshold()
    with as_in_a_worker():
        assert gc.get_threshold()[0] == YOUNG_OBJECTS
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
