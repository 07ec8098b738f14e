"""Runs side by side: what became better and worse, which jobs wait longer, and what makes the figures misleading."""

from pathlib import Path

import pytest

from tests.simulator.sample_runs import write_run, write_sample_run
from yunishard.workloads.simulator.compare import compare
from yunishard.workloads.simulator.run_folder import load_run


def row(name: str, wait: float | None) -> dict[str, object]:
    known: dict[str, object] = {"job": name, "user": "ann", "queue": "root.a", "submit": 0, "run_time": 10}
    if wait is None:
        return known | {"state": "unfinished"}
    return known | {"start": wait, "end": wait + 10, "wait": wait, "bounded_slowdown": (wait + 10) / 10}


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Job a waits longer in the second run, b and c less; d starts in the first only."""
    before = [row("a", 0), row("b", 100), row("c", 50), row("d", 20), row("e", 7)]
    after = [row("a", 40), row("b", 10), row("c", 0), row("d", None), row("e", 7.5)]
    first = write_run(tmp_path / "before", rows=before)
    return first, write_run(tmp_path / "after", rows=after, unfinished=1)


def test_jobs_are_compared_one_by_one(two: tuple[Path, Path]) -> None:
    jobs = compare(*map(load_run, two)).jobs
    assert [(one.job, one.difference) for one in jobs.changes] == [("a", 40), ("e", 0.5), ("c", -50), ("b", -90)]
    assert (jobs.compared, jobs.earlier, jobs.later, jobs.same) == (4, 2, 1, 1)
    assert (jobs.only_in_baseline, jobs.only_in_run) == (1, 0)
    assert (jobs.difference_mean, jobs.difference_median) == (-24.875, -24.75)


def test_a_figure_is_better_or_worse_by_its_direction(two: tuple[Path, Path]) -> None:
    comparison = compare(*map(load_run, two))
    assert "mean wait" in comparison.list_labels("better"), "less is better"
    assert "completed" in comparison.list_labels("worse"), "more is better"
    assert "unfinished" in comparison.list_labels("worse")
    verdicts = {one.figure: one.verdict for one in comparison.figures}
    assert (verdicts["jobs"], verdicts["preemptions"]) == ("", "same")


def test_a_run_that_leaves_jobs_unfinished_is_noted(two: tuple[Path, Path]) -> None:
    notes = compare(*map(load_run, two)).notes
    assert len(notes) == 1
    assert notes[0].startswith("after leaves 1 jobs unfinished, before 0.")


def test_a_replay_in_real_time_is_noted(tmp_path: Path) -> None:
    one = load_run(write_run(tmp_path / "one", rows=[row("a", 1)]))
    other = load_run(write_run(tmp_path / "other", rows=[row("a", 1)], replaySpeed=200))
    (note,) = compare(one, other).notes
    assert note.startswith("other is a replay in real time, at 200 times the speed of the log")


def test_a_run_is_the_same_as_itself(tmp_path: Path) -> None:
    run = load_run(write_sample_run(tmp_path))
    comparison = compare(run, run)
    assert {one.verdict for one in comparison.figures} == {"same", ""}
    assert (comparison.jobs.same, comparison.notes) == (398, ())


def test_a_small_difference_is_neither_better_nor_worse(tmp_path: Path) -> None:
    one = load_run(write_run(tmp_path / "one", rows=[row("a", 1000)]))
    other = load_run(write_run(tmp_path / "other", rows=[row("a", 991)]))
    assert {one.figure: one.verdict for one in compare(one, other).figures}["wait_mean"] == "same"


def test_runs_of_different_traces_and_clusters_are_noted(tmp_path: Path) -> None:
    one = load_run(write_run(tmp_path / "one", rows=[row("a", 1)]))
    other = load_run(write_run(tmp_path / "other", rows=[row("z", 1)], traces=["x.swf"], capacity={"vcore": 1}))
    notes = " ".join(compare(one, other).notes)
    assert "different traces: log.swf and x.swf" in notes
    assert "different capacities" in notes
    assert "No job started in both runs" in notes
