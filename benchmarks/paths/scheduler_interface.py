"""A resource manager that speaks the scheduler interface over gRPC, to this system or to the reference alike.

Plain blocking gRPC, a thread for each stream that is read: what an RM written without thinking of speed would be. To
turn asks into protobuf is part of what is timed, as it is for every RM.
"""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, TypeVar

import grpc

from benchmarks.paths.heard import Heard
from common.messages import Resources
from common.rm_messages import AddApplicationRequest, Allocation, AllocationRelease, NodeInfo
from rmproxy.si import scheduler_pb2 as pb

SERVICE: Final = "/si.v1.Scheduler"
CONNECT_S: Final = 60.0
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
        self._call = call(self._said())
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def send(self, request: Request) -> None:
        self._requests.put(request)

    def close(self) -> None:
        self._requests.put(None)
        self._call.cancel()
        self._thread.join()

    def _said(self) -> Iterator[Request]:
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

    def __init__(self, address: str, config: str, *, rm_id: str = "bench") -> None:
        self.heard = Heard()
        self._rm_id = rm_id
        self._channel = grpc.insecure_channel(address, options=[("grpc.initial_reconnect_backoff_ms", 50)])
        grpc.channel_ready_future(self._channel).result(timeout=CONNECT_S)
        register = self._channel.unary_unary(
            f"{SERVICE}/RegisterResourceManager",
            request_serializer=pb.RegisterResourceManagerRequest.SerializeToString,
            response_deserializer=pb.RegisterResourceManagerResponse.FromString,
        )
        register(
            pb.RegisterResourceManagerRequest(rmID=rm_id, version="1", policyGroup="queues", config=config),
            timeout=CONNECT_S,
        )
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
        self._nodes.send(pb.NodeRequest(rmID=self._rm_id, nodes=items))

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
        self._applications.send(pb.ApplicationRequest(rmID=self._rm_id, new=items))

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
        self._allocations.send(pb.AllocationRequest(rmID=self._rm_id, allocations=items))

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
        self._allocations.send(pb.AllocationRequest(rmID=self._rm_id, releases=request))

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
        self.heard.take_allocations(
            ((one.allocationKey, one.applicationID) for one in news.new),
            (one.allocationKey for one in news.released),
            [f"{one.allocationKey}: {one.reason}" for one in news.rejectedAllocations],
        )


def _resource(amounts: Resources) -> pb.Resource:
    return pb.Resource(resources={kind: pb.Quantity(value=amount) for kind, amount in amounts.items()})
