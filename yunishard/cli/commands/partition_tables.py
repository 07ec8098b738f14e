"""The tables of the catalogue as lists of the commands, and the objects of partitions: of one partition, or of all.

A noun gets its `list` with `list_action`: the options, columns and bars follow from `common/rest/catalogue.py`. Without
`--partition` a list has the rows of all partitions, with a column for the partition if there are several. An object is
looked for in all of them; a failure names what is nearest. A partition that does not answer is reported, and the others
are listed.

Not here: HTTP (`rest.py`), columns and output (`listing.py`).
"""

import argparse
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from yunishard.cli.commands import listing
from yunishard.cli.commands.console import Action
from yunishard.cli.commands.display import (
    BAR_CELLS,
    QUIET,
    Cell,
    Screen,
    Text,
    color_state,
    draw_amounts,
    draw_bar,
    draw_facts,
)
from yunishard.cli.commands.listing import (
    PARTITION,
    Column,
    Fetch,
    Frame,
    Layout,
    Row,
    Rows,
    Wanted,
    add_list_options,
    as_amount,
    as_list,
    as_number,
    as_text,
    check_sort,
    show_list,
)
from yunishard.cli.commands.rest import NOT_FOUND, NOT_READY, Answer, RequestFailed, Rest, add_rest, hint_if_missing
from yunishard.cli.main import CommandFailed, suggest
from yunishard.common.process.terminal import write
from yunishard.common.rest import columns
from yunishard.common.rest.catalogue import ROWS_MAX, TABLES, TableName
from yunishard.common.rest.columns import Bars, Kind, View
from yunishard.common.text_formats import UNKNOWN, format_figure, format_time, list_kinds

NAMES_MAX: Final = 2000
"""Names that are compared with a misspelt one; of more, only the first ones are."""

_TABLES_OF: Final[Mapping[str, TableName]] = {table.noun: name for name, table in TABLES.items()}
"""Kind of object to its table."""


def add_partition(parser: argparse.ArgumentParser, *, default: str = "all") -> None:
    """Add the option for the partition."""
    parser.add_argument("--partition", metavar="PARTITION", default="", help=f"the partition (default: {default})")


def choose_partitions(rest: Rest, args: argparse.Namespace) -> list[str]:
    """Return the partition that the options name, or else all."""
    return [args.partition] if args.partition else rest.partitions()


# Columns --------------------------------------------------------------------------------------------------------------

BARS_MAX: Final = 3
"""Resource types with a bar of their own on a terminal; `-o wide` shows all."""

_KINDS: Final[Mapping[Kind, listing.Kind]] = {
    Kind.TEXT: listing.TEXT,
    Kind.CODE: listing.TEXT,
    Kind.STATE: listing.STATE,
    Kind.NUMBER: listing.NUMBER,
    Kind.PERCENT: listing.PERCENT,
    Kind.SHARE: listing.SHARE,
    Kind.TIME: listing.AGE,
    Kind.FLAG: listing.FLAG,
    Kind.TEXTS: listing.LIST,
    Kind.PAIRS: listing.PAIRS,
    Kind.BYTES: listing.BYTES,
    Kind.AMOUNTS: listing.AMOUNTS,
    Kind.LIMITS: listing.LIMITS,
}


def make_column(table: columns.Table, one: columns.Column, *, is_wide: bool = False) -> Column:
    """Return a column of the catalogue for a table on a terminal."""
    cell: Callable[[Row, Frame], Text] | None = None
    if one.of:
        cell = lambda row, _: format_running(row.get(one.name), row.get(one.of))  # noqa: E731
    elif one.also:
        flag = table.find_column(one.also)
        assert flag is not None, one
        cell = lambda row, _: _mark_state(row.get(one.name), flag.title if row.get(flag.name) else "")  # noqa: E731
    return Column(one.name, _KINDS[one.kind], one.title.upper(), is_wide, cell, is_sortable=one.is_sortable)


def make_columns(table: columns.Table, view: View = View.LIST) -> tuple[Column, ...]:
    """Return all columns of a table; those that are not in the view are shown with `-o wide` only. `PARTITION` is added
    where there are several.
    """
    return tuple(
        make_column(table, one, is_wide=not one.views & view) for one in table.columns if one.name != PARTITION.name
    )


def format_running(running: object, maximum: object) -> str:
    """Return a number with its maximum, if there is one."""
    number, most = as_number(running), as_number(maximum)
    if number is None:
        return UNKNOWN
    return f"{number:,} / {most:,}" if most else f"{number:,}"


def _mark_state(state: object, mark: str) -> Text:
    cell = color_state(as_text(state))
    return Cell(f"{cell.text}, {mark}", cell.colour) if mark else cell


def indent_path(row: Row, _: Frame) -> Text:
    """Return the last name of the path of a queue, indented by its level."""
    *above, name = as_text(row.get("queue")).split(".")
    return "  " * len(above) + name


def draw_bars(table: columns.Table, found: Iterable[Row], kinds: Iterable[str], cells: int = BAR_CELLS) -> list[Column]:
    """Return a column with a bar for each of these resource types. A queue without a maximum has as its scale the one
    above it.
    """
    bars = table.bars
    assert bars is not None, table.noun
    totals = {(row.get("partition"), as_text(row.get(table.key))): as_amount(row.get(bars.total)) for row in found}
    return [_make_bar_column(table, bars, kind, totals, cells) for kind in kinds]


def _make_bar_column(table: columns.Table, bars: Bars, kind: str, totals: "_Totals", cells: int) -> Column:
    def read(row: Row, name: str) -> int:
        return (as_amount(row.get(name)) or {}).get(kind, 0)

    def show(row: Row, frame: Frame) -> Text:
        if as_amount(row.get(bars.used[0])) is None:
            return Cell(UNKNOWN, QUIET)
        own = (as_amount(row.get(bars.total)) or {}).get(kind)
        used = sum(read(row, name) for name in bars.used)
        pending, guaranteed = read(row, bars.pending), read(row, bars.guaranteed)
        scale = _find_scale(totals, row, table.key, kind) if own is None and table.is_tree else own
        if scale is None and not (used or pending or guaranteed or table.is_tree):
            return Cell(UNKNOWN, QUIET)
        if scale is None:
            scale = max(used + pending, guaranteed)
        bar = draw_bar(frame.screen, used, scale, guaranteed=guaranteed, pending=pending, cells=cells)
        figures = format_figure(kind, used) + (f" / {format_figure(kind, own)}" if own is not None else "")
        return Cell(f"{bar.text} {figures}", bar.colour if own is not None else "")

    return Column(kind, heading=kind.upper(), cell=show)


_Totals = Mapping[tuple[object, str], dict[str, int] | None]
"""Partition and name to the total of a row."""


def _find_scale(totals: _Totals, row: Row, key: str, kind: str) -> int | None:
    """Return the total of the nearest queue above that has one."""
    path = as_text(row.get(key))
    while path := path.rpartition(".")[0]:
        found = (totals.get((row.get("partition"), path)) or {}).get(kind)
        if found is not None:
            return found
    return None


# Lists ----------------------------------------------------------------------------------------------------------------


def list_action(name: TableName, about: str) -> Action:
    """Return the action `list` of a noun, with the filters of its table as options."""

    def add(parser: argparse.ArgumentParser) -> None:
        _add_filters(parser, TABLES[name])
        add_partition(parser)
        add_list_options(parser, make_columns(TABLES[name]))
        add_rest(parser)

    return Action(about, add, lambda args: _list(args, name))


def _add_filters(parser: argparse.ArgumentParser, table: columns.Table) -> None:
    for one in table.filters:
        if one.name == "subtree" or (one.name == table.key != table.argument):
            continue  # a queue is always listed with those below it, and `show` is for one object
        about = one.meaning.partition(". ")[0].removesuffix(".").replace("`", "").removeprefix("true: ")
        about = about[0].lower() + about[1:]
        if one.name == "queue":
            about += " and in those below it" if " in " in about else " and those below it"
        if one.choices and not one.is_flag:
            about += f" ({', '.join(one.choices)}; default: {one.unset})"
        option = one.option or f"--{one.name}"
        if one.name == table.argument:
            parser.add_argument(one.name, metavar=one.name.upper(), nargs="?", help=about)
        elif one.is_flag:
            parser.add_argument(option, action="store_const", const="true", dest=one.name, help=about)
        else:
            metavar, parse = one.metavar or one.name.upper(), _parse_choice(one) if one.choices else str
            parser.add_argument(option, metavar=metavar, type=parse, dest=one.name, help=about)


def _parse_choice(one: columns.Filter) -> Callable[[str], str]:
    def parse(text: str) -> str:
        value = text.lower()
        if value not in one.choices:
            near = suggest(value, one.choices) or f": there are {', '.join(one.choices)}"
            raise argparse.ArgumentTypeError(f"unknown {one.name} {text[:32]!r}{near}")
        return value

    return parse


def _list(args: argparse.Namespace, name: TableName) -> int:
    table = TABLES[name]
    columns = make_columns(table)
    filters = {one.name: str(getattr(args, one.name, None) or "") for one in table.filters}
    if filters.get("queue"):
        filters["subtree"] = "true"
    is_tree = table.is_tree and not (args.sort or filters["text"] or filters["state"] or filters["waiting"])
    is_wide = args.output == listing.WIDE

    def lay_out(found: Rows, frame: Frame) -> Sequence[Column]:
        """Return the columns for a terminal, with bars, and without limits and reasons that no row has."""
        if not frame.screen.is_terminal:
            return columns
        shown = [one for one in columns if one.name not in _find_empty(table, found.rows)]
        if is_tree:
            shown[0] = shown[0]._replace(cell=indent_path)
        if table.bars is None:
            return shown
        kinds = _choose_kinds(table, found, is_wide=is_wide)
        replaced = {table.bars.used[0], table.bars.total} | (set() if is_wide else set(table.bars.used))
        rest = [one for one in shown[2:] if one.name not in replaced]
        return [*shown[:2], *draw_bars(table, found.rows, kinds), *rest]

    return _show_table(args, name, columns, filters, lay_out)


def _find_empty(table: columns.Table, rows: Sequence[Row]) -> set[str]:
    """Return the columns with limits or reasons, of which no row has any."""
    few = (one.name for one in table.columns if one.kind in (Kind.CODE, Kind.LIMITS))
    return {name for name in few if not any(row.get(name) for row in rows)}


def _choose_kinds(table: columns.Table, found: Rows, *, is_wide: bool) -> list[str]:
    """Return the resource types with a bar: those of interest, if not all."""
    kinds = list_kinds(dict.fromkeys(found.resources))
    if is_wide:
        return kinds
    bars = table.bars
    assert bars is not None, table.noun
    names = (*bars.used, bars.guaranteed, bars.pending) if bars.pending else (*bars.used, bars.total)
    amounts = [as_amount(row.get(name)) or {} for row in found.rows for name in names]
    used = {kind for one in amounts for kind, value in one.items() if value}
    return [kind for kind in kinds if kind in {"vcore", "memory", *used} and kind != "pods"][:BARS_MAX]


def _show_table(
    args: argparse.Namespace, name: TableName, columns: Sequence[Column], filters: Mapping[str, str], layout: Layout
) -> int:
    """Print a table of one or all partitions, with the options of lists; return the exit status."""
    rest, noun = Rest.from_arguments(args), TABLES[name].noun
    check_sort(args.sort, (*columns, PARTITION))  # before the system is asked for anything
    partitions = choose_partitions(rest, args)
    fetch: Fetch = lambda wanted: read_table(rest, name, partitions, filters, wanted)  # noqa: E731
    if len(partitions) == 1:
        return show_list(args, noun, columns, fetch, layout=layout)
    with_partition: Layout = lambda rows, frame: [*layout(rows, frame), PARTITION]  # noqa: E731
    return show_list(args, noun, (*columns, PARTITION), fetch, layout=with_partition)


def read_table(
    rest: Rest,
    name: TableName,
    partitions: Sequence[str],
    filters: Mapping[str, str],
    wanted: Wanted,
) -> Rows:
    """Return the rows of a table of these partitions, each with the key `partition`."""
    found = Rows([], 0, [])
    sort = "" if wanted.sort.lstrip("-") == PARTITION.name else wanted.sort
    missing: RequestFailed | None = None
    for partition in partitions:
        try:
            one = _read_one(rest, name, partition, {**filters, "sort": sort}, wanted.limit)
        except RequestFailed as failed:
            if len(partitions) == 1 or failed.code not in (NOT_FOUND, *NOT_READY):
                raise
            if failed.code == NOT_FOUND:
                missing = failed  # such a queue may exist in another partition
            else:
                found.problems.append(f"partition {partition} is missing: {failed}")
            continue
        found.rows += one.rows
        found.total += one.total
        found.resources = sorted({*found.resources, *one.resources})
    if missing is not None and not found.total and not found.problems:
        raise missing
    if len(partitions) == 1:
        found.is_sorted = True
    return found


def _read_one(rest: Rest, name: TableName, partition: str, query: Mapping[str, str], limit: int) -> Rows:
    """Return the rows of a table of one partition, in as many requests as their number needs."""
    rows: list[Row] = []
    while True:
        size = min(limit - len(rows), ROWS_MAX) if limit else ROWS_MAX
        page = {**query, "limit": str(size), "offset": str(len(rows)) if rows else ""}
        answer = read_object(rest, partition, "table", name, query=page).decode(dict[str, object])
        columns, found = as_list(answer.get("columns")), answer.get("rows")
        found = found if isinstance(found, list) else []
        names = (*columns, "partition")
        rows += [dict(zip(names, (*values, partition), strict=False)) for values in found]
        total = answer.get("total")
        total = total if isinstance(total, int) else len(rows)
        if not found or len(rows) >= min(total, limit or total):
            return Rows(rows, total, as_list(answer.get("resources")))


# Changes --------------------------------------------------------------------------------------------------------------


def change_actions(name: TableName) -> dict[str, Action]:
    """Return the actions of the catalogue that change an object."""
    return {one.name: _declare_change(name, one) for one in TABLES[name].actions}


def _declare_change(name: TableName, action: columns.Action) -> Action:
    def add(parser: argparse.ArgumentParser) -> None:
        add_change_options(parser, name, action)

    return Action(
        action.about, add, lambda args: run_change(args, send_change(Rest.from_arguments(args), args, name, action))
    )


def add_change_options(parser: argparse.ArgumentParser, name: TableName, action: columns.Action) -> None:
    """Add the object, the arguments of the action and the options of all changes."""
    noun = TABLES[name].noun
    parser.add_argument(noun, metavar=noun.upper(), help=f"the {noun}")
    for one in action.arguments:
        about = one.meaning[0].lower() + one.meaning[1:].removesuffix(".")
        option = one.name if one.is_required else f"--{one.name}"
        parser.add_argument(option, metavar=one.name.upper() if one.is_required else "TEXT", help=about)
    add_partition(parser, default=f"the one that has the {noun}")
    add_rest(parser)


def send_change(rest: Rest, args: argparse.Namespace, name: TableName, action: columns.Action) -> Answer:
    """Request a change of the object that the options name."""
    noun = TABLES[name].noun
    of = str(getattr(args, noun))
    args.partition = args.partition or _find_partition(rest, noun, of)  # also for a repetition
    query = {one.name: str(getattr(args, one.name) or "") for one in action.arguments}
    with hint_if_missing(lambda message: _hint_at_object(rest, args, message)):
        return rest.in_partition(args.partition, noun, of, action.name, query=query)


def run_change(args: argparse.Namespace, answer: Answer) -> int:
    """Print the outcome of a change; return the exit status."""
    if args.json:
        return answer.print()
    write(as_text(answer.decode(dict[str, object]).get("outcome")) or "done")
    return 0


def _find_partition(rest: Rest, kind: str, name: str) -> str:
    """Return the only partition that has the object; the only one of the system without a request for it."""
    partitions = rest.partitions()
    return partitions[0] if len(partitions) == 1 else find_only(rest, partitions, kind, name)[0]


_LIST_COMMANDS: Final = {"queue": "queue list", "application": "app list", "node": "node list"}
"""First word of a 404 message, which names the kind of thing that is missing, to the command that lists that kind."""


def _hint_at_object(rest: Rest, args: argparse.Namespace, message: str) -> str:
    kind = message.partition(" ")[0].lower()
    if kind not in _LIST_COMMANDS:
        return ""
    near = suggest_name(rest, [args.partition], kind, as_text(getattr(args, kind, "")))
    return near or f": `yunishard {_LIST_COMMANDS[kind]}` shows those there are"


# Objects --------------------------------------------------------------------------------------------------------------

Facts = list[tuple[str, Text]]
Amounts = list[tuple[str, dict[str, int] | None]]


def draw_object(
    screen: Screen, name: TableName, row: Row, facts: Facts | None = None, amounts: Amounts | None = None
) -> list[str]:
    """Return the lines about one object: what its row has, then these facts and amounts."""
    table, frame = TABLES[name], Frame(screen, time.time_ns())
    shown = table.list_columns(View.DETAIL)
    listed: Facts = [(one.words, _show_fact(table, one, row, frame)) for one in shown if not one.has_amounts]
    listed.insert(1, (PARTITION.name, as_text(row.get(PARTITION.name))))
    lines = draw_facts(screen, [*listed, *(facts or ())])
    columns = [(one.words, as_amount(row.get(one.name))) for one in shown if one.has_amounts]
    return [*lines, "", *draw_amounts(screen, [*columns, *(amounts or ())])]


def _show_fact(table: columns.Table, one: columns.Column, row: Row, frame: Frame) -> Text:
    """Return the text of a fact; empty if there is nothing to say."""
    value = row.get(one.name)
    if value in (None, "", []) or (one.kind is Kind.TIME and not value):
        return ""
    text = make_column(table, one).show([row], frame)[0]
    return f"{text} ({format_time(int(as_number(value) or 0))})" if one.kind is Kind.TIME else text


def read_row(rest: Rest, partition: str, name: TableName, of: str) -> Row:
    """Return the row of one object, which has just been found; without values if it is gone by now."""
    key = TABLES[name].key
    try:
        found = read_table(rest, name, [partition], {key: of}, Wanted()).rows
    except RequestFailed as failed:
        if failed.code != NOT_FOUND:
            raise
        found = []
    return next((row for row in found if row.get(key) == of), {key: of, PARTITION.name: partition})


def read_object(rest: Rest, partition: str, *path: str, query: Mapping[str, str] | None = None) -> Answer:
    """Request something of a partition. If it does not exist, the failure names what is nearest."""
    with hint_if_missing(lambda message: _find_hint(rest, message, partition, path)):
        return rest.in_partition(partition, *path, query=query or {}, method="GET")


def find_object(rest: Rest, args: argparse.Namespace, kind: str, name: str) -> tuple[str, Answer]:
    """Return the only partition that has an object, and the object.

    Raises:
        CommandFailed: no partition has it, or several have.
    """
    partitions = choose_partitions(rest, args)
    if len(partitions) == 1:
        return partitions[0], read_object(rest, partitions[0], kind, name)
    return find_only(rest, partitions, kind, name)


def find_only(rest: Rest, partitions: Sequence[str], kind: str, name: str) -> tuple[str, Answer]:
    """Return the only one of these partitions that has an object, and the object.

    Raises:
        CommandFailed: no partition has it, or several have.
    """
    found: list[tuple[str, Answer]] = []
    for partition in partitions:
        try:
            found.append((partition, rest.get("partition", partition, kind, name)))
        except RequestFailed as failed:
            if failed.code != NOT_FOUND:
                raise
    if not found:
        names = ", ".join(partitions) or "none"
        near = suggest_name(rest, partitions, kind, name)
        what = "active application" if kind == "application" else kind  # it may have ended
        raise CommandFailed(f"no partition has {_article(what)} {what} {name}{near or f' (partitions: {names})'}")
    if len(found) > 1:
        names = ", ".join(partition for partition, _ in found)
        raise CommandFailed(
            f"several partitions have {_article(kind)} {kind} {name}: name one with --partition: {names}"
        )
    return found[0]


def _article(kind: str) -> str:
    return "an" if kind[0] in "aeiou" else "a"


def _find_hint(rest: Rest, message: str, partition: str, path: Sequence[str]) -> str:
    kind = path[0] if path else ""
    if kind in _TABLES_OF and len(path) > 1 and kind in message.lower():
        return suggest_name(rest, [partition], kind, path[1])
    return ""


def suggest_name(rest: Rest, partitions: Sequence[str], kind: str, name: str) -> str:
    """Return the question whether the object with the nearest name was meant; empty if none is near."""
    table = _TABLES_OF[kind]
    names: list[str] = []
    for partition in partitions:
        try:
            rows = _read_one(rest, table, partition, {}, NAMES_MAX).rows
        except CommandFailed:
            continue  # the first failure is the one to report
        names += [as_text(row.get(TABLES[table].key)) for row in rows]
    return suggest(name, names)
