"""Events of Kubernetes about pods and nodes: aggregated, bounded, and sent beside everything else.

Events are for readers and may be lost, so they never delay a binding: they have a client of their own, with a lower
rate. An event that repeats within SERIES_S becomes a series, whose count is sent at most once every UPDATE_S; and an
object has at most BURST_PER_OBJECT events at once, as one pod can cause thousands.

Not here: which events there are (`shim.py`).
"""

import asyncio
import logging
from collections import OrderedDict
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from yunishard.kubernetes_shim.actions import EmitEvent
from yunishard.kubernetes_shim.client import Body, KubernetesClient, KubernetesError
from yunishard.kubernetes_shim.objects import EVENTS

EVENTS_PER_S: Final = 200.0
"""Events sent each second; more wait."""

WAITING_MAX: Final = 20_000
"""Events that wait to be sent; beyond, new ones are dropped, and their number is logged."""

SERIES_S: Final = 360.0
"""Seconds without a repetition after which an event begins a new series."""

UPDATE_S: Final = 60.0
"""Seconds between two updates of the count of a series."""

KNOWN_MAX: Final = 8_192
"""Events that are kept to detect repetitions; the one that happened longest ago is discarded."""

BURST_PER_OBJECT: Final = 25
"""Different events of one object at once; further ones are dropped."""

REFILL_S: Final = 60.0
"""Seconds after which an object may have one more event."""

NOTE_BYTES_MAX: Final = 1_024
"""Bytes of a note, by the API; longer ones are cut."""

NAME_CHARACTERS: Final = 230
"""Characters of the object's name in the name of an event, which may have 253."""

CONTROLLER: Final = "yunikorn"
"""The reporting controller, as tools that read YuniKorn's events expect it."""

SENDERS: Final = 4
"""Events in flight."""

_log = logging.getLogger("shim.events")


class EventWrite(Struct, frozen=True):
    """An event to create or, with a name, its new count."""

    namespace: str
    body: Body
    name: str = ""


class _Known(Struct):
    """An event that may repeat."""

    namespace: str
    name: str
    last_at: float
    updated_at: float
    count: int = 1


class _Budget(Struct):
    """How many events an object may still have."""

    left: float
    at: float


class EventAggregator:
    """Decides which events are written, and how. Pure: times are seconds since 1970."""

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._number = 0
        self._known: OrderedDict[tuple[str, ...], _Known] = OrderedDict()
        self._budgets: OrderedDict[str, _Budget] = OrderedDict()

    def add(self, event: EmitEvent, now: float) -> EventWrite | None:
        """Return what to write because of an event; None if nothing has to be, at least for now."""
        key = (event.uid, event.type, event.reason, event.action, event.note)
        known = self._known.get(key)
        if known is not None and now < known.last_at + SERIES_S:
            self._known.move_to_end(key)
            known.count, known.last_at = known.count + 1, now
            return self._update(known, now) if known.count == 2 or now >= known.updated_at + UPDATE_S else None
        if not self._spend(event.uid or event.name, now):
            return None
        self._number += 1
        namespace = event.namespace or "default"
        name = f"{event.name[:NAME_CHARACTERS]}.{int(now * 1e6):x}{self._number & 0xFFFF:04x}"
        self._known[key] = _Known(namespace, name, now, now)
        self._known.move_to_end(key)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return EventWrite(namespace, self._build(event, namespace, name, now))

    def _spend(self, uid: str, now: float) -> bool:
        """Whether an object may have another event; then it has one less left."""
        budget = self._budgets.setdefault(uid, _Budget(BURST_PER_OBJECT, now))
        self._budgets.move_to_end(uid)
        if len(self._budgets) > KNOWN_MAX:
            self._budgets.popitem(last=False)
        budget.left = min(BURST_PER_OBJECT, budget.left + (now - budget.at) / REFILL_S)
        budget.at = now
        if budget.left < 1:
            return False
        budget.left -= 1
        return True

    def _update(self, known: _Known, now: float) -> EventWrite:
        known.updated_at = now
        series = {"count": known.count, "lastObservedTime": format_time(known.last_at)}
        return EventWrite(known.namespace, {"series": series}, known.name)

    def _build(self, event: EmitEvent, namespace: str, name: str, now: float) -> Body:
        regarding = {"apiVersion": "v1", "kind": event.kind, "name": event.name, "uid": event.uid}
        if event.namespace:
            regarding["namespace"] = event.namespace
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": format_time(now),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "action": event.action,
            "reason": event.reason,
            "regarding": regarding,
            "note": cut_text(event.note, NOTE_BYTES_MAX),
            "type": event.type,
        }


def format_time(seconds: float) -> str:
    """Return a time as the API writes it, with microseconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def cut_text(text: str, size: int) -> str:
    """Return a text that takes at most so many bytes, with `...` at the end if something is missing.

    >>> cut_text("späte", 5), cut_text("spät", 5)
    ('s...', 'spät')
    """
    data = text.encode(errors="replace")
    return data.decode() if len(data) <= size else data[: size - 3].decode(errors="ignore") + "..."


class EventSender:
    """Sends events one after the other, behind everything else; what waits too long is dropped."""

    def __init__(self, client: KubernetesClient, instance: str) -> None:
        self._client = client
        self._aggregator = EventAggregator(instance)
        self._waiting = asyncio.Queue[EventWrite](WAITING_MAX)
        self._dropped = 0

    @property
    def waiting(self) -> int:
        """Events that are not sent yet."""
        return self._waiting.qsize()

    def emit(self, event: EmitEvent) -> None:
        """Send an event some time later, or drop it."""
        write = self._aggregator.add(event, datetime.now(UTC).timestamp())
        if write is None:
            return
        try:
            self._waiting.put_nowait(write)
        except asyncio.QueueFull:
            self._dropped += 1

    async def run(self) -> None:
        """Send events until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(SENDERS):
                tasks.create_task(self._send())

    async def _send(self) -> None:
        while True:
            if self._dropped and self._waiting.empty():
                _log.warning("%d events were dropped, as more than %d waited", self._dropped, WAITING_MAX)
                self._dropped = 0
            write = await self._waiting.get()
            try:
                if write.name:
                    await self._client.patch(EVENTS, write.namespace, write.name, write.body)
                else:
                    await self._client.create(EVENTS, write.namespace, write.body)
            except KubernetesError as error:
                # Its namespace may be gone, or the API server has removed the event after an hour.
                level = logging.DEBUG if error.status in (403, 404) else logging.WARNING
                _log.log(level, "an event was not written: %s", error)
