"""Keep the newest events of a partition, push them to the RM, and answer queries about them.

    ring.append_events(events, now)         append the events of one step
    ring.read_since(start, count)      read events from a number on

Events are numbered from 0 and no number is reused; when the buffer is full, the oldest events are dropped. A new
partition incarnation starts an empty buffer with another `instance`, so that readers detect it.

An RM with the capability `events` receives new events every EVERY_S. Pushed events are not numbered, persisted or
repeated. Events beyond `event.requestCapacity` (and PUSHED_MAX) are skipped, and the message states how many. Nothing
is pushed while an RM has not acknowledged the messages before the last push, which bounds the data in flight.

Queries read REST batches, lines of event streams, and history accounts. Event n of a batch has the number `start` + n.
A reader continues after the last one, or at `LowestID` if the next event is no longer in the ring buffer. An answer
with too many bytes for a message is shortened.
"""

from collections import ChainMap, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from heapq import merge
from itertools import islice, takewhile
from typing import Final

from msgspec import json
from msgspec.json import Encoder

from yunishard.common.config.extra_config import DEFAULTS, ExtraConfig
from yunishard.common.messages import event_codes, query_messages
from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.query_messages import Answer
from yunishard.common.messages.rm_messages import EventRecord, EventResponse
from yunishard.common.messages.session import Outbox
from yunishard.common.messages.wire import NEVER
from yunishard.common.resources import saturate
from yunishard.common.rest import records
from yunishard.common.text_formats import UnsignedError, parse_unsigned
from yunishard.partition_worker.engine.application import ENDED, Application, AppState, Use
from yunishard.partition_worker.engine.effects import Event
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.user_limits import Trackers
from yunishard.partition_worker.views import used_resources

MESSAGE_BYTES_MAX: Final = 1024
"""A longer message is truncated, and ends with three dots."""

CAPACITY_MAX: Final = 1_000_000
"""Upper limit of the configured capacity: about half a gigabyte."""


class EventRingBuffer:
    """The newest events, numbered from `lowest` to `highest`; both are 0 while there are none."""

    def __init__(self, name: str, capacity: int = DEFAULTS.event_ring_buffer_capacity) -> None:
        digest = blake2b(name.encode(), digest_size=16).hexdigest()
        self.instance = "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:]))
        """Identifies this buffer, in the form of a UUID derived from its name."""
        self._events: deque[Event] = deque(maxlen=capacity)
        self._times_ns: deque[int] = deque(maxlen=capacity)
        """The time of each event. Not pairs: they would be three more objects for each allocation."""
        self.end = 0
        """The number of the next event."""
        self._last_ns = 0

    def __len__(self) -> int:
        return len(self._events)

    @property
    def lowest(self) -> int:
        return self.end - len(self._events) if self._events else 0

    @property
    def highest(self) -> int:
        return self.end - 1 if self._events else 0

    def append_events(self, events: Sequence[Event], now: float) -> None:
        """Append the events of one step, in order."""
        first_ns = max(self._last_ns + 1, int(now * 1e9))
        self._last_ns = first_ns + len(events) - 1
        self._events.extend(events)
        self._times_ns.extend(range(first_ns, self._last_ns + 1))
        self.end += len(events)

    def resize(self, capacity: int) -> None:
        """Change the capacity, up to CAPACITY_MAX; the newest events stay."""
        capacity = min(capacity, CAPACITY_MAX)
        if capacity != self._events.maxlen:
            self._events = deque(self._events, maxlen=capacity)
            self._times_ns = deque(self._times_ns, maxlen=capacity)

    def read_since(self, start: int, most: int) -> list[tuple[int, Event]]:
        """Return up to `most` events from this number on, empty if there is no event of this number.

        Each comes with its time in Unix nanoseconds, which is later than that of the event before it.
        """
        if not self._events or not self.lowest <= start <= self.highest:
            return []
        first = start - self.lowest
        end = min(first + most, len(self._events))
        times_ns, events = islice(self._times_ns, first, end), islice(self._events, first, end)
        return list(zip(times_ns, events, strict=True))


def truncate_message(message: str) -> str:
    """Truncate a message to MESSAGE_BYTES_MAX."""
    if len(message) * 4 <= MESSAGE_BYTES_MAX or len(raw := message.encode()) <= MESSAGE_BYTES_MAX:
        return message
    return raw[: MESSAGE_BYTES_MAX - 3].decode(errors="ignore") + "..."


# Push to the RM -------------------------------------------------------------------------------------------------------

EVERY_S: Final = 2.0
"""Seconds from the first event that was not pushed to the push."""

PUSHED_MAX: Final = 10_000
"""Upper limit of events in a push: about 2 MiB."""


class EventPush:
    """Batches of new events for the RM. `deadline` is the time of the next batch, or NEVER."""

    def __init__(self) -> None:
        self.deadline = NEVER
        self._instance = ""
        self._next = 0
        """The number of the next event to push."""
        self._sent_before = 0
        """The number of the last message that was sent to the RM before the last push."""

    def collect_due(self, ring: EventRingBuffer, most: int, outbox: Outbox, now: float) -> EventResponse | None:
        """Return the new events, oldest first, if a batch is due; None also while the RM acknowledges nothing."""
        if ring.instance != self._instance:
            self._instance, self._next, self._sent_before = ring.instance, 0, 0
        if self.deadline == NEVER and ring.end > self._next:
            self.deadline = now + EVERY_S
        if self.deadline > now:
            return None
        self.deadline = NEVER
        if outbox.acknowledged < self._sent_before:
            return None
        self._sent_before = outbox.last
        found = ring.read_since(max(self._next, ring.lowest), min(most, PUSHED_MAX))
        recorded, self._next = ring.end - self._next, ring.end
        if not found:
            return None
        events = [
            EventRecord(
                type=one.kind,
                object_id=one.object_id,
                message=truncate_message(one.message),
                timestamp_nano=at_ns,
                event_change_type=one.change,
                event_change_detail=one.detail,
                reference_id=one.reference_id,
                resource=saturate(one.resource),
            )
            for at_ns, one in found
        ]
        return EventResponse(events=events, missed=recorded - len(events))


# Batches and streams --------------------------------------------------------------------------------------------------

ANSWERED_MAX: Final = 50_000
"""Upper limit of events in one answer: encoding them takes a quarter of a second, during which the worker does not
schedule. A caller that asks for more reads on after them.
"""

_NOTHING: Final = records.EventResourceView()
_encoder: Final = Encoder(order="deterministic")


def answer_events(ring: EventRingBuffer, settings: ExtraConfig, args: Mapping[str, str], *, bytes_max: int) -> Answer:
    """Answer a query for events with the optional arguments `start` and `count`.

    Raises:
        UnsignedError: an argument is not valid.
    """
    if not settings.event_tracking_enabled:
        return Answer(status=500, body=b"Event tracking is disabled")
    count = parse_unsigned(args.get("count", ""))
    if count == 0:
        raise UnsignedError('0 is not a valid value for "count"')
    start = parse_unsigned(args.get("start", "")) or 0
    most = min(settings.event_rest_response_size, ANSWERED_MAX)

    def encode(most: int) -> bytes:
        events = [event_view(at_ns, one) for at_ns, one in ring.read_since(start, most)] or None
        return _encoder.encode(records.BatchView(ring.instance, ring.lowest, ring.highest, events)) + b"\n"

    return _answer_within(encode, most if count is None else min(count, most), bytes_max)


def answer_event_lines(
    ring: EventRingBuffer, settings: ExtraConfig, args: Mapping[str, str], *, bytes_max: int
) -> Answer:
    """Answer a query of an event stream with the optional arguments `start` and `count`.

    Raises:
        UnsignedError: an argument is not valid.
    """
    start, most = parse_unsigned(args.get("start", "")), parse_unsigned(args.get("count", "")) or 0
    first = ring.end if start is None else max(start, ring.lowest)

    def encode(most: int) -> bytes:
        return _encoder.encode(
            query_messages.EventLines(
                instance=ring.instance,
                tracking=settings.event_tracking_enabled,
                streams_max=settings.event_max_streams,
                streams_per_host_max=settings.event_max_streams_per_host,
                lowest=ring.lowest,
                end=ring.end,
                first=first,
                records=[event_view(at_ns, one) for at_ns, one in ring.read_since(first, most)],
            )
        )

    return _answer_within(encode, min(most, query_messages.COUNT_MAX), bytes_max)


def _answer_within(encode: Callable[[int], bytes], most: int, bytes_max: int) -> Answer:
    """Encode as many events as fit into an answer."""
    while len(body := encode(most)) > bytes_max and most > 1:
        most //= 2
    return Answer(status=200, body=body)


def event_view(at_ns: int, event: Event) -> records.EventView:
    """Build the REST view of an event."""
    amounts = {kind: records.AmountView(value) for kind, value in saturate(event.resource).items()}
    return records.EventView(
        type=event.kind,
        objectID=event.object_id,
        message=truncate_message(event.message),
        timestampNano=at_ns,
        eventChangeType=event.change,
        eventChangeDetail=event.detail,
        referenceID=event.reference_id,
        resource=records.EventResourceView(amounts) if amounts else _NOTHING,
    )


# History accounts -----------------------------------------------------------------------------------------------------

HOW: Final[Mapping[int, str]] = {
    event_codes.ALLOC_CANCEL: "STOPPED_BY_RM",
    event_codes.ALLOC_PREEMPT: "PREEMPTED_BY_SCHEDULER",
    event_codes.ALLOC_TIMEOUT: "TIMEOUT",
    event_codes.ALLOC_REPLACED: "PLACEHOLDER_REPLACED",
    event_codes.ALLOC_NODEREMOVED: "NODE_REMOVED",
}
"""How an allocation ended, by the detail of the event: the release types of the scheduler interface, where one fits."""

REMOVED: Final = "Removed"
"""The state in a history of an application that the RM removed while it had asks or allocations, or none yet."""

_FAILURES: Final = (event_codes.APP_FAILING, event_codes.APP_FAILED)
_EARLIER_NS: Final = 1_000_000_000
"""How much earlier than its events an application may have ended: events and states have separate times."""


def answer_account(partition: Partition, ring: EventRingBuffer, args: Mapping[str, str]) -> Answer:
    """Answer a query for a history account since `start` (an event) and `since` (Unix nanoseconds).

    Raises:
        UnsignedError: an argument is not valid.
    """
    start, since_ns = (parse_unsigned(args.get(name, "")) or 0 for name in ("start", "since"))
    if args.get("instance") != ring.instance:
        start = 0
    first = max(start, ring.lowest)
    events = ring.read_since(first, query_messages.EVENTS_MAX)
    after = first + len(events)
    caught_up = not len(ring) or after > ring.highest
    with_keys = "keys" in args and caught_up and partition.running_allocations <= query_messages.KEYS_MAX
    account = query_messages.Account(
        instance=ring.instance,
        tracked=partition.tracking,
        first=first,
        next=after,
        first_ns=events[0][0] if events else 0,
        last_ns=events[-1][0] if events else 0,
        happened=list(_relevant_events(partition, events)) if events else [],
        ended=_ended_applications(partition, since_ns),
        sample=_sample(partition) if "sample" in args else None,
        keys=[key for one in partition.applications.values() for key in one.allocations] if with_keys else None,
    )
    return Answer(status=200, body=json.encode(account))


def _relevant_events(partition: Partition, events: list[tuple[int, Event]]) -> Iterator[query_messages.Happened]:
    """Select and convert the events that a history stores."""
    ended = _applications_finished_after(partition, events[0][0] - _EARLIER_NS)
    applications = ChainMap(partition.applications, {one.application_id: one for one in ended})
    nodes: dict[str, str] = {}  # of allocations that start in these events, as they may have ended since

    def allocation(one: Event) -> tuple[str, str, str, str, str, Resources]:
        key, application = one.reference_id, applications.get(one.object_id)
        found = partition.allocations.get(key)
        node_id = nodes.get(key) or (found.node_id if found is not None else "")
        queue, user = (application.queue.path, application.user.name) if application is not None else ("", "")
        return key, one.object_id, queue, user, node_id, saturate(one.resource)

    for at_ns, one in events:
        if one.kind == event_codes.NODE:
            if one.change == event_codes.ADD and one.detail == event_codes.NODE_ALLOC:
                nodes[one.reference_id] = one.object_id
        elif one.kind != event_codes.APP:
            continue
        elif one.change == event_codes.ADD and one.detail == event_codes.APP_ALLOC:
            yield query_messages.Began(at_ns, *allocation(one))
        elif one.change == event_codes.REMOVE and one.detail in HOW:
            yield query_messages.Ended(at_ns, *allocation(one), HOW[one.detail])
        elif one.change == event_codes.SET and one.detail in _FAILURES and one.message:
            yield query_messages.Failing(at_ns, one.object_id, truncate_message(one.message))


def _ended_applications(partition: Partition, since_ns: int) -> list[query_messages.EndedApplication]:
    """Completed, failed, removed and rejected applications, in the order of their end."""
    rejected = takewhile(lambda one: one.at_ns > since_ns, reversed(partition.rejections.values()))
    rejections = [
        query_messages.EndedApplication(
            one.application_id,
            one.queue_name,
            one.user,
            list(one.groups),
            AppState.REJECTED,
            one.at_ns,
            0,
            one.at_ns,
            truncate_message(one.reason),
        )
        for one in rejected
    ]
    ended = map(_ended_application, _applications_finished_after(partition, since_ns))
    both = merge(reversed(rejections), ended, key=lambda one: one.finished_ns)
    return list(islice(both, query_messages.ENDED_MAX))


def _applications_finished_after(partition: Partition, since_ns: int) -> list[Application]:
    """Completed, failed and removed applications, in the order of their end; reads only as many as are returned."""
    both = (
        takewhile(lambda one: one.finished_ns > since_ns, reversed(kept))
        for kept in (partition.ended.values(), partition.removed)
    )
    return list(merge(*both, key=lambda one: one.finished_ns, reverse=True))[::-1]


def _ended_application(one: Application) -> query_messages.EndedApplication:
    removed = AppState.FAILED if one.state is AppState.FAILING else REMOVED
    return query_messages.EndedApplication(
        one.application_id,
        one.queue.path,
        one.user.name,
        list(one.user.groups),
        one.state if one.state in ENDED else removed,
        one.submitted_ns,
        one.started_ns,
        one.finished_ns,
        "",
        used_resources(one.history, Use.REAL),
        used_resources(one.history, Use.PREEMPTED),
        used_resources(one.history, Use.PLACEHOLDER),
    )


def _sample(partition: Partition) -> query_messages.Sample:
    counters = partition.counters
    return query_messages.Sample(
        running=sum(one.state is AppState.RUNNING for one in partition.applications.values()),
        allocated=counters.allocated,
        released=counters.released,
        capacity=saturate(partition.nodes.total),
        used=saturate(partition.tree.root.allocated),
        queues=[
            query_messages.Usage(queue.path, queue.running, saturate(allocated), saturate(pending))
            for queue in partition.tree
            if (allocated := queue.allocated) | (pending := queue.pending) or queue.running
        ],
        users=list(_root_usage(partition.usage.users)),
        groups=list(_root_usage(partition.usage.groups)),
    )


def _root_usage(trackers: Trackers) -> Iterator[query_messages.Usage]:
    """The usage of each user or group in the root queue, which includes all queues."""
    for tracker in trackers.by_name.values():
        for level in tracker.levels.values():
            if level.above is None and (level.applications or any(level.used_sum)):
                yield query_messages.Usage(tracker.name, len(level.applications), saturate(level.used))
