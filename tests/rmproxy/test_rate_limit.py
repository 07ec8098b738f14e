""""""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from tests.machines import PARTITION, arrives
from tests.rmproxy.world import RM, Code, play
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.rm_messages import Refused, Registered, RegisterResourceManager, Resume
from yunishard.common.messages.wire import Incoming, decode_body, encode_body
from yunishard.common.names import BROKER
from yunishard.rmproxy.authentication import Authorizer
from yunishard.rmproxy.grpc_admin_service import AdminService
from yunishard.rmproxy.grpc_manager import GrpcRegistry
from yunishard.rmproxy.grpc_scheduler_service import GrpcServer
from yunishard.rmproxy.grpc_streams import RETRY_METADATA
from yunishard.rmproxy.proxy import Proxy
from yunishard.rmproxy.rate_limit import (
    CALLS_AT_ONCE,
    CALLS_PER_S,
    LINES_MAX,
    PEERS_MAX,
    QUIET_S,
    REFUSALS_MAX,
    RateLimiter,
    Reply,
)
from yunishard.rmproxy.si import scheduler_pb2 as pb
from yunishard.rmproxy.si.scheduler_pb2_grpc import SchedulerStub

PEER = "native:01"


def wrong(limiter: RateLimiter, count: int, *, now: float = 0.0, peer: str = PEER) -> list[Reply]:
    return [limiter.count_invalid(peer, "no", now) for _ in range(count)]


def test_a_few_wrong_messages_are_answered_then_one_more_and_nothing_after_that() -> None:
    answers = wrong(RateLimiter(), REFUSALS_MAX + 10)
    assert answers == ["reason"] * REFUSALS_MAX + ["flood"] + ["none"] * 9


def test_who_has_been_quiet_is_answered_again_and_who_goes_on_is_not() -> None:
    limiter = RateLimiter()
    wrong(limiter, REFUSALS_MAX + 1, now=10)
    almost = 10 + QUIET_S * 0.9
    assert wrong(limiter, 1, now=almost) == ["none"]
    assert wrong(limiter, 1, now=almost + QUIET_S * 0.9) == ["none"]
    assert wrong(limiter, 1, now=almost + QUIET_S * 2) == ["reason"]


def test_what_is_right_in_between_lets_a_peer_be_answered_again() -> None:
    limiter = RateLimiter()
    for _ in range(10):
        assert wrong(limiter, REFUSALS_MAX) == ["reason"] * REFUSALS_MAX
        limiter.series.pop(PEER)
    wrong(limiter, REFUSALS_MAX + 1)
    limiter.series.pop("native:of another", None)
    assert wrong(limiter, 1) == ["none"]


def test_one_peer_does_not_use_up_the_patience_for_another() -> None:
    limiter = RateLimiter()
    wrong(limiter, 1000)
    assert wrong(limiter, 1, peer="native:02") == ["reason"]


def test_a_flood_is_logged_once() -> None:
    limiter = RateLimiter()
    for second in range(100):
        wrong(limiter, 1000, now=1000.0 + second * QUIET_S * 0.5)
    assert len(limiter.log_lines) == 1
    assert PEER in limiter.log_lines[0]
    wrong(limiter, 1000, now=1100.0)
    assert len(limiter.log_lines) == 2


def test_a_thousand_connections_do_not_fill_the_log() -> None:
    limiter = RateLimiter()
    for number in range(1000):
        wrong(limiter, REFUSALS_MAX + 1, now=1000.0, peer=f"native:{number}")
    assert len(limiter.log_lines) == LINES_MAX


def test_so_many_peers_are_remembered_and_the_one_not_heard_of_for_longest_is_forgotten() -> None:
    limiter = RateLimiter()
    wrong(limiter, REFUSALS_MAX + 1)
    for number in range(PEERS_MAX - 1):
        wrong(limiter, 1, peer=f"native:x{number}")
    assert wrong(limiter, 1) == ["none"], "still known"
    for number in range(PEERS_MAX):
        wrong(limiter, 1, peer=f"native:y{number}")
    assert wrong(limiter, 1) == ["reason"]


@pytest.mark.parametrize("pause_s", [1.0, 5.0])
def test_calls_have_a_pace(pause_s: float) -> None:
    limiter = RateLimiter()
    assert [limiter.allow_call(PEER, 100.0) for _ in range(CALLS_AT_ONCE + 1)] == [True] * CALLS_AT_ONCE + [False]
    again = int(pause_s * CALLS_PER_S)
    assert [limiter.allow_call(PEER, 100.0 + pause_s) for _ in range(again + 1)] == [True] * again + [False]


def test_a_clock_that_stands_still_or_goes_back_gives_no_calls() -> None:
    limiter = RateLimiter()
    for _ in range(CALLS_AT_ONCE):
        limiter.allow_call(PEER, 100.0)
    assert not limiter.allow_call(PEER, 50.0)
    assert not limiter.allow_call(PEER, 50.0)


LIMIT = (
    "rate limit: one connection (over gRPC one RM) may make 32 calls at once and 2 a second after that; "
    "try again in 1 s"
)


class GrpcProxy:
    """The proxy's own machine behind a gRPC port, with a broker that accepts every registration."""

    def __init__(self) -> None:
        self.now = 0.0
        self._waiting: deque[Incoming] = deque()
        self.front = Proxy()
        self.registry = GrpcRegistry(self.deliver)
        authorizer = Authorizer()
        self.port = GrpcServer(self.registry, AdminService(self.registry, authorizer), authorizer)

    def deliver(self, incoming: Incoming) -> None:
        self._waiting.append(incoming)
        asyncio.get_running_loop().call_soon(self._handle)

    def _handle(self) -> None:
        incoming = self._waiting.popleft()
        for one in self.front.handle(incoming, self.now):
            if one.to != BROKER:
                self.registry.receive(one)
            elif one.header.kind == RegisterResourceManager.__name__:
                about = one.header
                answer = Header(kind="Registered", rm=about.rm, session=about.session, ref=about.ref)
                self.deliver(Incoming(BROKER, answer, encode_body(Registered(partitions=[PARTITION]))))


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[GrpcProxy, SchedulerStub]]:
    """A proxy with an open gRPC port, and a client."""
    proxy = GrpcProxy()
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
    front = Proxy()
    resume = arrives(PEER, Resume(), ref="r")
    for _ in range(CALLS_AT_ONCE):
        front.handle(resume, 0)
    refusals = [decode_body(Refused, one.body) for _ in range(2 * REFUSALS_MAX) for one in front.handle(resume, 0)]
    assert refusals[:REFUSALS_MAX] == [Refused(code="flood", reason=LIMIT)] * REFUSALS_MAX
    last = (
        "rate limit: more than 32 invalid messages or refused calls in a row from one connection; no more of them are "
        f"answered until a valid message, or 1 s without any; the latest: {LIMIT}"
    )
    assert [one.reason for one in refusals[REFUSALS_MAX:]] == [last]
