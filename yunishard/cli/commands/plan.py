"""`yunishard plan`: what would happen after a change, and whether and when a job would run.

The worker of the partition plays the change on a copy of its state; this builds the request and draws the report. Not
here: the layout (`plan_report.py`), making plans (`partition_worker/planning.py`).
"""

import argparse
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import msgspec

from yunishard.cli.commands.changes import APPLICATIONS_MAX, parse_amounts
from yunishard.cli.commands.console import (
    STDIN,
    Action,
    add_action_table,
    format_file_name,
    format_problem,
    read_configuration,
)
from yunishard.cli.commands.display import Screen
from yunishard.cli.commands.partition_tables import add_partition, choose_partitions, find_object
from yunishard.cli.commands.plan_report import draw_plan
from yunishard.cli.commands.rest import RequestFailed, Rest, add_rest
from yunishard.cli.main import CommandFailed, CommandUnusable, parse_whole
from yunishard.common.process.terminal import write
from yunishard.common.rest.plan import (
    HORIZON_MAX_S,
    HORIZON_S,
    NODES_MAX,
    TASKS_MAX,
    JobView,
    PlannedChangeView,
    PlanRequestView,
    PlanView,
)
from yunishard.common.text_formats import describe_file_error, format_bytes, parse_duration

DOES_NOT_RUN: Final = 3
"""Exit status of `submit` if not all tasks of the job start within the horizon."""

JOB_BYTES_MAX: Final = 1 << 20
"""Bytes of a file with a job; a larger one is refused."""

Build = Callable[[argparse.Namespace], PlannedChangeView]


# Options --------------------------------------------------------------------------------------------------------------


def _parse_horizon(text: str) -> float:
    found = parse_duration(text)
    if found is None or not 0 <= found <= HORIZON_MAX_S:
        most = f"{HORIZON_MAX_S / 3600:g}h"
        raise argparse.ArgumentTypeError(f"expected a time up to {most}, such as 90m, got {text[:32]!r}")
    return found


def _parse_run_time(text: str) -> str:
    found = parse_duration(text)
    if found is None or found <= 0:
        raise argparse.ArgumentTypeError(f"expected a time such as 90s or 1h30m, got {text[:32]!r}")
    return text


def _parse_pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text[:32]!r}")
    return name, value


def _add_common(parser: argparse.ArgumentParser, *, default: str) -> None:
    about = f"how far to look ahead, as in 90m (default: {HORIZON_S / 3600:g}h)"
    parser.add_argument("--horizon", metavar="TIME", type=_parse_horizon, default=HORIZON_S, help=about)
    parser.add_argument("--all", action="store_true", help="show all rows of each table, not only the first ones")
    add_partition(parser, default=default)
    add_rest(parser)


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=f"the queues.yaml; {STDIN} for standard input")
    _add_common(parser, default="the only one")


def _add_node(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", metavar="NODE", help="the node")
    _add_common(parser, default="the one that has the node")


def _add_nodes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("count", metavar="N", type=parse_whole(1, NODES_MAX), help="how many equal nodes")
    about = "the size of each, as in vcore=16,memory=64Gi"
    parser.add_argument("--resources", metavar="RESOURCE=AMOUNT", type=parse_amounts, required=True, help=about)
    about = "an attribute of each node, as in zone=a; can be repeated"
    parser.add_argument("--attribute", metavar="NAME=VALUE", action="append", type=_parse_pair, default=[], help=about)
    _add_common(parser, default="the only one")


def _add_submit(parser: argparse.ArgumentParser) -> None:
    about = f"a JSON file with the job, or {STDIN} for standard input; options override its keys"
    parser.add_argument("file", metavar="FILE", nargs="?", default="", help=about)
    parser.add_argument("--queue", metavar="QUEUE", help="the queue that the job names")
    parser.add_argument("--user", metavar="USER", help="the user (default: the one that the system authenticates)")
    parser.add_argument("--groups", metavar="GROUP,GROUP", help="the groups of the user, with commas between")
    about = "resources of one task, as in vcore=4,memory=16Gi"
    parser.add_argument("--resources", metavar="RESOURCE=AMOUNT", type=parse_amounts, help=about)
    parser.add_argument(
        "--tasks", metavar="N", type=parse_whole(1, TASKS_MAX), help="how many equal tasks (default: 1)"
    )
    parser.add_argument("--run-time", metavar="TIME", type=_parse_run_time, help="how long a task runs, as in 2h")
    parser.add_argument("--priority", metavar="N", type=parse_whole(-(2**31), 2**31 - 1), help="the priority")
    parser.add_argument("--gang", action="store_true", default=None, help="start all tasks together or none")
    for name, what in (("--tag", "application"), ("--task-tag", "tasks")):
        about = f"a tag of the {what}, as in namespace=team-a; can be repeated"
        parser.add_argument(name, metavar="NAME=VALUE", action="append", type=_parse_pair, default=[], help=about)
    _add_common(parser, default="the only one")


def _add_limit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE", help="full path of a queue of the configuration: root.research")
    about = "as in vcore=40,memory=200Gi; none as the amount removes it"
    for name, what in (("--max", "maximum"), ("--guaranteed", "guaranteed amounts")):
        parser.add_argument(
            name, metavar="RESOURCE=AMOUNT", type=parse_amounts, action="append", default=[], help=f"{what}, {about}"
        )
    most = parse_whole(0, APPLICATIONS_MAX)
    parser.add_argument("--max-applications", metavar="N", type=most, help="running applications; 0 is unlimited")
    _add_common(parser, default="the one that has the queue")


# Requests -------------------------------------------------------------------------------------------------------------


def _build_config(args: argparse.Namespace) -> PlannedChangeView:
    return PlannedChangeView(kind="config", config=read_configuration(args.file))


def _build_drain(args: argparse.Namespace) -> PlannedChangeView:
    return PlannedChangeView(kind="drain-node", node=args.node)


def _build_removal(args: argparse.Namespace) -> PlannedChangeView:
    return PlannedChangeView(kind="remove-node", node=args.node)


def _build_nodes(args: argparse.Namespace) -> PlannedChangeView:
    resources = {kind: amount or "0" for kind, amount in args.resources.items()}
    return PlannedChangeView(kind="add-nodes", count=args.count, resources=resources, attributes=dict(args.attribute))


def _build_limit(args: argparse.Namespace) -> PlannedChangeView:
    most, guaranteed = ({kind: one[kind] for one in parts for kind in one} for parts in (args.max, args.guaranteed))
    if not most and not guaranteed and args.max_applications is None:
        raise CommandFailed("no limit to plan: give --max, --guaranteed or --max-applications", status=2)
    return PlannedChangeView(
        kind="limit-queue",
        queue=args.queue,
        max=most,
        guaranteed=guaranteed,
        max_applications=args.max_applications,
    )


def _build_submission(args: argparse.Namespace) -> PlannedChangeView:
    found = read_job(args.file) if args.file else {}
    options: dict[str, object] = {
        "queue": args.queue,
        "user": args.user,
        "groups": args.groups.split(",") if args.groups else None,
        "resources": args.resources,
        "tasks": args.tasks,
        "runTime": args.run_time,
        "priority": args.priority,
        "gang": args.gang,
        "tags": dict(args.tag) or None,
        "taskTags": dict(args.task_tag) or None,
    }
    found |= {key: value for key, value in options.items() if value is not None}
    if not found.get("resources"):
        raise CommandFailed("the job has no resources: give --resources, as in vcore=4,memory=16Gi", status=2)
    try:
        return PlannedChangeView(kind="submit", job=msgspec.convert(found, JobView))
    except msgspec.ValidationError as error:
        raise CommandFailed(f"{format_file_name(args.file)}: the job is not valid: {error}", status=2) from None


_SIMULATED: Final = frozenset({"submit", "after", "estimate", "run_time", "task_tags"})
"""Keys of jobs of `yunishard simulate` that have another form here, or none."""


def read_job(file: str) -> dict[str, object]:
    """Read a job from a JSON file: the keys of REST, or those of a line of a trace for `yunishard simulate`.

    Raises:
        CommandUnusable: it cannot be read, or is no JSON object.
    """
    problem = f"{format_file_name(file)}: cannot be read:"
    try:
        import sys

        with nullcontext(sys.stdin.buffer) if file == STDIN else Path(file).open("rb") as opened:
            data = opened.read(JOB_BYTES_MAX + 1)
        if len(data) > JOB_BYTES_MAX:
            raise CommandUnusable(f"{problem} larger than {format_bytes(JOB_BYTES_MAX)}, the most a job may have")
        found = json.loads(data)
    except OSError as error:
        raise CommandUnusable(f"{problem} {describe_file_error(error)}") from None
    except (ValueError, RecursionError) as error:
        raise CommandUnusable(f"{problem} it is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise CommandUnusable(f"{problem} it is no JSON object with the keys of a job")
    job: dict[str, object] = {key: value for key, value in found.items() if key not in _SIMULATED}
    run_s = found.get("estimate") or found.get("run_time")
    if isinstance(run_s, int | float):
        job["runTime"] = f"{run_s:f}s"
    elif isinstance(run_s, str):
        job["runTime"] = run_s
    if "task_tags" in found:
        job["taskTags"] = found["task_tags"]
    return job


# The command ----------------------------------------------------------------------------------------------------------

_BUILDERS: Final[dict[str, Build]] = {
    "config": _build_config,
    "drain": _build_drain,
    "remove": _build_removal,
    "add-nodes": _build_nodes,
    "submit": _build_submission,
    "limit": _build_limit,
}


def _plan(args: argparse.Namespace) -> int:
    change = _BUILDERS[args.action](args)
    rest = Rest.from_arguments(args)
    partition = _choose_partition(rest, args)
    body = msgspec.json.encode(PlanRequestView(changes=[change], horizon=args.horizon))
    try:
        with rest.hint_of_partitions(partition):
            answer = rest.send("POST", "partition", partition, "plan", body=body)
    except RequestFailed as failed:
        _report_problems(failed, args)
        raise
    view = answer.decode(PlanView)
    if args.json:
        answer.print()
    else:
        for line in draw_plan(Screen.detect(), view, with_all=args.all):
            write(line)
    return 0 if all(job.verdict in ("now", "later") for job in view.jobs) else DOES_NOT_RUN


def _report_problems(failed: RequestFailed, args: argparse.Namespace) -> None:
    """Write each problem of an invalid configuration to standard error."""
    import sys

    from yunishard.common.config.problems import Problem

    name = args.file if args.action == "config" else "the changed configuration"
    for problem in msgspec.convert(failed.problems, list[Problem], strict=False):
        sys.stderr.write(format_problem(name, problem) + "\n")


def _choose_partition(rest: Rest, args: argparse.Namespace) -> str:
    if args.partition:
        return str(args.partition)
    if args.action in ("drain", "remove"):
        return find_object(rest, args, "node", args.node)[0]
    if args.action == "limit":
        return find_object(rest, args, "queue", args.queue)[0]
    partitions = choose_partitions(rest, args)
    if len(partitions) == 1:
        return partitions[0]
    names = ", ".join(partitions)
    text = f"there are several partitions, name one with --partition: {names}" if names else "there is no partition"
    raise CommandFailed(text)


ACTIONS: Final = {
    "config": Action("plan a configuration, as `config put` would put it in force", _add_config, _plan),
    "limit": Action("plan other limits of a queue, as `queue limit` would set them", _add_limit, _plan),
    "drain": Action("plan the drain of a node: who is evicted, and who gets another node", _add_node, _plan),
    "remove": Action("plan the removal of a node by its resource manager", _add_node, _plan),
    "add-nodes": Action("plan more nodes: what starts on them", _add_nodes, _plan),
    "submit": Action("plan a job: whether it would fit, when, and after which releases", _add_submit, _plan),
}


def add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard plan`."""
    add_action_table(parser, ACTIONS)


def run_plan(args: argparse.Namespace) -> int:
    """Show what would happen after a change, which is not made: what starts and when,
    what waits and why, who is evicted, queues and users above their maximum, and the
    use of the nodes; next to what happens without the change. The scheduler itself
    plays it ahead, on a copy of its present state, in virtual time.

    Allocations end after the time in their tag yunishard/runTime (90s, 1h30m), or in
    that of their application; without one they do not end.

    examples:
      yunishard plan drain node-7
      yunishard plan limit root.research --max vcore=40,memory=200Gi
      yunishard plan config queues.yaml --horizon 8h
      yunishard plan add-nodes 4 --resources vcore=32,memory=128Gi
      yunishard plan remove node-7 --json
      yunishard plan submit --queue root.research --user alice \\
          --resources vcore=8,memory=32Gi --tasks 4 --run-time 2h
      yunishard plan submit job.json --horizon 24h

    exit codes:
      0  planned
      1  refused, with the reason, or there is no such object
      2  wrong usage, or the system does not answer
      3  the job does not run completely within the horizon
    """
    return ACTIONS[args.action].run(args)
