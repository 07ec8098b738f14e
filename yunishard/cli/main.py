"""A resource scheduler for multi-tenant clusters: hierarchical queues, and one
worker process for each partition.

examples:
  yunishard up                                 start the system
  yunishard up --ephemeral --config FILE       own queues, leaves nothing behind
  yunishard up --simulated-nodes 100           nodes for an RM that has none
  yunishard fake-rm --nodes 20                 an RM that plays applications
  yunishard status                             what needs attention
  yunishard queue list --watch                 usage and limits of all queues
  yunishard app list --sort -pending           what waits
  yunishard explain app spark-17               why it waits, and what would help
  yunishard plan drain node-7                  who would be evicted, and where to
  yunishard validate queues.yaml               every problem, with its line
  yunishard config put queues.yaml             change queues while it runs
  yunishard app move spark-17 root.research    move it to another queue
  yunishard hosts drain a --wait               empty a host before its upgrade
  yunishard keys allow rm-1.key rm-1           allow a resource manager
  yunishard cluster init keys a b c            keys of three hosts of a system
  yunishard token alice --groups ops           a token for a user of REST
  yunishard journal show rm-1_default          recorded state of a partition
  yunishard backup /backup/monday              copy the state while it runs
  yunishard store init postgresql://db1/sched  prepare a database for --store
  yunishard k8s-shim                           schedule the pods of Kubernetes
  yunishard k8s-admission                      admission webhooks of Kubernetes
  yunishard settings                           every setting and its source
  yunishard replay LOG.swf.gz --local          replay a workload log
  yunishard simulate LOG.swf.gz --config FILE --nodes FILE    in virtual time
  source <(yunishard completion bash)          complete options in this shell

exit codes:
  0    done
  1    the command ran and failed, or was refused
  2    wrong usage, or the command cannot start
  130  interrupted (SIGINT, Ctrl-C)
  141  the reader of the output has ended
  143  terminated (SIGTERM)
"""

# The docstring is the help text. The modules of subcommands are imported only when they are used, so that
# `yunishard --help` answers at once and the command line depends on no part of the system.
# Not here: what the subcommands do.

import argparse
import errno
import importlib
import importlib.util
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Final, NamedTuple, NoReturn

PROGRAM: Final = "yunishard"
NOT_DONE: Final = 1
UNUSABLE: Final = 2
SIGNALLED: Final = 128
"""The exit status after a signal is this and its number."""

INTERRUPTED: Final = SIGNALLED + 2
READER_GONE: Final = 141

_CANNOT_WRITE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of a standard output that cannot be written, such as a file on a full disk."""


class CommandFailed(Exception):
    """A command failed; the text goes to standard error, and `status` is the exit status."""

    def __init__(self, text: str, *, status: int = NOT_DONE) -> None:
        super().__init__(text)
        self.status = status


class CommandUnusable(CommandFailed):
    """The command cannot start, or cannot use what it was given: wrong usage, a file, or the system it asks."""

    def __init__(self, text: str) -> None:
        super().__init__(text, status=UNUSABLE)


def suggest(word: str, known: Iterable[str]) -> str:
    """Return the question which of the known words was meant, to be appended to an error; empty if none is near.

    >>> suggest("lits", ["list", "show"]), suggest("x", ["list"])
    (": did you mean 'list'?", '')
    """
    from difflib import get_close_matches  # imported here, as only errors need it

    plain = {one.lower(): one for one in known}
    near = get_close_matches(word[:_WORD_MAX].lower(), plain, n=1, cutoff=_NEARNESS_MIN)
    return f": did you mean {plain[near[0]]!r}?" if near else ""


_NEARNESS_MIN: Final = 0.65
"""Ratio of `difflib` from which on a word is a probable misspelling of another one."""

_WORD_MAX: Final = 256
"""Characters of a word that are compared, which takes time that grows with their number."""


def parse_whole(low: int, high: int, wanted: str = "") -> Callable[[str], int]:
    """Return a parser of whole numbers within these bounds, for the `type` of an option."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", text) or not low <= int(text) <= high:
            what = wanted or f"a whole number from {low} to {high}"
            raise argparse.ArgumentTypeError(f"expected {what}, got {text[:32]!r}")
        return int(text)

    return parse


def check_by(parse: Callable[[str], object]) -> Callable[[str], str]:
    """Return a function that checks a text with the parser, and returns it as it is, for the `type` of an option."""

    def check(text: str) -> str:
        try:
            parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return check


ADDRESS_DEFAULT: Final = "tcp://127.0.0.1:9090"
"""The native port of a core on this host."""

CONNECT_ABOUT: Final = "the native port of the core, or several of them with commas between"


def add_core_options(
    parser: argparse.ArgumentParser,
    check: Callable[[str], object],
    *,
    where: argparse._ActionsContainer | None = None,
    about: str = CONNECT_ABOUT,
) -> None:
    """Add `--connect` and `--keys`, by which an RM reaches the core.

    Args:
        parser: The parser of the command.
        check: Raises ValueError for a text that names no addresses.
        where: The group of `--connect`, if it has one.
        about: The help of `--connect`, without the default.
    """
    (where or parser).add_argument(
        "--connect",
        dest="address",
        type=check_by(check),
        default=ADDRESS_DEFAULT,
        metavar="ADDRESS",
        help=f"{about} (default: {ADDRESS_DEFAULT})",
    )
    about = "the RM's secret key file; the core's server.key is in the same directory (default: $YUNISHARD_KEYS)"
    parser.add_argument("--keys", metavar="FILE", help=about)


Run = Callable[[argparse.Namespace], int]


class Command(NamedTuple):
    """A subcommand: its module, its summary, and the extra that installs what it needs beyond the SDK.

    The module has `add_NAME_arguments(parser)` and `run_NAME(args) -> int`, with `_` for each `-` in the name. The
    docstring of the latter is the help text: its first paragraph stands before the options, the others after them.
    """

    module: str
    about: str
    """Empty for a command that only scripts use, which the help does not list."""
    extra: str = "cli"
    """Empty if it needs nothing beyond the SDK."""

    def find_missing(self) -> str:
        """Return what this installation lacks for the command, as an error for users; empty if it lacks nothing."""
        name = next((name for name in EXTRAS.get(self.extra, ()) if importlib.util.find_spec(name) is None), "")
        if not name:
            return ""
        from importlib.metadata import distribution

        how = describe_installation(self.extra, distribution(PROGRAM).read_text("direct_url.json"))
        return f"needs the extra {self.extra!r} (module {name} is missing): {how}"

    @staticmethod
    def find_functions(name: str, module: ModuleType) -> tuple[Run, Callable[[argparse.ArgumentParser], None]]:
        """Return the function that runs the command, and the one that adds its options."""
        part = name.replace("-", "_")
        return getattr(module, f"run_{part}"), getattr(module, f"add_{part}_arguments")


def describe_installation(extra: str, source: str | None) -> str:
    """Return the command that adds an extra to an installation from this source, as pip has recorded it in
    `direct_url.json`: a file, folder or address; None for a package index.
    """
    import json
    from urllib.parse import unquote, urlsplit

    found = json.loads(source or "{}")
    url = urlsplit(found.get("url", ""))
    wanted = f"{unquote(url.path)}[{extra}]" if url.scheme == "file" else f"{PROGRAM}[{extra}]"
    if url.scheme not in ("", "file"):
        wanted += f" @ {found['url']}"
    editable = ["--editable"] if found.get("dir_info", {}).get("editable") else []
    return shlex.join([sys.executable, "-m", "pip", "install", *editable, wanted])


_CLI: Final = ("re2", "rich", "shtab", "textual", "yaml")

EXTRAS: Final = {
    "cli": _CLI,
    "server": (*_CLI, "cryptography", "grpc", "h11", "jwt", "prometheus_client", "starlette", "uvicorn", "uvloop"),
    "kubernetes": ("aiohttp", "cryptography", "prometheus_client", "re2", "uvloop", "yaml"),
}
"""Modules of other distributions that an extra installs (`pyproject.toml`)."""

_ADMINISTRATION: Final = "yunishard.cli.commands.administration"
_CREDENTIALS: Final = "yunishard.cli.commands.credentials"

COMMANDS: Final = {
    "up": Command("yunishard.deploy.up", "start the whole system and supervise it", "server"),
    "status": Command("yunishard.cli.commands.status", "show the system on one screen, and what needs attention"),
    "top": Command("yunishard.cli.commands.top", "show queues, applications, nodes and events live, full screen"),
    "queue": Command("yunishard.cli.commands.queue", "show queues with usage and limits; limit, stop and start one"),
    "app": Command("yunishard.cli.commands.app", "list, show, kill and move applications"),
    "ask": Command("yunishard.cli.commands.app", "list pending asks, and show one with the reasons why it waits"),
    "node": Command("yunishard.cli.commands.node", "list and show nodes with usage; cordon and drain one"),
    "user": Command("yunishard.cli.commands.usage", "list the usage and limits of users"),
    "group": Command("yunishard.cli.commands.usage", "list the usage and limits of groups"),
    "explain": Command("yunishard.cli.commands.explain", "explain why something waits, and what would let it run"),
    "plan": Command("yunishard.cli.commands.plan", "show what a change would do, or when a job would run"),
    "event": Command("yunishard.cli.commands.event", "list the events of a partition, and follow new ones"),
    "history": Command("yunishard.cli.commands.history", "show which applications ran, and usage of queues over time"),
    "rm": Command("yunishard.cli.commands.rm", "list the resource managers, and end one"),
    "config": Command(_ADMINISTRATION, "show and change the queues of a running system"),
    "validate": Command("yunishard.cli.commands.validate", "check a queues.yaml"),
    "hosts": Command("yunishard.cli.commands.hosts", "list and drain the hosts of a cluster, and spread partitions"),
    "schedule": Command(_ADMINISTRATION, "make decisions step by step, in manual mode"),
    "fake-rm": Command("yunishard.workloads.fake_rm.run", "connect a fake RM with simulated nodes and applications"),
    "replay": Command("yunishard.workloads.replay.run", "load-test the system with a workload log"),
    "simulate": Command(
        "yunishard.workloads.simulator.command", "simulate a workload in virtual time, and compare policies"
    ),
    "keys": Command(_CREDENTIALS, "create keys for the native port, and allow RMs to use them", ""),
    "cluster": Command("yunishard.cli.commands.cluster", "create and replace the keys between hosts of a system"),
    "token": Command(_CREDENTIALS, "create a token for REST, or show its claims", "server"),
    "journal": Command(
        "yunishard.journal_tools.command", "inspect, replay and export the journal of a partition", "server"
    ),
    "backup": Command("yunishard.store.backup", "copy the state of a system, also while it runs", "server"),
    "store": Command("yunishard.store.cli", "prepare a PostgreSQL store, or copy a system into it", "server"),
    "k8s-shim": Command("yunishard.kubernetes_shim.command", "schedule the pods of a Kubernetes cluster", "kubernetes"),
    "k8s-admission": Command(
        "yunishard.kubernetes_shim.admission.command",
        "serve the admission webhooks of Kubernetes",
        "kubernetes",
    ),
    "settings": Command("yunishard.cli.commands.settings", "show every setting and its source", "server"),
    "complete": Command("yunishard.cli.commands.names", ""),
    "completion": Command("yunishard.cli.main", "print a completion script for your shell"),
}


class _Version(argparse.Action):
    """Looks the version up only when asked, which takes longer than everything else in `--help`."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        from yunishard.common.process import compiled

        engine = "compiled" if compiled.is_engine_compiled() else "interpreted"
        sys.stdout.write(f"{PROGRAM} {version(PROGRAM)} ({engine} engine)\n")
        parser.exit()


def dedent(docstring: str) -> str:
    """Return a docstring without the indentation of its lines after the first, as `inspect.cleandoc` does in 10 ms."""
    first, *others = docstring.expandtabs().splitlines() or [""]
    margin = min((len(line) - len(line.lstrip()) for line in others if line.strip()), default=0)
    return "\n".join([first.lstrip(), *(line[margin:] for line in others)]).strip()


def _find_width() -> int:
    """Return the characters of a line of help."""
    columns = os.environ.get("COLUMNS", "")
    try:
        width = int(columns) if columns.isdecimal() else os.get_terminal_size(sys.__stdout__.fileno()).columns  # type: ignore[union-attr]
    except (AttributeError, OSError, ValueError):
        width = 0
    return (width or 80) - 2


class HelpFormatter(argparse.HelpFormatter):
    """Formats help. argparse makes one for each option that is defined, and its own loads shutil, which takes 10 ms."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_find_width())


class _Formatter(HelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of descriptions."""


def build_parser(described: Collection[str]) -> argparse.ArgumentParser:
    """Build the parser of the command line, with the options of the subcommands in `described`.

    If those are all known, there are no others: most starts need one, and each takes half a millisecond.
    """
    names = list(described) if described and all(name in COMMANDS for name in described) else list(COMMANDS)
    parser = argparse.ArgumentParser(prog=PROGRAM, formatter_class=_Formatter, allow_abbrev=False)
    parser.description, _, parser.epilog = (__doc__ or "").partition("\n\n")
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    for name in names:
        command = COMMANDS[name]
        own = commands.add_parser(name, help=command.about, allow_abbrev=False, formatter_class=_Formatter)
        if not command.about:
            commands._choices_actions.pop()  # the help does not list it
        if name in described and not command.find_missing():
            module = importlib.import_module(command.module)
            run, add_arguments = command.find_functions(name, module)
            own.description, _, own.epilog = dedent(run.__doc__ or "").partition("\n\n")
            add_arguments(own)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status. Help and wrong usage raise SystemExit, as in argparse."""
    if sys.stdout is None:  # the parent process closed it
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
    if any(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr)):
        from yunishard.common.process.terminal import protect_terminal

        protect_terminal()
    try:
        try:
            return _run(sys.argv[1:] if argv is None else argv)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader has ended, as in `yunishard config get | head -1`
        _discard_output()
        return READER_GONE
    except OSError as error:
        if error.errno not in _CANNOT_WRITE or error.filename is not None:
            raise
        _discard_output()
        sys.stderr.write(f"{PROGRAM}: standard output cannot be written: {(error.strerror or str(error)).lower()}\n")
        return NOT_DONE


DEFAULT_ACTION: Final = "default_action"
"""Default of a parser that names the action of words that begin with none, such as `yunishard explain NAME`."""

_BEGINS_A_NUMBER: Final = re.compile(r"-\.?[0-9]")
"""Values that look like an option, such as `-1s`: the command reports what is wrong with them."""


@contextmanager
def _raise_on_signals() -> Iterator[None]:
    """Let SIGINT and SIGTERM raise an exception, so that a command cleans up. Before and after it they end the process
    at once (`packaging/scripts/yunishard`): an exception in an import or at the interpreter's end is a traceback.
    """
    import signal  # takes longer than the parser

    def terminate(number: int, _: object) -> NoReturn:
        raise SystemExit(SIGNALLED + number)

    earlier = {
        number: signal.signal(number, handler)
        for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, terminate))
        if signal.getsignal(number) not in (signal.SIG_IGN, None) and _is_main_thread()
    }
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _is_main_thread() -> bool:
    import threading

    return threading.current_thread() is threading.main_thread()


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter fails again at its end


def _run(words: Sequence[str]) -> int:
    parser = build_parser(words[:1])  # before the subcommand there can only be --help or --version
    if not words:
        parser.print_help(sys.stderr)
        return UNUSABLE
    if words[0] in COMMANDS and (missing := COMMANDS[words[0]].find_missing()):
        parser.exit(UNUSABLE, f"{PROGRAM} {words[0]}: {missing}\n")
    args, unknown, own = parse_words(parser, words)
    if unknown:
        near = suggest(unknown[0].partition("=")[0], own._option_string_actions) if unknown[0].startswith("-") else ""
        parser.error(f"unknown option {' '.join(unknown)}{near or f'; see {own.prog} --help'}")
    _warn_of_variables(args.command)
    try:
        module = importlib.import_module(COMMANDS[args.command].module)
        run, _ = COMMANDS[args.command].find_functions(args.command, module)
        with _raise_on_signals():
            return run(args)
    except CommandFailed as failed:
        text, status = str(failed), failed.status
    except OSError as error:
        if error.filename is None:
            raise  # of standard output, see `main`
        text, status = f"{error.filename}: {(error.strerror or str(error)).lower()}", UNUSABLE
    from yunishard.common.process.terminal import clean_output

    where = " ".join([PROGRAM, args.command, *vars(args).get("action", "").split()])
    sys.stderr.write(f"{where}: {clean_output(text)}\n")
    return status


_CLIENT_VARIABLES: Final = ("YUNISHARD_URL", "YUNISHARD_TOKEN_FILE")
"""Variables that commands read and that need no check, which takes 50 ms."""


def _warn_of_variables(command: str) -> None:
    """Report variables of the environment that are probably misspelt.

    `up` writes them to its log, and each start of a shell runs `completion`.
    """
    if command in ("up", "complete", "completion") or not any(
        name.startswith("YUNISHARD_") and name not in _CLIENT_VARIABLES for name in os.environ
    ):
        return
    if COMMANDS["up"].find_missing():
        return  # where most variables mean nothing
    from yunishard.deploy.settings import find_unknown_variables

    for line in find_unknown_variables(os.environ):
        sys.stderr.write(f"{PROGRAM} {command}: {line}\n")


def parse_words(
    parser: argparse.ArgumentParser, words: Sequence[str]
) -> tuple[argparse.Namespace, list[str], argparse.ArgumentParser]:
    """Parse the words; return the arguments, the unknown words, and the parser of the command or action. Options may
    stand between files.

    argparse supports that only in a parser without subcommands, so this calls the parser of the subcommand.
    """
    args = argparse.Namespace()
    while branch := next((one for one in parser._actions if isinstance(one, argparse._SubParsersAction)), None):
        if not words or words[0] not in branch.choices:
            if _begins_default_action(parser, branch, words):
                words = [parser.get_default(DEFAULT_ACTION), *words]
                continue
            _refuse_misplaced_option(parser, branch, words)
            if words and not words[0].startswith("-") and (action := parser.get_default(DEFAULT_ACTION)):
                words = [action, *words]
                continue
            if words and not words[0].startswith("-"):
                kind = str(branch.metavar).lower()
                known = [one.dest for one in branch._choices_actions]  # those that the help lists
                near = suggest(words[0], known)
                parser.error(f"unknown {kind} {words[0][:64]!r}{near or ': there are ' + ', '.join(known)}")
            return *parser.parse_known_args(words, args), parser  # prints help or an error
        setattr(args, branch.dest, words[0])
        parser, words = branch.choices[words[0]], words[1:]
    parser._negative_number_matcher = _BEGINS_A_NUMBER
    return *parser.parse_known_intermixed_args(_join_orders(words), args), parser


def _begins_default_action(
    parser: argparse.ArgumentParser,
    branch: "argparse._SubParsersAction[argparse.ArgumentParser]",
    words: Sequence[str],
) -> bool:
    """Whether the words begin with an option of the default action, and none of them names an action."""
    default = branch.choices.get(parser.get_default(DEFAULT_ACTION) or "")
    first = words[0].partition("=")[0] if words else ""
    return (
        default is not None
        and first in default._option_string_actions
        and first not in parser._option_string_actions
        and not any(word in branch.choices for word in words)
    )


def _join_orders(words: Sequence[str]) -> list[str]:
    """Return the words with `--sort -COLUMN` as one word, because argparse takes the second one for an option."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] == "--sort" and re.fullmatch(r"-[A-Za-z][A-Za-z.]+[^ ]*", word):
            joined[-1] = f"--sort={word}"
        else:
            joined.append(word)
    return joined


def _refuse_misplaced_option(
    parser: argparse.ArgumentParser,
    branch: "argparse._SubParsersAction[argparse.ArgumentParser]",
    words: Sequence[str],
) -> None:
    """Exit with an error if the words begin with an option before the command, or before its action."""
    if not words or not words[0].startswith("-") or words[0] in parser._option_string_actions:
        return
    at = next((number for number, word in enumerate(words) if word in branch.choices), None)
    own = f"; see {parser.prog} --help" if at is None else f": {parser.prog} {shlex.join([*words[at:], *words[:at]])}"
    text = f"{parser.prog}: {words[0]}: options come after the {str(branch.metavar).lower()}{own}"
    parser.exit(UNUSABLE, f"{text}\n")


# yunishard completion -------------------------------------------------------------------------------------------------


def add_completion_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard completion`."""
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")


def run_completion(args: argparse.Namespace) -> int:
    """Print a completion script for your shell. It completes commands, options and files,
    and names of queues, applications, nodes and users from the running system.

    bash   source <(yunishard completion bash)                      in ~/.bashrc
    zsh    eval "$(yunishard completion zsh)"         in ~/.zshrc, after compinit
    fish   yunishard completion fish > ~/.config/fish/completions/yunishard.fish
    """
    import shtab  # imported here, as no other command uses it

    parser = build_parser(COMMANDS)
    names = {metavar: _complete_names(kind) for metavar, kind in _NAMES.items()}
    _complete_values(parser, {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY, **names})
    sys.stdout.write(shtab.complete(parser, args.shell) + "\n")
    return 0


_NAMES: Final = {
    "APP": "application",
    "APPLICATION": "application",
    "ASK": "ask",
    "GROUP": "group",
    "NODE": "node",
    "PARTITION": "partition",
    "QUEUE": "queue",
    "RM": "rm",
    "USER": "user",
}
"""Metavar to the kind of names that `yunishard complete` finds for it."""


def _complete_names(kind: str) -> dict[str, object]:
    """Return how shtab completes names of the running system in each shell."""
    bash = f"_{PROGRAM}_{kind}"
    zsh = f"_{PROGRAM}_names"
    return {
        "bash": bash,
        "zsh": f"{zsh} {kind}",
        "fish": f"({PROGRAM} complete {kind} (commandline -ct) -- (commandline -opc) 2>/dev/null)",
        "preamble": {
            "bash": f'{bash}() {{ "${{COMP_WORDS[0]}}" complete {kind} "$1" -- "${{COMP_WORDS[@]}}" 2>/dev/null; }}',
            "zsh": f"""{zsh}() {{
  local -a names
  names=(${{(f)"$({PROGRAM} complete $@[-1] "${{(Q)PREFIX}}" -- "${{words[@]}}" 2>/dev/null)"}})
  compadd "${{(@)@[1,-2]}}" -a names
}}""",
        },
    }


def _complete_values(parser: argparse.ArgumentParser, kinds: Mapping[str, object]) -> None:
    """Tell shtab how to complete the values of all options, from their metavars.

    FILE and DIR complete paths, also in `current|N|FILE`, and QUEUE completes names of the running system; the
    lower-case parts of other alternatives complete as words.
    """
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                _complete_values(one, kinds)
        elif isinstance(action.metavar, str) and action.choices is None and action.nargs != 0:
            parts = action.metavar.split("|")
            words = [part for part in parts if part.islower() and len(parts) > 1]
            kind = next((kinds[name] for name in kinds if name in parts), None)
            if kind is not None:
                action.complete = kind  # type: ignore[attr-defined]  # the attribute that shtab reads
            elif words:
                action.choices = words
