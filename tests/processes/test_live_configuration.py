"""Another configuration for a running system, over each of the three ways, and through the death of processes."""

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.system import FREE_PORTS, Up, eventually, up
from yunishard.common.config.model import compute_checksum
from yunishard.sdk.blocking import BlockingResourceManager

pytestmark = pytest.mark.processes

ONE = "partitions:\n  - {name: default, queues: [{name: root, submitacl: '*', queues: [{name: a}]}]}\n"
MORE = "partitions:\n  - {name: default, queues: [{name: root, submitacl: '*', queues: [{name: a}, {name: b}]}]}\n"
TWO = MORE + "  - {name: gpu, queues: [{name: root, submitacl: '*', queues: [{name: a}, {name: b}]}]}\n"
BROKEN = ONE.replace("name: a}", "name: a}, {name: A}")


class Web:
    """The REST port, as an operator uses it."""

    def __init__(self, address: str) -> None:
        self._address = address

    def ask(self, path: str, *, put: str | None = None, post: str | None = None, **headers: str) -> tuple[int, str]:
        body = put if put is not None else post
        request = urllib.request.Request(
            self._address + path,
            data=None if body is None else body.encode(),
            method="PUT" if put is not None else None,
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def read(self, path: str) -> Any:
        status, text = self.ask(path)
        assert status == 200, (path, status, text)
        return json.loads(text)

    def queues(self, partition: str) -> list[str]:
        root = self.read(f"/ws/v1/partition/{partition}/queues")
        return sorted(child["queuename"] for child in root["children"])

    def partitions(self) -> list[str]:
        return sorted(one["name"] for one in self.read("/ws/v1/partitions"))

    def in_force(self, rm: str = "rm-1") -> str:
        status, text = self.ask(f"/ws/v1/config?rm={rm}")
        assert status == 200, text
        return text


@contextmanager
def running(folder: Path, *options: str) -> Iterator[tuple[Up, dict[str, str], Web]]:
    with up(*FREE_PORTS, *options, folder=folder) as system:
        endpoints = system.announced()
        yield system, endpoints, Web(endpoints["rest"])
        assert system.stop() == 0


@contextmanager
def manager(endpoints: dict[str, str], config: str = "", rm: str = "rm-1") -> Iterator[BlockingResourceManager]:
    with BlockingResourceManager(endpoints["native"], rm_id=rm, config=config) as joined:
        yield joined


def test_the_file_is_watched_and_changes_by_api_are_written_back_to_it(tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text(ONE)
    with running(tmp_path, "--ephemeral", "--config", str(file)) as (system, endpoints, web), manager(endpoints) as rm:
        assert web.in_force() == ONE
        file.write_text(MORE)
        eventually(lambda: web.queues("default") == ["root.a", "root.b"])
        file.write_text(BROKEN)
        system.until(lambda: system.says(f"the file of queues {file} is refused"))
        assert web.in_force() == MORE
        status, answer = web.ask("/ws/v1/config?rm=rm-1", put=TWO)
        assert status == 409
        assert f"the watched file {file} has been edited" in answer
        assert (web.in_force(), file.read_text()) == (MORE, BROKEN)
        assert web.ask("/ws/v1/config?rm=rm-1&force=true", put=TWO)[0] == 200
        assert web.partitions() == ["default", "gpu"]
        eventually(lambda: file.read_text() == TWO)  # written after the answer
        assert file.with_name("queues.yaml.previous").read_text() == BROKEN
        eventually(lambda: len(rm.partitions) == 2)
        versions = web.read("/ws/v1/config/history?rm=rm-1")
        assert [(one["version"], one["origin"]) for one in versions] == [(3, "api"), (2, "file"), (1, "file")]
        status, answer = web.ask("/ws/v1/config/rollback?rm=rm-1&version=1", post="")
        assert (status, json.loads(answer)["checksum"]) == (200, compute_checksum(ONE))
        eventually(lambda: file.read_text() == ONE)
        eventually(lambda: web.partitions() == ["default"])
        assert web.queues("default") == ["root.a", "root.b"]
        assert web.read("/ws/v1/partition/default/queue/root.b")["status"] == "Draining"


def test_a_change_by_api_outlives_everything_until_the_rm_comes_with_another_text(tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    with running(tmp_path, "--state", state) as (_, endpoints, web), manager(endpoints, ONE):
        assert web.ask("/ws/v1/config?rm=rm-1", put=TWO, If_Match=f'"{compute_checksum(ONE)}"')[0] == 200
        assert web.ask("/ws/v1/config?rm=rm-1", put=MORE, If_Match=f'"{compute_checksum(ONE)}"')[0] == 412
    with running(tmp_path, "--state", state) as (_, endpoints, web):
        with manager(endpoints, ONE):
            assert web.in_force() == TWO
            assert web.partitions() == ["default", "gpu"]
        with manager(endpoints, MORE):
            assert web.in_force() == MORE
            assert [one["origin"] for one in web.read("/ws/v1/config/history?rm=rm-1")] == [
                "registration",
                "api",
                "registration",
            ]


@pytest.mark.parametrize("questions", [0, 4])
def test_a_broker_killed_in_the_middle_of_a_change_leaves_one_configuration_behind(
    tmp_path: Path, questions: int
) -> None:
    """How far the change gets is a matter of luck here; `test_rollout_crashes.py` leaves none of it out."""
    state = str(tmp_path / "state")
    with (
        running(tmp_path, "--state", state) as (system, endpoints, web),
        ThreadPoolExecutor(1) as pool,
        manager(endpoints, ONE) as rm,
    ):
        broker = system.child("-m broker")
        outcome = pool.submit(_outcome, web)
        for _ in range(questions):
            web.ask("/ws/v1/clusters")  # each takes a moment, however fast the machine is
        os.kill(broker, signal.SIGKILL)
        told = outcome.result()
        eventually(lambda: _known(web))
        text = web.in_force()
        assert text in (ONE, TWO)
        expected = ["default", "gpu"] if text == TWO else ["default"]
        eventually(lambda: len(rm.partitions) == len(expected))
        assert web.partitions() == expected
        assert web.queues("default") == (["root.a", "root.b"] if text == TWO else ["root.a"])
        assert told in ("in force", "unknown")
        assert told == "unknown" or text == TWO


def _outcome(web: Web) -> str:
    """What whoever changes the configuration is told; the web service goes down with the broker."""
    try:
        status, text = web.ask("/ws/v1/config?rm=rm-1", put=TWO)
    except OSError:
        return "unknown"
    return {200: "in force", 503: "unknown"}.get(status, text)


def _known(web: Web) -> bool:
    """The RM goes on in its session, once there is a broker again, and its worker has said hello to that."""
    try:
        return all(web.ask(path)[0] == 200 for path in ("/ws/v1/config?rm=rm-1", "/ws/v1/partition/default/queues"))
    except OSError:
        return False
