"""`yunishard app` and `yunishard schedule`: administer a running system over REST.

Not here: HTTP (`rest.py`), the configuration (`config.py`), authorization (the web service decides).
"""

import argparse
import sys
from typing import Final
from urllib.parse import quote

from common.query_messages import STEPS_MAX
from yunishard.commands.console import show
from yunishard.commands.rest import NOT_FOUND, Answer, Failed, Rest, add_rest

# yunishard app --------------------------------------------------------------------------------------------------------

LIST_ROUTES: Final = {"queue": "queues", "application": "applications/active"}
"""First word of a 404 message, which names the kind of thing that is missing, to the route that lists that kind."""

APP_ABOUT: Final = """\
Kill an application, or move it to another queue with everything it uses.
Requires admin access to the queue (for a move, to both queues), or the role
of scheduler administrator."""

APP_EXAMPLES: Final = """\
examples:
  yunishard app kill spark-17
  yunishard app move spark-17 root.research --partition rm-1_gpu

exit codes:
  0  done
  1  refused, with the reason, or the application does not exist
  2  wrong usage, or the system does not answer"""


def add_app_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard app`."""
    parser.description, parser.epilog = APP_ABOUT, APP_EXAMPLES
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    for name, about in (
        ("kill", "fail the application and release everything it has"),
        ("move", "move the application to another queue; it continues to run"),
    ):
        own = actions.add_parser(name, help=about, description=about, allow_abbrev=False)
        own.add_argument("application", metavar="ID", help="the application")
        if name == "move":
            own.add_argument("queue", metavar="QUEUE", help="full path of an existing leaf queue: root.research")
        own.add_argument("--partition", metavar="NAME", default="", help="(default: the one that has the application)")
        add_rest(own)


def run_app(args: argparse.Namespace) -> int:
    """Kill or move the application; return the exit status."""
    try:
        rest = Rest(args.rest, args.ca, args.token_file)
        partition = args.partition or _find_partition(rest, args.application)
        query = {"queue": args.queue} if args.action == "move" else {}
        answer = _change_application(rest, partition, ("application", args.application, args.action), query)
    except Failed as failed:
        sys.stderr.write(f"yunishard app {args.action}: {failed}\n")
        return failed.status
    if args.json:
        sys.stdout.write(answer.text)
        return 0
    found = answer.as_object()
    outcome = f"is in {found.get('queue')}" if args.action == "move" else f"is {found.get('state')}"
    sys.stdout.write(f"{args.application} in partition {partition} {outcome}\n")
    return 0


def _change_application(rest: Rest, partition: str, path: tuple[str, ...], query: dict[str, str]) -> Answer:
    """Send the change; a 404 is raised again with the URL that lists what exists."""
    try:
        return rest.in_partition(partition, *path, query=query)
    except Failed as failed:
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
        raise Failed(f"several partitions have an application {application}: name one with --partition: {names}")
    names = ", ".join(partitions) or "none"
    raise Failed(f"no partition has an active application {application} (partitions: {names})")


def _has_application(rest: Rest, partition: str, application: str) -> bool:
    try:
        rest.get("partition", partition, "application", application)
    except Failed as failed:
        if failed.code == NOT_FOUND:
            return False
        raise
    return True


# yunishard schedule ---------------------------------------------------------------------------------------------------

SCHEDULE_ABOUT: Final = """\
Make the next scheduling decisions, one after the other, and print each. The
system must run with `yunishard up --manual`. For tests and teaching. Requires
the role of scheduler administrator."""

SCHEDULE_EXAMPLES: Final = """\
examples:
  yunishard schedule default                 one decision
  yunishard schedule rm-1_gpu --steps 20     up to 20 decisions

exit codes:
  0  done, also if there was nothing to decide
  1  refused, with the reason
  2  wrong usage, or the system does not answer"""

DECISION_FIELDS: Final = ("kind", "applicationID", "allocationKey", "nodeID")


def add_schedule_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard schedule`."""
    parser.description, parser.epilog = SCHEDULE_ABOUT, SCHEDULE_EXAMPLES
    parser.add_argument("partition", metavar="PARTITION", help="name of the partition, as the web service shows it")
    parser.add_argument(
        "--steps", metavar="N", type=_parse_steps, default=1, help=f"number of decisions, 1 to {STEPS_MAX} (default: 1)"
    )
    add_rest(parser)


def run_schedule(args: argparse.Namespace) -> int:
    """Make the decisions and print them; return the exit status."""
    try:
        rest = Rest(args.rest, args.ca, args.token_file)
        answer = rest.in_partition(args.partition, "schedule", query={"steps": str(args.steps)})
        found = answer.as_object().get("decisions", [])
    except Failed as failed:
        sys.stderr.write(f"yunishard schedule: {failed}\n")
        return failed.status
    if args.json:
        sys.stdout.write(answer.text)
        return 0
    decisions = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    if decisions:
        show(("DECISION", "APPLICATION", "ASK", "NODE", "RELEASES"), [_decision_row(one) for one in decisions])
    else:
        sys.stdout.write("nothing to decide\n")
    return 0


def _parse_steps(text: str) -> int:
    if not text.isdecimal() or len(text) > len(str(STEPS_MAX)) or not 1 <= int(text) <= STEPS_MAX:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {STEPS_MAX}, got {text[:32]!r}")
    return int(text)


def _decision_row(decision: dict[str, object]) -> list[str]:
    released = decision.get("releases")
    keys = [str(key) for key in released] if isinstance(released, list) else []
    return [*(str(decision.get(name) or "-") for name in DECISION_FIELDS), ", ".join(keys) or "-"]
