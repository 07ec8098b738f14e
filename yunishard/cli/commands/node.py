"""`yunishard node`: the nodes of a partition with their capacity and usage, and one node.

Further actions of the noun, which change a node, are entries of `ACTIONS` from other modules. The docstring of
`run_node` is the help text.
"""

import argparse
from typing import Final

from yunishard.cli.commands.changes import NODE_ACTIONS
from yunishard.cli.commands.console import Action, add_action_table
from yunishard.cli.commands.display import Screen
from yunishard.cli.commands.listing import (
    AGE,
    AMOUNTS,
    Column,
    Row,
    Rows,
    add_watch,
    as_list,
    as_text,
    describe_mark,
    draw_section,
    format_json,
    repeat,
)
from yunishard.cli.commands.partition_tables import (
    Facts,
    add_partition,
    draw_object,
    find_object,
    list_action,
    read_row,
)
from yunishard.cli.commands.rest import Rest, add_rest


def add_node_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard node`."""
    add_action_table(parser, ACTIONS)


def run_node(args: argparse.Namespace) -> int:
    """Show nodes with their capacity, what is used of it, and what runs there; keep
    new allocations from a node, or empty it.

    examples:
      yunishard node list                      all nodes
      yunishard node list worker-1             those with this text in their name
      yunishard node list --sort -utilization --limit 20
      yunishard node list --sort -available.memory
      yunishard node list --state unschedulable
      yunishard node list --attribute si/rackname=r7 -o wide
      yunishard node show worker-17
      yunishard node cordon worker-17 --reason "bad disk"
      yunishard node drain worker-17 --wait
      yunishard node uncordon worker-17

    exit codes:
      0  done
      1  refused, with the reason, or the node does not exist
      2  wrong usage, or the system does not answer
    """
    return ACTIONS[args.action].run(args)


# show -----------------------------------------------------------------------------------------------------------------

_ALLOCATIONS: Final = (
    Column("allocationKey", heading="ALLOCATION"),
    Column("applicationId", heading="APPLICATION"),
    Column("resource", AMOUNTS),
    Column("priority"),
    Column("allocationTime", AGE, "SINCE"),
)
_FOREIGN: Final = (
    Column("allocationKey", heading="ALLOCATION"),
    Column("resource", AMOUNTS),
    Column("priority"),
    Column("allocationTime", AGE, "SINCE"),
)


def _add_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", metavar="NODE", help="the node")
    add_partition(parser, default="the one that has the node")
    add_watch(parser)
    add_rest(parser)


def _show(args: argparse.Namespace) -> int:
    rest = Rest.from_arguments(args)

    def draw(screen: Screen) -> list[str]:
        partition, answer = find_object(rest, args, "node", args.node)
        node = answer.decode(dict[str, object])
        if args.json:
            return format_json(node, is_line=args.watch is not None)
        lines = draw_object(screen, "nodes", read_row(rest, partition, "nodes", args.node), _list_facts(node))
        lines += draw_section(screen, "Allocations", _ALLOCATIONS, Rows.of(node.get("allocations")))
        foreign = Rows.of(node.get("foreignAllocations"))
        return lines + draw_section(screen, "Allocations of other schedulers", _FOREIGN, foreign)

    return repeat(args, draw)


def _list_facts(node: Row) -> Facts:
    """Return what the table of nodes does not have."""
    attributes = node.get("attributes")
    others = attributes.items() if isinstance(attributes, dict) else ()
    return [
        ("cordoned", describe_mark(node.get("cordoned"))),
        ("reserved for", ", ".join(as_list(node.get("reservations")))),
        *((name, as_text(value)) for name, value in others if not name.startswith("si/")),
    ]


ACTIONS: Final[dict[str, Action]] = {
    "list": list_action("nodes", "list the nodes with their capacity and usage"),
    "show": Action("show a node: attributes, amounts, and its allocations", _add_show, _show),
    **NODE_ACTIONS,
}
