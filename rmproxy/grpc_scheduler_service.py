"""The gRPC server, and the service `si.v1.Scheduler` for RMs that do not use the native protocol.

A gRPC RM is a native RM whose SDK runs inside the proxy (`grpc_manager.py`): it is the peer `grpc:<rm-id>` of the
proxy's machine and sends ordinary native messages. This file has the server and the rules for streams: which RM a
stream belongs to, and when and how it ends. The rules are ours, since the reference has no gRPC server.

Not here: protobuf (`grpc_conversion.py`), the other service (`grpc_admin_service.py`).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

import grpc
from google.protobuf.message import Message as ProtobufMessage
from msgspec.structs import replace

from yunishard.common.messages import rm_messages
from yunishard.common.messages.wire import BODY_BYTES_MAX
from yunishard.common.retries import LogLimit
from yunishard.common.transport.event_loop import clock
from yunishard.rmproxy import grpc_conversion, grpc_streams
from yunishard.rmproxy.authentication import Authorizer
from yunishard.rmproxy.grpc_admin_service import AdminService
from yunishard.rmproxy.grpc_conversion import Response, Update
from yunishard.rmproxy.grpc_manager import GrpcRegistry, GrpcRm
from yunishard.rmproxy.grpc_streams import Context, RmStream, StatusError, StatusKind
from yunishard.rmproxy.si import scheduler_pb2 as pb

CHECK_EVERY_S: Final = 0.05
"""Seconds between two checks whether the server runs; also the pause between two attempts to bind its address."""

REPLACED_MAX: Final = 8
"""Replaced servers that may wait for the end of their streams. Beyond it, the streams of the oldest are cut off."""

STREAMS_MAX_S: Final = 30 * 86_400.0
"""Seconds that they may wait."""

_LOGGERS: Final = ("asyncio", "grpc._cython.cygrpc")
"""Loggers that log the end of a server each time, and calls that a stop cancels, with a traceback."""

_log = logging.getLogger("core.rmproxy")


SERVICE: Final = "si.v1.Scheduler"

GRPC_CAPABILITIES: Final = (rm_messages.PREDICATES, rm_messages.PREEMPTION_PREDICATES)
"""Those that an RM may have over gRPC: it may read events without one, and there is no call for its state dump."""

KEEPALIVE_S: Final = 20.0
KEEPALIVE_ANSWER_S: Final = 10.0
"""Seconds without data before the server pings a connection, and seconds that the answer may take; then its streams
end."""

CLIENT_KEEPALIVE_S: Final = 10.0
"""Least seconds between two pings of a client; gRPC closes the connection of a client that pings more often."""


_Request = TypeVar("_Request", bound=ProtobufMessage)


class StreamKind(NamedTuple):
    """One of the three kinds of streams: its requests and responses."""

    request: str
    """The name of its requests."""
    read: Callable[[bytes], Update]
    response: type[Response]


def _make_kind(request: type[_Request], convert: Callable[[_Request], Update], response: type[Response]) -> StreamKind:
    return StreamKind(
        request.DESCRIPTOR.name, lambda data: convert(grpc_streams.parse_request(request, data)), response
    )


STREAM_KINDS: Final = {
    "UpdateNode": _make_kind(pb.NodeRequest, grpc_conversion.read_nodes, rm_messages.NodeResponse),
    "UpdateApplication": _make_kind(
        pb.ApplicationRequest, grpc_conversion.read_applications, rm_messages.ApplicationResponse
    ),
    "UpdateAllocation": _make_kind(
        pb.AllocationRequest, grpc_conversion.read_allocations, rm_messages.AllocationResponse
    ),
}
"""By the name of the call."""


STREAMS_OF_CONNECTION_MAX: Final = 1024
"""Calls and streams of one connection; the client keeps further ones back until one ends."""

PENDING_MAX: Final = 8192
"""Calls that have arrived and were not looked at yet, which takes about a millisecond each; gRPC cancels further ones.
"""

HANDSHAKE_MAX_S: Final = 10.0
"""Seconds that a connection may take for TLS and the first frames of HTTP/2; then it is closed."""

CONNECTION_IDLE_MAX_S: Final = 60.0
"""Seconds without a call after which a connection is closed; the client connects again for its next call."""

PAUSE_GRACE_S: Final = 2.0
"""Seconds that calls may take to end when the port is closed for a while."""


class GrpcServer:
    """The server with both services, and all open streams."""

    def __init__(self, registry: GrpcRegistry, admin: AdminService, authorizer: Authorizer) -> None:
        self._registry = registry
        self._limits = registry.limits
        self._admin = admin
        self._authorizer = authorizer
        self._options = (
            ("grpc.server.max_pending_requests", PENDING_MAX),
            ("grpc.server.max_pending_requests_hard_limit", PENDING_MAX),
            ("grpc.max_concurrent_streams", STREAMS_OF_CONNECTION_MAX),
            ("grpc.max_connection_idle_ms", int(CONNECTION_IDLE_MAX_S * 1000)),
            ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_MAX_S * 1000)),
            ("grpc.max_receive_message_length", BODY_BYTES_MAX),
            ("grpc.keepalive_time_ms", int(KEEPALIVE_S * 1000)),
            ("grpc.keepalive_timeout_ms", int(KEEPALIVE_ANSWER_S * 1000)),
            ("grpc.http2.ping_timeout_ms", int(KEEPALIVE_ANSWER_S * 1000)),  # the default is a minute
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", int(CLIENT_KEEPALIVE_S * 1000)),
            ("grpc.so_reuseport", 0),  # otherwise two proxies could share one port unnoticed
        )
        self._streams: set[RmStream] = set()
        """All and only the streams that are open, bound or not."""
        self._server: grpc.aio.Server | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._may_listen = asyncio.Event()
        self._may_listen.set()
        self._replaced: dict[grpc.aio.Server, asyncio.Task[None]] = {}
        """Replaced servers, which accept no calls, to the task that waits for the end of their streams."""
        self._log_limit = LogLimit(1)

    async def start(self, address: str, credentials: grpc.ServerCredentials | None = None) -> str:
        """Listen, with TLS if there are credentials, and serve; return the address with the bound port.

        Raises:
            OSError: the address cannot be bound.
        """
        bound = await self._open(address, credentials)
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(_is_other_problem)
        self._keeper = asyncio.create_task(self._keep(bound, credentials))
        return bound

    async def stop(self, grace_s: float) -> None:
        """End all streams and calls with UNAVAILABLE, refuse new ones, and cut off the rest after the grace period."""
        for stream in self._streams:
            stream.end(StatusKind.STOPPING.make())
        self._registry.stop(StatusKind.STOPPING.make())
        if self._keeper is not None:
            self._keeper.cancel()
        for server in (*self._replaced, *([self._server] if self._server is not None else ())):
            await server.stop(grace_s)
        if self._replaced:
            await asyncio.wait(self._replaced.values())

    def pause(self) -> None:
        """Close all connections, and refuse new ones until `resume`."""
        self._may_listen.clear()
        if self._server is not None:
            self._retire(self._server, PAUSE_GRACE_S)
            self._server = None

    def resume(self) -> None:
        """Listen again, as soon as the address can be bound."""
        self._may_listen.set()

    def authorize_again(self) -> None:
        """End the streams whose callers may no longer act for their RMs, after the keys of RMs have changed."""
        for stream in self._streams:
            if not stream.rm_id:
                continue
            try:
                self._authorizer.check(stream.rm_id, stream.permitted)
            except StatusError as ended:
                stream.end(ended.status)

    # Registration ---------------------------------------------------------------------------------------------------

    async def _register(self, requests: AsyncIterator[bytes], context: Context) -> bytes:
        async with grpc_streams.abort_on_error(context):
            sent = await self._limits.read_request(pb.RegisterResourceManagerRequest, requests, context)
            request = grpc_conversion.read_registration(sent)
            self._authorizer.check(request.rm_id, grpc_streams.read_rm_ids(context.auth_context()))
            named = grpc_streams.read_metadata(context, grpc_streams.CAPABILITIES_METADATA).split(",")
            capabilities = [one.strip() for one in named if one.strip() in GRPC_CAPABILITIES]
            keeps = grpc_streams.read_metadata(context, grpc_streams.SESSION_METADATA) == grpc_streams.KEEP_SESSION
            wanted, peer = replace(request, capabilities=capabilities), grpc_streams.read_peer(context)
            rm = await self._registry.register(wanted, keeps_session=keeps, peer=peer)
            if keeps:
                await context.send_initial_metadata(((grpc_streams.SESSION_METADATA, rm.session.session),))
        return pb.RegisterResourceManagerResponse().SerializeToString()

    # Streams --------------------------------------------------------------------------------------------------------

    async def _serve(self, kind: StreamKind, requests: AsyncIterator[bytes], context: Context) -> None:
        """Serve one stream: reading runs in a separate task, writing and ending here.

        gRPC cancels this task when the client disconnects; responses that are not known to be written stay queued.
        """
        stream = RmStream(grpc_streams.read_rm_ids(context.auth_context()))
        self._streams.add(stream)
        reader = asyncio.create_task(self._read(kind, stream, context, requests))
        reader.add_done_callback(lambda _: stream.half_close())
        try:
            await context.send_initial_metadata(())  # some clients wait for it
            while (response := await stream.next_response()) is not None:
                await stream.write(context.write(response))
        except TimeoutError:
            stream.end(StatusKind.STALLED.make(unread_s=grpc_streams.STALLED_MAX_S))
        finally:
            self._streams.discard(stream)
            stream.release()
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        if stream.status is not None:
            await grpc_streams.abort(context, stream.status)
        if not reader.cancelled():
            reader.result()  # raises its exception

    async def _read(self, kind: StreamKind, stream: RmStream, context: Context, requests: AsyncIterator[bytes]) -> None:
        bound_to = grpc_streams.read_metadata(context, grpc_streams.RM_METADATA)
        session = grpc_streams.read_metadata(context, grpc_streams.SESSION_METADATA)
        try:
            if bound_to:
                rm = await self._bind(kind, stream, bound_to, session, context)
            elif (first := await self._limits.read_first(requests, context)) is not None:
                update = kind.read(first)
                rm = await self._bind(kind, stream, update.rm_id, session, context)
                await rm.update(update)
            else:
                return
            async for data in requests:
                update = kind.read(data)
                if update.rm_id not in ("", rm.session.rm_id):
                    raise StatusError(StatusKind.OTHER_RM.make(rm_id=rm.session.rm_id, named=update.rm_id))
                await rm.update(update)
        except StatusError as ended:
            stream.end(ended.status)

    async def _bind(self, kind: StreamKind, stream: RmStream, rm_id: str, session: str, context: Context) -> GrpcRm:
        """Bind a stream to an RM."""
        self._authorizer.check(rm_id, stream.permitted)
        rm = await self._registry.find_or_take_over(rm_id, kind.request, session, peer=grpc_streams.read_peer(context))
        stream.rm_id = rm_id
        rm.bind_stream(kind.response, stream)
        return rm

    # The server -----------------------------------------------------------------------------------------------------

    async def _open(self, address: str, credentials: grpc.ServerCredentials | None) -> str:
        server = grpc.aio.server(options=self._options)
        server.add_generic_rpc_handlers((self._service(), self._admin.service()))
        try:
            if credentials is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, credentials)
        except RuntimeError:  # its text has no details
            raise OSError(f"cannot listen for gRPC on {address}: it is in use, or no address of this machine") from None
        await server.start()
        self._server = server
        host, colon, _ = address.rpartition(":")
        return address if address.startswith("unix:") else f"{host}{colon}{port}"

    async def _keep(self, address: str, credentials: grpc.ServerCredentials | None) -> None:
        """Replace the server whenever it ends.

        A call whose name is not UTF-8 ends a server of grpcio 1.85, because the library decodes the name without
        handling the error. A new server then listens at the same address; streams that are open stay at the old one
        until they end.
        """
        while True:
            await self._may_listen.wait()
            server = self._server
            if server is None:
                try:
                    await self._open(address, credentials)
                except OSError:
                    await asyncio.sleep(CHECK_EVERY_S)
                continue
            try:
                await server.wait_for_termination(CHECK_EVERY_S)
            except UnicodeDecodeError:
                text = f"a call with a name that is not UTF-8 ended the gRPC server; a new one listens at {address}"
                if (more := self._log_limit.admit(clock())) is not None:
                    _log.warning("%s%s", text, more)
                self._retire(server, STREAMS_MAX_S)
                if len(self._replaced) > REPLACED_MAX:
                    self._retire(next(iter(self._replaced)), None)
                self._server = None

    def _retire(self, server: grpc.aio.Server, grace_s: float | None) -> None:
        """Let the streams of a replaced server end within this time; None cuts them off."""
        task = self._replaced[server] = asyncio.create_task(server.stop(grace_s))
        task.add_done_callback(lambda _: self._replaced.pop(server, None))

    def _service(self) -> grpc.GenericRpcHandler:
        """Register the calls as the generated servicer does, but with bytes in place of protobuf messages."""
        calls: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {  # generic in its stubs only
            name: grpc.stream_stream_rpc_method_handler(partial(self._serve, sort))
            for name, sort in STREAM_KINDS.items()
        }
        calls["RegisterResourceManager"] = grpc.stream_unary_rpc_method_handler(self._register)
        return grpc.method_handlers_generic_handler(SERVICE, calls)


def _is_other_problem(record: logging.LogRecord) -> bool:
    """Return whether a log record is not about the end of such a server, or of a call that was cancelled."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error or record.msg, UnicodeDecodeError | asyncio.CancelledError)
