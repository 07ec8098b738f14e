"""The scheduler interface over gRPC: `si.v1.Scheduler`, for resource managers that do not speak the native protocol.

A gRPC RM is nothing but a native RM whose SDK sits inside the proxy (`grpc_rm.py`): it talks to the proxy's machine as
the peer `grpc:<rm-id>`, with ordinary native messages. This file knows who is registered and has the rules for streams:
whose a stream is, when it ends and how. The rules are ours, since the reference has no gRPC server to imitate.

Not here: decisions about partitions and sessions of native RMs (`front.py`), protobuf (`convert.py`).
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Final, NoReturn, TypeVar

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Protobuf

from common.machine import Delivery, Send
from common.messages import (
    AllocationResponse,
    ApplicationResponse,
    NodeResponse,
    RegisterResourceManager,
)
from common.wire import BODY_BYTES_MAX
from rmproxy import convert
from rmproxy.grpc_rm import PEER, GrpcRm, Response, RmStream, SessionLostError, Update
from rmproxy.si import scheduler_pb2 as pb

SERVICE: Final = "si.v1.Scheduler"
RM_METADATA: Final = "yk-rm-id"
"""Metadata by which a stream says at once whose it is."""

REGISTRATION_S: Final = 60.0
"""How long a registration may take: the core starts a worker for each partition meanwhile."""

CALLS_MAX: Final = 4096
"""Calls and streams that may be open at once; a further one is refused with RESOURCE_EXHAUSTED."""

STATUS_TEXT_BYTES_MAX: Final = 2000
"""Of the text in a status. It travels percent-encoded, at most three times as long, in metadata, of which clients take
8 KiB; beyond that they would see neither code nor text."""

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", BODY_BYTES_MAX),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),  # RMs may ping as often as we do, and somewhat more
    ("grpc.so_reuseport", 0),  # or else two proxies would share one port, and neither would know
)
_STOPPING: Final = "the scheduler is stopping"

_Protobuf = TypeVar("_Protobuf", bound=Protobuf)
_Ours = TypeVar("_Ours")
_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class GrpcPort:
    """The server, and who is registered with it."""

    def __init__(
        self,
        deliver: Callable[[Delivery], None],
        *,
        new_session: Callable[[], str] = secrets.token_hex,
        registration_s: float = REGISTRATION_S,
    ) -> None:
        self._deliver = deliver
        self._new_session = new_session
        self._registration_s = registration_s
        self._registered: dict[str, GrpcRm] = {}
        """RM id to its registration; an RM stays in it until the core has answered the next one with yes."""
        self._registering: dict[str, GrpcRm] = {}
        """RM id to the registration that the core has not answered."""
        self._streams: set[RmStream] = set()
        """All and only the streams that are open, bound or not."""
        self._stopping = False
        self._server: grpc.aio.Server | None = None

    async def start(self, address: str, credentials: grpc.ServerCredentials | None = None) -> str:
        """Listen, with TLS if there are credentials, and serve from now on; the address with the port that was bound.

        Raises:
            OSError: the address cannot be bound.
        """
        server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=CALLS_MAX)
        server.add_generic_rpc_handlers((self._service(),))
        try:
            if credentials is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, credentials)
        except RuntimeError:  # grpc's text says no more than ours
            raise OSError(f"cannot listen for gRPC on {address}: it is in use, or no address of this machine") from None
        await server.start()
        self._server = server
        host, colon, _ = address.rpartition(":")
        return address if address.startswith("unix:") else f"{host}{colon}{port}"

    async def stop(self, grace_s: float) -> None:
        """End all streams and calls with UNAVAILABLE and refuse new ones; what is left after the grace is cut off."""
        if self._server is None:
            return
        self._stopping = True
        for stream in self._streams:
            stream.end(grpc.StatusCode.UNAVAILABLE, _STOPPING)
        for rm in self._registering.values():
            rm.end(grpc.StatusCode.UNAVAILABLE, _STOPPING)
        await self._server.stop(grace_s)

    def receive(self, message: Send) -> None:
        """Take what the proxy's machine says to the peer `grpc:<rm-id>`; what is for an earlier session is dropped."""
        rm_id = message.to.removeprefix(PEER)
        for rms in (self._registering, self._registered):
            rm = rms.get(rm_id)
            if rm is not None and rm.session.session == message.header.session:
                try:
                    rm.receive(message.header, message.body)
                except SessionLostError as lost:
                    rm.end(grpc.StatusCode.ABORTED, f"{lost}: register again")
                    if rms is self._registered:
                        del rms[rm_id]
                return

    # Registration ---------------------------------------------------------------------------------------------------

    async def _register(
        self,
        request: RegisterResourceManager,
        context: grpc.aio.ServicerContext[RegisterResourceManager, pb.RegisterResourceManagerResponse],
    ) -> pb.RegisterResourceManagerResponse:
        if self._stopping:
            await _abort(context, grpc.StatusCode.UNAVAILABLE, _STOPPING)
        if request.rm_id in self._registering:
            await _abort(context, grpc.StatusCode.ABORTED, _in_progress(request.rm_id))
        rm = GrpcRm(rm_id=request.rm_id, session=self._new_session(), deliver=self._deliver)
        self._registering[request.rm_id] = rm
        rm.register(request)
        try:
            async with asyncio.timeout(self._registration_s):
                await rm.answered.wait()
        except TimeoutError:
            rm.end(grpc.StatusCode.DEADLINE_EXCEEDED, f"the core did not answer within {self._registration_s:g} s")
        finally:
            self._settle(rm)
        if rm.ending is not None:
            await _abort(context, *rm.ending)
        return pb.RegisterResourceManagerResponse()

    def _settle(self, rm: GrpcRm) -> None:
        """A registration has come to something. If it was refused, the earlier one stays; otherwise that one is over.

        No answer ends the earlier one too: what the core made of it is not known, and the earlier session may be gone.
        """
        rm_id = rm.session.rm_id
        del self._registering[rm_id]
        if rm.session.state != "refused" and (earlier := self._registered.pop(rm_id, None)) is not None:
            earlier.end(grpc.StatusCode.ABORTED, f"RM {rm_id} registered again")
        if rm.session.state == "open" and rm.ending is None:
            self._registered[rm_id] = rm

    # Streams --------------------------------------------------------------------------------------------------------

    async def _serve(
        self,
        stream: RmStream,
        updates: AsyncIterator[Update],
        context: grpc.aio.ServicerContext[Update, Response],
    ) -> None:
        """A stream, from its opening to its end: reading runs in a task of its own, writing and ending here."""
        rm_id = dict(context.invocation_metadata() or ()).get(RM_METADATA)
        if self._stopping:
            stream.end(grpc.StatusCode.UNAVAILABLE, _STOPPING)
        elif rm_id:
            self._bind(stream, str(rm_id))
        self._streams.add(stream)
        reader = asyncio.create_task(self._read(stream, updates))
        reader.add_done_callback(lambda _: stream.half_close())
        try:
            await context.send_initial_metadata(())  # some clients wait for it: the stream is open, and perhaps bound
            while (response := await stream.next()) is not None:
                await context.write(response)
                stream.written()
        finally:
            self._streams.discard(stream)
            if stream.rm is not None:
                stream.rm.unbind(stream)
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        if stream.ending is not None:
            await _abort(context, *stream.ending)
        reader.result()  # raises what went wrong in there

    async def _read(self, stream: RmStream, updates: AsyncIterator[Update]) -> None:
        try:
            async for update in updates:
                if stream.rm is None:
                    self._bind(stream, update.rm_id)
                elif update.rm_id not in ("", stream.rm.session.rm_id):
                    text = f'this stream is of RM "{stream.rm.session.rm_id}", not of "{update.rm_id}"'
                    stream.end(grpc.StatusCode.INVALID_ARGUMENT, text)
                if stream.rm is None or stream.ending is not None:
                    return
                await stream.rm.update(update)
        except DecodeError as error:
            stream.end(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    def _bind(self, stream: RmStream, rm_id: str) -> None:
        """Give the stream to its RM, or end it."""
        if rm_id in self._registering:
            stream.end(grpc.StatusCode.ABORTED, _in_progress(rm_id))
        elif (rm := self._registered.get(rm_id)) is not None:
            rm.bind(stream)
        else:
            request = stream.response.__name__.replace("Response", "Request")
            text = f'received {request}, but RmID="{rm_id}" not registered'
            stream.end(grpc.StatusCode.FAILED_PRECONDITION, text)

    # The service ----------------------------------------------------------------------------------------------------

    def _service(self) -> grpc.GenericRpcHandler:
        """What the generated servicer would do, with our messages in place of protobuf's."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "RegisterResourceManager": grpc.unary_unary_rpc_method_handler(
                    self._register,
                    request_deserializer=_reader(pb.RegisterResourceManagerRequest, convert.registration_from),
                    response_serializer=pb.RegisterResourceManagerResponse.SerializeToString,
                ),
                "UpdateNode": self._updates(NodeResponse, _reader(pb.NodeRequest, convert.nodes_from)),
                "UpdateApplication": self._updates(
                    ApplicationResponse, _reader(pb.ApplicationRequest, convert.applications_from)
                ),
                "UpdateAllocation": self._updates(
                    AllocationResponse, _reader(pb.AllocationRequest, convert.allocations_from)
                ),
            },
        )

    def _updates(
        self, response: type[Response], read: Callable[[bytes], Update]
    ) -> "grpc.RpcMethodHandler[Update, Response]":  # generic in its stubs only
        async def serve(updates: AsyncIterator[Update], context: grpc.aio.ServicerContext[Update, Response]) -> None:
            await self._serve(RmStream(response), updates, context)

        return grpc.stream_stream_rpc_method_handler(
            serve, request_deserializer=read, response_serializer=convert.response_to
        )


def _reader(kind: type[_Protobuf], convert_from: Callable[[_Protobuf], _Ours]) -> Callable[[bytes], _Ours]:
    return lambda data: convert_from(kind.FromString(data))


async def _abort(context: grpc.aio.ServicerContext[_Request, _Response], code: grpc.StatusCode, text: str) -> NoReturn:
    await context.abort(code, text.encode()[:STATUS_TEXT_BYTES_MAX].decode(errors="ignore"))


def _in_progress(rm_id: str) -> str:
    return f"a registration of RM {rm_id} is in progress"
