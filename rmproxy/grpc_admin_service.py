"""The service `yunishard.v1.Admin` (`admin/admin.proto`): configuration, leaving, and events of an RM.

A partition keeps its newest events in a ring buffer and answers queries for them (`/ws/v1/events/batch` is the same
query). The proxy keeps only each stream's position, so a client that reads too slowly misses events, and its stream
ends with a status that says so.

Not here: how the core handles these calls, kinds of events (`common/event_codes.py`).
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import grpc
import msgspec

from common.names import normalise_partition_name
from common.query_messages import Answer, Query
from common.rm_messages import ConfigurationUpdated, Left, Refused, UpdateConfiguration
from common.wire import WireError
from rmproxy import grpc_status
from rmproxy.admin import admin_pb2 as pb
from rmproxy.grpc_authorization import Authorizer, permitted_rm_ids
from rmproxy.grpc_manager import GrpcRegistry, GrpcRm
from rmproxy.grpc_status import Status, StatusError, abort, parse_request, rm_in_metadata
from rmproxy.si import scheduler_pb2 as si

EVENTS_MAX: Final = 500
"""Events in one response, which then usually has less than 1 MiB."""

_DISABLED: Final = 500
_OK: Final = 200


class _Amount(msgspec.Struct, frozen=True):
    value: int = 0


class _Resource(msgspec.Struct, frozen=True):
    resources: dict[str, _Amount] = {}


class _Record(msgspec.Struct, frozen=True, rename={"object_id": "objectID", "reference_id": "referenceID"}):
    type: int = 0
    object_id: str = ""
    message: str = ""
    timestampNano: int = 0  # noqa: N815 - this and those below are keys of the answer
    eventChangeType: int = 0  # noqa: N815
    eventChangeDetail: int = 0  # noqa: N815
    reference_id: str = ""
    resource: _Resource = _Resource()


class _Batch(msgspec.Struct, frozen=True):
    """A partition's answer: its history, the range of stored event numbers, and the requested events."""

    InstanceUUID: str
    LowestID: int
    HighestID: int
    EventRecords: list[_Record] | None


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events a client wants, and the first one."""

    types: frozenset[int] = frozenset()
    """Empty for all."""
    begin: int | None = None
    """The number of the first event; None for future events only."""
    history: str = ""
    """The history that this number belongs to; empty for the present one."""


@dataclass(slots=True)
class _Position:
    """The position of a client in one history."""

    history: str
    next: int


class EventReader:
    """Reads the events of partitions in order, from a client's position."""

    def __init__(self, ask: Callable[[str, Query], Awaitable[Answer]], event_filter: EventFilter) -> None:
        self._ask = ask
        self._filter = event_filter
        self._positions: dict[str, _Position] = {}

    async def read_new(self, partition: str) -> AsyncIterator[pb.EventsResponse]:
        """Yield the events that were not read yet. The first response of a history has only its position.

        Raises:
            StatusError: unread events were overwritten, or no events are recorded.
        """
        while (batch := await self._query_batch(partition)) is not None:
            position = self._positions.get(partition)
            if position is None or position.history != batch.InstanceUUID:
                position = self._positions[partition] = _Position(
                    batch.InstanceUUID, self._first_number(batch, anew=bool(position))
                )
                yield pb.EventsResponse(partition=partition, history=position.history, next=position.next)
                if position.next > batch.HighestID:
                    return
                continue
            if position.next < batch.LowestID:
                raise StatusError(_overwritten_status(partition, position.next, batch.LowestID))
            records = batch.EventRecords or []
            response = self._response(partition, position, records)
            position.next = response.next
            if response.events:
                yield response
            if not records or position.next > batch.HighestID:
                return

    def _first_number(self, batch: _Batch, *, anew: bool) -> int:
        """Return the first event number to read in a history."""
        if anew or self._filter.history not in ("", batch.InstanceUUID):
            return batch.LowestID
        if self._filter.begin is not None:
            return max(self._filter.begin, batch.LowestID)
        return batch.HighestID + 1 if batch.HighestID or batch.EventRecords else 0

    async def _query_batch(self, partition: str) -> _Batch | None:
        """Query a partition; None while it cannot answer."""
        position = self._positions.get(partition)
        args = {"start": str(position.next if position else 0), "count": str(EVENTS_MAX if position else 1)}
        answer = await self._ask(partition, Query(what="events", args=args))
        if answer.status == _DISABLED:
            raise StatusError(Status(grpc.StatusCode.FAILED_PRECONDITION, answer.body.decode(errors="reposition")))
        if answer.status != _OK:
            return None
        try:
            return msgspec.json.decode(answer.body, type=_Batch)
        except msgspec.MsgspecError as error:
            raise WireError(f"events of {partition}: {error}") from None

    def _response(self, partition: str, position: _Position, records: list[_Record]) -> pb.EventsResponse:
        response = pb.EventsResponse(partition=partition, history=position.history, next=position.next + len(records))
        for number, record in enumerate(records, position.next):
            if not self._filter.types or record.type in self._filter.types:
                _fill(response.events.add(number=number), record)
        return response


def _fill(event: pb.Event, record: _Record) -> None:
    told = event.record
    told.type = record.type  # type: ignore[assignment]  # numbers that the interface does not define pass, too
    told.objectID = record.object_id
    told.message = record.message
    told.timestampNano = record.timestampNano
    told.eventChangeType = record.eventChangeType  # type: ignore[assignment]
    told.eventChangeDetail = record.eventChangeDetail  # type: ignore[assignment]
    told.referenceID = record.reference_id
    for kind, amount in record.resource.resources.items():
        told.resource.resources[kind].value = amount.value


def _overwritten_status(partition: str, first: int, lowest: int) -> Status:
    text = (
        f"events {first} to {lowest - 1} of partition {partition} were overwritten before they were read: read faster, "
        f"or select fewer; the oldest stored event is {lowest}"
    )
    return Status(grpc.StatusCode.RESOURCE_EXHAUSTED, text)


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

ASK_PAUSE_S: Final = 0.02
"""Seconds between two queries for events of one RM, over all of its streams. It bounds the time that a partition spends
on answers, and lets a client read 25,000 events a second.
"""

_Context = grpc.aio.ServicerContext[bytes, bytes]


class AdminService:
    """The calls of the service."""

    def __init__(
        self,
        registry: GrpcRegistry,
        authorizer: Authorizer,
        *,
        query_every_s: float = QUERY_EVERY_S,
        write_max_s: float = WRITE_MAX_S,
    ) -> None:
        self._registry = registry
        self._authorizer = authorizer
        self._query_every_s = query_every_s
        self._write_max_s = write_max_s
        self._streams: Counter[str] = Counter()
        """RM id to the number of its open streams of events."""
        self._turns: dict[str, asyncio.Semaphore] = {}
        """RM id to the semaphore of its queries; all and only RMs that have such streams."""

    def service(self) -> grpc.GenericRpcHandler:
        """Register the calls as the generated servicer does, but with bytes in place of protobuf messages."""
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
            request = parse_request(si.UpdateConfigurationRequest, lambda asked: asked, data)
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
                raise StatusError(grpc_status.refused(answer.code, answer.reason))
        except StatusError as ended:
            await abort(context, ended.status)
        except TimeoutError:
            await abort(context, _timeout_status("which configuration is in force is not known: ask for it again"))
        assert isinstance(answer, ConfigurationUpdated), answer
        response = pb.UpdateConfigurationResponse(checksum=answer.checksum, partitions=answer.partitions)
        return response.SerializeToString()

    async def _leave(self, data: bytes, context: _Context) -> bytes:
        try:
            request = parse_request(pb.LeaveRequest, lambda asked: asked, data)
            rm = self._rm(context, request.rm_id, "LeaveRequest")
            async with asyncio.timeout(ANSWER_MAX_S):
                answer = await rm.leave(request.reason)
            if isinstance(answer, Refused):
                raise StatusError(grpc_status.refused(answer.code, answer.reason))
        except StatusError as ended:
            await abort(context, ended.status)
        except TimeoutError:
            await abort(context, _timeout_status("whether the RM has left is not known: register again to be sure"))
        assert isinstance(answer, Left), answer
        return pb.LeaveResponse().SerializeToString()

    # Events ---------------------------------------------------------------------------------------------------------

    async def _events(self, data: bytes, context: _Context) -> None:
        try:
            request = parse_request(pb.EventsRequest, lambda asked: asked, data)
            rm = self._rm(context, request.rm_id, "EventsRequest")
            rm_id = rm.session.rm_id
            partition = normalise_partition_name(rm_id, request.partition) if request.partition else ""
            _check(rm, partition, request)
            if self._streams[rm_id] >= EVENT_STREAMS_MAX:
                text = f"RM {rm_id} has {EVENT_STREAMS_MAX} streams of events open, which is the most that one may have"
                raise StatusError(Status(grpc.StatusCode.RESOURCE_EXHAUSTED, text))
            begin = request.begin if request.HasField("begin") else None
            wanted = EventFilter(types=frozenset(request.types), begin=begin, history=request.history)
            self._streams[rm_id] += 1
            turn = self._turns.setdefault(rm_id, asyncio.Semaphore(1))
            try:
                await self._follow(rm, partition, EventReader(partial(_ask, rm, turn), wanted), context)
            finally:
                self._streams[rm_id] -= 1
                if not self._streams[rm_id]:
                    del self._streams[rm_id], self._turns[rm_id]
        except StatusError as ended:
            await abort(context, ended.status)

    async def _follow(self, rm: GrpcRm, partition: str, reader: EventReader, context: _Context) -> None:
        """Send new events regularly, until the client disconnects or the registration ends."""
        while rm.status is None:
            self._authorizer.check(
                rm.session.rm_id, permitted_rm_ids(context)
            )  # keys may have changed since the last look
            for one in rm.session.partitions:
                if partition in ("", one):
                    await self._write_new(reader, one, context)
            try:
                async with asyncio.timeout(self._query_every_s):
                    await rm.ended.wait()
            except TimeoutError:
                continue
        assert rm.status is not None
        raise StatusError(rm.status)

    async def _write_new(self, reader: EventReader, partition: str, context: _Context) -> None:
        """Write the new events of a partition; one that does not answer is queried again later."""
        try:
            async for response in reader.read_new(partition):
                try:
                    async with asyncio.timeout(self._write_max_s):
                        await context.write(response.SerializeToString())
                except TimeoutError:
                    text = f"no events were read for {self._write_max_s:g} s; read on at the last `next`"
                    raise StatusError(Status(grpc.StatusCode.RESOURCE_EXHAUSTED, text)) from None
        except (TimeoutError, WireError):
            return

    def _rm(self, context: _Context, named: str, request: str) -> GrpcRm:
        """Return the calling RM.

        Raises:
            StatusError: it is not registered, or the caller may not act for it.
        """
        rm_id = named or rm_in_metadata(context)
        self._authorizer.check(rm_id, permitted_rm_ids(context))
        return self._registry.find(rm_id, request)


async def _ask(rm: GrpcRm, turn: asyncio.Semaphore, partition: str, query: Query) -> Answer:
    await turn.acquire()
    asyncio.get_running_loop().call_later(ASK_PAUSE_S, turn.release)
    async with asyncio.timeout(QUESTION_MAX_S):
        return await rm.ask(partition, query)


def _check(rm: GrpcRm, partition: str, request: pb.EventsRequest) -> None:
    """Check a request for events.

    Raises:
        StatusError: it is invalid.
    """
    if partition and partition not in rm.session.partitions:
        text = f"RM {rm.session.rm_id} has no partition {partition}; it has: {', '.join(rm.session.partitions)}"
        raise StatusError(Status(grpc.StatusCode.NOT_FOUND, text))
    if request.HasField("begin") and not partition:
        text = "`begin` is a number of one partition: name it"
        raise StatusError(Status(grpc.StatusCode.INVALID_ARGUMENT, text))


def _timeout_status(consequence: str) -> Status:
    text = f"the core did not answer within {ANSWER_MAX_S:g} s: {consequence}"
    return Status(grpc.StatusCode.DEADLINE_EXCEEDED, text)
