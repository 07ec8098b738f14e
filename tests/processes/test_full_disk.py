"""A file system without any room left under a running system: what callers hear, what health and metrics show, and that
everything goes on once there is room again.

The file system is a real one, a tmpfs in a mount namespace of the system's own.
"""

import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import pytest

from tests.deploy.system import FREE_PORTS, Up, eventually, gone, up
from yunishard.rmproxy.si import scheduler_pb2
from yunishard.rmproxy.si.scheduler_pb2_grpc import SchedulerStub
from yunishard.sdk.blocking import BlockingResourceManager
from yunishard.sdk.exceptions import ConfigurationRefused, RegistrationRefused
from yunishard.sdk.items import application, ask, node

pytestmark = pytest.mark.processes

DISK_BYTES = 160 << 20
QUEUES = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: batch}]}]}]"
LARGE = QUEUES + "\n#" + "x" * (8 << 20)
"""Too long for what the broker's record has room for in its files already."""

_MOUNTED = f'mkdir -p $0 && mount -t tmpfs -o size={DISK_BYTES},mode=700 disk $0 && exec "$@"'
OWN_MOUNTS = ("unshare", "--map-root-user", "--mount", "sh", "-c", _MOUNTED)


@pytest.fixture(scope="module", autouse=True)
def namespaces(tmp_path_factory: pytest.TempPathFactory) -> None:
    try:
        tried = [*OWN_MOUNTS, str(tmp_path_factory.mktemp("tried")), "true"]
        subprocess.run(tried, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no mount namespaces here: {error}")


class System:
    """A running system and its disk."""

    def __init__(self, running: Up, state: Path) -> None:
        endpoints = running.announced()
        self.up = running
        self.native, self.grpc, self._rest = endpoints["native"], endpoints["grpc"], endpoints["rest"]
        self.disk = Path(f"/proc/{running.process.pid}/root{state}")
        """The state directory, as the system sees it."""

    def failed(self) -> dict[str, str]:
        """The health checks that fail now, each with its diagnosis."""
        checks = json.loads(self._read("/ws/v1/scheduler/healthcheck"))
        assert checks["Healthy"] == all(check["Succeeded"] for check in checks["HealthChecks"])
        return {one["Name"]: one["DiagnosisMessage"] for one in checks["HealthChecks"] if not one["Succeeded"]}

    def has_history(self) -> bool:
        """Whether the web service has created its history."""
        try:
            return bool(self._read("/ws/v1/history/applications"))
        except urllib.error.HTTPError as error:
            with error:
                return False

    def metric(self, series: str) -> float:
        lines = self._read("/ws/v1/metrics").splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(series))

    def _read(self, path: str) -> str:
        with urllib.request.urlopen(f"{self._rest}{path}", timeout=30) as answer:
            text: str = answer.read().decode()
        return text

    @contextmanager
    def full(self) -> Iterator[None]:
        """Not a byte of room is left meanwhile."""
        filler = self.disk / "filler"
        with filler.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                with suppress(OSError):
                    while True:
                        file.write(bytes(size))
        try:
            yield
        finally:
            filler.unlink()

    def rm(self, rm_id: str) -> BlockingResourceManager:
        return BlockingResourceManager(self.native, rm_id=rm_id, config=QUEUES)


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    state = tmp_path / "disk"
    with up("--state", str(state), *FREE_PORTS, folder=tmp_path, prefix=(*OWN_MOUNTS, str(state))) as running:
        yield System(running, state)
        assert running.stop() == 0


def test_a_registration_is_refused_at_once_with_the_cause_and_granted_once_there_is_room(system: System) -> None:
    cause = r"the worker of partition rm-1_default cannot start: .*/rm-1_default\.sqlite: .*full; correct that"
    with system.full(), pytest.raises(RegistrationRefused, match=cause), system.rm("rm-1"):
        pass
    with system.rm("rm-1") as rm:
        assert rm.partitions == ("rm-1_default",)


def test_a_registration_over_grpc_is_refused_at_once_with_the_cause(system: System) -> None:
    request = scheduler_pb2.RegisterResourceManagerRequest(rmID="rm-g", version="1", policyGroup="queues")
    with system.full(), grpc.insecure_channel(system.grpc) as channel, pytest.raises(grpc.RpcError) as refused:
        SchedulerStub(channel).RegisterResourceManager(request, timeout=10)
    assert "the worker of partition rm-g_default cannot start: " in str(refused.value)
    assert "full; correct that" in str(refused.value)


def test_health_names_everything_that_a_full_disk_stops_and_is_well_again_once_there_is_room(system: System) -> None:
    with system.rm("rm-1") as rm:
        rm.update_nodes([node("n1", {"vcore": 1_000_000})])
        rm.update_applications(new=[application("app", "root.batch", user="alice")])
        system.up.until(lambda: system.failed() == {})
        with system.full():
            fill_journal(rm, system)
            wanted = {"Journals", "Disk space", "Audit log", "History"}
            system.up.until(lambda: wanted <= system.failed().keys())
            assert "rm-1_default: " in system.failed()["Journals"]
            assert system.metric("yunishard_journal_stuck") == 1
        system.up.until(lambda: system.failed() == {})
        assert system.metric("yunishard_journal_stuck") == 0


def fill_journal(rm: BlockingResourceManager, system: System) -> None:
    """Ask until what the journal has prepared of its log is used up."""
    for number in range(100):
        rm.update_allocations(allocations=[ask(f"{number}-{each}", "app", {"vcore": 1}) for each in range(1000)])
        time.sleep(0)
        if system.metric("yunishard_journal_stuck"):
            return
    pytest.fail("the journal takes everything, on a full disk")


def test_a_partition_whose_worker_cannot_start_again_is_named_until_it_has(system: System) -> None:
    with system.rm("rm-1"):
        system.up.until(system.has_history)  # one that cannot be created frees the room that it had taken
        with system.full():
            worker = system.up.child("partition_worker rm-1_default#")
            for file in (system.disk / "journals").glob("rm-1_default.sqlite*"):
                file.unlink()
            with system.up.stopped():  # so that the next worker does not begin before their room is taken
                os.kill(worker, signal.SIGKILL)
                eventually(lambda: gone(worker))
                taking = threading.Event()
                taker = threading.Thread(target=keep_full, args=(system.disk / "more", taking))
                taker.start()
                eventually(taking.is_set)
            system.up.until(lambda: "Workers" in system.failed())
            assert "rm-1_default: " in system.failed()["Workers"]
            assert system.metric("yunishard_journal_stuck") == 1
            taking.clear()
            taker.join()
            (system.disk / "more").unlink()
        system.up.until(lambda: not system.failed().keys() & {"Workers", "Partitions"})
        assert system.metric("yunishard_journal_stuck") == 0


def keep_full(path: Path, taking: threading.Event) -> None:
    """Take all room, and set the event; then take what other processes free, until the event is cleared."""
    fill(path)
    taking.set()
    while taking.is_set():
        fill(path)
        time.sleep(0.001)


def fill(path: Path) -> None:
    with path.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 12))


def test_a_record_that_cannot_be_written_is_counted_and_found_to_work_again(system: System) -> None:
    with system.rm("rm-1") as rm:
        with system.full():
            with pytest.raises(ConfigurationRefused, match=r"the configuration cannot be recorded: .*full"):
                rm.update_configuration(LARGE)
            assert system.metric('yunishard_broker_record_writes_total{outcome="refused"}') >= 1
            assert "full" in system.failed()["Broker record"]
        system.up.until(lambda: "Broker record" not in system.failed())
        rm.update_configuration(LARGE)
