"""Result folders are read as they were written, and an error names the place."""

from pathlib import Path

import pytest

from tests.simulator.sample_runs import write_run
from yunishard.cli.main import CommandUnusable
from yunishard.workloads.simulator.run_folder import RUNS_MAX, Preemption, find_folders, load_run, load_runs

JOB = {"job": "a", "user": "ann", "queue": "root.a", "submit": 1.5, "start": 3, "end": 13, "wait": 1.5, "run_time": 10}


def test_a_job_that_never_started_has_no_times(tmp_path: Path) -> None:
    waiting = {"job": "b", "user": "bob", "queue": "root.b", "submit": 2, "run_time": 5, "state": "unfinished"}
    jobs = load_run(write_run(tmp_path, rows=[JOB, waiting])).jobs
    assert [(job.start, job.end, job.wait, job.run_time, job.state) for job in jobs] == [
        (3.0, 13.0, 1.5, 10.0, "completed"),
        (None, None, None, 5.0, "unfinished"),
    ]


def test_usage_of_a_queue_that_did_not_exist_yet_is_0(tmp_path: Path) -> None:
    rows = [
        {"time": 0, "queue": "root", "resource": "vcore", "used": 10, "pending": 0, "maximum": 100},
        {"time": 5, "queue": "root", "resource": "vcore", "used": 20, "pending": 7.5, "maximum": 100},
        {"time": 5, "queue": "root.a", "resource": "vcore", "used": 20, "pending": 7.5, "guaranteed": 30},
    ]
    run = load_run(write_run(tmp_path, usage=rows))
    assert run.times == [0.0, 5.0]
    assert run.usage["root"]["vcore"].maximum == [100.0, 100.0]
    late = run.usage["root.a"]["vcore"]
    assert (list(late.used), list(late.pending), late.guaranteed) == ([0, 20], [0, 7.5], [None, 30])


def test_a_run_without_preemptions_may_lack_the_file(tmp_path: Path) -> None:
    rows = [{"time": 1, "job": "a", "queue": "root.a", "by_queue": "root.b", "lost": 4}]
    write_run(tmp_path, preemptions=rows)
    assert load_run(tmp_path).preemptions == [Preemption(1.0, "root.a", "root.b", 4.0)]
    (tmp_path / "preemptions.csv").unlink()
    assert load_run(tmp_path).preemptions == []


def test_columns_may_be_in_any_order_and_others_are_ignored(tmp_path: Path) -> None:
    write_run(tmp_path)
    header = "more,lost,preemptions,state,tasks,bounded_slowdown,run_time,wait,end,start,submit,queue,user,job"
    (tmp_path / "jobs.csv").write_text(f"{header}\nx,0,0,completed,1,1,10,1.5,13,3,1.5,root.a,ann,a\n")
    assert [(job.job, job.queue, job.wait) for job in load_run(tmp_path).jobs] == [("a", "root.a", 1.5)]


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        ({"submit": "soon"}, "line 2: submit: expected a number that is not negative, got 'soon'"),
        ({"wait": "-1"}, "line 2: wait: expected a number that is not negative, got '-1'"),
        ({"wait": "nan"}, "line 2: wait: expected a number that is not negative, got 'nan'"),
        ({"state": "lost"}, "line 2: state: expected completed, rejected or unfinished, got 'lost'"),
    ],
)
def test_a_malformed_value_is_reported_with_its_place(tmp_path: Path, job: dict[str, str], problem: str) -> None:
    with pytest.raises(CommandUnusable) as error:
        load_run(write_run(tmp_path, rows=[JOB | job]))
    assert str(error.value) == f"{tmp_path / 'jobs.csv'}: {problem}"


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("run.json", "{", "malformed|Input data was truncated|Expecting"),
        ("run.json", '{"format": 2}', "format 2, but this release reads format 1"),
        ("run.json", "[]", "no attribute"),
        ("run.json", '{"format": 1}', "missing required field"),
        ("jobs.csv", "job,user\n", "no column 'queue' in the header line"),
        ("usage.csv", "", "no column 'time' in the header line"),
        ("usage.csv", "time,queue,resource,used,pending,guaranteed,maximum\n1,2\n", "line 2: 2 columns, but 7"),
        ("preemptions.csv", "\udcff", "utf-8|decode"),
    ],
)
def test_a_malformed_file_is_reported_by_name(tmp_path: Path, file: str, text: str, problem: str) -> None:
    write_run(tmp_path)
    (tmp_path / file).write_bytes(text.encode("utf-8", errors="surrogateescape"))
    with pytest.raises(CommandUnusable, match=problem) as error:
        load_run(tmp_path)
    assert str(error.value).startswith(str(tmp_path / file))


def test_a_missing_file_is_reported_by_name(tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / "usage.csv").unlink()
    with pytest.raises(CommandUnusable, match=r"usage\.csv: no such file"):
        load_run(tmp_path)


def test_a_directory_of_runs_stands_for_all_of_them_by_name(tmp_path: Path) -> None:
    for name in ("b", "a"):
        write_run(tmp_path / name)
    assert [run.name for run in load_runs([tmp_path])] == ["a", "b"]
    assert find_folders([tmp_path / "b", tmp_path]) == [tmp_path / "b", tmp_path / "a"], "each once, in this order"


def test_runs_of_the_same_name_are_told_apart_by_their_directories(tmp_path: Path) -> None:
    write_run(tmp_path / "monday" / "fair")
    write_run(tmp_path / "tuesday" / "fair")
    write_run(tmp_path / "tuesday" / "renamed", name="fair")
    found = load_runs([tmp_path / "monday", tmp_path / "tuesday"])
    assert [run.name for run in found] == ["monday/fair", "tuesday/fair", "renamed/fair"]


def test_paths_without_runs_and_too_many_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandUnusable, match=r"no run\.json in it"):
        find_folders([tmp_path])
    with pytest.raises(CommandUnusable, match="no such directory"):
        find_folders([tmp_path / "nowhere"])
    for number in range(RUNS_MAX + 1):
        write_run(tmp_path / f"run-{number}")
    with pytest.raises(CommandUnusable, match="9 runs, of which at most 8 can be shown"):
        find_folders([tmp_path])
