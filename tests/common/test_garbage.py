"""When the collector looks for garbage."""

import gc

import pytest

from yunishard.common.process import gc_tuning


def test_none_is_looked_for_while_something_large_is_made_and_then_again() -> None:
    assert gc.isenabled()
    with gc_tuning.pause_collector():
        assert not gc.isenabled()
        with gc_tuning.pause_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_is_looked_for_again_after_an_error() -> None:
    with pytest.raises(ValueError, match="spoiled"), gc_tuning.pause_collector():
        raise ValueError("spoiled")
    assert gc.isenabled()
