"""How many applications may run at once."""

import pytest

from partition_worker.engine.queues.admission import may_start, started, stopped
from tests.trial import Trial


def test_no_limit_means_any_number() -> None:
    leaf = Trial("root.a").queue("root.a")
    for _ in range(1000):
        started(leaf)
    assert may_start(leaf)


def test_every_level_of_the_path_must_have_a_place() -> None:
    trial = Trial("root.p maxapps=2; root.p.a maxapps=1; root.p.b")
    a, b = trial.queue("root.p.a"), trial.queue("root.p.b")
    started(a)
    assert not may_start(a)
    assert may_start(b)
    started(b)
    assert not may_start(b)
    stopped(a)
    assert may_start(a)
    assert may_start(b)
    assert [trial.queue(path).running for path in ("root.p.a", "root.p.b", "root.p", "root")] == [0, 1, 1, 1]


def test_more_cannot_stop_than_have_started() -> None:
    with pytest.raises(AssertionError, match=r"root\.a"):
        stopped(Trial("root.a").queue("root.a"))
