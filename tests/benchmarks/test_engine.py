"""What is measured is what the table says."""

import pytest

from benchmarks.engine import EVERY, Engine, Round, Rounds, figures, main, measured
from benchmarks.results import Plan
from benchmarks.shapes import churn, two_queues

TINY = Plan(share=0.01, rounds=1)


def test_every_shape_is_measured_and_judged() -> None:
    found = list(figures(TINY))
    assert [one.name for one in found] == [f"engine/{name}" for name in EVERY]
    assert all(one.value > 0 and one.cost for one in found)


def test_of_several_rounds_the_best_counts_as_rate_and_the_median_as_cost() -> None:
    rounds = Rounds([Round(20.0, 7.0), Round(10.0, 3.0), Round(40.0, 4.0)])
    assert rounds.per_second == 100_000
    assert rounds.units_per_allocation == 4.0


def test_there_are_as_many_rounds_as_asked_for() -> None:
    assert len(measured(two_queues(5, 20), 2).rounds) == 2


def test_where_the_cluster_is_full_as_many_get_in_as_end() -> None:
    engine = Engine(churn(10, 120))
    before = dict(engine.running)
    assert engine.run() > 0
    assert engine.partition.running_allocations == len(before) == 50
    assert not before.keys() & engine.running.keys()


def test_the_table_has_a_line_for_each_shape_that_was_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["two-queues", "churn", "--nodes", "5", "--asks", "20", "--rounds", "1"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["two-queues", "churn"]


def test_a_shape_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["three-queues"])
    assert "there is no three-queues" in capsys.readouterr().err
