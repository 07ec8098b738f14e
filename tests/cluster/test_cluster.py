"""A short run of three hosts; `make cluster-chaos` is the whole of it."""

import subprocess
import sys

import pytest

from tests.cluster.network import find_obstacle

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]

FAULTS = ("crash the leader's host", "crash primary and workers")


def test_three_hosts_lose_nothing_whatever_fails() -> None:
    if obstacle := find_obstacle():
        pytest.skip(obstacle)
    command = (
        sys.executable,
        "-m",
        "tests.cluster",
        "--seed",
        "1",
        "--asks",
        "2000",
        "--restarts",
        "1",
        "--slack",
        "3",
    )
    done = subprocess.run(
        [*command, "--slack", "3", "--faults", str(len(FAULTS)), "--only", *FAULTS],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "each allocated exactly once" in done.stdout
    sys.stdout.write(done.stdout)
