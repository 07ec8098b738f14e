"""Reports to systemd."""

import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from yunishard.deploy.up import ALIVE_S, SYSTEM_READY, ServiceManager


@pytest.fixture
def port(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.settimeout(20)
        end.bind(str(tmp_path / "notify"))
        yield end


def receive(port: socket.socket) -> str:
    return port.recv(100).decode()


def test_a_state_arrives_at_the_service_manager(port: socket.socket) -> None:
    ServiceManager({"NOTIFY_SOCKET": port.getsockname()}).send(SYSTEM_READY)
    assert receive(port) == "READY=1"


def test_the_socket_may_be_an_abstract_one() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.settimeout(20)
        end.bind("")  # the kernel chooses a name
        ServiceManager({"NOTIFY_SOCKET": "@" + end.getsockname().decode()[1:]}).send(SYSTEM_READY)
        assert receive(end) == "READY=1"


def test_a_supervisor_is_reported_alive_once_a_second(port: socket.socket) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": port.getsockname()})
    for now in (5.0, 5.5, 5.9, 5.0 + ALIVE_S):
        manager.report_alive(now)
    manager.send("END")
    assert [receive(port) for _ in range(3)] == ["WATCHDOG=1", "WATCHDOG=1", "END"]


def test_nothing_is_sent_without_a_service_manager() -> None:
    ServiceManager({}).send(SYSTEM_READY)


def test_the_system_goes_on_without_a_service_manager_that_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).send(SYSTEM_READY)
    assert caplog.record_tuples == [
        (
            "core.supervisor",
            logging.WARNING,
            "the service manager at NOTIFY_SOCKET cannot be reached: No such file or directory",
        )
    ]


@pytest.mark.processes
def test_up_reports_that_it_is_ready_and_that_it_stops(port: socket.socket) -> None:
    ports = ("--native", "tcp://127.0.0.1:0", "--grpc", "off", "--rest", "off")
    command = [sys.executable, "-P", "-m", "yunishard.deploy", "--ephemeral", "--log-level", "warning", *ports]
    environment = {"NOTIFY_SOCKET": port.getsockname(), "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as up:
        try:
            states = [receive(port)]
            while states[-1] == "WATCHDOG=1":
                states.append(receive(port))
            assert states[-1] == "READY=1"
            up.terminate()
            while states[-1] != "STOPPING=1":
                states.append(receive(port))
            assert set(states) == {"WATCHDOG=1", "READY=1", "STOPPING=1"}
            assert up.wait(20) == 0
        finally:
            up.kill()
