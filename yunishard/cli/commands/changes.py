"""Changes that operators make: `queue limit|stop|start`, `node cordon|uncordon|drain` and `rm end`, over the REST API.

The modules of the nouns (`queue.py`, `node.py`, `rm.py`) have these actions in their tables. A change of the
configuration shows the difference. It and the end of an RM ask for confirmation on a terminal, and need `--yes`
elsewhere.

Not here: what the changes do (`engine/operator_marks.py`, `yunishard/webservice/config_edit.py`), and authorization
(the web service).
"""

import argparse
import sys
import time
from typing import TYPE_CHECKING, Final

import msgspec

from yunishard.cli.commands.console import Action, format_problem
from yunishard.cli.commands.partition_tables import (
    add_change_options,
    add_partition,
    change_actions,
    find_object,
    run_change,
    send_change,
)
from yunishard.cli.commands.rest import NOT_FOUND, Answer, RequestFailed, Rest, add_rest
from yunishard.cli.main import CommandFailed, parse_whole
from yunishard.common.process.terminal import write
from yunishard.common.rest.catalogue import TABLES
from yunishard.common.text_formats import format_count, parse_duration

if TYPE_CHECKING:
    from yunishard.common.rest.records import LimitedView

APPLICATIONS_MAX: Final = 2**63 - 1
"""The largest value of `--max-applications`; a larger one is wrong usage."""

WAIT_DEFAULT: Final = "15m"
POLL_S: Final = 1.0
"""Seconds between two looks at the progress of a drain."""

REPEAT_S: Final = 10.0
"""Seconds after which a drain that makes no progress is repeated, for what came to the node since."""


def _add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def confirm(question: str, args: argparse.Namespace) -> None:
    """Ask for confirmation on a terminal, unless `--yes` is set.

    Raises:
        CommandFailed: it is not confirmed, or there is no terminal.
    """
    if args.yes:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandFailed("nothing was changed: confirm with --yes, as this is no terminal")
    sys.stdout.write(f"{question} [y/N] ")
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailed("nothing was changed")


# Limits of a queue ----------------------------------------------------------------------------------------------------


def parse_amounts(text: str) -> dict[str, str | None]:
    """Parse `vcore=40,memory=2Gi`; the amount `none` removes one."""
    found: dict[str, str | None] = {}
    for part in text.split(","):
        kind, sign, amount = part.partition("=")
        if not (kind.strip() and sign and amount.strip()):
            raise argparse.ArgumentTypeError(f"expected RESOURCE=AMOUNT such as vcore=40,memory=2Gi, got {text[:64]!r}")
        found[kind.strip()] = None if amount.strip() == "none" else amount.strip()
    return found


def _add_limit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE", help="full path of a queue of the configuration: root.research")
    about = "as in vcore=40,memory=200Gi; none as the amount removes it"
    for name, what in (("--max", "maximum"), ("--guaranteed", "guaranteed amounts")):
        parser.add_argument(
            name, metavar="RESOURCE=AMOUNT", type=parse_amounts, action="append", default=[], help=f"{what}, {about}"
        )
    most = parse_whole(0, APPLICATIONS_MAX)
    parser.add_argument("--max-applications", metavar="N", type=most, help="running applications; 0 is unlimited")
    parser.add_argument("--dry-run", action="store_true", help="show the difference and its problems, change nothing")
    about = "overwrite the watched file even if it has an edit that is not in force"
    parser.add_argument("--force", action="store_true", help=about)
    _add_yes(parser)
    add_partition(parser, default="the one that has the queue")
    add_rest(parser)


def _limit(args: argparse.Namespace) -> int:
    body: dict[str, object] = {
        name: {kind: amount for part in parts for kind, amount in part.items()}
        for name, parts in (("max", args.max), ("guaranteed", args.guaranteed))
        if parts
    }
    if args.max_applications is not None:
        body["maxApplications"] = args.max_applications
    if not body:
        raise CommandFailed("no limit to change: give --max, --guaranteed or --max-applications", status=2)
    rest = Rest.from_arguments(args)
    partition, _ = find_object(rest, args, "queue", args.queue)
    answer, view = _send_limits(rest, partition, args, body, {"dryRun": "true"})
    if args.dry_run and args.json:
        return answer.print()
    if not view.diff:
        return (
            answer.print() if args.json else _print(f"{view.queue} in partition {partition} has these limits already")
        )
    if not args.json:
        _print_diff(view.diff)
    if args.dry_run:
        return 0
    confirm(f"change the configuration of partition {partition} like this?", args)
    query = {"force": "true" if args.force else ""}
    answer, view = _send_limits(rest, partition, args, body, query, if_match=view.base)
    if args.json:
        return answer.print()
    for problem in view.warnings:
        sys.stderr.write(format_problem("configuration", problem, "warning: ") + "\n")
    return _print(f"version {view.version} is in force, partitions: {', '.join(view.partitions)}")


def _send_limits(
    rest: Rest,
    partition: str,
    args: argparse.Namespace,
    body: dict[str, object],
    query: dict[str, str],
    *,
    if_match: str = "",
) -> tuple[Answer, "LimitedView"]:
    """Request other limits; a failure lists every problem of the changed configuration."""
    from yunishard.common.config.problems import Problem  # imported here, as other actions need neither
    from yunishard.common.rest.records import LimitedView

    path = ("partition", partition, "queue", args.queue, "limit")
    try:
        answer = rest.send("POST", *path, body=msgspec.json.encode(body), if_match=if_match, query=query)
    except RequestFailed as failed:
        for problem in msgspec.convert(failed.problems, list[Problem], strict=False):
            sys.stderr.write(format_problem("the changed configuration", problem) + "\n")
        if failed.problems:
            raise CommandFailed(f"{args.queue}: the configuration would not be valid") from None
        raise
    return answer, answer.decode(LimitedView)


def _print_diff(diff: str) -> None:
    colours = {"+": "\x1b[32m", "-": "\x1b[31m"} if sys.stdout.isatty() else {}
    for line in diff.splitlines():
        colour = colours.get(line[:1], "")
        write(f"{colour}{line}\x1b[0m" if colour else line)


def _print(text: str) -> int:
    write(text)
    return 0


QUEUE_ACTIONS: Final = {
    "limit": Action("change limits of a queue in the configuration, and leave the rest as it is", _add_limit, _limit),
    **change_actions("queues"),
}


# Nodes ----------------------------------------------------------------------------------------------------------------


def _add_drain(parser: argparse.ArgumentParser) -> None:
    add_change_options(parser, "nodes", _DRAIN)
    parser.add_argument("--wait", action="store_true", help="wait until nothing is left that has to leave")
    about = f"how long to wait, as in 90s (default: {WAIT_DEFAULT})"
    parser.add_argument("--timeout", metavar="TIME", type=_parse_timeout, default=WAIT_DEFAULT, help=about)


def _parse_timeout(text: str) -> float:
    found = parse_duration(text)
    if found is None or found <= 0:
        raise argparse.ArgumentTypeError(f"expected a time such as {WAIT_DEFAULT}, got {text[:32]!r}")
    return found


def _drain(args: argparse.Namespace) -> int:
    rest = Rest.from_arguments(args)
    answer = send_change(rest, args, "nodes", _DRAIN)
    if args.wait:
        answer = _wait(rest, args, answer)
    return run_change(args, answer)


class _NodeAllocations(msgspec.Struct):
    """The part in use of a node."""

    allocations: list[msgspec.Raw] = []


def _wait(rest: Rest, args: argparse.Namespace, answer: Answer) -> Answer:
    """Wait until the node has only allocations that stay, and print each change of their number; return the answer to
    the last request, with what has become of it.
    """
    now, shown = time.monotonic(), -1
    until, repeat_at = now + args.timeout, now + REPEAT_S
    while (left := _count_allocations(rest, args.partition, args.node) - answer.decode(_Drained).required) > 0:
        now = time.monotonic()
        if now >= until:
            raise CommandFailed(f"not done in time: {format_count(left, 'allocation')} of {args.node} left")
        if left != shown:
            shown, repeat_at = left, now + REPEAT_S
            if not args.json:
                write(f"{format_count(left, 'allocation')} of {args.node} left")
        if now >= repeat_at:
            answer = send_change(rest, args, "nodes", _DRAIN)
            repeat_at = now + REPEAT_S
        time.sleep(POLL_S)
    if shown < 0:
        return answer  # nothing had to leave
    outcome = f"{args.node} in partition {args.partition}: everything that had to leave has left"
    return Answer(
        msgspec.json.encode({**answer.decode(dict[str, object]), "running": 0, "leaving": 0, "outcome": outcome})
    )


class _Drained(msgspec.Struct):
    """The part in use of the answer to a drain."""

    required: int = 0


def _count_allocations(rest: Rest, partition: str, node: str) -> int:
    """Return how many allocations of the partition a node has; 0 if its RM has removed it."""
    try:
        return len(rest.get("partition", partition, "node", node).decode(_NodeAllocations).allocations)
    except RequestFailed as failed:
        if failed.code != NOT_FOUND:
            raise
        return 0


_DRAIN: Final = next(one for one in TABLES["nodes"].actions if one.name == "drain")

NODE_ACTIONS: Final = {
    **change_actions("nodes"),
    "drain": Action(_DRAIN.about, _add_drain, _drain),
}


# Resource managers ----------------------------------------------------------------------------------------------------


def _add_end(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rm", metavar="ID", help="the resource manager")
    about = "end it even while it is connected: it registers again, with empty partitions"
    parser.add_argument("--force", action="store_true", help=about)
    _add_yes(parser)
    add_rest(parser)


def _end(args: argparse.Namespace) -> int:
    from yunishard.common.rest.records import EndedView  # imported here, as a list needs it not

    rest = Rest.from_arguments(args)
    known = rest.rm_ids()
    if args.rm not in known:
        raise CommandFailed(f"RM {args.rm} is not registered (registered: {', '.join(known) or 'none'})")
    confirm(f"end RM {args.rm}, its partitions, and everything in them?", args)
    answer = rest.send("POST", "rm", args.rm, "end", query={"force": "true" if args.force else ""})
    if args.json:
        return answer.print()
    return _print(
        f"{args.rm} is ended, with its partitions: {', '.join(answer.decode(EndedView).partitions) or 'none'}"
    )


RM_ACTIONS: Final = {
    "end": Action("end a resource manager that does not come back, and its partitions", _add_end, _end),
}
