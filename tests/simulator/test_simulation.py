"""Simulated runs: what the files of a run say about small traces."""

import csv
import json
from pathlib import Path

import pytest

from yunishard.cli.main import CommandUnusable
from yunishard.workloads.simulator.simulation import RunSpec, fill_template, simulate

QUEUES = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: a
            properties: {application.sort.policy: fifo}
          - name: b
"""
NODES = "name,count,vcore\nn,1,4\n"

Row = dict[str, str]


def run(
    folder: Path,
    jobs: list[dict[str, object]] | str,
    *,
    queues: str = QUEUES,
    nodes: str = NODES,
    **options: object,
) -> dict[str, list[Row]]:
    """Simulate, and return the lines of the files by name."""
    text = jobs if isinstance(jobs, str) else "".join(f"{json.dumps(job)}\n" for job in jobs)
    (folder / "trace").write_text(text)
    (folder / "nodes.csv").write_text(nodes)
    fields: dict[str, object] = {
        "name": "run",
        "config": "queues.yaml",
        "config_text": queues,
        "nodes": str(folder / "nodes.csv"),
        "traces": [str(folder / "trace")],
        "output": str(folder / "run"),
        **options,
    }
    simulate(RunSpec(**fields), lambda done, jobs, time: None)  # type: ignore[arg-type]
    return {
        name: list(csv.DictReader((folder / "run" / f"{name}.csv").read_text().splitlines()))
        for name in ("jobs", "usage", "preemptions")
    }


def job(name: str, submit: float, cores: int, run_time: float, **more: object) -> dict[str, object]:
    return {
        "id": name,
        "submit": submit,
        "run_time": run_time,
        "resources": {"vcore": str(cores)},
        "queue": "root.a",
        **more,
    }


def pick(rows: list[Row], *columns: str) -> list[tuple[str, ...]]:
    return [tuple(row[column] for column in columns) for row in rows]


def test_a_job_waits_until_the_one_before_has_ended(tmp_path: Path) -> None:
    found = run(tmp_path, [job("x", 100, 3, 60), job("y", 110, 3, 30.5)])
    columns = ("job", "queue", "submit", "start", "end", "wait", "run_time", "bounded_slowdown", "node", "state")
    assert pick(found["jobs"], *columns) == [
        ("x", "root.a", "0", "0", "60", "0", "60", "1", "n-1", "completed"),
        ("y", "root.a", "10", "60", "90.5", "50", "30.5", "2.639", "n-1", "completed"),
    ]
    assert json.loads((tmp_path / "run" / "run.json").read_text()) == {
        "format": 1,
        "name": "run",
        "configuration": "queues.yaml",
        "nodeSortPolicy": "fair",
        "partition": "default",
        "traces": ["trace"],
        "jobs": 2,
        "rejected": 0,
        "unfinished": 0,
        "span": 90.5,
        "nodes": 1,
        "capacity": {"vcore": 4000},
        "leftOut": {},
    }


def test_usage_is_the_mean_of_each_interval_for_all_queues(tmp_path: Path) -> None:
    usage = run(tmp_path, [job("x", 0, 3, 60), job("y", 10, 3, 40)])["usage"]
    assert len({row["time"] for row in usage}) == 1000
    for queue in ("root", "root.a"):
        used = [float(row["used"]) for row in usage if row["queue"] == queue]
        pending = [float(row["pending"]) for row in usage if row["queue"] == queue]
        assert used == [3000.0] * 1000
        assert sum(pending) / 10 == pytest.approx(3000 * 50)  # 1,000 intervals of 0.1 s
    assert {row["maximum"] for row in usage if row["queue"] == "root"} == {"4000"}
    assert {row["used"] for row in usage if row["queue"] == "root.b"} == {"0"}


def test_a_job_is_submitted_after_the_jobs_that_it_depends_on(tmp_path: Path) -> None:
    jobs = [job("x", 0, 1, 60), job("y", 5, 1, 10), job("z", 1, 1, 1, after=["x", "y"], think_time=2.5)]
    assert pick(run(tmp_path, jobs)["jobs"], "job", "submit", "start") == [
        ("x", "0", "0"),
        ("z", "62.5", "62.5"),
        ("y", "5", "5"),
    ]


def test_a_gang_starts_as_a_whole_and_separate_asks_one_by_one(tmp_path: Path) -> None:
    jobs = [job("x", 0, 3, 60), job("y", 10, 1, 10, tasks=4)]
    separate = run(tmp_path, jobs)["jobs"][1]
    assert (separate["start"], separate["end"], separate["tasks"]) == ("40", "50", "4")  # one after the other
    jobs[1]["gang"] = True
    gang = run(tmp_path, jobs)["jobs"][1]
    assert (gang["start"], gang["end"]) == ("60", "70")


def test_a_refused_job_is_rejected_and_one_that_fits_nowhere_stays_unfinished(tmp_path: Path) -> None:
    found = run(tmp_path, [job("x", 0, 1, 60, queue="root.none"), job("y", 10, 5, 10)])
    assert pick(found["jobs"], "job", "queue", "start", "end", "wait", "bounded_slowdown", "state") == [
        ("x", "", "", "", "", "", "rejected"),
        ("y", "root.a", "", "", "", "", "unfinished"),
    ]
    document = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (document["rejected"], document["unfinished"]) == (1, 1)


PREEMPTION = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: a
            resources: {guaranteed: {vcore: 1}}
          - name: b
            resources: {guaranteed: {vcore: 3}}
            properties: {preemption.delay: 10s}
"""


def test_a_preempted_task_is_listed_with_its_lost_work(tmp_path: Path) -> None:
    jobs = [job("x", 0, 1, 1000, tasks=4), job("y", 100, 1, 50, queue="root.b")]
    found = run(tmp_path, jobs, queues=PREEMPTION)
    (one,) = found["preemptions"]
    assert (one["job"], one["queue"], one["by"], one["by_queue"]) == ("x", "root.a", "y", "root.b")
    assert one["lost"] == one["time"]  # it ran from the beginning
    assert pick(found["jobs"], "preemptions", "lost") == [("1", one["lost"]), ("0", "0")]
    assert not run(tmp_path, jobs, queues=PREEMPTION, preempts=False)["preemptions"]


def test_a_run_can_end_before_its_jobs_and_leaves_out_those_of_later(tmp_path: Path) -> None:
    jobs = [job("x", 0, 4, 60), job("y", 20, 4, 10), job("z", 50, 1, 10), job("after", 0, 1, 10, after=["x"])]
    found = run(tmp_path, jobs, until_s=30.0)
    assert pick(found["jobs"], "job", "start", "state") == [("x", "0", "unfinished"), ("y", "", "unfinished")]
    document = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (document["jobs"], document["unfinished"]) == (2, 2)
    assert document["leftOut"] == {"job not submitted by --until": 2}


SWF = """\
; Partition: 1 here.org
; Partition: 2 there.org
1 0 -1 60 2 -1 -1 2 -1 -1 1 1 1 -1 -1 1 -1 -1
2 5 -1 60 2 -1 -1 2 -1 -1 1 2 2 -1 -1 2 -1 -1
3 6 -1 -1 1 -1 -1 1 30 -1 1 2 2 -1 -1 2 1 4
4 7 -1 -1 1 -1 -1 1 -1 -1 1 2 2 -1 -1 2 -1 -1
"""


def test_an_swf_log_has_sites_estimates_and_preceding_jobs(tmp_path: Path) -> None:
    found = run(tmp_path, SWF)
    assert pick(found["jobs"], "job", "user", "group", "queue", "submit", "run_time", "tasks") == [
        ("1", "u1", "g1", "root.a", "0", "60", "2"),
        ("2", "u2", "g2", "root.b", "5", "60", "2"),
        ("3", "u2", "g2", "root.b", "64", "30", "1"),
    ]
    assert json.loads((tmp_path / "run" / "run.json").read_text())["leftOut"] == {"job of unknown run time": 1}
    assert pick(run(tmp_path, SWF, sites=["there.org"], parallel="task")["jobs"], "job", "tasks") == [
        ("2", "1"),
        ("3", "1"),
    ]


OPENB = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p1,2000,1024,1,500,,LS,Succeeded,100,200,120
p2,2000,1024,2,1000,V100|T4,BE,Succeeded,110,150,110
p3,2000,1024,0,0,,BE,Running,110,,110
p4,2908,4104,1,1000,,BE,Pending,111,136,
p5,2000,1024,0,0,,Guaranteed,Failed,112,130,112
p6,1000,512,1,460,,Burstable,Running,113,143,113
"""
"""The columns and forms of values of `openb_pod_list_default.csv` and `..._gpuspec33.csv` in cluster-trace-gpu-v2023:
pods that were never scheduled have no `scheduled_time`. The values are made up, as the data have no licence.
"""

OPENB_NODES = "sn,cpu_milli,memory_mib,gpu,model\nn1,8000,16384,2,G1\nn2,8000,16384,2,T4\nn3,8000,16384,0,\n"


def test_an_openb_trace_runs_on_its_nodes_and_demands_gpu_models(tmp_path: Path) -> None:
    found = run(tmp_path, OPENB, nodes=OPENB_NODES)
    assert pick(found["jobs"], "job", "group", "submit", "start", "end", "node") == [
        ("p1", "LS", "0", "0", "80", "n1"),
        ("p2", "BE", "10", "10", "50", "n2"),
        ("p5", "Guaranteed", "12", "12", "30", "n3"),
        ("p6", "Burstable", "13", "13", "43", "n1"),
    ]
    left_out = {"pod that was not deleted": 1, "pod that was never scheduled": 1}
    assert json.loads((tmp_path / "run" / "run.json").read_text())["leftOut"] == left_out
    assert {row["resource"] for row in found["usage"]} == {"vcore", "memory", "gpu-milli"}


@pytest.mark.parametrize(
    ("trace", "problem"),
    [
        ('{"id": "x", "submit": 1, "resources": {"vcore": "1"}}', "line 1: run_time: missing"),
        ('{"id": "x", "submit": 1, "runtime": 3}', "line 1: Object contains unknown field `runtime`"),
        ('{"id": "x", "submit": 1, "run_time": 3, "resources": {"vcore": "1x"}}', "line 1: vcore: invalid quantity"),
        ('{"id": "x", "submit": -1, "run_time": 3, "resources": {"vcore": "1"}}', "line 1: submit: expected seconds"),
        (
            '{"id": "x", "submit": 1, "run_time": 3, "resources": {"vcore": "1"}, "tasks": 10001}',
            "line 1: tasks: expected 1 to 10000",
        ),
        (f'{{"id": "{"x" * (1 << 20)}"}}', "line 1: longer than 1,048,576 bytes"),
        (OPENB.replace(",200,", ",soon,"), "line 2: deletion_time: expected a number"),
        (OPENB.replace("num_gpu", "gpus"), "line 1: no column 'num_gpu'"),
        (2 * '{"id": "x", "submit": 1, "run_time": 3, "resources": {"vcore": "1"}}\n', "job x appears 2 times"),
    ],
)
def test_a_malformed_trace_is_refused_with_line_and_field(tmp_path: Path, trace: str, problem: str) -> None:
    with pytest.raises(CommandUnusable, match=problem.replace("`", ".")):
        run(tmp_path, trace)


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        ("name,vcore\n", "no node in it"),
        ("vcore\n4\n", "line 2: name"),
        ("name,vcore\nn,4x\n", "line 2: vcore: invalid quantity"),
        ("name,vcore\nn,4\nn,4\n", "node n appears twice"),
        ("name,count,vcore\nn,60000,4\nm,60000,4\n", "more than 100,000 nodes"),
        ("name,count,vcore\nn,0,4\n", "line 2: count: expected a whole number from 1"),
        ("name,vcore\nn,\n", "line 2: node n has no resources"),
        ("name,vcore\nn,4,5\n", "line 2: 3 columns, but 2 in the header line"),
    ],
)
def test_a_malformed_node_file_is_refused_with_line_and_column(tmp_path: Path, nodes: str, problem: str) -> None:
    with pytest.raises(CommandUnusable, match=problem):
        run(tmp_path, [job("x", 0, 1, 1)], nodes=nodes)


def test_a_queue_template_is_filled_with_the_words_of_a_job() -> None:
    filled = fill_template("root.{site}.{group}.{user}", user="a.b", group="g", site="cern.ch")
    assert filled == "root.cern_ch.g.a_b"
