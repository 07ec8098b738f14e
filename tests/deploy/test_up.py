"""`yunishard up` itself, with the real processes."""

import asyncio
import os
import re
import signal
import socket
from pathlib import Path

import pytest

from shim.manager import ResourceManager
from tests.deploy.system import FREE_PORTS, Up, eventually, gone, up

pytestmark = pytest.mark.processes


def refused(folder: Path, *arguments: str) -> str:
    """The one line with which it refuses to start."""
    with up(*arguments, folder=folder) as system:
        assert system.process.wait(timeout=30) == 2
        assert system.children == {}
        assert system.errors.count("\n") == 1
        assert system.process.stdout is not None
        assert system.process.stdout.read() == ""
        return system.errors


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def test_each_endpoint_is_announced_and_open_and_sigterm_ends_all(tmp_path: Path) -> None:
    with up("--ephemeral", *FREE_PORTS, folder=tmp_path) as system:
        endpoints = system.announced()
        assert list(endpoints) == ["native", "grpc", "rest"]
        for address in endpoints.values():
            with socket.create_connection(("127.0.0.1", port_of(address)), timeout=10):
                pass
        children = system.children
        assert len(children) >= 3
        assert system.stop() == 0
        assert all(map(gone, children))


def test_a_killed_supervisor_leaves_no_process_behind(tmp_path: Path) -> None:
    with up(*FREE_PORTS, folder=tmp_path) as system:
        system.announced()
        children = system.children
        system.stop(signal.SIGKILL)
        eventually(lambda: all(map(gone, children)))


def test_one_that_was_killed_can_be_started_again_at_once(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    with up("--state", str(tmp_path / "s"), *FREE_PORTS, folder=tmp_path / "first") as system:
        native = system.announced()["native"]
        system.stop(signal.SIGKILL)
        with up("--state", str(tmp_path / "s"), *FREE_PORTS, "--native", native, folder=tmp_path) as again:
            assert again.announced()["native"] == native
            assert again.stop() == 0


def test_a_port_process_that_is_killed_comes_back_on_the_same_ports(tmp_path: Path) -> None:
    with up("--ephemeral", *FREE_PORTS, folder=tmp_path) as system:
        endpoints = system.announced()
        before = {role: system.child(f" {role} ") for role in ("rmproxy", "webservice")}
        for number in before.values():
            os.kill(number, signal.SIGKILL)

        def open_again() -> bool:
            try:
                for address in endpoints.values():
                    with socket.create_connection(("127.0.0.1", port_of(address)), timeout=10):
                        pass
            except ConnectionRefusedError:
                return False
            return not before.values() & system.children.keys()

        system.until(open_again)
        assert system.stop() == 0


def test_a_worker_that_is_killed_is_replaced_and_leaves_with_the_others(tmp_path: Path) -> None:
    async def story(system: Up) -> None:
        async with await ResourceManager.connect(system.announced()["native"], rm_id="rm-1"):
            await asyncio.to_thread(system.until, lambda: len(system.children) == 4)
            first = system.child("--partition=rm-1_default")
            os.kill(first, signal.SIGKILL)
            await asyncio.to_thread(system.until, lambda: len(system.children.keys() - {first}) == 4)
            assert system.child("--partition=rm-1_default") != first

    with up("--ephemeral", *FREE_PORTS, folder=tmp_path) as system:
        asyncio.run(story(system))
        assert re.search(r"partition_worker rm-1_default#[0-9]+ starts again in 0\.2 s\n", system.errors)
        children = system.children
        assert system.stop() == 0
        assert all(map(gone, children))


def test_spare_workers_take_over_one_after_the_other(tmp_path: Path) -> None:
    async def story(system: Up) -> None:
        async def told(words: str) -> None:
            await asyncio.to_thread(system.until, lambda: system.says(words))

        native = system.announced()["native"]
        await told("spare-1 is ready\n")
        first = system.child(" --spare ")
        async with await ResourceManager.connect(native, rm_id="rm-1"):
            await told("spare-1 becomes partition_worker rm-1_default#")
            await told("spare-2 is ready\n")
            os.kill(first, signal.SIGKILL)
            await told("spare-2 becomes partition_worker rm-1_default#")
            await told("spare-3 is ready\n")

    with up("--ephemeral", "--spare-workers", "1", "--log-level", "debug", *FREE_PORTS, folder=tmp_path) as system:
        asyncio.run(story(system))
        assert not [command for command in system.children.values() if "--partition=" in command]
        children = system.children
        assert system.stop() == 0
        assert all(map(gone, children))


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        rest = f"127.0.0.1:{server.getsockname()[1]}"
        line = refused(tmp_path, "--ephemeral", *FREE_PORTS, "--rest", rest)
    assert line.startswith(f"yunishard up: --rest: {rest}: address already in use; ")


def test_a_bad_configuration_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text("partitions:\n  - name: default\n    queues:\n      - name: root\n        shape: round\n")
    assert refused(tmp_path, "--ephemeral", *FREE_PORTS, "--config", str(file)).startswith(
        f"yunishard up: --config: {file}: line 5"
    )


def test_a_bad_option_is_refused(tmp_path: Path) -> None:
    line = refused(tmp_path, "--ephemeral", "--grpc", "nowhere")
    assert line == "yunishard up: --grpc: expected HOST:PORT, got 'nowhere'\n"


def test_a_state_directory_in_use_is_refused_with_the_holder(tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    with up(*FREE_PORTS, folder=tmp_path) as system:
        system.announced()
        line = refused(tmp_path / "second", "--state", str(tmp_path / "state" / "yunishard"), *FREE_PORTS)
        assert f"is in use by process {system.process.pid}; " in line
        assert system.stop() == 0
