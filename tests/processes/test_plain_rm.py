"""The examples, as a reader of the documentation would run them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes.system import System

pytestmark = pytest.mark.processes

EXAMPLES = Path(__file__).parents[2] / "examples"


def output_of(example: str, system: System) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example), system.native],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,  # what it said shows better below
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_resource_manager_needs_nothing_of_ours(system: System) -> None:
    with system.unharmed(leaving=True):
        lines = output_of("plain_rm.py", system).splitlines()
    assert lines[0].startswith("Registered {'partitions': ['plain_default'], 'checksum': '")
    assert all(any(f"'task-{n}'" in line and "'new'" in line for line in lines) for n in (1, 2, 3))
    assert all(any(f"'task-{n}'" in line and "'released'" in line for line in lines) for n in (1, 2, 3))


def test_the_small_one_of_the_guide_runs_to_its_end_and_can_be_run_again(system: System) -> None:
    for _ in range(2):
        with system.unharmed(leaving=True):
            lines = output_of("minimal_rm.py", system).splitlines()
        assert lines[0] == "connected, partitions: minimal_default"
        assert "nodes: node-1 node-2 accepted" in lines
        assert sum(" runs on node-" in line for line in lines) == 10
        assert lines[-1] == "done"
