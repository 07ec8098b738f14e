"""`yunishard validate FILE...`: everything that is wrong with a `queues.yaml`, without a running system.

Three kinds of problems count: what the text may not say, what it may say although no partition can be made of it, and
placement rules that cannot be built. What is allowed and hardly meant is a warning, and so is a queue with another
parent in another partition, unless it is to be an error.

Not here: the rules themselves (`common/config/`).
"""

import argparse
import sys
from dataclasses import dataclass, field
from typing import Final

from common.config.model import root_place
from common.config.placement_rules import find_rule_problems
from common.config.problems import UNKNOWN_LINE, ConfigError, Problem
from common.config.validation import find_build_problems, find_hierarchy_problems, find_name_problems, validate
from common.config.warnings import find_warnings
from common.config.yaml_nodes import TEXT_BYTES_MAX
from common.text_formats import format_count
from yunishard.commands.console import REFUSED, STDIN, UNUSABLE, print_json, read_bounded

VALID: Final = 0

MODES: Final = ("off", "warn", "enforce")

ABOUT: Final = """\
Check queue configurations as the core would, and list every problem as
`FILE:LINE: PATH: MESSAGE (HINT)`. Needs no running system."""

MORE: Final = """\
problems of kind `load`, `rules` and `partition-name` keep a partition from
being built, although the text is allowed; a system that runs would refuse it
and go on with what it has. Warnings of kind `doubt` are for what is allowed
and runs, but hardly does what was meant, such as a property whose value is
not taken.

examples:
  yunishard validate queues.yaml
  yunishard config get | yunishard validate -
  yunishard validate --json --same-hierarchy enforce conf/*.yaml

exit codes:
  0  all are valid; there may be warnings
  1  there are problems
  2  wrong usage, or a file cannot be read"""


def add_validate_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description, parser.epilog = ABOUT, MORE
    parser.add_argument("files", metavar="FILE", nargs="+", help=f"a queues.yaml; {STDIN} for standard input")
    parser.add_argument(
        "--same-hierarchy",
        choices=MODES,
        default="warn",
        metavar="|".join(MODES),
        help="what to say of a queue that has another parent in another partition (default: warn)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document: verdict, problems, warnings")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What there is to say of one file."""

    file: str
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    unreadable: str = ""
    """Why it could not be read; empty if it could."""
    queues: int = 0
    partitions: int = 0

    @property
    def status(self) -> int:
        """What to exit with if this were all."""
        return UNUSABLE if self.unreadable else REFUSED if self.problems else VALID


def run_validate(args: argparse.Namespace) -> int:
    """Judge all files; the exit status."""
    verdicts = [judged(file, args.same_hierarchy) for file in args.files]
    if args.json:
        print_json(document(verdicts))
    else:
        for verdict in verdicts:
            _tell(verdict)
    return max(verdict.status for verdict in verdicts)


def judged(file: str, mode: str) -> Verdict:
    """Read a file and judge it."""
    name = "<stdin>" if file == STDIN else file
    try:
        data = read_bounded(file)
    except OSError as error:
        return Verdict(name, unreadable=(error.strerror or str(error)).lower())
    if len(data) > TEXT_BYTES_MAX:
        return Verdict(name, unreadable=f"larger than {TEXT_BYTES_MAX:,} bytes, the most a configuration may have")
    try:
        return judgement(name, data.decode("utf-8"), mode)
    except UnicodeDecodeError as error:
        return Verdict(name, unreadable=f"not UTF-8 text (byte {error.start})")


def judgement(name: str, text: str, mode: str) -> Verdict:
    """Judge a text."""
    try:
        configuration, lines = validate(text)
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
    return Verdict(
        name,
        problems + (moved if mode == "enforce" else []),
        warnings,
        partitions=len(configuration.partitions),
        queues=sum(1 for partition in configuration.partitions for _ in root_place(partition, "").walk()),
    )


# Telling --------------------------------------------------------------------------------------------------------------


def document(verdicts: list[Verdict]) -> dict[str, object]:
    """The JSON document."""
    return {
        "valid": all(verdict.status == VALID for verdict in verdicts),
        "problems": [_entry(verdict.file, problem) for verdict in verdicts for problem in _problems(verdict)],
        "warnings": [_entry(verdict.file, problem) for verdict in verdicts for problem in verdict.warnings],
    }


def _problems(verdict: Verdict) -> list[Problem]:
    if verdict.unreadable:
        return [Problem(message=f"cannot be read: {verdict.unreadable}", kind="unreadable")]
    return verdict.problems


def _entry(file: str, problem: Problem) -> dict[str, object]:
    return {
        "file": file,
        "line": None if problem.line == UNKNOWN_LINE else problem.line,
        "path": problem.path,
        "message": problem.message,
        "hint": problem.hint,
        "kind": problem.kind,
    }


def _tell(verdict: Verdict) -> None:
    if verdict.unreadable:
        sys.stderr.write(f"yunishard validate: {verdict.file}: cannot be read: {verdict.unreadable}\n")
        return
    for problem in verdict.problems:
        sys.stdout.write(line_of(verdict.file, problem) + "\n")
    for problem in verdict.warnings:
        sys.stdout.write(line_of(verdict.file, problem, "warning: ") + "\n")
    if not verdict.problems:
        counts = f"{format_count(verdict.partitions, 'partition')}, {format_count(verdict.queues, 'queue')}"
        sys.stdout.write(f"{verdict.file}: valid, {counts}\n")


_CANNOT_BE_BUILT: Final = {"load": "cannot be loaded: ", "rules": "placement rules cannot be built: "}
"""What stands before problems that validation alone does not know, by kind."""


def line_of(file: str, problem: Problem, label: str = "") -> str:
    """A problem in one line, place first, as compilers write them."""
    place = file if problem.line == UNKNOWN_LINE else f"{file}:{problem.line}"
    path = f"{problem.path}: " if problem.path else ""
    hint = f" ({problem.hint})" if problem.hint else ""
    told = f"{place}: {label}{path}{_CANNOT_BE_BUILT.get(problem.kind, '')}{problem.message}{hint}"
    return " ".join(told.splitlines())
