"""The command `yunishard`: finds the subcommand, and nothing else.

A subcommand is a module with `add_arguments(parser)` and `main(args) -> int`, named here and imported only when it is
used, so that `yunishard --help` answers at once and the command line depends on no part of the system.

Not here: what the subcommands do.
"""

import argparse
import importlib
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

PROGRAM: Final = "yunishard"
INTERRUPTED: Final = 130

ABOUT: Final = """\
A resource scheduler for multi-tenant clusters: hierarchical queues, and one
worker process for each partition."""

MORE: Final = """\
examples:
  yunishard up                                 start the system
  yunishard up --ephemeral --config FILE       own queues, leaves nothing behind
  yunishard replay LOG.swf.gz --local          replay a workload log
  source <(yunishard completion bash)          complete options in this shell

exit codes:
  0    done
  1    it ran, but what it was to do did not succeed
  2    wrong usage, or it cannot start
  130  interrupted"""


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
    "replay": Command("shim.replay.command", "replay a workload log through the system"),
    "completion": Command("shim.completion", "print a completion script for your shell"),
}


class _Version(argparse.Action):
    """Looks the version up only when asked: that takes longer than all the rest."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        sys.stdout.write(f"{PROGRAM} {version(PROGRAM)}\n")
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
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(words: Sequence[str]) -> int:
    parser = parser_of(words[:1])  # what stands before the subcommand can only be --help or --version
    if not words:
        parser.print_help(sys.stderr)
        return 2
    args, unknown = parser.parse_known_args(words)
    if unknown:
        parser.error(f"{' '.join(unknown)}: unknown here, see {PROGRAM} {args.command} --help")
    return COMMANDS[args.command].run(args)
