"""`yunishard explain`: why an application, an ask, a queue or a node waits, and where an application would be placed.

The worker makes the explanation; this requests and draws it. Not here: its layout (`explanation.py`).
"""

import argparse
import time
from collections.abc import Sequence
from http.client import BAD_REQUEST
from typing import Final

import msgspec

from yunishard.cli.commands.console import add_actions
from yunishard.cli.commands.display import Screen
from yunishard.cli.commands.explanation import draw_explanation
from yunishard.cli.commands.listing import Wanted, add_watch, as_text, repeat
from yunishard.cli.commands.partition_tables import (
    add_partition,
    choose_partitions,
    read_object,
    read_table,
    suggest_name,
)
from yunishard.cli.commands.placement import draw_placement
from yunishard.cli.commands.rest import NOT_FOUND, Answer, RequestFailed, Rest, add_rest
from yunishard.cli.main import CommandFailed
from yunishard.common.rest.catalogue import TableName
from yunishard.common.rest.explain import ExplanationView, PlacementExplanationView

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
"""Asks with a part of the key that are compared with it; further ones are not found without `--app`."""

GROUPS_MAX: Final = 20
"""The largest groups of equal asks that are searched for a key within them; of others, `--app` is needed."""

_ASKS: Final[TableName] = "asks"

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
    explanations: dict[Place, Answer] = {}  # those that were requested to find the object
    place = _find(rest, args, explanations)

    def draw(screen: Screen) -> list[str]:
        answer = explanations.pop(place, None) or read_object(rest, place[0], *place[1], "explain")
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


def _find(rest: Rest, args: argparse.Namespace, explanations: dict[Place, Answer]) -> Place:
    """Find the object that the options name. An object exists if it can be explained; its explanation is kept.

    Raises:
        CommandFailed: there is none, or there are several.
    """
    partitions = choose_partitions(rest, args)
    kinds = list(KINDS) if args.action == "any" else [args.action]
    if args.action != "any" and args.action != "ask" and len(partitions) == 1:
        return partitions[0], (KINDS[args.action], args.name)  # the answer reports what is missing
    places = [
        (partition, path)
        for kind in kinds
        for partition in partitions
        for path in _list_paths(rest, partition, kind, args.name, args.app if kind == "ask" else "")
    ]
    found = [place for place in places if _exists(rest, place, explanations)]
    if not found and "ask" in kinds and not args.app:
        places = [(partition, path) for partition in partitions for path in _list_groups(rest, partition, args.name)]
        found = [place for place in places if _exists(rest, place, explanations)]
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


def _exists(rest: Rest, place: Place, explanations: dict[Place, Answer]) -> bool:
    partition, path = place
    try:
        explanations[place] = rest.get("partition", partition, *path, "explain")
    except RequestFailed as failed:
        if failed.code in (NOT_FOUND, BAD_REQUEST):  # no queue can have such a name
            return False
        raise
    return True


def _list_paths(rest: Rest, partition: str, kind: str, name: str, application: str) -> list[tuple[str, ...]]:
    """The paths that an object of this kind may have; those of an ask by the first of equal ones."""
    if kind != "ask":
        return [(KINDS[kind], name)]
    if application:
        return [("application", application, "ask", name)]
    rows = read_table(rest, _ASKS, [partition], {"text": name}, Wanted(limit=ASKS_MAX)).rows
    return [("application", as_text(row.get("application")), "ask", name) for row in rows if row.get("key") == name]


def _list_groups(rest: Rest, partition: str, key: str) -> list[tuple[str, ...]]:
    """The paths that an ask may have if it is not the first of equal ones, of which alone a table has the key."""
    rows = read_table(rest, _ASKS, [partition], {}, Wanted("-count", GROUPS_MAX)).rows
    groups = dict.fromkeys(as_text(row.get("application")) for row in rows if row.get("count") != 1)
    return [("application", application, "ask", key) for application in groups]
