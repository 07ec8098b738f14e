"""`yunishard history`: what ran, as `sacct` shows it, and how much a queue used over time, over the REST API.

The web service records the history across restarts. While it records none, the applications that the partitions still
remember are shown. Not here: recording and queries (`yunishard/webservice/history/`), charts (the dashboard).
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from yunishard.cli.commands.console import add_actions, print_json
from yunishard.cli.commands.display import Screen, Text, draw_table
from yunishard.cli.commands.event import format_clock, parse_since
from yunishard.cli.commands.listing import (
    AGE,
    AMOUNTS,
    NUMBER,
    STATE,
    Column,
    Frame,
    Kind,
    Row,
    Rows,
    Wanted,
    add_list_options,
    as_amount,
    draw_rows,
    show_list,
)
from yunishard.cli.commands.rest import NOT_FOUND, RequestFailed, Rest, add_rest
from yunishard.cli.main import CommandFailed
from yunishard.common.process.terminal import write
from yunishard.common.rest.records import PastAllocationView, PastApplicationView, PastPageView, PastQueueView
from yunishard.common.rest.views import ApplicationView
from yunishard.common.text_formats import UNKNOWN, format_figure, format_resources, format_seconds, list_kinds

SINCE_DEFAULT: Final = "24h"
LIMIT_DEFAULT: Final = 100
"""Ended applications without `--limit`."""

LIMIT_MAX: Final = 100_000
PAGE_ROWS: Final = 10_000
"""Rows of one request, the most that the system returns."""

INTERVALS: Final = 24
"""Lines of `history queue` unless `--interval` is given."""

STATES: Final = ("completed", "failed", "removed", "rejected")

_NOT_RECORDED: Final = "No history is recorded"
"""The beginning of the message of a system with the setting `history=false`."""

SAMPLED_NS: Final = 3600 * 10**9
"""Usage that does not change has a row in each hour, so that of a moment is at most as old as this."""

INTERVALS_MAX: Final = 10_000
"""More intervals are refused."""

_NS: Final = 10**9
_HOUR: Final = 3600

_Row = TypeVar("_Row", PastApplicationView, PastAllocationView, PastQueueView)


def add_history_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard history`."""
    actions = {
        "app": "list the applications that have ended, or show one with its allocations",
        "queue": "show how much a queue used over time, with all queues below it",
    }
    for name, own in add_actions(parser, actions).items():
        if name == "app":
            own.add_argument("application", metavar="APP", nargs="?", default="", help="one application")
            own.add_argument("--queue", metavar="QUEUE", default="", help="only of this queue and those below it")
            own.add_argument("--user", metavar="USER", default="", help="only of this user")
            own.add_argument("--state", choices=STATES, default="", help=f"only in this state: {', '.join(STATES)}")
            add_list_options(own, COLUMNS)
        else:
            own.add_argument("queue", metavar="QUEUE", help="full path of the queue: root.research")
            about = f"one line for so long, as in 15m (default: a {INTERVALS}th of the time shown)"
            own.add_argument("--interval", metavar="TIME", type=_parse_interval, default=0, help=about)
        own.add_argument(
            "--partition", metavar="PARTITION", default="", help="only of this partition, also a former one"
        )
        about = f"nothing before this time: 7h (ago), or 2026-01-31T12:00 (default: {SINCE_DEFAULT})"
        own.add_argument("--since", metavar="TIME", type=parse_since, default=SINCE_DEFAULT, help=about)
        add_rest(own)


def run_history(args: argparse.Namespace) -> int:
    """Show which applications ran, when, for how long, what they used and how they
    ended, the latest last; or how much a queue used over time. Users see their own
    applications, and those of queues that they administer.

    used: resources multiplied by the time for which they were allocated.

    examples:
      yunishard history app                            the last 24 hours
      yunishard history app spark-17                   with its allocations
      yunishard history app --queue root.research --state failed --since 7h
      yunishard history queue root.research            hour by hour
      yunishard history queue root --since 1h --interval 5m --json

    exit codes:
      0  done
      1  refused, with the reason, or the application is not known
      2  wrong usage, or the system does not answer
    """
    rest = Rest.from_arguments(args)
    if args.action == "queue":
        return _show_queue(args, rest)
    return _show_application(args, rest) if args.application else _list_applications(args, rest)


def _parse_interval(text: str) -> int:
    return time.time_ns() - parse_since(text)


def read_newest_rows(rest: Rest, name: str, kind: type[PastPageView[_Row]], *, limit: int, **query: str) -> list[_Row]:
    """Read the newest rows of a list of the history, the newest last, page by page."""
    found: list[_Row] = []
    after = ""
    while len(found) < limit:
        wanted = {**query, "order": "newest", "limit": str(min(PAGE_ROWS, limit - len(found))), "after": after}
        page = rest.get("history", name, **wanted).decode(kind)
        found += page.rows
        after = page.next
        if not after:
            break
    return found[::-1]


def _to_query_time(ns: int) -> str:
    return str(ns // _NS)


# Applications ---------------------------------------------------------------------------------------------------------


def _read_applications(args: argparse.Namespace, rest: Rest, limit: int) -> list[PastApplicationView]:
    """Read the newest ended applications that the options select, the newest last."""
    query = {
        "queue": args.queue,
        "subtree": "true" if args.queue else "",
        "user": args.user,
        "state": args.state,
        "partition": args.partition,
        "since": _to_query_time(args.since),
    }
    try:
        rows = read_newest_rows(rest, "applications", PastPageView[PastApplicationView], limit=limit, **query)
    except RequestFailed as failed:
        if not str(failed).startswith(_NOT_RECORDED):
            raise
        rows = [one for one in _read_remembered(rest, args.partition) if _matches(one, args)][-limit:]
    return rows


def _list_applications(args: argparse.Namespace, rest: Rest) -> int:
    def fetch(_: Wanted) -> Rows:
        rows = [_make_row(one) for one in _read_applications(args, rest, args.limit or LIMIT_DEFAULT)]
        return Rows(rows, len(rows), list_kinds(*(as_amount(row["used"]) for row in rows)))

    return show_list(args, "ended application", COLUMNS, fetch)


def _make_row(one: PastApplicationView) -> Row:
    row: Row = msgspec.to_builtins(one)
    usage = one.resource_history.resource_usage.values()
    used = {kind: sum(amounts.get(kind, 0) for amounts in usage) for kind in list_kinds(*usage)}
    return {
        **row,
        "applicationState": one.application_state.lower(),
        "waitedSeconds": _find_seconds(one.submission_time, one.start_time),
        "ranSeconds": _find_seconds(one.start_time, one.finished_time),
        "allocationCount": one.allocation_count,
        "used": used,
    }


def _find_seconds(begin_ns: int, end_ns: int) -> float | None:
    return (end_ns - begin_ns) / _NS if begin_ns and end_ns else None


def _format_lasting(value: object, _: Frame) -> Text:
    return format_seconds(value) if isinstance(value, float) else UNKNOWN


def _show_used(row: Row, _: Frame) -> Text:
    return format_usage(as_amount(row.get("used")) or {})


LASTING: Final = Kind(_format_lasting, NUMBER.order)
"""Seconds that something lasted."""

COLUMNS: Final = (
    Column("applicationID", heading="APPLICATION"),
    Column("partition", is_wide=True),
    Column("queueName", heading="QUEUE"),
    Column("user"),
    Column("applicationState", STATE, "STATE"),
    Column("submissionTime", AGE, "SUBMITTED"),
    Column("waitedSeconds", LASTING, "WAITED"),
    Column("ranSeconds", LASTING, "RAN"),
    Column("finishedTime", AGE, "ENDED"),
    Column("allocationCount", NUMBER, "ALLOCS"),
    Column("used", AMOUNTS, cell=_show_used),
    Column("message"),
)


def format_usage(total: Mapping[str, int]) -> str:
    """Format amounts multiplied by seconds as amounts multiplied by hours.

    >>> format_usage({"vcore": 10_800_000, "memory": 3600 << 30})
    '3 vcore·h, 1 GiB·h'
    """
    shown = [
        f"{format_resources({kind: total[kind] // _HOUR})}·h" for kind in list_kinds(total) if total[kind] >= _HOUR
    ]
    return ", ".join(shown) or UNKNOWN


def _show_application(args: argparse.Namespace, rest: Rest) -> int:
    """Show one application, with its allocations. It may have ended, in several partitions, or still run."""
    query = {"application": args.application, "partition": args.partition}
    rows = read_newest_rows(rest, "applications", PastPageView[PastApplicationView], limit=LIMIT_DEFAULT, **query)
    allocations = read_newest_rows(rest, "allocations", PastPageView[PastAllocationView], limit=LIMIT_MAX, **query)
    active = _find_active(rest, args.partition, args.application)
    if not rows and not allocations and not active:
        raise CommandFailed(f"the history has no application {args.application} that you may see")
    if args.json:
        document = {"ended": rows, "allocations": allocations, "active": active}
        print_json(msgspec.to_builtins(document))
        return 0
    lines = [
        f"{one.application_id} is {one.application_state.lower()} in {one.queue_name} (partition {one.partition})"
        for one in active
    ]
    screen = Screen.detect()
    for row in rows:
        lines += draw_rows(COLUMNS, [_make_row(row)], Frame(screen, time.time_ns()))
    if allocations:
        lines += ["", *draw_table(screen, _ALLOCATION_HEADINGS, [_allocation_cells(one) for one in allocations])]
    for line in lines:
        write(line)
    return 0


_ALLOCATION_HEADINGS: Final = ("ALLOCATION", "NODE", "RESOURCES", "STARTED", "RAN", "ENDED BY")


def _allocation_cells(one: PastAllocationView) -> tuple[str, ...]:
    end = one.finished_time or time.time_ns()
    return (
        one.allocation_key,
        one.node_id or UNKNOWN,
        format_resources(one.resource),
        format_clock(one.start_time) if one.start_time else UNKNOWN,
        format_seconds((end - one.start_time) / _NS) if one.start_time else UNKNOWN,
        one.termination_type.lower().replace("_", " ") if one.finished_time else "still runs",
    )


def _find_active(rest: Rest, partition: str, application: str) -> list[ApplicationView]:
    found = []
    for name in [partition] if partition else rest.partitions():
        try:
            found.append(rest.get("partition", name, "application", application).decode(ApplicationView))
        except RequestFailed as failed:
            if failed.code != NOT_FOUND:
                raise
    return found


def _read_remembered(rest: Rest, partition: str) -> list[PastApplicationView]:
    """The ended applications that the partitions remember, in the form of the history."""
    found = []
    for name in [partition] if partition else rest.partitions():
        for state in ("completed", "rejected"):
            listed = rest.get("partition", name, "applications", state).decode(list[ApplicationView])
            found += [_convert_remembered(name, one) for one in listed]
    return sorted(found, key=lambda one: one.finished_time)


def _matches(one: PastApplicationView, args: argparse.Namespace) -> bool:
    return (
        one.finished_time >= args.since
        and f"{one.queue_name}.".startswith(f"{args.queue}." if args.queue else "")
        and args.user in ("", one.user)
        and args.state in ("", one.application_state.lower())
    )


def _convert_remembered(partition: str, one: ApplicationView) -> PastApplicationView:
    return PastApplicationView(
        partition=partition,
        application_id=one.application_id,
        queue_name=one.queue_name,
        user=one.user,
        groups=one.groups,
        application_state=one.application_state,
        submission_time=one.submission_time,
        start_time=max(0, one.start_time) * 1_000_000,
        finished_time=one.finished_time,
        message=one.rejected_message,
        resource_history=one.resource_history,
    )


# Queues ---------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Interval:
    """The usage of a queue between two times."""

    begin_ns: int
    end_ns: int
    running: int = 0
    """The most applications that ran at once."""
    average: dict[str, float] = field(default_factory=dict)
    """Amounts that were used, over the part of the interval for which they are known."""
    peak: dict[str, int] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    """The largest amounts that waited."""
    known_ns: int = 0


def summarize_usage(rows: Sequence[PastQueueView], begin_ns: int, end_ns: int, step_ns: int) -> list[Interval]:
    """Divide a time into intervals, and compute the usage in each. A row holds until the next one."""
    found = [Interval(at, min(at + step_ns, end_ns)) for at in range(begin_ns, end_ns, step_ns)]
    ends = [*(row.timestamp for row in rows[1:]), end_ns]
    for row, until in zip(rows, ends, strict=False):
        first, last = max(row.timestamp, begin_ns), min(until, end_ns)
        for one in found[(first - begin_ns) // step_ns : -(-(last - begin_ns) // step_ns)]:
            lasts_ns = min(last, one.end_ns) - max(first, one.begin_ns)
            one.known_ns += lasts_ns
            one.running = max(one.running, row.running_apps)
            for kind, amount in row.allocated_resource.items():
                one.average[kind] = one.average.get(kind, 0) + amount * lasts_ns
                one.peak[kind] = max(one.peak.get(kind, 0), amount)
            for kind, amount in row.pending_resource.items():
                one.pending[kind] = max(one.pending.get(kind, 0), amount)
    for one in found:
        one.average = {kind: amount / one.known_ns for kind, amount in one.average.items() if one.known_ns}
    return found


def _show_queue(args: argparse.Namespace, rest: Rest) -> int:
    end_ns = time.time_ns()
    step_ns = max(_NS, args.interval or (end_ns - args.since) // INTERVALS + 1)
    if (end_ns - args.since) // step_ns > INTERVALS_MAX:
        raise CommandFailed(f"--interval is too short: there would be more than {INTERVALS_MAX:,} lines")
    query = {"queue": args.queue, "partition": args.partition, "since": _to_query_time(args.since - SAMPLED_NS)}
    rows = read_newest_rows(rest, "queues", PastPageView[PastQueueView], limit=LIMIT_MAX, **query)
    if len(partitions := sorted({one.partition for one in rows})) > 1:
        raise CommandFailed(f"several partitions had such a queue, name one with --partition: {', '.join(partitions)}")
    if not rows:
        raise CommandFailed(f"the history has no usage of queue {args.queue} in this time that you may see")
    found = [one for one in summarize_usage(rows, args.since, end_ns, step_ns) if one.known_ns]
    if args.json:
        print_json(msgspec.to_builtins(found))
        return 0
    kinds = list_kinds(*(one.peak for one in found), *(one.pending for one in found))
    headings = [
        "FROM",
        "RUNNING",
        *(f"{kind.upper()} {what}" for kind in kinds for what in ("AVERAGE", "PEAK", "PENDING")),
    ]
    screen = Screen.detect()
    cells = [_interval_cells(one, kinds) for one in found]
    for line in draw_table(screen, headings, cells, right=range(1, len(headings))):
        write(line)
    return 0


def _interval_cells(one: Interval, kinds: Sequence[str]) -> list[str]:
    cells = [format_clock(one.begin_ns)[:-4], str(one.running)]
    for kind in kinds:
        amounts = (int(one.average.get(kind, 0)), one.peak.get(kind, 0), one.pending.get(kind, 0))
        cells += [format_figure(kind, amount) for amount in amounts]
    return cells
