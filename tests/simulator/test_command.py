"""`yunishard simulate`: side by side runs, the same bytes each time, the table, JSON, and refusals."""

import json
import os
import shutil
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from tests.simulator.test_validation import LCG, NASA, read_lines
from yunishard.cli import main as cli
from yunishard.common.process import compiled
from yunishard.common.process.compiled import find_engine
from yunishard.workloads.simulator import command
from yunishard.workloads.simulator.command import parse_duration

QUEUES = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: g1
            resources: {guaranteed: {vcore: 40}}
            properties: {preemption.delay: 60s}
          - name: g2
            resources: {guaranteed: {vcore: 20}, max: {vcore: 100}}
          - name: rest
            properties: {application.sort.policy: fifo}
"""


ROOT = Path(__file__).parents[2]
MAIN = "import sys; from yunishard.cli.main import main; sys.exit(main())"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a configuration, nodes and two logs."""
    (tmp_path / "fair.yaml").write_text(QUEUES)
    (tmp_path / "fifo.yaml").write_text(QUEUES.replace("g2", "g7"))
    (tmp_path / "nodes.csv").write_text("name,count,vcore\nn,16,8\n")
    for name, log, jobs in (("lcg.swf", LCG, 400), ("nasa.swf", NASA, 60)):
        (tmp_path / name).write_text("".join(f"{' '.join(row)}\n" for row in read_lines(log)[:jobs]))
    return tmp_path


def simulate(folder: Path, output: str, *more: str, seed: str = "0") -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    words = [sys.executable, "-P", "-c", MAIN, "simulate", "run", "nasa.swf", "lcg.swf"]
    options = ["--config", "fair.yaml", "--nodes", "nodes.csv", "--parallel", "gang", "--output", output, *more]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    return subprocess.run(
        [*words, *options], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=110
    )


def hash_files(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def test_the_same_input_gives_the_same_bytes(files: Path) -> None:
    for output, seed, engine in (("first", "1", ()), ("second", "2", ("--interpreted",))):
        done = simulate(files, output, *engine, seed=seed)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
    first = hash_files(files / "first")
    assert list(first) == ["fair/jobs.csv", "fair/preemptions.csv", "fair/run.json", "fair/usage.csv"]
    assert first == hash_files(files / "second")
    assert len((files / "first" / "fair" / "preemptions.csv").read_text().splitlines()) > 1  # it did preempt


@pytest.mark.processes  # runs once the engine is compiled
@pytest.mark.skipif(find_engine() is None, reason="the engine is not compiled: `make compiled`")
def test_the_compiled_engine_gives_the_same_bytes(files: Path) -> None:
    simulate(files, "compiled")
    simulate(files, "interpreted", "--interpreted")
    assert hash_files(files / "compiled") == hash_files(files / "interpreted")


def test_configurations_and_node_sort_policies_run_side_by_side(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(files)
    words = ["simulate", "nasa.swf", "--config", "fair.yaml", "--config", "fifo.yaml", "--nodes", "nodes.csv"]
    assert cli.main([*words, "--node-sort", "fair,binpacking", "--output", "out"]) == 0
    names = ["fair-binpacking", "fair-fair", "fifo-binpacking", "fifo-fair"]
    assert sorted(one.name for one in (files / "out").iterdir()) == names
    document = json.loads((files / "out" / "fair-binpacking" / "run.json").read_text())
    assert (document["configuration"], document["nodeSortPolicy"]) == ("fair.yaml", "binpacking")
    table = capsys.readouterr().out
    assert all(name in table.splitlines()[0] for name in names)


def test_the_options_may_come_first_and_json_has_all_figures(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(files)
    assert cli.main(["simulate", "--config", "fair.yaml", "--nodes", "nodes.csv", "--json", "nasa.swf"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert run["name"] == "fair"
    assert run["total"]["jobs"] == 60


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["none.swf"], "none.swf: no such file"),
        (["nasa.swf", "--partition", "other"], "fair.yaml: no partition other; there are default"),
        (["nasa.swf", "--config", "nodes.csv"], "--config nodes.csv: "),
        (["nasa.swf", "--config", "none.yaml"], "none.yaml: cannot be read: "),
        (["nasa.swf", "--nodes", "fair.yaml"], "fair.yaml: line 1: no header line"),
    ],
)
def test_files_that_cannot_be_used_are_named(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    monkeypatch.chdir(files)
    assert cli.main(["simulate", "run", "--config", "fair.yaml", "--nodes", "nodes.csv", *words]) == 2
    assert problem in capsys.readouterr().err


def test_a_run_that_fails_is_reported_with_its_name(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(files)
    words = ["simulate", "run", "nasa.swf", "--site", "nowhere", "--config", "fair.yaml", "--nodes", "nodes.csv"]
    assert cli.main(words) == 1
    assert "fair: nasa.swf: no job to simulate (60 of another site)" in capsys.readouterr().err


def test_a_time_has_a_unit_or_is_in_seconds() -> None:
    assert [parse_duration(text) for text in ("90", "1.5s", "15m", "2h", "1d")] == [90.0, 1.5, 900.0, 7200.0, 86400.0]


def test_a_run_takes_the_engine_from_its_folder_and_the_simulator_from_the_present_sources(
    files: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    engine = files / "engine"
    for package in compiled.PACKAGES:
        shutil.copytree(ROOT / package, engine / "yunishard" / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "yunishard" / "__init__.py", engine / "yunishard")
    with (engine / "yunishard" / "partition_worker" / "__init__.py").open("a") as file:
        file.write("\n__import__('sys').stderr.write('the engine of the folder\\n')\n")
    monkeypatch.chdir(files)
    monkeypatch.setattr(command, "find_engine", lambda: engine)
    assert cli.main(["simulate", "run", "nasa.swf", "--config", "fair.yaml", "--nodes", "nodes.csv"]) == 0
    done = capfd.readouterr()
    assert "jobs" in done.out
    assert "the engine of the folder" in done.err


def test_runs_are_killed_with_their_command() -> None:
    running = command._Running(None)
    sleeping = [sys.executable, "-c", "input()"]
    earlier = running.start(sleeping, os.environ)
    running.kill()
    later = running.start(sleeping, os.environ)
    for process in (earlier, later):
        with process:
            assert process.wait() == -signal.SIGKILL
