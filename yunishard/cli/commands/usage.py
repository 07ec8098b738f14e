"""`yunishard user` and `yunishard group`: usage and limits of users and groups, queue by queue.

The docstrings of `run_user` and `run_group` are the help texts.
"""

import argparse
from typing import Final

from yunishard.cli.commands.console import Action, add_action_table
from yunishard.cli.commands.partition_tables import list_action


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


_USER_ACTIONS: Final[dict[str, Action]] = {"list": list_action("users", "list the usage and limits of users")}
_GROUP_ACTIONS: Final[dict[str, Action]] = {"list": list_action("groups", "list the usage and limits of groups")}
