"""The commands that explain and watch a running system, as an operator uses them: live, with a resource manager."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.deploy.system import eventually
from tests.processes.system import MAIN, System, run
from tests.yunishard.top.test_app import Top
from yunishard.cli.commands.rest import Rest
from yunishard.cli.top.app import TopApp
from yunishard.sdk.blocking import BlockingResourceManager
from yunishard.sdk.items import application, ask, node

pytestmark = pytest.mark.processes

CONFIG = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: batch
            resources: {max: {vcore: 3}}
          - {name: web}
"""


@pytest.fixture(scope="module")
def rest(system: System) -> Iterator[str]:
    """The address of a system with two nodes, a full queue, and an ask that no node takes."""
    with BlockingResourceManager(system.native, rm_id="rm-1", config=CONFIG) as rm:
        rm.update_nodes([node(f"node-{n}", {"vcore": 4000}) for n in (1, 2)])
        apps = [application("app-1", "root.batch", user="alice"), application("web-1", "root.web", user="bob")]
        rm.update_applications(new=apps)
        rm.update_allocations(allocations=[ask(f"task-{n}", "app-1", {"vcore": 1000}) for n in range(5)])
        rm.update_allocations(allocations=[ask("big", "web-1", {"vcore": 5000})])
        address = f"http://{system.rest}"
        eventually(lambda: "2 equal asks" in run(address, "explain", "app-1").stdout)
        yield address


def output(rest: str, *words: str) -> str:
    done = run(rest, *words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_status_of_a_healthy_system_fits_on_one_screen(rest: str) -> None:
    lines = output(rest, "status", "--processes").splitlines()
    assert "up " in lines[0]
    assert lines[1] == "Nothing needs attention."
    assert any(line.split()[:6] == ["default", "active", "2", "1", "1", "3"] for line in lines)
    processes = {line.split()[0] for line in lines if " up " in line and not line.startswith("yunishard")}
    assert processes == {"broker", "partition_worker", "rmproxy", "supervisor", "webservice"}
    assert len(lines) <= 24
    assert json.loads(output(rest, "status", "--json"))["attention"] == []


def test_resource_managers_are_listed(rest: str) -> None:
    [one] = json.loads(output(rest, "rm", "list", "--json"))
    assert (one["rm"], one["state"], one["partitions"]) == ("rm-1", "connected", ["default"])


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        ("app-1", ("STOPS   root.batch may use 3 vcore", "raise the maximum of root.batch by 1 vcore")),
        ("app web-1", ("Ask big waits because no node takes it", "add a node with 5 vcore")),
        ("ask task-4 --app app-1", ("queue-maximum", "What would let it, one of 2 equal asks, run")),
        ("big", ("no-node-fits", "node-too-small")),
        ("queue root.batch", ("2 asks wait", "queue-maximum")),
        ("node node-1", ("node node-1 · schedulable", "Waiting asks by reason")),
        ("placement --user eve --queue root.web", ("DECIDES: provided", "submitacl of root (*)")),
        ("placement --user eve --queue root.none", ("rules-unmatched", "root.none does not exist")),
    ],
)
def test_what_waits_is_explained(rest: str, words: str, texts: tuple[str, ...]) -> None:
    text = output(rest, "explain", *words.split())
    assert [one for one in texts if one not in text] == []


def test_events_are_listed_and_followed_from_the_past_into_the_future(rest: str) -> None:
    newest = json.loads(output(rest, "event", "list", "app-1", "--type", "app", "--limit", "3", "--json"))
    assert [one["objectID"] for one in newest] == ["app-1"] * 3
    number = len(json.loads(output(rest, "event", "list", "--json", "--limit", "1000")))
    command = [sys.executable, "-P", "-c", MAIN, "event", "follow", "--past", "1000", "--json"]
    with subprocess.Popen(command, env={**os.environ, "YUNISHARD_URL": rest}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        found = [json.loads(process.stdout.readline()) for _ in range(number)]
        process.terminate()
    assert {key: found[-1].get(key) for key in ("type", "objectID")} == {
        key: json.loads(output(rest, "event", "list", "--json", "--limit", "1"))[0].get(key)
        for key in ("type", "objectID")
    }


def test_an_application_that_ended_is_in_the_history(rest: str) -> None:
    assert "web-1" not in output(rest, "history", "app")
    output(rest, "app", "kill", "web-1")
    eventually(lambda: "web-1" in output(rest, "history", "app", "-o", "name"))
    assert " failed " in output(rest, "history", "app", "web-1")


def test_top_shows_queues_applications_and_why_one_waits(rest: str) -> None:
    async def watch() -> None:
        app = TopApp(lambda: Rest(rest), "default", period_s=0.2)
        async with app.run_test(size=(80, 24)) as pilot:
            top = Top(app, pilot)
            await top.shows("yunishard top · default", "2 nodes", "  batch ", "3 / 3")
            await top.press("2")
            await top.shows("app-1")
            await top.press("enter")
            await top.shows("STOPS   root.batch may use 3 vcore")
            await top.press("escape", "3")
            await top.shows("node-1", "node-2")
            await top.press("4")
            await top.shows("events", "app-1")

    began = time.monotonic()
    asyncio.run(watch())
    assert time.monotonic() - began < 60
