"""The service `yunishard.v1.Admin` (`admin/admin.proto`): configuration, leaving, events, predicates and scheduling
states of an RM.

A partition keeps its newest events in a ring buffer and answers queries for them (`/ws/v1/events/batch` is the same
query). The proxy keeps only each stream's position, so a client that reads too slowly misses events, and its stream
ends with a status that reports this.

Not here: how the core handles these calls, kinds of events (`common/messages/event_codes.py`).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from http import HTTPStatus
from typing import Final

import grpc
import msgspec
from google.protobuf.json_format import MessageToDict
from msgspec.structs import replace

from yunishard.common.messages.kinds import Message
from yunishard.common.messages.query_messages import Query
from yunishard.common.messages.rm_messages import ConfigurationUpdated, Left, Refused, UpdateConfiguration
from yunishard.common.messages.wire import WireError
from yunishard.common.names import normalise_partition_name
from yunishard.common.rest.records import BatchView
from yunishard.rmproxy import grpc_streams
from yunishard.rmproxy.admin import admin_pb2 as pb
from yunishard.rmproxy.authentication import Authorizer
from yunishard.rmproxy.grpc_conversion import read_predicates
from yunishard.rmproxy.grpc_manager import GrpcRegistry, GrpcRm
from yunishard.rmproxy.grpc_streams import Context, Feed, Status, StatusError, StatusKind, read_rm_ids
from yunishard.rmproxy.si import scheduler_pb2 as si

EVENTS_MAX: Final = 500
"""Events in one response, which then usually has less than 1 MiB."""


class EventReader:
    """Reads the events of a partition in order, from a client's position in its history."""

    def __init__(self, rm: GrpcRm, partition: str, request: pb.EventsRequest) -> None:
        """`request` selects events by type and has the first event's number, if any."""
        self._rm = rm
        self._partition = partition
        self._request = request
        self._history = ""
        """Empty until the partition has answered once."""
        self._next = 0

    async def read_new(self) -> AsyncIterator[pb.EventsResponse]:
        """Yield the events that were not read yet. The first response of a history has only its position.

        Raises:
            StatusError: unread events were overwritten, or no events are recorded.
        """
        while (batch := await self._query_batch()) is not None:
            if self._history != batch.InstanceUUID:
                self._next = self._first_number(batch)
                self._history = batch.InstanceUUID
                yield pb.EventsResponse(partition=self._partition, history=self._history, next=self._next)
                if self._next > batch.HighestID:
                    return
                continue
            if self._next < batch.LowestID:
                text = (
                    f"events {self._next} to {batch.LowestID - 1} of partition {self._partition} were overwritten "
                    f"before they were read: read faster, or select fewer; the oldest stored event is {batch.LowestID}"
                )
                raise StatusError(Status(grpc.StatusCode.RESOURCE_EXHAUSTED, text))
            records = batch.EventRecords or []
            first, self._next = self._next, self._next + len(records)
            response = pb.EventsResponse(partition=self._partition, history=self._history, next=self._next)
            for number, record in enumerate(records, first):
                if not self._request.types or record.type in self._request.types:
                    response.events.add(number=number, record=msgspec.to_builtins(record))
            if response.events:
                yield response
            if not records or self._next > batch.HighestID:
                return

    def _first_number(self, batch: BatchView) -> int:
        """Return the first event number to read in a history."""
        if self._history or self._request.history not in ("", batch.InstanceUUID):
            return batch.LowestID
        if self._request.HasField("begin"):
            return max(self._request.begin, batch.LowestID)
        return batch.HighestID + 1 if batch.HighestID or batch.EventRecords else 0

    async def _query_batch(self) -> BatchView | None:
        """Query the partition; None while it cannot answer."""
        args = {"start": str(self._next), "count": str(EVENTS_MAX if self._history else 1)}
        turn = self._rm.event_turn
        await turn.acquire()
        asyncio.get_running_loop().call_later(ASK_PAUSE_S, turn.release)
        async with asyncio.timeout(QUESTION_MAX_S):
            answer = await self._rm.ask(self._partition, Query(what="events", args=args))
        if answer.status == HTTPStatus.INTERNAL_SERVER_ERROR:
            raise StatusError(Status(grpc.StatusCode.FAILED_PRECONDITION, answer.body.decode(errors="replace")))
        if answer.status != HTTPStatus.OK:
            return None
        try:
            return msgspec.json.decode(answer.body, type=BatchView)
        except msgspec.MsgspecError as error:
            raise WireError(f"events of {self._partition}: {error}") from None


# Calls ---------------------------------------------------------------------------------------------------------------

SERVICE: Final = "yunishard.v1.Admin"

ANSWER_MAX_S: Final = 60.0
"""Seconds that the core may take for a configuration or a leave; after that the outcome is unknown."""

QUESTION_MAX_S: Final = 10.0
"""Seconds that a partition may take for a query for events; the next one follows a second later."""

QUERY_EVERY_S: Final = 1.0
"""Seconds between two queries for new events."""

WRITE_MAX_S: Final = 30.0
"""Seconds that a client of events may read nothing; then its stream ends."""

EVENT_STREAMS_MAX: Final = 16
"""Streams of events that an RM may have open; each queries each of its partitions once a second."""

STATES_QUEUED_MAX: Final = 1024
"""Messages with scheduling states that wait to be read; one more ends the stream."""

ASK_PAUSE_S: Final = 0.02
"""Seconds between two queries for events of one RM, over all of its streams. It bounds the time that a partition spends
on answers, and lets a client read 25,000 events a second.
"""


class AdminService:
    """The calls of the service."""

    def __init__(self, registry: GrpcRegistry, authorizer: Authorizer) -> None:
        self._registry = registry
        self._limits = registry.limits
        self._authorizer = authorizer

    def service(self) -> grpc.GenericRpcHandler:
        """Register the calls as the generated servicer does, but with bytes in place of protobuf messages."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "UpdateConfiguration": grpc.stream_unary_rpc_method_handler(self._update_configuration),
                "Events": grpc.stream_stream_rpc_method_handler(self._events),
                "Predicates": grpc.stream_stream_rpc_method_handler(self._predicates),
                "SchedulingStates": grpc.stream_stream_rpc_method_handler(self._scheduling_states),
                "Leave": grpc.stream_unary_rpc_method_handler(self._leave),
            },
        )

    async def _update_configuration(self, requests: AsyncIterator[bytes], context: Context) -> bytes:
        async with grpc_streams.abort_on_error(context):
            request = await self._limits.read_request(si.UpdateConfigurationRequest, requests, context)
            rm = await self._find_rm(context, request.rmID, "UpdateConfigurationRequest")
            wanted = replace(msgspec.convert(MessageToDict(request), UpdateConfiguration), rm_id=rm.session.rm_id)
            consequence = "which configuration is in force is not known: ask for it again"
            with self._limits.hold_stream(context):
                answer = await _await_answer(rm.reconfigure(wanted), consequence)
        assert isinstance(answer, ConfigurationUpdated), answer
        response = pb.UpdateConfigurationResponse(checksum=answer.checksum, partitions=answer.partitions)
        return response.SerializeToString()

    async def _leave(self, requests: AsyncIterator[bytes], context: Context) -> bytes:
        async with grpc_streams.abort_on_error(context):
            request = await self._limits.read_request(pb.LeaveRequest, requests, context)
            rm = await self._find_rm(context, request.rm_id, "LeaveRequest")
            consequence = "whether the RM has left is not known: register again to be sure"
            with self._limits.hold_stream(context):
                answer = await _await_answer(rm.leave(request.reason), consequence)
        assert isinstance(answer, Left), answer
        return pb.LeaveResponse().SerializeToString()

    # Events ---------------------------------------------------------------------------------------------------------

    async def _events(self, requests: AsyncIterator[bytes], context: Context) -> None:
        async with grpc_streams.abort_on_error(context):
            request = await self._limits.read_request(pb.EventsRequest, requests, context)
            rm = await self._find_rm(context, request.rm_id, "EventsRequest")
            rm_id = rm.session.rm_id
            partition = normalise_partition_name(rm_id, request.partition) if request.partition else ""
            if partition and partition not in rm.session.partitions:
                text = f"RM {rm_id} has no partition {partition}; it has: {', '.join(rm.session.partitions)}"
                raise StatusError(Status(grpc.StatusCode.NOT_FOUND, text))
            if request.HasField("begin") and not partition:
                text = "`begin` is a number of one partition: name it"
                raise StatusError(Status(grpc.StatusCode.INVALID_ARGUMENT, text))
            if rm.event_streams >= EVENT_STREAMS_MAX:
                text = f"RM {rm_id} has {EVENT_STREAMS_MAX} streams of events open, which is the most that one may have"
                raise StatusError(Status(grpc.StatusCode.RESOURCE_EXHAUSTED, text))
            rm.event_streams += 1
            try:
                with self._limits.hold_stream(context):
                    await self._follow(rm, partition, request, context)
            finally:
                rm.event_streams -= 1

    async def _follow(self, rm: GrpcRm, partition: str, request: pb.EventsRequest, context: Context) -> None:
        """Send new events regularly, until the client disconnects or the registration ends."""
        readers: dict[str, EventReader] = {}
        while rm.status is None:
            # Keys may have changed meanwhile.
            self._authorizer.check(rm.session.rm_id, read_rm_ids(context.auth_context()))
            for one in rm.session.partitions:
                if partition in ("", one):
                    await self._write_new(readers.setdefault(one, EventReader(rm, one, request)), context)
            try:
                async with asyncio.timeout(QUERY_EVERY_S):
                    await rm.ended.wait()
            except TimeoutError:
                continue
        assert rm.status is not None
        raise StatusError(rm.status)

    async def _write_new(self, reader: EventReader, context: Context) -> None:
        """Write the new events of a partition; one that does not answer is queried again later."""
        try:
            async for response in reader.read_new():
                try:
                    async with asyncio.timeout(WRITE_MAX_S):
                        await context.write(response.SerializeToString())
                except TimeoutError:
                    text = f"no events were read for {WRITE_MAX_S:g} s; read on at the last `next`"
                    raise StatusError(Status(grpc.StatusCode.RESOURCE_EXHAUSTED, text)) from None
        except (TimeoutError, WireError):
            return

    # Predicates and scheduling states -------------------------------------------------------------------------------

    async def _predicates(self, answers: AsyncIterator[bytes], context: Context) -> None:
        async with grpc_streams.abort_on_error(context):
            rm_id = grpc_streams.read_metadata(context, grpc_streams.RM_METADATA)
            if not rm_id and (data := await self._limits.read_first(answers, context)) is not None:
                rm_id = grpc_streams.parse_request(pb.PredicatesAnswer, data).rm_id
            rm = await self._find_rm(context, rm_id, "PredicatesAnswer")
            feed = rm.open_questions()
            reader = asyncio.create_task(_read_answers(rm, feed, answers))
            try:
                with self._limits.hold_stream(context):
                    await self._write_feed(rm, feed, context)
            finally:
                rm.close_questions(feed)
                reader.cancel()
                await asyncio.gather(reader, return_exceptions=True)

    async def _scheduling_states(self, requests: AsyncIterator[bytes], context: Context) -> None:
        async with grpc_streams.abort_on_error(context):
            request = await self._limits.read_request(pb.SchedulingStatesRequest, requests, context)
            rm = await self._find_rm(context, request.rm_id, "SchedulingStatesRequest")
            if len(rm.feeds) >= EVENT_STREAMS_MAX:
                text = f"RM {rm.session.rm_id} has {EVENT_STREAMS_MAX} streams of scheduling states open, the maximum"
                raise StatusError(Status(grpc.StatusCode.RESOURCE_EXHAUSTED, text))
            feed = Feed(most=STATES_QUEUED_MAX)
            rm.feeds.add(feed)
            try:
                with self._limits.hold_stream(context):
                    await self._write_feed(rm, feed, context)
            finally:
                rm.feeds.discard(feed)

    async def _write_feed(self, rm: GrpcRm, feed: Feed, context: Context) -> None:
        """Write messages to a client until the stream ends."""
        await context.send_initial_metadata(())  # some clients wait for it
        while (message := await feed.next()) is not None:
            self._authorizer.check(rm.session.rm_id, read_rm_ids(context.auth_context()))  # keys may have changed
            await context.write(message)

    async def _find_rm(self, context: Context, named: str, request: str) -> GrpcRm:
        """Return the calling RM.

        Raises:
            StatusError: it is not registered, or the caller may not act for it.
        """
        rm_id = named or grpc_streams.read_metadata(context, grpc_streams.RM_METADATA)
        self._authorizer.check(rm_id, read_rm_ids(context.auth_context()))
        session = grpc_streams.read_metadata(context, grpc_streams.SESSION_METADATA)
        return await self._registry.find_or_take_over(rm_id, request, session, peer=grpc_streams.read_peer(context))


async def _read_answers(rm: GrpcRm, feed: Feed, answers: AsyncIterator[bytes]) -> None:
    """Pass on the answers of a client, until it sends no more."""
    try:
        async for data in answers:
            answer = grpc_streams.parse_request(pb.PredicatesAnswer, data)
            if answer.rm_id not in ("", rm.session.rm_id):
                raise StatusError(StatusKind.OTHER_RM.make(rm_id=rm.session.rm_id, named=answer.rm_id))
            rm.answer_question(answer.partition, read_predicates(answer))
        feed.close()
    except StatusError as ended:
        feed.end(ended.status)


async def _await_answer(answer: Awaitable[Message], consequence: str) -> Message:
    """Wait for the core's answer.

    Raises:
        StatusError: it is a refusal, or none came within ANSWER_MAX_S; `consequence` is what follows from that.
    """
    try:
        async with asyncio.timeout(ANSWER_MAX_S):
            message = await answer
    except TimeoutError:
        text = f"the core did not answer within {ANSWER_MAX_S:g} s: {consequence}"
        raise StatusError(Status(grpc.StatusCode.DEADLINE_EXCEEDED, text)) from None
    if isinstance(message, Refused):
        raise StatusError(grpc_streams.make_refusal_status(message.code, message.reason))
    return message
