"""Two proxies and two web services beside one broker: nobody evicts another, and an RM resumes at either proxy."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
import zmq

from tests.deploy.system import FREE_PORTS, Up, eventually, gone, up
from tests.processes.placing import ASKS, Asker, allocations, placing
from tests.processes.test_hostile_grpc import CONFIG, RM, Client, play
from yunishard.broker.leases import FRONT_ENDS_MAX
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.rm_messages import Heartbeat
from yunishard.common.messages.wire import decode_body, encode_body, encode_frames
from yunishard.rmproxy.si import scheduler_pb2 as pb
from yunishard.rmproxy.si.scheduler_pb2_grpc import SchedulerStub

pytestmark = pytest.mark.processes

PATIENCE_S = 120.0
QUERIES = 50
SHORT = ("--heartbeat", "500ms", "--silence", "2s")
RMS = ("rm-1", "rm-2")
PORTS = {"rmproxy": ("--native", "tcp://127.0.0.1:0", "--grpc", "off"), "webservice": ("--rest", "127.0.0.1:0")}


class Relay:
    """A load balancer: connections to its address lead to one proxy, until `lead_to` another one."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._open: set[asyncio.StreamWriter] = set()

    @classmethod
    @contextlib.asynccontextmanager
    async def started(cls, target: str) -> AsyncIterator["Relay"]:
        relay = cls(target)
        server = await asyncio.start_server(relay._serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        relay.address = f"tcp://{host}:{port}"
        try:
            yield relay
        finally:
            server.close()
            relay.lead_to("")

    address = ""

    def lead_to(self, target: str) -> None:
        self._target = target
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._target.removeprefix("tcp://").rpartition(":")
        self._open.add(writer)
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            self._open.add(far_writer)
            await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer))
        writer.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(65536):
                writer.write(piece)
                await writer.drain()
        writer.transport.abort()


def of_system(system: Up) -> list[str]:
    """The options that a process gets from the supervisor."""
    command = system.children[system.child(" rmproxy ")].split()
    return [word for option in ("--broker", "--settings") for word in (option, command[command.index(option) + 1])]


class FrontEnd:
    """A proxy or web service that is started by hand."""

    def __init__(self, system: Up, role: str, *options: str) -> None:
        self._command = [sys.executable, "-P", "-m", f"yunishard.{role}", *options, *of_system(system)]
        self.start()

    def start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            number = str(theirs.fileno())
            self.process = subprocess.Popen([*self._command, "--lifeline", number], pass_fds=(theirs.fileno(),))
        self._lifeline = ours
        with ours.makefile("r") as lines:
            self.endpoints: dict[str, str] = json.loads(lines.readline())["ready"]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._lifeline.close()


@contextlib.contextmanager
def started(system: Up, role: str, *options: str) -> Iterator[FrontEnd]:
    one = FrontEnd(system, role, *options)
    try:
        yield one
    finally:
        one.kill()


def connections(system: Up) -> set[str]:
    """The broker's sockets, by the kernel's numbers: a process that is evicted comes back on another one."""
    found = set()
    for file in Path(f"/proc/{system.child(' broker ')}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(file))
    return {one for one in found if one.startswith("socket:")}


async def query(rest: str, placed: dict[str, int]) -> None:
    """Ask for both applications again and again; every answer is right."""
    for number in range(QUERIES):
        rm = RMS[number % 2]
        assert await asyncio.to_thread(allocations, rest, f"{rm}_default") == placed[rm]


async def place(rounds: int, *askers: Asker) -> None:
    for asker in askers:
        await asker.asks()
        await asker.has(rounds * ASKS)


def samples(rest: str, name: str) -> dict[str, str]:
    with urllib.request.urlopen(f"{rest}/ws/v1/metrics", timeout=10) as answer:
        return dict(re.findall(rf"^{name}{{(.*)}} (\S+)$", answer.read().decode(), re.MULTILINE))


def report(rest: str, proxy: str, rms: str, port: str = "native") -> bool:
    """Whether the metrics show that so many RMs are connected to this port of a proxy."""
    with contextlib.suppress(OSError):  # it is being started
        return samples(rest, "yunishard_rmproxy_sessions").get(f'port="{port}",process="{proxy}"') == rms
    return False


async def story(system: Up, own: dict[str, str], proxy: FrontEnd, web: FrontEnd) -> None:
    rests = (own["rest"], web.endpoints["rest"])
    async with (
        asyncio.timeout(PATIENCE_S),
        Relay.started(own["native"]) as first,
        Relay.started(proxy.endpoints["native"]) as second,
        placing(first.address, RMS[0]) as one,
        placing(second.address, RMS[1]) as two,
    ):
        await place(1, one, two)
        before, placed = connections(system), dict.fromkeys(RMS, ASKS)
        await asyncio.gather(*(query(rest, placed) for rest in rests))
        assert connections(system) >= before, "nobody was evicted"
        for rest in rests:
            for name in ("rmproxy", "rmproxy/b"):
                await asyncio.to_thread(eventually, lambda rest=rest, name=name: report(rest, name, "1"))

        first.lead_to(proxy.endpoints["native"])  # the RM moves, while its proxy runs
        await place(2, one, two)
        for name, rms in (("rmproxy/b", "2"), ("rmproxy", "0")):
            await asyncio.to_thread(eventually, lambda name=name, rms=rms: report(rests[1], name, rms))

        for role in (" rmproxy ", " webservice "):
            number = system.child(role)
            os.kill(number, signal.SIGKILL)
            await asyncio.to_thread(system.until, lambda number=number: gone(number))
        await query(rests[1], dict.fromkeys(RMS, 2 * ASKS))
        await place(3, one, two)
        await asyncio.to_thread(system.until, lambda: len(system.children) == 5)

        proxy.kill()
        web.kill()
        for relay in (first, second):
            relay.lead_to(own["native"])
        await place(4, one, two)
        await asyncio.to_thread(eventually, lambda: report(rests[0], "rmproxy", "2"))
        proxy.start()
        web.start()
        second.lead_to(proxy.endpoints["native"])
        await place(5, one, two)
        placed = dict.fromkeys(RMS, 5 * ASKS)
        await asyncio.gather(*(query(rest, placed) for rest in (own["rest"], web.endpoints["rest"])))
        for asker in (one, two):
            assert set(asker.placed.values()) == {1}, "each ask was placed once"


def test_two_proxies_and_two_web_services_work_at_once_and_rms_move_between_them(tmp_path: Path) -> None:
    with up("--ephemeral", *SHORT, *FREE_PORTS, folder=tmp_path) as system:
        own = system.announced()
        with (
            started(system, "rmproxy", "--instance", "b", *PORTS["rmproxy"]) as proxy,
            started(system, "webservice", "--instance", "b", *PORTS["webservice"]) as web,
        ):
            asyncio.run(story(system, own, proxy, web))
        assert system.stop() == 0


def test_a_second_process_of_one_name_ends_and_the_first_goes_on(tmp_path: Path) -> None:
    with up("--ephemeral", *FREE_PORTS, folder=tmp_path) as system:
        endpoints = system.announced()
        before = connections(system)
        for role in ("rmproxy", "webservice"):
            command = [sys.executable, "-P", "-m", f"yunishard.{role}", "--instance", "1", *of_system(system)]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            assert (ended.returncode, ended.stderr) == (
                2,
                f"{role}: another process at this broker is {role}/1: choose another --instance\n",
            )
        assert samples(endpoints["rest"], "yunishard_process_up")['process="webservice"'] == "1"
        assert connections(system) >= before


def test_a_process_too_many_ends_with_the_reason(tmp_path: Path) -> None:
    with (
        up("--ephemeral", "--silence", "1m", *FREE_PORTS, folder=tmp_path) as system,
        contextlib.ExitStack() as stack,
    ):
        system.announced()
        context = stack.enter_context(zmq.Context())
        options = of_system(system)
        for number in range(FRONT_ENDS_MAX - 2):
            dealer = stack.enter_context(context.socket(zmq.DEALER))
            dealer.setsockopt(zmq.LINGER, 0)
            dealer.setsockopt(zmq.ROUTING_ID, f"webservice/{number}-of-many".encode())
            dealer.connect(options[1])
            dealer.send_multipart(encode_frames(Header(kind="Heartbeat"), encode_body(Heartbeat())))
            assert decode_body(Heartbeat, dealer.recv_multipart()[2]).incarnation
        for role in ("rmproxy", "webservice"):
            command = [sys.executable, "-P", "-m", f"yunishard.{role}", *options, *PORTS[role]]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            reason = "64 proxies and web services are connected already: stop one of them first"
            assert (ended.returncode, ended.stderr) == (2, f"{role}: {reason}\n")


@contextlib.asynccontextmanager
async def over_grpc(address: str) -> AsyncIterator[Client]:
    async with grpc.aio.insecure_channel(address) as channel:
        request = pb.RegisterResourceManagerRequest(rmID=RM, config=CONFIG)
        await SchedulerStub(channel).RegisterResourceManager(request)
        client = Client(channel)
        await client.furnish()
        await client.works()
        yield client


async def ended(client: Client) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="registered again elsewhere: register again"):
        await client.asks.read()
    assert await client.asks.code() is grpc.StatusCode.ABORTED


async def moved(here: str, there: str) -> None:
    """An RM registers at another proxy, and back at the first: each time its streams at the proxy before end."""
    async with over_grpc(here) as first, over_grpc(there) as second:
        await ended(first)
        async with over_grpc(here):
            await ended(second)


def test_an_rm_over_grpc_registers_at_another_proxy(tmp_path: Path) -> None:
    ports = ("--native", "off", "--grpc", "127.0.0.1:0")
    with up("--ephemeral", *FREE_PORTS, folder=tmp_path) as system:
        own = system.announced()
        with started(system, "rmproxy", *ports) as proxy:
            play(lambda: moved(own["grpc"], proxy.endpoints["grpc"]))
        assert system.stop() == 0
