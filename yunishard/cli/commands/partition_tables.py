"""Read the tables and the objects of partitions for the commands: of one partition, or of all that the system has.

Without `--partition` a list has the rows of all partitions, with a column for the partition if there are several. An
object is looked for in all of them; a failure names what is nearest. A partition that does not answer is reported, and
the others are listed.

Not here: HTTP (`rest.py`), columns and output (`listing.py`).
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from yunishard.cli.commands.listing import (
    PARTITION,
    Column,
    Fetch,
    Layout,
    Row,
    Rows,
    Wanted,
    as_list,
    as_text,
    check_sort,
    show_list,
)
from yunishard.cli.commands.rest import NOT_FOUND, NOT_READY, Answer, RequestFailed, Rest, hint_if_missing
from yunishard.cli.main import CommandFailed, suggest
from yunishard.common.rest.table_definitions import ROWS_MAX, TABLES, TableName

NAMES_MAX: Final = 2000
"""Names that are compared with a misspelt one; of more, only the first ones are."""

_TABLES_OF: Final[Mapping[str, tuple[TableName, str]]] = {
    "queue": ("queues", "queue"),
    "application": ("applications", "application"),
    "node": ("nodes", "node"),
}
"""Kind of object to the table and the column with the names of all objects of that kind."""


def add_partition(parser: argparse.ArgumentParser, *, default: str = "all") -> None:
    """Add the option for the partition."""
    parser.add_argument("--partition", metavar="PARTITION", default="", help=f"the partition (default: {default})")


def choose_partitions(rest: Rest, args: argparse.Namespace) -> list[str]:
    """Return the partition that the options name, or else all."""
    return [args.partition] if args.partition else rest.partitions()


def parse_state(name: TableName) -> Callable[[str], str]:
    """Return a parser of the filter `--state` of a table."""

    def parse(text: str) -> str:
        states, state = TABLES[name].states, text.lower()
        if state not in states:
            near = suggest(state, states)
            raise argparse.ArgumentTypeError(f"unknown state {text[:32]!r}{near or ': there are ' + ', '.join(states)}")
        return state

    return parse


# Tables ---------------------------------------------------------------------------------------------------------------


def show_table(
    args: argparse.Namespace,
    name: TableName,
    columns: Sequence[Column],
    filters: Mapping[str, str],
    layout: Layout | None = None,
) -> int:
    """Print a table of one or all partitions, with the options of lists; return the exit status."""
    rest = Rest.from_arguments(args)
    check_sort(args.sort, (*columns, PARTITION))  # before the system is asked for anything
    partitions = choose_partitions(rest, args)
    fetch: Fetch = lambda wanted: read_table(rest, name, partitions, filters, wanted, columns)  # noqa: E731
    if len(partitions) == 1:
        return show_list(args, name.removesuffix("s"), columns, fetch, layout=layout)
    of_all = (*columns, PARTITION)
    with_partition: Layout | None = layout and (lambda rows, frame: [*layout(rows, frame), PARTITION])
    return show_list(args, name.removesuffix("s"), of_all, fetch, layout=with_partition)


def read_table(
    rest: Rest,
    name: TableName,
    partitions: Sequence[str],
    filters: Mapping[str, str],
    wanted: Wanted,
    columns: Sequence[Column] = (),
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


# Objects --------------------------------------------------------------------------------------------------------------


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


def find_only(
    rest: Rest, partitions: Sequence[str], kind: str, name: str, *, adjective: str = ""
) -> tuple[str, Answer]:
    """Return the only one of these partitions that has an object, and the object. The failure that none has it calls
    the object by the adjective, too.

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
        what = f"{adjective} {kind}".lstrip()
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
    table, column = _TABLES_OF[kind]
    names: list[str] = []
    for partition in partitions:
        try:
            rows = _read_one(rest, table, partition, {}, NAMES_MAX).rows
        except CommandFailed:
            continue  # the first failure is the one to report
        names += [as_text(row.get(column)) for row in rows]
    return suggest(name, names)
