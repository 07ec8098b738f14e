"""The curves of a report: exact averages, shares of jobs, and few enough points and queues to draw."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulator.sample_runs import write_run, write_sample_run
from yunishard.workloads.simulator.report_data import (
    ALL,
    DISTRIBUTION_POINTS,
    POINTS_MAX,
    QUEUES_MAX,
    QUEUES_TOGETHER_MAX,
    average,
    build_data,
    choose_compared,
    choose_queues,
    compute_distribution,
    look_up,
)
from yunishard.workloads.simulator.run_folder import Run, load_run


def test_averages_of_finer_coarser_and_equal_intervals() -> None:
    assert average([1, 3, 5, 7], 40, [0, 20], 20) == [2, 6]
    assert average([1, 3], 40, [0, 10, 20, 30], 10) == [1, 1, 3, 3]
    assert average([0, 9, 0], 30, [0, 15], 15) == [3, 3]


def test_a_run_that_ends_earlier_has_no_value_after_its_end() -> None:
    assert average([1, 3], 20, [0, 10, 20, 30], 10) == [1, 3, None, None]
    assert look_up([1.0, None], 20, [0, 10, 20, 30]) == [1, None, None, None]
    assert average([], 20, [0, 10], 10) == look_up([], 20, [0, 10]) == [None, None]


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=60), st.integers(1, 40))
def test_averages_keep_the_total(values: list[float], points: int) -> None:
    span = 720.0
    step = span / points
    means = average(values, span, [step * number for number in range(points)], step)
    total = sum(value for value in means if value is not None) * step
    assert total == pytest.approx(sum(values) * span / len(values), rel=1e-4, abs=1e-6)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40))
def test_a_distribution_grows_to_all(values: list[float]) -> None:
    curve = compute_distribution(sorted(values), [1, 10, 100, 1e6])
    shares = [share for share in curve if share is not None]
    assert shares == sorted(shares)
    assert shares[-1] == 1


def row(name: str, queue: str, submit: float, start: float, end: float) -> dict[str, object]:
    wait = start - submit
    times = {"submit": submit, "start": start, "end": end, "wait": wait, "run_time": end - start}
    return {"job": name, "user": "ann", "queue": queue, **times, "bounded_slowdown": 1 + wait / 10}


def usage(queue: str, used: float, *, guaranteed: object = "", time: float = 0) -> dict[str, object]:
    return {"time": time, "queue": queue, "resource": "vcore", "used": used, "pending": 0, "guaranteed": guaranteed}


def read(folder: Path, *rows: dict[str, object], use: list[dict[str, object]]) -> Run:
    return load_run(write_run(folder, rows=rows, usage=use))


def test_jobs_wait_and_run_between_their_times(tmp_path: Path) -> None:
    jobs = [row("a", "root.a", 0, 25, 75), row("b", "root.a", 50, 50, 100)]
    data = build_data([read(tmp_path, *jobs, use=[usage("root", 1, time=time) for time in (0, 25, 50, 75)])])
    assert data["times"] == [0, 25, 50, 75]
    assert data["jobs"] == [{"waiting": [1, 0, 0, 0], "running": [0, 1, 2, 1]}]


def test_waits_of_a_queue_include_those_below_it(tmp_path: Path) -> None:
    jobs = [row("a", "root.a.x", 0, 5, 10), row("b", "root.a.y", 0, 50, 60), row("c", "root.b", 0, 500, 600)]
    use = [usage(queue, 1) for queue in ("root", "root.a", "root.a.x", "root.b")]
    waits = build_data([read(tmp_path, *jobs, use=use)])["waits"]
    curves = waits["runs"][0]
    assert waits["values"][0] == 1
    assert waits["values"][-1] == 500
    below_60 = sum(value < 60 for value in waits["values"]) - 1
    assert (curves[ALL][below_60], curves["root"][below_60]) == (0.666667, 0.666667)
    assert (curves["root.a"][below_60], curves["root.a.x"][below_60], curves["root.b"][below_60]) == (1, 1, 0)
    assert len(waits["values"]) == DISTRIBUTION_POINTS


def test_a_constant_curve_is_one_value_and_an_empty_one_is_left_out(tmp_path: Path) -> None:
    use = [usage("root", used, guaranteed=7, time=time) for time, used in ((0, 1), (50, 2))]
    curves = build_data([read(tmp_path, use=use)])["usage"][0]["root"]["vcore"]
    assert curves == {"used": [1, 2], "pending": [0], "guaranteed": [7]}


def test_of_many_queues_the_guaranteed_and_the_busiest_are_offered(tmp_path: Path) -> None:
    use = [usage(f"root.q{number:02}", number) for number in range(QUEUES_MAX + 10)]
    run = read(tmp_path, use=[usage("root", 1000), *use, usage("root.idle", 0, guaranteed=5)])
    queues = choose_queues([run])
    assert queues[:3] == ["root", "root.idle", "root.q39"]
    assert len(queues) == QUEUES_MAX
    assert "root.q05" not in queues
    assert choose_compared(queues, [run]) == ["root.idle"]


def test_without_guarantees_the_busiest_queues_below_the_root_are_compared(tmp_path: Path) -> None:
    use = [usage("root", 99), *(usage(f"root.q{number:02}", number) for number in range(12)), usage("root.q00.x", 50)]
    run = read(tmp_path, use=use)
    assert choose_compared(choose_queues([run]), [run]) == [f"root.q{number:02}" for number in range(4, 12)]
    assert QUEUES_TOGETHER_MAX == 8


def test_long_runs_have_a_bounded_number_of_points(tmp_path: Path) -> None:
    use = [usage("root", 1, time=time) for time in range(2 * POINTS_MAX)]
    run = load_run(write_run(tmp_path, usage=use, span=2 * POINTS_MAX))
    assert len(build_data([run])["times"]) == POINTS_MAX


def test_runs_of_different_length_share_the_axis_of_the_longest(tmp_path: Path) -> None:
    runs = [load_run(write_sample_run(tmp_path / str(cores), cores=cores)) for cores in (16, 24)]
    data = build_data(runs)
    curves = [one["root"]["vcore"]["used"] for one in data["usage"]]
    assert len(curves[0]) == len(curves[1]) == len(data["times"]) == 200
    assert curves[0][-1] is not None
    assert curves[1][-1] is None


def test_no_run_has_to_have_anything(tmp_path: Path) -> None:
    data = build_data([load_run(write_run(tmp_path, span=0))])
    assert (data["queues"], data["compared"]) == ([], [])
