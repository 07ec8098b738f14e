"""`yunishard event`: list the latest events of a partition, and follow new ones, over the REST API.

Each partition numbers its events. A follower counts its events, so that after a lost connection, or
after the server ended its stream, it continues there; it reports events that are gone by then. Not here: the words for
events (`event_texts.py`).
"""

import argparse
import heapq
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from yunishard.cli.commands.console import add_actions
from yunishard.cli.commands.display import Text
from yunishard.cli.commands.listing import (
    AGE,
    AMOUNTS,
    NUMBER,
    PARTITION,
    Column,
    Frame,
    Row,
    Rows,
    Wanted,
    add_list_options,
    as_amount,
    as_number,
    as_text,
    show_list,
)
from yunishard.cli.commands.partition_tables import add_partition
from yunishard.cli.commands.rest import RequestFailed, Rest, add_rest
from yunishard.cli.main import CommandFailed, CommandUnusable, parse_whole
from yunishard.common.rest.event_texts import TYPES, EventFilter, describe_event, name_type
from yunishard.common.rest.records import BatchView, EventResourceView, EventView
from yunishard.common.text_formats import UNKNOWN, format_resources, list_kinds, parse_duration

LIMIT_DEFAULT: Final = 100
"""Events of a list without `--limit`."""

PAST_MAX: Final = 1_000_000
"""As many events as a partition can keep; a larger `--past` is wrong usage."""

PAGE_EVENTS: Final = 1000
"""Events of one request, the most that the system returns."""

RETRY_MAX_S: Final = 10.0
"""The longest pause before a follower connects again; the first one is RETRY_MIN_S, each later one twice as long."""
RETRY_MIN_S: Final = 0.5

_TRANSIENT: Final = frozenset({500, 502, 503, 504})
"""Refusals after which a follower tries again: the partition restarts, or has no room for another stream."""


class NumberedEvent(NamedTuple):
    """An event with its partition and its number there."""

    partition: str
    number: int
    event: EventView


class _StreamLine(EventView, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the stream: the first one, an event, or the last one."""

    resource: EventResourceView = EventResourceView()
    InstanceUUID: str = ""
    FirstID: int = 0
    status_code: int = 0
    """Of an error, which ends the stream."""


def report_on_stderr(text: str) -> None:
    """Print a remark that is no event."""
    sys.stderr.write(f"yunishard event follow: {text}\n")


def add_event_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard event`."""
    actions = {"list": "list the latest events, the newest last", "follow": "print events as they happen, until Ctrl-C"}
    for name, own in add_actions(parser, actions).items():
        own.add_argument(
            "object", metavar="NAME", nargs="?", default="", help="only of this application, ask, node, ..."
        )
        own.add_argument("--type", choices=TYPES, default="", help=f"only about this: {', '.join(TYPES)}")
        own.add_argument("--text", metavar="TEXT", default="", help="only with this text in a name or a message")
        add_partition(own, default="all" if name == "list" else "the only one")
        if name == "list":
            about = "nothing before this time: 10m (ago), or 2026-01-31T12:00"
            own.add_argument("--since", metavar="TIME", type=parse_since, default=0, help=about)
            add_list_options(own, COLUMNS)
        else:
            about = "begin with so many past events (default: none)"
            own.add_argument("--past", metavar="N", type=parse_whole(0, PAST_MAX), default=0, help=about)
        add_rest(own)


def run_event(args: argparse.Namespace) -> int:
    """List and follow the events of a partition: what happened to its applications,
    asks, nodes, queues, users and groups. A partition keeps the latest 100,000
    unless configured otherwise. Requires the role of scheduler administrator.

    examples:
      yunishard event list                     the latest 100 events
      yunishard event list app-17              all about an application
      yunishard event list root.research       about a queue and those below it
      yunishard event list --type node --since 1h
      yunishard event follow                   continues after a lost connection
      yunishard event follow --json | jq       one JSON document a line

    exit codes:
      0    done
      1    refused, with the reason
      2    wrong usage, or the system does not answer
      130  interrupted with Ctrl-C
    """
    rest = Rest.from_arguments(args)
    wanted = EventFilter(args.type, args.object, args.text, getattr(args, "since", 0))
    if args.action == "list":
        return _list_events(args, rest, [args.partition] if args.partition else rest.partitions(), wanted)
    partition = args.partition or _find_only_partition(rest)
    with rest.hint_of_partitions(partition):
        return _follow_events(args, rest, partition, wanted)


def parse_since(text: str) -> int:
    """Parse a time in the past, for the `type` of an option; return Unix nanoseconds."""
    if (duration := parse_duration(text.removeprefix("-"))) is not None:
        return time.time_ns() - int(duration * 1e9)
    with suppress(ValueError):
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1e9)
    wanted = "a duration such as 10m or 24h, or a time such as 2026-01-31T12:00"
    raise argparse.ArgumentTypeError(f"expected {wanted}, got {text[:32]!r}")


def _find_only_partition(rest: Rest) -> str:
    """Return the name of the only partition; empty if there is none yet."""
    partitions = rest.partitions()
    if len(partitions) > 1:
        raise CommandFailed(f"there are several partitions, name one with --partition: {', '.join(partitions)}")
    return partitions[0] if partitions else ""


# List -----------------------------------------------------------------------------------------------------------------


def _list_events(args: argparse.Namespace, rest: Rest, partitions: Sequence[str], wanted: EventFilter) -> int:
    def fetch(_: Wanted) -> Rows:
        each = [read_newest_events(rest, partition, wanted) for partition in partitions]
        by_time = heapq.merge(*each, key=lambda one: -one.event.timestampNano)  # the newest first
        rows = [_make_row(one) for one in islice(by_time, args.limit or LIMIT_DEFAULT)][::-1]
        return Rows(rows, len(rows), list_kinds(*(as_amount(row["resources"]) for row in rows)))

    hidden = ("resources", "message") if len(partitions) > 1 else ("resources", "message", PARTITION.name)
    columns = [*(one for one in COLUMNS if one.name not in hidden), Column("details", cell=_show_details)]
    return show_list(args, "event", COLUMNS, fetch, layout=lambda _, __: columns)


def _make_row(one: NumberedEvent) -> Row:
    """The event with the keys of the API, and in words."""
    event = one.event
    return {
        "number": one.number,
        "partition": one.partition,
        **msgspec.to_builtins(event),
        "time": event.timestampNano,
        "about": name_type(event),
        "event": describe_event(event),
        "resources": {kind: amount.value for kind, amount in event.resource.resources.items()},
    }


def _show_clock(row: Row, _: Frame) -> Text:
    return format_clock(int(as_number(row.get("time")) or 0))


def _show_details(row: Row, _: Frame) -> Text:
    """The message, or else the amounts: few events have both, and messages repeat them."""
    amounts = format_resources(as_amount(row.get("resources"))) if row.get("resources") else UNKNOWN
    return as_text(row.get("message")) or amounts


COLUMNS: Final = (
    Column("number", NUMBER, is_wide=True),
    PARTITION,
    Column("time", AGE, cell=_show_clock),
    Column("about", heading="TYPE"),
    Column("objectID", heading="OBJECT"),
    Column("event"),
    Column("referenceID", heading="OF"),
    Column("resources", AMOUNTS),
    Column("message"),
)


def read_newest_events(rest: Rest, partition: str, wanted: EventFilter) -> Iterator[NumberedEvent]:
    """Read the events that a filter selects, the newest first, page by page."""
    with rest.hint_of_partitions(partition):
        known = _read_batch(rest, partition, start=0, count=1)
    end = known.HighestID + 1
    while end > known.LowestID:
        start = max(known.LowestID, end - PAGE_EVENTS)
        batch = _read_batch(rest, partition, start=start, count=end - start)
        records = batch.EventRecords or []
        for number, event in reversed([*enumerate(records, start)]):
            if event.timestampNano < wanted.since_ns:
                return
            if wanted.selects(event):
                yield NumberedEvent(partition, number, event)
        end = start


def _read_batch(rest: Rest, partition: str, *, start: int, count: int) -> BatchView:
    query = {"partition": partition, "start": str(start), "count": str(count)}
    return rest.get("events", "batch", **query).decode(BatchView)


def format_event(event: EventView) -> str:
    """Format an event as a line of columns."""
    amounts = {kind: one.value for kind, one in event.resource.resources.items()}
    columns = (
        format_clock(event.timestampNano),
        name_type(event).ljust(5),
        event.objectID.ljust(24),
        describe_event(event).ljust(20),
        *(text for text in (event.referenceID, format_resources(amounts) if amounts else "", event.message) if text),
    )
    return " ".join("  ".join(columns).splitlines()).rstrip()


def format_clock(ns: int) -> str:
    """Format Unix nanoseconds in the local time zone, with milliseconds; today's without the date."""
    at = datetime.fromtimestamp(ns / 1e9).astimezone()
    day = "" if at.date() == datetime.now().astimezone().date() else f"{at:%Y-%m-%d} "
    return f"{day}{at:%H:%M:%S}.{ns // 1_000_000 % 1000:03d}"


# Follow ---------------------------------------------------------------------------------------------------------------


def _follow_events(args: argparse.Namespace, rest: Rest, partition: str, wanted: EventFilter) -> int:
    known = _read_batch(rest, partition, start=0, count=1)
    end = known.HighestID + 1 if known.EventRecords or known.HighestID else 0
    follower = EventFollower(rest, partition, max(known.LowestID, end - args.past))
    for event in follower.follow():
        if wanted.selects(event):
            sys.stdout.write(f"{_encode_line(event) if args.json else format_event(event)}\n")
            sys.stdout.flush()
    raise AssertionError("a follower ends only with an exception")


def _encode_line(event: EventView) -> str:
    return msgspec.json.encode(event).decode()


class EventFollower:
    """Reads the events of a partition from a number on, over any number of connections."""

    def __init__(
        self,
        rest: Rest,
        partition: str,
        position: int,
        *,
        report: Callable[[str], object] = report_on_stderr,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._rest = rest
        self._partition = partition
        self._report = report
        self._sleep = sleep
        self.position = position
        """The number of the next event."""
        self._instance = ""
        """Identifies the sequence in which this number counts."""
        self._has_begun = False
        """Whether a connection was made: from then on failures are temporary."""
        self._pause_s = RETRY_MIN_S

    def follow(self) -> Iterator[EventView]:
        """All events, as they happen.

        Raises:
            CommandFailed: the system refuses, or does not answer the first request.
        """
        while True:
            problem = "the server ended the stream"
            try:
                yield from self._read_stream()
            except RequestFailed as failed:
                if not self._has_begun or failed.code not in _TRANSIENT:
                    raise
                problem = str(failed)
            except CommandUnusable as failed:
                if not self._has_begun:
                    raise
                problem = str(failed)
            self._report(f"{problem}; connecting again at event {self.position}")
            self._sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s, RETRY_MAX_S)

    def _read_stream(self) -> Iterator[EventView]:
        """The events of one connection."""
        query = {"partition": self._partition, "start": str(self.position)}
        with self._rest.open_stream("events", "stream", **query) as lines:
            first = _decode_line(next(lines, b"{}"))
            self._has_begun = True
            if self._instance and first.InstanceUUID != self._instance:
                self._report("the partition began a new sequence of events: earlier ones may be missing")
                self._instance, self.position = first.InstanceUUID, 0
                return
            self._instance = first.InstanceUUID
            if first.FirstID > self.position:
                self._report(f"{first.FirstID - self.position} events are missing: they are not kept any more")
            self.position = first.FirstID
            for line in lines:
                event = _decode_line(line)
                if event.status_code:
                    return
                self._pause_s = RETRY_MIN_S
                self.position += 1
                yield event


def _decode_line(line: bytes) -> _StreamLine:
    try:
        return msgspec.json.decode(line, type=_StreamLine)
    except msgspec.MsgspecError:
        raise CommandUnusable("the stream has a line that is no event: is this the web service of yunishard?") from None
