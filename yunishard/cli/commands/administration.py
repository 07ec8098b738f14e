"""`yunishard config` and `yunishard schedule`: show and change the queues of a running system over REST, step by step.

A change of the configuration carries the checksum of the configuration that it replaces (If-Match), so that concurrent
changes do not overwrite each other.

The docstrings of `run_config` and `run_schedule` are the help texts. Not here: HTTP (`rest.py`), checking a
file without a running system (`validate.py`), authorization (the web service decides).
"""

import argparse
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec

from yunishard.cli.commands.console import STDIN, add_actions, format_problem, print_json, read_configuration
from yunishard.cli.commands.rest import Answer, RequestFailed, Rest, add_rest, hint_if_missing
from yunishard.cli.main import CommandFailed, CommandUnusable, parse_whole
from yunishard.common.messages.query_messages import STEPS_MAX
from yunishard.common.process.terminal import print_table, write
from yunishard.common.rest.records import ChangedView, StepsView, VersionView

if TYPE_CHECKING:  # most actions start faster without
    from yunishard.common.config.model import Configuration
    from yunishard.common.config.problems import Problem

# yunishard config -----------------------------------------------------------------------------------------------------

CURRENT: Final = "current"
SIDE: Final = f"{CURRENT}|N|FILE"
"""A side of a comparison by `diff`."""


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard config`."""
    version = parse_whole(1, 999_999_999, "the number of a version")
    for name, own in add_actions(parser, {name: about for name, (_, about) in _CONFIG_ACTIONS.items()}).items():
        own.add_argument("--rm", metavar="RM", default="", help="the resource manager (default: the only one)")
        add_rest(own)
        match name:
            case "get":
                own.add_argument("version", metavar="N", nargs="?", type=version, help="(default: the one in force)")
            case "put":
                own.add_argument("file", metavar="FILE", help=f"the queues.yaml; {STDIN} for standard input")
                _add_change(own, "that in the file's key `checksum`, or else that in force now")
            case "rollback":
                own.add_argument("version", metavar="N", type=version, help="number of the version")
                _add_change(own, "that in force now")
            case "diff":
                own.add_argument("a", metavar=SIDE, nargs="?", default="", help="(default: the version before that)")
                own.add_argument("b", metavar=SIDE, nargs="?", default=CURRENT, help=f"(default: {CURRENT})")
                own.add_argument("--summary", action="store_true", help="one line for each change, in words")


def _add_change(parser: argparse.ArgumentParser, default: str) -> None:
    about = f"change nothing unless this is in force, its first 8 digits or more, * for anything (default: {default})"
    parser.add_argument("--if-match", metavar="CHECKSUM", default="", help=about)
    about = "overwrite the watched file even if it has an edit that is not in force; the edit is kept in FILE.previous"
    parser.add_argument("--force", action="store_true", help=about)


def run_config(args: argparse.Namespace) -> int:
    """Show and change the queues of a resource manager while the system runs. A
    change reaches all its partitions or none.

    N: the number of a version, as `history` shows it.

    examples:
      yunishard config get > queues.yaml       the text in force
      yunishard config get 3                   that of version 3
      yunishard config put queues.yaml         replace it; prints warnings about
                                               probably unintended settings
      yunishard config history
      yunishard config diff                    the last change
      yunishard config diff current queues.yaml
      yunishard config diff --summary 3        changes since version 3, by queue
      yunishard config rollback 3              version 3 again, as a new version

    exit codes:
      0  done; of diff: no difference
      1  refused, with the reason; of diff: they differ
      2  wrong usage, a file that cannot be read, or nothing answers
    """
    run, _ = _CONFIG_ACTIONS[args.action]
    try:
        rest = Rest.from_arguments(args)
        ids = [args.rm] if args.rm else rest.rm_ids()
        if len(ids) > 1:
            raise CommandFailed(f"several resource managers are registered, name one with --rm: {', '.join(ids)}")
        if ids or (args.action == "get" and not args.version):
            return run(args, rest, *ids or [""])
        raise CommandFailed(
            "no resource manager is registered now: start one, or name an earlier one with --rm ID"
            " to see its `history` or a version of it (`get N`)"
        )
    except RequestFailed as failed:
        if not failed.problems:
            raise
        if args.json:
            print_json({"problems": failed.problems})
        else:
            from yunishard.common.config.problems import Problem

            _print_problems(args, msgspec.convert(failed.problems, list[Problem], strict=False))
        return failed.status


def _get_config(args: argparse.Namespace, rest: Rest, rm: str) -> int:
    """Print a configuration; without a resource manager the one that the first one gets if it sends none."""
    path = ("version", str(args.version)) if args.version else ()
    answer = _request_config(rest, rm, *path) if rm else rest.get("config", "default")
    if args.json:
        print_json({"rm": rm, "checksum": answer.tag, "config": answer.text})
        return 0
    if not rm:
        sys.stderr.write(
            "yunishard config get: no resource manager is registered now (name an earlier one with --rm ID);"
            " this is what one gets that sends no configuration\n"
        )
    return answer.print()


def _change_config(args: argparse.Namespace, rest: Rest, rm: str) -> int:
    """Replace the configuration by a file (`put`) or by an earlier version (`rollback`)."""
    text = read_configuration(args.file) if args.action == "put" else ""
    before = _request_config(rest, rm).tag
    if_match = choose_precondition(option=args.if_match, text=text, in_force=before)
    query = {"rm": rm, "force": "true" if args.force else ""}
    if args.action == "put":
        answer = rest.send("PUT", "config", body=text.encode(), if_match=if_match, query=query)
    else:
        query["version"] = str(args.version)
        with hint_if_missing(lambda _: _find_hint(rest, rm, "rollback")):
            answer = rest.send("POST", "config", "rollback", if_match=if_match, query=query)
    if args.json:
        return answer.print()
    change = answer.decode(ChangedView)
    _print_problems(args, change.warnings, "warning: ")
    is_new = change.checksum != before
    outcome = f"{rm} runs version {change.version}" if is_new else f"already in force: version {change.version} of {rm}"
    write(f"{outcome}, partitions: {', '.join(change.partitions)}")
    if change.file:
        verb = "follows" if len(change.followers) == 1 else "follow"
        more = f"; {', '.join(change.followers)} {verb} it" if change.followers else ""
        write(f"written back to the watched file{more}")
    write(f"checksum {change.checksum}")
    return 0


def _request_config(rest: Rest, rm: str, *path: str) -> Answer:
    """Request a configuration of an RM, the one in force by default; a failure explains unknown RMs and versions."""
    with hint_if_missing(lambda _: _find_hint(rest, rm, *path)):
        return rest.get("config", *path, rm=rm)


def _find_hint(rest: Rest, rm: str, *path: str) -> str:
    """Return where to find the right name after a failure that may come from an unknown version or RM."""
    if path[:1] in (("version",), ("rollback",)):
        return f": `yunishard config history --rm {rm}` lists those that are kept"
    ids = rest.rm_ids()
    more = "" if path else f"; its earlier versions: `yunishard config history --rm {rm}`"
    return "" if rm in ids else f" (registered: {', '.join(ids) or 'none'}){more}"


def _print_problems(args: argparse.Namespace, problems: "list[Problem]", label: str = "") -> None:
    """Print problems from an answer to standard error, as `yunishard validate` does."""
    for problem in problems:
        sys.stderr.write(format_problem(getattr(args, "file", "configuration"), problem, label) + "\n")


def _show_history(args: argparse.Namespace, rest: Rest, rm: str) -> int:
    answer = _request_config(rest, rm, "history")
    if args.json:
        return answer.print()
    rows = []
    for one in answer.decode(list[VersionView]):
        version = f"{one.version} *" if one.current else str(one.version)
        rows.append((version, _format_time(one.at), one.author or "-", one.origin, one.checksum[:12]))
    print_table(("version", "when", "author", "origin", "checksum"), rows)
    return 0


def _format_time(at: int) -> str:
    """Format Unix nanoseconds in the local time zone."""
    return datetime.fromtimestamp(at / 1e9, UTC).astimezone().isoformat(" ", "seconds") if at else "-"


def _show_diff(args: argparse.Namespace, rest: Rest, rm: str) -> int:
    b_name, b_text = _get_side(rest, rm, args.b)
    a_name, a_text = _get_side(rest, rm, args.a or _find_version_before(rest, rm, args.b))
    if args.summary:
        from yunishard.common.config.difference import find_differences

        changes = find_differences(_parse_config(a_name, a_text), _parse_config(b_name, b_text))
        document, lines = msgspec.to_builtins(changes), [" ".join(str(one).splitlines()) for one in changes]
    else:
        import difflib

        lines = list(difflib.unified_diff(a_text.splitlines(), b_text.splitlines(), a_name, b_name, lineterm=""))
        document = {"a": a_name, "b": b_name, "diff": lines}
    if args.json:
        print_json(document)
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if lines else 0


def _get_side(rest: Rest, rm: str, name: str) -> tuple[str, str]:
    """Return the name and the text of one side of a comparison."""
    if name == CURRENT:
        return f"{rm} {CURRENT}", _request_config(rest, rm).text
    if name.isascii() and name.isdecimal():
        return f"{rm} version {name}", _request_config(rest, rm, "version", name).text
    return name, read_configuration(name)


def _find_version_before(rest: Rest, rm: str, name: str) -> str:
    """Return the version before the named one; the current one for a file."""
    for one, before in pairwise(_request_config(rest, rm, "history").decode(list[VersionView])):
        if (name == CURRENT and one.current) or str(one.version) == name:
            return str(before.version)
    if name == CURRENT or name.isdecimal():
        raise CommandFailed(f"there is no version before {name} of {rm}: give both sides, or a file")
    return CURRENT


def _parse_config(name: str, text: str) -> "Configuration":
    from yunishard.common.config.problems import ConfigError
    from yunishard.common.config.validation import load

    try:
        return load(text)
    except ConfigError as error:
        more = len(error.problems) - 1
        others = f" (and {more} more: see `yunishard validate`)" if more else ""
        reason = " ".join(str(error.problems[0]).splitlines())
        raise CommandUnusable(f"{name}: no configuration to compare: {reason}{others}") from None


_CONFIG_ACTIONS: Final[dict[str, tuple[Callable[[argparse.Namespace, Rest, str], int], str]]] = {
    "get": (_get_config, "print the text in force, as it was written"),
    "put": (_change_config, "replace the configuration"),
    "history": (_show_history, "list the versions that are kept, the newest first"),
    "diff": (_show_diff, "compare two versions, or one with a file"),
    "rollback": (_change_config, "run an earlier version again, as a new one"),
}


ANYTHING: Final = "*"
PREFIX_DIGITS_MIN: Final = 8
"""Fewest hexadecimal digits that identify a checksum."""


def choose_precondition(*, option: str, text: str, in_force: str) -> str:
    """Return the checksum for If-Match, or ANYTHING, from the option or else the text.

    Raises:
        CommandFailed: the given checksum is invalid, or is not that of the configuration in force.
    """
    if option == ANYTHING:
        return option
    if option:
        if not re.fullmatch(rf"[0-9A-Fa-f]{{{PREFIX_DIGITS_MIN},64}}", option):
            wanted = f"a checksum, its first {PREFIX_DIGITS_MIN} hexadecimal digits or more, or {ANYTHING}"
            raise CommandUnusable(f"--if-match: expected {wanted}, got {option[:80]!r}")
        if not in_force.startswith(option.upper()):
            raise CommandFailed(
                f"--if-match is {option!r}, but in force is {in_force}: it was changed meanwhile;"
                " check it (`yunishard config get`), then try again"
            )
        return in_force
    own = find_checksum(text)
    if own and own.upper() != in_force:
        raise CommandFailed(
            f"the key `checksum` of the file is {own[:80]!r}, but in force is {in_force}: look at what has changed"
            " (`yunishard config diff current FILE`), then put this checksum there or leave the key out"
        )
    return in_force


def find_checksum(text: str) -> str:
    """Return the checksum in a configuration's own key; empty if there is none, or if the text cannot be parsed."""
    if "checksum" not in text:
        return ""  # parsing a large text takes seconds
    from yunishard.common.config.parse import Mapping, Scalar, compose, is_null
    from yunishard.common.config.problems import ConfigError

    try:
        document = compose(text.removeprefix("\ufeff"))
    except ConfigError:
        return ""  # the system reports everything that is wrong with it
    for key, value in document.entries if isinstance(document, Mapping) else ():
        if isinstance(key, Scalar) and key.text == "checksum" and isinstance(value, Scalar) and not is_null(value):
            return value.text.strip()
    return ""


# yunishard schedule ---------------------------------------------------------------------------------------------------


def add_schedule_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard schedule`."""
    parser.add_argument("partition", metavar="PARTITION", help="name of the partition, as the web service shows it")
    about = f"number of decisions, 1 to {STEPS_MAX} (default: 1)"
    parser.add_argument("--steps", metavar="N", type=parse_whole(1, STEPS_MAX), default=1, help=about)
    add_rest(parser)


def run_schedule(args: argparse.Namespace) -> int:
    """Make the next scheduling decisions, one after the other, and print each. The
    system must run with `yunishard up --manual`. For tests and teaching. Requires
    the role of scheduler administrator.

    examples:
      yunishard schedule default                 one decision
      yunishard schedule rm-1_gpu --steps 20     up to 20 decisions

    exit codes:
      0  done, also if there was nothing to decide
      1  refused, with the reason
      2  wrong usage, or the system does not answer
    """
    answer = Rest.from_arguments(args).in_partition(args.partition, "schedule", query={"steps": str(args.steps)})
    if args.json:
        return answer.print()
    rows = [
        [one.kind, one.application_id, one.allocation_key, one.node_id or "-", ", ".join(one.releases) or "-"]
        for one in answer.decode(StepsView).decisions
    ]
    if rows:
        print_table(("DECISION", "APPLICATION", "ASK", "NODE", "RELEASES"), rows)
    else:
        write("nothing to decide")
    return 0
