"""The CSV of jobs has the columns of `simulate`, and numbers as every tool reads them."""

from pathlib import Path

import pytest

from tests.yunishard.replay.swf_lines import swf_line, swf_log
from tests.yunishard.replay.test_machine import play, with_core
from yunishard.cli.main import CommandUnusable
from yunishard.workloads.replay.machine import Replay
from yunishard.workloads.replay.result_folder import RUN_FILE, Source, check_writable, write_folder, write_jobs
from yunishard.workloads.replay.workload import plan
from yunishard.workloads.simulator.run_folder import load_run

HEADER = (
    "job,application,user,group,queue,submit,start,end,wait,run_time,bounded_slowdown,tasks,node,state,preemptions,lost"
)


def replayed(*refused: str) -> Replay:
    lines = [swf_line(1, run=60), swf_line(2, submit=20, run=3, processors=1), swf_line(3, submit=30)]
    replay, core = with_core(Replay(plan(swf_log(*lines), rm_id="replay", load=20), rm_id="replay"))
    core.refuse.update(refused)
    play(replay, core)
    return replay


def test_a_line_for_each_job_with_its_waits(tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.csv", replayed("job-3").jobs.values(), has_rules=False)
    assert (tmp_path / "jobs.csv").read_text().splitlines() == [
        HEADER,
        "1,job-1,u1,g1,root.g1.u1,0,0,60,0,60,1,1,node-1,completed,0,0",
        "2,job-2,u1,g1,root.g1.u1,20,60,63,40,3,4.3,1,node-1,completed,0,0",
        "3,job-3,u1,g1,root.g1.u1,30,,30,,60,,1,,rejected,0,0",
    ]


def test_queues_that_the_core_chose_are_left_out(tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.csv", replayed().jobs.values(), has_rules=True)
    assert ",u1,g1,,0,0,60," in (tmp_path / "jobs.csv").read_text()


def test_a_job_that_never_started_has_no_times(tmp_path: Path) -> None:
    replay = Replay(plan(swf_log(swf_line(1)), rm_id="replay"), rm_id="replay")
    write_jobs(tmp_path / "jobs.csv", replay.jobs.values(), has_rules=False)
    assert (tmp_path / "jobs.csv").read_text().splitlines()[1] == (
        "1,job-1,u1,g1,root.g1.u1,0,,,,60,,1,,unfinished,0,0"
    )


def test_a_folder_can_be_compared_like_that_of_a_simulation(tmp_path: Path) -> None:
    replay = replayed("job-3")
    jobs = list(replay.jobs.values())
    write_folder(tmp_path / "run", replay.plan, jobs, Source("log.swf", "queues.yaml", 60), has_rules=False)
    run = load_run(tmp_path / "run")
    assert (run.info.jobs, run.info.rejected, run.info.unfinished) == (3, 1, 0)
    assert [job.wait for job in run.jobs] == [0, 40, None]
    used = run.usage["root"]["vcore"].used
    width = run.info.span / len(used)
    assert sum(used) * width == pytest.approx(1000 * (60 + 3))  # of one processor, for the run times of the jobs
    assert run.info.replay_speed == 60
    assert set(run.usage) == {"root", "root.g1", "root.g1.u1"}


def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(CommandUnusable, match="cannot be written: No such file or directory"):
        check_writable("--jobs-csv", tmp_path / "none" / "jobs.csv")
    (tmp_path / "file").touch()
    with pytest.raises(CommandUnusable, match=r"--output .*file/run\.json: cannot be written: "):
        check_writable("--output", tmp_path / "file" / RUN_FILE)
