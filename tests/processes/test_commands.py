"""The commands that list and show what runs, as an operator uses them: a live system with a resource manager."""

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.deploy.system import eventually
from tests.processes.system import MAIN, System, run
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
            resources: {max: {vcore: 6}, guaranteed: {vcore: 4}}
            limits:
              - {limit: alice, users: [alice], maxresources: {vcore: 5}, maxapplications: 3}
          - {name: web}
  - name: gpu
    queues:
      - {name: root, submitacl: "*", queues: [{name: batch}]}
"""


@pytest.fixture(scope="module")
def rest(system: System) -> Iterator[str]:
    """The address of a system with four nodes, two applications and an ask that does not fit."""
    with BlockingResourceManager(system.native, rm_id="rm-1", config=CONFIG) as rm:
        rm.update_nodes([node(f"node-{n}", {"vcore": 4000, "memory": 16 << 30}) for n in (1, 2, 3)])
        rm.update_nodes([node("gpu-1", {"vcore": 4000}, partition="gpu")])
        apps = [application("app-1", "root.batch", user="alice"), application("web-1", "root.web", user="bob")]
        rm.update_applications(new=apps)
        small, large = {"vcore": 1000, "memory": 1 << 30}, {"vcore": 5000}
        rm.update_allocations(allocations=[ask(f"task-{n}", "app-1", small) for n in range(8)])
        rm.update_allocations(allocations=[ask("big", "web-1", large)])
        address = f"http://{system.rest}"
        eventually(lambda: [one["asks"] for one in read(address, "app", "list")] == [3, 1])
        yield address


def lines_of(rest: str, *words: str) -> list[str]:
    done = run(rest, *words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def read(rest: str, *words: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads("\n".join(lines_of(rest, *words, "--json")))
    return rows


def test_queues_are_listed_over_all_partitions(rest: str) -> None:
    lines = [line.split() for line in lines_of(rest, "queue", "list")]
    assert [(line[0], line[-1]) for line in lines] == [
        ("QUEUE", "PARTITION"),
        ("root", "default"),
        ("root.batch", "default"),
        ("root.web", "default"),
        ("root", "gpu"),
        ("root.batch", "gpu"),
    ]
    batch = lines_of(rest, "queue", "list", "root.batch", "--partition", "default")[1]
    assert batch == "root.batch  active  5 vcore, 5 GiB  4 vcore     6 vcore  3 vcore, 3 GiB        1"


def test_a_queue_is_shown(rest: str) -> None:
    lines = lines_of(rest, "queue", "show", "root.web")
    assert lines[0].split() == ["queue", "root.web"]
    assert "Applications (1)" in lines
    several = run(rest, "queue", "show", "root.batch")
    assert several.stderr.endswith(
        "several partitions have a queue root.batch: name one with --partition: default, gpu\n"
    )
    missing = run(rest, "queue", "show", "root.wbe")
    assert (missing.returncode, missing.stderr) == (
        1,
        "yunishard queue show: no partition has a queue root.wbe: did you mean 'root.web'?\n",
    )


def test_applications_are_filtered_and_sorted(rest: str) -> None:
    assert lines_of(rest, "app", "list", "-o", "name") == ["app-1", "web-1"]
    assert lines_of(rest, "app", "list", "--sort", "-pending", "-o", "name") == ["web-1", "app-1"]
    assert lines_of(rest, "app", "list", "--user", "bob", "--state", "accepted", "-o", "name") == ["web-1"]
    assert lines_of(rest, "app", "list", "web", "--queue", "root.web", "-o", "name") == ["web-1"]
    [row] = csv.DictReader(lines_of(rest, "app", "list", "app", "--csv"))
    assert (row["used.vcore"], row["pending.memory"], row["partition"]) == ("5000", str(3 << 30), "default")
    on_node = {name for n in (1, 2, 3) for name in lines_of(rest, "app", "list", "--node", f"node-{n}", "-o", "name")}
    assert on_node == {"app-1"}


def test_an_application_is_shown_with_the_reason_why_it_waits(rest: str) -> None:
    lines = lines_of(rest, "app", "show", "app-1")
    assert "Pending asks (1)" in lines
    assert any("user-limit  user alice may use 5 vcore at most in root.batch: " in line for line in lines)
    assert "Allocations (5)" in lines


def test_asks_are_listed_and_shown(rest: str) -> None:
    assert [(row["key"], row["count"]) for row in read(rest, "ask", "list")] == [("task-5", 3), ("big", 1)]
    assert "resource     5 vcore" in lines_of(rest, "ask", "show", "big")
    assert "application  app-1" in lines_of(rest, "ask", "show", "task-7", "--app", "app-1")


def test_nodes_are_listed_and_shown(rest: str) -> None:
    assert lines_of(rest, "node", "list", "-o", "name") == ["node-1", "node-2", "node-3", "gpu-1"]
    assert lines_of(rest, "node", "list", "--partition", "gpu", "-o", "name") == ["gpu-1"]
    assert any(line.startswith("memory ") for line in lines_of(rest, "node", "show", "node-1"))


def test_users_and_groups_are_listed_with_their_limits(rest: str) -> None:
    [row] = read(rest, "user", "list", "--limited")
    assert (row["name"], row["queue"], row["utilization"]) == ("alice", "root.batch", 100)
    assert lines_of(rest, "group", "list")[0].split()[0] == "GROUP"


def test_a_list_is_watched_until_it_is_interrupted(rest: str) -> None:
    command = [sys.executable, "-P", "-c", MAIN, "app", "list", "-o", "name", "--watch", "0.1"]
    with subprocess.Popen(command, env={**os.environ, "YUNISHARD_URL": rest}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        seen = [process.stdout.readline() for _ in range(6)]
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(timeout=30) == 130
    assert seen == [b"app-1\n", b"web-1\n"] * 3


def test_names_are_completed(rest: str) -> None:
    assert lines_of(rest, "complete", "queue", "root.") == ["root.batch", "root.web"]
    assert lines_of(rest, "complete", "application", "we", "--", "yunishard", "app", "show") == ["web-1"]
    assert lines_of(rest, "complete", "node", "g", "--", "yunishard", "--partition", "gpu") == ["gpu-1"]


def test_an_application_is_moved_and_killed_and_then_shown_as_ended(rest: str) -> None:
    assert lines_of(rest, "app", "move", "web-1", "root.batch") == ["web-1 in partition default is in root.batch"]
    lines_of(rest, "app", "kill", "web-1")
    eventually(lambda: any(line.split() == ["state", "failed"] for line in lines_of(rest, "app", "show", "web-1")))
