"""A resource manager in another language: it speaks the native protocol from its description alone, and loses nothing
while the core's processes are killed under it, or a journal is destroyed. It needs Go, so it runs only in `make
test-interop`.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.system import FREE_PORTS, Up, up

pytestmark = [
    pytest.mark.processes,
    pytest.mark.timeout(180),
]

SOURCE: Final = Path(__file__).parent / "go"
ASKS: Final = 3_000
VICTIMS: Final = ("partition_worker", "-m broker", "-m rmproxy")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("interop")
    environment = {**os.environ, "GOPROXY": "off"}
    built = folder / "rm"
    subprocess.run(["go", "build", "-o", str(built), "."], cwd=SOURCE, env=environment, check=True)
    return built


@pytest.fixture
def system(tmp_path: Path) -> Iterator[tuple[Up, str]]:
    with up(*FREE_PORTS, folder=tmp_path) as running:
        yield running, running.announced()["native"].removeprefix("tcp://")
        assert running.stop() == 0, running.errors


def started(program: Path, address: str, rm_id: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([program, address, rm_id, str(ASKS)], stdout=subprocess.PIPE, text=True)


def outcome(rm: "subprocess.Popen[str]") -> dict[str, object]:
    output, _ = rm.communicate(timeout=120)
    assert rm.returncode == 0, output
    found: dict[str, object] = json.loads(output.splitlines()[-1])
    return found


def until_a_third_is_allocated(rm: "subprocess.Popen[str]") -> None:
    assert rm.stdout is not None
    for line in rm.stdout:
        if line == f"allocated {ASKS // 3}\n":
            break


def test_it_gets_every_allocation_once_and_leaves(program: Path, system: tuple[Up, str]) -> None:
    found = outcome(started(program, system[1], "gopher"))
    assert found == {
        "allocated": ASKS,
        "twice": 0,
        "released": ASKS,
        "resumed": 0,
        "restarted": 0,
        "refused": 0,
        "left": True,
    }


@pytest.mark.parametrize("victim", VICTIMS)
def test_it_loses_nothing_when_a_process_dies(program: Path, system: tuple[Up, str], victim: str) -> None:
    running, address = system
    with started(program, address, "gopher") as rm:
        until_a_third_is_allocated(rm)
        os.kill(running.child(victim), signal.SIGKILL)
        found = outcome(rm)
    assert (found["allocated"], found["twice"], found["released"]) == (ASKS, 0, ASKS)
    assert (found["restarted"], found["left"]) == (0, True)
    assert isinstance(found["resumed"], int)
    assert found["resumed"] > 0


def test_it_reports_everything_again_when_a_journal_is_destroyed(
    program: Path, system: tuple[Up, str], tmp_path: Path
) -> None:
    running, address = system
    with started(program, address, "gopher") as rm:
        until_a_third_is_allocated(rm)
        worker = running.child("partition_worker")
        os.kill(worker, signal.SIGSTOP)
        files = list((tmp_path / "state").rglob("gopher_default.sqlite*"))
        for file in files:
            file.write_bytes(b"no database" * 1000)
        os.kill(worker, signal.SIGKILL)
        found = outcome(rm)
    assert len(files) > 1
    assert (found["restarted"], found["left"], found["twice"], found["refused"]) == (1, True, 0, 0)
    assert (found["allocated"], found["released"]) == (ASKS, ASKS)
