"""The command `yunishard`: finds the subcommand, and nothing else.

A subcommand is a module with `add_arguments(parser)` and `main(args) -> int`, named here and imported only when it is
used, so that `yunishard --help` answers at once and the command line depends on no part of the system.

Not here: what the subcommands do.
"""

import argparse
import errno
import importlib
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

PROGRAM: Final = "yunishard"
NOT_DONE: Final = 1
INTERRUPTED: Final = 130
READER_GONE: Final = 141

_CANNOT_WRITE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What a standard output says that takes no more, as one on a full disk."""

ABOUT: Final = """\
A resource scheduler for multi-tenant clusters: hierarchical queues, and one
worker process for each partition."""

MORE: Final = """\
examples:
  yunishard up                                 start the system
  yunishard up --ephemeral --config FILE       own queues, leaves nothing behind
  yunishard validate queues.yaml               every problem, with its line
  yunishard config put queues.yaml             change queues while it runs
  yunishard app move spark-17 root.research    let it go on in another queue
  yunishard keys allow rm-1.key rm-1           let a resource manager in
  yunishard token alice --groups ops           let somebody in over REST
  yunishard journal show rm-1_default          what came, and what was told
  yunishard settings                           what is in force, and why
  yunishard replay LOG.swf.gz --local          replay a workload log
  source <(yunishard completion bash)          complete options in this shell

exit codes:
  0    done
  1    it ran, but what it was to do did not succeed
  2    wrong usage, or it cannot start
  130  interrupted
  141  nobody reads the output any more"""


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: where it is, and what it does in a few words."""

    module: str
    about: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Describe its options."""
        add_arguments: Callable[[argparse.ArgumentParser], None] = importlib.import_module(self.module).add_arguments
        add_arguments(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Do it; the exit status."""
        main: Callable[[argparse.Namespace], int] = importlib.import_module(self.module).main
        return main(args)


COMMANDS: Final = {
    "up": Command("deploy.up", "start the whole system and watch over it"),
    "replay": Command("yunishard.replay.command", "replay a workload log through the system"),
    "validate": Command("yunishard.validate", "check a queues.yaml"),
    "config": Command("yunishard.config", "show and change the queues of a running system"),
    "app": Command("yunishard.app", "kill an application, or move it to another queue"),
    "schedule": Command("yunishard.schedule", "make decisions step by step, in manual mode"),
    "keys": Command("yunishard.keys", "make keys for the native port, and say who may use them"),
    "token": Command("yunishard.token", "make a token for REST, or show what is in one"),
    "journal": Command("partition_worker.journal.cli", "look into the journal of a partition, and check it"),
    "settings": Command("yunishard.settings", "show every setting and where it came from"),
    "completion": Command("yunishard.completion", "print a completion script for your shell"),
}


class _Version(argparse.Action):
    """Looks the version up only when asked: that takes longer than all the rest."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        from common import compiled

        engine = " (compiled engine)" if compiled.used() else ""
        sys.stdout.write(f"{PROGRAM} {version(PROGRAM)}{engine}\n")
        parser.exit()


def parser_of(described: Collection[str]) -> argparse.ArgumentParser:
    """The whole command line, with the options of the subcommands that are to be described."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description=ABOUT,
        epilog=MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        own = commands.add_parser(name, help=command.about, allow_abbrev=False)
        if name in described:
            command.add_arguments(own)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status. Help and wrong usage leave by SystemExit, as argparse does."""
    if sys.stdout is None:  # closed by whoever started us, who wants to see nothing
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives
    try:
        try:
            status = _run(sys.argv[1:] if argv is None else argv)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader has gone, as in `yunishard config get | head -1`
        _write_no_more()
        return READER_GONE
    except OSError as error:
        if error.errno not in _CANNOT_WRITE or error.filename is not None:
            raise
        _write_no_more()
        sys.stderr.write(f"{PROGRAM}: standard output cannot be written: {(error.strerror or str(error)).lower()}\n")
        return NOT_DONE
    return status


_BEGINS_A_NUMBER: Final = re.compile(r"-\.?[0-9]")
"""What looks like an option and is a value, such as `-1s`: the command says what is wrong with it."""


def _write_no_more() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or leaving would complain once more


def _run(words: Sequence[str]) -> int:
    parser = parser_of(words[:1])  # what stands before the subcommand can only be --help or --version
    if not words:
        parser.print_help(sys.stderr)
        return 2
    if misplaced := _misplaced_options(parser, words):
        sys.stderr.write(f"{misplaced}\n")
        return 2
    args, unknown = _parsed(parser, words)
    if unknown:
        parser.error(f"{' '.join(unknown)}: unknown here, see {PROGRAM} {args.command} --help")
    _warn_of_variables(args.command)
    return COMMANDS[args.command].run(args)


def _misplaced_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """What is wrong with options that stand before the command, or before its action; empty if none do."""
    branch = _branch_of(parser)
    if branch is None or not words:
        return ""
    if words[0] in branch.choices:
        return _misplaced_options(branch.choices[words[0]], words[1:])
    if not words[0].startswith("-") or words[0] in parser._option_string_actions:
        return ""
    at = next((number for number, word in enumerate(words) if word in branch.choices), None)
    own = f"; see {parser.prog} --help" if at is None else f": {parser.prog} {shlex.join([*words[at:], *words[:at]])}"
    return f"{parser.prog}: {words[0]}: options come after the {str(branch.metavar).lower()}{own}"


def _branch_of(parser: argparse.ArgumentParser) -> "argparse._SubParsersAction[argparse.ArgumentParser] | None":
    """The commands or actions of a parser; None if it has none."""
    return next((one for one in parser._actions if isinstance(one, argparse._SubParsersAction)), None)


def _warn_of_variables(command: str) -> None:
    """Name variables of the environment that are probably misspelt. `up` has a log for that, and the completion script
    is read each time a shell starts.
    """
    if command in ("up", "completion") or not any(name.startswith("YUNISHARD_") for name in os.environ):
        return
    from deploy.environment import unknown_variables

    for line in unknown_variables(os.environ):
        sys.stderr.write(f"{PROGRAM} {command}: {line}\n")


def _parsed(parser: argparse.ArgumentParser, words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The words as arguments, and those that are unknown. Options may stand between files.

    argparse mixes them only for a parser without subcommands, so the one of the subcommand is asked itself.
    """
    args = argparse.Namespace()
    while branch := _branch_of(parser):
        if not words or words[0] not in branch.choices:
            return parser.parse_known_args(words, args)  # help, or wrong usage
        setattr(args, branch.dest, words[0])
        parser, words = branch.choices[words[0]], words[1:]
    parser._negative_number_matcher = _BEGINS_A_NUMBER
    return parser.parse_known_intermixed_args(words, args)
