"""What has to hold is said line by line."""

from benchmarks.growth import Point, points
from benchmarks.must import GROWTH, RATIOS, growth, verdicts
from benchmarks.results import Plan
from tests.benchmarks.fake import fake

TINY = Plan(share=0.002, rounds=1)


def test_each_ratio_each_latency_and_each_curve_is_looked_at() -> None:
    found = list(verdicts(TINY._replace(reference=fake), fake))
    named = [one.what for one in found]
    assert [what.partition(",")[0] for what in named[: len(RATIOS)]] == list(RATIOS)
    assert sum(what.startswith("latency") for what in named) == 2
    assert len(named) == len(RATIOS) + 2 + len(list(points(ends=True))) // 2


def test_without_the_reference_only_growth_is_looked_at() -> None:
    found = list(verdicts(TINY, fake))
    assert len(found) == len(list(points(ends=True))) // 2


def test_a_curve_that_falls_by_more_than_it_may_fails() -> None:
    def rate(point: Point) -> float:
        slow = point.sorting == "binpacking" and point.room == "full" and point.at > 10_000
        return 70.0 if slow else 100.0

    failed = [one.what for one in growth(rate, 1) if not one.holds]
    assert failed == ["binpacking, full: 100,000 asks", "binpacking, full: 20,000 nodes"]
    assert all(least > 0.70 for least in GROWTH.values())


def test_a_machine_that_becomes_slower_makes_no_curve_fall() -> None:
    speed = 100.0

    def rate(_: Point) -> float:
        nonlocal speed
        speed *= 0.95
        return speed

    assert all(one.holds for one in growth(rate, 5))


def test_two_slow_rounds_of_five_make_no_curve_fall() -> None:
    rounds = 0

    def rate(point: Point) -> float:
        nonlocal rounds
        rounds += 1
        return 10.0 if rounds % 10 in (4, 6) else 100.0

    assert all(one.holds for one in growth(rate, 5))


def test_a_verdict_is_a_line() -> None:
    line = str(next(growth(lambda point: 100.0 if point.at <= 10_000 else 50.0, 1)))
    said = "FAIL fair, empty: 100,000 asks at least 0.80 0.50 (100 and 50 allocations/s)"
    assert " ".join(line.split()) == said
