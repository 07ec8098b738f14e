"""The gRPC port with a client, and the proxy's machine played in a few lines."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator
from contextlib import asynccontextmanager
from unittest.mock import patch

import grpc
import pytest
import uvloop

from yunishard.common.messages.kinds import Command, Header, Message
from yunishard.common.messages.rm_messages import (
    AcceptedNode,
    NodeResponse,
    PartitionRestarted,
    PredicatesAnswered,
    Received,
    Refused,
    Registered,
    RegisterResourceManager,
    Resume,
    ResumeWanted,
)
from yunishard.common.messages.wire import Incoming, Outgoing, decode_body, encode_body
from yunishard.rmproxy import grpc_admin_service, grpc_manager, grpc_scheduler_service
from yunishard.rmproxy.authentication import Authorizer
from yunishard.rmproxy.grpc_admin_service import AdminService
from yunishard.rmproxy.grpc_manager import ACKNOWLEDGE_S, GrpcRegistry
from yunishard.rmproxy.grpc_scheduler_service import GrpcServer
from yunishard.rmproxy.si import scheduler_pb2 as pb
from yunishard.rmproxy.si.scheduler_pb2_grpc import SchedulerStub

RM = "rm-1"
PARTITION = "rm-1_default"
BOUND = (("yk-rm-id", RM),)
Code = grpc.StatusCode
PATIENCE_S = 60


class FakeCore:
    """The proxy's machine and all behind it: admits every RM and takes every command, unless it is told otherwise."""

    def __init__(self) -> None:
        self.registry: GrpcRegistry
        self.refusal, self.refusal_code = "", "registration"
        self.silent = False
        """Does not answer registrations."""
        self.acknowledges = True
        self.commands: asyncio.Queue[tuple[Header, Command]] = asyncio.Queue()
        self.registrations: asyncio.Queue[tuple[Header, RegisterResourceManager]] = asyncio.Queue()
        self.others: asyncio.Queue[tuple[Header, Message]] = asyncio.Queue()
        """Everything else, such as calls and questions; a `Resume` is answered like a registration."""
        self.acknowledged = 0
        """The last number of our news that the port acknowledged."""
        self._acknowledged = asyncio.Event()
        """Set when that may have changed."""
        self.answers: asyncio.Queue[tuple[Header, PredicatesAnswered]] = asyncio.Queue()
        """To questions about predicates."""
        self.acknowledgements = 0
        """How many messages said nothing else."""
        self.session = ""
        """The latest that registered; it is the one that hears what we say."""
        self._said = 0

    def deliver(self, incoming: Incoming) -> None:
        header = incoming.header
        assert incoming.source == f"grpc:{header.rm}"
        message = decode_body(Message.kinds[header.kind], incoming.body)
        if isinstance(message, RegisterResourceManager):
            self.session, self._said, self.acknowledged = header.session, 0, 0
            self.registrations.put_nowait((header, message))
            if not self.silent:
                self.answer(header)
            return
        if not isinstance(message, Command):
            self.others.put_nowait((header, message))
            if isinstance(message, Resume) and not self.silent:
                self.answer(header)
            return
        if isinstance(message, PredicatesAnswered):
            self.answers.put_nowait((header, message))
        self.acknowledged = max(self.acknowledged, header.ack)
        self.acknowledgements += header.kind == "Ack"
        self._acknowledged.set()
        if header.seq:
            self.commands.put_nowait((header, message))
            if self.acknowledges:
                self.take(header.seq)

    def answer(self, to: Header) -> None:
        refused = Refused(code=self.refusal_code, reason=self.refusal)
        self.reply(to, refused if self.refusal else Registered(partitions=[f"{to.rm}_default"]), partition=to.partition)

    def take(self, seq: int) -> None:
        """Acknowledge commands up to this number."""
        self._send(Received(), Header(kind="Received", rm=RM, partition=PARTITION, session=self.session, ack=seq))

    def say(self, *news: Message) -> None:
        for message in news:
            self._said += 1
            kind = type(message).__name__
            life = int(isinstance(message, PartitionRestarted))
            header = Header(kind=kind, rm=RM, partition=PARTITION, session=self.session, seq=self._said, life=life)
            self._send(message, header)

    async def is_told(self, number: int) -> None:
        """Until the port has acknowledged all of our news up to this one."""
        while self.acknowledged < number:
            self._acknowledged.clear()
            await self._acknowledged.wait()

    def reply(self, to: Header, message: Message, *, partition: str = "") -> None:
        """The answer to a call or question."""
        kind = type(message).__name__
        self._send(message, Header(kind=kind, rm=to.rm, partition=partition, session=to.session, ref=to.ref))

    def tell(self, message: Message, *, partition: str = "") -> None:
        """Something about the RM as a whole, or about one partition."""
        self._send(message, Header(kind=type(message).__name__, rm=RM, partition=partition, session=self.session))

    def want_resumption(self, partition: str = "") -> None:
        """Something between the RM and its partitions, or this one, restarted."""
        self.tell(ResumeWanted(reason="a worker was started again"), partition=partition)

    async def session_of_next(self) -> tuple[str, str]:
        """RM and session of the next registration."""
        header, _ = await self.registrations.get()
        return header.rm, header.session

    def say_to(self, rm: str, session: str, news: Message, seq: int = 1) -> None:
        """To another RM or session than the latest."""
        kind = type(news).__name__
        self._send(news, Header(kind=kind, rm=rm, partition=f"{rm}_default", session=session, seq=seq))

    def repeat(self, news: Message, seq: int) -> None:
        """Say again what has this number."""
        header = Header(kind=type(news).__name__, rm=RM, partition=PARTITION, session=self.session, seq=seq)
        self._send(news, header)

    def lose_a_message(self) -> None:
        self._said += 1

    def _send(self, message: Message, header: Header) -> None:
        self.registry.receive(Outgoing(f"grpc:{header.rm}", header, encode_body(message)))


async def acknowledgements_are_due() -> None:
    """Until what the port has said nothing of yet is late, if it is to be acknowledged at all."""
    late = asyncio.Event()
    asyncio.get_running_loop().call_later(ACKNOWLEDGE_S, late.set)  # after the port's own timer
    await late.wait()


class World:
    """A running port, the machine behind it, and a client."""

    def __init__(self, core: FakeCore, port: GrpcServer, channel: grpc.aio.Channel, address: str) -> None:
        self.core = core
        self.port = port
        self.channel = channel
        self.stub = SchedulerStub(channel)
        self.address = address

    async def register(self, rm: str = RM) -> None:
        await self.stub.RegisterResourceManager(pb.RegisterResourceManagerRequest(rmID=rm, config="partitions: []"))

    async def refused(self, rm: str = RM) -> tuple[grpc.StatusCode, str | None]:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await self.register(rm)
        return error.value.code(), error.value.details()


@asynccontextmanager
async def running(
    registration_s: float = 60,
    *,
    streamless_s: float = 60,
    keepalive_s: float = 20,
    keepalive_answer_s: float = 10,
    write_max_s: float = 30,
    keyed: Collection[str] = (),
) -> AsyncIterator[World]:
    """`keyed` are the RM ids that have native keys; it may change meanwhile."""
    core = FakeCore()
    sessions: Iterator[str] = (f"session-{number}" for number in range(1000))
    core.registry = registry = GrpcRegistry(core.deliver, new_session=lambda: next(sessions))
    authorizer = Authorizer(lambda rm: rm in keyed)
    with (
        patch.multiple(grpc_manager, REGISTRATION_S=registration_s, STREAMLESS_S=streamless_s),
        patch.multiple(grpc_admin_service, QUERY_EVERY_S=0.01, WRITE_MAX_S=write_max_s),
        patch.multiple(grpc_scheduler_service, KEEPALIVE_S=keepalive_s, KEEPALIVE_ANSWER_S=keepalive_answer_s),
    ):
        port = GrpcServer(registry, AdminService(registry, authorizer), authorizer)
        address = await port.start("127.0.0.1:0")
        try:
            async with grpc.aio.insecure_channel(address) as channel:
                yield World(core, port, channel, address)
        finally:
            await port.stop(0)


def port_of(core: FakeCore, *, keyed: Collection[str] = ()) -> GrpcServer:
    """One that speaks to this machine."""
    core.registry = GrpcRegistry(core.deliver)
    authorizer = Authorizer(lambda rm: rm in keyed)
    return GrpcServer(core.registry, AdminService(core.registry, authorizer), authorizer)


def play(scenario: Callable[[], Coroutine[None, None, None]], *, uv: bool = False) -> None:
    """Run it in a loop of its own, not for ever."""

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await scenario()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop if uv else None) as runner:
        runner.run(bounded())


async def end_of(call: grpc.aio.StreamStreamCall) -> tuple[grpc.StatusCode, str]:
    return await call.code(), await call.details()


def nodes(*names: str, rm: str = RM) -> pb.NodeRequest:
    return pb.NodeRequest(nodes=[pb.NodeInfo(nodeID=name, action=pb.NodeInfo.CREATE) for name in names], rmID=rm)


def accepted(name: str) -> NodeResponse:
    return NodeResponse(accepted=[AcceptedNode(node_id=name)])


def accepted_pb(name: str) -> pb.NodeResponse:
    return pb.NodeResponse(accepted=[pb.AcceptedNode(nodeID=name)])
