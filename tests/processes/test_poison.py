"""A message that ends its worker, whatever worker it is given to: it is refused, and the partition goes on."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.system import FREE_PORTS, Up, up
from tests.processes.placing import QUEUES
from yunishard.common.messages.rm_messages import AllocationResponse, Refused
from yunishard.common.names import PREDICATE_PLUGINS
from yunishard.sdk.client import ResourceManager
from yunishard.sdk.items import application, ask, node

pytestmark = pytest.mark.processes

PATIENCE_S = 90.0
SHORT = ("--heartbeat", "200ms", "--silence", "600ms", "--lease-timeout", "1s")

PLUGIN = '''
import os, signal, time


def meet(fate):
    match fate:
        case "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(1)
        case "hang":
            time.sleep(3600)


class Deadly:
    """Ends the worker that reads an ask with the tag `fate`, or that compares one with the tag `turn` with a node."""

    name = "deadly"

    def read(self, tags):
        meet(tags.get("fate"))
        return tags.get("turn")

    def refuses(self, demand, node):
        meet(demand)
        return ""
'''


def install_predicate(folder: Path, name: str, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a predicate plug-in, whose class has its name, where the processes of the system look."""
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / f"{name}.py").write_text(program)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{PREDICATE_PLUGINS}]\n{name} = {name}:{name.capitalize()}\n")
    others = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{others}" if others else str(folder))


def check_what_is_kept(system: Up, state: Path) -> None:
    """A message is kept in a file."""
    assert system.errors.count("ended the last worker; so far it ended") == 2, system.errors
    [kept] = (state / "journals").glob("rm-1_default.poison-*")
    assert system.says(f"it is kept in {kept}")
    command = [Path(sys.executable).with_name("yunishard"), "journal", "poison", "rm-1_default", "--state", str(state)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert "AllocationRequest  RM rm-1  sequence 4" in shown.stdout
    assert str(kept) in shown.stdout


async def story(system: Up, state: Path, tag: str, fate: str) -> None:
    endpoints = system.announced()
    async with (
        asyncio.timeout(PATIENCE_S),
        await ResourceManager.connect(endpoints["native"], rm_id="rm-1", config=QUEUES) as rm,
    ):
        await rm.update_nodes([node("n1", {"vcore": 1000})])
        await rm.update_applications(new=[application("app", "root.batch", user="alice")])
        await rm.update_allocations(allocations=[ask("before", "app", {"vcore": 1})])
        await rm.update_allocations(allocations=[ask("poison", "app", {"vcore": 1}, tags={tag: fate})])
        await rm.update_allocations(allocations=[ask("after", "app", {"vcore": 1})])
        refused: list[Refused] = []
        rejected: dict[str, str] = {}
        placed: set[str] = set()
        async for _, news in rm.results():
            match news:
                case Refused():
                    refused.append(news)
                case AllocationResponse():
                    rejected.update({one.allocation_key: one.reason for one in news.rejected_allocations})
                    placed.update(one.allocation_key for one in news.new)
            if rejected and {"before", "after"} <= placed:
                break
        assert placed == {"before", "after"}
        [(key, reason)] = rejected.items()
        assert key == "poison"
        assert "ended the worker of partition rm-1_default 2 times" in reason
        if tag == "turn":
            assert refused == []
            assert system.says(f"ask poison of application app: {reason}")
            return
        assert [(one.code, one.reason) for one in refused] == [("poison", reason)]
        await asyncio.to_thread(check_what_is_kept, system, state)  # before the RM leaves, and its partition ends


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_predicate(tmp_path / "plugin", "deadly", PLUGIN, monkeypatch)


@pytest.mark.parametrize(("tag", "fate"), [("fate", "crash"), ("fate", "hang"), ("turn", "exit"), ("turn", "hang")])
def test_an_ask_that_ends_its_worker_is_refused_after_two_workers(
    tmp_path: Path, plugin: None, tag: str, fate: str
) -> None:
    state = tmp_path / "state"
    arguments = ("--state", str(state), *SHORT, "--predicates", "deadly", *FREE_PORTS)
    with up(*arguments, folder=tmp_path) as system:
        asyncio.run(story(system, state, tag, fate))
        assert system.stop() == 0
