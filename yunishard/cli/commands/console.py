"""Input and output that the commands share: actions, JSON, reading a configuration file.

Not here: dispatch and exit codes (`yunishard/cli/main.py`), tables (`common/process/terminal.py`), requests to a
running system (`rest.py`).
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from yunishard.cli.main import CommandFailed, CommandUnusable, HelpFormatter
from yunishard.common.process.terminal import write_text
from yunishard.common.text_formats import describe_file_error, format_bytes

if TYPE_CHECKING:
    from yunishard.common.config.problems import Problem

STDIN: Final = "-"
"""In place of a file name: standard input."""


def add_actions(parser: argparse.ArgumentParser, actions: Mapping[str, str]) -> dict[str, argparse.ArgumentParser]:
    """Add actions with their summaries to the parser of a command; return their parsers."""
    branch = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    return {
        name: branch.add_parser(
            name,
            help=about,
            description=f"{about[0].upper()}{about[1:]}.",
            allow_abbrev=False,
            formatter_class=HelpFormatter,
        )
        for name, about in actions.items()
    }


class Action(NamedTuple):
    """An action of a command: its summary, its options, and what it does."""

    about: str
    add: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def add_action_table(parser: argparse.ArgumentParser, actions: Mapping[str, Action]) -> None:
    """Add the actions of a table to the parser of a command; it runs `actions[args.action].run(args)`."""
    for name, own in add_actions(parser, {name: action.about for name, action in actions.items()}).items():
        actions[name].add(own)


def config_directory() -> Path:
    """Return the user's directory for keys and tokens: `$XDG_CONFIG_HOME/yunishard`."""
    home = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".config") / "yunishard"


def print_json(document: object) -> None:
    """Print a JSON document."""
    write_text(json.dumps(document, indent=2, ensure_ascii=False))


def format_file_name(file: str) -> str:
    """Return a file name for messages."""
    return "<stdin>" if file == STDIN else file


def read_configuration(file: str) -> str:
    """Read the text of a configuration file.

    Raises:
        CommandUnusable: it cannot be read, or is no UTF-8 text.
        CommandFailed: it is larger than any system accepts.
    """
    from yunishard.common.config.parse import TEXT_BYTES_MAX  # imported here, as most commands start faster without

    problem = f"{format_file_name(file)}: cannot be read:"
    try:
        with nullcontext(sys.stdin.buffer) if file == STDIN else Path(file).open("rb") as opened:
            data = opened.read(TEXT_BYTES_MAX + 1)
        if len(data) > TEXT_BYTES_MAX:
            most = format_bytes(TEXT_BYTES_MAX)
            raise CommandFailed(f"{problem} larger than {most}, the most a configuration may have")
        return data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandUnusable(f"{problem} {describe_file_error(error)}") from None


def format_problem(file: str, problem: "Problem", label: str = "") -> str:
    """Format a problem of a configuration in one line, place first, as compilers do."""
    from yunishard.common.config.problems import UNKNOWN_LINE

    place = format_file_name(file) if problem.line == UNKNOWN_LINE else f"{format_file_name(file)}:{problem.line}"
    path = f"{problem.path}: " if problem.path else ""
    hint = f" ({problem.hint})" if problem.hint else ""
    return " ".join(f"{place}: {label}{path}{problem.message}{hint}".splitlines())
