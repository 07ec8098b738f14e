"""`yunishard queue`: the tree of queues with usage and limits, and one queue.

Further actions of the noun, which change a queue, are entries of `ACTIONS` from other modules. The docstring of
`run_queue` is the help text.
"""

import argparse
import time
from typing import Final

from yunishard.cli.commands.changes import QUEUE_ACTIONS
from yunishard.cli.commands.console import Action, add_action_table
from yunishard.cli.commands.display import Screen
from yunishard.cli.commands.listing import (
    Row,
    Wanted,
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
from yunishard.cli.commands.partition_tables import (
    Facts,
    add_partition,
    draw_object,
    find_object,
    list_action,
    make_columns,
    read_row,
    read_table,
)
from yunishard.cli.commands.rest import Rest, add_rest
from yunishard.common.rest.catalogue import TABLES
from yunishard.common.text_formats import format_ago

APPLICATIONS_SHOWN: Final = 10
"""Applications that `queue show` lists, those with the most pending first."""


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
        preempting = [("preempting", as_amount(queue.get("preemptingResource")))]
        lines = draw_object(screen, "queues", read_row(rest, partition, "queues", path), _list_facts(queue), preempting)
        filters = {"queue": path, "subtree": "true"}
        if queue.get("children") or queue.get("childNames") or not queue.get("isLeaf"):
            below = read_table(rest, "queues", [partition], filters, Wanted())
            below.rows = [row for row in below.rows if as_text(row.get("queue")).rpartition(".")[0] == path]
            below.total = len(below.rows)
            lines += draw_section(screen, "Queues below", make_columns(TABLES["queues"]), below)
        found = read_table(rest, "applications", [partition], filters, Wanted("-pending", APPLICATIONS_SHOWN))
        return lines + draw_section(screen, "Applications", make_columns(TABLES["applications"]), found)

    return repeat(args, draw)


def _list_facts(queue: Row) -> Facts:
    """Return what the table of queues does not have."""
    properties, draining = queue.get("properties"), as_number(queue.get("drainingSince"))
    settings = properties.items() if isinstance(properties, dict) else ()
    return [
        ("stopped", describe_mark(queue.get("stopped"))),
        ("draining", format_ago(int(draining), time.time_ns()) if draining else ""),
        ("defined by", "the configuration" if queue.get("isManaged") else "placement"),
        ("may start", ", ".join(as_list(queue.get("allocatingAcceptedApps")))),
        ("order", as_text(queue.get("sortingPolicy"))),
        ("preemption", f"after {queue.get('preemptionDelay')}" if queue.get("preemptionEnabled") else "off"),
        *((name, as_text(value)) for name, value in settings),
    ]


ACTIONS: Final[dict[str, Action]] = {
    "list": list_action("queues", "show the tree of queues, or a part of it"),
    "show": Action("show a queue: settings, amounts, the queues below, and the applications", _add_show, _show),
    **QUEUE_ACTIONS,
}
