"""Resource managers for measurements: the native protocol through the SDK, and a plain blocking gRPC client.

The native client is the SDK in an event loop in its own thread. The gRPC client has a thread for each stream, like a
simple RM, and drives this system and the reference alike; encoding asks as protobuf is part of the measured time, as
for every RM. Reader threads call `Heard.take`; the measuring thread waits in `Heard.until`.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Final, Generic, Protocol, TypeVar

import grpc

from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.rm_messages import (
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    AllocationResponse,
    ApplicationResponse,
    NodeInfo,
    NodeResponse,
)
from yunishard.rmproxy.si import scheduler_pb2 as pb
from yunishard.sdk.client import ResourceManager

RM_ID: Final = "bench"
CONNECT_S: Final = 60.0
PATIENCE_S: Final = 300.0
"""Maximum wait for any outcome."""


class TooSlow(Exception):
    """The outcome did not arrive in time; the text lists what did."""


class Heard:
    """Results received so far."""

    def __init__(self) -> None:
        self.nodes = 0
        """Those that were accepted; as `applications`."""
        self.applications = 0
        self.running: dict[str, str] = {}
        """Keys of all and only the allocations that run, with their applications, in the order in which they began."""
        self.refused: list[str] = []
        """Rejected items with their reasons: empty in a correct benchmark."""
        self._enough: Callable[[], bool] = bool
        self._reached = threading.Event()

    def take(
        self,
        *,
        nodes: int = 0,
        applications: int = 0,
        new: Iterable[tuple[str, str]] = (),
        released: Iterable[str] = (),
        refused: Sequence[str] = (),
    ) -> None:
        """Count what an answer accepts, starts, ends and refuses."""
        self.nodes += nodes
        self.applications += applications
        self.running.update(new)
        for key in released:
            self.running.pop(key, None)
        self.refused += refused
        self._look()

    def until(self, enough: Callable[[], bool], *, patience_s: float = PATIENCE_S) -> None:
        """Wait until it is enough.

        Raises:
            TooSlow: it took too long, or something was refused, so that it may never be.
        """
        self._reached.clear()
        self._enough = enough
        self._look()
        if not self._reached.wait(patience_s) or self.refused:
            told = f"{self.nodes} nodes, {self.applications} applications and {len(self.running)} allocations"
            raise TooSlow(f"there are {told}, and {len(self.refused)} refusals: {self.refused[:3]}")

    def _look(self) -> None:
        if self._enough() or self.refused:
            self._reached.set()


class Rm(Protocol):
    """A registered resource manager, as a benchmark sees it."""

    heard: Heard

    def nodes(self, nodes: Sequence[NodeInfo]) -> None: ...

    def applications(self, applications: Sequence[AddApplicationRequest]) -> None: ...

    def asks(self, asks: Sequence[Allocation]) -> None: ...

    def releases(self, releases: Sequence[AllocationRelease]) -> None: ...

    def close(self) -> None: ...


# Native protocol ------------------------------------------------------------------------------------------------------

T = TypeVar("T")


class NativeRm:
    """Registered, until it is closed."""

    def __init__(self, address: str, config: str) -> None:
        self.heard = Heard()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._rm = self._await(ResourceManager.connect(address, rm_id=RM_ID, config=config, timeout_s=CONNECT_S))
        self._reading = asyncio.run_coroutine_threadsafe(self._read(), self._loop)

    def nodes(self, nodes: Sequence[NodeInfo]) -> None:
        self._await(self._rm.update_nodes(nodes))

    def applications(self, applications: Sequence[AddApplicationRequest]) -> None:
        self._await(self._rm.update_applications(new=applications))

    def asks(self, asks: Sequence[Allocation]) -> None:
        self._await(self._rm.update_allocations(allocations=asks))

    def releases(self, releases: Sequence[AllocationRelease]) -> None:
        self._await(self._rm.update_allocations(releases=releases))

    def configuration(self, text: str) -> None:
        """Run with another one; returns when all partitions do."""
        self._await(self._rm.update_configuration(text))

    def close(self) -> None:
        """Leave."""
        try:
            self._await(self._end())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _await(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _end(self) -> None:
        """Afterwards the loop runs only this."""
        await self._rm.leave()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _read(self) -> None:
        heard = self.heard
        async for _, news in self._rm.results():
            match news:
                case NodeResponse():
                    refused = [f"{one.node_id}: {one.reason}" for one in news.rejected]
                    heard.take(nodes=len(news.accepted), refused=refused)
                case ApplicationResponse():
                    refused = [f"{one.application_id}: {one.reason}" for one in news.rejected]
                    heard.take(applications=len(news.accepted), refused=refused)
                case AllocationResponse():
                    heard.take(
                        new=((one.allocation_key, one.application_id) for one in news.new),
                        released=(one.allocation_key for one in news.released),
                        refused=[f"{one.allocation_key}: {one.reason}" for one in news.rejected_allocations],
                    )


# gRPC -----------------------------------------------------------------------------------------------------------------

SERVICE: Final = "/si.v1.Scheduler"
PARTITION: Final = "default"

Request = TypeVar("Request")
Response = TypeVar("Response")


class Stream(Generic[Request, Response]):
    """One call with messages both ways; `hear` is called on a thread of its own."""

    def __init__(
        self, call: "grpc.StreamStreamMultiCallable[Request, Response]", hear: Callable[[Response], None]
    ) -> None:
        self._hear = hear
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._call = call(self._updates())
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def send(self, request: Request) -> None:
        self._requests.put(request)

    def close(self) -> None:
        self._requests.put(None)
        self._call.cancel()
        self._thread.join()

    def _updates(self) -> Iterator[Request]:
        while (request := self._requests.get()) is not None:
            yield request

    def _read(self) -> None:
        try:
            for response in self._call:
                self._hear(response)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.CANCELLED:
                raise


class GrpcRm:
    """Registered, with its three streams."""

    def __init__(self, address: str, config: str) -> None:
        self.heard = Heard()
        self._channel = grpc.insecure_channel(address, options=[("grpc.initial_reconnect_backoff_ms", 50)])
        grpc.channel_ready_future(self._channel).result(timeout=CONNECT_S)
        register = self._channel.unary_unary(
            f"{SERVICE}/RegisterResourceManager",
            pb.RegisterResourceManagerRequest.SerializeToString,
            pb.RegisterResourceManagerResponse.FromString,
        )
        registration = pb.RegisterResourceManagerRequest(rmID=RM_ID, version="1", policyGroup="queues", config=config)
        register(registration, timeout=CONNECT_S)
        streams = self._channel.stream_stream
        self._nodes = Stream(
            streams(f"{SERVICE}/UpdateNode", pb.NodeRequest.SerializeToString, pb.NodeResponse.FromString),
            self._hear_nodes,
        )
        self._applications = Stream(
            streams(
                f"{SERVICE}/UpdateApplication",
                pb.ApplicationRequest.SerializeToString,
                pb.ApplicationResponse.FromString,
            ),
            self._hear_applications,
        )
        self._allocations = Stream(
            streams(
                f"{SERVICE}/UpdateAllocation", pb.AllocationRequest.SerializeToString, pb.AllocationResponse.FromString
            ),
            self._hear_allocations,
        )

    def nodes(self, nodes: Sequence[NodeInfo]) -> None:
        items = [
            pb.NodeInfo(
                nodeID=node.node_id,
                action=pb.NodeInfo.ActionFromRM.CREATE,
                schedulableResource=_resource(node.schedulable_resource or {}),
            )
            for node in nodes
        ]
        self._nodes.send(pb.NodeRequest(rmID=RM_ID, nodes=items))

    def applications(self, applications: Sequence[AddApplicationRequest]) -> None:
        items = [
            pb.AddApplicationRequest(
                applicationID=application.application_id,
                queueName=application.queue_name,
                partitionName=PARTITION,
                ugi=pb.UserGroupInformation(user=application.ugi.user, groups=application.ugi.groups),
            )
            for application in applications
        ]
        self._applications.send(pb.ApplicationRequest(rmID=RM_ID, new=items))

    def asks(self, asks: Sequence[Allocation]) -> None:
        items = [
            pb.Allocation(
                allocationKey=ask.allocation_key,
                applicationID=ask.application_id,
                partitionName=PARTITION,
                resourcePerAlloc=_resource(ask.resource_per_alloc),
                priority=ask.priority,
                nodeID=ask.node_id,
            )
            for ask in asks
        ]
        self._allocations.send(pb.AllocationRequest(rmID=RM_ID, allocations=items))

    def releases(self, releases: Sequence[AllocationRelease]) -> None:
        items = [
            pb.AllocationRelease(
                partitionName=PARTITION,
                applicationID=release.application_id,
                allocationKey=release.allocation_key,
                terminationType=pb.TerminationType.STOPPED_BY_RM,
            )
            for release in releases
        ]
        request = pb.AllocationReleasesRequest(allocationsToRelease=items)
        self._allocations.send(pb.AllocationRequest(rmID=RM_ID, releases=request))

    def close(self) -> None:
        for stream in (self._allocations, self._applications, self._nodes):
            stream.close()
        self._channel.close()

    def _hear_nodes(self, news: pb.NodeResponse) -> None:
        refused = [f"{one.nodeID}: {one.reason}" for one in news.rejected]
        self.heard.take(nodes=len(news.accepted), refused=refused)

    def _hear_applications(self, news: pb.ApplicationResponse) -> None:
        refused = [f"{one.applicationID}: {one.reason}" for one in news.rejected]
        self.heard.take(applications=len(news.accepted), refused=refused)

    def _hear_allocations(self, news: pb.AllocationResponse) -> None:
        self.heard.take(
            new=((one.allocationKey, one.applicationID) for one in news.new),
            released=(one.allocationKey for one in news.released),
            refused=[f"{one.allocationKey}: {one.reason}" for one in news.rejectedAllocations],
        )


def _resource(amounts: Resources) -> pb.Resource:
    return pb.Resource(resources={kind: pb.Quantity(value=amount) for kind, amount in amounts.items()})
