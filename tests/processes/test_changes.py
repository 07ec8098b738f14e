"""The commands that change queues, nodes and resource managers, as an operator uses them: a live system with an RM."""

import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests.deploy.system import eventually
from tests.processes.system import System
from tests.processes.test_commands import lines_of, read, run
from yunishard.sdk.blocking import BlockingResourceManager
from yunishard.sdk.exceptions import SessionLost
from yunishard.sdk.items import application, ask, node

pytestmark = pytest.mark.processes

CONFIG = """\
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: batch   # at night
            resources:
              max: {vcore: 6}
          - {name: web}
"""


@pytest.fixture
def manager(system: System) -> Iterator[BlockingResourceManager]:
    """An RM with two nodes and an application in root.batch."""
    with BlockingResourceManager(system.native, rm_id="rm-1", config=CONFIG) as rm:
        rm.update_nodes([node(f"node-{n}", {"vcore": 4000, "memory": 16 << 30}) for n in (1, 2)])
        rm.update_applications(new=[application("app-1", "root.batch", user="alice")])
        yield rm


def ask_for(manager: BlockingResourceManager, *keys: str) -> None:
    manager.update_allocations(allocations=[ask(key, "app-1", {"vcore": 1000}) for key in keys])


def count_asks(address: str) -> object:
    return read(address, "app", "list")[0]["asks"]


def test_one_limit_is_changed_and_the_rest_of_the_text_stays(system: System, manager: BlockingResourceManager) -> None:
    address = f"http://{system.rest}"
    ask_for(manager, *(f"task-{n}" for n in range(8)))
    eventually(lambda: count_asks(address) == 2)
    shown = lines_of(address, "queue", "limit", "root.batch", "--max", "vcore=7", "--dry-run")
    assert [line for line in shown[2:] if line[0] in "+-"] == [
        "-              max: {vcore: 6}",
        "+              max: {vcore: 7}",
    ]
    refused = run(address, "queue", "limit", "root.batch", "--max", "vcore=7")
    assert (refused.returncode, "confirm with --yes" in refused.stderr) == (1, True)
    *_, last = lines_of(address, "queue", "limit", "root.batch", "--max", "vcore=7", "--max-applications", "3", "--yes")
    assert last == "version 2 is in force, partitions: rm-1_default"
    eventually(lambda: count_asks(address) == 1)
    text = "\n".join(lines_of(address, "config", "get"))
    changed = CONFIG.replace("vcore: 6", "vcore: 7").replace(
        "              max: {vcore: 7}\n", "              max: {vcore: 7}\n            maxapplications: 3\n"
    )
    assert text == changed.rstrip("\n")
    invalid = run(address, "queue", "limit", "root.batch", "--max", "vcore=x", "--yes")
    assert invalid.returncode == 1
    assert "the changed configuration:9: " in invalid.stderr
    assert lines_of(address, "queue", "limit", "root.batch", "--max", "vcore=7", "--yes") == [
        "root.batch in partition default has these limits already"
    ]


def test_a_queue_is_stopped_until_it_is_started_also_over_a_restart_of_its_worker(
    system: System, manager: BlockingResourceManager
) -> None:
    address = f"http://{system.rest}"
    assert lines_of(address, "queue", "stop", "root.batch", "--reason", "new disks") == [
        "root.batch in partition default is stopped"
    ]
    ask_for(manager, "task-1")
    assert [row["queue"] for row in read(address, "queue", "list", "--state", "stopped")] == ["root.batch"]
    assert count_asks(address) == 1
    os.kill(system.up.child("partition_worker rm-1"), signal.SIGKILL)
    eventually(lambda: "root.batch" in run(address, "queue", "list", "--state", "stopped").stdout)
    assert count_asks(address) == 1
    assert lines_of(address, "queue", "start", "root.batch") == ["root.batch in partition default is active"]
    eventually(lambda: count_asks(address) == 0)


def test_a_node_is_cordoned_drained_and_used_again(system: System, manager: BlockingResourceManager) -> None:
    address = f"http://{system.rest}"
    assert lines_of(address, "node", "cordon", "node-1", "--reason", "bad disk") == [
        "node-1 in partition default is cordoned: nothing runs there"
    ]
    ask_for(manager, "task-1", "task-2")
    eventually(lambda: [row["allocations"] for row in read(address, "node", "list")] == [0, 2])
    drained = json.loads("\n".join(lines_of(address, "node", "drain", "node-2", "--json")))
    assert (drained["state"], drained["leaving"]) == ("cordoned", 2)
    assert [row["node"] for row in read(address, "node", "list", "--state", "cordoned")] == ["node-1", "node-2"]
    assert lines_of(address, "node", "uncordon", "node-1") == ["node-1 in partition default is schedulable"]
    missing = run(address, "node", "cordon", "node-3")
    assert (missing.returncode, "did you mean" in missing.stderr) == (1, True)


def test_a_connected_manager_is_ended_only_by_force(system: System) -> None:
    address = f"http://{system.rest}"
    rm = BlockingResourceManager(system.native, rm_id="rm-1", config=CONFIG)
    connected = run(address, "rm", "end", "rm-1", "--yes")
    assert (connected.returncode, "is connected" in connected.stderr) == (1, True)
    assert lines_of(address, "rm", "end", "rm-1", "--yes", "--force") == [
        "rm-1 is ended, with its partitions: rm-1_default"
    ]
    assert run(address, "rm", "end", "rm-1", "--yes").returncode == 1
    with pytest.raises(SessionLost):
        rm.close()
