"""The figures of a run, against values computed by hand and properties that hold for all runs."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulator.sample_runs import write_run, write_sample_run
from yunishard.workloads.simulator.run_folder import SimulatedJob, UsageSeries, load_run
from yunishard.workloads.simulator.summary import (
    compute_jain_index,
    find_percentile,
    list_figures,
    print_summaries,
    summarize,
    summarize_jobs,
    summarize_share,
)

SPAN = 100.0


def job(
    name: str, submit: float, start: float | None, run_time: float, *, user: str = "ann", lost: float = 0
) -> SimulatedJob:
    """A job of a second run time or more; without a start it is unfinished."""
    wait = None if start is None else start - submit
    return SimulatedJob(
        job=name,
        user=user,
        queue=f"root.{user}",
        submit=submit,
        start=start,
        end=None if start is None else start + run_time + lost,
        wait=wait,
        run_time=run_time,
        slowdown=None if wait is None else max(1.0, (wait + run_time) / max(10, run_time)),
        tasks=1,
        state="unfinished" if start is None else "completed",
        preemptions=int(lost > 0),
        lost=lost,
    )


def test_waits_and_slowdown_of_three_jobs() -> None:
    figures = summarize_jobs("all", [job("a", 0, 0, 20), job("b", 0, 20, 20), job("c", 10, 40, 5)], SPAN)
    assert (figures.wait_mean, figures.wait_median, figures.wait_p95, figures.wait_max) == (50 / 3, 20, 30, 30)
    # (0 + 20) / 20, (20 + 20) / 20, (30 + 5) / 10: a job of 5 s counts as one of 10 s
    assert (figures.slowdown_mean, figures.slowdown_median) == (pytest.approx(6.5 / 3), 2)
    # 45 s of work in 20 + 40 + 35 s
    assert figures.service == pytest.approx(45 / 95)


def test_jobs_that_never_started_count_but_have_no_wait() -> None:
    figures = summarize_jobs("all", [job("a", 0, 10, 20), job("b", 50, None, 20)], SPAN)
    assert (figures.jobs, figures.completed, figures.unfinished, figures.never_started) == (2, 1, 1, 1)
    assert figures.wait_mean == 10
    assert figures.service == 20 / (30 + 50), "it was in the system until the end and did nothing"


def test_rejected_jobs_have_no_part_in_service() -> None:
    rejected = replace(job("b", 0, None, 5), state="rejected")
    figures = summarize_jobs("all", [job("a", 0, 10, 10), rejected], SPAN)
    assert (figures.rejected, figures.service) == (1, 0.5)
    assert summarize_jobs("all", [rejected], SPAN).service is None


def test_lost_work_is_no_service() -> None:
    figures = summarize_jobs("all", [job("a", 0, 0, 10, lost=10)], SPAN)
    assert (figures.preemptions, figures.lost, figures.service) == (1, 10, 0.5)


def test_no_jobs_have_no_figures() -> None:
    figures = summarize_jobs("all", [], SPAN)
    assert (figures.jobs, figures.wait_mean, figures.slowdown_p95, figures.service) == (0, None, None, None)


@pytest.mark.parametrize(
    ("values", "index"),
    [([1, 1, 1, 1], 1.0), ([1, 0, 0, 0], 0.25), ([3, 1], 0.8), ([0, 0], 1.0), ([5], 1.0), ([], None)],
)
def test_jain_index(values: list[float], index: float | None) -> None:
    assert compute_jain_index(values) == (None if index is None else pytest.approx(index))


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=30))
def test_jain_index_is_between_1_of_n_and_1_whatever_the_scale(values: list[float]) -> None:
    index = compute_jain_index(values)
    assert index is not None
    assert 1 / len(values) - 1e-9 <= index <= 1
    assert compute_jain_index([value * 8 for value in values]) == pytest.approx(index)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.sampled_from((50, 95, 100)))
def test_a_percentile_occurs_and_enough_values_do_not_exceed_it(values: list[float], percent: int) -> None:
    found = find_percentile(sorted(values), percent)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= percent * len(values)
    assert sum(value < found for value in values) * 100 < percent * len(values)


def test_a_guarantee_is_kept_as_far_as_there_is_demand_for_it() -> None:
    # entitled to 40, then to its demand of 30, then to 40; it got 40, 30 and 10
    series = UsageSeries([60, 30, 10], [20, 0, 90], [40, 40, 40], [None, None, None])
    figures = summarize_share("root.a", "vcore", series, capacity=100)
    assert figures.guarantee_kept == pytest.approx(80 / 110)
    assert figures.below_guaranteed == pytest.approx(1 / 3)
    assert (figures.used, figures.share, figures.guaranteed) == (pytest.approx(100 / 3), pytest.approx(1 / 3), 40)


def test_without_a_guarantee_none_is_kept_or_broken() -> None:
    figures = summarize_share("root.a", "vcore", UsageSeries([1], [9], [None], [None]), capacity=0)
    assert (figures.guaranteed, figures.guarantee_kept, figures.below_guaranteed) == (None, None, None)
    assert figures.share is None
    idle = summarize_share("root.a", "vcore", UsageSeries([0], [0], [5], [None]), capacity=10)
    assert (idle.guarantee_kept, idle.below_guaranteed) == (None, 0), "nothing was asked for"


amounts = st.floats(0, 1e12, allow_subnormal=False)


@given(st.lists(st.tuples(amounts, amounts, st.none() | amounts), min_size=1, max_size=20))
def test_shares_are_shares(points: list[tuple[float, float, float | None]]) -> None:
    used, pending, guaranteed = (list(column) for column in zip(*points, strict=True))
    figures = summarize_share("q", "vcore", UsageSeries(used, pending, guaranteed, []), capacity=1)  # type: ignore[arg-type]
    for part in (figures.guarantee_kept, figures.below_guaranteed):
        assert part is None or 0 <= part <= 1 + 1e-9


def test_a_run_from_its_files_to_its_figures(tmp_path: Path) -> None:
    rows = [
        *({"job": name, "user": user, "queue": f"root.{user}", "submit": submit, "start": start, "end": start + 50,
           "wait": start - submit, "run_time": 50, "bounded_slowdown": (start - submit + 50) / 50}
          for name, user, submit, start in (("a", "ann", 0, 0), ("b", "bob", 0, 50))),
        {"job": "c", "user": "eve", "submit": 60, "state": "rejected"},
    ]  # fmt: skip
    usage = [
        {"time": time, "queue": queue, "resource": "vcore", "used": used, "pending": pending, "guaranteed": guaranteed}
        for time, queue, used, pending, guaranteed in (
            (0, "root", 1000, 1000, ""),
            (50, "root", 1000, 0, ""),
            (0, "root.bob", 0, 1000, 500),
            (50, "root.bob", 1000, 0, 500),
        )
    ]
    summary = summarize(load_run(write_run(tmp_path, rows=rows, usage=usage, capacity={"vcore": 2000})))
    assert summary.utilisation == {"vcore": 0.5}
    assert summary.makespan == 100
    assert summary.guarantee_kept == 0.5
    assert [(one.name, one.jobs, one.service) for one in summary.users] == [
        ("ann", 1, 1),
        ("bob", 1, 0.5),
        ("eve", 1, None),
    ]
    assert [one.name for one in summary.queues] == ["root.ann", "root.bob"], "the rejected job has no queue"
    assert summary.fairness_users == pytest.approx(1.5**2 / (2 * 1.25))
    assert (summary.total.jobs, summary.total.rejected) == (3, 1)


def test_figures_of_groups_add_up_to_those_of_all_jobs(tmp_path: Path) -> None:
    summary = summarize(load_run(write_sample_run(tmp_path)))
    for groups in (summary.queues, summary.users):
        assert sum(one.jobs for one in groups) == summary.total.jobs == 400
        assert sum(one.completed for one in groups) == summary.total.completed
        assert sum(one.lost for one in groups) == summary.total.lost == 120
    assert 0 < summary.utilisation["vcore"] < 1
    assert list(summary.utilisation) == ["memory", "vcore"]


def test_a_run_without_jobs_has_figures(tmp_path: Path) -> None:
    summary = summarize(load_run(write_run(tmp_path)))
    assert (summary.makespan, summary.fairness_users, summary.utilisation) == (None, None, {})


def test_the_table_has_a_column_for_each_run_and_only_figures_that_exist(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summaries = [
        summarize(load_run(write_sample_run(tmp_path / "one"))),
        summarize(load_run(write_run(tmp_path / "two"))),
    ]
    print_summaries(summaries)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["FIGURE", "one", "two"]
    assert any(line.startswith("utilisation of vcore ") and line.endswith(" -") for line in lines)
    assert len(lines) == len(list_figures(summaries)) + 1
    assert "utilisation of vcore" not in [figure.label for figure in list_figures(summaries[1:])]
