"""Reading on in the histories of an RM's partitions, for a client who wants to see events as they happen.

A partition keeps its newest events and answers questions for them (`/ws/v1/events/batch` asks the same). So nothing is
kept here but where each history was left: whoever does not read misses events, and hears of it.

Not here: the call and who may make it (`grpc_admin.py`), which events there are (`common/event_codes.py`).
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import grpc
import msgspec

from common.query_messages import Answer, Query
from common.wire import WireError
from rmproxy.admin import admin_pb2 as pb
from rmproxy.grpc_endings import EndedError, Ending

EVENTS_MAX: Final = 500
"""Events in one response: less than 1 MiB as a rule."""

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
    """An answer: which history it is, the numbers of the events that are there, and those asked for."""

    InstanceUUID: str
    LowestID: int
    HighestID: int
    EventRecords: list[_Record] | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events somebody wants, and from where on."""

    types: frozenset[int] = frozenset()
    """Empty for all."""
    begin: int | None = None
    """The number of the first one; None for those that happen from now on."""
    history: str = ""
    """The one that this number is of; empty for whichever there is."""


@dataclass(slots=True)
class _Place:
    """Where somebody reads on."""

    history: str
    next: int


class EventReader:
    """What somebody has read, and what comes next."""

    def __init__(self, ask: Callable[[str, Query], Awaitable[Answer]], wanted: Wanted) -> None:
        self._ask = ask
        self._wanted = wanted
        self._places: dict[str, _Place] = {}

    async def further(self, partition: str) -> AsyncIterator[pb.EventsResponse]:
        """What there is now and was not read yet. The first response of a history only says where that begins.

        Raises:
            EndedError: events are gone that were not read, or none are recorded.
        """
        while (batch := await self._batch(partition)) is not None:
            place = self._places.get(partition)
            if place is None or place.history != batch.InstanceUUID:
                place = self._places[partition] = _Place(batch.InstanceUUID, self._beginning(batch, anew=bool(place)))
                yield pb.EventsResponse(partition=partition, history=place.history, next=place.next)
                if place.next > batch.HighestID:
                    return
                continue
            if place.next < batch.LowestID:
                raise EndedError(_missed(partition, place.next, batch.LowestID))
            records = batch.EventRecords or []
            response = self._response(partition, place, records)
            place.next = response.next
            if response.events:
                yield response
            if not records or place.next > batch.HighestID:
                return

    def _beginning(self, batch: _Batch, *, anew: bool) -> int:
        """The number to begin with in a history that is new to us."""
        if anew or self._wanted.history not in ("", batch.InstanceUUID):
            return batch.LowestID
        if self._wanted.begin is not None:
            return max(self._wanted.begin, batch.LowestID)
        return batch.HighestID + 1 if batch.HighestID or batch.EventRecords else 0

    async def _batch(self, partition: str) -> _Batch | None:
        """What a partition answers; None while it cannot."""
        place = self._places.get(partition)
        args = {"start": str(place.next if place else 0), "count": str(EVENTS_MAX if place else 1)}
        answer = await self._ask(partition, Query(what="events", args=args))
        if answer.status == _DISABLED:
            raise EndedError(Ending(grpc.StatusCode.FAILED_PRECONDITION, answer.body.decode(errors="replace")))
        if answer.status != _OK:
            return None
        try:
            return msgspec.json.decode(answer.body, type=_Batch)
        except msgspec.MsgspecError as error:
            raise WireError(f"events of {partition}: {error}") from None

    def _response(self, partition: str, place: _Place, records: list[_Record]) -> pb.EventsResponse:
        response = pb.EventsResponse(partition=partition, history=place.history, next=place.next + len(records))
        for number, record in enumerate(records, place.next):
            if not self._wanted.types or record.type in self._wanted.types:
                _fill(response.events.add(number=number), record)
        return response


def _fill(event: pb.Event, record: _Record) -> None:
    told = event.record
    told.type = record.type  # type: ignore[assignment]  # numbers that are newer than the interface pass, too
    told.objectID = record.object_id
    told.message = record.message
    told.timestampNano = record.timestampNano
    told.eventChangeType = record.eventChangeType  # type: ignore[assignment]
    told.eventChangeDetail = record.eventChangeDetail  # type: ignore[assignment]
    told.referenceID = record.reference_id
    for kind, amount in record.resource.resources.items():
        told.resource.resources[kind].value = amount.value


def _missed(partition: str, first: int, lowest: int) -> Ending:
    text = (
        f"events {first} to {lowest - 1} of partition {partition} went before they were read: read faster, or ask for "
        f"fewer; the oldest one that is there is {lowest}"
    )
    return Ending(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
