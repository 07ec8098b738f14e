"""The scheduler interface over gRPC: `si.v1.Scheduler`, for resource managers that do not speak the native protocol.

A gRPC RM is nothing but a native RM whose SDK sits inside the proxy (`grpc_rm.py`): it talks to the proxy's machine as
the peer `grpc:<rm-id>`, with ordinary native messages. This file has the server and the rules for streams: whose a
stream is, when it ends and how. The rules are ours, since the reference has no gRPC server to imitate.

Not here: decisions about partitions and sessions of native RMs (`front.py`), who is registered (`grpc_registry.py`),
protobuf (`convert.py`), keeping the server open (`grpc_server.py`), the service for what the scheduler interface has no
call for (`grpc_admin.py`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import grpc

from common.rm_messages import AllocationResponse, ApplicationResponse, NodeResponse
from common.wire import BODY_BYTES_MAX
from rmproxy import convert
from rmproxy import grpc_endings as endings
from rmproxy.grpc_admin import Admin
from rmproxy.grpc_authz import Authorizer
from rmproxy.grpc_endings import EndedError, abort
from rmproxy.grpc_pieces import Response, Update
from rmproxy.grpc_registry import Registry
from rmproxy.grpc_requests import request_of, rm_named
from rmproxy.grpc_rm import GrpcRm
from rmproxy.grpc_server import OpenServer
from rmproxy.grpc_stream import RmStream
from rmproxy.grpc_tls import permitted
from rmproxy.si import scheduler_pb2 as pb

SERVICE: Final = "si.v1.Scheduler"

CALLS_MAX: Final = 4096
"""Calls and streams that may be open at once; a further one is refused with RESOURCE_EXHAUSTED."""

KEEPALIVE_S: Final = 20.0
KEEPALIVE_ANSWER_S: Final = 10.0
"""How often a connection on which nothing comes is asked whether it is there, and how long the answer may take; then
its streams are over."""

CLIENT_KEEPALIVE_S: Final = 10.0
"""RMs may ask as often as we do, and somewhat more; whoever asks more often is cut off by gRPC."""

_Context = grpc.aio.ServicerContext[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Sort:
    """One of the three sorts of streams: what comes in, and what goes out."""

    request: str
    """The name of its requests."""
    read: Callable[[bytes], Update]
    response: type[Response]


SORTS: Final = {
    "UpdateNode": Sort("NodeRequest", partial(request_of, pb.NodeRequest, convert.nodes_from), NodeResponse),
    "UpdateApplication": Sort(
        "ApplicationRequest", partial(request_of, pb.ApplicationRequest, convert.applications_from), ApplicationResponse
    ),
    "UpdateAllocation": Sort(
        "AllocationRequest", partial(request_of, pb.AllocationRequest, convert.allocations_from), AllocationResponse
    ),
}
"""By the name of the call."""


class GrpcPort:
    """The server, and the streams that are open."""

    def __init__(
        self,
        registry: Registry,
        admin: Admin,
        authorizer: Authorizer,
        *,
        keepalive_s: float = KEEPALIVE_S,
        keepalive_answer_s: float = KEEPALIVE_ANSWER_S,
    ) -> None:
        self._registry = registry
        self._admin = admin
        self._authorizer = authorizer
        self._options = (
            ("grpc.max_receive_message_length", BODY_BYTES_MAX),
            ("grpc.keepalive_time_ms", int(keepalive_s * 1000)),
            ("grpc.keepalive_timeout_ms", int(keepalive_answer_s * 1000)),
            ("grpc.http2.ping_timeout_ms", int(keepalive_answer_s * 1000)),  # a minute, where nothing else is said
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", int(CLIENT_KEEPALIVE_S * 1000)),
            ("grpc.so_reuseport", 0),  # or else two proxies would share one port, and neither would know
        )
        self._streams: set[RmStream] = set()
        """All and only the streams that are open, bound or not."""
        self._server = OpenServer(self._made)

    async def start(self, address: str, credentials: grpc.ServerCredentials | None = None) -> str:
        """Listen, with TLS if there are credentials, and serve from now on; the address with the port that was bound.

        Raises:
            OSError: the address cannot be bound.
        """
        return await self._server.start(address, credentials)

    async def stop(self, grace_s: float) -> None:
        """End all streams and calls with UNAVAILABLE and refuse new ones; what is left after the grace is cut off."""
        for stream in self._streams:
            stream.end(endings.stopping())
        self._registry.stop(endings.stopping())
        await self._server.stop(grace_s)

    def authorize_again(self) -> None:
        """End the streams whose callers may no longer act for their RMs, after the keys of RMs have changed."""
        for stream in self._streams:
            if not stream.rm_id:
                continue
            try:
                self._authorizer.check(stream.rm_id, stream.permitted)
            except EndedError as ended:
                stream.end(ended.ending)

    # Registration ---------------------------------------------------------------------------------------------------

    async def _register(self, data: bytes, context: _Context) -> bytes:
        try:
            request = request_of(pb.RegisterResourceManagerRequest, convert.registration_from, data)
            self._authorizer.check(request.rm_id, permitted(context))
            await self._registry.register(request)
        except EndedError as ended:
            await abort(context, ended.ending)
        return pb.RegisterResourceManagerResponse().SerializeToString()

    # Streams --------------------------------------------------------------------------------------------------------

    async def _serve(self, sort: Sort, requests: AsyncIterator[bytes], context: _Context) -> None:
        """A stream, from its opening to its end: reading runs in a task of its own, writing and ending here.

        A client that goes cancels this task, wherever it is; what is not known to be written then stays queued.
        """
        stream = RmStream(permitted(context))
        self._streams.add(stream)
        reader = asyncio.create_task(self._read(sort, stream, rm_named(context), requests))
        reader.add_done_callback(lambda _: stream.half_close())
        try:
            await context.send_initial_metadata(())  # some clients wait for it: the stream is open, and perhaps bound
            while (response := await stream.next()) is not None:
                await context.write(response)
                stream.written()
        finally:
            self._streams.discard(stream)
            stream.over()
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        if stream.ending is not None:
            await abort(context, stream.ending)
        if not reader.cancelled():
            reader.result()  # raises what went wrong in there

    async def _read(self, sort: Sort, stream: RmStream, bound_to: str, requests: AsyncIterator[bytes]) -> None:
        try:
            rm = self._bound(sort, stream, bound_to) if bound_to else None
            async for data in requests:
                update = sort.read(data)
                if rm is None:
                    rm = self._bound(sort, stream, update.rm_id)
                elif update.rm_id not in ("", rm.session.rm_id):
                    raise EndedError(endings.foreign(rm.session.rm_id, update.rm_id))
                await rm.update(update)
        except EndedError as ended:
            stream.end(ended.ending)

    def _bound(self, sort: Sort, stream: RmStream, rm_id: str) -> GrpcRm:
        """The RM whose stream this is from now on."""
        self._authorizer.check(rm_id, stream.permitted)
        rm = self._registry.find(rm_id, sort.request)
        stream.rm_id = rm_id
        rm.bind(sort.response, stream)
        return rm

    # The service ----------------------------------------------------------------------------------------------------

    def _made(self) -> grpc.aio.Server:
        server = grpc.aio.server(options=self._options, maximum_concurrent_rpcs=CALLS_MAX)
        server.add_generic_rpc_handlers((self._service(), self._admin.service()))
        return server

    def _service(self) -> grpc.GenericRpcHandler:
        """What the generated servicer would do, with bytes in place of protobuf's messages."""
        calls: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {  # generic in its stubs only
            name: grpc.stream_stream_rpc_method_handler(partial(self._serve, sort)) for name, sort in SORTS.items()
        }
        calls["RegisterResourceManager"] = grpc.unary_unary_rpc_method_handler(self._register)
        return grpc.method_handlers_generic_handler(SERVICE, calls)
