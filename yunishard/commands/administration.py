"""`yunishard app` and `yunishard schedule`: administer a running system over REST.

The docstrings of `run_app` and `run_schedule` are the help texts.

Not here: HTTP (`rest.py`), the configuration (`config.py`), authorization (the web service decides).
"""

import argparse
from typing import Final
from urllib.parse import quote

from common.query_messages import STEPS_MAX
from yunishard.cli import CommandFailed, describe, parse_whole
from yunishard.commands.console import add_actions, show, write
from yunishard.commands.rest import NOT_FOUND, Answer, RequestFailed, Rest, add_rest

# yunishard app --------------------------------------------------------------------------------------------------------

LIST_ROUTES: Final = {"queue": "queues", "application": "applications/active"}
"""First word of a 404 message, which names the kind of thing that is missing, to the route that lists that kind."""


def add_app_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard app`."""
    describe(parser, run_app.__doc__)
    actions = {
        "kill": "fail the application and release everything it has",
        "move": "move the application to another queue; it continues to run",
    }
    for name, own in add_actions(parser, actions).items():
        own.add_argument("application", metavar="ID", help="the application")
        if name == "move":
            own.add_argument("queue", metavar="QUEUE", help="full path of an existing leaf queue: root.research")
        own.add_argument("--partition", metavar="NAME", default="", help="(default: the one that has the application)")
        add_rest(own)


def run_app(args: argparse.Namespace) -> int:
    """Kill an application, or move it to another queue with everything it uses.
    Requires admin access to the queue (for a move, to both queues), or the role
    of scheduler administrator.

    examples:
      yunishard app kill spark-17
      yunishard app move spark-17 root.research --partition rm-1_gpu

    exit codes:
      0  done
      1  refused, with the reason, or the application does not exist
      2  wrong usage, or the system does not answer
    """
    rest = Rest.from_arguments(args)
    partition = args.partition or _find_partition(rest, args.application)
    query = {"queue": args.queue} if args.action == "move" else {}
    answer = _change_application(rest, partition, ("application", args.application, args.action), query)
    if args.json:
        return answer.print()
    found = answer.as_object()
    outcome = f"is in {found.get('queue')}" if args.action == "move" else f"is {found.get('state')}"
    write(f"{args.application} in partition {partition} {outcome}")
    return 0


def _change_application(rest: Rest, partition: str, path: tuple[str, ...], query: dict[str, str]) -> Answer:
    """Send the change; a 404 is raised again with the URL that lists what exists."""
    try:
        return rest.in_partition(partition, *path, query=query)
    except RequestFailed as failed:
        kind = LIST_ROUTES.get(str(failed).partition(" ")[0])
        if failed.code != NOT_FOUND or kind is None:
            raise
        raise failed.with_hint(
            f": GET {rest.url}/ws/v1/partition/{quote(partition)}/{kind} lists those there are"
        ) from None


def _find_partition(rest: Rest, application: str) -> str:
    """Return the only partition that has the application."""
    partitions = rest.partitions()
    if len(partitions) == 1:
        return partitions[0]
    found = [partition for partition in partitions if _has_application(rest, partition, application)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(found)
        raise CommandFailed(f"several partitions have an application {application}: name one with --partition: {names}")
    names = ", ".join(partitions) or "none"
    raise CommandFailed(f"no partition has an active application {application} (partitions: {names})")


def _has_application(rest: Rest, partition: str, application: str) -> bool:
    try:
        rest.get("partition", partition, "application", application)
    except RequestFailed as failed:
        if failed.code == NOT_FOUND:
            return False
        raise
    return True


# yunishard schedule ---------------------------------------------------------------------------------------------------

DECISION_FIELDS: Final = ("kind", "applicationID", "allocationKey", "nodeID")


def add_schedule_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard schedule`."""
    describe(parser, run_schedule.__doc__)
    parser.add_argument("partition", metavar="PARTITION", help="name of the partition, as the web service shows it")
    about = f"number of decisions, 1 to {STEPS_MAX} (default: 1)"
    parser.add_argument("--steps", metavar="N", type=parse_whole(1, STEPS_MAX), default=1, help=about)
    add_rest(parser)


def run_schedule(args: argparse.Namespace) -> int:
    """Make the next scheduling decisions, one after the other, and print each. The
    system must run with `yunishard up --manual`. For tests and teaching. Requires
    the role of scheduler administrator.

    examples:
      yunishard schedule default                 one decision
      yunishard schedule rm-1_gpu --steps 20     up to 20 decisions

    exit codes:
      0  done, also if there was nothing to decide
      1  refused, with the reason
      2  wrong usage, or the system does not answer
    """
    answer = Rest.from_arguments(args).in_partition(args.partition, "schedule", query={"steps": str(args.steps)})
    if args.json:
        return answer.print()
    found = answer.as_object().get("decisions", [])
    decisions = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    if decisions:
        show(("DECISION", "APPLICATION", "ASK", "NODE", "RELEASES"), [_format_decision(one) for one in decisions])
    else:
        write("nothing to decide")
    return 0


def _format_decision(decision: dict[str, object]) -> list[str]:
    released = decision.get("releases")
    keys = [str(key) for key in released] if isinstance(released, list) else []
    return [*(str(decision.get(name) or "-") for name in DECISION_FIELDS), ", ".join(keys) or "-"]
