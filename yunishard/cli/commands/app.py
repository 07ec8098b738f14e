"""`yunishard app` and `yunishard ask`: list, show, kill and move applications, and show one ask.

The docstrings of `run_app` and `run_ask` are the help texts. Not here: authorization (the web service decides), ended
applications of earlier days (`history.py`).
"""

import argparse
import time
from typing import Final

from yunishard.cli.commands.console import Action, add_action_table
from yunishard.cli.commands.display import QUIET, Screen, Text, color_state, draw_facts, draw_heading
from yunishard.cli.commands.listing import (
    AGE,
    AMOUNTS,
    NUMBER,
    Column,
    Row,
    Rows,
    Wanted,
    add_watch,
    as_amount,
    as_list,
    as_number,
    as_text,
    draw_section,
    format_json,
    repeat,
)
from yunishard.cli.commands.partition_tables import (
    Facts,
    add_partition,
    change_actions,
    choose_partitions,
    draw_object,
    find_object,
    list_action,
    make_columns,
    read_row,
    read_table,
)
from yunishard.cli.commands.rest import Rest, add_rest
from yunishard.cli.main import PROGRAM, CommandFailed
from yunishard.common.process.terminal import clean
from yunishard.common.rest.catalogue import TABLES
from yunishard.common.rest.columns import View
from yunishard.common.text_formats import UNKNOWN, format_ago, format_resources, format_seconds, format_time

ALLOCATIONS_SHOWN: Final = 20
"""Allocations that `app show` lists; `--all` shows all."""


def add_app_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard app`."""
    add_action_table(parser, APP_ACTIONS)


def run_app(args: argparse.Namespace) -> int:
    """List and show applications, kill one, or move it to another queue with
    everything it uses. To kill or move it requires admin access to the queue (for a
    move, to both queues), or the role of scheduler administrator.

    examples:
      yunishard app list                       all that have not ended
      yunishard app list spark                 with this text in their IDs
      yunishard app list --queue root.research --user alice
      yunishard app list --node worker-17      with an allocation there
      yunishard app list --state all --sort -submitted
      yunishard app list --sort -pending --limit 20 --watch
      yunishard app show spark-17
      yunishard app kill spark-17
      yunishard app move spark-17 root.research --partition rm-1_gpu

    exit codes:
      0  done
      1  refused, with the reason, or the application does not exist
      2  wrong usage, or the system does not answer
    """
    return APP_ACTIONS[args.action].run(args)


# show -----------------------------------------------------------------------------------------------------------------

_ASKS: Final = make_columns(TABLES["asks"], View.BOARD)
_ALLOCATIONS: Final = (
    Column("allocationKey", heading="ALLOCATION"),
    Column("nodeId", heading="NODE"),
    Column("resource", AMOUNTS),
    Column("priority"),
    Column("allocationTime", AGE, "SINCE"),
)
_TASK_GROUPS: Final = (
    Column("taskGroupName", heading="TASK GROUP"),
    Column("count", NUMBER, "PLACEHOLDERS"),
    Column("minResource", AMOUNTS, "RESOURCE"),
    Column("replaced", NUMBER),
    Column("timedout", NUMBER, "TIMED OUT"),
)


def _add_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("application", metavar="APP", help="the application")
    parser.add_argument("--all", action="store_true", help=f"all allocations (default: {ALLOCATIONS_SHOWN})")
    add_partition(parser, default="the one that has the application")
    add_watch(parser)
    add_rest(parser)


def _show(args: argparse.Namespace) -> int:
    rest = Rest.from_arguments(args)

    def draw(screen: Screen) -> list[str]:
        try:
            partition, answer = find_object(rest, args, "application", args.application)
        except CommandFailed as failed:
            ended = _find_ended(rest, args)
            if ended is None:
                raise failed from None
            return format_json(ended) if args.json else draw_object(screen, "applications", ended)
        application = answer.decode(dict[str, object])
        if args.json:
            return format_json(application, is_line=args.watch is not None)
        return _draw_application(screen, rest, partition, application, is_whole=args.all)

    return repeat(args, draw)


def _draw_application(screen: Screen, rest: Rest, partition: str, application: Row, *, is_whole: bool) -> list[str]:
    name = as_text(application.get("applicationID"))
    row = read_row(rest, partition, "applications", name)
    most = [("most used", as_amount(application.get("maxUsedResource")))]
    lines = draw_object(screen, "applications", row, _list_facts(application), most)
    asks = Rows([])
    if application.get("requests"):
        asks = read_table(rest, "asks", [partition], {"application": name}, Wanted())
    allocations = Rows.of(application.get("allocations"))
    if not is_whole:
        allocations.rows = allocations.rows[:ALLOCATIONS_SHOWN]
    lines += draw_section(screen, "Task groups", _TASK_GROUPS, Rows.of(application.get("placeholderData")))
    lines += draw_section(screen, "Pending asks", _ASKS, asks)
    lines += draw_section(screen, "Allocations", _ALLOCATIONS, allocations)
    lines += _draw_states(screen, application)
    return lines + (_hint_at(screen, f"app {name}") if asks.rows else [])


def _hint_at(screen: Screen, what: str) -> list[str]:
    """Return the lines for a terminal that name the command for the next question."""
    text = f"`{PROGRAM} explain {what}` shows why it waits, and what would let it run"
    return ["", screen.paint(clean(text), QUIET)] if screen.is_terminal else []


def _list_facts(application: Row) -> Facts:
    """Return what the table of applications does not have."""
    return [
        ("reserved", ", ".join(as_list(application.get("reservations")))),
        ("back-off until", as_text(application.get("backoffDeadline"))),
    ]


def _draw_states(screen: Screen, application: Row) -> list[str]:
    """Return the states that it entered, each with the time it stayed there."""
    log = Rows.of(application.get("stateLog")).rows
    if not log:
        return []
    lines = draw_heading(screen, "States")
    for entry, following in zip(log, [*log[1:], None], strict=True):
        at = int(as_number(entry.get("time")) or 0)
        stay = ""
        if following is not None:
            stay = f"for {format_seconds((int(as_number(following.get('time')) or 0) - at) / 1e9)}"
        lines += [f"{format_time(at)}  {as_text(entry.get('applicationState')).lower():<11}  {stay}".rstrip()]
    return lines


def _find_ended(rest: Rest, args: argparse.Namespace) -> Row | None:
    """Return the row of an application that has ended, or was rejected."""
    filters = {"application": args.application, "state": "ended"}
    try:
        found = read_table(rest, "applications", choose_partitions(rest, args), filters, Wanted())
    except CommandFailed:
        return None
    return next((row for row in found.rows if row.get("application") == args.application), None)


APP_ACTIONS: Final[dict[str, Action]] = {
    "list": list_action("applications", "list the applications that have not ended, or others"),
    "show": Action("show an application: amounts, pending asks, allocations, states", _add_show, _show),
    **change_actions("applications"),
}


# yunishard ask --------------------------------------------------------------------------------------------------------

_LOG: Final = (
    Column("lastOccurrence", AGE, "LAST"),
    Column("count", NUMBER, "TIMES"),
    Column("message", heading="REASON"),
)


def add_ask_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard ask`."""
    add_action_table(parser, ASK_ACTIONS)


def run_ask(args: argparse.Namespace) -> int:
    """Show a pending ask with the reasons of earlier attempts to place it. Of several
    equal asks, only the first one is found without --app.

    examples:
      yunishard ask list                       pending asks, equal ones in one row
      yunishard ask list --queue root.research --sort -count
      yunishard ask show task-7 --app spark-17

    exit codes:
      0  done
      1  refused, with the reason, or the ask does not exist
      2  wrong usage, or the system does not answer
    """
    return ASK_ACTIONS[args.action].run(args)


def _add_ask_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ask", metavar="ASK", help="the key of the ask")
    parser.add_argument("--app", metavar="APP", default="", help="its application (default: the one that has it)")
    add_partition(parser, default="the one that has the ask")
    add_watch(parser)
    add_rest(parser)


def _show_ask(args: argparse.Namespace) -> int:
    rest = Rest.from_arguments(args)

    def draw(screen: Screen) -> list[str]:
        partition, application, ask, is_pending = _find_ask(rest, args)
        if args.json:
            return format_json(ask, is_line=args.watch is not None)
        lines = draw_facts(screen, _list_ask_facts(ask, application, partition, is_pending=is_pending))
        lines += draw_section(screen, "Attempts to place it", _LOG, Rows.of(ask.get("allocationLog")))
        name = f"ask {args.ask} --app {as_text(application.get('applicationID'))}"
        return lines + (_hint_at(screen, name) if is_pending else [])

    return repeat(args, draw)


def _find_ask(rest: Rest, args: argparse.Namespace) -> tuple[str, Row, Row, bool]:
    """Return the partition, the application, the ask or the allocation it became, and whether it is pending."""
    name = args.app or _find_application_of(rest, args)
    lookup = argparse.Namespace(partition=args.partition)
    partition, answer = find_object(rest, lookup, "application", name)
    application = answer.decode(dict[str, object])
    for key, is_pending in (("requests", True), ("allocations", False)):
        for one in Rows.of(application.get(key)).rows:
            if one.get("allocationKey") == args.ask:
                return partition, application, one, is_pending
    raise CommandFailed(f"application {name} has no ask {args.ask}; `yunishard app show {name}` lists them")


def _find_application_of(rest: Rest, args: argparse.Namespace) -> str:
    """Return the application with an ask of this key, from the first asks of all ask groups."""
    found = read_table(rest, "asks", choose_partitions(rest, args), {"text": args.ask}, Wanted())
    names = {as_text(row.get("application")) for row in found.rows if row.get("key") == args.ask}
    if len(names) > 1:
        raise CommandFailed(
            f"several applications have an ask {args.ask}, name one with --app: {', '.join(sorted(names))}"
        )
    if not names:
        raise CommandFailed(f"no ask {args.ask} is the first of its kind: name its application with --app")
    return names.pop()


def _list_ask_facts(ask: Row, application: Row, partition: str, *, is_pending: bool) -> list[tuple[str, Text]]:
    asked = int(as_number(ask.get("requestTime")) or 0)
    return [
        ("ask", as_text(ask.get("allocationKey"))),
        ("application", as_text(application.get("applicationID"))),
        ("queue", as_text(application.get("queueName"))),
        ("user", as_text(application.get("user"))),
        ("partition", partition),
        ("state", "pending" if is_pending else color_state("running")),
        ("node", as_text(ask.get("nodeId"))),
        ("resource", format_resources(as_amount(ask.get("resource")))),
        ("priority", as_text(ask.get("priority"))),
        ("requested", f"{format_ago(asked, time.time_ns())} ({format_time(asked)})" if asked else UNKNOWN),
        ("required node", as_text(ask.get("requiredNodeId"))),
        ("task group", as_text(ask.get("taskGroupName"))),
        ("placeholder", "yes" if ask.get("placeholder") else ""),
        ("attempted", "" if not is_pending else "yes" if ask.get("schedulingAttempted") else "not yet"),
        ("preemption", "triggered" if ask.get("triggeredPreemption") else ""),
    ]


ASK_ACTIONS: Final[dict[str, Action]] = {
    "list": list_action("asks", "list the pending asks, equal ones of an application in one row"),
    "show": Action("show an ask, with the reasons of earlier attempts to place it", _add_ask_show, _show_ask),
}
