"""The history of a running system goes on when the web service is killed, and nothing is there twice."""

import json
import os
import signal
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from tests.deploy.system import FREE_PORTS, eventually, up
from tests.processes.system import System
from tests.webservice.history.accounts import MINUTE, portion, sample, usage
from tests.webservice.history.backends import SqliteBackend, write
from yunishard.cli.main import main
from yunishard.sdk.blocking import BlockingResourceManager
from yunishard.sdk.items import application, ask, node, release

pytestmark = pytest.mark.processes

QUEUES = """
partitions:
  - name: default
    queues: [{name: root, submitacl: "*", queues: [{name: batch}]}]
"""


def rows(system: System, query: str) -> list[dict[str, object]]:
    """None while the web service begins, and while the history is opened."""
    try:
        with urllib.request.urlopen(f"http://{system.rest}/ws/v1/history/{query}", timeout=30) as answer:
            found: list[dict[str, object]] = json.load(answer)["rows"]
    except (urllib.error.URLError, ConnectionError):
        return []
    return found


def allocations(system: System) -> list[tuple[object, ...]]:
    keys = ("allocationKey", "user", "queueName", "nodeId", "terminationType")
    return [tuple(row.get(key) for key in keys) for row in rows(system, "allocations?rm=past")]


def test_what_there_was_outlives_the_web_service(system: System) -> None:
    rm = BlockingResourceManager(system.native, rm_id="past", config=QUEUES)
    with rm:
        rm.update_nodes([node("n1", {"vcore": "4"})])
        rm.update_applications(new=[application("app-1", "root.batch", user="alice")])
        rm.update_allocations(allocations=[ask(key, "app-1", {"vcore": "1"}) for key in ("k1", "k2")])
        where = ("alice", "root.batch", "n1")
        system.up.until(lambda: allocations(system) == [("k1", *where, None), ("k2", *where, None)])

        os.kill(system.up.child("-m webservice"), signal.SIGKILL)
        rm.update_allocations(releases=[release("app-1", "k1")])
        ended = [("k1", *where, "STOPPED_BY_RM"), ("k2", *where, None)]
        system.up.until(lambda: allocations(system) == ended)
        assert rows(system, "gaps?rm=past") == []


def test_the_usage_of_a_queue_before_a_restart_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Usage is recorded once a minute, so a test writes what an earlier system has recorded."""
    (tmp_path / "state" / "history").mkdir(parents=True, mode=0o700)
    recorded = SqliteBackend(tmp_path / "state" / "history")
    found = portion(at_ns=time.time_ns() - 30 * MINUTE, sample=sample())
    write(recorded, replace(found, usage=[("queues", usage("root.batch", memory=4 << 30))]))
    with up("--state", str(tmp_path / "state"), *FREE_PORTS, folder=tmp_path) as system:
        address = system.announced()["rest"]
        command = ["history", "queue", "root.batch", "--since", "1h", "--interval", "1h", "--rest", address]
        eventually(lambda: main(command) == 0)
        assert "4 GiB" in capsys.readouterr().out
        assert main([*command, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)
        assert system.stop() == 0
