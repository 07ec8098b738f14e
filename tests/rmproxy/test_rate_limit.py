"""A peer that calls too often is told the limit and how long to wait, in the same words over gRPC and natively."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from common.machine import Delivery
from common.messages import Header
from common.names import BROKER
from common.rm_messages import Refused, Registered, RegisterResourceManager, Resume
from common.wire import body_of, decoded
from rmproxy.front import Front
from rmproxy.grpc_admin import Admin
from rmproxy.grpc_authz import Authorizer
from rmproxy.grpc_endings import RETRY_METADATA
from rmproxy.grpc_port import GrpcPort
from rmproxy.grpc_registry import Registry
from rmproxy.patience import CALLS_AT_ONCE, REFUSALS_MAX
from rmproxy.si import scheduler_pb2 as pb
from rmproxy.si.scheduler_pb2_grpc import SchedulerStub
from tests.machines import PARTITION, arrives
from tests.rmproxy.test_front import PEER
from tests.rmproxy.world import RM, Code, play

LIMIT = (
    "rate limit: one connection (over gRPC one RM) may make 32 calls at once and 2 a second after that; "
    "try again in 1 s"
)


class Proxy:
    """The proxy's own machine behind a gRPC port, with a broker that accepts every registration."""

    def __init__(self) -> None:
        self.now = 0.0
        self._waiting: deque[Delivery] = deque()
        self.front = Front()
        self.registry = Registry(self.deliver)
        authorizer = Authorizer()
        self.port = GrpcPort(self.registry, Admin(self.registry, authorizer), authorizer)

    def deliver(self, delivery: Delivery) -> None:
        self._waiting.append(delivery)
        asyncio.get_running_loop().call_soon(self._handle)

    def _handle(self) -> None:
        delivery = self._waiting.popleft()
        for one in self.front.handle(delivery, self.now):
            if one.to != BROKER:
                self.registry.receive(one)
            elif one.header.kind == RegisterResourceManager.__name__:
                about = one.header
                answer = Header(kind="Registered", rm=about.rm, session=about.session, ref=about.ref)
                self.deliver(Delivery(BROKER, answer, body_of(Registered(partitions=[PARTITION]))))


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[Proxy, SchedulerStub]]:
    """A proxy with an open gRPC port, and a client."""
    proxy = Proxy()
    address = await proxy.port.start("127.0.0.1:0")
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            yield proxy, SchedulerStub(channel)
    finally:
        await proxy.port.stop(0)


def test_a_grpc_rm_that_registers_too_often_is_told_the_limit_and_the_wait() -> None:
    async def scenario() -> None:
        async with opened() as (proxy, stub):
            request = pb.RegisterResourceManagerRequest(rmID=RM)
            for _ in range(CALLS_AT_ONCE):
                await stub.RegisterResourceManager(request)
            for _ in range(2 * REFUSALS_MAX):  # each is answered, however many there are
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await stub.RegisterResourceManager(request)
                assert (refused.value.code(), refused.value.details()) == (Code.RESOURCE_EXHAUSTED, LIMIT)
                assert dict(refused.value.trailing_metadata() or ())[RETRY_METADATA] == "1000"
            await stub.RegisterResourceManager(pb.RegisterResourceManagerRequest(rmID="other"))
            proxy.now += 1.0
            await stub.RegisterResourceManager(request)

    play(scenario)


def test_a_native_rm_is_told_the_same() -> None:
    front = Front()
    resume = arrives(PEER, Resume(), ref="r")
    for _ in range(CALLS_AT_ONCE):
        front.handle(resume, 0)
    refusals = [decoded(Refused, one.body) for _ in range(2 * REFUSALS_MAX) for one in front.handle(resume, 0)]
    assert refusals[:REFUSALS_MAX] == [Refused(code="flood", reason=LIMIT)] * REFUSALS_MAX
    last = (
        "rate limit: more than 32 invalid messages or refused calls in a row from one connection; no more of them are "
        f"answered until a valid message, or 1 s without any; the latest: {LIMIT}"
    )
    assert [one.reason for one in refusals[REFUSALS_MAX:]] == [last]
