"""The two ways to a scheduler: the scheduler interface over gRPC, and the native protocol by way of the SDK.

Both take and give the messages of the scheduler interface, so that a trace is the same on either. Each has threads of
its own, on which `hear` is called.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

import grpc
from msgspec.structs import force_setattr

from yunishard.common.messages.rm_messages import AllocationResponse, ApplicationResponse, NodeResponse
from yunishard.rmproxy import grpc_conversion
from yunishard.rmproxy.grpc_streams import RM_METADATA
from yunishard.rmproxy.si import scheduler_pb2 as pb
from yunishard.rmproxy.si.scheduler_pb2_grpc import SchedulerStub
from yunishard.sdk.client import ResourceManager
from yunishard.sdk.exceptions import RegistrationRefused

_News = TypeVar("_News", NodeResponse, ApplicationResponse, AllocationResponse)

REGISTER_S: Final = 30.0
UNANSWERED: Final = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)

Hear = Callable[[Any], None]
"""Who takes the scheduler's responses: `NodeResponse`, `ApplicationResponse`, `AllocationResponse`."""


class RefusedError(Exception):
    """The scheduler does not take this resource manager."""


class Wire(Protocol):
    """A registered resource manager's way to the scheduler."""

    @property
    def failed(self) -> list[bool]:
        """Whether each of its streams has broken."""

    def send(self, request: Any) -> None:
        """Say it, in order, without waiting."""

    def close(self) -> None:
        """Hang up."""


Dial = Callable[[str, str, dict[str, str], Hear], Wire]
"""Register under this id with this configuration and these settings. Raises RefusedError."""


# gRPC -----------------------------------------------------------------------------------------------------------------


class Stream:
    """One call with messages both ways."""

    def __init__(self, method: Any, rm_id: str, hear: Hear) -> None:
        """The metadata names the RM, because a trace may send the first message late."""
        self.failed = False
        self._hear = hear
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._call = method(iter(self._requests.get, None), metadata=((RM_METADATA, rm_id),))
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, request: Any) -> None:
        self._requests.put(request)

    def close(self) -> None:
        self._requests.put(None)
        self._call.cancel()

    def _read(self) -> None:
        try:
            for reply in self._call:
                self._hear(reply)
        except grpc.RpcError as error:
            self.failed = error.code() != grpc.StatusCode.CANCELLED


STREAMS: Final = (pb.AllocationRequest, pb.ApplicationRequest, pb.NodeRequest)
"""What goes over a stream of its own."""


class GrpcWire:
    """Three streams."""

    def __init__(self, stub: SchedulerStub, rm_id: str, config: str, extra: dict[str, str], hear: Hear) -> None:
        request = pb.RegisterResourceManagerRequest(
            rmID=rm_id, version="1", policyGroup="queues", config=config, extraConfig=extra
        )
        try:
            stub.RegisterResourceManager(request, timeout=REGISTER_S)
        except grpc.RpcError as error:
            if error.code() in UNANSWERED:
                raise
            raise RefusedError(error.details()) from error
        self._streams = {
            pb.AllocationRequest: Stream(stub.UpdateAllocation, rm_id, hear),
            pb.ApplicationRequest: Stream(stub.UpdateApplication, rm_id, hear),
            pb.NodeRequest: Stream(stub.UpdateNode, rm_id, hear),
        }

    @property
    def failed(self) -> list[bool]:
        return [stream.failed for stream in self._streams.values()]

    def send(self, request: Any) -> None:
        self._streams[type(request)].send(request)

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()


# Native ---------------------------------------------------------------------------------------------------------------


class NativeWire:
    """The SDK in an event loop of its own."""

    def __init__(self, address: str, rm_id: str, config: str, extra: dict[str, str], hear: Hear) -> None:
        self.failed = [False] * len(STREAMS)
        self._hear = hear
        self._loop = asyncio.new_event_loop()
        self._requests: asyncio.Queue[Any] = asyncio.Queue()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        connecting = ResourceManager.connect(
            address, rm_id=rm_id, config=config, version="1", extra_config=extra, timeout_s=REGISTER_S
        )
        try:
            self._rm = asyncio.run_coroutine_threadsafe(connecting, self._loop).result()
        except RegistrationRefused as refusal:
            self._stop()
            raise RefusedError(str(refusal)) from refusal
        self._tasks = [asyncio.run_coroutine_threadsafe(one, self._loop) for one in (self._say(), self._read())]

    def send(self, request: Any) -> None:
        self._loop.call_soon_threadsafe(self._requests.put_nowait, request)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._rm.close(), self._loop).result()
        for task in self._tasks:
            task.cancel()
        asyncio.run_coroutine_threadsafe(self._ended(), self._loop).result()
        self._stop()

    async def _ended(self) -> None:
        """Wait until nothing but this runs in the loop."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)

    async def _say(self) -> None:
        while True:
            match await self._requests.get():
                case pb.NodeRequest() as request:
                    await self._rm.update_nodes(grpc_conversion.read_nodes(request).nodes)
                case pb.ApplicationRequest() as request:
                    applications = grpc_conversion.read_applications(request)
                    await self._rm.update_applications(new=applications.new, remove=applications.remove)
                case pb.AllocationRequest() as request:
                    update = grpc_conversion.read_allocations(request)
                    releases = update.releases.allocations_to_release
                    await self._rm.update_allocations(allocations=update.allocations, releases=releases)

    async def _read(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            async for _, news in self._rm.results():
                if isinstance(news, NodeResponse | ApplicationResponse | AllocationResponse):
                    self._hear(grpc_conversion.write_response(_as_sent(news)))
            return
        self.failed = [True] * len(STREAMS)

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _as_sent(news: _News) -> _News:
    """The response as the core sent it: the SDK sets the partition's name in items that have none on the wire."""
    match news:
        case NodeResponse():
            items = [*news.accepted, *news.rejected]
        case ApplicationResponse():
            items = [*news.accepted, *news.rejected, *news.updated]
        case AllocationResponse():
            items = [*news.new, *news.rejected_allocations]
    for item in items:
        force_setattr(item, "partition_name", "")
    return news
