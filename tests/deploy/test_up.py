"""`yunishard up` itself, with the real processes."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import urllib.request
from pathlib import Path

import grpc
import pytest

from tests.deploy.system import FREE_PORTS, Up, eventually, free_ports, gone, up
from yunishard.rmproxy.si import scheduler_pb2 as pb
from yunishard.rmproxy.si.scheduler_pb2_grpc import SchedulerStub
from yunishard.sdk.client import ResourceManager

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


def test_ports_can_be_off(tmp_path: Path) -> None:
    async def registers(native: str) -> None:
        async with await ResourceManager.connect(native, rm_id="rm") as manager:
            assert manager.partitions == ("rm_default",)

    with up("--ephemeral", *FREE_PORTS, "--grpc", "off", "--rest", "off", folder=tmp_path) as system:
        endpoints = system.announced()
        assert endpoints == {"native": endpoints["native"], "grpc": "off", "rest": "off"}
        assert listening(system) == {port_of(endpoints["native"])}
        asyncio.run(registers(endpoints["native"]))
        assert system.stop() == 0


def test_the_native_port_can_be_off(tmp_path: Path) -> None:
    with up("--ephemeral", *FREE_PORTS, "--native", "off", folder=tmp_path) as system:
        endpoints = system.announced()
        assert endpoints["native"] == "off"
        assert listening(system) == {port_of(endpoints[name]) for name in ("grpc", "rest")}
        with grpc.insecure_channel(endpoints["grpc"]) as channel:
            request = pb.RegisterResourceManagerRequest(rmID="rm")
            SchedulerStub(channel).RegisterResourceManager(request, timeout=60)
        with urllib.request.urlopen(f"{endpoints['rest']}/ws/v1/scheduler/healthcheck", timeout=30) as answer:
            assert b'"Healthy":true' in answer.read().replace(b" ", b"")
        assert system.stop() == 0


def test_all_ports_off_is_refused(tmp_path: Path) -> None:
    line = refused(tmp_path, "--native", "off", "--grpc", "off", "--rest", "off")
    assert line.endswith("all ports are off, so nothing could reach the system; leave one open\n")


def listening(system: Up) -> set[int]:
    """TCP ports on which its processes listen."""
    inodes = set()
    for number in system.children:
        for file in Path(f"/proc/{number}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                inodes.add(os.readlink(file))
    tables = [Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes}


def test_a_killed_supervisor_leaves_no_process_behind_and_can_be_started_again_at_once(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    native = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    options = (*FREE_PORTS, "--native", native, "--state", str(tmp_path / "s"))
    with up(*options, folder=tmp_path / "first") as system:
        assert system.announced()["native"] == native
        children = system.children
        system.stop(signal.SIGKILL)
        with up(*options, folder=tmp_path) as again:
            assert again.announced()["native"] == native
            eventually(lambda: all(map(gone, children)))
            assert again.stop() == 0


def test_a_worker_that_is_killed_is_replaced_and_leaves_with_the_others(tmp_path: Path) -> None:
    async def story(system: Up) -> None:
        async with await ResourceManager.connect(system.announced()["native"], rm_id="rm-1"):
            await asyncio.to_thread(system.until, lambda: len(system.children) == 4)
            first = system.child("partition_worker rm-1_default#")
            os.kill(first, signal.SIGKILL)
            await asyncio.to_thread(system.until, lambda: len(system.children.keys() - {first}) == 4)
            await asyncio.to_thread(system.until, lambda: "partition_worker rm-1_default#" in str(system.children))
            assert system.child("partition_worker rm-1_default#") != first

    with up("--ephemeral", *FREE_PORTS, folder=tmp_path) as system:
        asyncio.run(story(system))
        assert re.search(r"supervisor: partition_worker rm-1_default#[0-9]+ ended after .* s: SIGKILL\n", system.errors)
        assert "broker: partition rm-1_default gets another worker in 0.2 s\n" in system.errors
        assert " broker core.broker: RM rm-1 registered, with partitions rm-1_default\n" in system.errors
        children = system.children
        assert system.stop() == 0
        assert all(map(gone, children))


def test_spare_workers_take_over_one_after_the_other(tmp_path: Path) -> None:
    async def story(system: Up) -> None:
        async def told(words: str) -> None:
            await asyncio.to_thread(system.until, lambda: re.search(words, system.errors) is not None)

        native = system.announced()["native"]
        await told("-1 is ready\n")
        first = system.child(" -m partition_worker ")
        async with await ResourceManager.connect(native, rm_id="rm-1"):
            await told("-1 becomes partition_worker rm-1_default#")
            await told("-2 is ready\n")
            os.kill(first, signal.SIGKILL)
            await told("-[23] becomes partition_worker rm-1_default#")  # the third may be ready already
            await told("-3 is ready\n")
            [command] = [one for one in system.children.values() if one.startswith(" partition_worker")]
            assert re.fullmatch(r" partition_worker rm-1_default#[0-9]+ ", command)

    with up("--ephemeral", "--spare-workers", "1", "--log-level", "debug", *FREE_PORTS, folder=tmp_path) as system:
        asyncio.run(story(system))
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
    assert line == "yunishard up: --grpc: expected HOST:PORT or off, got 'nowhere'\n"


def test_a_state_directory_in_use_is_refused_with_the_holder(tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    with up(*FREE_PORTS, folder=tmp_path) as system:
        system.announced()
        line = refused(tmp_path / "second", "--state", str(tmp_path / "state" / "yunishard"), *FREE_PORTS)
        assert f"is in use by process {system.process.pid}; " in line
        assert system.stop() == 0
