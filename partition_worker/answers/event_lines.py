"""The answer to who passes events on as they happen: a piece of the history, and how many may be told of it.

Given while nothing is added as well, for whoever listens goes on listening. Not here: the history (`event_ring.py`),
how an event is shown (`events.py`).
"""

from collections.abc import Mapping
from typing import Final

from msgspec.json import Encoder

from common.event_lines import COUNT_MAX, EventLines
from common.extra_config import ExtraConfig
from common.query_messages import Answer
from common.rest_records import EventView
from common.unsigned import UnsignedError, unsigned
from partition_worker.answers.events import view
from partition_worker.event_ring import EventRing

_encoder: Final = Encoder(order="deterministic")


def answer(ring: EventRing, settings: ExtraConfig, args: Mapping[str, str], *, bytes_max: int) -> Answer:
    """The answer to a question with the texts `start` and `count`; fewer than `count` if it would be too long."""
    try:
        start, most = unsigned(args.get("start", "")), unsigned(args.get("count", "")) or 0
    except UnsignedError as error:
        return Answer(status=400, body=str(error).encode(errors="replace"))
    first = ring.end if start is None else max(start, ring.lowest)
    most = min(most, COUNT_MAX)
    while len(body := _document(ring, settings, first, most)) > bytes_max and most > 1:
        most //= 2
    return Answer(status=200, body=body)


def _document(ring: EventRing, settings: ExtraConfig, first: int, most: int) -> bytes:
    found = ring.since(first, most)
    records: list[EventView] = [] if found is None else list(map(view, found.times_ns, found.happenings))
    return _encoder.encode(
        EventLines(
            instance=ring.instance,
            tracking=settings.event_tracking_enabled,
            streams_max=settings.event_max_streams,
            streams_per_host_max=settings.event_max_streams_per_host,
            lowest=ring.lowest,
            end=ring.end,
            first=first,
            records=records,
        )
    )
