"""`yunishard user` and `yunishard group`: usage and limits of users and groups, queue by queue.

The docstrings of `run_user` and `run_group` are the help texts.
"""

import argparse
from typing import Final

from yunishard.cli.commands.console import Action, add_action_table
from yunishard.cli.commands.display import BAD, WARNING, Cell, Text
from yunishard.cli.commands.listing import (
    AMOUNTS,
    LIMITS,
    NUMBER,
    PERCENT,
    Column,
    Frame,
    Row,
    add_list_options,
    as_number,
)
from yunishard.cli.commands.partition_tables import add_partition, show_table
from yunishard.cli.commands.queue import format_running
from yunishard.cli.commands.rest import add_rest
from yunishard.common.rest.table_definitions import TableName
from yunishard.common.units import UNKNOWN

FULL: Final = 100
"""Percentage from which on a limit is full."""

NEARLY_FULL: Final = 80
"""Percentage from which on the share of a limit is coloured."""


def _show_share(row: Row, frame: Frame) -> Text:
    share = as_number(row.get("utilization"))
    if share is None:
        return UNKNOWN
    colour = "" if share < NEARLY_FULL else WARNING if share < FULL else BAD
    return Cell(str(PERCENT.format(share, frame)), colour)


USAGE: Final = (
    Column("name"),
    Column("queue"),
    Column("used", AMOUNTS),
    Column("maximum", LIMITS, "LIMIT"),
    Column("utilization", PERCENT, "OF-LIMIT", cell=_show_share),
    Column(
        "runningApplications",
        NUMBER,
        "RUNNING",
        cell=lambda row, _: format_running(row.get("runningApplications"), row.get("maxApplications")),
    ),
    Column("maxApplications", NUMBER, "MAX-APPS", is_wide=True),
)


def add_user_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard user`."""
    add_action_table(parser, _USER_ACTIONS)


def run_user(args: argparse.Namespace) -> int:
    """Show what users use, queue by queue, and the limits that apply to them.

    examples:
      yunishard user list                      all users in all queues
      yunishard user list --queue root.research
      yunishard user list ali --limited        with this text in the name, where
                                               a limit applies
      yunishard user list --sort -utilization  nearest to their limits

    exit codes:
      0  done
      1  refused, with the reason
      2  wrong usage, or the system does not answer
    """
    return _USER_ACTIONS[args.action].run(args)


def add_group_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard group`."""
    add_action_table(parser, _GROUP_ACTIONS)


def run_group(args: argparse.Namespace) -> int:
    """Show what groups use, queue by queue, and the limits that apply to them. An
    application counts for the first group of its user that has a limit.

    examples:
      yunishard group list
      yunishard group list --queue root.research
      yunishard group list --limited --sort -utilization

    exit codes:
      0  done
      1  refused, with the reason
      2  wrong usage, or the system does not answer
    """
    return _GROUP_ACTIONS[args.action].run(args)


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", metavar="TEXT", nargs="?", default="", help="only names that contain this text")
    parser.add_argument("--queue", metavar="QUEUE", default="", help="only in this queue and in those below it")
    parser.add_argument("--limited", action="store_true", help="only where a limit applies")
    add_partition(parser)
    add_list_options(parser, USAGE)
    add_rest(parser)


def _list_usage(args: argparse.Namespace, name: TableName) -> int:
    filters = {
        "text": args.text,
        "queue": args.queue,
        "subtree": "true" if args.queue else "",
        "limited": "true" if args.limited else "",
    }
    first = Column("name", heading=name.removesuffix("s").upper())
    return show_table(args, name, (first, *USAGE[1:]), filters)


_USER_ACTIONS: Final[dict[str, Action]] = {
    "list": Action("list the usage and limits of users", _add_list, lambda args: _list_usage(args, "users")),
}
_GROUP_ACTIONS: Final[dict[str, Action]] = {
    "list": Action("list the usage and limits of groups", _add_list, lambda args: _list_usage(args, "groups")),
}
