"""The health check of a real system, under conditions that an operator meets: each is named with a next step, and no
longer once it has passed."""

import json
import resource
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.system import FREE_PORTS, Up, up
from yunishard.common.process.health import MEMORY_FRACTION
from yunishard.sdk.blocking import BlockingResourceManager

pytestmark = pytest.mark.processes

QUEUES = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: batch}]}]}]"

Check = dict[str, str | bool]


class System:
    """A running system with a watched file."""

    def __init__(self, running: Up, file: Path) -> None:
        endpoints = running.announced()
        self.up, self.file = running, file
        self.native, self._rest = endpoints["native"], endpoints["rest"]

    def failed(self) -> dict[str, Check]:
        """The health checks that fail now, by name."""
        with urllib.request.urlopen(f"{self._rest}/ws/v1/scheduler/healthcheck", timeout=30) as answer:
            checks: list[Check] = json.load(answer)["HealthChecks"]
        return {str(check["Name"]): check for check in checks if not check["Succeeded"]}


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    file = tmp_path / "queues.yaml"
    file.write_text(QUEUES)
    with up("--ephemeral", "--config", str(file), *FREE_PORTS, folder=tmp_path) as running:
        yield System(running, file)
        assert running.stop() == 0


def test_an_invalid_edit_of_the_watched_file_is_named_until_it_is_corrected(system: System) -> None:
    with BlockingResourceManager(system.native, rm_id="rm-1"):
        system.up.until(lambda: not system.failed())
        system.file.write_text(QUEUES.replace("batch", "no name"))
        system.up.until(lambda: "Configuration" in system.failed())
        check = system.failed()["Configuration"]
        assert f"{system.file}: " in str(check["DiagnosisMessage"])
        assert str(check["NextStep"]).startswith("Correct the file")
        system.file.write_text(QUEUES.replace("batch", "other"))
        system.up.until(lambda: "Configuration" not in system.failed())


def test_a_worker_near_its_memory_limit_is_named_until_the_limit_is_raised(system: System) -> None:
    with BlockingResourceManager(system.native, rm_id="rm-1"):
        system.up.until(lambda: not system.failed())
        worker = system.up.child("partition_worker rm-1_default#")
        pages = int(Path(f"/proc/{worker}/statm").read_text().split()[0])
        near = int(pages * resource.getpagesize() / (MEMORY_FRACTION + 0.05))
        resource.prlimit(worker, resource.RLIMIT_AS, (near, resource.RLIM_INFINITY))
        system.up.until(lambda: "Memory" in system.failed())
        assert "rm-1_default: the address space of the process" in str(system.failed()["Memory"]["DiagnosisMessage"])
        resource.prlimit(worker, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        system.up.until(lambda: "Memory" not in system.failed())
