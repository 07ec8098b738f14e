"""A proxy whose host is cut off from the leading broker: its RMs are dismissed, its ports closed and opened again."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import grpc
import pytest

from tests.rmproxy.port import PATIENCE_S
from tests.yunishard.fake_core import Kept
from yunishard.broker.cluster_port import ClusterPort
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.rm_messages import Goodbye, Heartbeat, Registered
from yunishard.common.messages.wire import Incoming, Outgoing, encode_body, make_outgoing
from yunishard.common.transport.curve_keys import ALLOWED, HOST, host_file, read_pair, write_pair
from yunishard.common.transport.event_loop import Transport
from yunishard.rmproxy.service import CHECK_EVERY_S, NO_BROKER, PortGate
from yunishard.sdk.items import Result

# The gate -------------------------------------------------------------------------------------------------------------


class FakeLink:
    is_up = True


class FakePort:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_taken = False

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")
        if self.is_taken:
            raise OSError("the address is in use")


class FakeLoop:
    """A clock, and the timer of the gate."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay_s: float, check: Callable[[], None]) -> object:
        self.now += delay_s
        self.timers.append(check)
        return object()

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.timers.pop()()


PATIENCE = 10.0


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> FakeLoop:
    fake = FakeLoop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: fake)
    return fake


def test_ports_are_closed_after_a_while_without_a_connection_and_opened_with_the_next_one(loop: FakeLoop) -> None:
    link, port, reasons = FakeLink(), FakePort(), []
    PortGate(
        lambda: link.is_up, [port], patience_s=PATIENCE, on_close=lambda reason: reasons.append((reason, *port.calls))
    )
    for _ in range(3):
        loop.run(30)
        assert port.calls == []
        link.is_up = False
        loop.run(PATIENCE - 2 * CHECK_EVERY_S)
        assert port.calls == []
        loop.run(30)
        assert (reasons, port.calls) == ([(NO_BROKER,)], ["pause"]), "RMs are dismissed first, and once"
        port.is_taken = link.is_up = True
        loop.run(2 * CHECK_EVERY_S)
        port.is_taken = False
        loop.run(30)
        assert port.calls == ["pause", "resume", "resume", "resume"], "until the address can be bound"
        reasons.clear()
        port.calls.clear()


def test_short_interruptions_close_nothing(loop: FakeLoop) -> None:
    link, port = FakeLink(), FakePort()
    PortGate(lambda: link.is_up, [port], patience_s=PATIENCE, on_close=pytest.fail)
    for _ in range(10):
        link.is_up = False
        loop.run(PATIENCE - 2 * CHECK_EVERY_S)
        link.is_up = True
        loop.run(CHECK_EVERY_S)
    assert port.calls == []


# A real proxy ---------------------------------------------------------------------------------------------------------


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - nothing signals it
        await asyncio.sleep(0.001)


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await story()

    asyncio.run(bounded())


STAYS_CLOSED_S = 0.5


class Broker:
    """The leading broker on another host, of a few lines: it answers registrations, resumptions and heartbeats."""

    def __init__(self, keys: Path, address: str) -> None:
        self._wire = Transport()
        self._port = ClusterPort(f"ipc://{keys}/s", wake=self._wire.wake, cluster_address=address, keys=keys)
        self._wire.add("", self._port)
        self.address = self._port.cluster_address
        self.calls: list[str] = []
        self._is_closed = False
        self._task = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        while True:
            for one in await self._wire.receive(float("inf")):
                for message in self._answer(one):
                    self._wire.send(message)

    def _answer(self, one: Incoming) -> Iterator[Outgoing]:
        header = one.header
        match header.kind:
            case "Heartbeat":
                yield make_outgoing(one.source, Heartbeat(incarnation="i"), Header(kind="Heartbeat"))
            case "RegisterResourceManager" | "Resume":
                self.calls.append(header.kind)
                answer = Header(kind="Registered", rm=header.rm, session=header.session, ref=header.ref)
                yield Outgoing(one.source, answer, encode_body(Registered(partitions=["rm-1_default"])))

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._task.cancel()
            self._port.close()


@asynccontextmanager
async def leading(keys: Path, address: str = "tcp://127.0.0.1:0") -> AsyncIterator[Broker]:
    broker = Broker(keys, address)
    try:
        yield broker
    finally:
        broker.close()


@contextmanager
def proxy(broker: str, keys: Path) -> Iterator[dict[str, str]]:
    """A proxy on another host than the broker; its endpoints."""
    ours, theirs = socket.socketpair()
    public = read_pair(host_file(keys)).public
    command = [
        *(
            sys.executable,
            "-P",
            "-m",
            "yunishard.rmproxy",
            "--broker",
            broker,
            "--broker-key",
            public,
            "--lease-timeout",
            "1s",
        ),
        *("--cluster-keys", str(keys), "--native", "tcp://127.0.0.1:0", "--grpc", "127.0.0.1:0"),
        *("--lifeline", str(theirs.fileno())),
    ]
    with ours, subprocess.Popen(command, pass_fds=(theirs.fileno(),)) as process:
        theirs.close()
        try:
            with ours.makefile("r") as lines:
                yield json.loads(lines.readline())["ready"]
        finally:
            process.kill()


def refuses(address: str) -> bool:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.processes
def test_an_rm_leaves_a_proxy_that_is_cut_off_and_can_return_later(tmp_path: Path) -> None:
    write_pair(tmp_path, HOST)
    (tmp_path / ALLOWED).write_text(f"{read_pair(host_file(tmp_path)).public} a\n")

    async def story() -> None:
        async with leading(tmp_path) as broker:
            address = broker.address
            with proxy(address, tmp_path) as endpoints:
                rm = await Kept.connect(endpoints["native"], rm_id="rm-1")
                async with grpc.aio.insecure_channel(endpoints["grpc"]) as channel:
                    await channel.channel_ready()
                    broker.close()
                    results = rm.results()
                    goodbye = Goodbye(reason=NO_BROKER, retry_after_milli_seconds=1000)
                    assert await anext(results) == Result("", goodbye)
                    for port in endpoints.values():
                        await until(lambda port=port: refuses(port))
                    await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
                    began = asyncio.get_running_loop().time()
                    await until(lambda: asyncio.get_running_loop().time() > began + STAYS_CLOSED_S)
                    assert all(map(refuses, endpoints.values()))

                    async with leading(tmp_path, address) as again:
                        await channel.channel_ready()
                        await until(lambda: "Resume" in again.calls)
                        await rm.close()
            assert {*broker.calls} == {"RegisterResourceManager"}, "again, if the proxy connected only afterwards"

    play(story)
