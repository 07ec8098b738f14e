"""`yunishard app`: what an administrator does to an application: kill it, or move it to another queue.

Not here: how the system is asked (`rest.py`), who may do it (the system decides, by the queue's admin ACL).
"""

import argparse
import sys
from typing import Final
from urllib.parse import quote

from yunishard.rest import NOT_FOUND, Answer, Failed, Rest, add_rest

LISTED: Final = {"queue": "queues", "application": "applications/active"}
"""What may be missing, by the first word in which the system says so; and where its partition lists what is there."""

ABOUT: Final = """\
Kill an application, or move it to another queue with all it uses. For
administrators of the queue (of both, to move) and of the scheduler."""

MORE: Final = """\
examples:
  yunishard app kill spark-17
  yunishard app move spark-17 root.research --partition rm-1_gpu

exit codes:
  0  done
  1  refused, with the reason, or there is no such application
  2  wrong usage, or nothing answers"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description, parser.epilog = ABOUT, MORE
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    for name, about in (
        ("kill", "fail the application and release all it has"),
        ("move", "let the application go on in another queue"),
    ):
        own = actions.add_parser(name, help=about, description=about, allow_abbrev=False)
        own.add_argument("application", metavar="ID", help="the application")
        if name == "move":
            own.add_argument("queue", metavar="QUEUE", help="full path of an existing leaf, such as root.research")
        own.add_argument("--partition", metavar="NAME", default="", help="(default: the one that has the application)")
        add_rest(own)


def main(args: argparse.Namespace) -> int:
    """Do it; the exit status."""
    try:
        rest = Rest(args.rest, args.ca, args.token_file)
        partition = args.partition or _partition_of(rest, args.application)
        query = {"queue": args.queue} if args.action == "move" else {}
        answer = _done(rest, partition, ("application", args.application, args.action), query)
    except Failed as failed:
        sys.stderr.write(f"yunishard app {args.action}: {failed}\n")
        return failed.status
    if args.json:
        sys.stdout.write(answer.text)
        return 0
    found = answer.as_json()
    told = found if isinstance(found, dict) else {}
    what = f"is in {told.get('queue')}" if args.action == "move" else f"is {told.get('state')}"
    sys.stdout.write(f"{args.application} in partition {partition} {what}\n")
    return 0


def _done(rest: Rest, partition: str, path: tuple[str, ...], query: dict[str, str]) -> Answer:
    """Have it done; where something is not there, the failure says what is."""
    try:
        return rest.in_partition(partition, *path, query=query)
    except Failed as failed:
        kind = LISTED.get(str(failed).partition(" ")[0])
        if failed.code != NOT_FOUND or kind is None:
            raise
        raise failed.going_on(
            f": GET {rest.url}/ws/v1/partition/{quote(partition)}/{kind} lists those there are"
        ) from None


def _partition_of(rest: Rest, application: str) -> str:
    """The partition that has the application."""
    partitions = rest.partitions()
    if len(partitions) == 1:
        return partitions[0]
    found = [partition for partition in partitions if _has(rest, partition, application)]
    if len(found) == 1:
        return found[0]
    if found:
        raise Failed(f"several partitions have an application {application}: say which, --partition {_list(found)}")
    raise Failed(f"no partition has an active application {application} (there are {_list(partitions) or 'none'})")


def _has(rest: Rest, partition: str, application: str) -> bool:
    try:
        rest.get("partition", partition, "application", application)
    except Failed as failed:
        if failed.code == NOT_FOUND:
            return False
        raise
    return True


def _list(partitions: list[str]) -> str:
    return ", ".join(partitions)
