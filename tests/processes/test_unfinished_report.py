"""An RM begins a full report and never ends it: the partition gives it up, allocates again, and takes another one."""

import os
import signal
from pathlib import Path

import pytest

from tests.deploy.system import FREE_PORTS, up
from tests.processes.peer import Peer, connected
from tests.processes.test_deaths import PROCESSES
from tests.processes.test_poison import install_predicate
from yunishard.partition_worker.engine import resync

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not str(resync.__file__).endswith(".py"), reason="a compiled constant cannot be shortened"),
]

PARTITION = "rm-1_default"
GIVEN_UP = "the report is given up, as it had no update for 2 s"

PLUGIN = '''
from yunishard.partition_worker.engine import resync

resync.REPORT_MAX_S = 2.0


class Short:
    """Shortens the time limit of full reports in the worker that loads it."""

    name = "short"

    def read(self, tags):
        return None

    def refuses(self, demand, node):
        return ""
'''


def wait_for_end(peer: Peer) -> str:
    """The problem in the answer to a report, before which nothing is allocated."""
    while True:
        header, body = peer.hear()
        if header[0] == "SyncDone":
            return str(body.get("problem", ""))
        assert "new" not in body, (header, body)


def report_everything(peer: Peer) -> None:
    ask = {"allocationKey": "k1", "applicationID": "app", "nodeID": "n1", "resourcePerAlloc": {"vcore": 1}}
    app = {"applicationID": "app", "queueName": "root.batch", "ugi": {"user": "alice"}}
    node = {"nodeID": "n1", "action": 1, "schedulableResource": {"vcore": 10}}
    peer.send("SyncBegin", {}, partition=PARTITION)
    peer.send("NodeRequest", {"nodes": [node]}, partition=PARTITION)
    peer.send("ApplicationRequest", {"new": [app]}, partition=PARTITION)
    peer.send("AllocationRequest", {"allocations": [ask]}, partition=PARTITION)
    peer.send("SyncEnd", {"nodes": 1, "applications": 1, "allocations": 1}, partition=PARTITION)


def test_a_report_that_never_ends_is_given_up_and_another_one_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_predicate(tmp_path / "plugin", "short", PLUGIN, monkeypatch)
    with (
        up("--state", str(tmp_path / "state"), "--predicates", "short", *FREE_PORTS, folder=tmp_path) as system,
        connected(system.announced()["native"], "rm-1") as peer,
    ):
        peer.furnish()
        peer.send("SyncBegin", {}, partition=PARTITION)
        ask = {"allocationKey": "k1", "applicationID": "app", "resourcePerAlloc": {"vcore": 1}}
        peer.send("AllocationRequest", {"allocations": [ask]}, partition=PARTITION)
        assert wait_for_end(peer) == GIVEN_UP
        [placed] = peer.hears("AllocationResponse", "new")["new"]
        assert placed["allocationKey"] == "k1"
        report_everything(peer)
        assert wait_for_end(peer) == ""
        peer.works()
        peer.send("SyncBegin", {}, partition=PARTITION)
        peer.send("NodeRequest", {"nodes": [{"nodeID": "n2", "action": 1}]}, partition=PARTITION)
        assert peer.hears("NodeResponse", "accepted")["accepted"] == [{"nodeID": "n2"}]
        os.kill(system.child(PROCESSES[f"partition_worker {PARTITION}#"]), signal.SIGKILL)
        assert wait_for_end(peer) == GIVEN_UP
        report_everything(peer)
        assert wait_for_end(peer) == ""
        peer.works()
