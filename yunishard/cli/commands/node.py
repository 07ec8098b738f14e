"""`yunishard node`: the nodes of a partition with their capacity and usage, and one node.

Further actions of the noun, which change a node, are entries of `ACTIONS` from other modules. The docstring of
`run_node` is the help text.
"""

import argparse
from collections.abc import Sequence
from typing import Final

from yunishard.cli.commands.changes import NODE_ACTIONS
from yunishard.cli.commands.console import Action, add_action_table
from yunishard.cli.commands.display import Cell, Screen, Text, color_state, draw_amounts, draw_bar, draw_facts
from yunishard.cli.commands.listing import (
    AGE,
    AMOUNTS,
    FLAG,
    NUMBER,
    PERCENT,
    STATE,
    Column,
    Frame,
    Row,
    Rows,
    add_list_options,
    add_watch,
    as_amount,
    as_list,
    as_text,
    describe_mark,
    draw_section,
    format_json,
    repeat,
)
from yunishard.cli.commands.partition_tables import add_partition, find_object, parse_state, show_table
from yunishard.cli.commands.queue import KINDS_MAX
from yunishard.cli.commands.rest import Rest, add_rest
from yunishard.common.rest.table_definitions import TABLES
from yunishard.common.units import UNKNOWN, format_figure, list_kinds


def _show_state(row: Row, _: Frame) -> Text:
    state = color_state(as_text(row.get("state")))
    return Cell(f"{state.text}, reserved", state.colour) if row.get("reserved") else state


NODES: Final = (
    Column("node"),
    Column("state", STATE, cell=_show_state),
    Column("used", AMOUNTS),
    Column("foreign", AMOUNTS),
    Column("available", AMOUNTS),
    Column("capacity", AMOUNTS),
    Column("utilization", PERCENT, "USED%"),
    Column("allocations", NUMBER, "ALLOCS"),
    Column("reserved", FLAG, is_wide=True),
    Column("host", is_wide=True),
    Column("rack", is_wide=True),
    Column("instanceType", heading="INSTANCE-TYPE", is_wide=True),
)


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


# list -----------------------------------------------------------------------------------------------------------------


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", metavar="TEXT", nargs="?", default="", help="only nodes with this text in their name")
    parser.add_argument("--state", metavar="STATE", type=parse_state("nodes"), help=", ".join(TABLES["nodes"].states))
    about = "only nodes with this attribute"
    parser.add_argument("--attribute", metavar="NAME=VALUE", default="", help=about)
    add_partition(parser)
    add_list_options(parser, NODES)
    add_rest(parser)


def _list(args: argparse.Namespace) -> int:
    filters = {"text": args.text, "state": args.state or "", "attribute": args.attribute}

    def layout(found: Rows, frame: Frame) -> Sequence[Column]:
        return _lay_out(found, frame, is_wide=args.output == "wide")

    return show_table(args, "nodes", NODES, filters, layout)


def _lay_out(found: Rows, frame: Frame, *, is_wide: bool) -> Sequence[Column]:
    """Return the columns for a terminal, with a bar for each resource type; elsewhere the plain ones."""
    if not frame.screen.is_terminal:
        return NODES
    present = list_kinds(*(as_amount(row.get("capacity")) for row in found.rows))
    kinds = [kind for kind in present if is_wide or kind != "pods"]
    bars = [_make_bar_column(kind) for kind in (kinds if is_wide else kinds[:KINDS_MAX])]
    replaced = {"used", "capacity", "foreign"} if not is_wide else {"used", "capacity"}
    others = [column for column in NODES[2:] if column.name not in replaced]
    return [*NODES[:2], *bars, *others]


def _make_bar_column(kind: str) -> Column:
    def show(row: Row, frame: Frame) -> Text:
        capacity = (as_amount(row.get("capacity")) or {}).get(kind)
        if capacity is None:
            return UNKNOWN
        used = sum((as_amount(row.get(name)) or {}).get(kind, 0) for name in ("used", "foreign"))
        bar = draw_bar(frame.screen, used, capacity)
        return Cell(f"{bar.text} {format_figure(kind, used)} / {format_figure(kind, capacity)}", bar.colour)

    return Column(kind, heading=kind.upper(), cell=show)


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
        lines = draw_facts(screen, _list_facts(node, partition))
        keys = {"capacity": "capacity", "used": "allocated", "foreign": "occupied", "available": "available"}
        lines += ["", *draw_amounts(screen, [(name, as_amount(node.get(key))) for name, key in keys.items()])]
        lines += draw_section(screen, "Allocations", _ALLOCATIONS, Rows.of(node.get("allocations")))
        foreign = Rows.of(node.get("foreignAllocations"))
        return lines + draw_section(screen, "Allocations of other schedulers", _FOREIGN, foreign)

    return repeat(args, draw)


def _find_state(node: Row) -> str:
    return "cordoned" if node.get("cordoned") else "schedulable" if node.get("schedulable") else "unschedulable"


def _list_facts(node: Row, partition: str) -> list[tuple[str, Text]]:
    attributes = node.get("attributes")
    others = attributes.items() if isinstance(attributes, dict) else ()
    return [
        ("node", as_text(node.get("nodeID"))),
        ("partition", partition),
        ("state", color_state(_find_state(node))),
        ("cordoned", describe_mark(node.get("cordoned"))),
        ("host", as_text(node.get("hostName"))),
        ("rack", as_text(node.get("rackName"))),
        ("reserved for", ", ".join(as_list(node.get("reservations")))),
        *((name, as_text(value)) for name, value in others if not name.startswith("si/")),
    ]


ACTIONS: Final[dict[str, Action]] = {
    "list": Action("list the nodes with their capacity and usage", _add_list, _list),
    "show": Action("show a node: attributes, amounts, and its allocations", _add_show, _show),
    **NODE_ACTIONS,
}
