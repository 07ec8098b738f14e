"""The answer to those who ask for the history of a partition, as `/ws/v1/events/batch` gives it.

The n-th record has the number `start` + n; who reads on begins after the last one, or at `LowestID` if what comes next
is gone already. An answer never has more bytes than a message may: it has fewer records then.

Not here: keeping the history (`event_ring.py`), HTTP (`webservice/routes.py`).
"""

from collections.abc import Mapping
from typing import Final

from msgspec.json import Encoder

from common.extra_config import ExtraConfig
from common.messages import Resources
from common.query_messages import Answer
from common.resources import saturated
from common.rest_records import AmountView, BatchView, EventResourceView, EventView
from common.unsigned import UnsignedError, unsigned
from partition_worker.engine.effects import Happening
from partition_worker.event_ring import EventRing

MESSAGE_BYTES_MAX: Final = 1024
"""A longer message is cut, and ends with three dots."""

ANSWERED_MAX: Final = 50_000
"""Events in one answer, whatever is configured. It takes a quarter of a second to write them down, in which the
partition does nothing else; who asks for more reads on after them."""

_NOTHING: Final = EventResourceView()
_encoder: Final = Encoder(order="deterministic")


def answer(ring: EventRing, settings: ExtraConfig, args: Mapping[str, str], *, bytes_max: int) -> Answer:
    """The answer to a question with the texts `start` and `count`; both may be missing."""
    if not settings.event_tracking_enabled:
        return Answer(status=500, body=b"Event tracking is disabled")
    try:
        count = unsigned(args.get("count", ""))
        if count == 0:
            raise UnsignedError('0 is not a valid value for "count"')
        start = unsigned(args.get("start", "")) or 0
    except UnsignedError as error:
        return Answer(status=400, body=str(error).encode(errors="replace"))
    most = min(settings.event_rest_response_size, ANSWERED_MAX)
    most = most if count is None else min(count, most)
    while len(body := _document(ring, start, most)) > bytes_max and most > 1:
        most //= 2
    return Answer(status=200, body=body)


def _document(ring: EventRing, start: int, most: int) -> bytes:
    found = ring.since(start, most)
    records = None if found is None else list(map(view, found.times_ns, found.happenings))
    return _encoder.encode(BatchView(ring.instance, ring.lowest, ring.highest, records)) + b"\n"


def view(at_ns: int, happening: Happening) -> EventView:
    """An event as it is shown."""
    return EventView(
        type=happening.kind,
        objectID=happening.object_id,
        message=cut(happening.message),
        timestampNano=at_ns,
        eventChangeType=happening.change,
        eventChangeDetail=happening.detail,
        referenceID=happening.reference_id,
        resource=_resource(happening.resource),
    )


def _resource(amount: Resources) -> EventResourceView:
    if not amount:
        return _NOTHING
    return EventResourceView({kind: AmountView(value) for kind, value in saturated(amount).items()})


def cut(message: str) -> str:
    """A message that is not too long for an event."""
    if len(message) * 4 <= MESSAGE_BYTES_MAX or len(raw := message.encode()) <= MESSAGE_BYTES_MAX:
        return message
    return raw[: MESSAGE_BYTES_MAX - 3].decode(errors="ignore") + "..."
