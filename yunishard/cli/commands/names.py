"""`yunishard complete`: names from the running system, for the completion scripts (`yunishard completion`).

A shell calls it while a user types, so it is fast and silent: if the system does not answer at once, refuses, or has no
such names, it prints nothing and succeeds. It takes the address, the token and the partition from the command line
that is being completed.

Not here: the scripts (`yunishard/cli/main.py`).
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from yunishard.cli.commands.listing import Wanted, as_text
from yunishard.cli.commands.partition_tables import read_table
from yunishard.cli.commands.rest import REST_DEFAULT, Rest, find_url
from yunishard.common.rest.catalogue import TABLES, TableName

ANSWER_MAX_S: Final = 1.0
"""Seconds that a shell waits for names; later there are none."""

ROWS_MAX: Final = 2000
"""Rows that are searched for names with the prefix."""

NAMES_MAX: Final = 300
"""Names that are offered; of more, only the first ones are."""

_OPTIONS: Final = ("--rest", "--ca", "--token-file", "--partition", "--app")


def add_complete_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `yunishard complete`."""
    parser.add_argument("kind", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("prefix", metavar="PREFIX", nargs="?", default="", help="the beginning of the name")
    parser.add_argument("words", metavar="WORD", nargs="*", help="the words of the command line, after --")


def run_complete(args: argparse.Namespace) -> int:
    """Print names from the running system that begin with PREFIX, one on a line. The
    completion scripts use it; it prints nothing if the system does not answer.

    examples:
      yunishard complete queue root.re
      yunishard complete application sp -- yunishard app show --rest http://db1:9080
    """
    try:
        names = find_names(args.kind, args.prefix, parse_options(args.words or ()))
    except Exception:
        return 0
    sys.stdout.writelines(f"{name}\n" for name in names[:NAMES_MAX])
    return 0


def parse_options(words: Sequence[str]) -> dict[str, str]:
    """Return the values of the options in a command line that determine where names come from."""
    found: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if name in _OPTIONS:
            found[name] = value if equals else following
    return found


def find_names(kind: str, prefix: str, options: dict[str, str]) -> list[str]:
    """Return the names of this kind that begin with the prefix, sorted."""
    rest = Rest(
        options.get("--rest") or find_url() or REST_DEFAULT,
        options.get("--ca"),
        options.get("--token-file"),
        answer_max_s=ANSWER_MAX_S,
    )
    return sorted(
        {name for name in KINDS[kind](rest, prefix, options) if name.startswith(prefix) and name.isprintable()}
    )


Find = Callable[[Rest, str, dict[str, str]], Iterable[str]]


def _find_in(name: TableName) -> Find:
    def find(rest: Rest, prefix: str, options: dict[str, str]) -> Iterable[str]:
        partitions = [options["--partition"]] if options.get("--partition") else rest.partitions()
        filters = {"text": prefix, "application": options.get("--app", "") if name == "asks" else ""}
        found = read_table(rest, name, partitions, filters, Wanted(limit=ROWS_MAX))
        return (as_text(row.get(TABLES[name].key)) for row in found.rows)

    return find


def _find_queues(rest: Rest, prefix: str, options: dict[str, str]) -> Iterable[str]:
    """The queues of the level that is being typed, because all queues below would be too many."""
    return ((".".join(name.split(".")[: prefix.count(".") + 1])) for name in _find_in("queues")(rest, prefix, options))


KINDS: Final[dict[str, Find]] = {
    **{table.noun: _find_in(name) for name, table in TABLES.items()},
    "queue": _find_queues,
    "partition": lambda rest, prefix, options: rest.partitions(),
    "rm": lambda rest, prefix, options: rest.rm_ids(),
}
"""Kinds of names, and how they are found."""
