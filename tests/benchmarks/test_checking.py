"""A regression is found, once it was measured twice, and said in a line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import __main__ as program
from benchmarks.checking import absent, checked, regressions
from benchmarks.results import Benchmark, Figure, Machine, Plan, Results, read, write

HERE = Machine("a processor", 2, "3.11.7")
TINY = Plan(share=0.01, rounds=1)


def figure(cost: float | None, name: str = "engine/two-queues") -> Figure:
    return Figure(name, 20_000.0, "allocations/s", cost)


def committed(*figures: Figure) -> Results:
    return Results(HERE, list(figures))


def quiet(text: str) -> None:
    """For who does not want to know how far it is."""


class Scripted:
    """A benchmark that finds what it is told to, and remembers the plans."""

    def __init__(self, *costs: float) -> None:
        self._costs = iter(costs)
        self.plans: list[Plan] = []

    def measured(self, plan: Plan) -> Iterator[Figure]:
        self.plans.append(plan)
        yield figure(next(self._costs))

    @property
    def benchmark(self) -> Benchmark:
        return Benchmark("engine", "", self.measured, judged=True)


@pytest.mark.parametrize(("cost", "worse"), [(5.0, False), (10.0, False), (11.9, False), (12.1, True), (30.0, True)])
def test_a_cost_may_grow_by_a_fifth(cost: float, *, worse: bool) -> None:
    assert bool(regressions(committed(figure(10.0)), [figure(cost)])) is worse


def test_the_line_says_what_how_much_and_where_to_look() -> None:
    [line] = regressions(committed(figure(10.0)), [figure(13.0)])
    assert line == (
        "engine/two-queues: costs +30 % (at most +20 %), 10 committed, 13 now: 2e+04 allocations/s; "
        "look closer: python -m benchmarks engine"
    )


def test_what_has_no_cost_is_not_judged() -> None:
    assert regressions(committed(figure(None)), [figure(99.0)]) == []
    assert regressions(committed(figure(1.0)), [figure(None)]) == []


def test_what_is_worse_at_first_is_measured_once_more_with_more_rounds() -> None:
    script = Scripted(13.0, 10.5)
    found, complaints = checked([script.benchmark], committed(figure(10.0)), TINY, quiet)
    assert complaints == []
    assert [one.cost for one in found] == [10.5]
    assert [plan.rounds for plan in script.plans] == [1, 2]


def test_what_is_worse_twice_is_a_regression_with_the_better_of_the_two() -> None:
    _, complaints = checked([Scripted(14.0, 13.0).benchmark], committed(figure(10.0)), TINY, quiet)
    assert [line.partition(",")[0] for line in complaints] == ["engine/two-queues: costs +30 % (at most +20 %)"]


def test_what_is_well_is_measured_once() -> None:
    script = Scripted(10.0)
    assert checked([script.benchmark], committed(figure(10.0)), TINY, quiet)[1] == []
    assert len(script.plans) == 1


def test_what_is_judged_on_one_side_only_is_named() -> None:
    was = committed(figure(10.0, "engine/old"), figure(10.0, "memory/ask"), figure(None, "engine/rate"))
    assert absent(was, [figure(10.0, "engine/new")], ["engine"]) == [
        "engine/old: committed, but not measured any more; python -m benchmarks --update engine",
        "engine/new: measured, but not committed yet; python -m benchmarks --update engine",
    ]


def test_the_check_fails_on_an_engine_that_is_slower_than_committed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real benchmark of real code, against figures that were made a tenth of what they are."""
    measured, doctored = tmp_path / "measured.json", tmp_path / "doctored.json"
    assert program.main(["preemption", "--rounds", "1", "--json", str(measured)]) == 0
    now = read(measured)
    [one] = now.figures
    assert one.cost is not None

    def check(cost: float) -> int:
        write(doctored, Results(now.machine, [Figure(one.name, one.value, one.unit, cost)]))
        return program.main(["preemption", "--rounds", "1", "--check", "--committed", str(doctored)])

    assert check(one.cost * 3) == 0
    capsys.readouterr()
    assert check(one.cost / 10) == 1
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("preemption/decision")]
    assert "look closer: python -m benchmarks preemption" in line
