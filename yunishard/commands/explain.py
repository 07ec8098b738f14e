"""`yunishard explain`: why an application, an ask, a queue or a node waits, and where an application would be placed.

The worker makes the explanation; this requests and draws it. Not here: its layout (`explanation.py`).
"""

import argparse
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from common.rest_explain import ExplanationView
from common.rest_placement import PlacementExplanationView
from common.table_definitions import TableName
from yunishard.cli import CommandFailed
from yunishard.commands.console import add_actions
from yunishard.commands.display import Screen
from yunishard.commands.explanation import draw_explanation
from yunishard.commands.listing import Wanted, add_watch, as_text, repeat
from yunishard.commands.partition_tables import add_partition, choose_partitions, read_object, read_table, suggest_name
from yunishard.commands.placement import draw_placement
from yunishard.commands.rest import NOT_FOUND, Answer, RequestFailed, Rest, add_rest

KINDS: Final = {"app": "application", "ask": "ask", "queue": "queue", "node": "node"}
"""The word of the command line to the kind of object."""

ACTIONS: Final = {
    "app": "explain why an application waits, or some of its asks",
    "ask": "explain why an ask waits",
    "queue": "explain what waits in a queue and below it, and why",
    "node": "explain what a node takes, and which asks do not get it",
    "placement": "explain in which queue an application would be placed, without submitting it",
    "any": "find the kind of object that NAME is; `yunishard explain NAME` is the same",
}

ASKS_MAX: Final = 100
"""Asks that are searched for a key that no ask group begins with."""

_METAVARS: Final = {"app": "APP", "ask": "ASK", "queue": "QUEUE", "node": "NODE", "any": "NAME"}

Place = tuple[str, tuple[str, ...]]
"""A partition, and the path of an object in it."""


def add_explain_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard explain`."""
    parser.set_defaults(default_action="any")
    for name, own in add_actions(parser, ACTIONS).items():
        if name == "placement":
            _add_placement(own)
            continue
        own.add_argument("name", metavar=_METAVARS[name], help="its name; of a queue the full path")
        if name in ("ask", "any"):
            about = "the application of the ask (default: the only one with such an ask)"
            own.add_argument("--app", metavar="APP", default="", help=about)
        add_partition(own, default="the one that has it")
        add_watch(own)
        add_rest(own)


def _add_placement(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", metavar="USER", required=True, help="the user of the application")
    about = "the groups of the user, with commas between (default: those that the system would find)"
    parser.add_argument("--groups", metavar="GROUP,GROUP", default="", help=about)
    parser.add_argument("--queue", metavar="QUEUE", default="", help="the queue that the application names")
    about = "a tag of the application, as in namespace=team-a; can be repeated"
    parser.add_argument("--tag", metavar="NAME=VALUE", action="append", type=_parse_tag, default=[], help=about)
    add_partition(parser, default="the only one")
    add_watch(parser)
    add_rest(parser)


def _parse_tag(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text[:32]!r}")
    return name, value


def run_explain(args: argparse.Namespace) -> int:
    """Explain why something waits: the checks of the scheduler in their order, the one
    that stops it, who is ahead, how many nodes refuse and why, and the smallest
    changes after which it would run.

    examples:
      yunishard explain spark-17                 whatever has this name
      yunishard explain app spark-17
      yunishard explain ask task-3 --app spark-17 --watch
      yunishard explain queue root.research
      yunishard explain node node-7 --json
      yunishard explain placement --user alice --queue root.research \\
          --tag namespace=team-a

    exit codes:
      0  explained
      1  refused, with the reason, or there is no such object
      2  wrong usage, or the system does not answer
    """
    rest = Rest.from_arguments(args)
    if args.action == "placement":
        return _explain_placement(args, rest)
    partition, path = _find(rest, args)

    def draw(screen: Screen) -> list[str]:
        answer = _read(rest, partition, path)
        if args.json:
            return answer.text.splitlines()
        return draw_explanation(screen, answer.decode(ExplanationView), time.time_ns())

    return repeat(args, draw)


def _explain_placement(args: argparse.Namespace, rest: Rest) -> int:
    partitions = choose_partitions(rest, args)
    if len(partitions) != 1:
        names = ", ".join(partitions)
        text = f"there are several partitions, name one with --partition: {names}" if names else "there is no partition"
        raise CommandFailed(text)
    tags = msgspec.json.encode(dict(args.tag)).decode() if args.tag else ""
    query = {"user": args.user, "groups": args.groups, "queue": args.queue, "tags": tags}

    def draw(screen: Screen) -> list[str]:
        answer = read_object(rest, partitions[0], "explain", "placement", query=query)
        if args.json:
            return answer.text.splitlines()
        return draw_placement(screen, answer.decode(PlacementExplanationView))

    return repeat(args, draw)


def _read(rest: Rest, partition: str, path: Sequence[str]) -> Answer:
    return read_object(rest, partition, *path, "explain")


def _find(rest: Rest, args: argparse.Namespace) -> Place:
    """Find the object that the options name.

    Raises:
        CommandFailed: there is none, or there are several.
    """
    partitions = choose_partitions(rest, args)
    kinds = list(KINDS) if args.action == "any" else [args.action]
    if args.action != "any" and args.action != "ask" and len(partitions) == 1:
        return partitions[0], (KINDS[args.action], args.name)  # the answer reports what is missing
    found = [place for kind in kinds for place in _find_places(rest, partitions, kind, args)]
    if not found:
        raise CommandFailed(_describe_missing(rest, partitions, kinds, args.name))
    if len(found) > 1:
        listed = "; ".join(_describe_place(place) for place in found)
        raise CommandFailed(f"several objects have this name, choose one: {listed}")
    return found[0]


def _describe_missing(rest: Rest, partitions: Sequence[str], kinds: Sequence[str], name: str) -> str:
    """The message that there is no such object, with the nearest name or what may be the reason."""
    what = "application, pending ask, queue or node" if len(kinds) > 1 else KINDS[kinds[0]]
    near = (suggest_name(rest, partitions, KINDS[kind], name) for kind in kinds if kind != "ask")
    hint = next(filter(None, near), "")
    if not hint:
        hint = f" (partitions: {', '.join(partitions) or 'none'})"
        hint += "; for an ask that runs, name its application with --app" if "ask" in kinds else ""
    return f"there is no {what} {name} that you may see{hint}"


def _describe_place(place: Place) -> str:
    """The command line that explains the object."""
    partition, path = place
    words = {kind: word for word, kind in KINDS.items()}
    name = f"ask {path[-1]} --app {path[1]}" if "ask" in path[2:3] else f"{words[path[0]]} {path[1]}"
    return f"explain {name} --partition {partition}"


def _find_places(rest: Rest, partitions: Sequence[str], kind: str, args: argparse.Namespace) -> list[Place]:
    """Find all objects of a kind and name."""
    if kind == "ask":
        return [place for one in partitions for place in _find_asks(rest, one, args.name, args.app)]
    return [(one, (KINDS[kind], args.name)) for one in partitions if _exists(rest, one, KINDS[kind], args.name)]


def _exists(rest: Rest, partition: str, *path: str) -> bool:
    try:
        _read(rest, partition, path)
    except RequestFailed as failed:
        if failed.code in (NOT_FOUND, 400):  # 400: no queue can have such a name
            return False
        raise
    return True


def _find_asks(rest: Rest, partition: str, key: str, application: str) -> list[Place]:
    """Find the applications with a pending ask of this key. A table has only the first of equal asks by name."""
    if application:
        applications = [application]
    else:
        table: TableName = "asks"
        rows = read_table(rest, table, [partition], {"text": key}, Wanted(limit=ASKS_MAX)).rows
        applications = [as_text(row.get("application")) for row in rows if row.get("key") == key]
        if not applications:
            rows = read_table(rest, table, [partition], {}, Wanted(limit=ASKS_MAX)).rows
            applications = list(dict.fromkeys(as_text(row.get("application")) for row in rows if row.get("count") != 1))
    paths = [("application", one, "ask", key) for one in applications]
    return [(partition, path) for path in paths if _exists(rest, partition, *path)]
