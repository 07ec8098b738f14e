"""What nobody should send, over the scheduler interface: refused with the same texts, on streams that stay open."""

import asyncio
import socket
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import grpc
import pytest

from tests.processes.peer import CONFIG
from tests.processes.system import System
from yunishard.rmproxy.si import scheduler_pb2 as pb
from yunishard.rmproxy.si.scheduler_pb2_grpc import SchedulerStub

pytestmark = pytest.mark.processes

RM: Final = "grpc-1"
PARTITION: Final = "grpc-1_default"
BOUND: Final = (("yk-rm-id", RM),)
PATIENCE_S: Final = 30
Code = grpc.StatusCode


def amount(**kinds: int) -> pb.Resource:
    return pb.Resource(resources={kind: pb.Quantity(value=value) for kind, value in kinds.items()})


def node(name: str, vcore: int = 10, partition: str = "") -> pb.NodeInfo:
    attributes = {"si/node-partition": partition} if partition else {}
    return pb.NodeInfo(
        nodeID=name, action=pb.NodeInfo.CREATE, attributes=attributes, schedulableResource=amount(vcore=vcore)
    )


def app(name: str, partition: str = "") -> pb.AddApplicationRequest:
    user = pb.UserGroupInformation(user="alice")
    return pb.AddApplicationRequest(applicationID=name, queueName="root.batch", partitionName=partition, ugi=user)


def ask(key: str, vcore: int = 1, *, application: str = "app", partition: str = "") -> pb.Allocation:
    return pb.Allocation(
        allocationKey=key, applicationID=application, partitionName=partition, resourcePerAlloc=amount(vcore=vcore)
    )


class Client:
    """A registered RM with its three streams, a node and an application."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        stub = SchedulerStub(channel)
        self.nodes = stub.UpdateNode(metadata=BOUND)
        self.apps = stub.UpdateApplication(metadata=BOUND)
        self.asks = stub.UpdateAllocation(metadata=BOUND)

    async def furnish(self) -> None:
        await self.nodes.write(pb.NodeRequest(nodes=[node("n1")], rmID=RM))
        await self.nodes.read()
        await self.apps.write(pb.ApplicationRequest(new=[app("app")], rmID=RM))
        await self.apps.read()

    async def node_refusal(self, info: pb.NodeInfo) -> str:
        await self.nodes.write(pb.NodeRequest(nodes=[info], rmID=RM))
        [one] = (await self.nodes.read()).rejected
        assert one.nodeID == info.nodeID
        return str(one.reason)

    async def app_refusal(self, new: pb.AddApplicationRequest) -> str:
        await self.apps.write(pb.ApplicationRequest(new=[new], rmID=RM))
        while not (answer := await self.apps.read()).rejected:
            assert answer.updated
        return str(answer.rejected[0].reason)

    async def ask_refusal(self, one: pb.Allocation) -> str:
        await self.asks.write(pb.AllocationRequest(allocations=[one], rmID=RM))
        [rejected] = (await self.asks.read()).rejectedAllocations
        assert rejected.allocationKey == one.allocationKey
        return str(rejected.reason)

    async def works(self) -> None:
        await self.asks.write(pb.AllocationRequest(allocations=[ask("good")], rmID=RM))
        [placed] = (await self.asks.read()).new
        assert (placed.allocationKey, placed.nodeID) == ("good", "n1")


@asynccontextmanager
async def registered(system: System) -> AsyncIterator[Client]:
    async with grpc.aio.insecure_channel(system.grpc) as channel:
        await SchedulerStub(channel).RegisterResourceManager(pb.RegisterResourceManagerRequest(rmID=RM, config=CONFIG))
        client = Client(channel)
        await client.furnish()
        yield client
        await client.works()


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await story()

    asyncio.run(bounded())


def everything_works(system: System) -> None:
    """A well-behaved client of each port is served."""

    async def story() -> None:
        async with registered(system):
            pass

    play(story)
    with urllib.request.urlopen(f"http://{system.rest}/ws/v1/partitions", timeout=30) as answer:
        assert answer.status == 200


def test_nodes_that_cannot_be(system: System) -> None:
    async def story() -> None:
        async with registered(system) as client:
            assert await client.node_refusal(node("n1")) == (
                "failure while adding new node, node rejected with error: \n"
                f"failed to add node n1 to partition {PARTITION}, error: "
                f"partition {PARTITION} has an existing node n1, node name must be unique"
            )
            unknown = "failed to find partition grpc-1_zzz for new node n2"
            assert await client.node_refusal(node("n2", partition="zzz")) == unknown
            assert (await client.node_refusal(node("n2", -1))).startswith("invalid node: ")
            assert (await client.node_refusal(node(""))).startswith("invalid node: ")

    with system.unharmed():
        play(story)


def test_applications_that_cannot_be(system: System) -> None:
    async def story() -> None:
        async with registered(system) as client:
            twice = f"adding application app to partition {PARTITION}, but application already existed"
            assert await client.app_refusal(app("app")) == twice
            unknown = "Failed to add application b to partition grpc-1_hostile_default, partition doesn't exist"
            assert await client.app_refusal(app("b", "hostile_default")) == unknown
            nobody = pb.AddApplicationRequest(applicationID="b", queueName="root.batch")
            assert await client.app_refusal(nobody) == "empty user cannot resolve"

    with system.unharmed():
        play(story)


def test_asks_that_cannot_be(system: System) -> None:
    async def story() -> None:
        async with registered(system) as client:
            assert await client.ask_refusal(ask("k", -1)) == "allocation contains negative resources"
            assert await client.ask_refusal(ask("k", 0)) == "allocation contains no resources"
            assert await client.ask_refusal(ask("k", application="x")) == "failed to find application x"
            unknown = "Failed to find partition grpc-1_zzz, for application app and allocation k"
            assert await client.ask_refusal(ask("k", partition="zzz")) == unknown

    with system.unharmed():
        play(story)


def test_an_unregistered_rm(system: System) -> None:
    async def story() -> None:
        async with grpc.aio.insecure_channel(system.grpc) as channel:
            stub = SchedulerStub(channel)
            for kind, call, request in (
                ("NodeRequest", stub.UpdateNode(), pb.NodeRequest(rmID="x")),
                ("ApplicationRequest", stub.UpdateApplication(), pb.ApplicationRequest(rmID="x")),
                ("AllocationRequest", stub.UpdateAllocation(), pb.AllocationRequest(rmID="x")),
            ):
                await call.write(request)
                assert await call.code() == Code.FAILED_PRECONDITION
                assert await call.details() == f'received {kind}, but RmID="x" not registered'

    with system.unharmed():
        play(story)


@pytest.mark.parametrize(
    ("rm", "config"),
    [("", CONFIG), ("a b", CONFIG), ("x" * 5000, CONFIG), ("ä", CONFIG), ("grpc-2", "]"), ("grpc-2", "[" * 10_000)],
    ids=range(6),
)
def test_a_registration_that_cannot_be(system: System, rm: str, config: str) -> None:
    async def story() -> None:
        async with registered(system), grpc.aio.insecure_channel(system.grpc) as channel:
            request = pb.RegisterResourceManagerRequest(rmID=rm, config=config)
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await SchedulerStub(channel).RegisterResourceManager(request, timeout=10)
            assert error.value.code() == Code.INVALID_ARGUMENT
            assert error.value.details()

    with system.unharmed():
        play(story)


def test_bytes_that_are_no_protobuf(system: System) -> None:
    nonsense = b"\xff\xff\xff\xff"

    async def story() -> None:
        async with registered(system), grpc.aio.insecure_channel(system.grpc) as channel:
            register = channel.unary_unary("/si.v1.Scheduler/RegisterResourceManager")
            with pytest.raises(grpc.aio.AioRpcError):
                await register(nonsense, timeout=10)
            call = channel.stream_stream("/si.v1.Scheduler/UpdateNode")(metadata=BOUND)
            await call.write(nonsense)
            assert await call.code() == Code.INVALID_ARGUMENT

    with system.unharmed():
        play(story)


def test_what_a_client_says_when_it_goes_is_not_in_the_log(system: System) -> None:
    host, _, port = system.grpc.rpartition(":")
    text = b"\n2026-01-01 00:00:00,000 ERROR   broker: \xb9 all is lost"
    goaway = (len(text) + 8).to_bytes(3, "big") + b"\x07" + bytes(5) + bytes(4) + b"\xff\xff\xff\xff" + text
    with system.unharmed():
        for _ in range(20):
            with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as one:
                one.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" + goaway)
                one.shutdown(socket.SHUT_WR)
                while one.recv(1000):
                    pass
    assert not system.up.says("all is lost")
