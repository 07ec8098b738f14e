"""`yunishard queue`: the tree of queues with usage and limits, and one queue.

Further actions of the noun, which change a queue, are entries of `ACTIONS` from other modules. The docstring of
`run_queue` is the help text.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Final

from yunishard.cli.commands.changes import QUEUE_ACTIONS
from yunishard.cli.commands.console import Action, add_action_table
from yunishard.cli.commands.display import QUIET, Cell, Screen, Text, color_state, draw_amounts, draw_bar, draw_facts
from yunishard.cli.commands.listing import (
    AMOUNTS,
    FLAG,
    LIMITS,
    NUMBER,
    STATE,
    Column,
    Frame,
    Row,
    Rows,
    Wanted,
    add_list_options,
    add_watch,
    as_amount,
    as_list,
    as_number,
    as_text,
    describe_mark,
    draw_section,
    format_json,
    repeat,
)
from yunishard.cli.commands.partition_tables import add_partition, find_object, parse_state, read_table, show_table
from yunishard.cli.commands.rest import Rest, add_rest
from yunishard.common.rest.table_definitions import TABLES
from yunishard.common.units import UNKNOWN, format_ago, format_figure, list_kinds

KINDS_MAX: Final = 3
"""Resource types with a bar of their own on a terminal; `-o wide` shows all."""

APPLICATIONS_SHOWN: Final = 10
"""Applications that `queue show` lists, those with the most pending first."""


def _show_applications(row: Row, _: Frame) -> Text:
    return format_running(row.get("runningApplications"), row.get("maxApplications"))


QUEUES: Final = (
    Column("queue"),
    Column("state", STATE),
    Column("used", AMOUNTS),
    Column("guaranteed", LIMITS),
    Column("maximum", LIMITS),
    Column("pending", AMOUNTS),
    Column("runningApplications", NUMBER, "RUNNING", cell=_show_applications),
    Column("maxApplications", NUMBER, "MAX-APPS", is_wide=True),
    Column("applications", NUMBER, "APPS", is_wide=True),
    Column("headroom", LIMITS, is_wide=True),
    Column("priority", NUMBER, is_wide=True),
    Column("leaf", FLAG, is_wide=True),
    Column("managed", FLAG, is_wide=True),
)


def format_running(running: object, maximum: object) -> str:
    """Return a number of running applications with its maximum, if there is one."""
    number, most = as_number(running), as_number(maximum)
    if number is None:
        return UNKNOWN
    return f"{number:,} / {most:,}" if most else f"{number:,}"


def add_queue_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard queue`."""
    add_action_table(parser, ACTIONS)


def run_queue(args: argparse.Namespace) -> int:
    """Show queues with what they use, are guaranteed, and may use; change one limit
    of a queue; stop a queue and start it again.

    A bar shows the used part of the maximum, then what is pending; the mark | is at
    the guaranteed amount. A queue without a maximum has the one above it as scale.

    examples:
      yunishard queue list                     the tree of all queues
      yunishard queue list root.research       a queue and those below it
      yunishard queue list --sort -pending     where most is pending
      yunishard queue list --watch             redrawn every 2 s
      yunishard queue list --csv > queues.csv
      yunishard queue show root.research.ml
      yunishard queue limit root.research --max vcore=40,memory=none
      yunishard queue limit root.web --max-applications 5 --dry-run
      yunishard queue stop root.batch --reason "new disks"
      yunishard queue start root.batch

    exit codes:
      0  done
      1  refused, with the reason, or the queue does not exist
      2  wrong usage, or the system does not answer
    """
    return ACTIONS[args.action].run(args)


# list -----------------------------------------------------------------------------------------------------------------


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE", nargs="?", default="", help="only this queue and those below it")
    parser.add_argument("--text", metavar="TEXT", default="", help="only paths that contain this text")
    parser.add_argument(
        "--state", metavar="STATE", type=parse_state("queues"), help=" or ".join(TABLES["queues"].states)
    )
    add_partition(parser)
    add_list_options(parser, QUEUES)
    add_rest(parser)


def _list(args: argparse.Namespace) -> int:
    filters = {
        "queue": args.queue,
        "subtree": "true" if args.queue else "",
        "text": args.text,
        "state": args.state or "",
    }
    is_tree = not (args.sort or args.text or args.state)

    def layout(found: Rows, frame: Frame) -> Sequence[Column]:
        return _lay_out(found, frame, is_tree=is_tree, is_wide=args.output == "wide")

    return show_table(args, "queues", QUEUES, filters, layout)


def _lay_out(found: Rows, frame: Frame, *, is_tree: bool, is_wide: bool) -> Sequence[Column]:
    """Return the columns for a terminal, with bars and an indented tree; elsewhere the plain ones."""
    if not frame.screen.is_terminal:
        return QUEUES
    maxima = {(row.get("partition"), as_text(row.get("queue"))): as_amount(row.get("maximum")) for row in found.rows}
    kinds = [
        kind for kind in list_kinds(dict.fromkeys(found.resources)) if is_wide or _is_of_interest(kind, found.rows)
    ]
    bars = [_make_bar_column(kind, maxima) for kind in (kinds if is_wide else kinds[:KINDS_MAX])]
    replaced = {"used", "maximum"} | ({"headroom"} if is_wide else set())
    first = Column("queue", cell=_indent) if is_tree else QUEUES[0]
    others = [column for column in QUEUES[1:] if column.name not in replaced]
    if not any(as_amount(row.get("guaranteed")) for row in found.rows):
        others = [column for column in others if column.name != "guaranteed"]
    return [first, others[0], *bars, *others[1:]]


def _is_of_interest(kind: str, rows: Sequence[Row]) -> bool:
    """Whether some queue uses, is guaranteed, or waits for this resource type, or limits it below the root."""
    return kind in ("vcore", "memory") or any(
        (as_amount(row.get(name)) or {}).get(kind) for row in rows for name in ("used", "guaranteed", "pending")
    )


def _indent(row: Row, _: Frame) -> Text:
    *above, name = as_text(row.get("queue")).split(".")
    return "  " * len(above) + name


Maxima = Mapping[tuple[object, str], dict[str, int] | None]
"""Partition and queue to the queue's maximum."""


def _make_bar_column(kind: str, maxima: Maxima) -> Column:
    def show(row: Row, frame: Frame) -> Text:
        used = as_amount(row.get("used"))
        if used is None:
            return Cell(UNKNOWN, QUIET)
        own = (as_amount(row.get("maximum")) or {}).get(kind)
        pending = (as_amount(row.get("pending")) or {}).get(kind, 0)
        guaranteed = (as_amount(row.get("guaranteed")) or {}).get(kind, 0)
        value = used.get(kind, 0)
        scale = own if own is not None else _find_scale(maxima, row, kind) or max(value + pending, guaranteed)
        bar = draw_bar(frame.screen, value, scale, guaranteed=guaranteed, pending=pending)
        figures = format_figure(kind, value) + (f" / {format_figure(kind, own)}" if own is not None else "")
        return Cell(f"{bar.text} {figures}", bar.colour if own is not None else "")

    return Column(kind, heading=kind.upper(), cell=show)


def _find_scale(maxima: Maxima, row: Row, kind: str) -> int | None:
    """Return the maximum of the nearest queue above that has one."""
    path = as_text(row.get("queue"))
    while path := path.rpartition(".")[0]:
        found = (maxima.get((row.get("partition"), path)) or {}).get(kind)
        if found is not None:
            return found
    return None


# show -----------------------------------------------------------------------------------------------------------------


def _add_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE", help="full path of the queue, such as root.research")
    add_partition(parser, default="the one that has the queue")
    add_watch(parser)
    add_rest(parser)


def _show(args: argparse.Namespace) -> int:
    rest = Rest.from_arguments(args)

    def draw(screen: Screen) -> list[str]:
        partition, answer = find_object(rest, args, "queue", args.queue)
        queue = answer.decode(dict[str, object])
        if args.json:
            return format_json(queue, is_line=args.watch is not None)
        path = as_text(queue.get("queuename"))
        lines = draw_facts(screen, _list_facts(queue, partition))
        lines += ["", *draw_amounts(screen, _list_amounts(queue))]
        filters = {"queue": path, "subtree": "true"}
        if queue.get("children") or queue.get("childNames") or not queue.get("isLeaf"):
            below = read_table(rest, "queues", [partition], filters, Wanted())
            below.rows = [row for row in below.rows if as_text(row.get("queue")).rpartition(".")[0] == path]
            below.total = len(below.rows)
            lines += draw_section(screen, "Queues below", QUEUES, below)
        found = read_table(rest, "applications", [partition], filters, Wanted("-pending", APPLICATIONS_SHOWN))
        lines += draw_section(screen, "Applications", _APPLICATIONS, found)
        return lines

    return repeat(args, draw)


_APPLICATIONS: Final = (
    Column("application"),
    Column("state", STATE),
    Column("queue"),
    Column("user"),
    Column("pending", AMOUNTS),
    Column("used", AMOUNTS),
)


def _list_facts(queue: Row, partition: str) -> list[tuple[str, Text]]:
    running, most = queue.get("runningApps", 0), queue.get("maxRunningApps", 0)
    properties, draining = queue.get("properties"), as_number(queue.get("drainingSince"))
    settings = properties.items() if isinstance(properties, dict) else ()
    return [
        ("queue", as_text(queue.get("queuename"))),
        ("partition", partition),
        ("state", color_state("stopped" if queue.get("stopped") else as_text(queue.get("status")))),
        ("stopped", describe_mark(queue.get("stopped"))),
        ("draining", format_ago(int(draining), time.time_ns()) if draining else ""),
        ("defined by", "the configuration" if queue.get("isManaged") else "placement"),
        ("running", f"{format_running(running, most)} application{'' if (running, most) == (1, 0) else 's'}"),
        ("may start", ", ".join(as_list(queue.get("allocatingAcceptedApps")))),
        ("order", as_text(queue.get("sortingPolicy"))),
        ("preemption", f"after {queue.get('preemptionDelay')}" if queue.get("preemptionEnabled") else "off"),
        *((name, as_text(value)) for name, value in settings),
    ]


def _list_amounts(queue: Row) -> list[tuple[str, dict[str, int] | None]]:
    keys = {
        "used": "allocatedResource",
        "guaranteed": "guaranteedResource",
        "maximum": "maxResource",
        "headroom": "headroom",
        "pending": "pendingResource",
        "preempting": "preemptingResource",
    }
    return [(name, as_amount(queue.get(key))) for name, key in keys.items() if queue.get(key)]


ACTIONS: Final[dict[str, Action]] = {
    "list": Action("show the tree of queues, or a part of it", _add_list, _list),
    "show": Action("show a queue: settings, amounts, the queues below, and the applications", _add_show, _show),
    **QUEUE_ACTIONS,
}
