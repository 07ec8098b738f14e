"""When the collector looks for garbage."""

import gc
import weakref
from collections.abc import Iterator

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


@pytest.fixture
def _freezes() -> Iterator[None]:
    gc.collect()
    gc_tuning.freeze_survivors()
    yield
    gc.callbacks.remove(gc_tuning.freeze_after_collection)
    gc.unfreeze()


class Node:
    """An object that a cycle can have."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.usefixtures("_freezes")
def test_survivors_of_middle_age_are_never_visited_again_and_young_cycles_are_freed() -> None:
    frozen, old, young = gc.get_freeze_count(), Node(), Node()
    left = weakref.ref(young)
    gc.collect(0)
    del young
    gc.collect(1)
    assert left() is None
    assert gc.get_freeze_count() > frozen
    assert gc.get_objects(generation=2) == []
    assert old.itself is old
