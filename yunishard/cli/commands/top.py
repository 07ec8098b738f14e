"""`yunishard top`: the running system in a terminal, full screen and live.

Not here: the screen (`yunishard/cli/top/`), which is imported only when it is used, because textual takes long to load.
"""

import argparse
import sys

from yunishard.cli.commands.partition_tables import add_partition
from yunishard.cli.commands.rest import Rest, add_rest
from yunishard.cli.main import CommandFailed, CommandUnusable

ANSWER_MAX_S = 5.0
"""Seconds for an answer; later the screen shows that there is none, and tries again."""


def add_top_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard top`."""
    add_partition(parser, default="the first one; n shows the next")
    add_rest(parser, has_json=False)


def run_top(args: argparse.Namespace) -> int:
    """Show queues, applications, nodes and events live, full screen. Enter shows a
    row in full and why it waits; ? shows the keys. Needs a terminal of 80 x 24
    characters; NO_COLOR=1 turns colours off.

    examples:
      yunishard top
      yunishard top --partition rm-1_gpu --rest http://db1:9080
      ssh -t db1 yunishard top

    exit codes:
      0  ended with q
      1  there is no such partition
      2  wrong usage, no terminal, or the system does not answer
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandUnusable(
            "needs a terminal; for a pipe: `yunishard status --watch`, `yunishard queue list --watch`"
        )

    def make_rest() -> Rest:
        return Rest(args.rest, args.ca, args.token_file, answer_max_s=ANSWER_MAX_S)

    partitions = make_rest().partitions()
    if args.partition and args.partition not in partitions:
        raise CommandFailed(f"there is no partition {args.partition} (partitions: {', '.join(partitions) or 'none'})")
    from yunishard.cli.top.app import TopApp

    TopApp(make_rest, args.partition or next(iter(partitions), "")).run()
    return 0
