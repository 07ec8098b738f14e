"""The answer to those who ask for the history of a partition, as `/ws/v1/events/batch` gives it.

The n-th record has the number `start` + n; who reads on begins after the last one, or at `LowestID` if what comes next
is gone already. An answer never has more bytes than a message may: it has fewer records then.

Not here: keeping the history (`event_ring.py`), HTTP (`webservice/routes.py`).
"""

import json
import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field
from msgspec.json import Encoder

from common.extra_config import UINT_MAX, ExtraConfig
from common.messages import Answer
from common.resources import saturated
from partition_worker.engine.effects import Happening
from partition_worker.event_ring import EventRing

MESSAGE_BYTES_MAX: Final = 1024
"""A longer message is cut, and ends with three dots."""

_DIGITS: Final = re.compile(r"[0-9]+")
_encoder: Final = Encoder(order="deterministic")


class _Refused(Exception):
    """A question that cannot be answered; the text says why."""


class _Amount(Struct, frozen=True, omit_defaults=True, gc=False):
    value: int = 0


class _ResourceView(Struct, frozen=True, omit_defaults=True):
    resources: dict[str, _Amount] = field(default_factory=dict)


class _EventView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event, with the keys of the scheduler interface."""

    type: int = 0
    objectID: str = ""  # noqa: N815 - this and those below are keys of the API
    message: str = ""
    timestampNano: int = 0  # noqa: N815
    eventChangeType: int = 0  # noqa: N815
    eventChangeDetail: int = 0  # noqa: N815
    referenceID: str = ""  # noqa: N815
    resource: _ResourceView


class _BatchView(Struct, frozen=True):
    """Which history it is, the numbers of the events that are there, and those asked for; None if there are none."""

    InstanceUUID: str
    LowestID: int
    HighestID: int
    EventRecords: list[_EventView] | None


def answer(ring: EventRing, settings: ExtraConfig, args: Mapping[str, str], *, bytes_max: int) -> Answer:
    """The answer to a question with the texts `start` and `count`; both may be missing."""
    if not settings.event_tracking_enabled:
        return Answer(status=500, body=b"Event tracking is disabled")
    try:
        count = _unsigned(args.get("count", ""))
        if count == 0:
            raise _Refused('0 is not a valid value for "count"')
        start = _unsigned(args.get("start", "")) or 0
    except _Refused as refused:
        return Answer(status=400, body=str(refused).encode())
    most = settings.event_rest_response_size if count is None else min(count, settings.event_rest_response_size)
    while len(body := _document(ring, start, most)) > bytes_max and most > 1:
        most //= 2
    return Answer(status=200, body=body)


def _unsigned(text: str) -> int | None:
    """A number; None if there is no text."""
    if not text:
        return None
    quoted = json.dumps(text, ensure_ascii=False)
    if not _DIGITS.fullmatch(text):
        raise _Refused(f"strconv.ParseUint: parsing {quoted}: invalid syntax")
    digits = text.lstrip("0")
    if len(digits) > len(str(UINT_MAX)) or int(digits or "0") > UINT_MAX:
        raise _Refused(f"strconv.ParseUint: parsing {quoted}: value out of range")
    return int(digits or "0")


def _document(ring: EventRing, start: int, most: int) -> bytes:
    found = ring.since(start, most)
    records = None if found is None else list(map(_view, found.times_ns, found.happenings))
    return _encoder.encode(_BatchView(ring.instance, ring.lowest, ring.highest, records)) + b"\n"


def _view(at_ns: int, happening: Happening) -> _EventView:
    return _EventView(
        type=happening.kind,
        objectID=happening.object_id,
        message=cut(happening.message),
        timestampNano=at_ns,
        eventChangeType=happening.change,
        eventChangeDetail=happening.detail,
        referenceID=happening.reference_id,
        resource=_ResourceView({kind: _Amount(value) for kind, value in saturated(happening.resource).items()}),
    )


def cut(message: str) -> str:
    """A message that is not too long for an event."""
    if len(message) * 4 <= MESSAGE_BYTES_MAX or len(raw := message.encode()) <= MESSAGE_BYTES_MAX:
        return message
    return raw[: MESSAGE_BYTES_MAX - 3].decode(errors="ignore") + "..."
