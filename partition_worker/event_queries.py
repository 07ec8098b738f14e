"""Answer queries about events: REST batches, lines of event streams, and history accounts.

Event n of a batch has the number `start` + n. A reader continues after the last one, or at `LowestID` if the next event
is no longer in the ring buffer. An answer with too many bytes for a message is shortened.
"""

from collections.abc import Iterator, Mapping
from heapq import merge
from itertools import islice, takewhile
from typing import Final

from msgspec.json import Encoder

from common import event_codes
from common.extra_config import ExtraConfig
from common.history_records import (
    COUNT_MAX,
    ENDED_MAX,
    EVENTS_MAX,
    KEYS_MAX,
    Account,
    Began,
    Ended,
    EndedApplication,
    EventLines,
    Failing,
    Happened,
    Sample,
    Usage,
)
from common.messages import Resources
from common.query_messages import Answer
from common.resources import pruned, saturated
from common.rest_records import AmountView, BatchView, EventResourceView, EventView
from common.text_formats import UnsignedError, unsigned
from partition_worker.engine.application import Application, Use
from partition_worker.engine.application_states import ENDED, AppState
from partition_worker.engine.effects import Happening
from partition_worker.engine.partition import Partition
from partition_worker.engine.state import Rejection
from partition_worker.engine.usage_trackers import Trackers
from partition_worker.event_ring_buffer import EventRingBuffer, Span, truncate_message
from partition_worker.views import used_resources

ANSWERED_MAX: Final = 50_000
"""Events in one answer, whatever is configured. It takes a quarter of a second to write them down, in which the
partition does nothing else; who asks for more reads on after them."""

_NOTHING: Final = EventResourceView()
_encoder: Final = Encoder(order="deterministic")


def answer_events(ring: EventRingBuffer, settings: ExtraConfig, args: Mapping[str, str], *, bytes_max: int) -> Answer:
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
    while len(body := _encode_batch(ring, start, most)) > bytes_max and most > 1:
        most //= 2
    return Answer(status=200, body=body)


def _encode_batch(ring: EventRingBuffer, start: int, most: int) -> bytes:
    found = ring.since(start, most)
    records = None if found is None else list(map(event_view, found.times_ns, found.happenings))
    return _encoder.encode(BatchView(ring.instance, ring.lowest, ring.highest, records)) + b"\n"


def event_view(at_ns: int, happening: Happening) -> EventView:
    """An event as it is shown."""
    return EventView(
        type=happening.kind,
        objectID=happening.object_id,
        message=truncate_message(happening.message),
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


# Event streams --------------------------------------------------------------------------------------------------------


def answer_event_lines(
    ring: EventRingBuffer, settings: ExtraConfig, args: Mapping[str, str], *, bytes_max: int
) -> Answer:
    """The answer to a question with the texts `start` and `count`; fewer than `count` if it would be too long."""
    try:
        start, most = unsigned(args.get("start", "")), unsigned(args.get("count", "")) or 0
    except UnsignedError as error:
        return Answer(status=400, body=str(error).encode(errors="replace"))
    first = ring.end if start is None else max(start, ring.lowest)
    most = min(most, COUNT_MAX)
    while len(body := _encode_lines(ring, settings, first, most)) > bytes_max and most > 1:
        most //= 2
    return Answer(status=200, body=body)


def _encode_lines(ring: EventRingBuffer, settings: ExtraConfig, first: int, most: int) -> bytes:
    found = ring.since(first, most)
    records: list[EventView] = [] if found is None else list(map(event_view, found.times_ns, found.happenings))
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


# History accounts -----------------------------------------------------------------------------------------------------

HOW: Final[Mapping[int, str]] = {
    event_codes.ALLOC_CANCEL: "STOPPED_BY_RM",
    event_codes.ALLOC_PREEMPT: "PREEMPTED_BY_SCHEDULER",
    event_codes.ALLOC_TIMEOUT: "TIMEOUT",
    event_codes.ALLOC_REPLACED: "PLACEHOLDER_REPLACED",
    event_codes.ALLOC_NODEREMOVED: "NODE_REMOVED",
}
"""How an allocation ended, in the words of the scheduler interface where it has one, by the detail of the event."""

REMOVED: Final = "Removed"
"""The state in a history of an application that the RM removed while it had asks or allocations, or none yet."""

_FAILURES: Final = (event_codes.APP_FAILING, event_codes.APP_FAILED)
_EARLIER_NS: Final = 1_000_000_000
"""How much earlier than an event of it an application may seem to have ended: events and states have times of their
own.
"""
_account_encoder: Final = Encoder()


def answer_account(partition: Partition, ring: EventRingBuffer, args: Mapping[str, str]) -> Answer:
    """The account since what the arguments say; status 400 if they say nothing that can be read."""
    try:
        start, since_ns = int(args.get("start", "0")), int(args.get("since", "0"))
    except ValueError as error:
        return Answer(status=400, body=str(error).encode(errors="replace"))
    if args.get("instance") != ring.instance:
        start = 0
    first = max(start, ring.lowest)
    span = ring.since(first, EVENTS_MAX) or Span([], [])
    after = first + len(span.times_ns)
    caught_up = not len(ring) or after > ring.highest
    account = Account(
        instance=ring.instance,
        tracked=partition.tracking,
        first=first,
        next=after,
        first_ns=span.times_ns[0] if span.times_ns else 0,
        last_ns=span.times_ns[-1] if span.times_ns else 0,
        happened=list(_relevant_events(partition, span)),
        ended=_ended_applications(partition, since_ns),
        sample=_sample(partition) if "sample" in args else None,
        keys=_allocation_keys(partition) if "keys" in args and caught_up else None,
    )
    return Answer(status=200, body=_account_encoder.encode(account))


# What happened --------------------------------------------------------------------------------------------------------


def _relevant_events(partition: Partition, span: Span) -> Iterator[Happened]:
    """Of these events what a history needs."""
    owners = _Owners(partition, span.times_ns[0] if span.times_ns else 0)
    nodes: dict[str, str] = {}  # of allocations in this span, for those that are gone by now
    for at_ns, one in zip(span.times_ns, span.happenings, strict=True):
        if one.kind == event_codes.NODE:
            if one.change == event_codes.ADD and one.detail == event_codes.NODE_ALLOC:
                nodes[one.reference_id] = one.object_id
        elif one.kind != event_codes.APP:
            continue
        elif one.change == event_codes.ADD and one.detail == event_codes.APP_ALLOC:
            yield Began(at_ns, *_allocation(partition, owners, nodes, one))
        elif one.change == event_codes.REMOVE and one.detail in HOW:
            yield Ended(at_ns, *_allocation(partition, owners, nodes, one), HOW[one.detail])
        elif one.change == event_codes.SET and one.detail in _FAILURES and one.message:
            yield Failing(at_ns, one.object_id, truncate_message(one.message))


def _allocation(
    partition: Partition, owners: "_Owners", nodes: Mapping[str, str], one: Happening
) -> tuple[str, str, str, str, str, Resources]:
    key, application = one.reference_id, owners.find(one.object_id)
    found = partition.allocations.get(key)
    node_id = nodes.get(key) or (found.node_id if found is not None else "")
    queue, user = (application.queue.path, application.user.name) if application is not None else ("", "")
    return key, one.object_id, queue, user, node_id, saturated(one.resource)


class _Owners:
    """The applications of events since a time, also those that have ended since then."""

    def __init__(self, partition: Partition, since_ns: int) -> None:
        self._partition = partition
        self._since_ns = since_ns - _EARLIER_NS
        self._ended: dict[str, Application] | None = None

    def find(self, application_id: str) -> Application | None:
        found = self._partition.applications.get(application_id)
        if found is not None:
            return found
        if self._ended is None:
            self._ended = {
                one.application_id: one for one in _applications_finished_after(self._partition, self._since_ns)
            }
        return self._ended.get(application_id)


# Who has ended --------------------------------------------------------------------------------------------------------


def _ended_applications(partition: Partition, since_ns: int) -> list[EndedApplication]:
    """Completed, failed, removed and rejected ones, in the order of their end."""
    rejected = takewhile(lambda one: one.at_ns > since_ns, reversed(partition.rejections.values()))
    both = merge(
        ((one.at_ns, _rejected_application(one)) for one in reversed(list(rejected))),
        ((one.finished_ns, _finished_application(one)) for one in _applications_finished_after(partition, since_ns)),
        key=lambda pair: pair[0],
    )
    return [one for _, one in islice(both, ENDED_MAX)]


def _applications_finished_after(partition: Partition, since_ns: int) -> list[Application]:
    """Completed, failed and removed ones, in the order of their end: the latest are last, so nobody looks at all."""
    both = (
        takewhile(lambda one: one.finished_ns > since_ns, reversed(kept))
        for kept in (partition.ended.values(), partition.removed)
    )
    return list(merge(*both, key=lambda one: one.finished_ns, reverse=True))[::-1]


def _finished_application(one: Application) -> EndedApplication:
    return EndedApplication(
        one.application_id,
        one.queue.path,
        one.user.name,
        list(one.user.groups),
        _last_state(one),
        one.submitted_ns,
        one.started_ns,
        one.finished_ns,
        "",
        used_resources(one.history, Use.REAL),
        used_resources(one.history, Use.PREEMPTED),
        used_resources(one.history, Use.PLACEHOLDER),
    )


def _last_state(one: Application) -> str:
    """How it ended, also for one that the RM removed before it had."""
    if one.state in ENDED:
        return one.state
    return AppState.FAILED if one.state is AppState.FAILING else REMOVED


def _rejected_application(one: Rejection) -> EndedApplication:
    return EndedApplication(
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


# How it is now --------------------------------------------------------------------------------------------------------


def _sample(partition: Partition) -> Sample:
    counters = partition.counters
    return Sample(
        running=sum(one.state is AppState.RUNNING for one in partition.applications.values()),
        allocated=counters.allocated,
        released=counters.released,
        capacity=saturated(partition.nodes.total),
        used=saturated(pruned(partition.tree.root.allocated)),
        queues=[
            Usage(queue.path, queue.running, saturated(allocated), saturated(pending))
            for queue in partition.tree
            if (allocated := pruned(queue.allocated)) | (pending := pruned(queue.pending)) or queue.running
        ],
        users=list(_root_usage(partition.usage.users)),
        groups=list(_root_usage(partition.usage.groups)),
    )


def _root_usage(trackers: Trackers) -> Iterator[Usage]:
    """What each of them has in the root queue, which is in all."""
    for tracker in trackers:
        for level in tracker.levels.values():
            if level.above is None and (level.applications or pruned(level.used)):
                yield Usage(tracker.name, len(level.applications), saturated(pruned(level.used)))


def _allocation_keys(partition: Partition) -> list[str] | None:
    if partition.running_allocations > KEYS_MAX:
        return None
    return [key for one in partition.applications.values() for key in one.allocations]
