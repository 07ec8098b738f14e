"""Each port of a running system, given where another one was meant: what is said names what is there."""

import asyncio

import pytest

from tests.processes.system import System
from yunishard.cli.main import main
from yunishard.sdk.client import ResourceManager

pytestmark = pytest.mark.processes


@pytest.mark.parametrize(("port", "protocol"), [("grpc", "protocol is HTTP/2"), ("rest", "protocol is HTTP,")])
def test_the_sdk_names_the_protocol_of_a_wrong_port(system: System, port: str, protocol: str) -> None:
    address = f"tcp://{getattr(system, port)}"
    with pytest.raises(ConnectionError, match="not yunishard's native port") as caught:
        asyncio.run(ResourceManager.connect(address, rm_id="rm-1", timeout_s=60))
    assert protocol in str(caught.value)


@pytest.mark.parametrize("words", [("config", "get"), ("schedule", "1"), ("settings",), ("app", "kill", "a")])
@pytest.mark.parametrize(("port", "protocol"), [("grpc", "protocol is HTTP/2"), ("native", "protocol is ZeroMQ")])
def test_a_command_names_the_protocol_of_a_wrong_port(
    system: System, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], port: str, protocol: str
) -> None:
    address = getattr(system, port).removeprefix("tcp://")
    assert main([*words, "--rest", f"http://{address}"]) == 2
    told = capsys.readouterr().err
    assert protocol in told
    assert "Give the REST port, 9080 unless configured otherwise" in told
    assert told.isprintable() or told.rstrip("\n").isprintable()
