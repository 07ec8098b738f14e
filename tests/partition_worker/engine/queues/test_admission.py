"""How many applications may run at once."""

import pytest

from partition_worker.engine.queues.admission import (
    allocating,
    has_opening,
    may_start,
    no_longer_allocating,
    started,
    stopped,
)
from tests.builders import apps
from tests.trial import Trial


def test_no_limit_means_any_number() -> None:
    leaf = Trial("root.a").queue("root.a")
    for _ in range(1000):
        started(leaf)
    assert has_opening(leaf)


def test_every_level_of_the_path_must_have_a_place() -> None:
    trial = Trial("root.p maxapps=2; root.p.a maxapps=1; root.p.b")
    a, b = trial.queue("root.p.a"), trial.queue("root.p.b")
    started(a)
    assert not has_opening(a)
    assert has_opening(b)
    started(b)
    assert not has_opening(b)
    stopped(a)
    assert has_opening(a)
    assert has_opening(b)
    assert [trial.queue(path).running for path in ("root.p.a", "root.p.b", "root.p", "root")] == [0, 1, 1, 1]


def test_one_that_got_something_while_accepted_counts_and_may_go_on() -> None:
    trial = Trial("root.p maxapps=1; root.p.a; root.p.b").takes(apps("app-1 root.p.a", "app-2 root.p.b"))
    one, other = trial.app("app-1"), trial.app("app-2")
    allocating(one.queue, "app-1")
    assert may_start(one.queue, one)
    assert not may_start(other.queue, other)
    assert no_longer_allocating(one.queue, "app-1")
    assert not no_longer_allocating(one.queue, "app-1")
    assert may_start(other.queue, other)


def test_more_cannot_stop_than_have_started() -> None:
    with pytest.raises(AssertionError, match=r"root\.a"):
        stopped(Trial("root.a").queue("root.a"))
