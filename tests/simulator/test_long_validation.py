"""A simulation against a replay in real time."""

import csv
from pathlib import Path

import pytest

from tests.simulator.test_validation import LCG, read_lines
from yunishard.cli import main as cli

WAIT_S = 0.5
"""Real seconds by which the system may decide later than the simulation, and the RM send later than planned."""

SPEED = 200


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_a_replay_in_real_time_has_the_waits_of_the_simulation(tmp_path: Path) -> None:
    """Real seconds become `SPEED` seconds of the log, so that each delay of the system counts so many times."""
    queues = (
        'partitions: [{name: default, queues: [{name: root, submitacl: "*", '
        "queues: [{name: all, properties: {application.sort.policy: fifo}}]}]}]\n"
    )
    rows = [[row[0], str(int(row[1])), "-1", str(600 + int(row[0]) % 600), *row[4:]] for row in read_lines(LCG)[:60]]
    log = tmp_path / "log.swf"
    log.write_text("".join(f"{' '.join(row)}\n" for row in rows))
    (tmp_path / "queues.yaml").write_text(queues)
    (tmp_path / "nodes.csv").write_text("name,vcore\nn,16\n")
    files = ["--config", str(tmp_path / "queues.yaml")]
    replay = ["replay", str(log), "--local", *files, "--nodes", "1", "--speed", str(SPEED), "--json"]
    assert cli.main([*replay, "--output", str(tmp_path / "replayed")]) == 0
    simulate = ["simulate", "run", str(log), *files, "--nodes", str(tmp_path / "nodes.csv"), "--json"]
    assert cli.main([*simulate, "--output", str(tmp_path / "out")]) == 0
    waits = {}
    for name, folder in (("replayed", tmp_path / "replayed"), ("simulated", tmp_path / "out" / "queues")):
        lines = csv.DictReader((folder / "jobs.csv").read_text().splitlines())
        waits[name] = [float(line["wait"]) for line in lines]
    assert len(waits["replayed"]) == len(waits["simulated"]) == 60
    assert sum(wait > 0 for wait in waits["simulated"]) > 20
    differences = [abs(one - other) for one, other in zip(waits["replayed"], waits["simulated"], strict=True)]
    assert sorted(differences)[30] < SPEED * WAIT_S
    assert cli.main(["simulate", "compare", str(tmp_path / "out" / "queues"), str(tmp_path / "replayed")]) == 0
