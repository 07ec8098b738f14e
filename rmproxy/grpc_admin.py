"""`yunishard.v1.Admin`: what an RM over gRPC may ask for besides the scheduler interface (`admin/admin.proto`).

Each call is for the RM itself, like its streams. Not here: what the core makes of it.
"""

import asyncio
from collections import Counter
from functools import partial
from typing import Final

import grpc

from common.names import normalised
from common.query_messages import Answer, Query
from common.rm_messages import ConfigurationUpdated, Left, Refused, UpdateConfiguration
from common.wire import WireError
from rmproxy import grpc_endings as endings
from rmproxy.admin import admin_pb2 as pb
from rmproxy.grpc_authz import Authorizer
from rmproxy.grpc_endings import EndedError, Ending, abort
from rmproxy.grpc_events import EventReader, Wanted
from rmproxy.grpc_registry import Registry
from rmproxy.grpc_requests import request_of, rm_named
from rmproxy.grpc_rm import GrpcRm
from rmproxy.grpc_tls import permitted
from rmproxy.si import scheduler_pb2 as si

SERVICE: Final = "yunishard.v1.Admin"

ANSWER_MAX_S: Final = 60.0
"""How long the core may take for a configuration or a leave; what came of it is not known then."""

QUESTION_MAX_S: Final = 10.0
"""How long a partition may take to answer for its events; it is asked again with the next look."""

LOOK_EVERY_S: Final = 1.0
"""How often a partition is asked whether there are new events."""

WRITE_MAX_S: Final = 30.0
"""How long a client of events may read nothing; then its stream ends."""

EVENT_STREAMS_MAX: Final = 16
"""Streams of events that an RM may have open; each asks each of its partitions once a second."""

ASK_PAUSE_S: Final = 0.02
"""Between two questions for events of one RM, for all of its streams together: so a partition spends little of its time
on answers, and 25,000 events a second can be read.
"""

_Context = grpc.aio.ServicerContext[bytes, bytes]


class Admin:
    """The calls of the service."""

    def __init__(
        self,
        registry: Registry,
        authorizer: Authorizer,
        *,
        look_every_s: float = LOOK_EVERY_S,
        write_max_s: float = WRITE_MAX_S,
    ) -> None:
        self._registry = registry
        self._authorizer = authorizer
        self._look_every_s = look_every_s
        self._write_max_s = write_max_s
        self._streams: Counter[str] = Counter()
        """RM id to its streams of events that are open."""
        self._turns: dict[str, asyncio.Semaphore] = {}
        """RM id to whose turn it is to ask for events; all and only RMs that have such streams."""

    def service(self) -> grpc.GenericRpcHandler:
        """What the generated servicer would do, with bytes in place of protobuf's messages."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "UpdateConfiguration": grpc.unary_unary_rpc_method_handler(self._update_configuration),
                "Events": grpc.unary_stream_rpc_method_handler(self._events),
                "Leave": grpc.unary_unary_rpc_method_handler(self._leave),
            },
        )

    async def _update_configuration(self, data: bytes, context: _Context) -> bytes:
        try:
            request = request_of(si.UpdateConfigurationRequest, lambda asked: asked, data)
            rm = self._rm(context, request.rmID, "UpdateConfigurationRequest")
            wanted = UpdateConfiguration(
                rm_id=rm.session.rm_id,
                policy_group=request.policyGroup,
                config=request.config,
                extra_config=dict(request.extraConfig),
            )
            async with asyncio.timeout(ANSWER_MAX_S):
                answer = await rm.reconfigure(wanted)
            if isinstance(answer, Refused):
                raise EndedError(endings.refused(answer.code, answer.reason))
        except EndedError as ended:
            await abort(context, ended.ending)
        except TimeoutError:
            await abort(context, _unanswered("which configuration is in force is not known: ask for it again"))
        assert isinstance(answer, ConfigurationUpdated), answer
        response = pb.UpdateConfigurationResponse(checksum=answer.checksum, partitions=answer.partitions)
        return response.SerializeToString()

    async def _leave(self, data: bytes, context: _Context) -> bytes:
        try:
            request = request_of(pb.LeaveRequest, lambda asked: asked, data)
            rm = self._rm(context, request.rm_id, "LeaveRequest")
            async with asyncio.timeout(ANSWER_MAX_S):
                answer = await rm.leave(request.reason)
            if isinstance(answer, Refused):
                raise EndedError(endings.refused(answer.code, answer.reason))
        except EndedError as ended:
            await abort(context, ended.ending)
        except TimeoutError:
            await abort(context, _unanswered("whether the RM has left is not known: register again to be sure"))
        assert isinstance(answer, Left), answer
        return pb.LeaveResponse().SerializeToString()

    # Events ---------------------------------------------------------------------------------------------------------

    async def _events(self, data: bytes, context: _Context) -> None:
        try:
            request = request_of(pb.EventsRequest, lambda asked: asked, data)
            rm = self._rm(context, request.rm_id, "EventsRequest")
            rm_id = rm.session.rm_id
            partition = normalised(rm_id, request.partition) if request.partition else ""
            _check(rm, partition, request)
            if self._streams[rm_id] >= EVENT_STREAMS_MAX:
                text = f"RM {rm_id} has {EVENT_STREAMS_MAX} streams of events open, which is the most that one may have"
                raise EndedError(Ending(grpc.StatusCode.RESOURCE_EXHAUSTED, text))
            begin = request.begin if request.HasField("begin") else None
            wanted = Wanted(types=frozenset(request.types), begin=begin, history=request.history)
            self._streams[rm_id] += 1
            turn = self._turns.setdefault(rm_id, asyncio.Semaphore(1))
            try:
                await self._follow(rm, partition, EventReader(partial(_ask, rm, turn), wanted), context)
            finally:
                self._streams[rm_id] -= 1
                if not self._streams[rm_id]:
                    del self._streams[rm_id], self._turns[rm_id]
        except EndedError as ended:
            await abort(context, ended.ending)

    async def _follow(self, rm: GrpcRm, partition: str, reader: EventReader, context: _Context) -> None:
        """Look for new events once in a while, until the client goes or the RM does."""
        while rm.ending is None:
            self._authorizer.check(rm.session.rm_id, permitted(context))  # keys may have changed since the last look
            for one in rm.session.partitions:
                if partition in ("", one):
                    await self._written(reader, one, context)
            try:
                async with asyncio.timeout(self._look_every_s):
                    await rm.ended.wait()
            except TimeoutError:
                continue
        assert rm.ending is not None
        raise EndedError(rm.ending)

    async def _written(self, reader: EventReader, partition: str, context: _Context) -> None:
        """Pass on what is new in a partition. One that does not answer is asked again later."""
        try:
            async for response in reader.further(partition):
                try:
                    async with asyncio.timeout(self._write_max_s):
                        await context.write(response.SerializeToString())
                except TimeoutError:
                    text = f"no events were read for {self._write_max_s:g} s; read on at the last `next`"
                    raise EndedError(Ending(grpc.StatusCode.RESOURCE_EXHAUSTED, text)) from None
        except (TimeoutError, WireError):
            return

    def _rm(self, context: _Context, named: str, request: str) -> GrpcRm:
        """The RM that calls.

        Raises:
            EndedError: it is not registered, or may not be who it says it is.
        """
        rm_id = named or rm_named(context)
        self._authorizer.check(rm_id, permitted(context))
        return self._registry.find(rm_id, request)


async def _ask(rm: GrpcRm, turn: asyncio.Semaphore, partition: str, query: Query) -> Answer:
    await turn.acquire()
    asyncio.get_running_loop().call_later(ASK_PAUSE_S, turn.release)
    async with asyncio.timeout(QUESTION_MAX_S):
        return await rm.ask(partition, query)


def _check(rm: GrpcRm, partition: str, request: pb.EventsRequest) -> None:
    """Whether these events can be asked for.

    Raises:
        EndedError: no.
    """
    if partition and partition not in rm.session.partitions:
        text = f"RM {rm.session.rm_id} has no partition {partition}; it has: {', '.join(rm.session.partitions)}"
        raise EndedError(Ending(grpc.StatusCode.NOT_FOUND, text))
    if request.HasField("begin") and not partition:
        text = "`begin` is a number of one partition: name it"
        raise EndedError(Ending(grpc.StatusCode.INVALID_ARGUMENT, text))


def _unanswered(consequence: str) -> Ending:
    text = f"the core did not answer within {ANSWER_MAX_S:g} s: {consequence}"
    return Ending(grpc.StatusCode.DEADLINE_EXCEEDED, text)
