"""`yunishard validate`: check queue configurations as the core would, without a running system.

Problems are invalid text, partitions that cannot be built from valid text, and placement rules that cannot be built.
Valid settings that are probably unintended are warnings. A queue with another parent in another partition is a warning,
too, unless an option makes it an error.

The docstring of `run_validate` is the help text. Not here: the rules themselves (`common/config/`).
"""

import argparse
import sys
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

import msgspec

from yunishard.cli.commands import console
from yunishard.cli.main import NOT_DONE, UNUSABLE, CommandFailed
from yunishard.common.config.model import root_place
from yunishard.common.config.placement_rules import find_rule_problems
from yunishard.common.config.problems import UNKNOWN_LINE, ConfigError, Problem
from yunishard.common.config.validation import (
    find_build_problems,
    find_hierarchy_problems,
    find_name_problems,
    validate,
)
from yunishard.common.config.warnings import find_warnings
from yunishard.common.process.terminal import write
from yunishard.common.text_formats import format_count

MODES: Final = ("off", "warn", "enforce")

_PREFIXES: Final = {"load": "cannot be loaded: ", "rules": "placement rules cannot be built: "}
"""Prefix of the message of problems that validation alone does not detect, by kind."""


def add_validate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard validate`."""
    parser.add_argument("files", metavar="FILE", nargs="+", help=f"a queues.yaml; {console.STDIN} for standard input")
    about = "how to report a queue that has another parent in another partition (default: warn)"
    modes = "|".join(MODES)
    parser.add_argument("--same-hierarchy", choices=MODES, default="warn", metavar=modes, help=about)
    parser.add_argument("--json", action="store_true", help="print one JSON document: verdict, problems, warnings")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The problems and warnings of one file."""

    file: str
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    counts: str = ""
    """Of partitions and queues, in words."""
    unreadable: str = ""
    """Why the file cannot be read."""


def run_validate(args: argparse.Namespace) -> int:
    """Check queue configurations as the core would, and list every problem as
    `FILE:LINE: PATH: MESSAGE (HINT)`. Needs no running system.

    problems of kind `load`, `rules` and `partition-name` keep a partition from
    being built, although the text is valid; a running system refuses the text and
    keeps its configuration. Warnings of kind `doubt` are for valid settings that
    are probably unintended, such as a property whose value has no effect.

    examples:
      yunishard validate queues.yaml
      yunishard config get | yunishard validate -
      yunishard validate --json --same-hierarchy enforce conf/*.yaml

    exit codes:
      0  all are valid; there may be warnings
      1  there are problems
      2  wrong usage, or a file cannot be read
    """
    verdicts = [validate_file(file, args.same_hierarchy) for file in args.files]
    if args.json:
        document = {
            "valid": not any(verdict.problems for verdict in verdicts),
            "problems": [_build_entry(verdict.file, one) for verdict in verdicts for one in verdict.problems],
            "warnings": [_build_entry(verdict.file, one) for verdict in verdicts for one in verdict.warnings],
        }
        console.print_json(document)
    else:
        for verdict in verdicts:
            _print_verdict(verdict)
    if any(verdict.unreadable for verdict in verdicts):
        return UNUSABLE
    return NOT_DONE if any(verdict.problems for verdict in verdicts) else 0


def validate_file(file: str, mode: str) -> Verdict:
    """Read and validate a file."""
    name = console.format_file_name(file)
    try:
        configuration, lines = validate(console.read_configuration(file))
    except CommandFailed as failed:
        problem = Problem(message=str(failed).removeprefix(f"{name}: "), kind="unreadable")
        return Verdict(name, [problem], unreadable=str(failed))
    except ConfigError as error:
        return Verdict(name, list(error.problems))
    problems = find_name_problems(configuration, lines)
    for index, partition in enumerate(configuration.partitions):
        path = f"partitions[{index}]"
        problems += find_build_problems(partition, path=path, lines=lines)
        problems += find_rule_problems(partition, path=path, lines=lines)
    moved = [] if mode == "off" else find_hierarchy_problems(configuration, lines)
    warnings = ([] if mode == "enforce" else moved) + find_warnings(configuration, lines)
    if not configuration.partitions:
        hint = "a resource manager that sends this gets the built-in queues"
        warnings = [Problem(message="there is no partition", kind="empty", hint=hint)]
    queues = sum(1 for partition in configuration.partitions for _ in root_place(partition, "").walk())
    counts = f"{format_count(len(configuration.partitions), 'partition')}, {format_count(queues, 'queue')}"
    return Verdict(name, problems + (moved if mode == "enforce" else []), warnings, counts)


def _build_entry(file: str, problem: Problem) -> dict[str, object]:
    fields = {name: getattr(problem, name) for name in ("line", "path", "message", "hint", "kind")}
    return {"file": file, **fields, "line": None if problem.line == UNKNOWN_LINE else problem.line}


def _print_verdict(verdict: Verdict) -> None:
    if verdict.unreadable:
        sys.stderr.write(f"yunishard validate: {verdict.unreadable}\n")
        return
    for problem in sorted(verdict.problems, key=attrgetter("line")):
        message = f"{_PREFIXES.get(problem.kind, '')}{problem.message}"
        write(console.format_problem(verdict.file, msgspec.structs.replace(problem, message=message)))
    for problem in sorted(verdict.warnings, key=attrgetter("line")):
        write(console.format_problem(verdict.file, problem, "warning: "))
    if not verdict.problems:
        write(f"{verdict.file}: valid, {verdict.counts}")
