"""How many applications may run at once."""

import pytest

from partition_worker.engine.queues.queue import (
    count_allocating,
    count_running,
    discount_allocating,
    discount_running,
    has_opening,
    may_start,
)
from tests.builders import apps
from tests.trial import Trial


def test_no_limit_means_any_number() -> None:
    leaf = Trial("root.a").queue("root.a")
    for _ in range(1000):
        count_running(leaf)
    assert has_opening(leaf)


def test_every_level_of_the_path_must_have_a_place() -> None:
    trial = Trial("root.p maxapps=2; root.p.a maxapps=1; root.p.b")
    a, b = trial.queue("root.p.a"), trial.queue("root.p.b")
    count_running(a)
    assert not has_opening(a)
    assert has_opening(b)
    count_running(b)
    assert not has_opening(b)
    discount_running(a)
    assert has_opening(a)
    assert has_opening(b)
    assert [trial.queue(path).running for path in ("root.p.a", "root.p.b", "root.p", "root")] == [0, 1, 1, 1]


def test_one_that_got_something_while_accepted_counts_and_may_go_on() -> None:
    trial = Trial("root.p maxapps=1; root.p.a; root.p.b").takes(apps("app-1 root.p.a", "app-2 root.p.b"))
    one, other = trial.app("app-1"), trial.app("app-2")
    count_allocating(one.queue, "app-1")
    assert may_start(one.queue, one.application_id)
    assert not may_start(other.queue, other.application_id)
    assert discount_allocating(one.queue, "app-1")
    assert not discount_allocating(one.queue, "app-1")
    assert may_start(other.queue, other.application_id)


def test_more_cannot_stop_than_have_started() -> None:
    with pytest.raises(AssertionError, match=r"root\.a"):
        discount_running(Trial("root.a").queue("root.a"))
