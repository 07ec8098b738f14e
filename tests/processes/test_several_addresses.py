"""Two proxies at one broker, and RMs with both addresses: one proxy is killed, the other one is suspended."""

import asyncio
import contextlib
import itertools
import os
import signal
import threading
from collections import Counter
from pathlib import Path

import grpc
import pytest

from tests.deploy.system import FREE_PORTS, WAIT_MAX_S, Up, eventually, gone, up
from tests.processes.placing import ASKS, QUEUES, allocations, placing
from tests.processes.test_hostile_grpc import CONFIG, RM, Client
from tests.processes.test_hostile_grpc import ask as grpc_ask
from tests.processes.test_several_front_ends import PORTS, SHORT, FrontEnd, report, started
from yunishard import BlockingResourceManager, Callbacks, application, ask, node
from yunishard.common.messages.rm_messages import Allocation
from yunishard.rmproxy.si import scheduler_pb2 as pb
from yunishard.rmproxy.si.scheduler_pb2_grpc import SchedulerStub

pytestmark = pytest.mark.processes

PATIENCE_S = 60.0


class BlockingAsker:
    """Counts how often each ask of an RM without asyncio is placed."""

    def __init__(self, addresses: str) -> None:
        self.placed: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._asked = itertools.count()
        callbacks = Callbacks(allocated=self._count)
        self.rm = BlockingResourceManager(addresses, rm_id="rm-2", config=QUEUES, callbacks=callbacks)
        self.rm.update_nodes([node("n1", {"vcore": 1000})])
        self.rm.update_applications(new=[application("app", "root.batch", user="alice")])

    def _count(self, one: Allocation) -> None:
        with self._changed:
            self.placed[one.allocation_key] += 1
            self._changed.notify()

    def place(self) -> None:
        """Ask for some more, and wait until all are placed."""
        asks = [ask(f"ask-{next(self._asked)}", "app", {"vcore": 1}) for _ in range(ASKS)]
        self.rm.update_allocations(allocations=asks)
        with self._changed:
            assert self._changed.wait_for(lambda: all(one.allocation_key in self.placed for one in asks), WAIT_MAX_S)


async def story(system: Up, own: dict[str, str], proxy: FrontEnd) -> None:
    addresses = (own["native"], proxy.endpoints["native"])
    there = ",".join(addresses)
    blocking = await asyncio.to_thread(BlockingAsker, there)
    with blocking.rm:
        async with asyncio.timeout(PATIENCE_S), placing(there) as asker:
            rounds = 0

            async def place() -> None:
                nonlocal rounds
                rounds += 1
                await asker.asks()
                await asyncio.gather(asker.has(rounds * ASKS), asyncio.to_thread(blocking.place))

            await place()
            assert (asker.rm.address, blocking.rm.address) == (addresses[0], addresses[0])

            number = system.child(" rmproxy ")
            os.kill(number, signal.SIGKILL)
            await place()
            assert (asker.rm.address, blocking.rm.address) == (addresses[1], addresses[1])
            await asyncio.to_thread(eventually, lambda: gone(number) and len(system.children) == 5)

            proxy.process.send_signal(signal.SIGSTOP)
            await place()
            assert (asker.rm.address, blocking.rm.address) == (addresses[0], addresses[0])
            proxy.process.send_signal(signal.SIGCONT)  # with the messages that were on their way to it
            await place()

            for rm, placed in (("rm-1", asker.placed), ("rm-2", blocking.placed)):
                assert len(placed) == rounds * ASKS
                assert set(placed.values()) == {1}, "each ask was placed once"
                assert await asyncio.to_thread(allocations, own["rest"], f"{rm}_default") == rounds * ASKS


def test_sessions_continue_at_the_other_proxy_after_a_kill_and_after_a_silent_cut(tmp_path: Path) -> None:
    with up("--ephemeral", *SHORT, *FREE_PORTS, folder=tmp_path) as system:
        own = system.announced()
        with started(system, "rmproxy", "--instance", "b", *PORTS["rmproxy"]) as proxy:
            asyncio.run(story(system, own, proxy))
        assert system.stop() == 0


# gRPC -----------------------------------------------------------------------------------------------------------------

KEEPALIVE = (("grpc.keepalive_time_ms", 10_000), ("grpc.http2.ping_timeout_ms", 2_000))
"""A proxy that does not answer is left after 12 seconds at most."""


def target(*proxies: FrontEnd) -> str:
    """Several addresses for one channel of gRPC, which tries them in this order."""
    return f"ipv4:{','.join(one.endpoints['grpc'] for one in proxies)}"


async def registered(channel: grpc.aio.Channel) -> Client:
    request, stub = pb.RegisterResourceManagerRequest(rmID=RM, config=CONFIG), SchedulerStub(channel)
    while True:
        try:
            await stub.RegisterResourceManager(request, wait_for_ready=True, timeout=PATIENCE_S)
            break
        except grpc.aio.AioRpcError as error:  # sent on a connection that was about to break
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
    client = Client(channel)
    await client.furnish()
    await client.works()
    return client


async def unavailable(client: Client) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await client.asks.read()
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE, error.value.details()


@pytest.mark.long
def test_an_rm_over_grpc_registers_again_at_the_next_address_of_its_channel(tmp_path: Path) -> None:
    ports = ("--native", "off", "--grpc", "127.0.0.1:0")

    async def story(rest: str, b: FrontEnd, c: FrontEnd, d: FrontEnd) -> None:
        channel = grpc.aio.insecure_channel(target(b, c, d), options=KEEPALIVE)
        async with asyncio.timeout(PATIENCE_S), channel:
            client = await registered(channel)
            b.kill()
            await unavailable(client)
            client = await registered(channel)
            await asyncio.to_thread(eventually, lambda: report(rest, "rmproxy/c", "1", port="grpc"))
            c.process.send_signal(signal.SIGSTOP)
            await unavailable(client)
            client = await registered(channel)
            c.process.send_signal(signal.SIGCONT)
            await asyncio.to_thread(eventually, lambda: report(rest, "rmproxy/c", "0", port="grpc"))
            await asyncio.to_thread(eventually, lambda: report(rest, "rmproxy/d", "1", port="grpc"))
            await client.asks.write(pb.AllocationRequest(allocations=[grpc_ask("late")], rmID=RM))
            assert [one.allocationKey for one in (await client.asks.read()).new] == ["late"]

    with up("--ephemeral", *FREE_PORTS, folder=tmp_path) as system, contextlib.ExitStack() as stack:
        rest = system.announced()["rest"]
        proxies = [stack.enter_context(started(system, "rmproxy", "--instance", name, *ports)) for name in "bcd"]
        asyncio.run(story(rest, *proxies))
        assert system.stop() == 0
